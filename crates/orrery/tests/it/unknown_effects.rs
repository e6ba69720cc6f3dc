//! What commands tell of a command that is to run once and was cut off: its outcome is unknown until a person decides.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use rustix::process::Signal;
use serde_json::Value;

use crate::playground::{Playground, until};

const MODEL: &str = r#"exec::Run(host=host, command="sh -c 'echo run >> journal; sleep 2'", cwd=root, once=true)
"#;

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, test: fn() -> Result<()>| {
        Trial::test(format!("unknown_effects/{name}"), move || {
            Ok(test().map_err(|error| format!("{error:#}"))?)
        })
    };
    vec![
        trial("all_commands_name_the_way_out", all_commands_name_the_way_out),
        trial("a_decision_is_shown_until_it_has_effect", a_decision_is_shown_until_it_has_effect),
        trial("effects_of_dropped_resources_are_forgotten", effects_of_dropped_resources),
        trial("effects_of_destroyed_resources_are_forgotten", effects_of_destroyed_resources),
    ]
}

/// A project whose deploy was killed while its command ran.
fn cut_off() -> Result<Playground> {
    let project = Playground::new(MODEL)?;
    let running = project.start(&["deploy"])?;
    until("the command runs", Duration::from_secs(30), || Ok(project.managed("journal").exists()))?;
    running.signal(Signal::KILL)?;
    running.wait()?;
    Ok(project)
}

fn unknown(project: &Playground, code: i32) -> Result<Vec<Value>> {
    let mut found = project.json(code, &["settle"])?;
    let items = found["items"].as_array_mut().context("no items")?;
    Ok(std::mem::take(items))
}

fn runs(project: &Playground) -> Result<usize> {
    Ok(std::fs::read_to_string(project.managed("journal"))?.lines().count())
}

fn all_commands_name_the_way_out() -> Result<()> {
    let project = cut_off()?;
    for deployed in [false, true] {
        if deployed {
            project.expect(2, &["deploy"])?;
            for (code, command) in [(2, &["status"][..]), (0, &["why", "exec::Run"])] {
                let shown = project.expect(code, command)?.out;
                let is_true = shown.contains("it is not run again until `orrery settle` decides");
                ensure!(is_true, "{command:?}: {shown}");
                for untrue in ["repair --pending", "starts it again"] {
                    ensure!(!shown.contains(untrue), "{command:?}: {shown}");
                }
            }
        }
        let plan = project.expect(2, &["plan"])?.out;
        let is_true = plan.contains("outcome is unknown: it is not run until `orrery settle`");
        ensure!(is_true && !plan.contains("run the command"), "{plan}");
    }
    ensure!(runs(&project)? == 1);
    Ok(())
}

fn a_decision_is_shown_until_it_has_effect() -> Result<()> {
    let project = cut_off()?;
    // No deploy is needed to know that the outcome is lost.
    ensure!(unknown(&project, 2)?.len() == 1);
    project.expect(2, &["deploy"])?;
    project.expect(0, &["settle", "--again", "exec::Run"])?;
    let listed = project.expect(0, &["settle"])?.out;
    ensure!(listed.contains("outcome unknown: is run again with the next deploy"), "{listed}");
    let plan = project.expect(2, &["plan"])?.out;
    ensure!(plan.contains("run the command"), "{plan}");
    project.expect(0, &["settle", "--done", "exec::Run"])?;
    let listed = project.expect(0, &["settle"])?.out;
    ensure!(listed.contains("outcome unknown: counts as done with the next deploy"), "{listed}");
    let items = unknown(&project, 0)?;
    ensure!(items.len() == 1 && items[0]["choice"] == "done", "{items:?}");
    let status = project.expect(2, &["status"])?.out;
    ensure!(status.contains("it counts as done with the next deploy"), "{status}");
    project.expect(0, &["plan"])?;
    project.expect(0, &["deploy"])?;
    ensure!(unknown(&project, 0)?.is_empty());
    project.expect(0, &["status"])?;
    ensure!(runs(&project)? == 1);
    Ok(())
}

fn effects_of_dropped_resources() -> Result<()> {
    let project = cut_off()?;
    project.expect(2, &["deploy"])?;
    project.write_model("Folder(host=host, path=\"{{ root }}/other\")\n")?;
    project.expect(0, &["deploy"])?;
    ensure!(unknown(&project, 2)?.len() == 1, "a person has to decide all the same");
    let settled = project.expect(0, &["settle", "--done", "exec::Run"])?;
    settled.says(&["no version has it any more, the effect is forgotten"])?;
    ensure!(unknown(&project, 0)?.is_empty());
    Ok(())
}

fn effects_of_destroyed_resources() -> Result<()> {
    let project = cut_off()?;
    project.expect(2, &["deploy"])?;
    project.run(&["destroy", "--yes"])?;
    ensure!(unknown(&project, 2)?.len() == 1);
    project.expect(0, &["settle", "--again", "exec::Run"])?;
    ensure!(unknown(&project, 0)?.is_empty());
    ensure!(runs(&project)? == 1);
    Ok(())
}
