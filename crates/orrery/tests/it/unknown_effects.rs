//! Reports about an interrupted command that runs once: its outcome is unknown until an operator
//! decides.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use rustix::process::Signal;
use serde_json::Value;

use crate::scratch_project::{ScratchProject, until};
use crate::server_commands::World;

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
        trial("plans_and_status_of_servers_tell_them", plans_and_status_of_servers_tell_them),
        trial("a_decision_is_shown_until_it_has_effect", a_decision_is_shown_until_it_has_effect),
        trial("plans_show_what_comes_back", plans_show_what_comes_back),
        trial("the_way_out_can_be_pasted", the_way_out_can_be_pasted),
        trial("effects_of_dropped_resources_are_forgotten", effects_of_dropped_resources),
        trial("effects_of_destroyed_resources_are_forgotten", effects_of_destroyed_resources),
    ]
}

/// A project with a deploy that was killed while its command ran.
fn cut_off() -> Result<ScratchProject> {
    let project = ScratchProject::new(MODEL)?;
    let running = project.start(&["deploy"])?;
    until("the command runs", Duration::from_secs(30), || Ok(project.managed("journal").exists()))?;
    running.signal(Signal::KILL)?;
    running.wait()?;
    Ok(project)
}

fn unknown(project: &ScratchProject, code: i32) -> Result<Vec<Value>> {
    let mut found = project.json(code, &["settle"])?;
    let items = found["items"].as_array_mut().context("no items")?;
    Ok(std::mem::take(items))
}

fn runs(project: &ScratchProject) -> Result<usize> {
    Ok(std::fs::read_to_string(project.managed("journal"))?.lines().count())
}

fn all_commands_name_the_way_out() -> Result<()> {
    let project = cut_off()?;
    for deployed in [false, true] {
        if deployed {
            project.expect(2, &["deploy"])?;
            for (code, command) in [(2, &["status"][..]), (0, &["why", "exec::Run"])] {
                let shown = project.expect(code, command)?.out;
                let is_true = shown.contains("not run again until `orrery settle` decides");
                ensure!(is_true, "{command:?}: {shown}");
                for untrue in ["repair --pending", "starts it again"] {
                    ensure!(!shown.contains(untrue), "{command:?}: {shown}");
                }
            }
        }
        let plan = project.expect(2, &["plan"])?.out;
        let is_true = plan.contains("outcome unknown: not run until `orrery settle`");
        ensure!(is_true && !plan.contains("run the command"), "{plan}");
    }
    ensure!(runs(&project)? == 1);
    Ok(())
}

fn a_decision_is_shown_until_it_has_effect() -> Result<()> {
    let project = cut_off()?;
    // The lost outcome is detected without a deploy.
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

/// A command that left the model and returns is new: it runs again, and the plan shows it.
fn plans_show_what_comes_back() -> Result<()> {
    let model = MODEL.replace("sleep 2", "true");
    let project = ScratchProject::new(&model)?;
    project.expect(0, &["deploy"])?;
    project.expect(0, &["plan"])?;
    project.write_model("")?;
    project.expect(0, &["deploy"])?;
    project.write_model(&model)?;
    project.expect(2, &["plan"])?.shows(&["run the command"])?;
    project.expect(0, &["deploy"])?;
    ensure!(runs(&project)? == 2);
    Ok(())
}

/// Printed commands for settling are quoted for a shell.
fn the_way_out_can_be_pasted() -> Result<()> {
    let project = cut_off()?;
    let failed = project.expect(2, &["deploy"])?;
    let text = format!("{}{}", failed.out, failed.said);
    let line = text.split('`').find(|part| part.starts_with("orrery settle --done "));
    let line = line.with_context(|| text.clone())?;
    let words = std::process::Command::new("sh")
        .args(["-c", &format!("orrery() {{ printf '%s\\n' \"$#\" \"$3\"; }}; {line}")])
        .output()?;
    let words = String::from_utf8(words.stdout)?;
    let id = unknown(&project, 2)?[0]["resource"].as_str().context("no id")?.to_owned();
    ensure!(words == format!("3\n{id}\n"), "{line}: {words}");
    Ok(())
}

/// On a server: a plan shows the resource as unknown, with both choices, and not as due.
fn plans_and_status_of_servers_tell_them() -> Result<()> {
    let mut world = World::new(false)?;
    world.settle("")?;
    world.done("orrery new model")?;
    let root = world.directory.path().canonicalize()?;
    let command = format!("sh -c 'echo run >> {}/journal; sleep 60'", root.display());
    let model = format!(
        "import exec\nhost = std::Host(name=\"localhost\", os=std::linux)\n\
         exec::Run(host=host, command=\"{command}\", once=true)\n"
    );
    std::fs::write(root.join("model/main.cf"), model)?;
    world.done("cd model && orrery export --release")?;
    until("the command runs", Duration::from_secs(30), || Ok(root.join("journal").exists()))?;
    world.pause(Duration::ZERO)?;
    until("its outcome is unknown", Duration::from_secs(30), || {
        Ok(world.run("cd model && orrery settle")?.1 == 2)
    })?;
    let pending = |line: &str| -> Result<String> {
        let (text, code) = world.run(&format!("cd model && {line}"))?;
        ensure!(code == 2, "{line}: {code}\n{text}");
        Ok(text)
    };
    until("the resource failed", Duration::from_secs(30), || {
        Ok(pending("orrery status")?.contains("failed"))
    })?;
    let plan = pending("orrery plan")?;
    for words in ["outcome unknown", "`--done` counts it as done", "`--again` runs it again"] {
        ensure!(plan.contains(words), "{words:?} is missing\n{plan}");
    }
    ensure!(!plan.contains("run the command"), "{plan}");
    let json = |line: &str| -> Result<Value> {
        Ok(serde_json::from_str(&pending(&format!("{line} 2>/dev/null"))?)?)
    };
    let plan = json("orrery plan --json")?;
    ensure!(plan["unknown_effects"].as_array().is_some_and(|all| all.len() == 1), "{plan}");
    let status = json("orrery status --json")?;
    ensure!(status["unknown_effects"].as_array().is_some_and(|all| all.len() == 1), "{status}");
    let problem = &status["problems"][0];
    ensure!(problem["unknown_effect"]["started"].is_string(), "{status}");
    world.done("cd model && orrery settle --again exec::Run")?;
    ensure!(!pending("orrery plan")?.contains("outcome unknown"), "it was decided");
    let journal = std::fs::read_to_string(root.join("journal"))?;
    ensure!(journal.lines().count() <= 2, "{journal}");
    Ok(())
}

fn effects_of_dropped_resources() -> Result<()> {
    let project = cut_off()?;
    project.expect(2, &["deploy"])?;
    project.write_model("Folder(host=host, path=\"{{ root }}/other\")\n")?;
    project.expect(0, &["deploy"])?;
    ensure!(unknown(&project, 2)?.len() == 1, "a person has to decide all the same");
    let settled = project.expect(0, &["settle", "--done", "exec::Run"])?;
    settled.says(&["in no version any more: effect dropped"])?;
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
