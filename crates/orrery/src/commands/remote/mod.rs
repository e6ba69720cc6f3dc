//! Commands against a server, one module for each kind of thing. What they have in common is here: asking questions, and showing
//! answers as a table or as the JSON of the API.

mod session;
mod table;
mod terminal;

use serde::Serialize;

use crate::commands::trouble::Trouble;
use crate::output;

pub(super) use session::{context, login, logout};

/// Writes JSON for programs.
fn print_json(value: &impl Serialize) -> Result<(), Trouble> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Trouble::of(&error))?;
    // What could not be written was told.
    let _ = output::print(|out| writeln!(out, "{text}"));
    Ok(())
}
