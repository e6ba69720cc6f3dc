//! Python handlers of modules with the real binary: correct and misbehaving ones.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use rustix::process::Signal;
use serde_json::Value;

use crate::scratch_project::{ScratchProject, until};

type Check = fn() -> Result<()>;

const MODULE: [(&str, &str); 3] = [
    ("module.yml", include_str!("misbehaving/module.yml")),
    ("model/_init.cf", include_str!("misbehaving/model/_init.cf")),
    ("plugins/__init__.py", include_str!("misbehaving/plugins/__init__.py")),
];

pub(crate) fn trials() -> Vec<Trial> {
    let checks: [(&str, Check); 8] = [
        ("handlers of a module do their work", good_handlers),
        ("repair needs neither model nor modules", repair_without_modules),
        ("what was created before a failure is removed again", created_before_a_failure),
        ("each misbehaving handler fails alone", rogues),
        ("a killed process of one operation fails it", killed_alone),
        ("a killed process of several costs none of them", killed_together),
        ("no process outlives a killed deploy", killed_core),
        ("an interrupt ends handlers of modules", interrupted),
    ];
    let trial = |(name, check): (&str, Check)| {
        Trial::test(format!("hosts: {name}"), move || {
            Ok(check().map_err(|error| format!("{error:#}"))?)
        })
    };
    checks.into_iter().map(trial).collect()
}

/// A project with the test module, and resources on separate agents.
fn project(things: &[&str]) -> Result<ScratchProject> {
    let project = ScratchProject::new(&model(things))?;
    for (name, text) in MODULE {
        project.write(&format!("libs/misbehaving/{name}"), text)?;
    }
    Ok(project)
}

fn model(modes: &[&str]) -> String {
    let mut model = "import misbehaving\n".to_owned();
    for (at, mode) in modes.iter().enumerate() {
        model.push_str(&format!(
            "misbehaving::Thing(name=\"{mode}{at}\", agent=\"agent{at}\", mode=\"{mode}\", \
             path=\"{{{{ root }}}}/{mode}{at}\", text=\"{mode}\")\n"
        ));
    }
    model
}

/// Report about the resource of this name.
fn thing_report<'r>(report: &'r Value, name: &str) -> Result<&'r Value> {
    let resources = report["resources"].as_array().context("a list")?;
    let id = |one: &&Value| one["id"].as_str().is_some_and(|id| id.contains(&format!("={name}]")));
    resources.iter().find(id).with_context(|| format!("{name} is not in {report}"))
}

fn good_handlers() -> Result<()> {
    let project = project(&["good", "skip", "fact", "child"])?;
    let plan = project.json(2, &["plan"])?;
    ensure!(thing_report(&plan, "good0")?["change"] == "created", "{plan}");
    ensure!(!project.managed("good0").exists());
    let report = project.json(2, &["deploy"])?;
    ensure!(thing_report(&report, "good0")?["status"] == "deployed", "{report}");
    ensure!(thing_report(&report, "skip1")?["status"] == "skipped", "{report}");
    ensure!(thing_report(&report, "child3")?["status"] == "deployed", "{report}");
    ensure!(project.read("good0")? == "good");
    project.expect(0, &["facts", "fact2"])?.shows(&["length", "4"])?;
    fs::write(project.managed("good0"), "altered")?;
    project.expect(2, &["plan"])?.shows(&["~ misbehaving::Thing[agent0,name=good0]", "drift"])?;
    project
        .expect(2, &["deploy"])?
        .says(&["updated misbehaving::Thing[agent0,name=good0] (text)"])?;
    ensure!(project.read("good0")? == "good");
    let log = project.expect(0, &["log", "good0", "-v"])?;
    log.shows(&["begins good", "Calling update_resource"])
}

fn repair_without_modules() -> Result<()> {
    let project = project(&["good"])?;
    project.expect(0, &["deploy"])?;
    project.write("libs/misbehaving/plugins/__init__.py", "this is not Python")?;
    project.write_model("this is no model")?;
    fs::write(project.managed("good0"), "altered")?;
    project.expect(0, &["repair"])?.says(&["1 updated"])?;
    ensure!(project.read("good0")? == "good");
    // Nor the interpreter of the deploy.
    let code = project.data().join("code");
    let set = code.join(fs::read_to_string(code.join("current"))?).join("set.json");
    let mut kept: Value = serde_json::from_str(&fs::read_to_string(&set)?)?;
    kept["program"] = "/nowhere/bin/python".into();
    fs::write(&set, kept.to_string())?;
    fs::write(project.managed("good0"), "altered")?;
    project.expect(0, &["repair"])?.says(&["1 updated"])?;
    fs::remove_file(&set)?;
    project.expect(1, &["repair"])?.says(&["the code of this version is missing"])?;
    Ok(())
}

fn created_before_a_failure() -> Result<()> {
    let project = project(&["halfway"])?;
    let failed = project.expect(2, &["deploy"])?;
    failed.says(&["created, and then it failed", "1 failed"])?;
    ensure!(project.read("halfway0")? == "halfway");
    // The next deploy finds it in place, still as created.
    project.expect(0, &["deploy"])?;
    project.expect(0, &["destroy", "--yes"])?.says(&["1 removed", "nothing of test is left"])?;
    ensure!(!project.managed("halfway0").exists());
    // Also without another deploy.
    project.expect(2, &["deploy"])?;
    project.expect(0, &["destroy", "--yes"])?.says(&["1 removed"])?;
    ensure!(!project.managed("halfway0").exists());
    Ok(())
}

fn rogues() -> Result<()> {
    let modes = ["good", "kill", "exit", "never", "memory", "print", "log", "close", "garbage"];
    let project = project(&[&modes[..], &["good", "good"]].concat())?;
    let started = Instant::now();
    let report = project.json(2, &["deploy", "--timeout", "15", "--host-memory", "600"])?;
    ensure!(started.elapsed() < Duration::from_secs(55), "it took {:?}", started.elapsed());
    // A run that finished before another handler killed its process has nothing to change, and is
    // not reported.
    for (mode, at) in ["good", "print", "log", "good", "good"].into_iter().zip([0, 5, 6, 9, 10]) {
        ensure!(project.read(&format!("{mode}{at}"))? == mode);
    }
    for (name, reason) in [
        ("kill1", "it was ended by the signal 9"),
        ("exit2", "it ended with the exit status 7"),
        ("never3", "the deadline has passed"),
        ("memory4", "MemoryError"),
        ("close7", "the process of its handler was lost"),
        ("garbage8", "a message is not"),
    ] {
        let status = thing_report(&report, name)?;
        ensure!(status["status"] == "failed", "{status}");
        let message = status["message"].as_str().unwrap_or_default();
        ensure!(message.contains(reason), "{name}: {message}");
    }
    ensure!(report["tally"]["failed"] == 6 && report["tally"]["deployed"] == 5, "{report}");
    let log = project.expect(0, &["log", "exit2"])?;
    log.shows(&["begins exit", "the last words"])
}

/// Process of a handler that writes its id.
fn pid_of(project: &ScratchProject, name: &str) -> Result<u32> {
    let file = project.managed(&format!("{name}.pid"));
    until("the handler runs", Duration::from_secs(30), || {
        Ok(fs::read_to_string(&file).is_ok_and(|text| !text.is_empty()))
    })?;
    Ok(fs::read_to_string(&file)?.parse()?)
}

fn kill(pid: u32) -> Result<()> {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    Ok(rustix::process::kill_process(pid.context("a number")?, Signal::KILL)?)
}

fn is_gone(pid: u32) -> Result<bool> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    Ok(stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z')))
}

fn killed_alone() -> Result<()> {
    let project = project(&["wait"])?;
    let running = project.start(&["deploy"])?;
    kill(pid_of(&project, "wait0")?)?;
    let ran = running.wait()?;
    ensure!(ran.code == Some(2), "{}", ran.said);
    ran.says(&["failed misbehaving::Thing[agent0,name=wait0]", "it was ended by the signal 9"])?;
    fs::write(project.managed("wait0.go"), "")?;
    project.expect(0, &["deploy"])?.says(&["1 created"])
}

fn killed_together() -> Result<()> {
    // More agents than processes: each process has several.
    let project = project(&["wait"; 12])?;
    let running = project.start(&["deploy"])?;
    let pids = (0..12).map(|at| pid_of(&project, &format!("wait{at}")));
    let mut pids = pids.collect::<Result<Vec<u32>>>()?;
    pids.sort_unstable();
    pids.dedup();
    ensure!(pids.len() <= 4, "{} processes for 12 agents", pids.len());
    pids.into_iter().try_for_each(kill)?;
    let ran = running.wait()?;
    ensure!(ran.code == Some(0), "{}", ran.said);
    ran.says(&["12 created"])
}

fn killed_core() -> Result<()> {
    let project = project(&["never"])?;
    let running = project.start(&["deploy"])?;
    let pid = pid_of(&project, "never0")?;
    running.signal(Signal::KILL)?;
    drop(running);
    until("the host ends with its core", Duration::from_secs(10), || is_gone(pid)).map(drop)
}

fn interrupted() -> Result<()> {
    let project = project(&["never", "good"])?;
    let running = project.start(&["deploy"])?;
    let pid = pid_of(&project, "never0")?;
    // Its host starts beside the first one, and must have ended its run before the interrupt.
    until("the other is deployed", Duration::from_secs(30), || {
        Ok(project.read("good1").is_ok_and(|text| text == "good"))
    })?;
    running.signal(Signal::INT)?;
    let ran = running.wait()?;
    ensure!(ran.code == Some(1), "{:?}: {}", ran.code, ran.said);
    until("the host ends", Duration::from_secs(5), || is_gone(pid))?;
    ensure!(project.read("good1")? == "good");
    Ok(())
}
