//! Adopted resources: those that existed before their first deploy are left in place when they are
//! no longer managed, and manual edits are reported before a removal.

use std::fs;

use anyhow::{Result, ensure};
use libtest_mimic::Trial;

use crate::project_binding::{file, json, write_project};
use crate::scratch_project::ScratchProject;
use crate::server_commands::{World, fails, prints};

pub(crate) fn trials() -> Vec<Trial> {
    type Check = fn() -> Result<()>;
    let checks: [(&str, Check); 8] = [
        ("destroying leaves what existed before", destroying_leaves_what_existed),
        ("pruning leaves what existed before", pruning_leaves_what_existed),
        ("a removal tells what was edited by hand", removal_tells_edits),
        ("what was created under another name is removed", created_under_another_name),
        ("what is gone is counted no more", gone_is_not_counted),
        ("a plan is careful with files that others made", overwriting_is_risky),
        ("a server leaves what existed before, sqlite", || server_leaves_what_existed(false)),
        ("a server leaves what existed before, postgres", || server_leaves_what_existed(true)),
    ];
    let trial = |(name, check): (&str, Check)| {
        Trial::test(format!("adopted: {name}"), move || {
            Ok(check().map_err(|error| format!("{error:#}"))?)
        })
    };
    checks.into_iter().map(trial).collect()
}

const LEFT: &str = "(left in place: it existed before its first recorded deploy)";

fn all() -> String {
    file("same") + &file("other") + &file("new")
}

/// A project with one compliant file, one that differs, and one that does not exist.
fn with_files_in_place() -> Result<ScratchProject> {
    let project = ScratchProject::new(&all())?;
    fs::write(project.managed("same"), "same")?;
    fs::write(project.managed("other"), "by hand")?;
    project.expect(0, &["deploy"])?.says(&["1 created"])?;
    // Later deploys do not change that.
    project.expect(0, &["deploy"])?;
    project.expect(0, &["repair"])?;
    Ok(project)
}

fn destroying_leaves_what_existed() -> Result<()> {
    let project = with_files_in_place()?;
    let refused = project.expect(1, &["destroy"])?;
    refused.says(&["/new]", "/same]", LEFT, "plan: 1 to remove, 2 left in place"])?;
    refused.says(&["--include-adopted"])?;
    let destroyed = project.expect(0, &["destroy", "--yes"])?;
    destroyed.says(&["1 removed", "nothing of test is managed; 2 resources left in place"])?;
    ensure!(!project.managed("new").exists(), "what was created is there");
    ensure!(project.read("same")? == "same" && project.read("other")? == "other");
    // An explicit option removes it.
    project.expect(0, &["deploy"])?.says(&["1 created"])?;
    let destroyed = project.expect(0, &["destroy", "--yes", "--include-adopted"])?;
    destroyed.says(&["3 removed", "destroyed: nothing of test is left"])?;
    ensure!(fs::read_dir(project.managed(""))?.next().is_none(), "something is left");
    Ok(())
}

fn pruning_leaves_what_existed() -> Result<()> {
    let project = with_files_in_place()?;
    project.write_model("")?;
    let plan = project.expect(2, &["plan", "--prune"])?;
    plan.says(&["1 to remove"])?;
    let pruned = project.expect(0, &["deploy", "--prune", "--yes"])?;
    pruned.says(&["/same]", LEFT, "1 removed"])?;
    ensure!(!pruned.said.contains("nothing to deploy"), "{}", pruned.said);
    ensure!(!project.managed("new").exists() && project.read("other")? == "other");
    // Nothing is left to do, and it was reported.
    let after = project.expect(0, &["deploy"])?;
    ensure!(!after.said.contains("no longer managed"), "{}", after.said);
    let again = ["deploy", "--prune", "--yes", "--include-adopted"];
    project.expect(0, &again)?.says(&["2 removed"])?;
    ensure!(fs::read_dir(project.managed(""))?.next().is_none(), "something is left");
    project.expect(1, &["deploy", "--include-adopted"])?.says(&["--prune"])
}

fn removal_tells_edits() -> Result<()> {
    const EDITED: &str = "/b] (edited since it was deployed: content)";
    let project = ScratchProject::new(&(file("a") + &file("b")))?;
    project.expect(0, &["deploy"])?;
    fs::write(project.managed("b"), "notes of a person\n")?;
    let refused = project.expect(1, &["destroy"])?;
    refused.says(&[EDITED])?;
    ensure!(!refused.said.contains("/a] (edited"), "{}", refused.said);
    project.write_model(&file("a"))?;
    project.expect(1, &["deploy", "--prune"])?.says(&[EDITED])?;
    let plan = project.expect(2, &["plan", "--prune"])?;
    plan.shows(&["/b] (edited since it was deployed", "risk: high", "notes of a person"])?;
    // The last deploy that checked it had it.
    project.expect(0, &["deploy"])?;
    project.expect(1, &["deploy", "--prune"])?.says(&[EDITED])?;
    ensure!(project.read("b")? == "notes of a person\n");
    Ok(())
}

/// A file that a deploy created counts as created, even if its agent was renamed.
fn created_under_another_name() -> Result<()> {
    let on = |host: &str| {
        format!(
            "here = std::Host(name=\"{host}\", os=std::linux)\n\
             Text(host=here, path=\"{{{{ root }}}}/kept\", content=\"1\")\n"
        )
    };
    let project = ScratchProject::new(&on("localhost"))?;
    project.declare_local(&["web1"])?;
    project.expect(0, &["deploy"])?;
    project.write_model(&on("web1"))?;
    let renamed = project.expect(0, &["deploy", "--prune", "--yes"])?;
    ensure!(!renamed.said.contains("no longer managed"), "{}", renamed.said);
    let after = project.expect(0, &["deploy"])?;
    ensure!(!after.said.contains("no longer managed"), "{}", after.said);
    project.expect(0, &["destroy", "--yes"])?;
    ensure!(!project.managed("kept").exists(), "the file is there");
    Ok(())
}

fn gone_is_not_counted() -> Result<()> {
    let project = ScratchProject::new(&(file("a") + &file("b")))?;
    project.expect(0, &["deploy"])?;
    project.write_model(&file("a"))?;
    project.expect(0, &["deploy", "--prune", "--yes"])?;
    let status = project.json(0, &["status"])?;
    ensure!(status["statuses"]["orphaned"] == 0, "{status}");
    project.expect(0, &["status"])?.says(&["all deployed: 1 resource"])?;
    let orphans = project.json(0, &["resources", "--status", "orphaned"])?;
    ensure!(orphans["resources"].as_array().is_some_and(Vec::is_empty), "{orphans}");
    project.expect(0, &["destroy", "--yes"])?;
    let status = project.json(0, &["status"])?;
    ensure!(status["statuses"]["orphaned"] == 0, "{status}");
    Ok(())
}

fn overwriting_is_risky() -> Result<()> {
    let project = ScratchProject::new(&file("a"))?;
    fs::write(project.managed("a"), "by hand")?;
    let plan = project.expect(2, &["plan"])?;
    plan.shows(&["(exists already", "risk: high"])?;
    plan.says(&["risk: high"])?;
    project.expect(0, &["deploy"])?;
    fs::write(project.managed("a"), "edited")?;
    project.expect(2, &["plan"])?.shows(&["(drift", "risk: medium"])?;
    project.expect(0, &["deploy"])?;
    project.write_model(&file("a").replace("content=\"a\"", "content=\"b\""))?;
    project.expect(2, &["plan"])?.shows(&["risk: low"])
}

fn server_leaves_what_existed(postgres: bool) -> Result<()> {
    let mut world = World::new(postgres)?;
    world.start(true, "")?;
    let url = world.url()?.to_owned();
    world.done(&format!("orrery login {url} --name admin && orrery project create p"))?;
    write_project(&world, "notes", &all())?;
    world.done("cd notes && orrery environment create live --project p --use")?;
    let managed = world.directory.path().join("managed");
    fs::write(managed.join("same"), "same")?;
    fs::write(managed.join("other"), "by hand")?;
    prints(&world, "cd notes && orrery deploy", &["1 created"])?;
    world.done("cd notes && orrery repair")?;
    // The edit would be repaired at once.
    let policies = "orrery environment setting set drift_policies '{\"*\": \"report\"}'";
    world.done(&format!("cd notes && {policies}"))?;
    fs::write(managed.join("new"), "edited")?;
    let refused = "cd notes && orrery destroy < /dev/null";
    let told = ["/new] (edited since it was deployed: content)", LEFT, "2 left in place"];
    fails(&world, refused, &told)?;
    ensure!(fs::read_to_string(managed.join("new"))? == "edited");
    write_project(&world, "notes", "")?;
    prints(&world, "cd notes && orrery deploy --prune --yes", &["1 removed", LEFT])?;
    ensure!(!managed.join("new").exists() && managed.join("other").exists());
    let after = world.done("cd notes && orrery deploy")?;
    ensure!(!after.contains("no longer managed"), "{after}");
    let status = json(&world, "cd notes && orrery status")?;
    ensure!(status["statuses"]["orphaned"] == 2, "{status}");
    let told = ["2 removed", "destroyed: nothing of p/live is left"];
    prints(&world, "cd notes && orrery destroy --yes --include-adopted", &told)?;
    ensure!(fs::read_dir(&managed)?.next().is_none(), "something is left");
    Ok(())
}
