//! SIGINT and SIGTERM: the first requests an orderly end, the second exits immediately.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Exit code of an interrupted program, by shell convention.
const INTERRUPTED: i32 = 130;

/// Flag set when the user requests the end.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Makes signals set the flag instead of ending the process.
    ///
    /// # Errors
    /// An error if the system rejects the signal handlers.
    pub(crate) fn listen() -> std::io::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // The order matters: at the first signal, the flag is not set yet, so this does
            // nothing.
            signal_hook::flag::register_conditional_shutdown(
                signal,
                INTERRUPTED,
                Arc::clone(&asked),
            )?;
            signal_hook::flag::register(signal, Arc::clone(&asked))?;
        }
        Ok(Interrupt(asked))
    }

    /// A flag that no signal sets: signals keep their default effect.
    pub(crate) fn ignored() -> Self {
        Interrupt(Arc::default())
    }

    pub(crate) fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
