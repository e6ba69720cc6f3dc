//! `orrery modules install`, `add` and `update`, with a real pip and packages that these tests
//! write: nothing is downloaded. The index has a newer real `inmanta-core`, which must never be
//! installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::Trial;
use serde_json::Value;

use crate::BINARY;

type Test = fn(&World) -> Result<()>;

pub(crate) fn trials() -> Vec<Trial> {
    let tests: [(&str, Test); 7] = [
        (
            "modules_are_added_from_directories_and_repositories",
            modules_are_added_from_directories_and_repositories,
        ),
        ("a_project_gets_what_it_asks_for", a_project_gets_what_it_asks_for),
        ("nothing_changes_when_something_is_wrong", nothing_changes_when_something_is_wrong),
        ("an_older_generation_gets_an_older_stand_in", an_older_generation_gets_an_older_stand_in),
        ("a_real_core_is_refused", a_real_core_is_refused),
        ("the_index_of_a_project_counts_alone", the_index_of_a_project_counts_alone),
        ("a_new_module_is_installed_as_it_is_written", a_new_module_is_installed_as_it_is_written),
    ];
    let trial = |(name, test): (&str, Test)| {
        Trial::test(format!("environments/{name}"), move || {
            let world = World::new().map_err(|error| format!("{error:#}"))?;
            Ok(test(&world).map_err(|error| format!("{error:#}"))?)
        })
    };
    tests.into_iter().map(trial).collect()
}

/// Writes a wheel: directory, name, version, requirements separated by `|`, and top-level packages.
const WRITE_WHEEL: &str = r#"
import pathlib, sys, zipfile
directory, name, version, requires, *packages = sys.argv[1:]
stem = f"{name.replace('-', '_')}-{version}"
lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
lines += [f"Requires-Dist: {one}" for one in requires.split("|") if one]
files = {f"{stem}.dist-info/METADATA": "\n".join(lines) + "\n",
         f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
for package in packages:
    files[package.replace(".", "/") + "/__init__.py"] = ""
module = name.removeprefix("inmanta-module-").replace("-", "_")
if f"inmanta_plugins.{module}" in packages:
    root = f"inmanta_plugins/{module}"
    files[f"{root}/setup.cfg"] = f"[metadata]\nname = {name}\nversion = {version}\nlicense = x\n"
    files[f"{root}/model/_init.cf"] = "entity Thing:\nend\nimplement Thing using std::none\n"
files[f"{stem}.dist-info/RECORD"] = "".join(f"{path},,\n" for path in files)
with zipfile.ZipFile(pathlib.Path(directory) / f"{stem}-py3-none-any.whl", "w") as archive:
    for path, text in files.items():
        archive.writestr(path, text)
"#;

/// Packages that modules use without requiring them, as dependencies of the replaced package.
const BROUGHT_ALONG: [&str; 9] = [
    "click",
    "email-validator",
    "Jinja2",
    "pydantic",
    "python-dateutil",
    "PyYAML",
    "requests",
    "texttable",
    "typing-inspect",
];

/// A machine with packages, an SDK, and a project.
pub(crate) struct World {
    scratch: tempfile::TempDir,
    /// The uv to use; pip if there is none.
    pub(crate) uv: Option<PathBuf>,
}

/// Writes a package index: some modules, and the packages that all of them use.
pub(crate) fn write_packages(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory)?;
    let wheels = [
        ("inmanta-core", "99.0.0", "", "inmanta"),
        ("inmanta-module-toy", "1.0.0", "inmanta-core>=15.0", "inmanta_plugins.toy"),
        ("inmanta-module-toy", "1.1.0", "inmanta-core>=15.0", "inmanta_plugins.toy"),
        ("inmanta-module-old", "1.0.0", "inmanta-core<14,>=8.7.0.dev", "inmanta_plugins.old"),
        ("inmanta-module-fs", "1.2.0", "inmanta-core>=15.0", "inmanta_plugins.fs"),
        ("inmanta-module-messy", "1.0.0", "inmanta-module-toy", "inmanta_plugins.messy irt"),
    ];
    for (name, version, requires, packages) in wheels {
        write_wheel(directory, name, version, requires, packages)?;
    }
    for name in BROUGHT_ALONG {
        write_wheel(directory, name, "1.0", "", &name.to_lowercase().replace('-', "_"))?;
    }
    Ok(())
}

/// Writes the HTML pages of an index for a directory of packages.
pub(crate) fn write_index(wheels: &Path, index: &Path) -> Result<()> {
    for entry in fs::read_dir(wheels)?.flatten() {
        let file = entry.file_name().to_string_lossy().into_owned();
        let name = file.split('-').next().unwrap_or_default().to_lowercase().replace('_', "-");
        let page = index.join(name);
        fs::create_dir_all(&page)?;
        fs::copy(entry.path(), page.join(&file))?;
        let listed = fs::read_to_string(page.join("index.html")).unwrap_or_default();
        if !listed.contains(&file) {
            let listed = format!("{listed}<a href=\"{file}\">{file}</a>\n");
            fs::write(page.join("index.html"), listed)?;
        }
    }
    Ok(())
}

pub(crate) fn write_wheel(
    directory: &Path,
    name: &str,
    version: &str,
    requires: &str,
    packages: &str,
) -> Result<()> {
    let status = Command::new("python3")
        .args(["-I", "-c", WRITE_WHEEL])
        .arg(directory)
        .args([name, version, requires])
        .args(packages.split(' '))
        .status()
        .context("these tests need a python3")?;
    ensure!(status.success(), "could not write a wheel");
    Ok(())
}

impl World {
    pub(crate) fn new() -> Result<Self> {
        let world = World { scratch: tempfile::tempdir()?, uv: None };
        for dir in ["wheels", "project", "sdk/inmanta", "sdk/orrery_sdk"] {
            fs::create_dir_all(world.path(dir))?;
        }
        fs::write(world.path("sdk/inmanta/__init__.py"), "ORRERY = True\n")?;
        fs::write(world.path("sdk/orrery_sdk/__init__.py"), "")?;
        fs::write(world.path("project/project.yml"), "name: p\nmodulepath: libs\n")?;
        fs::write(world.path("project/main.cf"), "")?;
        write_packages(&world.path("wheels"))?;
        Ok(world)
    }

    pub(crate) fn path(&self, inside: &str) -> PathBuf {
        self.scratch.path().join(inside)
    }

    pub(crate) fn write_wheel(
        &self,
        name: &str,
        version: &str,
        requires: &str,
        packages: &str,
    ) -> Result<()> {
        write_wheel(&self.path("wheels"), name, version, requires, packages)
    }

    pub(crate) fn project(&self, file: &str, text: &str) -> Result<()> {
        let path = self.path("project").join(file);
        fs::create_dir_all(path.parent().context("no directory")?)?;
        Ok(fs::write(path, text)?)
    }

    /// The program in a directory, with the packages and the SDK of this world.
    pub(crate) fn command(&self, directory: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command
            .args(arguments)
            .current_dir(self.path(directory))
            .env_remove("VIRTUAL_ENV")
            .env("ORRERY_SDK", self.path("sdk"))
            .env("PIP_CONFIG_FILE", "/dev/null")
            .env("PIP_NO_INDEX", "1")
            .env("PIP_FIND_LINKS", self.path("wheels"))
            .env("ORRERY_UV", self.uv.as_deref().unwrap_or(Path::new("0")));
        command
    }

    pub(crate) fn run(&self, directory: &str, arguments: &[&str]) -> Result<Answer> {
        let output = self.command(directory, arguments).arg("--json").output()?;
        let text = String::from_utf8(output.stdout)?;
        let report = serde_json::from_str(&text)
            .with_context(|| format!("{text}\n{}", String::from_utf8_lossy(&output.stderr)))?;
        Ok(Answer { report, code: output.status.code().unwrap_or(-1) })
    }
}

pub(crate) struct Answer {
    pub(crate) report: Value,
    code: i32,
}

impl Answer {
    pub(crate) fn done(self) -> Result<Self> {
        ensure!(self.code == 0 && self.report["status"] == "ok", "{:#}", self.report);
        Ok(self)
    }

    pub(crate) fn failed(self, class: &str) -> Result<Self> {
        let found = self.report["error"]["class"].as_str();
        ensure!(self.code == 1 && found == Some(class), "{:#}", self.report);
        Ok(self)
    }

    /// Version of a changed package after the change.
    pub(crate) fn change(&self, name: &str) -> Option<&str> {
        let changes = self.report["changes"].as_array()?;
        changes.iter().find(|change| change["name"] == name)?["after"].as_str()
    }

    pub(crate) fn changed(&self) -> usize {
        self.report["changes"].as_array().map_or(0, Vec::len)
    }
}

/// Installed version of a package in a virtualenv.
pub(crate) fn installed(environment: &Path, package: &str) -> Result<String> {
    let question = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))";
    let output = Command::new(environment.join("bin/python"))
        .args(["-I", "-c", question, package])
        .output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Other pip configuration applies only if the project allows it.
fn the_index_of_a_project_counts_alone(world: &World) -> Result<()> {
    write_index(&world.path("wheels"), &world.path("simple"))?;
    // All other sources of pip have another version, which must not be used.
    world.write_wheel(
        "inmanta-module-toy",
        "9.9.0",
        "inmanta-core>=15.0",
        "inmanta_plugins.toy",
    )?;
    let index = format!("file://{}", world.path("simple").display());
    let describe = |more: &str| {
        let text = format!(
            "name: p\nmodulepath: libs\nrequires: [toy]\npip:\n  index-url: {index}\n{more}"
        );
        world.project("project.yml", &text)
    };
    describe("")?;
    let alone = world.run("project", &["modules", "install"])?.done()?;
    assert_eq!(alone.change("inmanta-module-toy"), Some("1.1.0"));
    describe("  use-system-config: true\n")?;
    let both = world.run("project", &["modules", "update"])?.done()?;
    assert_eq!(both.change("inmanta-module-toy"), Some("9.9.0"));
    Ok(())
}

fn a_project_gets_what_it_asks_for(world: &World) -> Result<()> {
    world.project("main.cf", "import own\nimport toy\nimport absent\n")?;
    world.project("requirements.txt", "inmanta-module-toy==1.0.0\n")?;
    world.project(
        "libs/own/module.yml",
        "name: own\nversion: 1.0\nlicense: x\nrequires: [messy, std]\n",
    )?;
    world.project("libs/own/model/_init.cf", "import messy\n")?;
    let first = world.run("project", &["modules", "install"])?.done()?;
    assert_eq!(first.report["created"], true);
    assert_eq!(first.change("inmanta-module-toy"), Some("1.0.0"));
    assert_eq!(first.change("inmanta-module-messy"), Some("1.0.0"));
    assert_eq!(first.change("inmanta-core"), Some("20.1.0+orrery.1"));
    assert_eq!(first.change("PyYAML"), Some("1.0"));
    assert_eq!(first.report["missing"], serde_json::json!(["absent"]));
    let warning = first.report["warnings"][0].as_str().unwrap_or_default();
    assert!(warning.starts_with("inmanta-module-messy 1.0.0 contains"), "{warning}");
    assert!(warning.ends_with(": irt"), "{warning}");

    let environment = world.path("project/.venv");
    let beside = fs::read_dir(world.path("project"))?.flatten();
    assert!(
        beside.into_iter().all(|entry| !entry.file_name().to_string_lossy().contains("orrery-"))
    );
    let imported = Command::new(environment.join("bin/python"))
        .args(["-I", "-c", "import inmanta; print(inmanta.ORRERY)"])
        .output()?;
    assert_eq!(imported.stdout, b"True\n");
    // Programs in the virtualenv have correct paths.
    let pip = Command::new(environment.join("bin/pip")).arg("--version").output()?;
    assert!(String::from_utf8(pip.stdout)?.contains(&environment.display().to_string()));

    let again = world.run("project", &["modules", "install"])?.done()?;
    assert_eq!((&again.report["created"], again.changed()), (&Value::Bool(false), 0));

    world.project("requirements.txt", "inmanta-module-toy\n")?;
    let stays = world.run("project", &["modules", "install"])?.done()?;
    assert_eq!(stays.changed(), 0, "{:#}", stays.report);
    let newer = world.run("project", &["modules", "update", "toy"])?.done()?;
    assert_eq!((newer.change("inmanta-module-toy"), newer.changed()), (Some("1.1.0"), 1));

    // A change of the SDK alone is detected.
    fs::write(world.path("sdk/orrery_sdk/more.py"), "")?;
    let sdk = world.run("project", &["modules", "install"])?.done()?;
    assert!(sdk.changed() == 1 && sdk.change("orrery-sdk").is_some(), "{:#}", sdk.report);

    // Manual calls of pip do not install the real one either.
    let upgraded = Command::new(environment.join("bin/pip"))
        .args(["install", "--quiet", "--no-index", "--find-links"])
        .arg(world.path("wheels"))
        .args(["--upgrade", "inmanta-core"])
        .env_remove("PIP_CONFIG_FILE")
        .output()?;
    assert_eq!(installed(&environment, "inmanta-core")?, "20.1.0+orrery.1", "{upgraded:?}");
    Ok(())
}

fn nothing_changes_when_something_is_wrong(world: &World) -> Result<()> {
    world.project("requirements.txt", "inmanta-module-nowhere\n")?;
    let absent = world.run("project", &["modules", "install"])?.failed("package-not-found")?;
    let said = absent.report["error"]["details"].as_str().unwrap_or_default();
    assert!(said.contains("No matching distribution found for inmanta-module-nowhere"), "{said}");
    assert!(
        !world.path("project/.venv").exists() && !world.path("project/.venv.orrery-new").exists()
    );

    world.project("requirements.txt", "# kept\n")?;
    let added = world.run("project", &["modules", "add", "toy"])?.done()?;
    assert_eq!(added.change("inmanta-module-toy"), Some("1.1.0"));
    let requirements = world.path("project/requirements.txt");
    assert_eq!(fs::read_to_string(&requirements)?, "# kept\ninmanta-module-toy~=1.1\n");
    let noted = world.run("project", &["modules", "install"])?.done()?;
    assert_eq!(noted.changed(), 0);

    let conflict = world.run("project", &["modules", "add", "old"])?.failed("conflict")?;
    let said = conflict.report["error"]["details"].as_str().unwrap_or_default();
    assert!(said.contains("inmanta-module-old 1.0.0 depends on inmanta-core<14"), "{said}");
    assert_eq!(fs::read_to_string(&requirements)?, "# kept\ninmanta-module-toy~=1.1\n");
    let left = fs::read_dir(world.path("project"))?.flatten();
    let drafts =
        left.filter(|entry| entry.file_name().to_string_lossy().starts_with(".requirements"));
    assert_eq!(drafts.count(), 0);
    world.run("project", &["modules", "add", "a b"])?.failed("invalid-requirement")?;
    let noted = world.run("project", &["modules", "install"])?.done()?;
    assert_eq!(noted.changed(), 0);
    Ok(())
}

fn an_older_generation_gets_an_older_stand_in(world: &World) -> Result<()> {
    world.project("project.yml", "name: p\nrequires: [old]\n")?;
    let done = world.run("project", &["modules", "install", "--python", "python3"])?.done()?;
    assert_eq!(done.change("inmanta-core"), Some("13.0.1+orrery.1"));
    let again = world.run("project", &["modules", "update"])?.done()?;
    assert_eq!(again.changed(), 0);
    Ok(())
}

fn a_real_core_is_refused(world: &World) -> Result<()> {
    let environment = world.path("project/.env");
    let site = environment.join("lib/python3.13/site-packages");
    let made = Command::new("python3").args(["-I", "-m", "venv"]).arg(&environment).status()?;
    ensure!(made.success(), "could not create a virtualenv");
    let found = fs::read_dir(environment.join("lib"))?.flatten().next().context("no Python")?;
    let site = if site.is_dir() { site } else { found.path().join("site-packages") };
    let info = site.join("inmanta_core-14.0.0.dist-info");
    fs::create_dir(&info)?;
    fs::write(
        info.join("METADATA"),
        "Metadata-Version: 2.1\nName: inmanta-core\nVersion: 14.0.0\n",
    )?;
    world.project("requirements.txt", "inmanta-module-toy\n")?;
    let refused = world.run("project", &["modules", "install"])?.failed("real-core")?;
    let message = refused.report["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("contains inmanta-core 14.0.0"), "{message}");
    assert_eq!(installed(&environment, "inmanta-module-toy")?, "");
    Ok(())
}

/// `orrery modules new shop`, with a package that builds without a download.
pub(crate) fn write_new_module(world: &World) -> Result<()> {
    let new = Command::new(BINARY)
        .args(["module", "new", "shop"])
        .current_dir(world.scratch.path())
        .output()?;
    if !new.status.success() {
        bail!("{}", String::from_utf8_lossy(&new.stderr));
    }
    // Nothing can be downloaded: the build backend is written by these tests.
    let backend = world.path("shop/backend.py");
    fs::write(
        &backend,
        r#"
import pathlib, zipfile
ROOT = pathlib.Path(__file__).parent
def build_editable(directory, config_settings=None, metadata_directory=None):
    name = "inmanta_module_shop-0.1.0-py3-none-any.whl"
    info = "inmanta_module_shop-0.1.0.dist-info"
    files = {"shop.pth": str(ROOT) + "\n",
             f"{info}/METADATA": "Metadata-Version: 2.1\nName: inmanta-module-shop\nVersion: 0.1.0\nRequires-Dist: inmanta-core\n",
             f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in files)
    with zipfile.ZipFile(pathlib.Path(directory) / name, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return name
build_wheel = build_editable
"#,
    )?;
    fs::write(
        world.path("shop/pyproject.toml"),
        "[build-system]\nrequires = []\nbuild-backend = \"backend\"\nbackend-path = [\".\"]\n",
    )?;
    Ok(())
}

/// From a directory, which is used in place, and from a repository; the requirements file keeps its
/// mode.
fn modules_are_added_from_directories_and_repositories(world: &World) -> Result<()> {
    write_new_module(world)?;
    let added = world.run("project", &["modules", "add", "../shop"])?.done()?;
    assert_eq!(added.change("inmanta-module-shop"), Some("0.1.0"));
    let path = world.path("project/requirements.txt");
    assert_eq!(fs::read_to_string(&path)?, "-e ../shop\n");
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path)?.permissions());
    assert_eq!(mode & 0o777, 0o644);
    // The same from another directory changes nothing.
    fs::create_dir_all(world.path("project/deep"))?;
    world.run("project/deep", &["modules", "add", "../../shop"])?.done()?;
    assert_eq!(fs::read_to_string(&path)?, "-e ../shop\n");

    let shop = world.path("shop");
    let script = "git init --quiet -b main && git add --all && git -c user.name=a -c user.email=a@example.org commit --quiet -m Shop";
    let status = Command::new("sh").args(["-c", script]).current_dir(&shop).status()?;
    ensure!(status.success(), "git");
    let address = format!("git+file://{}", shop.display());
    fs::write(&path, "")?;
    world.run("project", &["modules", "add", &address])?.done()?;
    assert_eq!(fs::read_to_string(&path)?, format!("{address}\n"));

    // If a module is beside the project, its name installs nothing from elsewhere.
    world.project("main.cf", "import shop\n")?;
    let output = Command::new(BINARY)
        .args(["compile", "--python-env", "/nowhere"])
        .current_dir(world.path("project"))
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(said.contains("`orrery modules add ../shop` uses it"), "{said}");
    Ok(())
}

fn a_new_module_is_installed_as_it_is_written(world: &World) -> Result<()> {
    write_new_module(world)?;
    world.write_wheel("pytest", "9.0.0", "", "pytest")?;
    let done = world.run("shop/tests", &["modules", "install"])?.done()?;
    assert_eq!(done.change("inmanta-module-shop"), Some("0.1.0"));
    assert_eq!(done.change("pytest"), Some("9.0.0"));
    assert!(done.change("orrery-sdk").is_some());

    world.project("main.cf", "import shop\n")?;
    let listed = Command::new(BINARY)
        .args(["modules", "list", "--json", "--python-env"])
        .arg(world.path("shop/.venv"))
        .current_dir(world.path("project"))
        .output()?;
    let listed: Value = serde_json::from_slice(&listed.stdout)?;
    let shop = listed.as_array().context("no list")?.iter().find(|module| module["name"] == "shop");
    assert_eq!(shop.context("the module is not found")?["version"], "0.1.0");
    Ok(())
}
