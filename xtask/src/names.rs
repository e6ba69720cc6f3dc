//! The names of types, functions, modules and files: no banned ones, and one meaning for a bare name.

use std::collections::{BTreeMap, BTreeSet};

use crate::{TextFile, Violation};

/// Keywords that introduce a name.
const KEYWORDS: [&str; 7] = ["struct", "enum", "union", "trait", "type", "fn", "mod"];
/// Those of them that introduce a type.
const TYPES: [&str; 5] = ["struct", "enum", "union", "trait", "type"];

/// A name and the place of its definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    pub keyword: &'static str,
    pub name: String,
    /// Visible outside its crate, as far as its own line tells.
    pub public: bool,
    pub line: usize,
}

/// Definitions of types, functions and modules in Rust source, in order.
pub fn definitions(text: &str) -> Vec<Definition> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start();
        if line.starts_with("//") {
            continue;
        }
        let public = line.starts_with("pub ");
        let mut words = line.split_whitespace().peekable();
        while let Some(word) = words.next() {
            if let Some(keyword) = KEYWORDS.iter().find(|keyword| **keyword == word) {
                let name: String = words
                    .peek()
                    .map(|next| next.chars().take_while(|c| c.is_alphanumeric() || *c == '_'))
                    .map(Iterator::collect)
                    .unwrap_or_default();
                if !name.is_empty() {
                    found.push(Definition { keyword, name, public, line: index + 1 });
                }
                break;
            }
            let qualifier = word.starts_with("pub")
                || matches!(word, "const" | "async" | "extern" | "\"C\"" | "in")
                || word.ends_with(')');
            if !qualifier {
                break;
            }
        }
    }
    found
}

/// The words in backticks of the glossary's last column: names that another term replaces.
pub fn banned_names(glossary: &str) -> BTreeSet<String> {
    let mut banned = BTreeSet::new();
    for line in glossary.lines().filter(|line| line.starts_with('|')) {
        let Some(column) = line.trim_end_matches('|').rsplit('|').next() else { continue };
        banned.extend(column.split('`').skip(1).step_by(2).map(snake_case));
    }
    banned
}

/// Definitions and files of the crates whose whole name is banned.
pub fn check_banned(files: &[TextFile], banned: &BTreeSet<String>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| is_crate_source(file)) {
        let stem = file.path.rsplit('/').next().unwrap_or_default().trim_end_matches(".rs");
        if banned.contains(stem) {
            violations.push(Violation::new(&file.path, format!("GLOSSARY.md bans `{stem}`")));
        }
        for definition in definitions(&file.text) {
            if banned.contains(&snake_case(&definition.name)) {
                violations.push(Violation::new(
                    format!("{}:{}", file.path, definition.line),
                    format!("GLOSSARY.md bans `{}`", definition.name),
                ));
            }
        }
    }
    violations
}

/// Public types that share a name: within one crate, or imported bare from several crates.
///
/// A name that several crates define is fine where readers see it qualified (`api::Project`).
pub fn check_duplicates(files: &[TextFile], allowed: &[(&str, &str)]) -> Vec<Violation> {
    let mut places: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for file in files.iter().filter(|file| is_crate_source(file) && !is_test(file)) {
        let shipped = file.text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        for definition in definitions(shipped) {
            if definition.public && TYPES.contains(&definition.keyword) {
                let place = format!("{}:{}", file.path, definition.line);
                let owner = crate_of(&file.path).to_owned();
                places.entry(definition.name).or_default().push((owner, place));
            }
        }
    }
    places.retain(|_, definitions| definitions.len() > 1);
    let imports = bare_imports(files, &places);
    let mut violations = Vec::new();
    for (name, definitions) in &places {
        let owners: BTreeSet<&str> = definitions.iter().map(|(owner, _)| owner.as_str()).collect();
        let bare = imports.get(name.as_str()).map_or(0, BTreeSet::len);
        let twice_in_one = owners.len() < definitions.len();
        let excused = allowed.iter().any(|(excused, _)| excused == name);
        if (twice_in_one || bare > 1) && !excused {
            let all: Vec<&str> = definitions.iter().map(|(_, place)| place.as_str()).collect();
            let why = if twice_in_one { "one crate" } else { "bare imports" };
            violations.push(Violation::new(
                all[0],
                format!("`{name}` names several public types ({why}): {}", all[1..].join(", ")),
            ));
        }
    }
    violations
}

/// For each name of `places`, the crates that it is imported from without a qualifier.
fn bare_imports<'a>(
    files: &[TextFile],
    places: &'a BTreeMap<String, Vec<(String, String)>>,
) -> BTreeMap<&'a str, BTreeSet<String>> {
    let mut imports: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for file in files.iter().filter(|file| is_crate_source(file)) {
        for path in imported_paths(&file.text) {
            let (Some(first), Some(last)) = (path.first(), path.last()) else { continue };
            let Some((name, _)) = places.get_key_value(last) else { continue };
            let owner = match first.as_str() {
                "crate" | "super" | "self" => crate_of(&file.path).to_owned(),
                other => other.replace('_', "-"),
            };
            if places[name].iter().any(|(defining, _)| *defining == owner) {
                imports.entry(name).or_default().insert(owner);
            }
        }
    }
    imports
}

/// The paths that `use` statements bring in under their own last name.
pub fn imported_paths(text: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    let mut statement = String::new();
    for line in text.lines() {
        let line = line.trim();
        if statement.is_empty() {
            let Some(start) = line.strip_prefix("use ").or_else(|| {
                line.strip_prefix("pub").and_then(|rest| rest.split_once("use ")).map(|(_, r)| r)
            }) else {
                continue;
            };
            statement.push_str(start);
        } else {
            statement.push_str(line);
        }
        if statement.ends_with(';') {
            expand(statement.trim_end_matches(';'), &[], &mut paths);
            statement.clear();
        }
    }
    paths
}

/// Appends what the tree `tree` of a `use` statement imports below `prefix`.
fn expand(tree: &str, prefix: &[String], paths: &mut Vec<Vec<String>>) {
    let mut path = prefix.to_vec();
    let mut rest = tree.trim();
    while let Some((segment, after)) = rest.split_once("::") {
        if segment.contains('{') {
            break;
        }
        path.push(segment.trim().to_owned());
        rest = after.trim();
    }
    if let Some(inner) = rest.strip_prefix('{') {
        let inner = inner.strip_suffix('}').unwrap_or(inner);
        let (mut depth, mut start) = (0, 0);
        for (index, character) in inner.char_indices() {
            match character {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    expand(&inner[start..index], &path, paths);
                    start = index + 1;
                }
                _ => {}
            }
        }
        expand(&inner[start..], &path, paths);
    } else if !rest.is_empty() && !rest.contains(" as ") && rest != "*" && rest != "self" {
        path.push(rest.to_owned());
        paths.push(path);
    }
}

/// `OldName` as `old_name`.
fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for (index, character) in name.char_indices() {
        if character.is_uppercase() && index > 0 && !snake.ends_with('_') {
            snake.push('_');
        }
        snake.extend(character.to_lowercase());
    }
    snake
}

fn is_crate_source(file: &TextFile) -> bool {
    file.path.starts_with("crates/") && file.extension() == "rs"
}

fn is_test(file: &TextFile) -> bool {
    file.path.contains("/tests/") || file.path.ends_with("/tests.rs")
}

fn crate_of(path: &str) -> &str {
    path.split('/').nth(1).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> TextFile {
        TextFile::new(path, text)
    }

    #[test]
    fn definitions_are_found_with_their_visibility() {
        let text = "pub struct A<T>;\n// fn no() {}\npub(crate) enum B {}\n    pub async fn c() {}\nlet fn_ = 1;\n";
        let found: Vec<(String, bool)> =
            definitions(text).into_iter().map(|found| (found.name, found.public)).collect();
        let expected = [("A", true), ("B", false), ("c", true)];
        assert_eq!(found, expected.map(|(name, public)| (name.to_owned(), public)));
    }

    #[test]
    fn a_banned_name_is_refused_as_type_function_and_file() {
        let banned =
            banned_names("| term | meaning | replaces |\n| site | x `ok` | `Place`, told |\n");
        assert_eq!(banned.iter().map(String::as_str).collect::<Vec<_>>(), ["place"]);
        let files = [
            file("crates/a/src/place.rs", "//! x\n"),
            file("crates/a/src/b.rs", "struct Place;\nfn place() {}\nstruct Placement;\n"),
            file("tools/place.py", ""),
        ];
        assert_eq!(check_banned(&files, &banned).len(), 3);
    }

    #[test]
    fn a_type_defined_twice_in_a_crate_is_refused() {
        let files = [
            file("crates/a/src/b.rs", "pub struct Site;\n"),
            file("crates/a/src/c.rs", "pub enum Site {}\n"),
            file("crates/a/src/d.rs", "pub(crate) struct Other;\nstruct Other;\n"),
        ];
        assert_eq!(check_duplicates(&files, &[]).len(), 1);
        assert!(check_duplicates(&files, &[("Site", "reason")]).is_empty());
    }

    #[test]
    fn types_of_two_crates_share_a_name_only_where_it_is_qualified() {
        let mut files = vec![
            file("crates/orrery-a/src/b.rs", "pub struct Site;\n"),
            file("crates/orrery-b/src/c.rs", "pub enum Site {}\nuse crate::c::Site;\n"),
            file("crates/orrery-c/src/d.rs", "use orrery_a as a;\nfn x(site: a::Site) {}\n"),
        ];
        assert!(check_duplicates(&files, &[]).is_empty());
        files.push(file("crates/orrery-c/src/e.rs", "use orrery_a::{b::{Site}, Other};\n"));
        assert_eq!(check_duplicates(&files, &[]).len(), 1);
    }

    #[test]
    fn use_trees_are_expanded() {
        let text = "use a::{b, c::{d,\n    e as f},\n    self};\npub(crate) use g::h;\nuse i::*;\n";
        let paths: Vec<String> = imported_paths(text).iter().map(|path| path.join("::")).collect();
        assert_eq!(paths, ["a::b", "a::c::d", "g::h"]);
    }
}
