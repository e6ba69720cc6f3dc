//! Runs a command on a large stack and turns panics into errors.

use std::backtrace::Backtrace;
use std::panic::{self, PanicHookInfo};
use std::sync::{Arc, Mutex};
use std::thread;

/// Far more than the parser and evaluator need with their bounded recursion.
const STACK_BYTES: usize = 256 << 20;

/// A panic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Crash {
    pub(crate) message: String,
}

/// Runs `work` on a large stack.
///
/// # Errors
/// The panic, or a lack of memory for the stack.
pub(crate) fn run<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Crash> {
    let told: Arc<Mutex<Option<Crash>>> = Arc::default();
    let teller = Arc::clone(&told);
    panic::set_hook(Box::new(move |info| {
        let crash = describe(info);
        if let Ok(mut told) = teller.lock() {
            told.get_or_insert(crash);
        }
    }));
    let worker = match thread::Builder::new().stack_size(STACK_BYTES).spawn(work) {
        Ok(worker) => worker,
        Err(error) => {
            return Err(Crash { message: format!("cannot start a thread: {error}") });
        }
    };
    worker.join().map_err(|_| {
        let told = told.lock().ok().and_then(|mut told| told.take());
        told.unwrap_or_default()
    })
}

fn describe(info: &PanicHookInfo<'_>) -> Crash {
    let payload = info.payload();
    let message = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "panic without a message".to_owned());
    let place = info.location().map(|place| format!(" ({}:{})", place.file(), place.line()));
    tracing::debug!("{}", Backtrace::force_capture());
    Crash { message: format!("{message}{}", place.unwrap_or_default()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_returned_and_panics_described() {
        assert_eq!(run(|| 7), Ok(7));
        let crash = run(|| -> u8 { panic!("the {} broke", "spring") }).unwrap_err();
        assert!(crash.message.starts_with("the spring broke ("), "{crash:?}");
        assert!(crash.message.contains("guard.rs:"), "{crash:?}");
    }
}
