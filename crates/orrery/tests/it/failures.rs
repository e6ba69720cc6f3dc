//! Failures are reported clearly, on the affected resource, and everything else continues;
//! `status`, `why` and `log` agree afterwards. An unusable state is rejected and left unchanged.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use serde_json::json;

use crate::BINARY;
use crate::scratch_project::{Running, ScratchProject};
use crate::stores::{self, Scene};

type Check = fn() -> Result<()>;

pub(crate) fn trials() -> Vec<Trial> {
    let checks: [(&str, Check); 10] = [
        ("resources that require each other", cycle),
        ("two instances are one resource", duplicate),
        ("a field that JSON cannot hold", unserializable),
        ("places where nothing can be written", unwritable),
        ("a read-only disk", read_only_disk),
        ("a missing user, a missing command, a crash", others_continue),
        ("no handler", no_handler),
        ("a model that does not compile", model_error),
        ("a state that cannot be used is left as it is", bad_state),
        ("no place for the state", no_place_for_state),
    ];
    let trial = |(name, check): (&str, Check)| {
        Trial::test(format!("failures: {name}"), move || {
            Ok(check().map_err(|error| format!("{error:#}"))?)
        })
    };
    checks.into_iter().map(trial).collect()
}

/// A resource that is always deployed.
const GOOD: &str = "Text(host=host, path=\"{{ root }}/good\", content=\"x\")\n";

/// Deploys a model with a failing and a succeeding resource.
fn deploy(model: &str, words: &[&str]) -> Result<ScratchProject> {
    let project = ScratchProject::new(&format!("{model}{GOOD}"))?;
    project.expect(2, &["deploy"])?.says(words)?;
    ensure!(project.read("good")? == "x");
    Ok(project)
}

fn cycle() -> Result<()> {
    let model = r#"a = Text(host=host, path="{{ root }}/a", content="x")
b = Text(host=host, path="{{ root }}/b", content="x", requires=a)
c = Text(host=host, path="{{ root }}/c", content="x", requires=b)
a.requires = c
d = Text(host=host, path="{{ root }}/d", content="x", requires=c)
"#;
    let project =
        deploy(model, &["error[requirement-cycle]", "partially deployed: 1 created, 4 left out"])?;
    let ran = project.expect(2, &["deploy"])?;
    let id = |name: &str| {
        let path = project.managed(name);
        format!("std::File[localhost,path={}]", path.display())
    };
    for (from, to) in [("a", "c"), ("b", "a"), ("c", "b")] {
        ran.says(&[&format!("{} requires {}", id(from), id(to))])?;
    }
    // Every edge is shown under the line that creates it.
    ran.says(&["./main.cf:8:", "6 | b = ", "7 | c = ", "8 | a.requires = c"])?;
    ran.says(&["error[requirement-left-out]", "partially deployed: 4 left out, 1 unchanged"])?;
    let report = project.json(2, &["deploy"])?;
    ensure!(report["tally"]["left_out"] == 4 && report["tally"]["deployed"] == 1, "{report}");
    project.expect(2, &["plan"])?.says(&["4 left out, 1 unchanged"])?;
    // Nothing is exported here, but no deploy could satisfy this order.
    let compiled = project.expect(1, &["compile"])?;
    compiled.says(&["error[requirement-cycle]", "4 resources cannot be deployed"])?;
    let exported = project.expect(1, &["compile", "--resources"])?;
    exported.says(&["error[requirement-cycle]", "exported 1 resource, 4 left out"])
}

fn duplicate() -> Result<()> {
    let model = r#"std::Symlink(host=host, target="{{ root }}/link", source="a")
std::Symlink(host=host, target="{{ root }}/link", source="b")
"#;
    let words = ["error[duplicate-resource]", "one of them", "another one", "1 left out"];
    let project = deploy(model, &words)?;
    ensure!(fs::symlink_metadata(project.managed("link")).is_err());
    Ok(())
}

fn unserializable() -> Result<()> {
    let model = r#"bad = exec::Run(host=host, command="touch {{ root }}/bad", environment={"x": float("inf")})
exec::Run(host=host, command="touch {{ root }}/after", requires=bad)
"#;
    let words =
        ["error[unserializable-field]", "`environment.x` of exec::Run[", "inf", "2 left out"];
    let project = deploy(model, &words)?;
    ensure!(!project.managed("bad").exists() && !project.managed("after").exists());
    Ok(())
}

fn unwritable() -> Result<()> {
    let project = ScratchProject::new(&format!(
        r#"a = Text(host=host, path="{{{{ root }}}}/directory", content="x")
Text(host=host, path="{{{{ root }}}}/file/a", content="x")
Text(host=host, path="{{{{ root }}}}/closed/a", content="x")
Text(host=host, path="/sys/orrery-test/../a", content="x")
Folder(host=host, path="{{{{ root }}}}/file")
Text(host=host, path="{{{{ root }}}}/after", content="x", requires=a)
{GOOD}"#
    ))?;
    fs::create_dir(project.managed("directory"))?;
    fs::write(project.managed("file"), "x")?;
    // Root can write anywhere except to a kernel file system.
    if rustix::process::getuid().is_root() {
        symlink("/sys/kernel", project.managed("closed"))?;
    } else {
        fs::create_dir(project.managed("closed"))?;
        fs::set_permissions(project.managed("closed"), PermissionsExt::from_mode(0o555))?;
    }
    let ran = project.expect(2, &["deploy"])?;
    ran.says(&["/directory: it is a directory", "purge it first, or choose another path"])?;
    ran.says(&["/file/a: a part of the path is not a directory"])?;
    ran.says(&["/a: it is not an absolute, normal path"])?;
    ran.says(&["cannot write ", "/closed/a: "])?;
    ran.says(&["skipped std::File[localhost,path=", "/after]"])?;
    ran.says(&["partially deployed: 1 created, 5 failed, 1 skipped"])?;
    ensure!(project.read("good")? == "x" && !project.managed("after").exists());
    ensure!(fs::read_dir(project.managed("directory"))?.next().is_none());
    ensure!(fs::read_to_string(project.managed("file"))? == "x");
    Ok(())
}

/// On a read-only disk, in its own mount namespace; without permission for that, on an equivalent
/// path.
fn read_only_disk() -> Result<()> {
    let works = |command: &mut Command| command.output().is_ok_and(|ran| ran.status.success());
    // In the namespace, this user is root.
    let owner = "owner=\"0\", group=\"0\", mode=644";
    let project = ScratchProject::new(&format!(
        "std::File(host=host, path=\"{{{{ root }}}}/disk/a\", content=\"x\", {owner})\n\
         std::File(host=host, path=\"{{{{ root }}}}/good\", content=\"x\", {owner})\n"
    ))?;
    let disk = project.managed("disk");
    if works(Command::new("unshare").args(["--user", "--map-root-user", "--mount", "true"])) {
        fs::create_dir(&disk)?;
        let mut command = project.command(&[]);
        let environment: Vec<_> = command
            .get_envs()
            .map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned)))
            .collect();
        let here = command.get_current_dir().unwrap_or(Path::new(".")).to_owned();
        command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c"]);
        command.arg("mount -t tmpfs -o ro none \"$1\" && exec \"$2\" deploy").arg("sh");
        command.arg(&disk).arg(BINARY).current_dir(here);
        for (name, value) in environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let ran = Running::start(command)?.wait()?;
        ensure!(ran.code == Some(2), "{:?}: {}", ran.code, ran.said);
        ran.says(&["/disk/a: the file system is read-only", "mounted read-only: remount it"])?;
    } else {
        symlink("/proc/self", &disk)?;
        project.write_model(&format!(
            "Text(host=host, path=\"{{{{ root }}}}/disk/a\", content=\"x\")\n{GOOD}"
        ))?;
        project.expect(2, &["deploy"])?.says(&["/disk/a: "])?;
    }
    ensure!(project.read("good")? == "x");
    Ok(())
}

fn others_continue() -> Result<()> {
    let project = deploy(
        r#"std::File(host=host, path="{{ root }}/a", content="x", owner="nobody-has-this-name", group="0", mode=644)
exec::Run(host=host, command="no-such-command --at-all")
std::testing::ScriptedResource(agentname="localhost", name="crash", outcome="panic")
"#,
        &[
            "there is no such user",
            "command not found",
            "the handler crashed: it was told to panic",
        ],
    )?;
    ensure!(!project.managed("a").exists());
    // The later reports agree.
    let status = project.expect(2, &["status"])?.out;
    for words in ["1 deployed", "3 failed", "there is no such user", "main.cf:5:1"] {
        ensure!(status.contains(words), "{words:?} is not in:\n{status}");
    }
    let why = project.expect(0, &["why", "/a"])?.out;
    for words in ["is failed", "there is no such user", "declare a user::User", "main.cf:5:1"] {
        ensure!(why.contains(words), "{words:?} is not in:\n{why}");
    }
    let log = project.expect(0, &["log", "name=crash"])?.out;
    ensure!(log.contains("failed") && log.contains("it was told to panic"), "{log}");
    // It never was compliant, so it has not drifted.
    let plan = project.expect(2, &["plan"])?;
    ensure!(plan.out.contains("/a] (failed before, main.cf:5:1"), "{}", plan.out);
    // The next deploy retries.
    project.expect(2, &["deploy"])?.says(&["partially deployed: 3 failed, 1 unchanged"])
}

/// A newer program may have created the version.
fn no_handler() -> Result<()> {
    let project = ScratchProject::new("")?;
    let good = project.managed("good").display().to_string();
    let id = format!("std::File[localhost,path={good}]");
    {
        let scene = Scene::open(&project.data().join("state.db"))?;
        let file = json!({"content": "x", "purged": false});
        let resources = [
            stores::resource("no::Such[localhost,name=a]", json!({}), &[], 1)?,
            stores::resource(&id, file, &[], 2)?,
        ];
        scene.put(1, json!(null), &resources)?;
    }
    let ran = project.expect(2, &["repair"])?;
    ran.says(&["there is no handler for no::Such", "1 created, 1 unavailable"])?;
    ensure!(project.read("good")? == "x");
    let status = project.expect(2, &["status"])?.out;
    ensure!(status.contains("1 unavailable"), "{status}");
    // Instances without a handler are listed and counted, and do not block others.
    let project = ScratchProject::new(&format!(
        "entity Odd extends std::PurgeableResource:\n    string name\nend\n\
         implement Odd using std::none\nOdd(name=\"x\")\n{GOOD}"
    ))?;
    let ran = project.expect(2, &["deploy"])?;
    ran.says(&["warning: no handler for entity __config__::Odd", "1 created, 1 left out"])
}

fn model_error() -> Result<()> {
    let project = ScratchProject::new(&format!("{GOOD}x = unknown\n"))?;
    for command in ["deploy", "plan", "watch"] {
        let ran = project.expect(1, &[command])?;
        ran.says(&["error[", "./main.cf:6:5", "the model does not compile"])?;
    }
    ensure!(!project.managed("good").exists());
    ensure!(fs::read_dir(project.data())?.next().is_none(), "something was kept");
    Ok(())
}

fn bad_state() -> Result<()> {
    let project = ScratchProject::new(GOOD)?;
    let file = project.data().join("state.db");
    let refused = |bytes: &[u8], words: &[&str]| -> Result<()> {
        fs::write(&file, bytes)?;
        for command in ["deploy", "repair", "watch"] {
            let ran = project.expect(1, &[command])?;
            ran.says(&["error: "])?;
            ran.says(words).with_context(|| command.to_owned())?;
            ensure!(fs::read(&file)? == bytes, "{command} changed the file");
        }
        ensure!(!project.managed("good").exists());
        fs::remove_file(&file)?;
        Ok(())
    };
    refused(b"somebody's diary\n", &["is not a store of this program", "it is unchanged"])?;
    project.expect(0, &["deploy"])?;
    fs::remove_file(project.managed("good"))?;
    let log = project.data().join("state.db-wal");
    ensure!(!log.exists(), "the deploy did not close its database: {} is there", log.display());
    let whole = fs::read(&file)?;
    // The schema version is at a fixed offset.
    let mut newer = whole.clone();
    newer[60..64].copy_from_slice(&99_u32.to_be_bytes());
    refused(&newer, &["was written by a newer program"])?;
    let mut damaged = whole.clone();
    for page in damaged.chunks_mut(4096).skip(1) {
        page.fill(0xa5);
    }
    refused(&damaged, &["is damaged", "restore it from a backup"])?;
    refused(&whole[..whole.len() / 2 / 4096 * 4096], &["is damaged"])?;
    fs::write(&file, whole)?;
    project.expect(0, &["deploy"])?.says(&["1 created"])
}

fn no_place_for_state() -> Result<()> {
    let mut project = ScratchProject::new(GOOD)?;
    let file = project.managed("file");
    fs::write(&file, "x")?;
    for place in [file.join("data").display().to_string(), "/proc/orrery/data".to_owned()] {
        project.set("ORRERY_DATA", &place);
        project.expect(1, &["deploy"])?.says(&["error: ", &place])?;
    }
    ensure!(!project.managed("good").exists());
    Ok(())
}
