//! Questions to whoever sits at the terminal, or to whatever is on the other end of standard input.

use std::io::{BufRead as _, IsTerminal as _, Read as _, Write as _};

use orrery_model::SecretText;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::commands::trouble::Trouble;
use crate::style;

/// A value on standard input that is longer is a mistake.
const INPUT_MAX: u64 = 1 << 20;

pub(super) fn is_interactive() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks for a line.
pub(super) fn ask(question: &str) -> Result<String, Trouble> {
    prompt(question)?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(unreadable)?;
    let line = line.trim();
    if line.is_empty() {
        return Err(Trouble::said(format!("no {question} was given")));
    }
    Ok(line.to_owned())
}

/// A secret: typed without showing it, or all of standard input without the end of its last line.
pub(crate) fn secret(what: &str) -> Result<SecretText, Trouble> {
    let text = if is_interactive() { typed(what)? } else { read_input()? };
    if text.expose().is_empty() {
        let trouble = Trouble::said(format!("no {what} was given"));
        return Err(trouble.help(format!("type the {what}, or give it on standard input")));
    }
    if what.ends_with("password") && text.expose().contains('\n') {
        let trouble = Trouble::said(format!("a {what} is one line"));
        return Err(trouble.help("give it once, without a repetition"));
    }
    Ok(text)
}

/// A new secret: whoever types it, types it twice.
pub(super) fn new_secret(what: &str) -> Result<SecretText, Trouble> {
    let text = secret(what)?;
    if is_interactive() && typed(&format!("{what} again"))? != text {
        return Err(Trouble::said(format!("that was another {what}")));
    }
    Ok(text)
}

/// Whether something that cannot be undone is wanted.
pub(in crate::commands) fn confirm(yes: bool, what: &str) -> Result<(), Trouble> {
    if yes {
        return Ok(());
    }
    if !is_interactive() {
        let trouble = Trouble::said(format!("{what}: this cannot be undone"));
        return Err(trouble.help("say --yes if it is meant"));
    }
    prompt(&format!("{what}: this cannot be undone. Type yes to go on"))?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(unreadable)?;
    match line.trim() {
        "yes" => Ok(()),
        _ => Err(Trouble::said("nothing was done")),
    }
}

/// Asks whether a change that was shown is to be made.
pub(in crate::commands) fn agree(yes: bool, what: &str) -> Result<(), Trouble> {
    if yes {
        return Ok(());
    }
    if !is_interactive() {
        let trouble = Trouble::said(format!("{what}: nobody can be asked here"));
        return Err(trouble.help("say --yes if it is meant"));
    }
    prompt(&format!("{what}? Type yes to go on"))?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(unreadable)?;
    match line.trim() {
        "yes" => Ok(()),
        _ => Err(Trouble::said("nothing was done")),
    }
}

/// Whether something that cannot be undone is wanted, of something whose name is typed.
pub(in crate::commands) fn confirm_name(yes: bool, what: &str, name: &str) -> Result<(), Trouble> {
    if yes {
        return Ok(());
    }
    let shown = style::harmless(name);
    if !is_interactive() {
        let trouble = Trouble::said(format!("{what} of {shown}: this cannot be undone"));
        return Err(trouble.help("say --yes if it is meant"));
    }
    prompt(&format!("{what}: this cannot be undone. Type {shown} to go on"))?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(unreadable)?;
    match line.trim() == name {
        true => Ok(()),
        false => Err(Trouble::said("nothing was done")),
    }
}

fn read_input() -> Result<SecretText, Trouble> {
    let mut text = String::new();
    std::io::stdin().lock().take(INPUT_MAX).read_to_string(&mut text).map_err(unreadable)?;
    let end = text.strip_suffix('\n').map_or(text.len(), str::len);
    text.truncate(end);
    if text.ends_with('\r') {
        text.pop();
    }
    Ok(SecretText::new(text))
}

fn typed(what: &str) -> Result<SecretText, Trouble> {
    prompt(what)?;
    let quiet = Quiet::begin().map_err(unreadable)?;
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    drop(quiet);
    let _ = writeln!(std::io::stderr());
    read.map_err(unreadable)?;
    let end = line.trim_end_matches(['\r', '\n']).len();
    line.truncate(end);
    Ok(SecretText::new(line))
}

fn prompt(question: &str) -> Result<(), Trouble> {
    let mut out = std::io::stderr().lock();
    write!(out, "{question}: ").and_then(|()| out.flush()).map_err(unreadable)
}

fn unreadable(error: impl Into<std::io::Error>) -> Trouble {
    Trouble::said(format!("standard input cannot be read: {}", error.into()))
}

/// A terminal that does not show what is typed, for as long as this lives.
struct Quiet {
    before: Termios,
}

impl Quiet {
    fn begin() -> rustix::io::Result<Self> {
        let before = tcgetattr(std::io::stdin())?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO);
        tcsetattr(std::io::stdin(), OptionalActions::Flush, &quiet)?;
        Ok(Quiet { before })
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.before);
    }
}
