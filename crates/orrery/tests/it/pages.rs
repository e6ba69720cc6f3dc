//! Diagnostic ids and their pages: each example has the id of its page, and every error of the
//! corpus has an id. `xtask` checks that every id has a page.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};
use libtest_mimic::{Failed, Trial};
use orrery_compiler::diagnostic::diagnostic_id;
use xtask::documents::{self, Model};

use crate::BINARY;
use crate::corpus::Case;

/// Exceptions of Python itself, which the reference raises for some models: they have no kind.
const STUMBLES: [&str; 3] = ["AssertionError", "AttributeError", "ValueError"];

/// The cause is shown instead.
const ONLY_IN_REPORTS: &str = "could-not-set-attribute";

pub(crate) fn trials(cases: &[Case]) -> Result<Vec<Trial>> {
    let mut trials = Vec::new();
    for file in xtask::read_repository(&xtask::repository_root())? {
        let page = file.path.strip_prefix("docs/diagnostics/").and_then(|p| p.strip_suffix(".md"));
        let Some(id) = page.map(str::to_owned) else { continue };
        if id == ONLY_IN_REPORTS {
            continue;
        }
        for model in documents::models(&file).unwrap_or_default() {
            let (name, id) =
                (format!("{}:{} is shown with its id", model.page, model.line), id.clone());
            trials.push(Trial::test(name, move || {
                Ok(check(&model, &id).map_err(|error| format!("{error:#}"))?)
            }));
        }
    }
    if trials.is_empty() {
        bail!("there are no diagnostic pages with examples");
    }
    let unnamed = unnamed_errors(cases);
    trials.push(Trial::test("every error of the corpus has an id", move || match unnamed {
        None => Ok(()),
        Some(list) => Err(Failed::from(list)),
    }));
    Ok(trials)
}

fn check(model: &Model, id: &str) -> Result<()> {
    let project = tempfile::tempdir()?;
    fs::create_dir_all(project.path().join("libs"))?;
    fs::write(project.path().join("project.yml"), "name: example\nmodulepath: libs\n")?;
    fs::write(project.path().join("main.cf"), &model.main)?;
    for (path, text) in &model.files {
        let path = project.path().join(path);
        fs::create_dir_all(path.parent().unwrap_or(project.path()))?;
        fs::write(path, text)?;
    }
    // A model with an export problem compiles; a plan reports it and changes nothing.
    let mut told = String::new();
    for command in ["compile", "plan"] {
        let output = Command::new(BINARY)
            .args([command, "-v"])
            .current_dir(project.path())
            .env_remove("VIRTUAL_ENV")
            .stdin(Stdio::null())
            .output()?;
        told.push_str(&String::from_utf8_lossy(&output.stderr));
        if told.contains(&format!("[{id}]: ")) {
            return Ok(());
        }
    }
    bail!("no [{id}] in\n{told}");
}

fn unnamed_errors(cases: &[Case]) -> Option<String> {
    let mut unnamed: Vec<String> = cases
        .iter()
        .filter(|case| !case.has_flag("python"))
        .filter_map(|case| {
            let error = &case.expected["error"];
            let (class, text) = (error["class"].as_str()?, error["text"].as_str()?);
            let known = diagnostic_id(class, text).is_some() || STUMBLES.contains(&class);
            (!known).then(|| format!("{}: {class}: {text}", case.id()))
        })
        .collect();
    unnamed.sort();
    (!unnamed.is_empty()).then(|| unnamed.join("\n"))
}
