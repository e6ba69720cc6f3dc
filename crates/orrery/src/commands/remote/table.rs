//! Tables that fit the terminal, and lists of properties.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;

use orrery_api::Time;
use orrery_model::Status;

use crate::commands::inspect::text;
use crate::error::CliError;
use crate::{Exit, output, style};

/// Minimum width of a cut column.
const CUT_LEAST: usize = 12;

/// Rows under headings.
pub(in crate::commands) struct Table {
    rows: Vec<Vec<String>>,
    noun: &'static str,
}

impl Table {
    /// `noun` names a row.
    pub(in crate::commands) fn new(noun: &'static str, headings: &[&str]) -> Self {
        Table { rows: vec![headings.iter().map(|&text| text.to_owned()).collect()], noun }
    }

    /// Adds a row; sanitizes its cells.
    pub(in crate::commands) fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        let one_line = |text: String| style::sanitize(&text).replace('\n', " ");
        self.rows.push(cells.into_iter().map(|text| one_line(text.into())).collect());
    }

    /// Prints the table and the number of rows.
    pub(in crate::commands) fn print(mut self) -> Result<Exit, CliError> {
        let count = self.rows.len() - 1;
        if count > 0 {
            if let Some(width) = terminal_width() {
                fit(&mut self.rows, width);
            }
            let out = text::heading_table(&self.rows);
            if !output::print_styled(&out) {
                return Ok(Exit::Error);
            }
        }
        output::print_status(&style::count(count, self.noun));
        Ok(Exit::Done)
    }
}

/// Width of the terminal, if standard output is one.
fn terminal_width() -> Option<usize> {
    if !std::io::stdout().is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Cuts the widest columns until the lines fit.
fn fit(rows: &mut [Vec<String>], width: usize) {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let length =
        |row: &Vec<String>, column: usize| row.get(column).map_or(0, |text| text.chars().count());
    loop {
        let widths: Vec<usize> = (0..columns)
            .map(|column| rows.iter().map(|row| length(row, column)).max().unwrap_or(0))
            .collect();
        let total = widths.iter().sum::<usize>() + 2 * columns.saturating_sub(1);
        let Some((widest, most)) = widths.iter().copied().enumerate().max_by_key(|(_, most)| *most)
        else {
            return;
        };
        if total <= width || most <= CUT_LEAST {
            return;
        }
        let keep = most.saturating_sub(total - width).max(CUT_LEAST);
        for text in rows.iter_mut().filter_map(|row| row.get_mut(widest)) {
            if text.chars().count() > keep {
                *text = text.chars().take(keep - 1).chain(['…']).collect();
            }
        }
    }
}

/// Prints names with values, one per line, without empty ones.
pub(in crate::commands) fn properties(lines: &[(&str, String)]) -> Result<Exit, CliError> {
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut out = String::new();
    for (name, value) in lines.iter().filter(|(_, value)| !value.is_empty()) {
        let indent = format!("\n{:indent$}", "", indent = width + 2);
        let value = style::sanitize(value).replace('\n', &indent);
        out += &format!("{name:<width$}  {value}\n");
    }
    Ok(if output::print_styled(&out) { Exit::Done } else { Exit::Error })
}

/// A time of the API in the form `2026-11-16 09:30:00Z`.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "callers map references")]
pub(in crate::commands) fn moment(at: &Time) -> String {
    text::moment(at.0)
}

/// Counts in the order of the statuses' names: `2 deployed, 1 failed`.
pub(super) fn counts_by_name(counts: &BTreeMap<Status, u64>) -> String {
    let mut named: Vec<(&str, u64)> =
        counts.iter().map(|(status, count)| (status.as_str(), *count)).collect();
    named.sort_unstable();
    let texts: Vec<String> =
        named.into_iter().map(|(status, count)| format!("{count} {status}")).collect();
    texts.join(", ")
}

/// The same for an optional time.
pub(in crate::commands) fn moment_or(at: Option<&Time>, otherwise: &str) -> String {
    at.map_or_else(|| otherwise.to_owned(), moment)
}

pub(super) fn yes(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_widest_columns_are_cut() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let long = "x".repeat(60);
        let mut rows = vec![row(["A", "B", "C"]), row(["short", &long, "also short"])];
        fit(&mut rows, 40);
        let lines = text::table(&rows);
        assert_eq!(lines[1].chars().count(), 40, "{lines:?}");
        assert!(lines[1].ends_with("…  also short"), "{lines:?}");
        let mut rows = vec![row(["A", "B", "C"])];
        fit(&mut rows, 2);
        assert_eq!(rows[0], ["A", "B", "C"]);
    }
}
