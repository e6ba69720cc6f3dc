//! `orrery explain`: the page of a diagnostic.

use std::fmt::Write as _;

use orrery_model::similar_names;

use crate::cli::Explain;
use crate::{Exit, output, pages, style};

pub(crate) fn run(options: &Explain) -> Exit {
    let Some(id) = &options.id else { return list() };
    // Accepts the form of messages: `error[not-complete]`.
    let id = id.trim_start_matches("error").trim_start_matches("warning");
    let id = id.trim_matches(['[', ']', ':', ' ']);
    match pages::find(id) {
        Some(page) => {
            let printed = output::print_styled(&pages::rendered(page, output::width()));
            if printed { Exit::Done } else { Exit::Error }
        }
        None => {
            let id = style::sanitize(id);
            output::print_status(&format!("{}: no diagnostic `{id}`", style::error("error")));
            let near = similar_names::closest(&id, pages::all().map(|(known, _)| known));
            let help = match near {
                Some(near) => format!("did you mean `{near}`?"),
                None => "`orrery explain` lists all ids".to_owned(),
            };
            output::print_status(&format!("{}: {help}", style::help("help")));
            Exit::Error
        }
    }
}

fn list() -> Exit {
    let width = pages::all().map(|(id, _)| id.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (id, summary) in pages::all() {
        let padding = " ".repeat(width - id.len());
        let _ = writeln!(text, "{}{padding}  {summary}", style::heading(id));
    }
    if output::print_styled(&text) { Exit::Done } else { Exit::Error }
}
