//! `orrery cluster` on directories: examples of diagnostic pages have their ids, and JSON and text
//! agree.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use libtest_mimic::Trial;
use serde_json::Value;

use crate::BINARY;

pub(crate) fn trials() -> Result<Vec<Trial>> {
    let mut trials = Vec::new();
    for file in xtask::read_repository(&xtask::repository_root())? {
        let page = file.path.strip_prefix("docs/diagnostics/").and_then(|p| p.strip_suffix(".md"));
        let Some(id) = page.map(str::to_owned) else { continue };
        let files = example(&file.text);
        if files.is_empty() {
            continue;
        }
        trials.push(Trial::test(format!("clusters/{id} is shown for its example"), move || {
            Ok(check_example(&id, &files).map_err(|error| format!("{error:#}"))?)
        }));
    }
    ensure!(trials.len() >= 14, "there are only {} pages with examples", trials.len());
    trials.push(Trial::test("clusters/a directory of ten thousand nodes is previewed", || {
        Ok(large_preview().map_err(|error| format!("{error:#}"))?)
    }));
    trials.push(Trial::test("clusters/the example has the recorded layouts", || {
        Ok(example_layouts().map_err(|error| format!("{error:#}"))?)
    }));
    trials.push(Trial::test("clusters/a template that cannot be read is no unknown one", || {
        Ok(unreadable_template().map_err(|error| format!("{error:#}"))?)
    }));
    Ok(trials)
}

/// The problem of the file is shown instead, and every failure has a JSON form.
fn unreadable_template() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let files = [("clustertemplates/webstack.json", "{\"name\": \"webstack\",,}")];
    let files: Vec<(String, String)> =
        files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
    write(directory.path(), &files)?;
    let solve = |template: &str, more: &[&str]| {
        let mut arguments = vec!["cluster", "solve", template, "--size", "3"];
        arguments.extend(more);
        orrery(directory.path(), &arguments)
    };
    let ran = solve("webstack", &[])?;
    let said = String::from_utf8(ran.stderr)?;
    ensure!(said.contains("document-syntax") && said.contains("webstack.json:1:"), "{said}");
    ensure!(ran.status.code() == Some(1) && !said.contains("no template"), "{said}");
    let report: Value = serde_json::from_slice(&solve("webstack", &["--json"])?.stdout)?;
    ensure!(report["problems"][0]["id"] == "document-syntax", "{report:#}");
    let mended =
        ("clustertemplates/webstack.json".to_owned(), "{\"name\": \"webstack\"}".to_owned());
    write(directory.path(), &[mended])?;
    let report: Value = serde_json::from_slice(&solve("webstak", &["--json"])?.stdout)?;
    let is_told = report["status"] == "error" && report["help"] == "did you mean `webstack`?";
    ensure!(is_told, "{report:#}");
    Ok(())
}

/// The example in the repository: its smallest size, and recorded layouts.
fn example_layouts() -> Result<()> {
    let directory = xtask::repository_root().join("examples/webstack");
    let checked = orrery(&directory, &["cluster", "check", ".", "--json"])?;
    let report: Value = serde_json::from_slice(&checked.stdout)?;
    ensure!(checked.status.success() && report["status"] == "ok", "{report:#}");
    ensure!(report["templates"][0]["smallest"] == 4, "{report:#}");
    for (size, apps) in
        [("3", None), ("4", Some(2)), ("5", Some(3)), ("8", Some(6)), ("50", Some(48))]
    {
        let solved =
            orrery(&directory, &["cluster", "solve", "webstack", "--size", size, "--json"])?;
        let report: Value = serde_json::from_slice(&solved.stdout)?;
        let Some(apps) = apps else {
            ensure!(report["status"] == "unsolvable", "{report:#}");
            ensure!(report["advice"][0] == "size 4 is the smallest that fits", "{report:#}");
            continue;
        };
        let group = |count: u64, hardware: &str, services: &[&str]| {
            serde_json::json!({
                "count": count, "hardwaretype": hardware, "imagetype": "debian12", "services": services,
            })
        };
        let layout = serde_json::json!([
            group(1, "large", &["base", "postgresql", "redis"]),
            group(apps, "small", &["app", "base"]),
            group(1, "small", &["base", "nginx"]),
        ]);
        ensure!(report["layout"] == layout, "{report:#}");
        let stages = report["plan"]["stages"].as_array().context("a list of stages")?;
        ensure!(stages.len() == 12, "{} stages", stages.len());
    }
    Ok(())
}

/// The files of a page: fences that begin with ```` ```json file=PATH ````.
fn example(page: &str) -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = Vec::new();
    let mut is_inside = false;
    for line in page.lines() {
        if let Some(path) = line.strip_prefix("```json file=") {
            files.push((path.to_owned(), String::new()));
            is_inside = true;
        } else if line.starts_with("```") {
            is_inside = false;
        } else if let (true, Some((_, text))) = (is_inside, files.last_mut()) {
            text.push_str(line);
            text.push('\n');
        }
    }
    files
}

fn write(directory: &Path, files: &[(String, String)]) -> Result<()> {
    for (path, text) in files {
        let path = directory.join(path);
        fs::create_dir_all(path.parent().context("files are in directories")?)?;
        fs::write(path, text)?;
    }
    Ok(())
}

fn orrery(directory: &Path, arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(BINARY);
    command.args(arguments).current_dir(directory).stdin(Stdio::null());
    Ok(command.output()?)
}

fn check_example(id: &str, files: &[(String, String)]) -> Result<()> {
    let directory = tempfile::tempdir()?;
    write(directory.path(), files)?;
    let shown = orrery(directory.path(), &["cluster", "check", "."])?;
    let text = String::from_utf8_lossy(&shown.stderr);
    ensure!(text.contains(&format!("error[{id}]: ")), "no [{id}] in\n{text}");
    ensure!(shown.status.code() == Some(1), "{:?}", shown.status);
    let report = orrery(directory.path(), &["cluster", "check", ".", "--json"])?;
    let report: Value = serde_json::from_slice(&report.stdout)?;
    ensure!(report["status"] == "error", "{report:#}");
    let problems = report["problems"].as_array().context("a list of problems")?;
    let failures = report["templates"].as_array().context("a list of templates")?;
    let is_failure = |one: &Value| !one["failure"].is_null();
    let is_listed = problems.iter().any(|one| {
        let has_place = one["line"].as_u64().is_some() && one["file"].as_str().is_some();
        one["id"] == id && has_place
    });
    if !is_listed && !failures.iter().any(is_failure) {
        bail!("{report:#}");
    }
    Ok(())
}

/// A preview of the largest cluster has all nodes and all steps of the plan.
fn large_preview() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let page = fs::read_to_string(
        xtask::repository_root().join("docs/diagnostics/unsolvable-template.md"),
    )?;
    let mut files = example(&page);
    let template = r#"{"name": "web", "defaults": {"services": ["app", "db"], "provider": "local"},
        "constraints": {"layout": {"cantcoexist": [["app", "db"]]}, "services": {"db": {"quantities": {"max": 3}}}}}"#;
    files.retain(|(path, _)| !path.starts_with("clustertemplates/"));
    files.push(("clustertemplates/web.json".to_owned(), template.to_owned()));
    write(directory.path(), &files)?;
    let solved =
        orrery(directory.path(), &["cluster", "solve", "web", "--size", "10000", "--json"])?;
    ensure!(solved.status.success(), "{}", String::from_utf8_lossy(&solved.stderr));
    let report: Value = serde_json::from_slice(&solved.stdout)?;
    let nodes = report["nodes"].as_array().context("a list of nodes")?;
    ensure!(nodes.len() == 10_000 && nodes[9_999]["name"] == "web-10999", "{}", nodes.len());
    ensure!(report["plan"]["steps"] == 30_000, "{}", report["plan"]["steps"]);
    Ok(())
}
