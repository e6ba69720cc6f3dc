//! Careful removals: resources of the model are not pruned, undeployed ones are not reported, edits
//! are not hidden, and an unfinished removal continues only on request.

use std::fs;
use std::os::unix::fs::symlink;

use anyhow::{Result, ensure};
use libtest_mimic::Trial;
use serde_json::Value;

use crate::project_binding::file;
use crate::scratch_project::ScratchProject;

pub(crate) fn trials() -> Vec<Trial> {
    type Check = fn() -> Result<()>;
    let checks: [(&str, Check); 9] = [
        ("what is left out is not pruned", left_out_is_not_pruned),
        ("what cannot be identified is not pruned", unidentified_is_not_pruned),
        ("an unfinished removal is not repaired", unfinished_removal_is_not_repaired),
        ("resources that were never deployed are not reported", never_deployed_is_dropped),
        ("edits come first in a long plan", edits_come_first),
        ("reports of a destroy have one form", destroy_reports_have_one_form),
        ("another spelling of a path is the same file", other_spellings_are_the_same),
        ("removed resources are not reported as deployed", removed_is_not_reported_as_deployed),
        ("removed resources stay in the log", removed_is_remembered),
    ];
    let trial = |(name, check): (&str, Check)| {
        Trial::test(format!("pruning: {name}"), move || {
            Ok(check().map_err(|error| format!("{error:#}"))?)
        })
    };
    checks.into_iter().map(trial).collect()
}

/// Files `b`, `c` and `d`, with variables of the same names.
fn named_files() -> String {
    ["b", "c", "d"].iter().map(|name| format!("{name} = {}", file(name))).collect()
}

fn left_out_is_not_pruned() -> Result<()> {
    let project = ScratchProject::new(&(file("a") + &named_files()))?;
    project.expect(0, &["deploy"])?;
    let all_exist = || {
        let exists = |name: &&str| project.managed(name).exists();
        let there: Vec<&str> = ["a", "b", "c", "d"].into_iter().filter(exists).collect();
        ensure!(there.len() == 4, "only {there:?} are left");
        Ok(())
    };
    let circle = "b.requires = c\nc.requires = b\nd.requires = c\n";
    project.write_model(&(file("a") + &named_files() + circle))?;
    let plan = project.run(&["plan"])?;
    ensure!(!plan.out.contains("no longer in the model"), "{}", plan.out);
    let refusal = ["3 resources of the model are left out", "omit --prune"];
    project.expect(1, &["plan", "--prune"])?.says(&refusal)?;
    project.expect(1, &["deploy", "--prune", "--yes"])?.says(&refusal)?;
    all_exist()?;
    let deployed = project.expect(2, &["deploy"])?;
    deployed.says(&["3 left out"])?;
    ensure!(!deployed.said.contains("no longer managed"), "{}", deployed.said);
    let report = project.json(2, &["deploy"])?;
    ensure!(report["unmanaged"]["total"] == 0, "{report}");
    project.expect(1, &["deploy", "--prune", "--yes"])?.says(&refusal)?;
    all_exist()?;
    // A complete model shows what it no longer contains.
    project.write_model(&(file("a") + &file("b") + &file("c")))?;
    project.expect(0, &["deploy", "--prune", "--yes"])?.says(&["1 removed"])?;
    ensure!(!project.managed("d").exists() && project.managed("c").exists());
    Ok(())
}

fn unidentified_is_not_pruned() -> Result<()> {
    let project = ScratchProject::new(&(file("a") + &file("b")))?;
    project.expect(0, &["deploy"])?;
    let unknown = "Text(host=host, path=std::getfact(a, \"place\"), content=\"b\")\n";
    project.write_model(&format!("a = {}{unknown}", file("a")))?;
    let deployed = project.run(&["deploy"])?;
    ensure!(!deployed.said.contains("no longer managed"), "{}", deployed.said);
    let refused = project.expect(1, &["deploy", "--prune", "--yes"])?;
    refused.says(&["1 resource of the model is left out"])?;
    ensure!(project.read("b")? == "b");
    Ok(())
}

fn unfinished_removal_is_not_repaired() -> Result<()> {
    let directory = "Folder(host=host, path=\"{{ root }}/d\")\n";
    let project = ScratchProject::new(&(file("a") + directory))?;
    project.expect(0, &["deploy"])?;
    let (directory_path, foreign) = (project.managed("d"), project.managed("d/foreign"));
    // An obstacle keeps the removal unfinished.
    fs::write(&foreign, "")?;
    project.write_model(&file("a"))?;
    project.expect(2, &["deploy", "--prune", "--yes"])?.says(&["is not removed yet"])?;
    fs::remove_file(&foreign)?;
    let told = "a removal is unfinished: `orrery deploy --prune` continues it";
    project.expect(1, &["repair"])?.says(&[told])?;
    ensure!(directory_path.exists(), "a repair removed the directory");
    project.expect(2, &["status"])?.shows(&[told])?;
    project.expect(0, &["deploy"])?.says(&["1 resource is no longer managed"])?;
    project.expect(0, &["repair"])?;
    ensure!(directory_path.exists());

    project.write_model(&(file("a") + directory))?;
    project.expect(0, &["deploy"])?;
    fs::write(&foreign, "")?;
    project.expect(2, &["destroy", "--yes"])?.says(&["is not removed yet"])?;
    fs::remove_file(&foreign)?;
    let told = "a destroy is unfinished: `orrery destroy` continues it, `orrery deploy` restores";
    project.expect(1, &["repair", "--pending"])?.says(&[told])?;
    ensure!(directory_path.exists(), "a repair removed the directory");
    let status = project.json(2, &["status"])?;
    ensure!(status["unfinished_removal"] == true, "{status}");
    project.expect(0, &["deploy"])?.says(&["1 created"])?;
    project.expect(0, &["repair"])?;
    ensure!(project.read("a")? == "a");
    let status = project.json(0, &["status"])?;
    ensure!(status["unfinished_removal"] == false, "{status}");
    project.expect(0, &["destroy", "--yes"])?.says(&["2 removed"])?;
    project.expect(0, &["repair"])?;
    Ok(())
}

fn never_deployed_is_dropped() -> Result<()> {
    let project = ScratchProject::new(&(file("a") + &file("missing/b")))?;
    project.expect(2, &["deploy"])?.says(&["1 failed"])?;
    let destroyed = project.expect(0, &["destroy", "--yes"])?;
    destroyed.says(&["1 removed", "destroyed: nothing of test is left"])?;
    ensure!(!destroyed.said.contains("left in place"), "{}", destroyed.said);
    project.expect(0, &["destroy", "--yes"])?.says(&["nothing of test was deployed"])
}

/// Names of all keys of a report, including nested ones.
pub(crate) fn keys(report: &Value) -> Vec<String> {
    let Some(object) = report.as_object() else { return Vec::new() };
    let named = |(name, value): (&String, &Value)| {
        let inner = keys(value).into_iter().map(|inner| format!("{name}.{inner}"));
        std::iter::once(name.clone()).chain(inner).collect::<Vec<_>>()
    };
    object.iter().flat_map(named).collect()
}

fn destroy_reports_have_one_form() -> Result<()> {
    let project = ScratchProject::new(&(file("a") + &file("b")))?;
    let deployed = project.json(0, &["deploy"])?;
    ensure!(deployed["removal"].is_null(), "{deployed}");
    project.write_model(&file("a"))?;
    let pruned = project.json(0, &["deploy", "--prune", "--yes"])?;
    ensure!(pruned["removal"]["removed"].as_array().map_or(0, Vec::len) == 1, "{pruned}");
    let destroyed = project.json(0, &["destroy", "--yes"])?;
    ensure!(destroyed["tally"]["removed"] == 1, "{destroyed}");
    let removed = &destroyed["removal"]["removed"];
    ensure!(removed[0].as_str().is_some_and(|id| id.ends_with("/a]")), "{destroyed}");
    let nothing = project.json(0, &["destroy", "--yes"])?;
    ensure!(keys(&nothing) == keys(&destroyed), "{nothing}\n{destroyed}");
    ensure!(nothing["tally"]["removed"] == 0 && nothing["version"].is_u64(), "{nothing}");
    // It includes resources that cannot be removed.
    project.expect(0, &["deploy"])?;
    project.expect(0, &["destroy", "--yes"])?;
    fs::write(project.managed("a"), "a")?;
    project.expect(0, &["deploy"])?;
    let kept = project.json(0, &["destroy", "--yes"])?;
    ensure!(keys(&kept) == keys(&destroyed), "{kept}");
    ensure!(kept["removal"]["kept"][0]["adopted"] == true, "{kept}");
    Ok(())
}

/// A file that the model has under another spelling of its path is neither removed nor rewritten.
fn other_spellings_are_the_same() -> Result<()> {
    let project = ScratchProject::new(&file("run/x"))?;
    fs::create_dir(project.managed("run"))?;
    fs::create_dir(project.managed("var"))?;
    symlink("../run", project.managed("var/run"))?;
    symlink(project.managed("var/run"), project.managed("alias"))?;
    project.expect(0, &["deploy"])?;
    let written = || anyhow::Ok(fs::metadata(project.managed("run/x"))?.modified()?);
    let before = written()?;
    let spelt = |path: &str| {
        format!("Text(host=host, path=\"{{{{ root }}}}/{path}\", content=\"run/x\")\n")
    };
    for path in ["var/run/x", "alias/x", "var//run/x", "run/x"] {
        project.write_model(&spelt(path))?;
        let plan = project.run(&["plan", "--prune"])?;
        ensure!(!plan.out.contains("\n- ") && !plan.said.contains("to remove"), "{}", plan.out);
        let pruned = project.expect(0, &["deploy", "--prune", "--yes"])?;
        ensure!(
            !pruned.said.contains("removed") && !pruned.said.contains("created"),
            "{}",
            pruned.said
        );
        ensure!(written()? == before, "{path}: the file was written anew");
        let deployed = project.expect(0, &["deploy"])?;
        ensure!(!deployed.said.contains("no longer managed"), "{path}: {}", deployed.said);
    }
    // A replacement at the same path is created after the removal, and stays.
    project.write_model("Folder(host=host, path=\"{{ root }}/var/run/x\")\n")?;
    project.expect(0, &["deploy", "--prune", "--yes"])?.says(&["1 created", "removed"])?;
    ensure!(project.managed("run/x").is_dir());
    // It was created here, under any spelling.
    project.expect(0, &["destroy", "--yes"])?.says(&["nothing of test is left"])?;
    ensure!(!project.managed("run/x").exists());
    Ok(())
}

/// During an unfinished removal, each resource has its true status.
fn removed_is_not_reported_as_deployed() -> Result<()> {
    let directory = "d = Folder(host=host, path=\"{{ root }}/d\")\n\
        Text(host=host, path=\"{{ root }}/d/first\", content=\"1\", requires=d)\n\
        Folder(host=host, path=\"{{ root }}/e\", purged=true)\n";
    let project = ScratchProject::new(&(file("a") + directory))?;
    project.expect(0, &["deploy"])?;
    fs::write(project.managed("d/foreign"), "")?;
    let purged = "Folder(host=host, path=\"{{ root }}/e\", purged=true)\n";
    project.write_model(&(file("a") + purged))?;
    let pruned = project.expect(2, &["deploy", "--prune", "--yes"])?;
    pruned.says(&["1 removed", "1 failed", "1 resource is not removed yet"])?;
    let status = project.expect(2, &["status"])?;
    status.shows(&["\n2 deployed\n", "\n1 failed\n", "\n1 removed\n"])?;
    status.shows(&["removal failed  std::Directory[", "/d]\n    cannot remove", "not empty"])?;
    status.says(&["3 resources: 2 deployed, 1 failed, 1 removed"])?;
    let report = project.json(2, &["status"])?;
    ensure!(report["done"] == false && report["unfinished_removal"] == true, "{report}");
    let statuses = &report["statuses"];
    ensure!(statuses["deployed"] == 2 && statuses["removed"] == 1, "{report}");
    ensure!(report["problems"][0]["removal"] == "pending", "{report}");
    let listed = project.expect(0, &["resources"])?;
    listed.says(&["4 resources: 2 deployed, 1 failed, 1 removed"])?;
    let line = |end: &str| listed.out.lines().find(|line| line.ends_with(end)).unwrap_or_default();
    ensure!(line("/d/first]").starts_with("removed  "), "{}", listed.out);
    ensure!(line("/d]").starts_with("removal failed  "), "{}", listed.out);
    ensure!(line("/e]").starts_with("deployed  "), "{}", listed.out);
    project.expect(0, &["why", "d/first"])?.shows(&["d/first]: removed", "by version 2"])?;
    let why = project.expect(0, &["why", "*/d"])?;
    why.shows(&["/d]: removal failed", "because   version 2 removes it"])?;
    // An interrupted removal is not reported as complete either.
    fs::remove_file(project.managed("d/foreign"))?;
    project.expect(0, &["deploy", "--prune", "--yes"])?;
    project.expect(0, &["status"])?.says(&["all deployed: 2 resources"])
}

/// A removed resource keeps its log, with the time and version of its removal.
fn removed_is_remembered() -> Result<()> {
    let project = ScratchProject::new(&(file("a") + &file("b")))?;
    project.expect(0, &["deploy"])?;
    project.write_model(&file("a"))?;
    project.expect(0, &["deploy", "--prune", "--yes", "--message", "tidy up"])?;
    let path = "/b";
    let why = project.expect(0, &["why", path])?;
    why.shows(&["/b]: removed\n", "\n  removed   20", ", by version 2 (tidy up)\n"])?;
    why.shows(&["because   version 2 removes it", "next      nothing"])?;
    let log = project.expect(0, &["log", path])?;
    log.shows(&[
        "deploy of version 2: deployed, purged",
        "deploy of version 1: deployed, created",
    ])?;
    log.says(&["/b]: 2 entries; removed 20", ", by version 2 (tidy up)"])?;
    let report = project.json(0, &["why", path])?;
    ensure!(report["removed"]["version"] == 2, "{report}");
    ensure!(report["removed"]["message"] == "tidy up", "{report}");
    ensure!(report["removed"]["at"].is_string(), "{report}");
    ensure!(report["resource"]["removal"] == "done", "{report}");
    ensure!(project.json(0, &["log", path])?["removed"]["version"] == 2);
    // Earlier removals count as well, and lists contain existing resources only.
    fs::remove_file(project.managed("a"))?;
    project.expect(0, &["destroy", "--yes"])?;
    let why = project.expect(0, &["why", "/a"])?;
    why.shows(&["/a]: removed\n", ", by version 4 (orrery destroy)\n"])?;
    project.expect(0, &["resources", "--status", "orphaned"])?.says(&["0 resources"])?;
    project.expect(1, &["why", "/c"])?.says(&["no resource /c"])?;
    // Existing resources take precedence over removed ones.
    project.write_model(&file("a/b"))?;
    fs::create_dir(project.managed("a"))?;
    project.expect(0, &["deploy"])?;
    let why = project.expect(0, &["why", "/b"])?;
    why.shows(&["/a/b] is deployed"])?;
    let report = project.json(0, &["why", "/b"])?;
    ensure!(report["removed"].is_null() && report["resource"]["removal"].is_null(), "{report}");
    Ok(())
}

fn edits_come_first() -> Result<()> {
    let files = "for at in std::sequence(250):\n    Text(host=host, path=\"{{ root }}/{{ at }}\", content=\"\")\nend\n";
    let project = ScratchProject::new(files)?;
    project.expect(0, &["deploy"])?;
    fs::write(project.managed("99"), "notes of a person")?;
    let refused = project.expect(1, &["destroy"])?;
    refused.says(&[
        "… and 50 more",
        "plan: 250 to remove (of these, 1 edited since it was deployed)",
    ])?;
    let first = refused.said.lines().find(|line| line.starts_with("- "));
    let is_edited = |line: &str| line.ends_with("/99] (edited since it was deployed: content)");
    ensure!(first.is_some_and(is_edited), "{}", refused.said);
    fs::write(project.managed("98"), "more notes")?;
    let told = "plan: 250 to remove (of these, 2 edited since they were deployed)";
    project.expect(1, &["destroy"])?.says(&[told])
}
