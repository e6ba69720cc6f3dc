//! Virtualenvs with the requirements of handlers: created once under concurrency, removed when
//! unused.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use orrery_model::PipSettings;
use orrery_pyenv::interpreters::Interpreter;
use orrery_pyenv::{InstalledModule, VirtualEnvSpec, VirtualEnvs, installed_module};

fn needs<'n>(requirements: &'n [String], pip: &'n PipSettings) -> VirtualEnvSpec<'n> {
    VirtualEnvSpec { requirements, modules: &[], sources: Vec::new(), pip }
}

/// Writes a package that can be installed without any network.
fn wheel(dir: &Path) {
    package(dir, "tiny_thing", "1.0", "tiny_thing.py", "answer = 42\n", &[]);
}

/// Writes a package with one file and requirements.
fn package(dir: &Path, name: &str, version: &str, file: &str, content: &str, requires: &[&str]) {
    let script = r#"
import sys, zipfile
place, name, version, file, content, *requires = sys.argv[1:]
with zipfile.ZipFile(f"{place}/{name}-{version}-py3-none-any.whl", "w") as wheel:
    info = f"{name}-{version}.dist-info/"
    wheel.writestr(file, content)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {one}" for one in requires)]
    wheel.writestr(info + "METADATA", "\n".join(lines) + "\n")
    wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(info + "RECORD", f"{file},,\n{info}METADATA,,\n{info}WHEEL,,\n{info}RECORD,,\n")
"#;
    let mut write = Command::new("python3");
    write.args(["-c", script]).arg(dir).args([name, version, file, content]).args(requires);
    assert!(write.status().unwrap().success());
}

#[test]
fn a_virtualenv_is_created_once_and_removed_when_unused() {
    let dir = tempfile::tempdir().unwrap();
    wheel(dir.path());
    let base = Interpreter::find(None).unwrap();
    let offline = ["--no-index".to_owned(), format!("--find-links={}", dir.path().display())];
    let environments = VirtualEnvs::new(dir.path().join("environments"), offline.to_vec());
    let usual = PipSettings::default();
    assert_eq!(environments.interpreter(&base, &needs(&[], &usual)).unwrap(), base);
    let wanted = ["tiny-thing==1.0".to_owned()];
    let made: Vec<Interpreter> = std::thread::scope(|scope| {
        let make = || environments.interpreter(&base, &needs(&wanted, &usual)).unwrap();
        let threads = [scope.spawn(make), scope.spawn(make)];
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(made[0], made[1]);
    let mut ask = Command::new(&made[0].program);
    let answer = ask.args(["-c", "import tiny_thing; print(tiny_thing.answer)"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&answer.stdout), "42\n");
    let error =
        environments.interpreter(&base, &needs(&["no-such-thing".to_owned()], &usual)).unwrap_err();
    let error = error.to_string();
    assert!(error.starts_with("pip install failed for the requirements no-such-thing:"), "{error}");
    assert!(error.contains("No matching distribution"), "{error}");
    let day = Duration::from_secs(86_400);
    let made_at = std::fs::metadata(made[0].program.parent().unwrap()).unwrap().modified().unwrap();
    assert_eq!(environments.remove_unused(day, made_at).unwrap(), 0);
    // Including the broken one.
    let later: SystemTime = made_at + 3 * day;
    assert_eq!(environments.remove_unused(day, later).unwrap(), 2);
    assert!(!made[0].program.exists());
}

/// The project's index is used, and other settings give another virtualenv.
#[test]
fn packages_come_from_the_configured_index() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("simple/tiny-thing");
    std::fs::create_dir_all(&page).unwrap();
    wheel(&page);
    let name = "tiny_thing-1.0-py3-none-any.whl";
    std::fs::write(page.join("index.html"), format!("<a href=\"{name}\">{name}</a>")).unwrap();
    let base = Interpreter::find(None).unwrap();
    let environments = VirtualEnvs::new(dir.path().join("environments"), Vec::new());
    let wanted = ["tiny-thing==1.0".to_owned()];
    let named = |place: &str| PipSettings {
        index_url: Some(format!("file://{}/{place}", dir.path().display())),
        ..PipSettings::default()
    };
    let made = environments.interpreter(&base, &needs(&wanted, &named("simple"))).unwrap();
    let mut ask = Command::new(&made.program);
    let answer = ask.args(["-c", "import tiny_thing; print(tiny_thing.answer)"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&answer.stdout), "42\n");
    let error = environments.interpreter(&base, &needs(&wanted, &named("empty"))).unwrap_err();
    assert!(error.to_string().contains("No matching distribution"), "{error}");
}

/// Modules install the modules and packages they need, but neither the SDK's distribution nor
/// modules available as source.
#[test]
fn modules_are_installed_with_their_requirements() {
    let dir = tempfile::tempdir().unwrap();
    wheel(dir.path());
    let requires = [
        "inmanta-core>=15",
        "inmanta-module-base_things~=2.0",
        "inmanta-module-source",
        "other; extra == 'dev'",
    ];
    let file = "inmanta_plugins/my_toy/__init__.py";
    package(
        dir.path(),
        "inmanta_module_my_toy",
        "1.5",
        file,
        "import inmanta_plugins.base_things\n",
        &requires,
    );
    let file = "inmanta_plugins/base_things/__init__.py";
    let requires = ["inmanta-core", "tiny-thing>=1", "inmanta-module-my-toy"];
    for version in ["2.1", "3.0"] {
        package(
            dir.path(),
            "inmanta_module_base_things",
            version,
            file,
            "import tiny_thing\n",
            &requires,
        );
    }
    package(dir.path(), "inmanta_core", "99.0", "inmanta/__init__.py", "", &[]);
    let base = Interpreter::find(None).unwrap();
    let offline = ["--no-index".to_owned(), format!("--find-links={}", dir.path().display())];
    let environments = VirtualEnvs::new(dir.path().join("environments"), offline.to_vec());
    let modules = [InstalledModule { name: "my_toy".to_owned(), version: "1.5".to_owned() }];
    let pip = PipSettings::default();
    let sources = vec!["source"];
    let needs = VirtualEnvSpec { requirements: &[], modules: &modules, sources, pip: &pip };
    let made = environments.interpreter(&base, &needs).unwrap();
    let question = "import importlib.metadata as m, inmanta_plugins.my_toy\n\
         print(sorted(f'{d.name} {d.version}' for d in m.distributions() if d.name not in ('pip', 'setuptools')))";
    let answer = Command::new(&made.program).args(["-I", "-c", question]).output().unwrap();
    let answer = String::from_utf8_lossy(&answer.stdout).into_owned();
    assert_eq!(
        answer.trim(),
        "['inmanta_module_base_things 2.1', 'inmanta_module_my_toy 1.5', 'tiny_thing 1.0']"
    );
    let code = installed_module(&made, "my_toy");
    assert!(code.join("__init__.py").is_file(), "{code:?}");
    let unknown = [InstalledModule { name: "nowhere".to_owned(), version: "1".to_owned() }];
    let needs = VirtualEnvSpec { modules: &unknown, ..needs };
    let error = environments.interpreter(&base, &needs).unwrap_err().to_string();
    assert!(error.contains("inmanta-module-nowhere==1"), "{error}");
}
