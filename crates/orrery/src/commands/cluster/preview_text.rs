//! Text form of a preview: layout table, drawing and plan.

use std::fmt::Write as _;

use orrery_api::ClusterPreview;

use super::{drawing, plan_text};
use crate::commands::inspect::text;
use crate::style;

/// Maximum number of named nodes.
const NAMES_MAX: usize = 10;

pub(super) fn render(found: &ClusterPreview) -> String {
    let mut out = format!("{}: ", style::heading(&found.template));
    out += &style::count(found.size, "node");
    if let Some(cost) = found.cost {
        let _ = write!(out, ", cost {cost}");
    }
    out.push('\n');
    if !found.unplaced.is_empty() {
        let names = found.unplaced.join(", ");
        let _ = writeln!(out, "{}: on no node: {names}", style::warning("warning"));
    }
    for (names, word) in [(&found.removed, "removed"), (&found.added, "added")] {
        if let Some(names) = names.as_ref().filter(|names| !names.is_empty()) {
            let shown: Vec<&str> = names.iter().take(NAMES_MAX).map(String::as_str).collect();
            let more = match names.len().saturating_sub(NAMES_MAX) {
                0 => String::new(),
                more => format!(" and {} more", style::grouped(more)),
            };
            let count = style::count(names.len(), "node");
            let _ = writeln!(out, "{count} {word}: {}{more}", shown.join(", "));
        }
    }
    out.push('\n');
    let headings = ["NODES", "HARDWARE", "IMAGE", "SERVICES"];
    let mut rows = vec![headings.iter().map(|&text| text.to_owned()).collect::<Vec<_>>()];
    for group in &found.layout {
        let services: Vec<&str> = group.services.iter().map(String::as_str).collect();
        rows.push(vec![
            group.count.to_string(),
            group.hardwaretype.clone(),
            group.imagetype.clone(),
            services.join(", "),
        ]);
    }
    out += &text::heading_table(&rows);
    out.push('\n');
    out += &drawing::draw(found);
    out.push('\n');
    out += &plan_text::render(&found.plan);
    out
}
