//! Reads the language corpus: files of small projects (`AREA.cases`) with the outcome that the
//! reference compiler gave (`AREA.expected.json`), and lays a project out on disk.
//! The format is described at the head of `tools/oracle/cases.py`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value};

/// Templates are rendered as leniently as by the reference compiler, for comparison.
const PLAIN_PROJECT: &str = "name: test\nmodulepath: libs\norrery:\n    templates: lenient\n";

/// One project with its expected outcome.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) area: String,
    pub(crate) name: String,
    pub(crate) flags: Vec<String>,
    pub(crate) files: BTreeMap<String, String>,
    pub(crate) expected: Value,
}

impl Case {
    /// `area/name`, as used in lists and filters.
    pub(crate) fn id(&self) -> String {
        format!("{}/{}", self.area, self.name)
    }

    pub(crate) fn has_flag(&self, flag: &str) -> bool {
        self.flags.iter().any(|found| found == flag)
    }

    /// Lays the project out in an empty directory.
    pub(crate) fn write_to(&self, directory: &Path) -> Result<()> {
        fs::create_dir_all(directory.join("libs"))?;
        fs::write(directory.join("project.yml"), PLAIN_PROJECT)?;
        for (path, text) in &self.files {
            let target = directory.join(path);
            if let Some(parent) = target.parent() {
                fs::create_dir_all(parent)?;
            }
            let bytes = if path == "main.cf" { self.main_bytes()? } else { text.clone().into() };
            fs::write(&target, bytes).with_context(|| format!("writing {path}"))?;
        }
        Ok(())
    }

    fn main_bytes(&self) -> Result<Vec<u8>> {
        let text = self.files.get("main.cf").map_or("", String::as_str);
        if self.has_flag("hex") {
            return from_hex(text);
        }
        let text =
            if self.has_flag("noeol") { text.strip_suffix('\n').unwrap_or(text) } else { text };
        Ok(if self.has_flag("crlf") { text.replace('\n', "\r\n") } else { text.to_owned() }.into())
    }
}

fn from_hex(text: &str) -> Result<Vec<u8>> {
    let digits: Vec<u32> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).with_context(|| format!("{c:?} is no hexadecimal digit")))
        .collect::<Result<_>>()?;
    ensure!(digits.len().is_multiple_of(2), "an odd number of hexadecimal digits");
    digits.chunks(2).map(|pair| Ok(u8::try_from(pair[0] * 16 + pair[1])?)).collect()
}

/// All cases of a directory, in the order of its files.
pub(crate) fn read_directory(directory: &Path) -> Result<Vec<Case>> {
    let mut paths: Vec<PathBuf> = fs::read_dir(directory)
        .with_context(|| format!("listing {}", directory.display()))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "cases"));
    paths.sort();
    let mut cases = Vec::new();
    for path in paths {
        let of_file = || format!("in {}", path.display());
        let text = fs::read_to_string(&path).with_context(of_file)?;
        let expected = path.with_extension("expected.json");
        let outcomes = fs::read_to_string(&expected)
            .with_context(|| format!("{} is missing: record it", expected.display()))?;
        let outcomes: Map<String, Value> = serde_json::from_str(&outcomes).with_context(of_file)?;
        let area = path.file_stem().unwrap_or_default().to_string_lossy();
        cases.extend(parse_cases(&area, &text, &outcomes).with_context(of_file)?);
    }
    Ok(cases)
}

/// The cases in the text of a `.cases` file.
pub(crate) fn parse_cases(
    area: &str,
    text: &str,
    outcomes: &Map<String, Value>,
) -> Result<Vec<Case>> {
    let mut bundles: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let mut cases: Vec<Case> = Vec::new();
    let mut file = String::new();
    // The bundle that is being filled; without one it is the last case.
    let mut bundle: Option<String> = None;
    for (number, line) in (1..).zip(text.strip_suffix('\n').unwrap_or(text).split('\n')) {
        if let Some(header) = line.strip_prefix("=== ") {
            let mut words = header.split_whitespace().map(str::to_owned);
            let name = words.next().with_context(|| format!("line {number}: no name"))?;
            if name.starts_with('+') {
                bundles.insert(name.clone(), BTreeMap::new());
                bundle = Some(name);
                file.clear();
                continue;
            }
            bundle = None;
            let flags: Vec<String> = words.collect();
            let mut files = BTreeMap::from([("main.cf".to_owned(), String::new())]);
            for flag in flags.iter().filter(|flag| flag.starts_with('+')) {
                let shared = bundles.get(flag).with_context(|| format!("no bundle {flag}"))?;
                files.extend(shared.clone());
            }
            let expected = outcomes.get(&name).cloned();
            let expected = expected.with_context(|| format!("no outcome for {name}: record it"))?;
            cases.push(Case { area: area.to_owned(), name, flags, files, expected });
            "main.cf".clone_into(&mut file);
            continue;
        }
        let files = match &bundle {
            Some(name) => bundles.get_mut(name),
            None => cases.last_mut().map(|case| &mut case.files),
        };
        let Some(files) = files else {
            ensure!(line.is_empty() || line.starts_with('#'), "line {number}: text before a case");
            continue;
        };
        if let Some(path) = line.strip_prefix("--- ") {
            path.trim().clone_into(&mut file);
            if files.insert(file.clone(), String::new()).is_some() {
                bail!("line {number}: file {file} exists already");
            }
        } else if !file.is_empty() {
            let text = files.entry(file.clone()).or_default();
            text.push_str(line);
            text.push('\n');
        }
    }
    Ok(cases)
}

/// A list of cases with a reason each: lines `area reason` or `area/case reason`.
pub(crate) struct CaseList {
    entries: BTreeMap<String, String>,
}

impl CaseList {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
        let mut entries = BTreeMap::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (entry, reason) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            ensure!(!reason.trim().is_empty(), "{}: {entry} has no reason", path.display());
            entries.insert(entry.to_owned(), reason.trim().to_owned());
        }
        Ok(Self { entries })
    }

    /// Reason for a case on the list, if any.
    pub(crate) fn reason(&self, case: &Case) -> Option<&str> {
        self.entries.get(&case.id()).or_else(|| self.entries.get(&case.area)).map(String::as_str)
    }

    /// True if it has an entry for `area/case`.
    pub(crate) fn names(&self, id: &str) -> bool {
        self.entries.contains_key(id)
    }

    /// Entries without a case.
    pub(crate) fn strays<'list>(&'list self, cases: &[Case]) -> Vec<&'list str> {
        self.entries
            .keys()
            .filter(|entry| !cases.iter().any(|case| **entry == case.id() || **entry == case.area))
            .map(String::as_str)
            .collect()
    }
}
