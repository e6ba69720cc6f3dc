//! Models in the documentation: examples compile or fail as their page says (`CONTRIBUTING.md`
//! explains the fences); example projects and benchmark models compile.

use std::fs;
use std::path::Path;

use anyhow::{Result, bail};
use libtest_mimic::Trial;
use serde_json::Value;
use xtask::documents::{self, Model};

/// Function that compiles a project directory and returns the report.
type Compile = fn(&Path) -> Result<Value>;

/// One test per example, named by its page and line.
pub(crate) fn trials(compile: Compile) -> Result<Vec<Trial>> {
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
    trials.extend(example_projects(compile)?);
    trials.extend(benchmark_models(compile)?);
    Ok(trials)
}

/// Every project in `examples/` compiles and has instances.
fn example_projects(compile: Compile) -> Result<Vec<Trial>> {
    let mut trials = Vec::new();
    for entry in fs::read_dir(xtask::repository_root().join("examples"))? {
        let project = entry?.path();
        if !project.join("project.yml").exists() {
            // Not a project, and tested elsewhere.
            continue;
        }
        let name = project.file_name().unwrap_or_default().to_string_lossy().into_owned();
        trials.push(Trial::test(format!("examples/{name}"), move || {
            // A copy, so that a compile leaves nothing in the sources.
            let files =
                ["project.yml", "main.cf"].map(|file| fs::read_to_string(project.join(file)));
            let [description, main] = files;
            Ok(compiles(&description?, &main?, None, compile)
                .map_err(|error| format!("{error:#}"))?)
        }));
    }
    Ok(trials)
}

/// The benchmark's shapes compile at their smallest and count their instances.
fn benchmark_models(compile: Compile) -> Result<Vec<Trial>> {
    let mut trials = Vec::new();
    for entry in fs::read_dir(xtask::repository_root().join("bench/compile/models"))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        trials.push(Trial::test(format!("bench/compile/models/{name}"), move || {
            let main = fs::read_to_string(&path)?;
            Ok(compiles(PROJECT, &main, Some("instances "), compile)
                .map_err(|error| format!("{error:#}"))?)
        }));
    }
    Ok(trials)
}

const PROJECT: &str = "name: example\nmodulepath: libs\n";

/// The model compiles, and one of the lines that it prints begins with `start`.
fn compiles(description: &str, main: &str, start: Option<&str>, compile: Compile) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let project = scratch.path().canonicalize()?.join("project");
    fs::create_dir_all(project.join("libs"))?;
    fs::write(project.join("project.yml"), description)?;
    fs::write(project.join("main.cf"), main)?;
    let report = compile(&project)?;
    if report["status"] != "ok" {
        bail!("{}", report["error"]["message"].as_str().unwrap_or_default());
    }
    let printed = report["stdout"].as_str().unwrap_or_default();
    if let Some(start) = start
        && !printed.lines().any(|line| line.starts_with(start))
    {
        bail!("no line begins with {start:?}:\n{printed}");
    }
    Ok(())
}

fn check(model: &Model, compile: Compile) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let project = scratch.path().canonicalize()?.join("project");
    fs::create_dir_all(project.join("libs"))?;
    fs::write(project.join("project.yml"), PROJECT)?;
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
