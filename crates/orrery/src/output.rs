//! Standard output and standard error: colours and closed pipes.

use std::io::{self, IsTerminal, Write};

use crate::panic_guard::Crash;
use crate::style;

/// Sets the use of colours; `anstream` detects terminals and their variables.
pub(crate) fn choose_colour(choice: anstream::ColorChoice) {
    choice.write_global();
}

pub(crate) fn stderr_has_colour() -> bool {
    let choice = anstream::AutoStream::choice(&io::stderr());
    choice != anstream::ColorChoice::Never
}

/// Maximum width of diagnostics.
pub(crate) fn width() -> Option<usize> {
    if !io::stderr().is_terminal() {
        return None;
    }
    #[cfg(unix)]
    if let Ok(size) = rustix::termios::tcgetwinsize(io::stderr()) {
        return Some(usize::from(size.ws_col)).filter(|columns| *columns > 0);
    }
    None
}

/// Returns true if the output was written. A reader that closed the pipe, such as `head`, is not an
/// error; other errors are reported.
pub(crate) fn is_written(result: io::Result<()>) -> bool {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            print_status(&format!(
                "{}: could not write the output: {error}",
                style::error("error")
            ));
            false
        }
        _ => true,
    }
}

/// Writes to standard output through a buffer. Returns false on errors other than a closed pipe.
#[must_use]
pub(crate) fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> bool {
    let mut out = io::BufWriter::with_capacity(1 << 16, io::stdout().lock());
    is_written(write(&mut out).and_then(|()| out.flush()))
}

/// Writes styled text to standard output; styles are removed where there is no colour.
#[must_use]
pub(crate) fn print_styled(text: &str) -> bool {
    let mut out = anstream::stdout().lock();
    is_written(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Writes a styled line to standard error; errors are ignored.
pub(crate) fn print_status(line: &str) {
    let _ = writeln!(anstream::stderr().lock(), "{line}");
}

/// Reports a bug.
pub(crate) fn internal_error(crash: &Crash, as_json: bool) {
    let advice = "this is a bug in Orrery, not in your model; please report it, with the model if \
                  you can and the version that `orrery --version` shows";
    if as_json {
        let text = format!("internal error: {}", crash.message);
        let report = serde_json::json!({
            "status": "error",
            "stdout": "",
            "error": {
                "message": format!("{text}\n{advice}"), "file": null, "line": null, "column": null,
                "class": "InternalError", "text": text,
            },
            "warnings": [],
        });
        let _ = print(|out| writeln!(out, "{report}"));
        return;
    }
    print_status(&format!("{}: {}", style::error("internal error"), crash.message));
    print_status(&format!("{}: {advice}", style::help("help")));
}
