//! The Markdown of the repository: links, the book's table of contents, diagnostic pages, and the
//! example models.
//!
//! Fences with a meaning (`CONTRIBUTING.md` explains them to writers):
//!
//! | fence | meaning |
//! |---|---|
//! | `inmanta` | a whole model, compiles |
//! | `inmanta,fails` | a whole model, is refused |
//! | `…,differs` | the reference compiler answers otherwise, on purpose |
//! | `…,file=PATH` | a further file of the next model's project |
//! | `output` | what the model before it prints, exactly |
//! | `error` | part of the message of the model before it |

use std::collections::{BTreeMap, BTreeSet};

use crate::{TextFile, Violation};

/// A fenced block: its info string split at commas, its text, and the line of the opening fence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    pub info: Vec<String>,
    pub text: String,
    pub line: usize,
}

/// An example model of a page, with all that is needed to compile it and to judge the outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    pub page: String,
    pub line: usize,
    pub main: String,
    /// Further files of the project, path relative to the project and text.
    pub files: Vec<(String, String)>,
    pub fails: bool,
    pub output: Option<String>,
    pub error: Option<String>,
}

/// What may follow `inmanta` in the info string of a model.
const MODEL_WORDS: [&str; 2] = ["fails", "differs"];

fn is_markdown(file: &TextFile) -> bool {
    file.extension() == "md"
}

/// The fences of a page, and the page's lines outside of them (fence lines become empty).
fn split_fences(text: &str) -> Result<(Vec<Fence>, Vec<String>), usize> {
    let mut fences: Vec<Fence> = Vec::new();
    let mut prose = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (index, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        let ticks = trimmed.chars().take_while(|c| *c == '`').count();
        match &open {
            None if ticks >= 3 => {
                let info = trimmed[ticks..].trim();
                let info = info.split(',').map(|word| word.trim().to_owned()).collect();
                fences.push(Fence { info, text: String::new(), line: index + 1 });
                open = Some((ticks, " ".repeat(line.len() - trimmed.len())));
                prose.push(String::new());
            }
            Some((width, _)) if ticks >= *width && trimmed[ticks..].trim().is_empty() => {
                open = None;
                prose.push(String::new());
            }
            Some((_, indent)) => {
                let inner = line.strip_prefix(indent.as_str()).unwrap_or(trimmed);
                if let Some(fence) = fences.last_mut() {
                    fence.text.push_str(inner);
                    fence.text.push('\n');
                }
                prose.push(String::new());
            }
            None => prose.push(line.to_owned()),
        }
    }
    match open {
        Some(_) => Err(fences.last().map_or(0, |fence| fence.line)),
        None => Ok((fences, prose)),
    }
}

/// The example models of one page, in order.
///
/// # Errors
/// A violation for each fence that is open at the end or belongs to no model.
pub fn models(file: &TextFile) -> Result<Vec<Model>, Vec<Violation>> {
    let (fences, _) = split_fences(&file.text).map_err(|line| vec![unclosed(file, line)])?;
    let mut models: Vec<Model> = Vec::new();
    let mut violations = Vec::new();
    let mut files: Vec<(String, String)> = Vec::new();
    for fence in fences {
        let place = format!("{}:{}", file.path, fence.line);
        let words: Vec<&str> = fence.info.iter().map(String::as_str).collect();
        if let Some(path) = words.iter().find_map(|word| word.strip_prefix("file=")) {
            files.push((path.to_owned(), fence.text));
            continue;
        }
        match words.as_slice() {
            ["inmanta", rest @ ..] if rest.iter().all(|word| MODEL_WORDS.contains(word)) => {
                models.push(Model {
                    page: file.path.clone(),
                    line: fence.line,
                    main: fence.text,
                    files: std::mem::take(&mut files),
                    fails: rest.contains(&"fails"),
                    output: None,
                    error: None,
                });
            }
            ["inmanta", ..] => {
                violations.push(Violation::new(place, "has a fence word that nothing knows"));
            }
            ["output"] => match models.last_mut() {
                Some(model) if model.output.is_none() => model.output = Some(fence.text),
                _ => violations.push(Violation::new(place, "is the output of no model")),
            },
            ["error"] => match models.last_mut() {
                Some(model) if model.fails && model.error.is_none() => {
                    model.error = Some(fence.text);
                }
                _ => violations.push(Violation::new(place, "is the error of no failing model")),
            },
            _ => {}
        }
    }
    if let Some((path, _)) = files.first() {
        violations.push(Violation::new(&file.path, format!("file {path} belongs to no model")));
    }
    if violations.is_empty() { Ok(models) } else { Err(violations) }
}

fn unclosed(file: &TextFile, line: usize) -> Violation {
    Violation::new(format!("{}:{line}", file.path), "fence is never closed")
}

/// Checks over all Markdown files: fences, links and the headings that links name.
pub fn check(files: &[TextFile]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let paths: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let mut headings: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut pages = Vec::new();
    for file in files.iter().filter(|file| is_markdown(file)) {
        match split_fences(&file.text) {
            Ok((_, prose)) => {
                headings.insert(&file.path, prose.iter().filter_map(|line| slug(line)).collect());
                pages.push((file, prose));
            }
            Err(line) => violations.push(unclosed(file, line)),
        }
        if let Err(found) = models(file) {
            violations.extend(found);
        }
    }
    for (file, prose) in &pages {
        for (index, line) in prose.iter().enumerate() {
            for target in links(line) {
                let (path, anchor) = target.split_once('#').unwrap_or((target.as_str(), ""));
                let path = if path.is_empty() { file.path.clone() } else { join(&file.path, path) };
                let place = format!("{}:{}", file.path, index + 1);
                let directory = format!("{}/", path.trim_end_matches('/'));
                let exists = paths.contains(path.as_str())
                    || paths.iter().any(|known| known.starts_with(&directory));
                if !exists {
                    violations
                        .push(Violation::new(place, format!("links to {path}: no such file")));
                } else if !anchor.is_empty()
                    && headings.get(path.as_str()).is_some_and(|known| !known.contains(anchor))
                {
                    violations
                        .push(Violation::new(place, format!("{path} has no heading #{anchor}")));
                }
            }
        }
    }
    violations
}

/// Every page below `docs/` stands in the book's table of contents.
pub fn check_summary(files: &[TextFile]) -> Vec<Violation> {
    let summary = "docs/SUMMARY.md";
    let Some(contents) = files.iter().find(|file| file.path == summary) else {
        return vec![Violation::new(summary, "is missing")];
    };
    let listed: BTreeSet<String> =
        contents.text.lines().flat_map(links).map(|target| join(summary, &target)).collect();
    files
        .iter()
        .filter(|file| is_markdown(file) && file.path.starts_with("docs/") && file.path != summary)
        .filter(|file| !listed.contains(&file.path))
        .map(|file| Violation::new(&file.path, "is not listed in docs/SUMMARY.md"))
        .collect()
}

/// Targets of the inline links of a line that point into this repository.
fn links(line: &str) -> Vec<String> {
    // Inline code may hold anything; blank it out.
    let prose: String =
        line.split('`').enumerate().filter(|(i, _)| i % 2 == 0).map(|(_, text)| text).collect();
    let mut found = Vec::new();
    for (start, _) in prose.match_indices("](") {
        let target = &prose[start + 2..];
        let Some(end) = target.find(')') else { continue };
        let target = target[..end].trim();
        if !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:") {
            found.push(target.to_owned());
        }
    }
    found
}

/// `target` as seen from the file `from`, relative to the root.
fn join(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// The anchor of a heading line, as the book makes it.
fn slug(line: &str) -> Option<String> {
    let level = line.chars().take_while(|c| *c == '#').count();
    let title = line[level..].strip_prefix(' ').filter(|_| (1..=6).contains(&level))?;
    let slug = title
        .trim()
        .chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            '-' | '_' => Some(c),
            c if c.is_alphanumeric() => Some(c.to_ascii_lowercase()),
            _ => None,
        })
        .collect();
    Some(slug)
}

const DIAGNOSTICS: &str = "docs/diagnostics/";

/// The parts that every diagnostic page has, in this order.
const DIAGNOSTIC_SECTIONS: [&str; 4] = ["## What", "## Why", "## Example", "## Remedy"];

/// Every diagnostic id that the code names has a page, every page has its parts and stands in the
/// list of `docs/diagnostics/README.md`.
pub fn check_diagnostics(files: &[TextFile]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut pages = BTreeMap::new();
    let mut list = "";
    for file in files.iter().filter(|file| is_markdown(file)) {
        let Some(name) = file.path.strip_prefix(DIAGNOSTICS) else { continue };
        match name.strip_suffix(".md") {
            Some("README") => list = &file.text,
            Some(id) => {
                pages.insert(id.to_owned(), file);
            }
            None => {}
        }
    }
    for (id, page) in &pages {
        let mut rest = page.text.as_str();
        if !rest.starts_with(&format!("# {id}\n")) {
            violations.push(Violation::new(&page.path, "does not begin with its id as heading"));
        }
        for section in DIAGNOSTIC_SECTIONS {
            match rest.find(&format!("\n{section}\n")) {
                Some(place) => rest = &rest[place + 1..],
                None => violations
                    .push(Violation::new(&page.path, format!("lacks \"{section}\" in its place"))),
            }
        }
        if !list.contains(&format!("]({id}.md)")) {
            violations.push(Violation::new(&page.path, "is not listed in its README.md"));
        }
    }
    for file in files.iter().filter(|file| file.extension() == "rs") {
        for (line, id) in diagnostic_ids(&file.text) {
            if !pages.contains_key(&id) {
                violations.push(Violation::new(
                    format!("{}:{line}", file.path),
                    format!("diagnostic {id} has no page {DIAGNOSTICS}{id}.md"),
                ));
            }
        }
    }
    violations
}

/// The diagnostic ids of a Rust source, with their lines. An id is the argument of
/// `DiagnosticId::new("…")`, or any kebab-case literal inside `fn diagnostic_id` or
/// `const DIAGNOSTIC_IDS`, up to the line that closes at the same indentation.
pub fn diagnostic_ids(source: &str) -> Vec<(usize, String)> {
    let mut ids = Vec::new();
    let mut region: Option<usize> = None;
    for (index, line) in source.lines().enumerate() {
        let indent = line.len() - line.trim_start().len();
        if let Some(opened) = region
            && indent == opened
            && line.trim_start().starts_with(['}', ']'])
        {
            region = None;
        }
        let opens = line.contains("fn diagnostic_id(") || line.contains("const DIAGNOSTIC_IDS");
        if opens && region.is_none() && !line.trim_end().ends_with(['}', ';']) {
            region = Some(indent);
        }
        let code = line.split("//").next().unwrap_or_default();
        if region.is_some() || opens {
            let literals = code.split('"').skip(1).step_by(2).filter(|text| is_kebab(text));
            ids.extend(literals.map(|id| (index + 1, id.to_owned())));
        } else if let Some((_, rest)) = code.split_once("DiagnosticId::new(\"")
            && let Some((id, _)) = rest.split_once('"')
        {
            ids.push((index + 1, id.to_owned()));
        }
    }
    ids
}

fn is_kebab(text: &str) -> bool {
    !text.is_empty()
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests;
