//! The table of crates in CONTRIBUTING.md: every crate has its line, and no line is stale.

use std::collections::BTreeSet;

use crate::{TextFile, Violation};

/// Crates without a line in `CONTRIBUTING.md`, and lines without their directory.
pub fn check(files: &[TextFile]) -> Vec<Violation> {
    let Some(page) = files.iter().find(|file| file.path == "CONTRIBUTING.md") else {
        return vec![Violation::new("CONTRIBUTING.md", "is missing")];
    };
    let crates: BTreeSet<String> = files
        .iter()
        .filter_map(|file| file.path.strip_suffix("/Cargo.toml"))
        .filter(|directory| directory.starts_with("crates/") || *directory == "xtask")
        .map(ToOwned::to_owned)
        .collect();
    let rows: Vec<&str> = page.text.lines().filter_map(first_column).collect();
    let mut violations = Vec::new();
    for missing in crates.iter().filter(|directory| !rows.contains(&directory.as_str())) {
        violations.push(Violation::new("CONTRIBUTING.md", format!("has no line for `{missing}`")));
    }
    for row in rows {
        let directory = row.trim_end_matches('/');
        let below = format!("{directory}/");
        if !files.iter().any(|file| file.path.starts_with(&below) || file.path == directory) {
            let problem = format!("lists `{row}`, which does not exist");
            violations.push(Violation::new("CONTRIBUTING.md", problem));
        }
    }
    violations
}

/// The path in backticks that a line of the table of directories begins with.
fn first_column(line: &str) -> Option<&str> {
    let (path, _) = line.strip_prefix("| `")?.split_once("` |")?;
    path.contains('/').then_some(path).or_else(|| (path == "xtask").then_some(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(page: &str) -> Vec<String> {
        let files = [
            TextFile::new("CONTRIBUTING.md", page),
            TextFile::new("crates/a/Cargo.toml", ""),
            TextFile::new("docs/x.md", ""),
        ];
        check(&files).into_iter().map(|violation| violation.problem).collect()
    }

    #[test]
    fn every_crate_has_a_line() {
        assert_eq!(problems("| `docs/` | book |\n"), ["has no line for `crates/a`"]);
        assert!(problems("| `crates/a` | x |\n| `docs/` | book |\n").is_empty());
    }

    #[test]
    fn a_stale_line_is_refused() {
        let page = "| `crates/a` | x |\n| `crates/b` | y |\n";
        assert_eq!(problems(page), ["lists `crates/b`, which does not exist"]);
    }

    #[test]
    fn other_tables_are_left_alone() {
        assert!(problems("| `crates/a` | x |\n| `inmanta,fails` | refused |\n").is_empty());
    }
}
