//! Modules from the repositories in `repo` of `project.yml`, on a server and locally.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::{World, git, model, text, update};
use crate::BINARY;
use crate::environments::{write_index, write_packages, write_wheel};

/// A repository with a module in these versions.
fn module(world: &World, name: &str, versions: &[&str], imports: &str) -> Result<PathBuf> {
    let path = world.path(&format!("modules/{name}.git"));
    std::fs::create_dir_all(path.join("model"))?;
    git(&path, &["init", "--quiet", "--initial-branch=master"])?;
    for version in versions {
        let description = format!("name: {name}\nversion: {version}\nlicense: none\n");
        std::fs::write(path.join("module.yml"), description)?;
        let model = format!("{imports}content = \"{name} {version}\"\n");
        std::fs::write(path.join("model/_init.cf"), model)?;
        git(&path, &["add", "--all"])?;
        git(&path, &["commit", "--quiet", "--message=version"])?;
        git(&path, &["tag", version])?;
    }
    Ok(path)
}

fn project(world: &World, repository: &Path, more: &str) -> Result<()> {
    let elsewhere = text(&world.path("elsewhere"));
    let modules = text(&world.path("modules"));
    let description = format!(
        "name: test\nmodulepath: [libs, more]\ndownloadpath: more\nrepo:\n  - file://{elsewhere}/\n  \
         - url: file://{modules}/{{}}.git\n    type: git\n{more}"
    );
    std::fs::write(repository.join("project.yml"), description)?;
    let variables = "import foo\nimport bar\na = foo::content\nb = bar::content\n";
    world.commit(repository, &format!("{variables}{}", model("\"{{a}}, {{b}}\"")))
}

pub(super) fn modules_are_cloned_from_repositories(world: &mut World) -> Result<()> {
    // Unreleased and disallowed versions are not used; imports of modules are fetched, too.
    let sources = module(world, "foo", &["1.0", "1.2", "1.10", "2.0rc1", "3.0"], "import bar\n")?;
    module(world, "bar", &["0.1"], "")?;
    let repository = world.repository("model", "")?;
    project(world, &repository, "requires: ['foo<2']\n")?;
    world.start()?;
    let environment = world.environment(&text(&repository), "main")?;
    let first = world.succeed(&environment, &update())?;
    ensure!(
        world.newest_content(&environment)? == "foo 1.10, bar 0.1",
        "{}",
        world.newest_content(&environment)?
    );
    let said = world.output(&first)?;
    ensure!(said.contains("cloned module foo (1.10)"), "{said}");
    // An update brings newer versions.
    module_version(&sources, "1.11")?;
    world.succeed(&environment, &update())?;
    ensure!(
        world.newest_content(&environment)? == "foo 1.11, bar 0.1",
        "{}",
        world.newest_content(&environment)?
    );
    for (mode, wanted) in [("prerelease", "foo 2.0rc1"), ("master", "foo 1.11")] {
        let requires = if mode == "prerelease" { "requires: ['foo<2.1']\n" } else { "" };
        project(world, &repository, &format!("install_mode: {mode}\n{requires}"))?;
        world.succeed(&environment, &update())?;
        let found = world.newest_content(&environment)?;
        ensure!(found == format!("{wanted}, bar 0.1"), "{mode}: {found}");
    }
    // The same locally.
    project(world, &repository, "requires: ['foo==1.2']\n")?;
    let install =
        || Command::new(BINARY).current_dir(&repository).args(["modules", "install"]).output();
    let done = install()?;
    ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let description = std::fs::read_to_string(repository.join("more/foo/module.yml"))?;
    ensure!(description.contains("version: 1.2\n"), "{description}");
    let again = install()?;
    ensure!(!String::from_utf8_lossy(&again.stderr).contains("cloned"), "{again:?}");
    Ok(())
}

fn module_version(path: &Path, version: &str) -> Result<()> {
    std::fs::write(
        path.join("model/_init.cf"),
        format!("import bar\ncontent = \"foo {version}\"\n"),
    )?;
    git(path, &["commit", "--quiet", "--all", "--message=version"])?;
    git(path, &["tag", version])
}

pub(super) fn a_module_without_a_repository_is_reported(world: &mut World) -> Result<()> {
    module(world, "foo", &["1.0"], "")?;
    let repository = world.repository("model", "")?;
    project(world, &repository, "")?;
    world.start()?;
    let environment = world.environment(&text(&repository), "main")?;
    let failed = world.compile(&environment, &update())?;
    ensure!(failed.success == Some(false), "{failed:?}");
    let data = failed.data.clone().context("errors")?.to_string();
    ensure!(data.contains("bar"), "{data}");
    let said = world.output(&failed)?;
    let (one, other) = (world.path("elsewhere/bar"), world.path("modules/bar.git"));
    ensure!(said.contains("no repository of project.yml has module bar"), "{said}");
    ensure!(said.contains(&text(&one)) && said.contains(&text(&other)), "{said}");
    ensure!(!said.contains("has module foo"), "{said}");
    Ok(())
}

/// Git runs with the server's rights: paths outside of the checkout are neither written nor used.
pub(super) fn modules_are_cloned_into_the_checkout_only(world: &mut World) -> Result<()> {
    module(world, "foo", &["1.0"], "")?;
    let repository = world.repository("model", "")?;
    let outside = world.path("outside");
    world.start()?;
    let environment = world.environment(&text(&repository), "main")?;
    let modules = text(&world.path("modules"));
    let shown = text(&outside);
    let linked = repository.join("linked");
    for (paths, links) in [
        (format!("modulepath: libs\ndownloadpath: {shown}\n"), false),
        (format!("modulepath: [{shown}, libs]\n"), false),
        ("modulepath: libs\ndownloadpath: ../../outside\n".to_owned(), false),
        ("modulepath: libs\ndownloadpath: libs/../../../outside\n".to_owned(), false),
        ("modulepath: libs\ndownloadpath: linked/outside\n".to_owned(), true),
    ] {
        if links {
            std::os::unix::fs::symlink(world.path(""), &linked)?;
        }
        let description = format!("name: test\n{paths}repo: file://{modules}/{{}}.git\n");
        std::fs::write(repository.join("project.yml"), description)?;
        world.commit(&repository, "import foo\n")?;
        let failed = world.compile(&environment, &update())?;
        ensure!(failed.success == Some(false), "{paths}: {failed:?}");
        let said = world.output(&failed)?;
        ensure!(!said.contains("cloned module"), "{paths}: {said}");
        ensure!(!outside.exists(), "{paths}: {said}");
        let data = failed.data.clone().context("errors")?.to_string();
        ensure!(
            links || format!("{data}{said}").contains("outside of the repository"),
            "{data}{said}"
        );
        let root = world.directory.path();
        let escaped: Vec<PathBuf> = walk(root, "outside")?;
        ensure!(escaped.is_empty(), "{paths}: {escaped:?}");
    }
    Ok(())
}

/// All directories of this name below another one.
fn walk(root: &Path, name: &str) -> Result<Vec<PathBuf>> {
    let (mut found, mut pending) = (Vec::new(), vec![root.to_owned()]);
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(&directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                if entry.file_name() == name {
                    found.push(entry.path());
                }
                pending.push(entry.path());
            }
        }
    }
    Ok(found)
}

/// `orrery modules`, in the directory of a project.
fn modules(directory: &Path, arguments: &[&str]) -> Result<(bool, String)> {
    let output = Command::new(BINARY)
        .arg("modules")
        .args(arguments)
        .current_dir(directory)
        .env_remove("VIRTUAL_ENV")
        .env("ORRERY_UV", "0")
        .output()?;
    Ok((output.status.success(), String::from_utf8(output.stderr)?))
}

fn done(directory: &Path, arguments: &[&str]) -> Result<String> {
    let (success, said) = modules(directory, arguments)?;
    ensure!(success, "{said}");
    Ok(said)
}

/// The commit of a cloned module is the same on all machines until an update.
pub(super) fn cloned_modules_are_locked(world: &mut World) -> Result<()> {
    let sources = module(world, "foo", &["1.0", "1.10"], "import bar\n")?;
    module(world, "bar", &["0.1"], "")?;
    let repository = world.repository("model", "")?;
    std::fs::write(repository.join(".gitignore"), "/more/\n/.venv/\n")?;
    project(world, &repository, "requires: ['foo<2']\n")?;
    done(&repository, &["install"])?;
    let lock = std::fs::read_to_string(repository.join("orrery.lock"))?;
    let commit = |of: &Path| -> Result<String> {
        let output =
            Command::new("git").args(["rev-parse", "HEAD"]).current_dir(of).output()?.stdout;
        Ok(String::from_utf8(output)?.trim().to_owned())
    };
    let first = commit(&sources)?;
    let entry =
        format!("[[module]]\nname = \"foo\"\nsource = \"git+file://{}@{first}\"\n", text(&sources));
    ensure!(lock.contains(&entry) && lock.contains("name = \"bar\""), "{lock}");
    git(&repository, &["add", "--all"])?;
    git(&repository, &["commit", "--quiet", "--message=lock"])?;

    // A newer version appears; neither an updating server nor another checkout uses it.
    module_version(&sources, "1.11")?;
    world.start()?;
    let environment = world.environment(&text(&repository), "main")?;
    world.succeed(&environment, &update())?;
    ensure!(
        world.newest_content(&environment)? == "foo 1.10, bar 0.1",
        "{}",
        world.newest_content(&environment)?
    );
    world.succeed(&environment, &update())?;
    ensure!(
        world.newest_content(&environment)? == "foo 1.10, bar 0.1",
        "{}",
        world.newest_content(&environment)?
    );
    let other = world.path("other");
    git(&world.path(""), &["clone", "--quiet", &text(&repository), &text(&other)])?;
    done(&other, &["install", "--locked"])?;
    ensure!(commit(&other.join("more/foo"))? == first);

    // An update changes the lock file, which all machines follow.
    let said = done(&repository, &["update", "foo"])?;
    ensure!(said.contains("~ module foo"), "{said}");
    world.commit(&repository, &std::fs::read_to_string(repository.join("main.cf"))?)?;
    world.succeed(&environment, &update())?;
    ensure!(
        world.newest_content(&environment)? == "foo 1.11, bar 0.1",
        "{}",
        world.newest_content(&environment)?
    );
    git(&other, &["pull", "--quiet"])?;
    done(&other, &["install", "--locked"])?;
    ensure!(commit(&other.join("more/foo"))? == commit(&sources)?);

    // A modified clone is not changed and not treated as locked.
    std::fs::write(other.join("more/foo/model/_init.cf"), "import bar\ncontent = \"mine\"\n")?;
    let (success, said) = modules(&other, &["install", "--locked"])?;
    ensure!(!success && said.contains("it has local changes"), "{said}");
    done(&other, &["install"])?;
    let kept = std::fs::read_to_string(other.join("more/foo/model/_init.cf"))?;
    ensure!(kept.contains("mine"), "{kept}");

    // An unsatisfied requirement and an unlocked module are reported.
    project(world, &repository, "requires: ['foo==1.10']\n")?;
    let failed = world.compile(&environment, &update())?;
    ensure!(failed.success == Some(false), "{failed:?}");
    let said = world.output(&failed)?;
    ensure!(said.contains("does not satisfy foo ==1.10"), "{said}");
    done(&repository, &["install"])?;
    world.commit(&repository, &std::fs::read_to_string(repository.join("main.cf"))?)?;
    world.succeed(&environment, &update())?;
    ensure!(
        world.newest_content(&environment)? == "foo 1.10, bar 0.1",
        "{}",
        world.newest_content(&environment)?
    );
    module(world, "baz", &["1.0"], "")?;
    let model = std::fs::read_to_string(repository.join("main.cf"))?;
    world.commit(&repository, &format!("import baz\n{model}"))?;
    let failed = world.compile(&environment, &update())?;
    let said = world.output(&failed)?;
    ensure!(failed.success == Some(false) && said.contains("module baz is not in it"), "{said}");
    ensure!(said.contains("run `orrery modules install`, and commit orrery.lock"), "{said}");
    Ok(())
}

/// A server installs the committed lock file, and nothing if it is out of date.
pub(super) fn a_server_honours_the_lock_file(world: &mut World) -> Result<()> {
    let (wheels, index) = (world.path("wheels"), world.path("simple"));
    write_packages(&wheels)?;
    write_index(&wheels, &index)?;
    let repository = world.repository("model", "")?;
    std::fs::write(repository.join(".gitignore"), "/.venv/\n")?;
    let describe = |requires: &str| {
        let text = format!(
            "name: test\nmodulepath: libs\nrequires: {requires}\npip:\n  index-url: file://{}\n",
            text(&index)
        );
        std::fs::write(repository.join("project.yml"), text)
    };
    describe("[toy]")?;
    let said = done(&repository, &["install"])?;
    ensure!(said.contains("created orrery.lock"), "{said}");
    world.commit(&repository, &format!("import toy\n{}", model("\"one\"")))?;
    write_wheel(
        &wheels,
        "inmanta-module-toy",
        "1.2.0",
        "inmanta-core>=15.0",
        "inmanta_plugins.toy",
    )?;
    write_index(&wheels, &index)?;
    world.show(wheels.clone());
    world.show(index.clone());
    world.start()?;
    let environment = world.environment(&text(&repository), "main")?;
    let first = world.succeed(&environment, &update())?;
    let said = world.output(&first)?;
    ensure!(said.contains("+ inmanta-module-toy 1.1.0"), "{said}");
    let again = world.succeed(&environment, &update())?;
    let said = world.output(&again)?;
    ensure!(!said.contains("inmanta-module-toy 1."), "{said}");

    describe("[toy, fs]")?;
    world.commit(&repository, &format!("import toy\n{}", model("\"two\"")))?;
    let failed = world.compile(&environment, &update())?;
    let said = world.output(&failed)?;
    ensure!(failed.success == Some(false), "{failed:?}");
    ensure!(said.contains("orrery.lock is out of date"), "{said}");
    ensure!(said.contains("run `orrery modules install`, and commit orrery.lock"), "{said}");
    ensure!(world.newest_content(&environment)? == "one");
    done(&repository, &["install"])?;
    world.commit(&repository, &format!("import toy\n{}", model("\"two\"")))?;
    let last = world.succeed(&environment, &update())?;
    let said = world.output(&last)?;
    ensure!(said.contains("+ inmanta-module-fs 1.2.0"), "{said}");
    ensure!(world.newest_content(&environment)? == "two");
    // Without a lock file, a server resolves versions and leaves no lock file.
    std::fs::remove_file(repository.join("orrery.lock"))?;
    world.commit(&repository, &format!("import toy\n{}", model("\"three\"")))?;
    let last = world.succeed(&environment, &update())?;
    let said = world.output(&last)?;
    ensure!(said.contains("inmanta-module-toy 1.1.0 → 1.2.0"), "{said}");
    let again = world.succeed(&environment, &update())?;
    let said = world.output(&again)?;
    ensure!(!said.contains("orrery.lock"), "{said}");
    Ok(())
}
