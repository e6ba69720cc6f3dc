//! Requirement files: includes, named packages, and edits of single lines. pip itself parses them.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use crate::package_names::{normalize, split_name};

/// Files and everything that they include with `-r` and `-c`, with their texts. pip reports
/// unreadable files.
pub(crate) fn with_included(files: &[PathBuf]) -> Vec<(PathBuf, String)> {
    included_files(files, &["--requirement", "--constraint", "-r", "-c"])
}

/// Lines that name packages, in files and their `-r` includes.
pub(crate) fn named_in(files: &[PathBuf]) -> Vec<String> {
    let texts = included_files(files, &["--requirement", "-r"]);
    let lines = texts.iter().flat_map(|(_, text)| statements(text));
    lines.filter(|line| name_in(line).is_some()).map(str::to_owned).collect()
}

/// Files and everything that they include with some options.
fn included_files(files: &[PathBuf], options: &[&str]) -> Vec<(PathBuf, String)> {
    let mut pending: Vec<PathBuf> = files.iter().rev().cloned().collect();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    while let Some(path) = pending.pop() {
        // Canonical paths: files can include each other under different names.
        let Ok(path) = path.canonicalize() else { continue };
        if !seen.insert(path.clone()) {
            continue;
        }
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let base = path.parent().unwrap_or(Path::new(""));
        let others = text.lines().filter_map(|line| included(line, options));
        pending.extend(others.map(|other| base.join(other)));
        found.push((path, text));
    }
    found
}

/// File that a line includes with one of the options.
fn included<'l>(line: &'l str, options: &[&str]) -> Option<&'l str> {
    let line = line.trim();
    let rest = options.iter().find_map(|option| line.strip_prefix(option))?;
    let name = rest.trim_start_matches([' ', '\t', '=']).trim();
    (!name.is_empty() && !name.contains("://")).then_some(name)
}

/// Package name in a line.
fn name_in(line: &str) -> Option<&str> {
    let line = line.trim();
    let (name, rest) = split_name(line);
    let is_name = name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && !rest.starts_with(['/', '\\', ':'])
        && ![".whl", ".zip", ".gz", ".tgz", ".bz2", ".xz"].iter().any(|end| line.ends_with(end));
    is_name.then_some(name)
}

/// True if a text of requirements names a package.
pub fn has_requirement(text: &str, package: &str) -> bool {
    text.lines().filter_map(name_in).any(|name| normalize(name) == normalize(package))
}

/// Adds a requirement to a text, or replaces the existing one for its package.
pub fn with_requirement(text: &str, requirement: &str) -> String {
    let name = name_in(requirement).map(normalize);
    let mut replaced = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if name.is_some() && name_in(line).map(normalize) == name {
            if !std::mem::replace(&mut replaced, true) {
                lines.push(requirement);
            }
            continue;
        }
        lines.push(line);
    }
    if !replaced {
        lines.push(requirement);
    }
    lines.join("\n") + "\n"
}

/// Adds a line without a package name to a text, or replaces the same one.
pub fn with_line(text: &str, line: &str, is_same: &dyn Fn(&str) -> bool) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    match lines.iter().position(|one| is_same(one)) {
        Some(at) => lines[at] = line,
        None => lines.push(line),
    }
    lines.join("\n") + "\n"
}

/// Path relative to a directory; both are canonical.
pub fn relative(path: &Path, from: &Path) -> PathBuf {
    let from = from.canonicalize().unwrap_or_else(|_| from.to_owned());
    let shared = path.components().zip(from.components()).take_while(|(a, b)| a == b).count();
    let ups = from.components().count() - shared;
    let mut found: PathBuf = std::iter::repeat_n(Component::ParentDir, ups).collect();
    if ups == 0 {
        found.push(".");
    }
    found.extend(path.components().skip(shared));
    found
}

/// Lines without comments and insignificant whitespace.
pub(crate) fn statements(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().map(|line| {
        let line = line.split(" #").next().unwrap_or(line).trim();
        if line.starts_with('#') { "" } else { line }
    });
    lines.filter(|line| !line.is_empty())
}

/// Index options of requirement files, as arguments of pip.
pub(crate) fn source_options(files: &[PathBuf]) -> Vec<String> {
    let known = ["--index-url", "-i", "--extra-index-url", "--find-links", "-f", "--trusted-host"];
    let mut found = Vec::new();
    for (_, text) in with_included(files) {
        for line in statements(&text) {
            let (option, value) = line.split_once([' ', '=']).unwrap_or((line, ""));
            if option == "--no-index" {
                found.push(option.to_owned());
            } else if known.contains(&option) {
                found.extend([option.to_owned(), value.trim().to_owned()]);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_requirement_takes_the_place_of_the_one_before() {
        let text = "# mine\ninmanta_module.fs>=1.0  # why\nrequests\n";
        let changed = with_requirement(text, "inmanta-module-fs~=1.2");
        assert_eq!(changed, "# mine\ninmanta-module-fs~=1.2\nrequests\n");
        assert_eq!(with_requirement("", "a"), "a\n");
        assert_eq!(with_requirement("-r more.txt\n./a\nab", "a"), "-r more.txt\n./a\nab\na\n");
    }

    #[test]
    fn included_files_are_followed() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        std::fs::create_dir(path("deep")).unwrap();
        std::fs::write(
            path("a.txt"),
            "-r deep/b.txt\n--constraint=c.txt\nx\n-r https://e.example/r\n",
        )
        .unwrap();
        std::fs::write(
            path("deep/b.txt"),
            "-r ../a.txt\ny[extra]>=1 ; python_version > '3' # why\n",
        )
        .unwrap();
        std::fs::write(path("c.txt"), "z<2\n").unwrap();
        let found: Vec<PathBuf> =
            with_included(&[path("a.txt")]).into_iter().map(|(path, _)| path).collect();
        assert_eq!(found.len(), 3, "{found:?}");
    }

    #[test]
    fn statements_have_no_comments() {
        let text = "# why\n\n  a>=1  # because\ngit+https://e.org/a#egg=a\n";
        assert_eq!(statements(text).collect::<Vec<_>>(), ["a>=1", "git+https://e.org/a#egg=a"]);
    }

    #[test]
    fn options_that_name_sources_are_found() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("r.txt");
        std::fs::write(&path, "-i https://e.example\n--find-links=w\n--no-index\n--pre\na\n")
            .unwrap();
        let found = ["-i", "https://e.example", "--find-links", "w", "--no-index"];
        assert_eq!(source_options(&[path]), found);
    }
}
