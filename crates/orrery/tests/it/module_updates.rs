//! `orrery modules install` and `update` with obstacles: local work in a clone, missing commits or
//! packages, other file contents. Local work is kept, and the problem is named.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;

use crate::environments::{Answer, World, write_wheel};
use crate::locking::{INSTALL, LOCKED, git, sha256};

type Test = fn(&mut World) -> Result<()>;

pub(crate) fn trials() -> Vec<Trial> {
    let tests: [(&str, Test); 7] = [
        ("local_work_in_a_clone_stays", local_work_in_a_clone_stays),
        ("a_commit_without_a_branch_is_no_local_work", a_commit_without_a_branch_is_no_local_work),
        ("a_named_module_is_updated_or_the_command_fails", named_module_is_updated_or_fails),
        ("an_impossible_module_is_an_error", an_impossible_module_is_an_error),
        ("a_plain_package_is_updated_by_its_name", a_plain_package_is_updated_by_its_name),
        ("what_the_lock_file_lacks_is_named", what_the_lock_file_lacks_is_named),
        ("a_uv_that_is_named_has_to_exist", a_uv_that_is_named_has_to_exist),
    ];
    let trial = |(name, test): (&str, Test)| {
        Trial::test(format!("module_updates/{name}"), move || {
            let mut world = World::new().map_err(|error| format!("{error:#}"))?;
            Ok(test(&mut world).map_err(|error| format!("{error:#}"))?)
        })
    };
    tests.into_iter().map(trial).collect()
}

const UPDATE: [&str; 2] = ["modules", "update"];
const UPDATE_SHOP: [&str; 3] = ["modules", "update", "shop"];

fn message(answer: &Answer) -> &str {
    answer.report["error"]["message"].as_str().unwrap_or_default()
}

fn help(answer: &Answer) -> &str {
    answer.report["error"]["help"].as_str().unwrap_or_default()
}

fn warned(answer: &Answer, text: &str) -> Result<()> {
    let warnings = answer.report["warnings"].as_array().context("warnings")?;
    let found = warnings.iter().any(|one| one.as_str().is_some_and(|one| one.contains(text)));
    ensure!(found, "no warning {text:?}: {warnings:?}");
    Ok(())
}

/// Writes a version of the module `shop` to its repository.
fn publish(world: &World, version: &str) -> Result<()> {
    let repository = world.path("git/shop");
    if !repository.exists() {
        fs::create_dir_all(repository.join("model"))?;
        git(&repository, "git init --quiet -b main")?;
    }
    let description = format!("name: shop\nversion: {version}\nlicense: x\n");
    fs::write(repository.join("module.yml"), description)?;
    fs::write(repository.join("model/_init.cf"), format!("version = \"{version}\"\n"))?;
    git(&repository, &format!("git add --all && git commit -qm {version} && git tag {version}"))?;
    Ok(())
}

fn describe(world: &World, more: &str) -> Result<()> {
    let repositories = world.path("git");
    let text = format!(
        "name: p\nmodulepath: libs\nrepo: [{{url: 'file://{}/{{}}', type: git}}]\n{more}",
        repositories.display()
    );
    world.project("project.yml", &text)?;
    world.project("main.cf", "import shop\n")
}

fn head(clone: &Path) -> Result<String> {
    git(clone, "git rev-parse HEAD")
}

fn local_work_in_a_clone_stays(world: &mut World) -> Result<()> {
    publish(world, "1.0.0")?;
    describe(world, "")?;
    world.run("project", &INSTALL)?.done()?;
    let lock = world.lock("project")?;
    let clone = world.path("project/libs/shop");
    let model = clone.join("model/_init.cf");
    publish(world, "1.1.0")?;

    // Uncommitted changes.
    fs::write(&model, "version = \"mine\"\n")?;
    warned(
        &world.run("project", &UPDATE)?.done()?,
        "module shop is unchanged: it has local changes",
    )?;
    warned(
        &world.run("project", &INSTALL)?.done()?,
        "module shop is unchanged: it has local changes",
    )?;
    let refused = world.run("project", &UPDATE_SHOP)?.failed("changed-module")?;
    ensure!(message(&refused).contains("shop") && message(&refused).contains("local changes"));
    ensure!(help(&refused).contains("push"), "{}", help(&refused));
    ensure!(fs::read_to_string(&model)? == "version = \"mine\"\n");
    ensure!(world.lock("project")? == lock, "{}", world.lock("project")?);
    // The message is readable on a terminal with colours.
    let output = world.command("project", &UPDATE).env("CLICOLOR_FORCE", "1").output()?;
    let said = String::from_utf8(output.stderr)?;
    ensure!(said.contains("is unchanged") && !said.contains('␛'), "{said}");

    // Commits that the repository does not have.
    git(&clone, "git commit --quiet --all -m Mine")?;
    let mine = head(&clone)?;
    warned(
        &world.run("project", &UPDATE)?.done()?,
        "module shop is unchanged: it has local commits",
    )?;
    world.run("project", &UPDATE_SHOP)?.failed("changed-module")?;
    ensure!(head(&clone)? == mine);
    ensure!(world.lock("project")? == lock, "{}", world.lock("project")?);

    // A file that the next version would overwrite.
    git(&clone, "git checkout --quiet --detach 1.0.0")?;
    fs::write(world.path("git/shop/model/extra.cf"), "theirs = 1\n")?;
    publish(world, "1.2.0")?;
    fs::write(clone.join("model/extra.cf"), "mine = 1\n")?;
    warned(&world.run("project", &UPDATE)?.done()?, "module shop is unchanged")?;
    ensure!(fs::read_to_string(clone.join("model/extra.cf"))? == "mine = 1\n");

    // No obstacle is left.
    fs::remove_file(clone.join("model/extra.cf"))?;
    world.run("project", &UPDATE_SHOP)?.done()?;
    ensure!(fs::read_to_string(&model)? == "version = \"1.2.0\"\n");
    ensure!(
        world.lock("project")?
            == lock.replace(&git(&clone, "git rev-parse 1.0.0")?, &head(&clone)?)
    );
    Ok(())
}

/// A locked commit that is on no branch is not local work.
fn a_commit_without_a_branch_is_no_local_work(world: &mut World) -> Result<()> {
    publish(world, "1.0.0")?;
    describe(world, "")?;
    world.run("project", &INSTALL)?.done()?;
    let repository = world.path("git/shop");
    git(&repository, "git config uploadpack.allowAnySHA1InWant true")?;
    git(&repository, "git tag -d 1.0.0 && git commit --quiet --amend --allow-empty -m Again")?;
    fs::remove_dir_all(world.path("project/libs"))?;
    world.run("project", &LOCKED)?.done()?;
    let clone = world.path("project/libs/shop");
    ensure!(head(&clone)? != head(&repository)?);
    world.run("project", &UPDATE_SHOP)?.done()?;
    ensure!(head(&clone)? == head(&repository)?);
    Ok(())
}

fn named_module_is_updated_or_fails(world: &mut World) -> Result<()> {
    publish(world, "1.0.0")?;
    describe(world, "")?;
    world.run("project", &INSTALL)?.done()?;
    let (lock, clone) = (world.lock("project")?, world.path("project/libs/shop"));
    let commit = head(&clone)?;
    publish(world, "1.1.0")?;
    // As without a network.
    let (repository, away) = (world.path("git/shop"), world.path("git/away"));
    fs::rename(&repository, &away)?;
    let unchanged =
        || -> Result<bool> { Ok(world.lock("project")? == lock && head(&clone)? == commit) };
    let refused = world.run("project", &UPDATE_SHOP)?.failed("module-not-updated")?;
    ensure!(
        message(&refused).starts_with("module shop was not updated: "),
        "{}",
        message(&refused)
    );
    ensure!(help(&refused).contains("git fetch"), "{}", help(&refused));
    ensure!(unchanged()?, "something was changed");
    let output = world.command("project", &UPDATE_SHOP).output()?;
    let said = String::from_utf8(output.stderr)?;
    ensure!(output.status.code() == Some(1), "{:?}: {said}", output.status);
    ensure!(said.contains("error: module shop was not updated"), "{said}");
    // An update of everything updates what it can.
    warned(&world.run("project", &UPDATE)?.done()?, "module shop is unchanged: ")?;
    ensure!(unchanged()?, "something was changed");
    fs::rename(&away, &repository)?;
    // A file that the next version would overwrite.
    fs::write(repository.join("model/extra.cf"), "theirs = 1\n")?;
    publish(world, "1.2.0")?;
    fs::write(clone.join("model/extra.cf"), "mine = 1\n")?;
    world.run("project", &UPDATE_SHOP)?.failed("module-not-updated")?;
    ensure!(unchanged()?, "something was changed");
    fs::remove_file(clone.join("model/extra.cf"))?;
    world.run("project", &UPDATE_SHOP)?.done()?;
    ensure!(head(&clone)? == head(&repository)?);
    Ok(())
}

fn an_impossible_module_is_an_error(world: &mut World) -> Result<()> {
    publish(world, "1.0.0")?;
    describe(world, "")?;
    world.run("project", &INSTALL)?.done()?;
    let lock = world.lock("project")?;
    let clone = world.path("project/libs/shop");
    let (commit, gone) = (head(&clone)?, "0123456789".repeat(4));
    let forged = lock.replace(&commit, &gone);
    world.project("orrery.lock", &forged)?;
    for arguments in [&INSTALL[..], &LOCKED] {
        let refused = world.run("project", arguments)?.failed("locked-module")?;
        ensure!(message(&refused).contains("module shop"), "{}", message(&refused));
        ensure!(world.lock("project")? == forged && head(&clone)? == commit);
    }
    world.project("orrery.lock", &lock)?;
    describe(world, "requires: ['shop >= 3']\n")?;
    for arguments in [&INSTALL[..], &UPDATE, &UPDATE_SHOP] {
        let refused = world.run("project", arguments)?.failed("no-module-version")?;
        ensure!(message(&refused).contains("satisfies shop >= 3"), "{}", message(&refused));
        ensure!(world.lock("project")? == lock && head(&clone)? == commit);
    }
    Ok(())
}

fn a_plain_package_is_updated_by_its_name(world: &mut World) -> Result<()> {
    world.write_wheel("text-table", "1.7.2", "", "texttable")?;
    world.project("requirements.txt", "text-table\ninmanta-module-toy==1.0.0\n")?;
    world.run("project", &INSTALL)?.done()?;
    let lock = world.lock("project")?;
    let wheel = world.path("wheels/text_table-1.7.2-py3-none-any.whl");
    let expected = sha256(&wheel)?;
    write_wheel(&world.path("wheels"), "text-table", "1.7.2", "", "texttable more")?;
    world.check_out("other")?;
    let refused = world.run("other", &INSTALL)?.failed("hash-mismatch")?;
    ensure!(help(&refused).contains("`orrery modules update text-table`"), "{}", help(&refused));
    let output = world.command("other", &["modules", "update", "Text_Table"]).output()?;
    let said = String::from_utf8(output.stderr)?;
    ensure!(output.status.success(), "{said}");
    ensure!(said.contains("~ text-table 1.7.2: other files\n"), "{said}");
    ensure!(world.lock("other")? == lock.replace(&expected, &sha256(&wheel)?));
    world.write_wheel("text-table", "1.8", "", "texttable")?;
    let moved = world.run("other", &["modules", "update", "text-table"])?.done()?;
    ensure!(moved.change("text-table") == Some("1.8"), "{:#}", moved.report);
    world.run("other", &["modules", "update", "nothing"])?.failed("invalid-requirement")?;
    Ok(())
}

fn what_the_lock_file_lacks_is_named(world: &mut World) -> Result<()> {
    world.write_wheel("text-table", "1.7.2", "", "texttable")?;
    world.write_wheel("table-user", "1.0", "text-table", "table_user")?;
    world.project("requirements.txt", "table-user\n")?;
    world.run("project", &INSTALL)?.done()?;
    let lock = world.lock("project")?;
    for name in ["text-table", "table-user"] {
        let start = lock.find(&format!("[[package]]\nname = \"{name}\"")).context("no entry")?;
        let end = lock[start + 1..].find("\n[[").map_or(lock.len(), |at| start + at + 2);
        world.check_out("other")?;
        fs::write(world.path("other/orrery.lock"), format!("{}{}", &lock[..start], &lock[end..]))?;
        let refused = world.run("other", &LOCKED)?.failed("lock-incomplete")?;
        ensure!(
            message(&refused) == format!("{name} is missing from orrery.lock"),
            "{}",
            message(&refused)
        );
        ensure!(help(&refused).contains("`orrery modules install`"), "{}", help(&refused));
        world.run("other", &INSTALL)?.done()?;
        ensure!(world.lock("other")? == lock, "{}", world.lock("other")?);
    }
    fs::write(world.path("other/orrery.lock"), lock.replace("1.7.2", "1.7.x2"))?;
    let refused = world.run("other", &INSTALL)?.failed("lock-invalid")?;
    ensure!(message(&refused).contains("text-table"), "{}", message(&refused));
    Ok(())
}

fn a_uv_that_is_named_has_to_exist(world: &mut World) -> Result<()> {
    world.project("requirements.txt", "inmanta-module-toy\n")?;
    for name in ["/nonexistent/uv", "no-such-uv"] {
        world.uv = Some(name.into());
        let refused = world.run("project", &INSTALL)?.failed("no-uv")?;
        ensure!(message(&refused).contains(name), "{}", message(&refused));
        ensure!(help(&refused).contains("ORRERY_UV"), "{}", help(&refused));
        ensure!(!world.path("project/.venv").exists());
    }
    Ok(())
}
