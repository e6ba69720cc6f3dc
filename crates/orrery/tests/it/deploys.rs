//! Promises of `deploy`, `plan`, `repair` and `watch`, with the real binary and real files.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use rustix::process::Signal;
use serde_json::Value;

use crate::scratch_project::{Ran, Running, ScratchProject, until};

/// Time limit for short operations on a busy machine.
const SOON: Duration = Duration::from_secs(30);

type Check = fn() -> Result<()>;

pub(crate) fn trials() -> Vec<Trial> {
    let checks: [(&str, Check); 17] = [
        ("the first steps", first_steps),
        ("examples work for any user and group", examples_work_for_anybody),
        ("a plan tells what drifted and where it comes from", plan_tells_drift),
        ("a dry run is a plan", dry_run_is_plan),
        ("repair mends without a model", repair_mends),
        ("reports are JSON", reports_are_json),
        ("a selection touches nothing else", selection_touches_nothing_else),
        ("a reload happens once per change", reload_once),
        ("a reload outlives a kill", reload_outlives_kill),
        ("a resource without event subscription gets none", no_events),
        ("an interrupt ends running handlers, and nothing is lost", interrupt),
        ("a command that does not heed an interrupt is killed", stubborn_command),
        ("a second interrupt ends at once", second_interrupt),
        ("two deploys at once", two_at_once),
        ("watch heals what is altered", watch_heals),
        ("watch tries again", watch_retries),
        ("watch ends while a handler runs", watch_ends),
    ];
    let trial = |(name, check): (&str, Check)| {
        Trial::test(format!("deploys: {name}"), move || {
            Ok(check().map_err(|error| format!("{error:#}"))?)
        })
    };
    checks.into_iter().map(trial).collect()
}

/// The ids in a report.
pub(crate) fn ids(report: &Value) -> Vec<&str> {
    let resources = report["resources"].as_array().map(Vec::as_slice).unwrap_or_default();
    resources.iter().filter_map(|resource| resource["id"].as_str()).collect()
}

fn first_steps() -> Result<()> {
    let hello = ScratchProject::example("hello")?;
    let ran = hello.expect(0, &["deploy"])?;
    ran.says(&["version 1: 4 resources", "deployed: 4 created"])?;
    ensure!(hello.read("index.html")?.starts_with("<h1>Hello</h1>"));
    ensure!(fs::read_link(hello.managed("home.html"))?.as_os_str() == "index.html");
    let again = hello.expect(0, &["deploy"])?;
    again.says(&["nothing to change: 4 resources unchanged"])?;
    ensure!(!again.said.contains("version"), "a version was made: {}", again.said);
    hello.expect(0, &["plan"])?.says(&["nothing to change"])?;

    fs::write(hello.managed("index.html"), "oops\n")?;
    let about = fs::metadata(hello.managed("about.html"))?.modified()?;
    let mended = hello.expect(0, &["deploy"])?;
    mended.says(&["updated std::File[localhost,path=", "index.html] (content)"])?;
    mended.says(&["deployed: 1 updated, 3 unchanged"])?;
    ensure!(hello.read("index.html")?.starts_with("<h1>Hello</h1>"));
    ensure!(fs::metadata(hello.managed("about.html"))?.modified()? == about);
    Ok(())
}

/// As in a container: `USER` is empty, and the user has no group of the same name.
fn examples_work_for_anybody() -> Result<()> {
    for name in ["hello", "many-files", "reload"] {
        let mut example = ScratchProject::example(name)?;
        for variable in ["USER", "GROUP", "LOGNAME"] {
            example.set(variable, "");
        }
        example.expect(0, &["deploy"])?.says(&["deployed: "])?;
        example.expect(0, &["plan"]).with_context(|| name.to_owned())?;
    }
    Ok(())
}

fn plan_tells_drift() -> Result<()> {
    let hello = ScratchProject::example("hello")?;
    hello.expect(0, &["deploy"])?;
    fs::write(hello.managed("about.html"), "<h1>About</h1>\n<p>Tampered.</p>\n")?;
    let plan = hello.expect(2, &["plan"])?;
    let path = hello.managed("about.html").canonicalize()?;
    let wanted = format!(
        "~ std::File[localhost,path={}] (drift, main.cf:46:5; risk: medium)\n    content:\n      @@ -1,2 +1,2 @@\n       \
         <h1>About</h1>\n      -<p>Tampered.</p>\n      +<p>Nothing here yet.</p>\n\n",
        path.display()
    );
    ensure!(plan.out == wanted, "{}\nand not\n{wanted}", plan.out);
    plan.says(&["plan: 1 to update, 3 unchanged; risk: medium"])?;
    ensure!(hello.read("about.html")?.contains("Tampered"), "a plan changes nothing");
    let report = hello.json(2, &["plan"])?;
    ensure!(ids(&report).len() == 1 && report["counts"]["update"] == 1, "{report}");
    ensure!(report["resources"][0]["cause"] == "drift", "{report}");
    ensure!(report["resources"][0]["source"] == "main.cf:46:5", "{report}");
    let change = &report["resources"][0]["attributes"][0];
    ensure!(change["current"] == "<h1>About</h1>\n<p>Tampered.</p>\n", "{report}");

    // A new resource, a changed one, and one that is no longer in the model.
    let file = |name: &str, content: &str| {
        format!("Text(host=host, path=\"{{{{ root }}}}/{name}\", content=\"{content}\")\n")
    };
    let project = ScratchProject::new(&(file("a", "1") + &file("b", "1")))?;
    project.expect(0, &["deploy"])?;
    project.write_model(&(file("a", "2") + &file("c", "1")))?;
    let plan = project.expect(2, &["plan"])?;
    for words in ["/a] (changed in the model, ", "/c] (new, ", "/b] (no longer in the model"] {
        ensure!(plan.out.contains(words), "{words:?} is not in {}", plan.out);
    }
    plan.says(&["1 to create, 1 to update"])?;
    project.expect(0, &["deploy"])?.says(&["1 created, 1 updated"])?;
    ensure!(project.read("b")? == "1", "what is not wanted any more is left as it is");
    project.expect(0, &["plan"])?.says(&["nothing to change"])
}

fn dry_run_is_plan() -> Result<()> {
    let hello = ScratchProject::example("hello")?;
    let report = hello.json(2, &["deploy", "--dry-run"])?;
    ensure!(report == hello.json(2, &["plan"])?, "{report}");
    ensure!(report["counts"]["create"] == 4, "{report}");
    ensure!(!hello.managed("").exists(), "a dry run changes nothing");
    ensure!(fs::read_dir(hello.data())?.next().is_none(), "a dry run keeps nothing");
    Ok(())
}

fn repair_mends() -> Result<()> {
    let project = ScratchProject::new(
        r#"for name in ["a", "b"]:
    Text(host=host, path="{{ root }}/{{ name }}", content="wanted\n")
end
"#,
    )?;
    let ran = project.expect(1, &["repair"])?;
    ran.says(&["error: "])?;
    project.expect(0, &["deploy"])?;
    // The model is not read.
    project.write_model("this is no model")?;
    project.expect(0, &["repair"])?.says(&["nothing to change: 2 resources unchanged"])?;
    fs::remove_file(project.managed("a"))?;
    fs::write(project.managed("b"), "altered\n")?;
    let ran = project.expect(0, &["repair", "--filter", "/a]"])?;
    ran.says(&["deployed: 1 created in"])?;
    ensure!(project.read("b")? == "altered\n");
    project.expect(0, &["repair"])?.says(&["1 updated, 1 unchanged"])?;
    ensure!(project.read("a")? == "wanted\n" && project.read("b")? == "wanted\n");
    Ok(())
}

fn reports_are_json() -> Result<()> {
    let project = ScratchProject::new(
        r#"Text(host=host, path="{{ root }}/a", content="1")
Text(host=host, path="{{ root }}/missing/b", content="1")
"#,
    )?;
    let report = project.json(2, &["deploy"])?;
    ensure!(report["version"] == 1 && report["interrupted"] == false, "{report}");
    ensure!(report["tally"]["created"] == 1 && report["tally"]["failed"] == 1, "{report}");
    let failed = &report["resources"].as_array().context("a list")?;
    let failed = failed.iter().find(|one| one["status"] == "failed").context("a failure")?;
    let text = |name: &str| failed[name].as_str().unwrap_or_default().to_owned();
    ensure!(text("message").contains("its directory does not exist"), "{report}");
    ensure!(text("hint").contains("std::Directory"), "{report}");
    fs::create_dir(project.managed("missing"))?;
    let report = project.json(0, &["repair"])?;
    ensure!(report["tally"]["created"] == 1, "{report}");
    ensure!(ids(&report).len() == 1, "only what is worth telling: {report}");
    Ok(())
}

const TWO_AGENTS: &str = r#"
for name in ["one", "two"]:
    machine = std::Host(name=name, os=std::linux)
    base = Folder(host=machine, path="{{ root }}/{{ name }}")
    for file in ["a", "b"]:
        Text(host=machine, path="{{ root }}/{{ name }}/{{ file }}", content="x", requires=base)
    end
end
"#;

fn selection_touches_nothing_else() -> Result<()> {
    let project = ScratchProject::new(TWO_AGENTS)?;
    project.declare_local(&["one", "two"])?;
    // On the first deploy, too: everything else is new and would be due.
    project.expect(0, &["deploy", "--agent", "one"])?.says(&["deployed: 3 created in"])?;
    ensure!(project.managed("one/a").exists() && !project.managed("two").exists());
    let ran = project.expect(0, &["deploy", "--agent", "one"])?;
    ran.says(&["nothing to change: 3 resources unchanged"])?;
    let plan = project.json(2, &["plan", "--agent", "two"])?;
    ensure!(ids(&plan).len() == 3, "{plan}");
    ensure!(ids(&plan).iter().all(|id| id.contains("[two,")), "{plan}");
    project.expect(0, &["plan", "--agent", "one"])?;
    project.expect(0, &["deploy", "--filter", "std::Directory[two*"])?.says(&["1 created"])?;
    project.expect(0, &["deploy", "--filter", "/two/a]"])?.says(&["1 created"])?;
    ensure!(project.managed("two/a").exists() && !project.managed("two/b").exists());
    project.expect(0, &["deploy"])?.says(&["deployed: 1 created, 5 unchanged"])?;
    project.expect(1, &["deploy", "--filter", "no such thing"])?.says(&["no resource selected"])
}

fn reload_once() -> Result<()> {
    let mut daemon = ScratchProject::example("reload")?;
    let plan = daemon.json(2, &["plan"])?;
    ensure!(plan["counts"]["create"] == 2, "{plan}");
    daemon.expect(0, &["deploy"])?;
    let log = "started\nreloaded with port = 8080\n";
    ensure!(daemon.read("daemon.log")? == log, "{}", daemon.read("daemon.log")?);
    daemon.expect(0, &["deploy"])?.says(&["nothing to change"])?;
    ensure!(daemon.read("daemon.log")? == log);
    daemon.set("PORT", "9090");
    let plan = daemon.expect(2, &["plan"])?;
    ensure!(plan.out.contains("(dependency, ") && plan.out.contains("reload"), "{}", plan.out);
    daemon.expect(0, &["deploy"])?.says(&["deployed: 2 updated, 2 unchanged"])?;
    let log = format!("{log}reloaded with port = 9090\n");
    ensure!(daemon.read("daemon.log")? == log, "{}", daemon.read("daemon.log")?);
    daemon.expect(0, &["plan"])?;
    daemon.expect(0, &["deploy"])?.says(&["nothing to change"])?;
    daemon.expect(0, &["repair"])?.says(&["nothing to change"])?;
    ensure!(daemon.read("daemon.log")? == log);
    // Drift counts as a change.
    fs::write(daemon.managed("daemon.conf"), "port = 1\n")?;
    daemon.expect(0, &["repair"])?.says(&["2 updated"])?;
    ensure!(daemon.read("daemon.log")? == format!("{log}reloaded with port = 9090\n"));
    Ok(())
}

/// The handler is killed after the change: the dependent must still be notified.
fn reload_outlives_kill() -> Result<()> {
    let mut project = ScratchProject::new(
        r#"
config = exec::Run(host=host, command="sh -c 'cp wanted config; test ! -e hang || exec sleep 20'",
    cwd=root, unless="cmp -s wanted config")
middle = std::testing::ScriptedResource(agentname="localhost", name="middle", requires=config,
    delay_ms=int(std::get_env("DELAY", "0")))
exec::Run(host=host, command="sh -c 'echo reloaded >> log'", cwd=root, reload_only=true,
    requires=[config, middle])
"#,
    )?;
    fs::write(project.managed("wanted"), "1\n")?;
    project.expect(0, &["deploy"])?;
    ensure!(project.read("log")? == "reloaded\n", "the first change is one, too");
    let kill = |project: &ScratchProject, content: &str| -> Result<()> {
        let running = project.start(&["deploy"])?;
        until("the file changes", SOON, || Ok(project.read("config")? == content))?;
        std::thread::sleep(Duration::from_millis(300));
        running.signal(Signal::KILL)?;
        ensure!(running.wait()?.code.is_none());
        Ok(())
    };
    // In the middle of the change.
    fs::write(project.managed("hang"), "")?;
    fs::write(project.managed("wanted"), "2\n")?;
    kill(&project, "2\n")?;
    fs::remove_file(project.managed("hang"))?;
    let status = project.expect(2, &["status"])?.out;
    ensure!(status.contains("the last deploy was interrupted"), "{status}");
    let why = project.expect(0, &["why", "cp wanted"])?.out;
    ensure!(why.contains("its handler was interrupted; the next deploy verifies it"), "{why}");
    let plan = project.json(2, &["plan"])?;
    ensure!(ids(&plan).iter().any(|id| id.contains("reloaded")), "{plan}");
    project.expect(0, &["deploy"])?.says(&["deployed: 1 updated, 2 unchanged"])?;
    ensure!(project.read("log")? == "reloaded\n".repeat(2), "{}", project.read("log")?);
    let log = project.expect(0, &["log", "cp wanted"])?.out;
    ensure!(log.contains("interrupted: the engine ended first"), "{log}");
    // Between the recorded change and the reload.
    project.set("DELAY", "60000");
    fs::write(project.managed("wanted"), "3\n")?;
    kill(&project, "3\n")?;
    project.set("DELAY", "0");
    project.expect(0, &["deploy"])?;
    ensure!(project.read("log")? == "reloaded\n".repeat(3), "{}", project.read("log")?);
    project.expect(0, &["deploy"])?.says(&["nothing to change"])
}

fn no_events() -> Result<()> {
    let mut project = ScratchProject::new(
        r#"
config = Text(host=host, path="{{ root }}/config", content=std::get_env("TEXT"), reload=true)
exec::Run(host=host, command="touch {{ root }}/told", reload_only=true, requires=config)
exec::Run(host=host, command="touch {{ root }}/deaf", reload_only=true, requires=config,
    receive_events=false)
"#,
    )?;
    project.set("TEXT", "1");
    let plan = project.json(2, &["plan"])?;
    ensure!(ids(&plan).len() == 2, "{plan}");
    project.expect(0, &["deploy"])?.says(&["deployed: 1 created, 1 updated, 1 unchanged"])?;
    ensure!(project.managed("told").exists() && !project.managed("deaf").exists());
    fs::remove_file(project.managed("told"))?;
    project.expect(0, &["deploy"])?.says(&["nothing to change"])?;
    ensure!(!project.managed("told").exists(), "once is enough");
    project.set("TEXT", "2");
    let plan = project.json(2, &["plan"])?;
    ensure!(ids(&plan).len() == 2, "{plan}");
    project.expect(0, &["deploy"])?.says(&["deployed: 2 updated, 1 unchanged"])?;
    ensure!(project.managed("told").exists() && !project.managed("deaf").exists());
    Ok(())
}

/// A fast resource, a slow one, and one after it.
const SLOW: &str = r#"
quick = Text(host=host, path="{{ root }}/quick", content="x")
slow = std::testing::ScriptedResource(agentname="localhost", name="slow", outcome="changed",
    delay_ms=int(std::get_env("DELAY", "60000")), requires=quick)
Text(host=host, path="{{ root }}/last", content="x", requires=slow)
"#;

fn start_slow(project: &ScratchProject, arguments: &[&str]) -> Result<Running> {
    let running = project.start(arguments)?;
    until("the first file is made", SOON, || Ok(project.managed("quick").exists()))?;
    std::thread::sleep(Duration::from_millis(200));
    Ok(running)
}

fn interrupt() -> Result<()> {
    let mut project = ScratchProject::new(SLOW)?;
    let running = start_slow(&project, &["deploy"])?;
    running.signal(Signal::INT)?;
    let ran = running.wait()?;
    ensure!(ran.code == Some(1), "{:?}: {}", ran.code, ran.said);
    ran.says(&["stopping: ", "stopped: 1 created"])?;
    ensure!(!project.managed("last").exists());
    // Completed work is recorded, and the next deploy does the rest.
    let status = project.json(0, &["resources"])?;
    let text = status.to_string();
    ensure!(text.contains("/quick]\"") && text.contains("\"deployed\""), "{text}");
    project.set("DELAY", "0");
    project.expect(0, &["deploy"])?.says(&["1 created, 1 updated, 1 unchanged"])?;
    ensure!(project.managed("last").exists());
    Ok(())
}

/// A command that ignores signals, and ends with the managed directory.
const STUBBORN: &str = r#"
exec::Run(host=host, cwd=root,
    command="sh -c 'trap : INT TERM; touch quick; while test -e quick; do sleep 0.1; done'")
"#;

fn stubborn_command() -> Result<()> {
    let project = ScratchProject::new(STUBBORN)?;
    let running = start_slow(&project, &["deploy"])?;
    let started = std::time::Instant::now();
    running.signal(Signal::INT)?;
    let ran = running.wait()?;
    ensure!(ran.code == Some(1), "{:?}: {}", ran.code, ran.said);
    ensure!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    ran.says(&["stopped: 1 stopped in"])?;
    let log = project.expect(0, &["log", "exec::Run"])?.out;
    ensure!(log.contains("cancelled"), "{log}");
    Ok(())
}

fn second_interrupt() -> Result<()> {
    // A command that ignores signals gets some time; a second Ctrl-C does not wait.
    let project = ScratchProject::new(STUBBORN)?;
    let mut running = start_slow(&project, &["deploy"])?;
    running.signal(Signal::INT)?;
    std::thread::sleep(Duration::from_millis(300));
    ensure!(!running.has_ended()?, "the command was not waited for");
    running.signal(Signal::INT)?;
    let started = std::time::Instant::now();
    let code = running.wait()?.code;
    ensure!(code == Some(130), "{code:?}");
    ensure!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    project.write_model("Text(host=host, path=\"{{ root }}/a\", content=\"x\")\n")?;
    project.expect(0, &["deploy"])?.says(&["1 created"])
}

fn two_at_once() -> Result<()> {
    let mut project = ScratchProject::new(SLOW)?;
    let first = start_slow(&project, &["deploy"])?;
    for command in ["deploy", "repair", "watch"] {
        let second = project.expect(1, &[command])?;
        second.says(&["error: ", "`orrery deploy`", &format!("process {} ", first.id())])?;
    }
    // Reading is allowed.
    project.set("DELAY", "0");
    project.expect(2, &["plan"])?;
    let status = project.expect(2, &["status"])?;
    ensure!(status.out.contains("is running"), "{}", status.out);
    first.signal(Signal::TERM)?;
    ensure!(first.wait()?.code == Some(1));
    project.expect(0, &["deploy"]).map(drop)
}

fn stopped(running: Running, signal: Signal) -> Result<Ran> {
    running.signal(signal)?;
    let ran = running.wait()?;
    ensure!(ran.code == Some(0), "{:?}: {}", ran.code, ran.said);
    ran.says(&["stopped: "])?;
    Ok(ran)
}

fn watch_heals() -> Result<()> {
    let hello = ScratchProject::example("hello")?;
    let mut watch = hello.start(&["watch"])?;
    until("the site is made", SOON, || Ok(hello.managed("home.html").exists()))?;
    let mut longest = Duration::ZERO;
    for round in 0..5 {
        std::thread::sleep(Duration::from_millis(300));
        let file = hello.managed(if round % 2 == 0 { "index.html" } else { "about.html" });
        let wanted = fs::read(&file)?;
        if round < 3 {
            fs::write(&file, "oops\n")?;
        } else {
            fs::remove_file(&file)?;
        }
        let is_healed = || Ok(fs::read(&file).is_ok_and(|found| found == wanted));
        longest = longest.max(until("the file is mended", Duration::from_secs(3), is_healed)?);
        ensure!(!watch.has_ended()?);
    }
    println!("an altered file was mended after {} ms at most", longest.as_millis());
    // A directory that reappears is watched again.
    fs::remove_dir_all(hello.managed(""))?;
    until("the site is made again", SOON, || Ok(hello.managed("home.html").exists()))?;
    std::thread::sleep(Duration::from_secs(1));
    fs::remove_file(hello.managed("home.html"))?;
    until("the link is mended", SOON, || Ok(hello.managed("home.html").exists()))?;
    let ran = stopped(watch, Signal::TERM)?;
    ran.says(&["watching 4 resources", "changes made"])?;
    hello.expect(0, &["deploy"])?.says(&["nothing to change"])
}

fn watch_retries() -> Result<()> {
    let project = ScratchProject::new(
        r#"Text(host=host, path="{{ root }}/later/a", content="x")
"#,
    )?;
    let watch = project.start(&["watch", "--deploy-interval", "1"])?;
    until("the first attempt is recorded", SOON, || {
        let ran = project.run(&["status"])?;
        Ok(ran.out.contains("failed"))
    })?;
    fs::create_dir(project.managed("later"))?;
    until("it is retried", SOON, || Ok(project.managed("later/a").exists()))?;
    let ran = stopped(watch, Signal::INT)?;
    ran.says(&["its directory does not exist"])?;
    let status = project.expect(0, &["status"])?;
    ensure!(!status.out.contains("failed"), "{}", status.out);
    Ok(())
}

fn watch_ends() -> Result<()> {
    let mut project = ScratchProject::new(SLOW)?;
    let watch = start_slow(&project, &["watch"])?;
    let started = std::time::Instant::now();
    stopped(watch, Signal::TERM)?;
    ensure!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    project.set("DELAY", "0");
    project.expect(0, &["deploy"])?.says(&["1 created, 1 updated, 1 unchanged"])
}
