//! ASCII drawing of a cluster: a box for each kind of node, dependents above their dependencies.

use std::collections::{BTreeMap, BTreeSet};

use orrery_api::ClusterPreview;

use crate::style;

/// Maximum width of a row of boxes.
const WIDTH_MAX: usize = 96;
const GAP: usize = 2;

/// A box: its lines, and whether it has dependencies below.
struct Picture {
    lines: Vec<String>,
    width: usize,
    is_dependent: bool,
}

pub(super) fn draw(found: &ClusterPreview) -> String {
    let groups = &found.layout;
    let names: BTreeSet<&str> =
        groups.iter().flat_map(|group| &group.services).map(String::as_str).collect();
    let dependencies = &found.dependencies;
    let everywhere: BTreeSet<&str> = match groups.len() {
        0 | 1 => BTreeSet::new(),
        _ => names
            .iter()
            .copied()
            .filter(|name| groups.iter().all(|group| group.services.contains(*name)))
            .collect(),
    };
    let mut depths = BTreeMap::new();
    let mut tiers: BTreeMap<usize, Vec<Picture>> = BTreeMap::new();
    for group in groups {
        let own = &group.services;
        let depth = own.iter().map(|name| depth(name, dependencies, &mut depths)).max();
        let needs_others = own.iter().filter_map(|name| dependencies.get(name));
        let is_dependent =
            needs_others.flatten().any(|name| !own.contains(name) && depth.unwrap_or(0) > 0);
        let mut lines =
            vec![format!("{} × {}", style::grouped(group.count as usize), group.hardwaretype)];
        lines.extend(own.iter().filter(|name| !everywhere.contains(name.as_str())).cloned());
        let width = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
        tiers.entry(depth.unwrap_or(0)).or_default().push(Picture { lines, width, is_dependent });
    }
    let mut rows: Vec<Vec<Picture>> = Vec::new();
    for (_, pictures) in tiers.into_iter().rev() {
        let mut used = usize::MAX;
        for picture in pictures {
            let width = picture.width + 4 + GAP;
            if used.saturating_add(width) > WIDTH_MAX {
                rows.push(Vec::new());
                used = 0;
            }
            used += width;
            if let Some(row) = rows.last_mut() {
                row.push(picture);
            }
        }
    }
    let count = rows.len();
    let mut out = String::new();
    for (number, row) in rows.iter().enumerate() {
        row_of(row, number + 1 < count, &mut out);
    }
    if !everywhere.is_empty() {
        let names: Vec<&str> = everywhere.into_iter().collect();
        out += &format!("  on every node: {}\n", names.join(", "));
    }
    out
}

/// Length of the longest chain of dependencies below a service.
fn depth<'d>(
    name: &'d str,
    dependencies: &'d BTreeMap<String, BTreeSet<String>>,
    known: &mut BTreeMap<&'d str, usize>,
) -> usize {
    if let Some(depth) = known.get(name) {
        return *depth;
    }
    let below = dependencies.get(name).into_iter().flatten();
    let depth = below.map(|other| depth(other, dependencies, known) + 1).max().unwrap_or(0);
    known.insert(name, depth);
    depth
}

fn row_of(row: &[Picture], has_next: bool, out: &mut String) {
    let height = row.iter().map(|picture| picture.lines.len()).max().unwrap_or(0);
    let arrow = |picture: &Picture| has_next && picture.is_dependent;
    let mut lines = vec![String::new(); height + 2 + usize::from(row.iter().any(arrow))];
    for picture in row {
        let width = picture.width;
        let left = width.div_ceil(2);
        for (at, line) in lines.iter_mut().enumerate() {
            let text = match at {
                0 => format!("┌{}┐", "─".repeat(width + 2)),
                at if at <= height => {
                    let text = picture.lines.get(at - 1).map_or("", String::as_str);
                    format!("│ {text:<width$} │")
                }
                at if at == height + 1 => {
                    let joint = if arrow(picture) { "┬" } else { "─" };
                    format!("└{}{joint}{}┘", "─".repeat(left), "─".repeat(width + 1 - left))
                }
                _ => {
                    let head = if arrow(picture) { "▼" } else { " " };
                    format!("{}{head}{}", " ".repeat(left + 1), " ".repeat(width + 2 - left))
                }
            };
            *line += &" ".repeat(GAP);
            *line += &text;
        }
    }
    for line in lines {
        *out += line.trim_end();
        out.push('\n');
    }
}
