//! Modules from the repositories that `repo` in `project.yml` names, on a server and on a desk.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::{World, git, model, text, update};
use crate::BINARY;

/// A repository with a module that gives a content, in these versions.
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
    // What is not released, and what the project does not allow, is not used; what a module imports is fetched too.
    let sources = module(world, "foo", &["1.0", "1.2", "1.10", "2.0rc1", "3.0"], "import bar\n")?;
    module(world, "bar", &["0.1"], "")?;
    let repository = world.repository("model", "")?;
    project(world, &repository, "requires: ['foo<2']\n")?;
    world.start()?;
    let environment = world.environment(&text(&repository), "main")?;
    let first = world.succeed(&environment, &update())?;
    ensure!(world.wanted(&environment)? == "foo 1.10, bar 0.1", "{}", world.wanted(&environment)?);
    let said = world.output(&first)?;
    ensure!(said.contains("cloned module foo (1.10)"), "{said}");
    // An update brings newer versions.
    module_version(&sources, "1.11")?;
    world.succeed(&environment, &update())?;
    ensure!(world.wanted(&environment)? == "foo 1.11, bar 0.1", "{}", world.wanted(&environment)?);
    for (mode, wanted) in [("prerelease", "foo 2.0rc1"), ("master", "foo 1.11")] {
        let requires = if mode == "prerelease" { "requires: ['foo<2.1']\n" } else { "" };
        project(world, &repository, &format!("install_mode: {mode}\n{requires}"))?;
        world.succeed(&environment, &update())?;
        let found = world.wanted(&environment)?;
        ensure!(found == format!("{wanted}, bar 0.1"), "{mode}: {found}");
    }
    // The same on a desk.
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

pub(super) fn a_module_that_no_repository_has_is_told(world: &mut World) -> Result<()> {
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
