//! Signals as bytes in a pipe. Handlers instead of a signal mask: handlers do not outlive `exec`, a
//! mask would.

use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;

/// Signals that are forwarded to the program.
const PASSED_ON: [Signal; 6] =
    [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];

/// Received signals, and a descriptor that is readable when there is one.
pub(crate) struct Signals {
    pub(crate) woken: UnixStream,
    came: Vec<(Signal, Arc<AtomicBool>)>,
}

impl Signals {
    pub(crate) fn handle() -> io::Result<Self> {
        let (woken, wake) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        let mut came = Vec::new();
        for signal in PASSED_ON {
            let flag = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(signal.as_raw(), Arc::clone(&flag))?;
            signal_hook::low_level::pipe::register(signal.as_raw(), wake.try_clone()?)?;
            came.push((signal, flag));
        }
        signal_hook::low_level::pipe::register(Signal::CHILD.as_raw(), wake)?;
        Ok(Signals { woken, came })
    }

    /// Returns the signals to forward since the last call.
    pub(crate) fn take(&mut self) -> Vec<Signal> {
        let mut bytes = [0; 64];
        while matches!(self.woken.read(&mut bytes), Ok(count) if count > 0) {}
        let came = self.came.iter().filter(|(_, flag)| flag.swap(false, Ordering::Relaxed));
        came.map(|(signal, _)| *signal).collect()
    }
}
