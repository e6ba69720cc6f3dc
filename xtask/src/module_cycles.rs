//! Cycles among the top-level modules of a crate, which must not grow.
//!
//! Modules that import each other cannot be understood, tested or moved one at a time. The crate
//! root composes the modules and is no part of the graph; a name that it re-exports counts as a use
//! of the module that defines it. Modules below a top-level one count as part of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::rust_tokens::{Token, shipped_tokens, use_tree};
use crate::{TextFile, Violation};

/// Modules in cycles that each crate still has. A crate that is not listed has none.
///
/// Lower a number when the crate gets better: a check fails if it is too high as well.
pub const LIMITS: &[(&str, usize)] = &[("orrery-compiler", 15), ("orrery-scheduler", 3)];

/// A use of a module: file and line.
type Place = (String, usize);
/// Uses between top-level modules, each with its first place.
type Graph = BTreeMap<String, BTreeMap<String, Place>>;

/// Crates with more, or fewer, modules in cycles than `limits` has.
pub fn check(files: &[TextFile], limits: &[(&str, usize)]) -> Vec<Violation> {
    let mut crates: BTreeMap<&str, Vec<&TextFile>> = BTreeMap::new();
    for file in files {
        let mut parts = file.path.splitn(4, '/');
        if let (Some("crates"), Some(name), Some("src"), Some(_)) =
            (parts.next(), parts.next(), parts.next(), parts.next())
            && file.extension() == "rs"
        {
            crates.entry(name).or_default().push(file);
        }
    }
    let mut violations = Vec::new();
    for (name, files) in crates {
        let graph = read_graph(&files);
        let cyclic: Vec<Vec<String>> = components(&graph);
        let count = cyclic.iter().map(Vec::len).sum::<usize>();
        let limit =
            limits.iter().find(|(listed, _)| *listed == name).map_or(0, |(_, limit)| *limit);
        let place = format!("crate {name}");
        if count > limit {
            for modules in &cyclic {
                let problem = format!(
                    "{count} modules import each other in cycles, at most {limit} may: {} ({})",
                    modules.join(", "),
                    describe(&graph, &shortest_cycle(&graph, modules)),
                );
                violations.push(Violation::new(&place, problem));
            }
        } else if count < limit {
            let problem = format!(
                "has {count} modules in cycles: lower its limit of {limit} in xtask/src/module_cycles.rs"
            );
            violations.push(Violation::new(&place, problem));
        }
    }
    violations
}

/// The module of a file, as the names from the crate root to it.
fn module_path(path: &str) -> Vec<String> {
    let inside = path.splitn(4, '/').nth(3).unwrap_or_default().trim_end_matches(".rs");
    let mut names: Vec<String> = inside.split('/').map(str::to_owned).collect();
    let is_root = matches!(inside, "lib" | "main");
    if is_root || names.last().is_some_and(|name| name == "mod") {
        names.pop();
    }
    names
}

/// Reads the uses between the top-level modules of one crate.
fn read_graph(files: &[&TextFile]) -> Graph {
    let mut sources: Vec<(Vec<String>, &TextFile, Vec<Token>)> = Vec::new();
    for file in files {
        // Other binaries are crates of their own.
        if !file.path.contains("/src/bin/") {
            sources.push((module_path(&file.path), file, shipped_tokens(&file.text)));
        }
    }
    drop_test_modules(&mut sources);
    let modules: BTreeSet<String> =
        sources.iter().filter_map(|(path, ..)| path.first().cloned()).collect();
    let re_exports = re_exports(&sources, &modules);
    let mut graph: Graph = modules.iter().map(|module| (module.clone(), BTreeMap::new())).collect();
    for (path, file, tokens) in &sources {
        let Some(own) = path.first() else { continue };
        for (target, line) in paths(tokens, path) {
            let Some(first) = target.first() else { continue };
            let Some(used) = modules.get(first).or_else(|| re_exports.get(first)) else { continue };
            if used != own {
                let uses = graph.entry(own.clone()).or_default();
                uses.entry(used.clone()).or_insert_with(|| (file.path.clone(), line));
            }
        }
    }
    graph
}

/// Drops the files of modules that are declared for tests only.
///
/// Their declaration is not among the shipped tokens of any file, so a file without one is dropped.
fn drop_test_modules(sources: &mut Vec<(Vec<String>, &TextFile, Vec<Token>)>) {
    let mut declared: BTreeSet<Vec<String>> = BTreeSet::new();
    for (path, _, tokens) in sources.iter() {
        let mut nesting = Nesting::new(path);
        for (at, token) in tokens.iter().enumerate() {
            nesting.step(tokens, at);
            if token.text == "mod" && tokens.get(at + 2).is_some_and(|next| next.text == ";") {
                let mut module = nesting.path.clone();
                module.push(tokens[at + 1].text.clone());
                declared.insert(module);
            }
        }
    }
    sources.retain(|(path, ..)| (1..=path.len()).all(|length| declared.contains(&path[..length])));
}

/// Names at the crate root that come from a module.
fn re_exports(
    sources: &[(Vec<String>, &TextFile, Vec<Token>)],
    modules: &BTreeSet<String>,
) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (_, _, tokens) in sources.iter().filter(|(path, ..)| path.is_empty()) {
        for at in (0..tokens.len()).filter(|at| tokens[*at].text == "use") {
            let mut leaves = Vec::new();
            use_tree(tokens, at + 1, &[], &mut leaves);
            for leaf in leaves {
                let path: Vec<&String> = leaf.path.iter().filter(|name| !is_anchor(name)).collect();
                let Some(module) = path.first().and_then(|first| modules.get(*first)) else {
                    continue;
                };
                if leaf.name == "*" {
                    let inside: Vec<String> =
                        path.iter().take(path.len() - 1).map(|name| (*name).clone()).collect();
                    let of = sources.iter().filter(|(path, ..)| *path == inside);
                    for name in of.flat_map(|(_, _, tokens)| public_names(tokens)) {
                        found.insert(name, module.clone());
                    }
                } else {
                    found.insert(leaf.name, module.clone());
                }
            }
        }
    }
    found
}

fn is_anchor(name: &str) -> bool {
    matches!(name, "crate" | "self" | "super")
}

/// Names that a glob import of a file brings.
fn public_names(tokens: &[Token]) -> Vec<String> {
    const KEYWORDS: [&str; 8] =
        ["struct", "enum", "union", "trait", "type", "fn", "const", "static"];
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        let text = tokens[at].text.as_str();
        let is_public =
            tokens[at.saturating_sub(1)].text == "pub" || tokens[at.saturating_sub(1)].text == ")";
        if is_public && text == "use" {
            let mut leaves = Vec::new();
            use_tree(tokens, at + 1, &[], &mut leaves);
            found.extend(leaves.into_iter().map(|leaf| leaf.name));
        } else if is_public && KEYWORDS.contains(&text) {
            found.extend(tokens.get(at + 1).map(|name| name.text.clone()));
        }
    }
    found
}

/// Follows inline modules through the tokens of a file.
struct Nesting {
    path: Vec<String>,
    depth: usize,
    opened: Vec<usize>,
}

impl Nesting {
    fn new(path: &[String]) -> Self {
        Nesting { path: path.to_vec(), depth: 0, opened: Vec::new() }
    }

    fn step(&mut self, tokens: &[Token], at: usize) {
        match tokens[at].text.as_str() {
            "{" => {
                self.depth += 1;
                if at >= 2 && tokens[at - 2].text == "mod" {
                    self.path.push(tokens[at - 1].text.clone());
                    self.opened.push(self.depth);
                }
            }
            "}" => {
                if self.opened.last() == Some(&self.depth) {
                    self.opened.pop();
                    self.path.pop();
                }
                self.depth = self.depth.saturating_sub(1);
            }
            _ => {}
        }
    }
}

/// Paths that begin with `crate`, `self` or `super`, from the crate root, with their lines.
fn paths(tokens: &[Token], module: &[String]) -> Vec<(Vec<String>, usize)> {
    let mut found = Vec::new();
    let mut nesting = Nesting::new(module);
    for (at, token) in tokens.iter().enumerate() {
        nesting.step(tokens, at);
        let before = at.checked_sub(1).map_or("", |before| tokens[before].text.as_str());
        let begins = is_anchor(&token.text)
            && tokens.get(at + 1).is_some_and(|next| next.text == "::")
            // `pub(in crate::a)` uses nothing.
            && !matches!(before, "::" | "in");
        if begins {
            let mut leaves = Vec::new();
            use_tree(tokens, at, &[], &mut leaves);
            found.extend(
                leaves.into_iter().map(|leaf| (absolute(&leaf.path, &nesting.path), leaf.line)),
            );
        }
    }
    found
}

/// Resolves the leading `crate`, `self` and `super`s of a path.
fn absolute(path: &[String], module: &[String]) -> Vec<String> {
    let mut base = module.to_vec();
    let mut names = path.iter().peekable();
    while let Some(name) = names.next_if(|name| is_anchor(name)) {
        match name.as_str() {
            "crate" => base.clear(),
            "super" => drop(base.pop()),
            _ => {}
        }
    }
    base.extend(names.filter(|name| *name != "self").cloned());
    base
}

/// Modules that reach each other, in groups of at least two.
fn components(graph: &Graph) -> Vec<Vec<String>> {
    let reachable: BTreeMap<&String, BTreeSet<&String>> =
        graph.keys().map(|from| (from, reach(graph, from))).collect();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for from in graph.keys() {
        if seen.contains(from) {
            continue;
        }
        let group: Vec<String> = reachable[from]
            .iter()
            .filter(|to| reachable.get(**to).is_some_and(|back| back.contains(from)))
            .map(|to| (*to).clone())
            .collect();
        seen.extend(group.iter().cloned());
        if group.len() > 1 {
            found.push(group);
        }
    }
    found
}

/// Modules that `from` uses, directly or not; itself only through a cycle.
fn reach<'g>(graph: &'g Graph, from: &str) -> BTreeSet<&'g String> {
    let mut found = BTreeSet::new();
    let mut pending: Vec<&str> = vec![from];
    while let Some(module) = pending.pop() {
        for next in graph.get(module).into_iter().flat_map(BTreeMap::keys) {
            if found.insert(next) {
                pending.push(next);
            }
        }
    }
    found
}

/// The shortest cycle among `modules`, as its modules in order.
fn shortest_cycle(graph: &Graph, modules: &[String]) -> Vec<String> {
    let cycles = modules.iter().filter_map(|start| {
        let mut came_from: BTreeMap<&str, &str> = BTreeMap::new();
        let mut pending = VecDeque::from([start.as_str()]);
        while let Some(module) = pending.pop_front() {
            for next in graph.get(module)?.keys() {
                if next == start {
                    let mut cycle = vec![module.to_owned()];
                    let mut at = module;
                    while at != start {
                        at = came_from[at];
                        cycle.push(at.to_owned());
                    }
                    cycle.reverse();
                    return Some(cycle);
                }
                if !came_from.contains_key(next.as_str()) {
                    came_from.insert(next, module);
                    pending.push_back(next);
                }
            }
        }
        None
    });
    cycles.min_by_key(Vec::len).unwrap_or_default()
}

/// Each step of a cycle with the place of one use.
fn describe(graph: &Graph, cycle: &[String]) -> String {
    let following = cycle.iter().cycle().skip(1);
    let steps = cycle.iter().zip(following).map(|(from, to)| {
        let place = graph.get(from).and_then(|uses| uses.get(to));
        let place = place.map(|(path, line)| format!("{path}:{line}")).unwrap_or_default();
        format!("{from} -> {to} at {place}")
    });
    steps.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(files: &[(&str, &str)], limit: usize) -> Vec<String> {
        let files: Vec<TextFile> = files
            .iter()
            .map(|(path, text)| TextFile::new(format!("crates/c/src/{path}"), *text))
            .collect();
        check(&files, &[("c", limit)]).into_iter().map(|violation| violation.problem).collect()
    }

    #[test]
    fn a_cycle_is_named_with_its_places() {
        let files = [
            ("lib.rs", "mod a; mod b; mod d;"),
            ("a.rs", "//! A.\nuse crate::{d, b::{self, Thing as Other}};"),
            ("b/mod.rs", "mod c;"),
            ("b/c.rs", "fn f() { super::super::a::g() }"),
            ("d.rs", ""),
        ];
        let found = problems(&files, 0);
        assert_eq!(found.len(), 1, "{found:?}");
        let steps = "a -> b at crates/c/src/a.rs:2, b -> a at crates/c/src/b/c.rs:1";
        assert!(found[0].contains(steps) && found[0].contains(": a, b ("), "{found:?}");
        assert!(problems(&files, 2).is_empty());
        assert!(problems(&files, 3)[0].contains("lower its limit of 3"), "{found:?}");
    }

    #[test]
    fn code_for_tests_and_children_make_no_cycle() {
        let files = [
            ("lib.rs", "pub mod a; mod b; #[cfg(test)] mod helpers;"),
            ("a.rs", "mod inner; use inner::X; #[cfg(test)] mod tests { use crate::b; }"),
            ("a/inner.rs", "use super::Y; pub(in crate::b) fn f() {}"),
            (
                "b.rs",
                "use crate::a; // crate::b\n mod deep { use super::super::a; fn f() { self::g() } }",
            ),
            ("helpers.rs", "use crate::{a, b};"),
        ];
        assert_eq!(problems(&files, 0), [""; 0]);
    }

    #[test]
    fn names_of_the_root_count_as_their_module() {
        let by_name = [
            ("lib.rs", "mod a; mod b; pub use b::{Thing as Renamed, deep::Other};"),
            ("a.rs", "use crate::Renamed;"),
            ("b.rs", "pub struct Thing(crate::a::X);"),
        ];
        assert_eq!(problems(&by_name, 0).len(), 1);
        let by_glob = [
            ("lib.rs", "mod a; mod b; pub use self::b::*; pub struct OfRoot;"),
            ("a.rs", "fn f(_: crate::OfRoot) -> crate::Thing {}"),
            ("b.rs", "pub enum Thing { A } use crate::a;"),
        ];
        assert_eq!(problems(&by_glob, 0).len(), 1);
        let of_root = [
            ("lib.rs", "mod a; mod b; pub use self::b::*; pub struct OfRoot;"),
            ("a.rs", "fn f(_: crate::OfRoot) {}"),
            ("b.rs", "pub enum Thing { A } use crate::a;"),
        ];
        assert_eq!(problems(&of_root, 0), [""; 0]);
    }

    #[test]
    fn a_longer_cycle_counts_all_its_modules() {
        let files = [
            ("main.rs", "mod a; mod b; mod c; mod d;"),
            ("a.rs", "use crate::b;"),
            ("b.rs", "use crate::c;"),
            ("c.rs", "use super::a; use super::d;"),
            ("d.rs", ""),
        ];
        let found = problems(&files, 0);
        assert!(found[0].starts_with("3 modules") && found[0].contains("c -> a"), "{found:?}");
    }
}
