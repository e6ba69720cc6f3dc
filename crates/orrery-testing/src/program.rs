//! Executable files.

use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes an executable file through another process. A file that this process has open for writing
/// cannot be executed, and another thread may just have forked with the descriptor.
///
/// # Errors
/// Fails if the file cannot be written.
pub fn write_program(path: &Path, text: &str) -> io::Result<()> {
    let mut install = Command::new("install");
    install.args(["-m", "755", "/dev/stdin"]).arg(path).stdin(Stdio::piped());
    let mut child = install.spawn()?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(text.as_bytes())?;
    }
    match child.wait()?.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("cannot write {}", path.display()))),
    }
}
