//! Plans: their content, and consistent causes in `plan`, `why` and `log`.

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;

use crate::scratch_project::ScratchProject;

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, run: fn() -> Result<()>| {
        Trial::test(format!("plans: {name}"), move || {
            Ok(run().map_err(|error| format!("{error:#}"))?)
        })
    };
    vec![
        trial("new resources show their attributes, in the order of dependencies", new_resources),
        trial("thousands of new resources are summarised", folded),
        trial("a command without a condition runs at every deploy", every_deploy),
        trial("a reload has the same words everywhere", reload),
        trial("a parked resource is not green", parked),
    ]
}

fn new_resources() -> Result<()> {
    let project = ScratchProject::new(
        r#"base = Folder(host=host, path="{{ root }}/z")
Text(host=host, path="{{ root }}/a-10", content="ten", requires=base)
Text(host=host, path="{{ root }}/a-2", content="one\ntwo\n", requires=base)
"#,
    )?;
    let out = project.expect(2, &["plan"])?.out;
    let at = |words: &str| out.find(words).with_context(|| format!("{words:?} is missing\n{out}"));
    ensure!(at("+ std::Directory[")? < at("/a-2]")?, "a directory comes before its files\n{out}");
    ensure!(at("/a-2]")? < at("/a-10]")?, "numbers count as numbers\n{out}");
    at("    content: \"ten\"\n")?;
    at("    content:\n      + one\n      + two\n")?;
    at("    mode: 644\n")?;
    ensure!(out.contains("\n\n+ std::File["), "resources stand apart\n{out}");
    let report = project.json(2, &["plan"])?;
    let last = &report["resources"][2];
    ensure!(last["desired"]["content"] == "ten" && last["change"] == "created", "{report}");

    let text: String = (0..45).map(|number| format!("line {number}\\n")).collect();
    project.write_model(&format!(
        "Text(host=host, path=\"{{{{ root }}}}/long\", content=\"{text}\")\n"
    ))?;
    let out = project.expect(2, &["plan"])?.out;
    ensure!(out.contains("+ line 4\n      … 40 more lines\n"), "{out}");
    let out = project.expect(2, &["plan", "--all"])?.out;
    ensure!(out.contains("+ line 44\n") && !out.contains("more lines"), "{out}");
    Ok(())
}

fn folded() -> Result<()> {
    let project = ScratchProject::new(
        r#"for number in std::sequence(3000):
    Text(host=host, path="{{ root }}/{{ number }}", content="x")
end
exec::Run(host=host, command="true")
"#,
    )?;
    let plan = project.expect(2, &["plan"])?;
    plan.says(&["plan: 3,000 to create, 1 to update; risk: medium"])?;
    let lines = plan.out.lines().count();
    ensure!(lines < 40, "{lines} lines\n{}", plan.out);
    for words in ["… 2,997 more std::File on localhost to create", "--all lists them", "exec::Run["]
    {
        ensure!(plan.out.contains(words), "{words:?} is missing\n{}", plan.out);
    }
    let all = project.expect(2, &["plan", "--all"])?.out;
    ensure!(all.lines().filter(|line| line.starts_with("+ std::File[")).count() == 3000);
    let report = project.json(2, &["plan"])?;
    ensure!(report["resources"].as_array().is_some_and(|all| all.len() == 3001));
    project.expect(0, &["deploy"])?.says(&["deployed: 3,000 created, 1 updated in "])
}

fn every_deploy() -> Result<()> {
    let project = ScratchProject::new(
        r#"exec::Run(host=host, command="true")
exec::Run(host=host, command="test -d /", unless="false")
"#,
    )?;
    let deployed = project.expect(0, &["deploy"])?;
    deployed.says(&["ran exec::Run[localhost,command=true]\n"])?;
    let words = "runs at every deploy";
    let without = "it has no `creates`, `unless`, `onlyif` or `once`";
    let plan = project.expect(2, &["plan"])?.out;
    let header = format!("command=true] ({words}, ");
    ensure!(plan.contains(&header) && plan.contains(without), "{plan}");
    ensure!(plan.contains("command=test -d /] (its condition holds, "), "{plan}");
    ensure!(!plan.contains("drift") && !plan.contains("executed"), "{plan}");
    project.expect(0, &["deploy"])?;
    let why = project.expect(0, &["why", "command=true"])?.out;
    ensure!(why.contains(&format!("because   {words}: {without}")), "{why}");
    let log = project.expect(0, &["log", "command=true"])?.out;
    ensure!(log.contains("\n  run the command\n") && !log.contains("executed: "), "{log}");
    Ok(())
}

fn reload() -> Result<()> {
    let model = |content: &str| {
        format!(
            r#"conf = std::ConfigFile(host=host, path="{{{{ root }}}}/conf", owner=std::get_env("USER", "root"), group=std::get_env("GROUP", "root"), mode=644, content="{content}", reload=true)
exec::Run(host=host, command="true", reload_only=true, requires=conf)
"#
        )
    };
    let project = ScratchProject::new(&model("one"))?;
    project.expect(0, &["deploy"])?;
    project.write_model(&model("two"))?;
    let cause = format!("std::ConfigFile[localhost,path={}]", project.managed("conf").display());
    let words = format!("reload, because of {cause}");
    let plan = project.expect(2, &["plan"])?.out;
    ensure!(plan.contains("(dependency, ") && plan.contains(&words), "{plan}");
    ensure!(!plan.contains("null"), "{plan}");
    project.expect(0, &["deploy"])?.says(&["reloaded exec::Run["])?;
    let why = project.expect(0, &["why", "command=true"])?.out;
    ensure!(why.contains(&format!("because   dependency: {cause} changed")), "{why}");
    let log = project.expect(0, &["log", "command=true", "--limit", "1"])?.out;
    ensure!(log.contains(&words) && !log.contains("null"), "{log}");
    Ok(())
}

/// A resource that failed too often is parked, and the commands report it.
fn parked() -> Result<()> {
    let project =
        ScratchProject::new("Text(host=host, path=\"{{ root }}/no/file\", content=\"x\")\n")?;
    project.expect(2, &["deploy"])?;
    let state = project.data().join("state.db");
    let parked = std::process::Command::new("python3")
        .args(["-c", "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('UPDATE state SET parked = 1, attempts = 12'); c.commit()"])
        .arg(&state)
        .status()?;
    ensure!(parked.success(), "the state of the test cannot be made");
    let status = project.expect(2, &["status"])?;
    let words = "parked after 12 attempts: `orrery repair --pending` retries it";
    ensure!(status.out.contains(words), "{}", status.out);
    status.says(&["1 resource: 1 failed, 1 parked"])?;
    let report = project.json(2, &["status"])?;
    ensure!(report["parked"] == 1 && report["done"] == false, "{report}");
    Ok(())
}
