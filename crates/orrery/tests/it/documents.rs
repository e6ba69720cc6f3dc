//! The example models of the documents: each compiles, or is refused, as its page says.
//! `CONTRIBUTING.md` explains the fences.

use std::fs;
use std::path::Path;

use anyhow::{Result, bail};
use libtest_mimic::Trial;
use serde_json::Value;
use xtask::documents::{self, Model};

/// What `compile` of a finished project directory reports.
type Compile = fn(&Path) -> Result<Value>;

/// One test per example, named by its page and line.
pub fn trials(compile: Compile) -> Result<Vec<Trial>> {
    let mut trials = Vec::new();
    for file in xtask::read_repository(&xtask::repository_root())? {
        if file.extension() != "md" {
            continue;
        }
        // Pages with broken fences are reported by xtask's own tests.
        for model in documents::models(&file).unwrap_or_default() {
            let name = format!("{}:{}", model.page, model.line);
            trials.push(Trial::test(name, move || {
                Ok(check(&model, compile).map_err(|error| format!("{error:#}"))?)
            }));
        }
    }
    if trials.is_empty() {
        bail!("the documents hold no example models");
    }
    Ok(trials)
}

fn check(model: &Model, compile: Compile) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let project = scratch.path().canonicalize()?.join("project");
    fs::create_dir_all(project.join("libs"))?;
    fs::write(project.join("project.yml"), "name: example\nmodulepath: libs\n")?;
    fs::write(project.join("main.cf"), &model.main)?;
    for (path, text) in &model.files {
        let path = project.join(path);
        fs::create_dir_all(path.parent().unwrap_or(&project))?;
        fs::write(path, text)?;
    }
    let report = compile(&project)?;
    let message = report["error"]["message"].as_str().unwrap_or_default();
    match (report["status"].as_str(), model.fails) {
        (Some("ok"), false) | (Some("error"), true) => {}
        _ => bail!("status is {}: {message}", report["status"]),
    }
    if let Some(expected) = &model.output
        && report["stdout"].as_str() != Some(expected.as_str())
    {
        bail!("printed\n{}", report["stdout"].as_str().unwrap_or_default());
    }
    if let Some(expected) = &model.error
        && !message.contains(expected.trim_end())
    {
        bail!("said\n{message}");
    }
    Ok(())
}
