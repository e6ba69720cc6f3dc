//! Rules for every source file: leading comment, length, no left-over macros, no banned words.

use crate::{TextFile, Violation};

/// A file above this is split along its concerns. Generated tables say `@generated` in their head.
pub const LINES_MAX: usize = 700;

/// Lines at the top of a file in which its purpose, or `@generated`, must stand.
const HEAD_LINES: usize = 5;

/// All checks of this module over all files.
pub fn check(files: &[TextFile]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in files {
        violations.extend(leading_comment(file));
        violations.extend(length(file));
        violations.extend(left_overs(file));
        violations.extend(banned_words(file));
    }
    violations
}

/// Source files begin with a comment that says what they are for.
pub fn leading_comment(file: &TextFile) -> Option<Violation> {
    let starts: &[&str] = match file.extension() {
        "rs" => &["//!", "//", "/*"],
        "py" => &["\"\"\"", "#"],
        "sh" => &["#"],
        // Models inside test directories are cases: their directory explains them.
        "cf" if !file.path.contains("/tests/") => &["\"\"\"", "#"],
        "" if file.text.starts_with("#!") || file.path == "Makefile" => &["#"],
        _ => return None,
    };
    let first = file
        .text
        .lines()
        .find(|line| !line.trim().is_empty() && !line.starts_with("#!"))
        .unwrap_or_default();
    // An empty file, such as a package marker, has nothing to explain.
    if first.is_empty() || starts.iter().any(|start| first.starts_with(start)) {
        return None;
    }
    Some(Violation::new(&file.path, "begins without a comment that says what it is for"))
}

/// Hand-written code stays below [`LINES_MAX`] lines.
pub fn length(file: &TextFile) -> Option<Violation> {
    if !matches!(file.extension(), "rs" | "py" | "sh") {
        return None;
    }
    let lines = file.text.lines().count();
    let generated = file.text.lines().take(HEAD_LINES).any(|line| line.contains("@generated"));
    (lines > LINES_MAX && !generated).then(|| {
        Violation::new(&file.path, format!("has {lines} lines; split it (limit {LINES_MAX})"))
    })
}

/// Macros that mark unfinished work.
pub fn left_overs(file: &TextFile) -> Vec<Violation> {
    if file.extension() != "rs" {
        return Vec::new();
    }
    let mut violations = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        for name in ["todo", "dbg", "unimplemented"] {
            if calls_macro(line, name) {
                violations.push(Violation::new(
                    format!("{}:{}", file.path, number + 1),
                    format!("holds a left-over {name}!"),
                ));
            }
        }
    }
    violations
}

/// True if `line` holds `name!(`, `name![` or `name!{` as a separate word.
fn calls_macro(line: &str, name: &str) -> bool {
    line.match_indices(name).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        let after = &line[start + name.len()..];
        let word = !before.is_some_and(|c| c.is_alphanumeric() || c == '_');
        word && ["!(", "![", "!{"].iter().any(|call| after.starts_with(call))
    })
}

/// Words that must not appear anywhere: hosts of package registries (the machine configures
/// its mirrors) and paths of one machine.
/// They are spelt in pieces, so that this file passes its own check.
pub fn banned_word_list() -> Vec<String> {
    [
        ["crates", ".io"],
        ["pypi", ".org"],
        ["python", "hosted.org"],
        ["npm", "js.org"],
        ["npm", "js.com"],
        ["deb.debian", ".org"],
        ["/work", "/main"],
        ["/work", "/shared"],
        ["/work", "/wt-"],
        ["/tmp", "/oracle"],
        ["/tmp", "/briefs"],
    ]
    .iter()
    .map(|pieces| pieces.concat())
    .collect()
}

/// Occurrences of [`banned_word_list`]. Cargo writes lock files itself, registry and all.
pub fn banned_words(file: &TextFile) -> Vec<Violation> {
    if file.path.rsplit('/').next() == Some("Cargo.lock") {
        return Vec::new();
    }
    let mut violations = Vec::new();
    for word in banned_word_list() {
        for (number, line) in file.text.lines().enumerate() {
            if line.contains(&word) {
                violations.push(Violation::new(
                    format!("{}:{}", file.path, number + 1),
                    format!("names {word}"),
                ));
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_need_a_leading_comment() {
        let bad = [
            ("a.rs", "fn main() {}\n"),
            ("a.py", "import os\n"),
            ("Makefile", "all:\n"),
            ("bin/tool", "#!/bin/sh\nls\n"),
            ("modules/a.cf", "x = 1\n"),
        ];
        for (path, text) in bad {
            assert!(leading_comment(&TextFile::new(path, text)).is_some(), "{path}");
        }
        let good = [
            ("a.rs", "//! What it is for.\nfn main() {}\n"),
            ("a.py", "#!/usr/bin/env python3\n\"\"\"What it is for.\"\"\"\n"),
            ("pkg/__init__.py", ""),
            ("bin/tool", "#!/bin/sh\n# What it is for.\nls\n"),
            ("crates/a/tests/cases/b.cf", "x = 1\n"),
            ("a.json", "{}\n"),
        ];
        for (path, text) in good {
            assert!(leading_comment(&TextFile::new(path, text)).is_none(), "{path}");
        }
    }

    #[test]
    fn long_files_are_refused_unless_generated() {
        let long = "// line\n".repeat(LINES_MAX + 1);
        assert!(length(&TextFile::new("a.rs", long.as_str())).is_some());
        assert!(length(&TextFile::new("a.md", long.as_str())).is_none());
        assert!(length(&TextFile::new("a.rs", "// line\n".repeat(LINES_MAX))).is_none());
        assert!(length(&TextFile::new("a.rs", format!("// @generated by x\n{long}"))).is_none());
    }

    #[test]
    fn left_over_macros_are_found_as_words() {
        let call = format!("    {}!(\"later\");\n", "todo");
        assert_eq!(left_overs(&TextFile::new("a.rs", call.as_str())).len(), 1);
        assert!(left_overs(&TextFile::new("a.md", call.as_str())).is_empty());
        assert!(left_overs(&TextFile::new("a.rs", format!("my_{}!(x)\n", "dbg"))).is_empty());
        assert!(left_overs(&TextFile::new("a.rs", "let todo = 1;\n")).is_empty());
    }

    #[test]
    fn every_banned_word_is_found_but_for_lock_files() {
        for word in banned_word_list() {
            let text = format!("one\nsee {word}/x\n");
            let found = banned_words(&TextFile::new("docs/a.md", text.as_str()));
            assert_eq!(found.len(), 1, "{word}");
            assert_eq!(found[0].place, "docs/a.md:2");
            for lock in ["Cargo.lock", "fuzz/Cargo.lock"] {
                assert!(banned_words(&TextFile::new(lock, text.as_str())).is_empty());
            }
        }
    }
}
