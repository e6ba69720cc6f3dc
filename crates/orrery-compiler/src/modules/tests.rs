//! Tests of finding and loading modules, with projects in memory.

use std::path::PathBuf;

use super::*;
use crate::files::Memory;
use crate::load::Loader;

const V1: &str = "name: m\nversion: 1.2.3\nlicense: x\n";
const V2: &str = "[metadata]\nname = inmanta-module-w\nversion = 1.2.3\nlicense = x\n";
const SITE: &str = "p/.venv/lib/python3.13/site-packages";

/// A project in the directory `p`, from lines of `path: text`.
fn project(files: &[(&str, &str)]) -> Memory {
    let mut memory = Memory::default();
    memory.add("p/project.yml", "name: t\nmodulepath: libs\n");
    for (path, text) in files {
        let path = path.replace("SITE", SITE);
        memory.add(
            if path.starts_with('/') {
                path
            } else {
                format!("p/{}", path.trim_start_matches("p/"))
            },
            *text,
        );
    }
    memory
}

struct Loaded {
    modules: Vec<Module>,
    namespaces: Vec<String>,
    warnings: Vec<String>,
}

fn load_with(files: &Memory, options: &Options) -> Result<Loaded, String> {
    let message = |error: Box<CompileError>, loader: Option<&Loader<'_>>| {
        error.message(&|loc| loader.map_or(String::new(), |loader| loader.sources.location(loc)))
    };
    let mut loader = Loader::new(files, options).map_err(|error| message(error, None))?;
    loader.load_all().map_err(|error| message(error, Some(&loader)))?;
    let name = |file: &crate::load::LoadedFile| loader.interner.text(file.namespace).to_owned();
    Ok(Loaded {
        namespaces: loader.loaded.iter().map(name).collect(),
        modules: loader.modules,
        warnings: loader.warnings.into_iter().map(|(_, text, _)| text).collect(),
    })
}

fn load(files: &[(&str, &str)]) -> Result<Loaded, String> {
    load_with(&project(files), &Options::new("p"))
}

fn error(files: &[(&str, &str)]) -> String {
    match load(files) {
        Ok(loaded) => panic!("it loads {:?}", loaded.namespaces),
        Err(error) => error,
    }
}

fn module(loaded: &Loaded, name: &str) -> Module {
    loaded.modules.iter().find(|module| module.name == name).expect("it was loaded").clone()
}

#[test]
fn files_come_in_the_order_in_which_they_run() {
    let loaded = load(&[
        ("main.cf", "import m::a::b\nimport n\n"),
        ("libs/m/module.yml", V1),
        ("libs/m/model/_init.cf", ""),
        ("libs/m/model/a/_init.cf", "import m\n"),
        ("libs/m/model/a/b.cf", ""),
        ("libs/n/module.yml", "name: n\nversion: 1\nlicense: x\n"),
        ("libs/n/model/_init.cf", "import m\n"),
    ])
    .unwrap();
    assert_eq!(loaded.namespaces, ["__config__", "n", "m", "m::a", "m::a::b", "std"]);
}

#[test]
fn a_module_in_the_module_path_has_its_version() {
    let loaded = load(&[
        ("main.cf", "import m\n"),
        ("libs/m/module.yml", "name: m\nversion: 1.10\nlicense: x\n"),
        ("libs/m/model/_init.cf", ""),
        ("libs/m/plugins/__init__.py", ""),
    ])
    .unwrap();
    let found = module(&loaded, "m");
    // As in the reference compiler, which reads a number.
    assert_eq!(found.version.as_deref(), Some("1.1"));
    assert!(found.code.is_some());
    assert_eq!(found.origin, Origin::ModulePath);
}

#[test]
fn different_names_and_deprecation_cause_warnings() {
    let loaded = load(&[
        ("main.cf", "import m\n"),
        ("libs/m/module.yml", "name: other\nversion: 1.0\nlicense: x\ndeprecated: yes\n"),
        ("libs/m/model/_init.cf", ""),
    ])
    .unwrap();
    assert_eq!(
        loaded.warnings,
        [
            "The name in the module file (other) does not match the directory name (m)",
            "Loaded V1 module other. The use of V1 modules is deprecated. Use the equivalent V2 module instead.",
            "Module other has been deprecated",
        ]
    );
}

#[test]
fn an_installed_module_is_found_in_the_environment_of_the_project() {
    for site in [SITE, "p/.env/lib64/python3.9/site-packages", "p/.venv/Lib/site-packages"] {
        let package = format!("{site}/inmanta_plugins/w");
        let loaded = load(&[
            ("main.cf", "import w\n"),
            (&format!("{package}/__init__.py"), "\n"),
            (&format!("{package}/setup.cfg"), V2),
            (&format!("{package}/model/_init.cf"), ""),
        ])
        .unwrap();
        let found = module(&loaded, "w");
        assert_eq!((found.origin, found.dir), (Origin::Python, PathBuf::from(package)));
        assert_eq!(found.version.as_deref(), Some("1.2.3"));
        assert!(found.code.is_none());
    }
}

#[test]
fn a_configured_virtualenv_takes_precedence_over_that_of_the_project() {
    let files = project(&[
        ("main.cf", "import w\n"),
        ("/env/lib/python3.13/site-packages/inmanta_plugins/w/__init__.py", "def f(): pass\n"),
        ("/env/lib/python3.13/site-packages/inmanta_plugins/w/setup.cfg", V2),
        ("/env/lib/python3.13/site-packages/inmanta_plugins/w/model/_init.cf", ""),
        ("SITE/other.py", ""),
    ]);
    let mut options = Options::new("p");
    assert!(load_with(&files, &options).is_err());
    options.python_environment = Some("/env".into());
    let loaded = load_with(&files, &options).unwrap();
    assert!(module(&loaded, "w").code.is_some());
}

#[test]
fn an_invalid_virtualenv_is_ignored() {
    let files = project(&[("main.cf", "")]);
    let mut options = Options::new("p");
    options.python_environment = Some("/nowhere".into());
    assert!(load_with(&files, &options).is_ok());
}

#[test]
fn editable_installations_are_followed() {
    let source = [
        ("/src/w/inmanta_plugins/w/__init__.py", ""),
        ("/src/w/setup.cfg", V2),
        ("/src/w/model/_init.cf", ""),
        ("main.cf", "import w\n"),
    ];
    let finder = "SITE/__editable___inmanta_module_w_1_2_3_finder.py";
    let import = "import __editable___inmanta_module_w_1_2_3_finder; __editable___inmanta_module_w_1_2_3_finder.install()";
    let installations: [&[(&str, &str)]; 3] = [
        &[("SITE/w.pth", "# by hand\n\n/nowhere\n/src/w\n")],
        &[
            ("SITE/__editable__.w.pth", import),
            (
                finder,
                "X = 1\nMAPPING: dict[str, str] = {'inmanta_plugins': '/src/w/inmanta_plugins'}\n",
            ),
        ],
        &[
            ("SITE/__editable__.w.pth", import),
            (
                finder,
                "MAPPING = {'a': '/a', \"inmanta_plugins.w\": \"/src/w/inmanta_plugins/w\"}\n",
            ),
        ],
    ];
    for installation in installations {
        let loaded = load(&[&source, installation].concat()).unwrap();
        assert_eq!(module(&loaded, "w").dir, PathBuf::from("/src/w"));
    }
}

#[test]
fn an_installed_module_takes_precedence_over_the_module_path() {
    let loaded = load(&[
        ("main.cf", "import w\n"),
        ("SITE/inmanta_plugins/w/__init__.py", ""),
        ("SITE/inmanta_plugins/w/setup.cfg", V2),
        ("SITE/inmanta_plugins/w/model/_init.cf", ""),
        ("libs/w/module.yml", "[broken"),
    ])
    .unwrap();
    assert_eq!(module(&loaded, "w").origin, Origin::Python);
    let expected = "Module w is installed as a V1 module and a V2 module: V1 will be ignored.";
    assert_eq!(loaded.warnings, [expected]);
}

#[test]
fn built_in_modules_replace_installed_ones() {
    let main = [("main.cf", "import ip\n")];
    let installed = [
        ("SITE/inmanta_plugins/ip/__init__.py", ""),
        ("SITE/inmanta_plugins/ip/setup.cfg", V2),
        ("SITE/inmanta_plugins/ip/model/_init.cf", ""),
    ];
    let own = [
        ("libs/ip/module.yml", "name: ip\nversion: 1\nlicense: x\n"),
        ("libs/ip/model/_init.cf", ""),
    ];
    let found = |files: &[&[(&str, &str)]]| {
        let loaded = load(&files.concat()).unwrap();
        let ignored = loaded.warnings.iter().any(|text| text.ends_with("V1 will be ignored."));
        (module(&loaded, "ip").origin.clone(), ignored)
    };
    assert_eq!(found(&[&main]), (Origin::Builtin, false));
    assert_eq!(found(&[&main, &installed]), (Origin::Builtin, false));
    assert_eq!(found(&[&main, &own]), (Origin::ModulePath, false));
    assert_eq!(found(&[&main, &installed, &own]), (Origin::Builtin, true));
}

#[test]
fn a_std_in_the_module_path_is_ignored() {
    let loaded = load(&[
        ("main.cf", "import std\n"),
        ("libs/std/module.yml", "[broken"),
        ("libs/std/model/_init.cf", "entity"),
    ])
    .unwrap();
    assert_eq!(module(&loaded, "std").origin, Origin::Builtin);
    let expected = "Module std is installed as a V1 module and a V2 module: V1 will be ignored.";
    assert_eq!(loaded.warnings, [expected]);
}

#[test]
fn a_built_in_module_can_yield_to_an_installed_one() {
    assert_eq!(
        module(&load(&[("main.cf", "import exec\n")]).unwrap(), "exec").origin,
        Origin::Builtin
    );
    let setup = V2.replace("inmanta-module-w", "inmanta-module-exec");
    let installed = [
        ("main.cf", "import exec\n"),
        ("SITE/inmanta_plugins/exec/__init__.py", ""),
        ("SITE/inmanta_plugins/exec/setup.cfg", &*setup),
        ("SITE/inmanta_plugins/exec/model/_init.cf", ""),
    ];
    assert_eq!(module(&load(&installed).unwrap(), "exec").origin, Origin::Python);
}

#[test]
fn errors_of_broken_packages_are_specific() {
    let main = ("main.cf", "import w\n");
    let init = ("SITE/inmanta_plugins/w/__init__.py", "");
    let setup = ("SITE/inmanta_plugins/w/setup.cfg", V2);
    let model = ("SITE/inmanta_plugins/w/model/_init.cf", "");
    let renamed = (
        "SITE/inmanta_plugins/w/setup.cfg",
        "[metadata]\nname = inmanta-module-q\nversion = 1\nlicense = x\n",
    );
    let empty = ("SITE/inmanta_plugins/w/setup.cfg", "");
    let tagged = ("SITE/inmanta_plugins/w/setup.cfg", "[metadata]\nname = w\nversion = 1.0.dev1\n");
    let cases: [(&[(&str, &str)], &str); 7] = [
        (&[setup, model], "no __init__.py file could be found"),
        (
            &[init, model],
            "Invalid module at ./.venv/lib/python3.13/site-packages/inmanta_plugins/w: found module package but it has no setup.cfg.",
        ),
        (&[init, setup], "contains no _init.cf file"),
        (&[("SITE/inmanta_plugins/w.py", "")], "found module package but it has no setup.cfg"),
        (&[init, renamed, model], "is module q, by the name in its setup.cfg"),
        (&[init, empty, model], "doesn't have a metadata section."),
        (&[init, tagged, model], "3 validation errors for ModuleV2Metadata\n  name\n"),
    ];
    for (files, part) in cases {
        let error = error(&[files, &[main]].concat());
        assert!(
            error.starts_with("Failed to load module w (reported in import w (./main.cf:1))"),
            "{error}"
        );
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn errors_of_broken_modules_in_the_module_path_are_specific() {
    let model = ("libs/m/model/_init.cf", "");
    let metadata = |text| ("libs/m/module.yml", text);
    let cases: [(&[(&str, &str)], &str); 9] = [
        (&[model], "Metadata file ./libs/m/module.yml does not exist"),
        (&[("libs/m", "")], "Metadata file ./libs/m/module.yml does not exist"),
        (&[model, ("libs/m/setup.cfg", V2)], "Module at ./libs/m looks like a v2 module."),
        (
            &[model, metadata("name: [\n")],
            "The module found at ./libs/m is not a valid V1 module\n  caused by:\n    inmanta.module.InvalidMetadata: Invalid yaml syntax in ./libs/m/module.yml:\n",
        ),
        (&[model, metadata("")], "has to be a mapping of keys to values, but it is empty"),
        (
            &[model, metadata("name: m\n")],
            "2 validation errors for ModuleV1Metadata\n  version\n    Field required\n  license\n",
        ),
        (
            &[model, metadata("name: m\nversion: x\nlicense: y\n")],
            "Version x is not PEP440 compliant",
        ),
        (
            &[model, ("libs/m/module.yml/x", "")],
            "could not read ./libs/m/module.yml: it is a directory",
        ),
        (&[metadata(V1)], "No such file or directory: './libs/m/model/_init.cf'"),
    ];
    for (files, part) in cases {
        let error = error(&[files, &[("main.cf", "import m\n")]].concat());
        assert!(
            error.starts_with("Failed to load module m (reported in import m (./main.cf:1))"),
            "{error}"
        );
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn invalid_module_names_in_imports() {
    let hyphen =
        "a-b is not a valid module name: hyphens are not allowed, please use underscores instead.";
    assert_eq!(error(&[("main.cf", "import nope\nimport a-b\n")]), hyphen);
    let start = "Expected package name at the start of dependency specifier\n    __config__\n    ^";
    assert_eq!(error(&[("main.cf", "import __config__\n")]), start);
}

#[test]
fn files_that_are_there_but_cannot_be_read() {
    let main = ("main.cf", "import m::a\n");
    let base = [main, ("libs/m/module.yml", V1)];
    let with = |more: &[(&str, &str)]| error(&[&base[..], more].concat());
    assert_eq!(
        with(&[("libs/m/model/_init.cf/x", "")]),
        "[Errno 21] Is a directory: './libs/m/model/_init.cf'"
    );
    assert_eq!(
        with(&[("libs/m/model/_init.cf", ""), ("libs/m/model/a.cf/x", "")]),
        "[Errno 21] Is a directory: './libs/m/model/a.cf'"
    );
    assert_eq!(
        with(&[("libs/m/model", "")]),
        "[Errno 20] Not a directory: './libs/m/model/_init.cf'"
    );
    let mut files = project(&base);
    files.add("p/libs/m/model/_init.cf", b"x = 1\n\"\xff\"".to_vec());
    let options = Options::new("p");
    let mut loader = Loader::new(&files, &options).unwrap();
    let failure = loader.load_all().unwrap_err();
    assert_eq!(
        failure.text,
        "'utf-8' codec can't decode byte 0xff in position 7: invalid start byte"
    );
    assert!(failure.help.unwrap_or_default().starts_with("line 2 of ./libs/m/model/_init.cf"));
    let mut files = project(&[main]);
    files.add("p/libs/m/module.yml", b"name: \xff".to_vec());
    let error = load_with(&files, &Options::new("p")).err().unwrap_or_default();
    assert!(error.contains("the byte at offset 6 is not UTF-8"), "{error}");
}

#[test]
fn requirements_have_to_be_well_formed() {
    let error = error(&[
        ("main.cf", "import m\n"),
        ("libs/m/module.yml", &format!("{V1}requires: ['n >= ']\n")),
        ("libs/m/model/_init.cf", ""),
    ]);
    assert!(error.starts_with("Expected semicolon (after name"), "{error}");
}

#[test]
fn metadata_files_have_a_maximum_size() {
    let large = format!("{V1}# {}\n", "x".repeat(2 << 20));
    let error = error(&[
        ("main.cf", "import m\n"),
        ("libs/m/module.yml", &large),
        ("libs/m/model/_init.cf", ""),
    ]);
    assert!(error.contains("it is over 1024 KiB"), "{error}");
}

/// Cases of a real file system only: dangling or cyclic links, and files without an end.
#[cfg(unix)]
#[test]
fn links_and_special_files_end_in_errors() {
    use std::os::unix::{fs::symlink, net::UnixListener};

    let scratch = tempfile::tempdir().unwrap();
    let model = scratch.path().join("libs/m/model");
    std::fs::create_dir_all(&model).unwrap();
    std::fs::write(scratch.path().join("libs/m/module.yml"), V1).unwrap();
    std::fs::write(model.join("_init.cf"), "").unwrap();
    symlink("circle.cf", model.join("circle.cf")).unwrap();
    symlink("nowhere", model.join("dangling.cf")).unwrap();
    symlink("/dev/zero", model.join("endless.cf")).unwrap();
    symlink(".", model.join("inside")).unwrap();
    let _socket = UnixListener::bind(model.join("socket.cf")).unwrap();
    for (name, part) in [
        ("circle", "[Errno 40] Too many levels of symbolic links: './libs/m/model/circle.cf'"),
        ("dangling", "No such file or directory: './libs/m/model/dangling.cf'"),
        ("endless", "could not read ./libs/m/model/endless.cf: it is no regular file"),
        ("socket", "could not read ./libs/m/model/socket.cf: it is no regular file"),
        ("inside::inside::dangling", "./libs/m/model/inside/inside/dangling.cf"),
    ] {
        std::fs::write(scratch.path().join("main.cf"), format!("import m::{name}\n")).unwrap();
        let options = Options::new(scratch.path());
        let mut loader = Loader::new(&crate::files::Disk, &options).unwrap();
        let error = loader.load_all().unwrap_err().message(&|_| String::new());
        assert!(error.contains(part), "{name}: {error}");
    }
}

/// The layout of `pip install --editable` by current installers, where `lib64` is a link.
#[cfg(unix)]
#[test]
fn a_linked_library_directory_counts_once() {
    let scratch = tempfile::tempdir().unwrap();
    let site = scratch.path().join(".venv/lib/python3.13/site-packages");
    std::fs::create_dir_all(&site).unwrap();
    std::os::unix::fs::symlink("lib", scratch.path().join(".venv/lib64")).unwrap();
    std::fs::write(site.join("a.pth"), ".\n..\n").unwrap();
    let found = Virtualenv::find(&crate::files::Disk, &Options::new(scratch.path())).unwrap();
    assert!(found.exists());
    assert_eq!(found.find_package(&crate::files::Disk, "w"), None);
}
