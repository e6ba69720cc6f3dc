//! Prompts on the terminal, and input from standard input.

use std::io::{BufRead as _, IsTerminal as _, Read as _, Write as _};

use orrery_model::SecretText;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::error::CliError;
use crate::style;

/// Maximum length of a value on standard input.
const INPUT_MAX: u64 = 1 << 20;

pub(super) fn is_interactive() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Prompts for a line.
pub(super) fn ask(question: &str) -> Result<String, CliError> {
    prompt(question)?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(unreadable)?;
    let line = line.trim();
    if line.is_empty() {
        return Err(CliError::new(format!("no {question} given")));
    }
    Ok(line.to_owned())
}

/// Reads a secret: typed without echo, or all of standard input without the final newline.
pub(crate) fn secret(what: &str) -> Result<SecretText, CliError> {
    let text = if is_interactive() { typed(what)? } else { read_input()? };
    if text.expose().is_empty() {
        let error = CliError::new(format!("no {what} given"));
        return Err(error.help(format!("type the {what}, or provide it on standard input")));
    }
    if what.ends_with("password") && text.expose().contains('\n') {
        let error = CliError::new(format!("the {what} must be a single line"));
        return Err(error.help("provide it once"));
    }
    Ok(text)
}

/// Reads a new secret; on a terminal it is typed twice.
pub(super) fn new_secret(what: &str) -> Result<SecretText, CliError> {
    let text = secret(what)?;
    if is_interactive() && typed(&format!("{what} again"))? != text {
        return Err(CliError::new(format!("the {what}s do not match")));
    }
    Ok(text)
}

/// Asks for confirmation of an irreversible action.
pub(in crate::commands) fn confirm(yes: bool, what: &str) -> Result<(), CliError> {
    if yes {
        return Ok(());
    }
    if !is_interactive() {
        let error = CliError::new(format!("{what}: this cannot be undone"));
        return Err(error.help("use --yes to confirm"));
    }
    prompt(&format!("{what}: this cannot be undone. Type yes to continue"))?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(unreadable)?;
    match line.trim() {
        "yes" => Ok(()),
        _ => Err(CliError::new("cancelled: nothing was changed")),
    }
}

/// Asks for confirmation of a change that was shown.
pub(in crate::commands) fn agree(yes: bool, what: &str) -> Result<(), CliError> {
    if yes {
        return Ok(());
    }
    if !is_interactive() {
        let error = CliError::new(format!("{what}: confirmation required"));
        return Err(error.help("use --yes to confirm"));
    }
    prompt(&format!("{what}? Type yes to continue"))?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(unreadable)?;
    match line.trim() {
        "yes" => Ok(()),
        _ => Err(CliError::new("cancelled: nothing was changed")),
    }
}

/// Asks for confirmation of an irreversible action by typing a name.
pub(in crate::commands) fn confirm_name(yes: bool, what: &str, name: &str) -> Result<(), CliError> {
    if yes {
        return Ok(());
    }
    let shown = style::sanitize(name);
    if !is_interactive() {
        let error = CliError::new(format!("{what} of {shown}: this cannot be undone"));
        return Err(error.help("use --yes to confirm"));
    }
    prompt(&format!("{what}: this cannot be undone. Type {shown} to continue"))?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(unreadable)?;
    match line.trim() == name {
        true => Ok(()),
        false => Err(CliError::new("cancelled: nothing was changed")),
    }
}

fn read_input() -> Result<SecretText, CliError> {
    let mut text = String::new();
    std::io::stdin().lock().take(INPUT_MAX).read_to_string(&mut text).map_err(unreadable)?;
    let end = text.strip_suffix('\n').map_or(text.len(), str::len);
    text.truncate(end);
    if text.ends_with('\r') {
        text.pop();
    }
    Ok(SecretText::new(text))
}

fn typed(what: &str) -> Result<SecretText, CliError> {
    prompt(what)?;
    let quiet = EchoOff::begin().map_err(unreadable)?;
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    drop(quiet);
    let _ = writeln!(std::io::stderr());
    read.map_err(unreadable)?;
    let end = line.trim_end_matches(['\r', '\n']).len();
    line.truncate(end);
    Ok(SecretText::new(line))
}

fn prompt(question: &str) -> Result<(), CliError> {
    let mut out = std::io::stderr().lock();
    write!(out, "{question}: ").and_then(|()| out.flush()).map_err(unreadable)
}

fn unreadable(error: impl Into<std::io::Error>) -> CliError {
    CliError::new(format!("cannot read standard input: {}", error.into()))
}

/// Disables terminal echo while it exists.
struct EchoOff {
    before: Termios,
}

impl EchoOff {
    fn begin() -> rustix::io::Result<Self> {
        let before = tcgetattr(std::io::stdin())?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO);
        tcsetattr(std::io::stdin(), OptionalActions::Flush, &quiet)?;
        Ok(EchoOff { before })
    }
}

impl Drop for EchoOff {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.before);
    }
}
