//! Ctrl-C and friends: the first asks for an orderly end, the second ends at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// What a shell expects of a program that was interrupted.
const INTERRUPTED: i32 = 130;

/// Whether somebody asked for the end.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on signals ask for the end instead of bringing it.
    ///
    /// # Errors
    /// If the system refuses.
    pub(crate) fn listen() -> std::io::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // In this order: the first signal passes here, since the flag is not set yet.
            signal_hook::flag::register_conditional_shutdown(
                signal,
                INTERRUPTED,
                Arc::clone(&asked),
            )?;
            signal_hook::flag::register(signal, Arc::clone(&asked))?;
        }
        Ok(Interrupt(asked))
    }

    /// One that no signal sets: signals keep their usual effect.
    pub(crate) fn ignored() -> Self {
        Interrupt(Arc::default())
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
