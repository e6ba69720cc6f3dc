//! Project binding: environments are bound to one project, a selection applies to its directory,
//! and unmanaged resources are reported and can be removed.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use rustix::process::Signal;
use serde_json::Value;

use crate::pruning::keys;
use crate::scratch_project::{ScratchProject, until};
use crate::server_commands::{World, fails, prints};

pub(crate) fn trials() -> Vec<Trial> {
    type Check = fn() -> Result<()>;
    let checks: [(&str, Check); 13] = [
        ("a renamed host keeps its files", renamed_host_keeps_its_files),
        ("unmanaged resources are reported", unmanaged_is_reported),
        ("pruning needs consent", pruning_needs_consent),
        ("pruning removes in order and once", pruning_removes),
        ("resources that cannot be purged are reported and stay", unpurgeable_stays),
        ("a plan shows what would be pruned", plan_shows_pruning),
        ("destroying removes everything", destroying_removes_everything),
        ("a destroy that is killed goes on", killed_destroy),
        ("a state belongs to one project", state_belongs_to_one_project),
        ("an environment belongs to one project, sqlite", || environment_belongs(false)),
        ("an environment belongs to one project, postgres", || environment_belongs(true)),
        ("a server prunes and destroys, sqlite", || server_prunes(false)),
        ("a server prunes and destroys, postgres", || server_prunes(true)),
    ];
    let trial = |(name, check): (&str, Check)| {
        Trial::test(format!("project_binding: {name}"), move || {
            Ok(check().map_err(|error| format!("{error:#}"))?)
        })
    };
    checks.into_iter().map(trial).collect()
}

pub(crate) fn file(name: &str) -> String {
    format!("Text(host=host, path=\"{{{{ root }}}}/{name}\", content=\"{name}\")\n")
}

/// A directory with two files, one of which requires the other.
const DIRECTORY: &str = r#"
directory = Folder(host=host, path="{{ root }}/d")
first = Text(host=host, path="{{ root }}/d/first", content="1", requires=directory)
second = Text(host=host, path="{{ root }}/d/second", content="2", requires=[directory, first])
"#;

fn unmanaged_is_reported() -> Result<()> {
    let project = ScratchProject::new(&(file("a") + &file("b")))?;
    let first = project.expect(0, &["deploy"])?;
    ensure!(!first.said.contains("no longer managed"), "{}", first.said);
    project.write_model(&file("a"))?;
    let told = ["1 resource is no longer managed", "/b]", "`orrery deploy --prune` removes it"];
    project.expect(0, &["deploy"])?.says(&told)?;
    // Also the next time, in case the first report was missed.
    project.expect(0, &["deploy"])?.says(&told)?;
    let report = project.json(0, &["deploy"])?;
    ensure!(report["unmanaged"]["total"] == 1, "{report}");
    ensure!(report["unmanaged"]["ids"][0].as_str().is_some_and(|id| id.ends_with("/b]")));
    ensure!(project.read("b")? == "b", "it is left as it is");
    // A resource that returns to the model is managed again.
    project.write_model(&(file("a") + &file("b")))?;
    let again = project.expect(0, &["deploy"])?;
    ensure!(!again.said.contains("no longer managed"), "{}", again.said);
    Ok(())
}

fn pruning_needs_consent() -> Result<()> {
    let project = ScratchProject::new(&(file("a") + DIRECTORY))?;
    project.expect(0, &["deploy"])?;
    project.write_model(&file("a"))?;
    let versions = project.json(0, &["versions"])?;
    let refused = project.expect(1, &["deploy", "--prune"])?;
    refused.says(&["- std::File[", "/d/first]", "plan: 3 to remove", "--yes"])?;
    ensure!(project.read("d/first")? == "1", "nothing was removed");
    ensure!(project.json(0, &["versions"])? == versions, "a version was stored");
    project.expect(1, &["deploy", "--yes"])?.says(&["--prune"])
}

fn pruning_removes() -> Result<()> {
    let project = ScratchProject::new(&(file("a") + DIRECTORY))?;
    project.expect(0, &["deploy"])?;
    // The note of a deploy comes too late for pruning in the same deploy.
    project.write_model(&file("a"))?;
    project.expect(0, &["deploy"])?.says(&["3 resources are no longer managed"])?;
    project.expect(0, &["deploy", "--prune", "--yes"])?.says(&["3 removed"])?;
    // A directory is removed only when it is empty.
    ensure!(!project.managed("d").exists(), "the directory is there");
    ensure!(project.read("a")? == "a");
    let after = project.expect(0, &["deploy"])?;
    ensure!(!after.said.contains("no longer managed"), "{}", after.said);
    let resources = project.json(0, &["resources"])?;
    let count = resources["resources"].as_array().map_or(0, Vec::len);
    ensure!(count == 1, "{resources}");
    // Files of others in it are kept.
    fs::create_dir(project.managed("d"))?;
    fs::write(project.managed("d/first"), "mine")?;
    project.expect(0, &["deploy"])?;
    project.expect(0, &["deploy", "--prune", "--yes"])?.says(&["nothing to change"])?;
    ensure!(project.read("d/first")? == "mine");

    // In one step with a change, and with a file in place of the directory.
    let moved = ScratchProject::new(DIRECTORY)?;
    moved.expect(0, &["deploy"])?;
    moved.write_model(&file("d"))?;
    moved.expect(0, &["deploy", "--prune", "--yes"])?.says(&["1 created", "3 removed"])?;
    ensure!(moved.read("d")? == "d");
    Ok(())
}

/// A path that the model still has on this machine is not removed, even if its agent was renamed.
fn renamed_host_keeps_its_files() -> Result<()> {
    let on = |host: &str, path: &str| {
        format!(
            "here = std::Host(name=\"{host}\", os=std::linux)\n\
             Text(host=here, path=\"{{{{ root }}}}/{path}\", content=\"1\")\n"
        )
    };
    let project = ScratchProject::new(&on("localhost", "kept"))?;
    project.declare_local(&["web1"])?;
    project.expect(0, &["deploy"])?;
    let before = fs::metadata(project.managed("kept"))?.modified()?;
    for (host, path) in [("web1", "kept"), ("web1", "/kept")] {
        project.write_model(&on(host, path))?;
        let ran = project.expect(0, &["deploy", "--prune", "--yes"])?;
        ensure!(!ran.said.contains("1 removed"), "{}", ran.said);
        ensure!(!ran.said.contains("no longer managed"), "{}", ran.said);
        let after = fs::metadata(project.managed("kept"))?.modified()?;
        ensure!(before == after, "the file was written anew");
    }
    Ok(())
}

fn unpurgeable_stays() -> Result<()> {
    let command =
        "exec::Run(host=host, command=\"touch {{ root }}/made\", creates=\"{{ root }}/made\")\n";
    let project = ScratchProject::new(&(file("a") + &file("b") + command))?;
    project.expect(0, &["deploy"])?;
    project.write_model(&file("a"))?;
    project.expect(0, &["deploy"])?.says(&["2 resources are no longer managed", "exec::Run["])?;
    let pruned = project.expect(0, &["deploy", "--prune", "--yes"])?;
    pruned.says(&["exec::Run[", "(left in place: its type cannot be purged)", "1 removed"])?;
    ensure!(!project.managed("b").exists() && project.managed("made").exists());
    // Nothing can be done about it, and it was reported.
    let after = project.expect(0, &["deploy"])?;
    ensure!(!after.said.contains("no longer managed"), "{}", after.said);
    Ok(())
}

fn plan_shows_pruning() -> Result<()> {
    let project = ScratchProject::new(&(file("a") + DIRECTORY))?;
    project.expect(0, &["deploy"])?;
    project.write_model(&file("a"))?;
    let plan = project.expect(2, &["plan", "--prune"])?;
    plan.shows(&["- std::Directory[", "- std::File["])?;
    plan.says(&["3 to remove"])?;
    let report = project.json(2, &["deploy", "--dry-run", "--prune"])?;
    ensure!(report["counts"]["remove"] == 3, "{report}");
    ensure!(project.read("d/first")? == "1", "a plan changes nothing");
    project.expect(0, &["plan"])?.shows(&["/d/first] (no longer in the model"])
}

fn destroying_removes_everything() -> Result<()> {
    let project = ScratchProject::new(&(file("a") + DIRECTORY))?;
    project.expect(1, &["destroy"])?.says(&["nothing was deployed here yet"])?;
    project.expect(0, &["deploy"])?;
    // Unmanaged resources are removed as well.
    project.write_model(DIRECTORY)?;
    project.expect(0, &["deploy"])?;
    project.expect(1, &["destroy"])?.says(&["plan: 4 to remove", "of test", "--yes"])?;
    ensure!(project.read("a")? == "a" && project.read("d/first")? == "1");
    let destroyed = project.expect(0, &["destroy", "--yes"])?;
    destroyed.says(&["4 removed", "destroyed: nothing of test is left"])?;
    ensure!(fs::read_dir(project.managed(""))?.next().is_none(), "something is left");
    project.expect(0, &["destroy", "--yes"])?.says(&["nothing of test was deployed"])?;
    project.expect(0, &["repair"])?;
    project.expect(0, &["deploy"])?.says(&["3 created"])?;
    let report = project.json(0, &["destroy", "--yes"])?;
    ensure!(report["tally"]["removed"] == 3, "{report}");
    // Obstacles are reported and not removed.
    project.expect(0, &["deploy"])?;
    fs::write(project.managed("d/foreign"), "")?;
    let left = project.expect(2, &["destroy", "--yes"])?;
    left.says(&["2 removed", "1 resource is not removed yet", "`orrery destroy` retries"])?;
    fs::remove_file(project.managed("d/foreign"))?;
    project.expect(0, &["destroy", "--yes"])?.says(&["1 removed", "nothing of test is left"])?;
    ensure!(!project.managed("d").exists());
    Ok(())
}

fn killed_destroy() -> Result<()> {
    const DIRECTORIES: usize = 20;
    const FILES: usize = 100;
    let model = format!(
        r#"
for at in std::sequence({DIRECTORIES}):
    directory = Folder(host=host, path="{{{{ root }}}}/{{{{ at }}}}")
    for file in std::sequence({FILES}):
        Text(host=host, path="{{{{ root }}}}/{{{{ at }}}}/{{{{ file }}}}", content="", requires=directory)
    end
end
"#
    );
    let project = ScratchProject::in_memory(&model)?;
    project.expect(0, &["deploy"])?;
    let count = || {
        let mut count = 0;
        for at in 0..DIRECTORIES {
            count += fs::read_dir(project.managed(&at.to_string())).map_or(0, Iterator::count);
        }
        count
    };
    let all = DIRECTORIES * FILES;
    ensure!(count() == all);
    let mut hits = 0;
    for _ in 0..3 {
        let before = count();
        let mut running = project.start(&["destroy", "--yes"])?;
        until("something is removed", Duration::from_secs(60), || {
            Ok(count() < before || running.has_ended()?)
        })?;
        running.signal(Signal::KILL).ok();
        running.wait()?;
        let left = count();
        hits += usize::from(left > 0);
        if left > 0 {
            // Only a command that lists the removals and asks removes the rest.
            project.expect(1, &["repair"])?.says(&["a destroy is unfinished"])?;
            ensure!(count() == left, "a repair removed something");
        }
    }
    ensure!(hits > 0, "no kill came in time");
    project.expect(0, &["destroy", "--yes"])?.says(&["nothing of test is left"])?;
    ensure!(fs::read_dir(project.managed(""))?.next().is_none(), "something is left");
    let resources = project.json(0, &["resources"])?;
    ensure!(resources["resources"].as_array().is_some_and(Vec::is_empty), "{resources}");
    Ok(())
}

fn state_belongs_to_one_project() -> Result<()> {
    let project = ScratchProject::new(&file("a"))?;
    project.expect(0, &["deploy"])?;
    project.write("project.yml", "name: fleet\nmodulepath: libs\n")?;
    project.write_model(&file("b"))?;
    for command in [&["deploy"][..], &["deploy", "--prune", "--yes"], &["plan"], &["destroy"]] {
        let told = project.expect(1, command)?;
        told.says(&["belongs to the project \"test\"", "\"fleet\"", "--rebind"])?;
    }
    ensure!(project.read("a")? == "a" && !project.managed("b").exists());
    project.expect(2, &["plan", "--rebind"])?;
    project.expect(0, &["deploy", "--rebind"])?.says(&["1 resource is no longer managed"])?;
    project.expect(0, &["deploy"])?;
    project.write("project.yml", "name: test\nmodulepath: libs\n")?;
    project.expect(1, &["deploy"])?.says(&["belongs to the project \"fleet\""])?;
    // An empty state is bound to no project.
    project.write("project.yml", "name: fleet\nmodulepath: libs\n")?;
    project.expect(0, &["destroy", "--yes"])?.says(&["2 removed"])?;
    project.write("project.yml", "name: test\nmodulepath: libs\n")?;
    project.expect(0, &["deploy"])?;
    Ok(())
}

/// Writes a project that manages files in a directory beside it, named after the project.
pub(crate) fn write_project(world: &World, name: &str, model: &str) -> Result<()> {
    let root = world.directory.path().canonicalize()?;
    let directory = root.join(name);
    fs::create_dir_all(&directory)?;
    fs::create_dir_all(root.join("managed"))?;
    fs::write(directory.join("project.yml"), format!("name: {name}\nmodulepath: libs\n"))?;
    let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
    let owner = format!("owner=\"{}\", group=\"{}\"", uid.as_raw(), gid.as_raw());
    let model = model
        .replace("Folder(", &format!("std::Directory({owner}, mode=755, "))
        .replace("Text(", &format!("std::File({owner}, mode=644, "));
    let root = root.join("managed");
    let prelude = format!(
        "host = std::Host(name=\"localhost\", os=std::linux)\nroot = \"{}\"\n",
        root.display()
    );
    Ok(fs::write(directory.join("main.cf"), prelude + &model)?)
}

pub(crate) fn json(world: &World, line: &str) -> Result<Value> {
    let text = world.done(&format!("{line} --json 2>/dev/null"))?;
    serde_json::from_str(&text).with_context(|| format!("{line}: {text}"))
}

fn environment_belongs(postgres: bool) -> Result<()> {
    let mut world = World::new(postgres)?;
    world.start(true, "")?;
    let url = world.url()?.to_owned();
    world.done(&format!("orrery login {url} --name admin && orrery project create p"))?;
    write_project(&world, "notes", &(file("a") + &file("b")))?;
    write_project(&world, "fleet", &(file("c") + &file("d")))?;
    prints(
        &world,
        "cd notes && orrery environment create wrongdir --project p --use",
        &["project notes is now deployed to p/wrongdir", ".orrery.toml"],
    )?;
    prints(&world, "cd notes && orrery deploy", &["of p/wrongdir on", "2 created"])?;
    let shown = world.done("cd notes && orrery environment show")?;
    ensure!(shown.contains("bound to") && shown.contains("notes"), "{shown}");
    // Nothing is selected elsewhere.
    fails(&world, "orrery status", &["no project.yml"])
        .or_else(|_| fails(&world, "orrery environment show", &["no environment selected"]))?;
    fails(&world, "cd fleet && orrery export", &["no environment selected", "environment use"])?;
    prints(&world, "cd fleet && orrery plan || test $? = 2", &["using the local project"])?;

    let before = json(&world, "cd notes && orrery version list")?;
    for command in ["deploy", "export", "plan", "deploy --prune --yes", "destroy --yes"] {
        let line = format!("cd fleet && orrery {command} -e p/wrongdir");
        fails(&world, &line, &["p/wrongdir", "bound to project notes", "fleet", "--rebind"])?;
    }
    ensure!(json(&world, "cd notes && orrery version list")? == before, "something was stored");
    prints(&world, "cd notes && orrery status", &["2 resources"])?;
    // An explicit option takes the environment over, and the audit log records it.
    prints(
        &world,
        "cd fleet && orrery deploy -e p/wrongdir --rebind",
        &["taken over from project notes", "2 created", "2 resources are no longer managed"],
    )?;
    prints(&world, "orrery audit list", &["rebound from the project \"notes\""])?;
    fails(&world, "cd notes && orrery deploy", &["bound to project fleet"])?;
    // The takeover can be reverted, with the project.
    let first = before["items"][0]["number"].as_u64().context("a version")?;
    world.done(&format!("cd notes && orrery version roll-back {first}"))?;
    prints(&world, "cd notes && orrery deploy", &["2 resources"])?;
    // A renamed project.
    write_project(&world, "diary", &(file("a") + &file("b")))?;
    world.done("orrery environment update p/wrongdir --model-project diary")?;
    prints(&world, "cd diary && orrery deploy -e p/wrongdir", &["2 resources"])?;
    // Contexts have a default environment outside of projects, and report its use.
    world.done("orrery environment use p/wrongdir")?;
    prints(&world, "orrery environment show", &["not in a project: using p/wrongdir"])?;
    fails(&world, "cd fleet && orrery export", &["no environment selected"])?;
    world.done("cd diary && orrery environment use p/wrongdir")?;
    let shown = world.done("cd diary && orrery environment show")?;
    ensure!(!shown.contains("not in a project"), "{shown}");
    prints(&world, "cd diary && orrery environment use none", &["on this machine"])?;
    ensure!(!world.directory.path().join("diary/.orrery.toml").exists());
    Ok(())
}

fn server_prunes(postgres: bool) -> Result<()> {
    let mut world = World::new(postgres)?;
    world.start(true, "")?;
    let url = world.url()?.to_owned();
    world.done(&format!("orrery login {url} --name admin && orrery project create p"))?;
    write_project(&world, "notes", &(file("a") + DIRECTORY))?;
    world.done("cd notes && orrery environment create live --project p --use")?;
    let managed = world.directory.path().join("managed");
    world.done("cd notes && orrery deploy")?;
    ensure!(managed.join("d/second").exists());
    write_project(&world, "notes", &file("a"))?;
    let told = ["3 resources are no longer managed", "/d/first]", "--prune` removes them"];
    prints(&world, "cd notes && orrery export", &told)?;
    prints(&world, "cd notes && orrery deploy", &told)?;
    let report = json(&world, "cd notes && orrery deploy")?;
    ensure!(report["unmanaged"]["total"] == 3, "{report}");

    let count = |world: &World| -> Result<usize> {
        let all = json(world, "cd notes && orrery version list")?;
        Ok(all["items"].as_array().map_or(0, Vec::len))
    };
    let before = count(&world)?;
    let (plan, code) = world.run("cd notes && orrery plan --prune")?;
    ensure!(code == 2 && plan.contains("3 to remove"), "{code}: {plan}");
    let refused = "cd notes && orrery deploy --prune < /dev/null";
    fails(&world, refused, &["/d/first]", "plan: 3 to remove", "--yes"])?;
    ensure!(count(&world)? == before, "a version is left");
    ensure!(managed.join("d/second").exists());
    prints(&world, "cd notes && orrery deploy --prune --yes", &["3 removed"])?;
    ensure!(!managed.join("d").exists() && managed.join("a").exists());
    let after = world.done("cd notes && orrery deploy")?;
    ensure!(!after.contains("no longer managed"), "{after}");
    fs::create_dir(managed.join("d"))?;
    world.done("cd notes && orrery repair")?;
    ensure!(managed.join("d").exists(), "what others make there is theirs");
    fs::remove_dir(managed.join("d"))?;

    // An obstacle keeps a removal unfinished, and each resource has its true status.
    write_project(&world, "notes", &(file("a") + DIRECTORY))?;
    world.done("cd notes && orrery deploy")?;
    fs::write(managed.join("d/foreign"), "")?;
    write_project(&world, "notes", &file("a"))?;
    let (pruned, code) = world.run("cd notes && orrery deploy --prune --yes")?;
    ensure!(code == 2 && pruned.contains("1 resource is not removed yet"), "{code}: {pruned}");
    let (status, code) = world.run("cd notes && orrery status")?;
    let told = ["2 removed", "1 deployed", "removal failed  std::Directory[", "not empty"];
    ensure!(code == 2 && told.iter().all(|told| status.contains(told)), "{code}: {status}");
    fs::remove_file(managed.join("d/foreign"))?;
    world.done("cd notes && orrery deploy --prune --yes")?;
    ensure!(!managed.join("d").exists());

    write_project(&world, "notes", &(file("a") + DIRECTORY))?;
    world.done("cd notes && orrery deploy")?;
    let protect = |value: &str| {
        world.done(&format!(
            "cd notes && orrery environment setting set protected_environment {value}"
        ))
    };
    protect("true")?;
    fails(&world, "cd notes && orrery destroy --yes", &["protected_environment"])?;
    protect("false")?;
    let refused = "cd notes && orrery destroy < /dev/null";
    fails(&world, refused, &["plan: 4 to remove", "of p/live", "--yes"])?;
    ensure!(managed.join("d/second").exists());
    let told = ["4 removed", "destroyed: nothing of p/live is left"];
    prints(&world, "cd notes && orrery destroy --yes", &told)?;
    ensure!(fs::read_dir(&managed)?.next().is_none(), "something is left");
    prints(&world, "cd notes && orrery destroy --yes", &["nothing of p/live was deployed"])?;
    prints(&world, "cd notes && orrery why /d/first", &["/d/first]: removed", "orrery destroy)"])?;
    let told = ["deployed, purged", "; removed 20", ", by version "];
    prints(&world, "cd notes && orrery log /d/first", &told)?;
    let nothing = json(&world, "cd notes && orrery destroy --yes")?;
    world.done("cd notes && orrery deploy")?;
    let destroyed = json(&world, "cd notes && orrery destroy --yes")?;
    ensure!(destroyed["tally"]["removed"] == 4, "{destroyed}");
    ensure!(keys(&nothing) == keys(&destroyed), "{nothing}\n{destroyed}");
    // An empty environment is bound to no project.
    write_project(&world, "fleet", &file("c"))?;
    prints(&world, "cd fleet && orrery deploy -e p/live", &["1 created"])?;
    Ok(())
}
