//! Transcripts of sessions: commands with their exact output. They are in `sessions/*.session`;
//! `ORRERY_BLESS=1` updates them with the actual output, for review.
//!
//! A case begins with `=== name`, followed by its files (`--- path`), the state of its deploys
//! (`*** name`, one of `stores.rs`), and the commands (`$ command`), each with its output and its
//! exit code, unless it is 0. Standard output and standard error are one stream, as on a terminal.
//! Besides `orrery`, a case can use `cd`, `cat`, `VARIABLE=value` before and `< file` after a
//! command.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use anyhow::{Context, Result, bail};
use libtest_mimic::Trial;
use regex::Regex;
use similar::TextDiff;

use crate::{BINARY, stores};

struct Case {
    name: String,
    /// Files and everything else before the first command, verbatim.
    setting: String,
    commands: Vec<String>,
    /// Commands with their output.
    transcript: String,
}

pub(crate) fn trials() -> Result<Vec<Trial>> {
    trials_in("sessions", |_| Ok(()))
}

/// Sessions of a directory beside this file; `review` sees the setting of each case.
pub(crate) fn trials_in(
    folder: &'static str,
    review: fn(&str) -> Result<()>,
) -> Result<Vec<Trial>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it").join(folder);
    let bless = std::env::var_os("ORRERY_BLESS").is_some();
    let mut trials = Vec::new();
    for entry in fs::read_dir(&directory)? {
        let path = entry?.path();
        let topic = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path)?;
        let (head, cases) = read_cases(&text).with_context(|| topic.clone())?;
        if bless {
            fs::write(&path, rewritten(head, &cases)?)?;
            continue;
        }
        trials.extend(cases.into_iter().map(|case| {
            Trial::test(format!("{folder}/{topic}/{}", case.name), move || {
                let outcome = review(&case.setting).and_then(|()| check(&case));
                Ok(outcome.map_err(|error| format!("{error:#}"))?)
            })
        }));
    }
    if trials.is_empty() && !bless {
        bail!("there are no sessions in {}", directory.display());
    }
    Ok(trials)
}

/// Text before the first case, and the cases.
fn read_cases(text: &str) -> Result<(&str, Vec<Case>)> {
    let mut parts = text.split("\n=== ");
    let head = parts.next().unwrap_or_default();
    let mut cases = Vec::new();
    for part in parts {
        let (name, body) = part.split_once('\n').context("a case has a body")?;
        let first =
            if body.starts_with("$ ") { Some(0) } else { body.find("\n$ ").map(|at| at + 1) };
        let (setting, transcript) = body.split_at(first.context("a case has a command")?);
        let commands = transcript.lines().filter_map(|line| line.strip_prefix("$ "));
        cases.push(Case {
            name: name.to_owned(),
            setting: setting.to_owned(),
            commands: commands.map(str::to_owned).collect(),
            transcript: transcript.trim_end().to_owned(),
        });
    }
    Ok((head, cases))
}

fn rewritten(head: &str, cases: &[Case]) -> Result<String> {
    let mut text = head.trim_end().to_owned() + "\n";
    for case in cases {
        let transcript = run(case).with_context(|| case.name.clone())?;
        let _ = write!(text, "\n=== {}\n{}{transcript}\n", case.name, case.setting);
    }
    Ok(text)
}

fn check(case: &Case) -> Result<()> {
    let actual = run(case)?;
    if actual == case.transcript {
        return Ok(());
    }
    let diff = TextDiff::from_lines(case.transcript.as_str(), actual.as_str());
    bail!("(- expected, + got)\n{}", diff.unified_diff().context_radius(5))
}

/// Runs the commands of a case in its own directory.
fn run(case: &Case) -> Result<String> {
    let scratch = tempfile::tempdir()?;
    let root = scratch.path().canonicalize()?;
    let mut file: Option<(PathBuf, String)> = None;
    for line in case.setting.lines() {
        if let Some(path) = line.strip_prefix("--- ") {
            write_file(file.take())?;
            file = Some((root.join(path), String::new()));
        } else if let Some(name) = line.strip_prefix("*** ") {
            write_file(file.take())?;
            stores::create(name, &root.join("data/deploy/state.db"))?;
        } else if let Some((_, text)) = &mut file {
            text.push_str(line);
            text.push('\n');
        }
    }
    write_file(file)?;
    let mut here = root.clone();
    let mut transcript = String::new();
    for command in &case.commands {
        let _ = writeln!(transcript, "$ {command}");
        let words: Vec<&str> = command.split_whitespace().collect();
        match words.as_slice() {
            ["cd", directory] => here = here.join(directory).canonicalize()?,
            ["cat", path] => transcript += &fs::read_to_string(here.join(path))?,
            words => transcript += &answer(words, &here, &root)?,
        }
    }
    Ok(transcript.trim_end().to_owned())
}

fn write_file(file: Option<(PathBuf, String)>) -> Result<()> {
    let Some((path, text)) = file else { return Ok(()) };
    fs::create_dir_all(path.parent().context("a file has a directory")?)?;
    // An empty line before the first command is for readability.
    Ok(fs::write(path, text.trim_end_matches('\n').to_owned() + "\n")?)
}

fn answer(words: &[&str], here: &Path, root: &Path) -> Result<String> {
    let (words, input) = match words {
        [words @ .., "<", input] => (words, Stdio::from(fs::File::open(here.join(input))?)),
        words => (words, Stdio::null()),
    };
    let program = words.iter().position(|word| *word == "orrery").context("no known command")?;
    let mut command = Command::new(BINARY);
    for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "VIRTUAL_ENV", "RUST_LOG", "ORRERY_DATA"]
    {
        command.env_remove(name);
    }
    for setting in &words[..program] {
        let (name, value) = setting.split_once('=').context("not VARIABLE=value")?;
        command.env(name, value);
    }
    let log = tempfile::NamedTempFile::new()?;
    let status = command
        .args(&words[program + 1..])
        .current_dir(here)
        .stdin(input)
        .stdout(log.reopen_for_appending()?)
        .stderr(log.reopen_for_appending()?)
        .status()?;
    let mut text = normalised(&fs::read_to_string(log.path())?, root);
    if !text.is_empty() && !text.ends_with('\n') {
        text.push_str("(no newline)\n");
    }
    match status.code() {
        Some(0) => {}
        Some(code) => text += &format!("[exit {code}]\n"),
        None => text += &format!("[{status}]\n"),
    }
    Ok(text)
}

trait ReopenForAppending {
    fn reopen_for_appending(&self) -> Result<fs::File>;
}

impl ReopenForAppending for tempfile::NamedTempFile {
    fn reopen_for_appending(&self) -> Result<fs::File> {
        Ok(fs::OpenOptions::new().append(true).open(self.path())?)
    }
}

/// Replaces ages, which vary between runs.
pub(crate) fn without_ages(text: &str) -> String {
    static AGO: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"[\d,]+ (s|min|h|days) ago\b").expect("invariant: the pattern is valid")
    });
    AGO.replace_all(text, "# ago").into_owned()
}

/// Normalizes text that varies between runs.
fn normalised(text: &str, root: &Path) -> String {
    static TIME: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"\b(in|after) \d+(\.\d+)? m?s\b").expect("invariant: the pattern is valid")
    });
    let text = text.replace(&*root.to_string_lossy(), "[DIR]").replace('\x1b', "␛");
    let version = concat!("orrery ", env!("CARGO_PKG_VERSION"));
    let text = text.replace(version, "orrery [VERSION]");
    without_ages(&TIME.replace_all(&text, "$1 # ms"))
}
