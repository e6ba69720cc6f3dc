//! Standard output and standard error: colours, and readers that go away.

use std::io::{self, IsTerminal, Write};

use crate::cli::Color;
use crate::guard::Crash;
use crate::style;

/// Sets when colours are used. `anstream` knows terminals and what the environment says of them.
pub(crate) fn choose_colour(color: Color) {
    let choice = match color {
        Color::Auto => anstream::ColorChoice::Auto,
        Color::Always => anstream::ColorChoice::Always,
        Color::Never => anstream::ColorChoice::Never,
    };
    choice.write_global();
}

pub(crate) fn stderr_has_colour() -> bool {
    let choice = anstream::AutoStream::choice(&io::stderr());
    choice != anstream::ColorChoice::Never
}

/// The width that diagnostics may use.
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

/// Whether something was written. A reader that has seen enough and left, as `head` does, is no
/// error; anything else is reported.
pub(crate) fn is_written(result: io::Result<()>) -> bool {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            say(&format!("{}: could not write the output: {error}", style::error("error")));
            false
        }
        _ => true,
    }
}

/// Writes to standard output through a buffer. True unless something other than the reader failed.
#[must_use]
pub(crate) fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> bool {
    let mut out = io::BufWriter::with_capacity(1 << 16, io::stdout().lock());
    is_written(write(&mut out).and_then(|()| out.flush()))
}

/// Writes text with styles to standard output: they are removed where there is no colour.
#[must_use]
pub(crate) fn print_styled(text: &str) -> bool {
    let mut out = anstream::stdout().lock();
    is_written(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Writes a line with styles to standard error. If that can not be written, nobody listens.
pub(crate) fn say(line: &str) {
    let _ = writeln!(anstream::stderr().lock(), "{line}");
}

/// Tells of a bug.
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
    say(&format!("{}: {}", style::error("internal error"), crash.message));
    say(&format!("{}: {advice}", style::help("help")));
}
