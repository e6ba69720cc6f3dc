//! `orrery.lock`: all machines install the same. Real pip (and uv) with packages that these tests
//! write.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;

use crate::environments::{World, installed, write_new_module, write_wheel};

type Test = fn(&mut World) -> Result<()>;

pub(crate) fn trials() -> Vec<Trial> {
    let tests: [(&str, Test); 9] = [
        ("two_machines_get_the_same_versions", two_machines_get_the_same_versions),
        ("a_replaced_file_is_refused", a_replaced_file_is_refused),
        ("locked_fails_and_frozen_does_not_ask", locked_fails_and_frozen_does_not_ask),
        ("what_is_locked_stays_if_it_can", what_is_locked_stays_if_it_can),
        ("another_platform_is_no_false_alarm", another_platform_is_no_false_alarm),
        ("another_python_gets_what_it_needs", another_python_gets_what_it_needs),
        ("commits_and_directories_are_locked", commits_and_directories_are_locked),
        ("an_older_generation_stays_locked", an_older_generation_stays_locked),
        ("uv_and_pip_write_the_same", uv_and_pip_write_the_same),
    ];
    let trial = |(name, test): (&str, Test)| {
        Trial::test(format!("locking/{name}"), move || {
            let mut world = World::new().map_err(|error| format!("{error:#}"))?;
            Ok(test(&mut world).map_err(|error| format!("{error:#}"))?)
        })
    };
    tests.into_iter().map(trial).collect()
}

pub(crate) const INSTALL: [&str; 2] = ["modules", "install"];
pub(crate) const LOCKED: [&str; 3] = ["modules", "install", "--locked"];

impl World {
    pub(crate) fn lock(&self, project: &str) -> Result<String> {
        let path = self.path(project).join("orrery.lock");
        fs::read_to_string(&path).with_context(|| path.display().to_string())
    }

    /// The project as a checkout on another machine, without a virtualenv.
    pub(crate) fn check_out(&self, name: &str) -> Result<()> {
        let target = self.path(name);
        let _ = fs::remove_dir_all(&target);
        fs::create_dir_all(&target)?;
        for entry in fs::read_dir(self.path("project"))?.flatten() {
            if entry.file_type()?.is_file() {
                fs::copy(entry.path(), target.join(entry.file_name()))?;
            }
        }
        Ok(())
    }

    fn toy(&self, version: &str) -> Result<()> {
        self.write_wheel("inmanta-module-toy", version, "inmanta-core>=15.0", "inmanta_plugins.toy")
    }

    fn has(&self, project: &str, package: &str, version: &str) -> Result<()> {
        let found = installed(&self.path(project).join(".venv"), package)?;
        ensure!(found == version, "{project} has {package} {found:?}, not {version:?}");
        Ok(())
    }
}

pub(crate) fn sha256(path: &Path) -> Result<String> {
    let program =
        "import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], 'rb').read()).hexdigest())";
    let output = Command::new("python3").args(["-I", "-c", program]).arg(path).output()?;
    Ok(format!("sha256:{}", String::from_utf8(output.stdout)?.trim()))
}

fn two_machines_get_the_same_versions(world: &mut World) -> Result<()> {
    world.project("requirements.txt", "inmanta-module-toy\n")?;
    let first = world.run("project", &INSTALL)?.done()?;
    ensure!(first.report["lock"]["created"] == true, "{:#}", first.report);
    let lock = world.lock("project")?;
    let hash = sha256(&world.path("wheels/inmanta_module_toy-1.1.0-py3-none-any.whl"))?;
    let entry = format!(
        "[[package]]\nname = \"inmanta-module-toy\"\nversion = \"1.1.0\"\nsource = \"index\"\nhashes = [\n    \"{hash}\",\n]\n"
    );
    ensure!(lock.contains(&entry), "{lock}");
    ensure!(lock.contains("format = 1\n") && lock.contains("\"requirements.txt\" = \""), "{lock}");
    // Packages of the binary are locked by version, or not at all.
    ensure!(
        lock.contains("name = \"inmanta-core\"\nversion = \"20.1.0\"\nsource = \"orrery\"\n\n"),
        "{lock}"
    );
    ensure!(
        !lock.contains("orrery-sdk") && !lock.contains(&world.path("").display().to_string()),
        "{lock}"
    );
    let mode = fs::metadata(world.path("project/orrery.lock"))?.permissions().mode();
    ensure!(mode & 0o777 == 0o644, "{mode:o}");

    // A newer release appears before the second machine installs.
    world.toy("1.2.0")?;
    world.write_wheel("requests", "2.0", "", "requests")?;
    world.check_out("other")?;
    let second = world.run("other", &INSTALL)?.done()?;
    ensure!(second.report["lock"].is_null(), "{:#}", second.report);
    world.has("other", "inmanta-module-toy", "1.1.0")?;
    world.has("other", "requests", "1.0")?;
    ensure!(world.lock("other")? == lock, "{}", world.lock("other")?);
    world.check_out("third")?;
    world.run("third", &LOCKED)?.done()?;
    world.has("third", "inmanta-module-toy", "1.1.0")?;
    // The first machine has nothing to do, and so does a repeated installation.
    for project in ["project", "other", "third"] {
        let again = world.run(project, &LOCKED)?.done()?;
        ensure!(again.changed() == 0 && again.report["created"] == false, "{:#}", again.report);
    }

    // A lock file from a new commit changes the virtualenv, in either direction.
    let update = world.run("project", &["modules", "update", "toy"])?.done()?;
    ensure!(update.change("inmanta-module-toy") == Some("1.2.0"), "{:#}", update.report);
    let change = &update.report["lock"]["changes"];
    ensure!(change.as_array().is_some_and(|all| all.len() == 1), "{change}");
    fs::copy(world.path("project/orrery.lock"), world.path("other/orrery.lock"))?;
    world.run("other", &LOCKED)?.done()?;
    world.has("other", "inmanta-module-toy", "1.2.0")?;
    fs::write(world.path("other/orrery.lock"), &lock)?;
    world.run("other", &INSTALL)?.done()?;
    world.has("other", "inmanta-module-toy", "1.1.0")?;
    ensure!(world.lock("other")? == lock);
    Ok(())
}

fn a_replaced_file_is_refused(world: &mut World) -> Result<()> {
    world.project("requirements.txt", "inmanta-module-toy\n")?;
    world.run("project", &INSTALL)?.done()?;
    let lock = world.lock("project")?;
    let wheel = world.path("wheels/inmanta_module_toy-1.1.0-py3-none-any.whl");
    let expected = sha256(&wheel)?;
    // Another content under the same name and version.
    write_wheel(
        &world.path("wheels"),
        "inmanta-module-toy",
        "1.1.0",
        "inmanta-core>=15.0",
        "inmanta_plugins.toy evil",
    )?;
    let found = sha256(&wheel)?;
    world.check_out("other")?;
    for arguments in [&INSTALL[..], &LOCKED, &["modules", "install", "--frozen"]] {
        let refused = world.run("other", arguments)?.failed("hash-mismatch")?;
        let error = &refused.report["error"];
        let message = error["message"].as_str().unwrap_or_default();
        ensure!(message.contains("inmanta-module-toy 1.1.0"), "{message}");
        let details = error["details"].as_str().unwrap_or_default();
        ensure!(details == format!("expected {expected}\nfound    {found}"), "{details}");
        ensure!(!world.path("other/.venv").exists());
    }
    // Another requirement does not accept it: version and hash stay.
    fs::write(world.path("other/requirements.txt"), "inmanta-module-toy\ninmanta-module-fs\n")?;
    world.run("other", &INSTALL)?.failed("hash-mismatch")?;
    ensure!(world.lock("other")? == lock);
    // Trusting the new file is an explicit decision.
    world.check_out("other")?;
    world.run("other", &["modules", "update", "toy"])?.done()?;
    ensure!(world.lock("other")? == lock.replace(&expected, &found), "{}", world.lock("other")?);
    Ok(())
}

fn locked_fails_and_frozen_does_not_ask(world: &mut World) -> Result<()> {
    let frozen = ["modules", "install", "--frozen"];
    world.project("requirements.txt", "inmanta-module-toy==1.0.0\n")?;
    for arguments in [&LOCKED[..], &frozen] {
        let refused = world.run("project", arguments)?.failed("lock-missing")?;
        let help = refused.report["error"]["help"].as_str().unwrap_or_default();
        ensure!(help.contains("`orrery modules install`"), "{help}");
    }
    ensure!(!world.path("project/.venv").exists() && !world.path("project/orrery.lock").exists());
    world.run("project", &INSTALL)?.done()?;
    world.run("project", &LOCKED)?.done()?;
    let lock = world.lock("project")?;

    // Comments are not a change.
    world.project("requirements.txt", "# why\ninmanta-module-toy==1.0.0\n")?;
    world.run("project", &LOCKED)?.done()?;
    world.project("requirements.txt", "inmanta-module-toy>=1.1\n")?;
    let refused = world.run("project", &LOCKED)?.failed("lock-outdated")?;
    let message = refused.report["error"]["message"].as_str().unwrap_or_default();
    ensure!(message == "orrery.lock is out of date: requirements.txt changed", "{message}");
    world.has("project", "inmanta-module-toy", "1.0.0")?;
    ensure!(world.lock("project")? == lock);
    // Other machines can still install from the lock file.
    world.check_out("other")?;
    world.run("other", &frozen)?.done()?;
    world.has("other", "inmanta-module-toy", "1.0.0")?;
    ensure!(world.lock("other")? == lock);
    // Requirements of project.yml and the index are inputs, too.
    world.check_out("third")?;
    fs::write(world.path("third/requirements.txt"), "inmanta-module-toy==1.0.0\n")?;
    fs::write(world.path("third/project.yml"), "name: p\nrequires: [fs]\n")?;
    let refused = world.run("third", &LOCKED)?.failed("lock-outdated")?;
    let message = refused.report["error"]["message"].as_str().unwrap_or_default();
    ensure!(message.contains("`requires` of project.yml"), "{message}");

    world.run("project", &INSTALL)?.done()?;
    world.has("project", "inmanta-module-toy", "1.1.0")?;
    world.run("project", &LOCKED)?.done()?;
    // A deleted lock file is written again, even if nothing has to be installed.
    let lock = world.lock("project")?;
    fs::remove_file(world.path("project/orrery.lock"))?;
    world.run("project", &INSTALL)?.done()?;
    ensure!(world.lock("project")? == lock);
    fs::write(world.path("project/orrery.lock"), lock.replace("format = 1", "format = 7"))?;
    let refused = world.run("project", &INSTALL)?.failed("lock-invalid")?;
    let message = refused.report["error"]["message"].as_str().unwrap_or_default();
    ensure!(message.contains("format 7"), "{message}");
    Ok(())
}

fn what_is_locked_stays_if_it_can(world: &mut World) -> Result<()> {
    world.write_wheel(
        "inmanta-module-user",
        "1.0",
        "inmanta-module-toy",
        "inmanta_plugins.user",
    )?;
    world.project("requirements.txt", "inmanta-module-toy==1.0.0\ninmanta-module-fs\n")?;
    world.run("project", &INSTALL)?.done()?;
    world.toy("1.2.0")?;
    world.write_wheel("inmanta-module-fs", "1.3.0", "inmanta-core>=15.0", "inmanta_plugins.fs")?;
    world.project("requirements.txt", "inmanta-module-toy\ninmanta-module-fs\n")?;
    // On a machine without installed packages, so that only the lock file matters.
    world.check_out("other")?;
    let added = world.run("other", &["modules", "add", "user"])?.done()?;
    world.has("other", "inmanta-module-toy", "1.0.0")?;
    world.has("other", "inmanta-module-fs", "1.2.0")?;
    let changes = added.report["lock"]["changes"].as_array().context("changes")?;
    ensure!(changes.len() == 1 && changes[0]["name"] == "inmanta-module-user", "{changes:?}");
    world.run("other", &LOCKED)?.done()?;
    // Only conflicting versions change.
    let text = "inmanta-module-toy>=1.1\ninmanta-module-fs\ninmanta-module-user~=1.0\n";
    fs::write(world.path("other/requirements.txt"), text)?;
    let moved = world.run("other", &INSTALL)?.done()?;
    ensure!(moved.change("inmanta-module-toy") == Some("1.2.0"), "{:#}", moved.report);
    ensure!(moved.changed() == 1, "{:#}", moved.report);
    // Packages that are no longer required leave the lock file.
    fs::write(world.path("other/requirements.txt"), "inmanta-module-toy>=1.1\n")?;
    world.run("other", &INSTALL)?.done()?;
    ensure!(!world.lock("other")?.contains("inmanta-module-fs"), "{}", world.lock("other")?);
    world.run("other", &["modules", "update", "nothing"])?.failed("invalid-requirement")?;
    Ok(())
}

fn another_platform_is_no_false_alarm(world: &mut World) -> Result<()> {
    world.write_wheel("native", "1.0", "", "native")?;
    let any = world.path("wheels/native-1.0-py3-none-any.whl");
    let special = world.path("wheels/native-1.0-py2.py3-none-any.whl");
    fs::rename(&any, world.path("kept.whl"))?;
    world.write_wheel("native", "1.0", "", "native special")?;
    fs::rename(&any, &special)?;
    fs::rename(world.path("kept.whl"), &any)?;
    world.project("requirements.txt", "native\n")?;
    world.run("project", &INSTALL)?.done()?;
    let lock = world.lock("project")?;
    ensure!(lock.contains(&sha256(&any)?) && lock.contains(&sha256(&special)?), "{lock}");
    // A machine that can use only one of them, whichever the first one used.
    for (gone, name) in [(&any, "second"), (&special, "third")] {
        let aside = world.path("aside.whl");
        fs::rename(gone, &aside)?;
        world.check_out(name)?;
        world.run(name, &LOCKED)?.done()?;
        world.has(name, "native", "1.0")?;
        fs::rename(&aside, gone)?;
    }
    Ok(())
}

fn another_python_gets_what_it_needs(world: &mut World) -> Result<()> {
    let (newer, older) = ("3.13", "3.11");
    world.write_wheel("backport", "1.0", "", "backport")?;
    let requires = format!("backport ; python_version < '{newer}'");
    world.write_wheel("marked", "1.0", &requires, "marked")?;
    world.project("requirements.txt", "marked\n")?;
    let with = |python: &'static str| ["modules", "install", "--python", python];
    world.run("project", &with(newer))?.done()?;
    let lock = world.lock("project")?;
    ensure!(lock.contains("python = \"3.13\"") && !lock.contains("backport"), "{lock}");
    // By default, the Python of the lock file is used.
    world.check_out("second")?;
    let second = world.run("second", &LOCKED)?.done()?;
    let python = second.report["python"].as_str().unwrap_or_default();
    ensure!(python.starts_with("3.13"), "{python}");
    // Another Python needs more packages: reported, or added.
    world.check_out("third")?;
    let strict = ["modules", "install", "--locked", "--python", older];
    let refused = world.run("third", &strict)?.failed("lock-incomplete")?;
    let details = refused.report["error"]["details"].as_str().unwrap_or_default();
    ensure!(details == "marked requires backport, which is not installed", "{details}");
    ensure!(!world.path("third/.venv").exists());
    world.run("third", &with(older))?.done()?;
    world.has("third", "backport", "1.0")?;
    let both = world.lock("third")?;
    ensure!(both.contains("name = \"backport\"") && both.contains("python = \"3.13\""), "{both}");
    world.run("third", &strict)?.done()?;
    // The first machine can use that lock file unchanged.
    fs::write(world.path("project/orrery.lock"), &both)?;
    world.run("project", &INSTALL)?.done()?;
    ensure!(world.lock("project")? == both);
    Ok(())
}

pub(crate) fn git(directory: &Path, script: &str) -> Result<String> {
    let configured = format!(
        "git() {{ command git -c user.name=a -c user.email=a@example.org \"$@\"; }}; {script}"
    );
    let output = Command::new("sh").args(["-ec", &configured]).current_dir(directory).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn commits_and_directories_are_locked(world: &mut World) -> Result<()> {
    write_new_module(world)?;
    let shop = world.path("shop");
    fs::create_dir_all(world.path("git"))?;
    let clone = world.path("git/shop");
    git(&shop, "git init --quiet -b main && git add --all && git commit --quiet -m One")?;
    git(&world.path("git"), "git clone --quiet --bare ../shop shop")?;
    let first = git(&shop, "git rev-parse HEAD")?;
    world.project("requirements.txt", &format!("git+file://{}\n", clone.display()))?;
    world.run("project", &INSTALL)?.done()?;
    let lock = world.lock("project")?;
    let source = format!("source = \"git+file://{}@{first}\"", clone.display());
    ensure!(lock.contains(&source), "{lock}");
    git(&shop, "git commit --quiet --allow-empty -m Two && git push --quiet ../git/shop main")?;
    world.check_out("other")?;
    world.run("other", &LOCKED)?.done()?;
    let commit = "import importlib.metadata as m, json; print(json.loads(m.distribution('inmanta-module-shop').read_text('direct_url.json'))['vcs_info']['commit_id'])";
    let ask =
        || Command::new(world.path("other/.venv/bin/python")).args(["-I", "-c", commit]).output();
    ensure!(String::from_utf8(ask()?.stdout)?.trim() == first);
    let again = world.run("other", &INSTALL)?.done()?;
    ensure!(again.changed() == 0 && world.lock("other")? == lock);
    world.run("other", &["modules", "update"])?.done()?;
    let second = git(&shop, "git rev-parse HEAD")?;
    ensure!(world.lock("other")? == lock.replace(&first, &second), "{}", world.lock("other")?);
    ensure!(String::from_utf8(ask()?.stdout)?.trim() == second);

    // A directory is relative to the project, and a change of its requirements is detected.
    world.project("requirements.txt", "-e ../shop\n")?;
    world.run("project", &INSTALL)?.done()?;
    let lock = world.lock("project")?;
    let entry = "name = \"inmanta-module-shop\"\nsource = \"editable+../shop\"\n";
    ensure!(lock.contains(entry), "{lock}");
    world.check_out("other")?;
    world.run("other", &LOCKED)?.done()?;
    let description = fs::read_to_string(shop.join("setup.cfg"))?;
    fs::write(shop.join("setup.cfg"), description + "\n[options.extras]\n")?;
    let refused = world.run("project", &LOCKED)?.failed("lock-outdated")?;
    let message = refused.report["error"]["message"].as_str().unwrap_or_default();
    ensure!(message.contains("../shop/setup.cfg"), "{message}");
    world.run("project", &INSTALL)?.done()?;
    world.run("project", &LOCKED)?.done()?;
    Ok(())
}

fn an_older_generation_stays_locked(world: &mut World) -> Result<()> {
    world.project("project.yml", "name: p\nrequires: [old]\n")?;
    world.run("project", &INSTALL)?.done()?;
    let lock = world.lock("project")?;
    ensure!(
        lock.contains("name = \"inmanta-core\"\nversion = \"13.0.1\"\nsource = \"orrery\""),
        "{lock}"
    );
    world.check_out("other")?;
    world.run("other", &LOCKED)?.done()?;
    world.has("other", "inmanta-core", "13.0.1+orrery.1")?;
    // The real package cannot be installed through the lock file either.
    let wheel = world.path("wheels/inmanta_core-99.0.0-py3-none-any.whl");
    let real =
        format!("version = \"99.0.0\"\nsource = \"index\"\nhashes = [\"{}\"]", sha256(&wheel)?);
    let forged = lock.replace("version = \"13.0.1\"\nsource = \"orrery\"", &real);
    fs::write(world.path("other/orrery.lock"), forged)?;
    world.run("other", &LOCKED)?.failed("real-core")?;
    Ok(())
}

/// A uv that records its calls: the one in the search path, or one that is installed for this test.
fn uv(world: &World) -> Result<Option<PathBuf>> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found =
        std::env::split_paths(&path).map(|dir| dir.join("uv")).find(|one| one.is_file());
    if found.is_none() {
        let venv = world.path("uv");
        let made = Command::new("python3").args(["-I", "-m", "venv"]).arg(&venv).output()?;
        ensure!(made.status.success(), "could not create a virtualenv");
        let done =
            Command::new(venv.join("bin/pip")).args(["install", "--quiet", "uv"]).output()?;
        if !done.status.success() {
            return Ok(None);
        }
        found = Some(venv.join("bin/uv"));
    }
    let real = found.context("no uv")?;
    let script = world.path("uv-wrapper");
    let calls = world.path("calls");
    let text =
        format!("#!/bin/sh\necho \"$@\" >> {}\nexec {} \"$@\"\n", calls.display(), real.display());
    orrery_testing::write_program(&script, &text)?;
    Ok(Some(script))
}

fn uv_and_pip_write_the_same(world: &mut World) -> Result<()> {
    let Some(uv) = uv(world)? else {
        eprintln!(
            "SKIPPED: locking/uv_and_pip_write_the_same: uv is not here and could not be installed"
        );
        return Ok(());
    };
    write_new_module(world)?;
    git(
        &world.path("shop"),
        "git init --quiet -b main && git add --all && git commit --quiet -m One",
    )?;
    let repository = format!("git+file://{}", world.path("shop").display());
    let describe =
        |toy: &str| format!("inmanta-module-toy{toy}\ninmanta-module-messy\n{repository}\n");
    world.project("requirements.txt", &describe("==1.0.0"))?;
    world.check_out("other")?;
    let calls = world.path("calls");
    let both = |world: &mut World, arguments: &[&str]| -> Result<String> {
        world.uv = None;
        world.run("project", arguments)?.done()?;
        ensure!(!calls.exists(), "uv was called though it is forbidden");
        world.uv = Some(uv.clone());
        world.run("other", arguments)?.done()?;
        let called = fs::read_to_string(&calls).unwrap_or_default();
        let _ = fs::remove_file(&calls);
        let (one, other) = (world.lock("project")?, world.lock("other")?);
        ensure!(one == other, "pip:\n{one}\nuv:\n{other}");
        Ok(called)
    };
    let called = both(world, &INSTALL)?;
    ensure!(
        called.contains("pip compile") && called.contains("--require-hashes"),
        "calls of uv: {called}"
    );
    world.has("other", "inmanta-module-toy", "1.0.0")?;
    world.has("other", "inmanta-module-shop", "0.1.0")?;
    // pip was not needed.
    let ask = "import importlib.metadata as m, sys; print(*{m.distribution(n).read_text('INSTALLER').strip() for n in sys.argv[1:]})";
    let output = Command::new(world.path("other/.venv/bin/python"))
        .args(["-I", "-c", ask, "inmanta-module-toy", "inmanta-module-shop", "inmanta-core"])
        .output()?;
    let installer = String::from_utf8(output.stdout)?;
    ensure!(installer.trim() == "uv", "installed by {installer}");
    // Newer releases and looser requirements: locked versions stay with both.
    world.toy("1.2.0")?;
    world.write_wheel("requests", "2.0", "", "requests")?;
    for project in ["project", "other"] {
        fs::write(world.path(project).join("requirements.txt"), describe(">=1.0"))?;
    }
    both(world, &INSTALL)?;
    world.has("other", "inmanta-module-toy", "1.0.0")?;
    both(world, &["modules", "update", "toy"])?;
    world.has("other", "inmanta-module-toy", "1.2.0")?;
    world.has("other", "requests", "1.0")?;
    both(world, &["modules", "update"])?;
    world.has("other", "requests", "2.0")?;

    // Both reject a replaced file.
    write_wheel(&world.path("wheels"), "requests", "2.0", "", "requests evil")?;
    let _ = fs::remove_dir_all(world.path("other/.venv"));
    let refused = world.run("other", &INSTALL)?.failed("hash-mismatch")?;
    let message = refused.report["error"]["message"].as_str().unwrap_or_default();
    ensure!(message.contains("requests 2.0"), "{message}");
    Ok(())
}
