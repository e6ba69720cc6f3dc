//! Creation of an empty virtualenv with pip.

use std::path::Path;
use std::process::Command;

use crate::interpreters::Interpreter;
use crate::paths::python_of;
use crate::{Error, atomic_replace, process};

/// Completes the command of an interpreter so that it creates a virtualenv.
pub(crate) fn arguments(mut python: Command, dir: &Path) -> Command {
    python.args(["-I", "-m", "venv"]).arg(dir);
    python
}

/// Creates an empty virtualenv; replaces what is there.
pub(crate) fn create_empty(interpreter: &Interpreter, dir: &Path) -> Result<(), Error> {
    atomic_replace::remove(dir)?;
    let program = interpreter.program.display().to_string();
    let command = arguments(Command::new(&interpreter.program), dir);
    let ended = process::stream(command, None, &mut |_| ())
        .map_err(Error::system(format!("run {program}")))?;
    let lines = match ended {
        Ok(()) if python_of(dir).exists() => return Ok(()),
        Ok(()) => Vec::new(),
        Err(lines) => lines,
    };
    let reason = lines.into_iter().rfind(|line| !line.trim().is_empty());
    let reason = reason.unwrap_or_else(|| "no virtualenv was created".to_owned());
    Err(Error::UnusablePython { python: program, reason })
}
