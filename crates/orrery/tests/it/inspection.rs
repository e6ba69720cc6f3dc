//! Commands that inspect, beyond transcripts: during a deploy, with several pages, and with a
//! closed pipe.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use serde_json::Value;

use crate::BINARY;
use crate::sessions::without_ages;
use crate::stores::{self, Scene};

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, check: fn(&Path) -> Result<()>| {
        Trial::test(format!("inspection/{name}"), move || {
            let scratch = tempfile::tempdir()?;
            Ok(check(scratch.path()).map_err(|error| format!("{error:#}"))?)
        })
    };
    vec![
        Trial::test("docs/guide/looking.md shows what is answered", || {
            Ok(page_is_true().map_err(|error| format!("{error:#}"))?)
        }),
        trial("status names the deploy that runs", names_the_running_deploy),
        trial("pages make one list", pages_make_one_list),
        trial("limits and places give all pages", limits_give_all_pages),
        trial("a reader may leave", a_reader_may_leave),
        trial("a damaged state is refused and left as it is", damage_is_refused),
    ]
}

/// Every example of the page is in the transcripts.
fn page_is_true() -> Result<()> {
    let read = |path: &str| {
        let path = xtask::repository_root().join(path);
        std::fs::read_to_string(&path).with_context(|| path.display().to_string())
    };
    let sessions = read("crates/orrery/tests/it/sessions/looking.session")?;
    let page = without_ages(&read("docs/guide/looking.md")?);
    let mut examples: Vec<String> = Vec::new();
    for line in page.lines() {
        if let Some(command) = line.strip_prefix("    $ ") {
            examples.push(format!("$ {command}\n"));
        } else if let Some(text) = line.strip_prefix("    ") {
            let example = examples.last_mut().context("an example begins with a command")?;
            example.push_str(text);
            example.push('\n');
        } else if line.is_empty()
            && let Some(example) = examples.last_mut()
        {
            // Part of the output if more of it follows.
            example.push('\n');
        }
    }
    ensure!(examples.len() > 5, "the page has {} examples", examples.len());
    for example in examples {
        let example = example.trim_end();
        ensure!(sessions.contains(&format!("{example}\n")), "no transcript has\n{example}");
    }
    Ok(())
}

fn orrery(directory: &Path, arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(BINARY);
    command.args(arguments).arg("--data").arg(directory).current_dir(directory);
    command.stdin(Stdio::null());
    Ok(command.output()?)
}

fn json(directory: &Path, arguments: &[&str]) -> Result<Value> {
    let output = orrery(directory, &[arguments, &["--json"]].concat())?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn names_the_running_deploy(directory: &Path) -> Result<()> {
    let file = directory.join("state.db");
    stores::create("calm", &file)?;
    // While this exists, a deploy is running.
    let _scene = Scene::open(&file)?;
    let output = orrery(directory, &["status"])?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let me = format!("`orrery deploy` (process {} on ", std::process::id());
    ensure!(text.contains(&me) && text.contains(" is running"), "{text}");
    let report = json(directory, &["status"])?;
    ensure!(report["running"]["pid"] == std::process::id(), "{report}");
    ensure!(report["running"]["since"] == "2026-11-16T09:30:00.000000Z", "{report}");
    let output = orrery(directory, &["why", "motd.d"])?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(text.contains(&me), "{text}");
    Ok(())
}

/// More than one page.
const COUNT: u32 = 12_000;

fn pages_make_one_list(directory: &Path) -> Result<()> {
    stores::many(&Scene::open(&directory.join("state.db"))?, COUNT)?;
    let report = json(directory, &["resources"])?;
    let resources = report["resources"].as_array().context("a list")?;
    ensure!(resources.len() == COUNT as usize, "{}", resources.len());
    let ids: Vec<&str> = resources.iter().filter_map(|one| one["id"].as_str()).collect();
    ensure!(ids.is_sorted() && ids.len() == COUNT as usize);
    ensure!(report["next"].is_null());
    let output = orrery(directory, &["resources", "--filter", "*/srv/00???9]"])?;
    let lines = String::from_utf8(output.stdout)?;
    // The heading, and every tenth of the first ten thousand.
    ensure!(lines.lines().count() == 1001, "{}", lines.lines().count());
    Ok(())
}

fn limits_give_all_pages(directory: &Path) -> Result<()> {
    stores::many(&Scene::open(&directory.join("state.db"))?, 25)?;
    let mut seen: Vec<String> = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let mut arguments = vec!["resources", "--limit", "10", "--type", "std::File"];
        arguments.extend(after.iter().flat_map(|after| ["--after", after]));
        let report = json(directory, &arguments)?;
        let resources = report["resources"].as_array().context("a list")?;
        seen.extend(resources.iter().filter_map(|one| one["id"].as_str().map(str::to_owned)));
        match report["next"].as_str() {
            Some(next) => after = Some(next.to_owned()),
            None => break,
        }
    }
    let wanted = (0..25).map(|number| format!("std::File[host,path=/srv/{number:06}]"));
    ensure!(seen == wanted.collect::<Vec<_>>(), "{seen:?}");
    Ok(())
}

fn a_reader_may_leave(directory: &Path) -> Result<()> {
    stores::many(&Scene::open(&directory.join("state.db"))?, COUNT)?;
    let mut child = Command::new(BINARY)
        .args(["resources", "--data"])
        .arg(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("a pipe")?).read_line(&mut line)?;
    ensure!(line.starts_with("STATUS"), "{line}");
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success() && said.is_empty(), "{}: {said}", output.status);
    Ok(())
}

fn damage_is_refused(directory: &Path) -> Result<()> {
    let file = directory.join("state.db");
    std::fs::write(&file, "this is somebody's diary")?;
    for command in ["status", "resources", "versions", "facts"] {
        let output = orrery(directory, &[command])?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.code() == Some(1), "{command}: {}", output.status);
        ensure!(
            said.starts_with("error: ") && said.contains("is not a store of this program"),
            "{said}"
        );
    }
    ensure!(std::fs::read_to_string(&file)? == "this is somebody's diary");
    Ok(())
}
