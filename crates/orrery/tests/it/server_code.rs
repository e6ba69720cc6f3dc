//! Handler code on servers: uploaded contents, packages of modules, code identity, and classes that
//! override built-in ones. With the real program and real Python handlers.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::BINARY;
use crate::server_kills::{Server, World, git, until};

const MODULE: [(&str, &str); 3] = [
    ("module.yml", include_str!("south/module.yml")),
    ("model/_init.cf", include_str!("south/model/_init.cf")),
    ("plugins/__init__.py", include_str!("south/plugins/__init__.py")),
];

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, run: fn() -> Result<()>| {
        Trial::test(format!("server_code/{name}"), move || {
            Ok(run().map_err(|error| format!("{error:#}"))?)
        })
    };
    vec![
        trial("uploaded_contents_reach_handlers_sqlite", || contents_reach_handlers(false)),
        trial("uploaded_contents_reach_handlers_postgres", || contents_reach_handlers(true)),
        trial("all_packages_of_a_distribution_travel", all_packages_of_a_distribution_travel),
        trial("unchanged_code_keeps_its_processes", unchanged_code_keeps_its_processes),
        trial("a_partial_export_with_code", a_partial_export_with_code),
        trial(
            "a_class_takes_the_place_of_a_built_in_one",
            a_class_takes_the_place_of_a_built_in_one,
        ),
        trial("code_knows_modules_without_code", code_knows_modules_without_code),
        trial("a_module_that_lowers_an_entity_exports_it_once", lowered_entities_are_exported_once),
    ]
}

/// A server, and a project that is exported to it.
struct Scene {
    // Dropped before its database.
    server: Server,
    world: World,
    environment: String,
}

impl Scene {
    fn new(postgres: bool) -> Result<Self> {
        let world = World::new(postgres)?;
        write_module(&world.path("project"))?;
        let server = world.start()?;
        let mut scene = Scene { world, server, environment: String::new() };
        scene.environment = scene.add_environment("pushed", None)?;
        Ok(scene)
    }

    fn add_environment(&self, name: &str, repository: Option<&Path>) -> Result<String> {
        let (world, server) = (&self.world, &self.server);
        let project = world.create(server, "/api/v1/projects", &json!({ "name": name }))?;
        let mut body = json!({"project": project["id"], "name": name});
        if let Some(repository) = repository {
            body["repository"] = json!(repository);
            body["branch"] = json!("main");
        }
        let made = world.create(server, "/api/v1/environments", &body)?;
        Ok(made["id"].as_str().context("no id")?.to_owned())
    }

    fn project(&self) -> PathBuf {
        self.world.path("project")
    }

    fn write_model(&self, model: &str) -> Result<()> {
        Ok(std::fs::write(self.project().join("main.cf"), model)?)
    }

    /// Runs a command in the project, for its environment.
    fn run(&self, arguments: &[&str]) -> Result<Output> {
        Ok(Command::new(BINARY)
            .args(arguments)
            .current_dir(self.project())
            .env("ORRERY_SERVER", &self.server.base)
            .env("ORRERY_TOKEN", &self.server.token)
            .env("ORRERY_ENVIRONMENT", &self.environment)
            .env("HOME", self.world.path("home"))
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("VIRTUAL_ENV")
            .output()?)
    }

    fn push(&self, model: &str, arguments: &[&str]) -> Result<()> {
        self.write_model(model)?;
        let done = self.run(&[&["export", "--release"], arguments].concat())?;
        ensure!(done.status.success(), "export {arguments:?}: {}", text(&done));
        Ok(())
    }

    fn get(&self, path: &str) -> Result<Value> {
        let (status, answer) =
            self.world.call_with(&self.server, "GET", &format!("/api/v1/{path}"), None, "")?;
        ensure!(status == 200, "{path}: {status} {answer}");
        Ok(answer)
    }

    fn until_deployed(&self, environment: &str, count: u64) -> Result<()> {
        let mut counts = Value::Null;
        let deployed = until("everything is deployed", || {
            counts = self.get(&format!("environments/{environment}/resource-counts"))?;
            Ok(counts["by_status"]["deployed"].as_u64() == Some(count))
        });
        deployed.with_context(|| {
            let listed = self.get(&format!("environments/{environment}/resources"));
            format!("{counts}\n{}", listed.unwrap_or_default())
        })
    }

    /// Verifies every resource; returns the changes.
    fn repair(&self, environment: &str) -> Result<Value> {
        let path = format!("/api/v1/environments/{environment}/repair");
        let asked = self.world.create(&self.server, &path, &json!({}))?;
        let asked = asked["id"].as_str().context("no id")?.to_owned();
        let path = format!("environments/{environment}/operations/{asked}");
        until("the repair is done", || Ok(self.get(&path)?["transitioning"] == "no"))?;
        self.get(&path)
    }

    /// Hash and description of the newest version's code.
    fn code(&self) -> Result<(String, String)> {
        let versions = self.get(&format!("environments/{}/versions", self.environment))?;
        let code = versions["items"][0]["info"]["code"].as_str().context("no code")?.to_owned();
        let answer = ureq::get(format!("{}/api/v1/files/{code}", self.server.base))
            .header("Authorization", format!("Bearer {}", self.server.token))
            .call()?;
        Ok((code, answer.into_body().read_to_string()?))
    }
}

/// Creates a directory that environment users can write.
fn make_open(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::create_dir_all(path)?;
    Ok(std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777))?)
}

fn write_module(project: &Path) -> Result<()> {
    for (name, text) in MODULE {
        write(&project.join("libs/south").join(name), text)?;
    }
    write(&project.join("project.yml"), "name: test\nmodulepath: libs\n")
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::create_dir_all(path.parent().context("no directory")?)?;
    Ok(std::fs::write(path, text)?)
}

fn text(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    format!("{out}{err}")
}

/// A model with files that are uploaded in all ways.
fn files(target: &Path, greeting: &str) -> String {
    let target = target.display();
    let large = "0123456789abcdef".repeat(1000);
    format!(
        "import std\nimport south\n\
         south::File(agent=\"a1\", path=\"{target}/plain\", content=\"{greeting}\")\n\
         south::File(agent=\"a1\", path=\"{target}/named\", content=\"named {greeting}\", upload=\"named\")\n\
         south::File(agent=\"a2\", path=\"{target}/large\", content=\"{large}\")\n\
         south::File(agent=\"a2\", path=\"{target}/never\", content=\"lost {greeting}\", upload=\"never\")\n"
    )
}

fn check_files(target: &Path, greeting: &str) -> Result<()> {
    let read = |name: &str| std::fs::read_to_string(target.join(name));
    ensure!(read("plain")? == greeting, "{:?}", read("plain"));
    ensure!(read("named")? == format!("named {greeting}"), "{:?}", read("named"));
    ensure!(read("large")?.len() == 16_000, "{:?}", read("large"));
    ensure!(read("never")? == "there is none", "{:?}", read("never"));
    Ok(())
}

/// Handlers get every uploaded content, by SHA-1 or by its own id, wherever the export ran; missing
/// contents are absent.
fn contents_reach_handlers(postgres: bool) -> Result<()> {
    let scene = Scene::new(postgres)?;
    let pushed = scene.world.path("by-push");
    make_open(&pushed)?;
    scene.push(&files(&pushed, "hello"), &[])?;
    scene.until_deployed(&scene.environment, 4)?;
    check_files(&pushed, "hello")?;
    let repaired = scene.repair(&scene.environment)?;
    ensure!(repaired["outcome"]["changed"].as_u64().unwrap_or_default() == 0, "{repaired}");
    // A new version with the same code has other contents.
    scene.push(&files(&pushed, "bye"), &[])?;
    until("the new content is there", || {
        Ok(std::fs::read_to_string(pushed.join("named"))? == "named bye")
    })?;
    scene.until_deployed(&scene.environment, 4)?;
    check_files(&pushed, "bye")?;
    let compiled = scene.world.path("by-compile");
    make_open(&compiled)?;
    let repository = scene.world.path("repository");
    write_module(&repository)?;
    std::fs::write(repository.join("main.cf"), files(&compiled, "hello"))?;
    git(&repository, &["init", "-q", "-b", "main"])?;
    git(&repository, &["add", "."])?;
    git(&repository, &["commit", "-q", "-m", "start"])?;
    let environment = scene.add_environment("compiled", Some(&repository))?;
    let path = format!("/api/v1/environments/{environment}/compiles");
    scene.world.create(&scene.server, &path, &json!({"update": true}))?;
    scene.until_deployed(&environment, 4)?;
    check_files(&compiled, "hello")
}

/// A virtualenv with a module that is installed as a distribution with two top-level packages and a
/// single file.
fn install_distribution(project: &Path) -> Result<()> {
    let environment = project.join(".venv");
    let made =
        Command::new("python3").args(["-m", "venv", "--without-pip"]).arg(&environment).output()?;
    ensure!(made.status.success(), "{}", text(&made));
    let lib = std::fs::read_dir(environment.join("lib"))?.next().context("no python")??;
    let site = lib.path().join("site-packages");
    let code = "from inmanta.agent.handler import CRUDHandler, provider\n\
         from inmanta.resources import PurgeableResource, resource\n\
         import inmanta_pair\nimport pair_extra\n\n\n\
         @resource(\"pair::Mark\", agent=\"agent\", id_attribute=\"path\")\n\
         class Mark(PurgeableResource):\n    fields = (\"path\",)\n\n    \
         @staticmethod\n    def get_purged(_, entity):\n        return False\n\n    \
         @staticmethod\n    def get_purge_on_delete(_, entity):\n        return False\n\n\n\
         @provider(\"pair::Mark\", name=\"mark\")\n\
         class MarkHandler(CRUDHandler):\n    def read_resource(self, ctx, resource):\n        \
         from importlib.metadata import version\n        \
         with open(resource.path, \"w\") as stream:\n            \
         stream.write(inmanta_pair.TEXT + pair_extra.TEXT + version(\"inmanta-module-pair\"))\n";
    let model = "import std\n\nentity Mark extends std::Resource:\n    string agent\n    string path\nend\n\n\
         implement Mark using std::none\n";
    let setup =
        "[metadata]\nname = inmanta-module-pair\nversion = 1.2.3\nlicense = MIT\n\n[options]\n";
    let metadata = "Metadata-Version: 2.1\nName: inmanta-module-pair\nVersion: 1.2.3\n";
    let files = [
        ("inmanta_plugins/pair/__init__.py", code),
        ("inmanta_plugins/pair/model/_init.cf", model),
        ("inmanta_plugins/pair/setup.cfg", setup),
        ("inmanta_pair/__init__.py", "from inmanta_pair.deep import TEXT\n"),
        ("inmanta_pair/deep.py", "TEXT = 'deep '\n"),
        ("pair_extra.py", "TEXT = 'extra '\n"),
        ("inmanta_module_pair-1.2.3.dist-info/METADATA", metadata),
    ];
    let mut record = String::new();
    for (name, text) in files {
        write(&site.join(name), text)?;
        record.push_str(&format!("{name},sha256=x,{}\n", text.len()));
    }
    record.push_str("../../../bin/pair,sha256=x,1\ninmanta_module_pair-1.2.3.dist-info/RECORD,,\n");
    write(&site.join("inmanta_module_pair-1.2.3.dist-info/RECORD"), &record)
}

fn all_packages_of_a_distribution_travel() -> Result<()> {
    let scene = Scene::new(false)?;
    install_distribution(&scene.project())?;
    let mark = scene.world.path("mark");
    let model =
        format!("import std\nimport pair\npair::Mark(agent=\"a1\", path=\"{}\")\n", mark.display());
    scene.push(&model, &[])?;
    // Nothing of the developer's machine is needed.
    std::fs::remove_dir_all(scene.project())?;
    scene.until_deployed(&scene.environment, 1)?;
    let marked = std::fs::read_to_string(&mark)?;
    ensure!(marked == "deep extra 1.2.3", "{marked}");
    Ok(())
}

/// Two agents with a caching handler, and a value that only the first one has.
fn sessions(journal: &Path, value: &str) -> String {
    let journal = journal.display();
    format!(
        "import std\nimport south\n\
         south::Session(agent=\"a1\", name=\"one\", journal=\"{journal}\", value=\"{value}\")\n\
         south::Session(agent=\"a2\", name=\"two\", journal=\"{journal}\")\n"
    )
}

fn unchanged_code_keeps_its_processes() -> Result<()> {
    let scene = Scene::new(false)?;
    let journal = scene.world.path("journal");
    let lines = || -> Result<Vec<String>> {
        Ok(std::fs::read_to_string(&journal)?.lines().map(str::to_owned).collect())
    };
    let count = |words: &str| -> Result<usize> {
        Ok(lines()?.iter().filter(|line| line.starts_with(words)).count())
    };
    scene.push(&sessions(&journal, "first"), &[])?;
    scene.until_deployed(&scene.environment, 2)?;
    let (code, description) = scene.code()?;
    let home = scene.world.path("");
    for path in [home.to_str().context("a path")?, "/tmp"] {
        ensure!(!description.contains(path), "{path} travels: {description}");
    }
    let pid_of = |version: u32| -> Result<String> {
        let end = format!(": bound a1 {version}");
        let line = lines()?.into_iter().find(|line| line.ends_with(&end));
        line.with_context(|| format!("{end:?}: {:?}", lines()))
    };
    let first = pid_of(1)?.replace("a1 1", "");
    // The module has another path, and is the same.
    let moved = scene.world.path("elsewhere");
    std::fs::rename(scene.project(), &moved)?;
    std::fs::create_dir_all(scene.project())?;
    std::fs::rename(moved.join("libs"), scene.world.path("shared-modules"))?;
    write(&scene.project().join("project.yml"), "name: test\nmodulepath: ../shared-modules\n")?;
    scene.push(&sessions(&journal, "second"), &[])?;
    until("the second version is deployed", || Ok(count("used by")? == 3))?;
    ensure!(scene.code()?.0 == code, "the code of the second version is another one");
    let second = pid_of(2)?.replace("a1 2", "");
    ensure!(first == second, "another process: {first:?} {second:?}");
    ensure!(count("open lasting a1")? == 1, "{:?}", lines()?);
    // Sessions of the first version are closed by the second, also for an agent without work in it.
    until("connections of the first version are closed", || {
        Ok(count("close bound a1 1")? == 1 && count("close bound a2 1")? == 1)
    })?;
    ensure!(count("close")? == 2, "{:?}", lines()?);
    Ok(())
}

fn a_partial_export_with_code() -> Result<()> {
    let scene = Scene::new(false)?;
    let (journal, target) = (scene.world.path("journal"), scene.world.path("target"));
    make_open(&target)?;
    // A module that the change does not import.
    let other = scene.project().join("libs/other");
    write(&other.join("module.yml"), "name: other\nversion: 1.0.0\nlicense: MIT\n")?;
    write(&other.join("model/_init.cf"), "import std\n")?;
    write(&other.join("plugins/__init__.py"), "VALUE = 1\n")?;
    let set = |name: &str, greeting: &str| {
        let path = target.join(name);
        format!(
            "f = south::File(agent=\"a1\", path=\"{}\", content=\"{greeting}\", upload=\"named\")\n\
             std::ResourceSet(name=\"{name}\", resources=[f])\n",
            path.display()
        )
    };
    let imports = "import std\nimport south\n";
    let base = format!("import other\n{}{}", sessions(&journal, ""), set("one", "hello"));
    scene.push(&base, &[])?;
    scene.until_deployed(&scene.environment, 3)?;
    let (code, _) = scene.code()?;
    scene.push(&format!("{imports}{}", set("two", "world")), &["--partial"])?;
    scene.until_deployed(&scene.environment, 4)?;
    ensure!(scene.code()?.0 == code, "a part of the code is taken for another one");
    let read = |name: &str| std::fs::read_to_string(target.join(name)).unwrap_or_default();
    ensure!(read("one") == "hello" && read("two") == "world", "{} {}", read("one"), read("two"));
    // Contents of unchanged resources are still there.
    std::fs::remove_file(target.join("one"))?;
    scene.repair(&scene.environment)?;
    ensure!(read("one") == "hello", "{:?}", read("one"));
    // Other code of the same module applies to everything that uses it.
    let path = scene.project().join("libs/south/plugins/__init__.py");
    let changed = format!("{}\n\nNEW = True\n", std::fs::read_to_string(&path)?);
    write(&path, &changed)?;
    scene.write_model(&format!("{imports}{}", set("two", "again")))?;
    let refused = scene.run(&["export", "--release", "--partial"])?;
    let said = text(&refused);
    ensure!(
        !refused.status.success() && said.contains("south") && said.contains("--allow-code-update"),
        "{said}"
    );
    let model = format!("{imports}{}", set("two", "again"));
    scene.push(&model, &["--partial", "--allow-code-update"])?;
    until("the change is deployed", || Ok(read("two") == "again"))?;
    ensure!(scene.code()?.0 != code);
    let (_, description) = scene.code()?;
    ensure!(description.contains("inmanta_plugins/other/__init__.py"), "{description}");
    Ok(())
}

const OWN_FILE: &str = r#"
import hashlib
import os

from inmanta.agent.handler import CRUDHandler, ResourcePurged, provider
from inmanta.resources import Resource, resource


@resource("std::File", agent="host.name", id_attribute="path")
class File(Resource):
    fields = ("path", "owner", "hash", "group", "permissions", "purged", "reload")

    @staticmethod
    def get_hash(exporter, obj):
        hash_id = hashlib.md5(obj.content.encode()).hexdigest()
        exporter.upload_file(hash_id, obj.content)
        return hash_id

    @staticmethod
    def get_permissions(_, obj):
        return int(obj.mode)


@provider("std::File", name="own")
class FileHandler(CRUDHandler):
    def read_resource(self, ctx, resource):
        if not os.path.exists(resource.path):
            raise ResourcePurged()

    def create_resource(self, ctx, resource):
        with open(resource.path, "wb") as stream:
            stream.write(b"own: " + self.get_file(resource.hash))
        ctx.set_created()

    def update_resource(self, ctx, changes, resource):
        ctx.set_updated()

    def delete_resource(self, ctx, resource):
        ctx.set_purged()
"#;

/// `@resource("std::File")` in a module is the class of all files of the model, with its fields, its handler and its errors.
fn a_class_takes_the_place_of_a_built_in_one() -> Result<()> {
    let scene = Scene::new(false)?;
    let own = scene.project().join("libs/own");
    write(&own.join("module.yml"), "name: own\nversion: 1.0.0\nlicense: MIT\n")?;
    write(&own.join("model/_init.cf"), "import std\n")?;
    write(&own.join("plugins/__init__.py"), OWN_FILE)?;
    let path = scene.world.path("motd");
    let model = format!(
        "import std\nimport own\nhost = std::Host(name=\"localhost\", os=std::linux)\n\
         std::ConfigFile(host=host, path=\"{}\", content=\"hello\", mode=640)\n",
        path.display()
    );
    scene.push(&model, &[])?;
    scene.until_deployed(&scene.environment, 1)?;
    ensure!(std::fs::read_to_string(&path)? == "own: hello");
    let id = format!("std::File[localhost,path={}]", path.display());
    let id = id.replace('/', "%2F").replace('[', "%5B").replace(']', "%5D");
    let found = scene.get(&format!("environments/{}/resources/{id}", scene.environment))?;
    let attributes = &found["attributes"];
    ensure!(attributes["permissions"] == 640, "{attributes}");
    ensure!(attributes["hash"] == "5d41402abc4b2a76b9719d911017c592", "{attributes}");
    ensure!(attributes.get("content").is_none(), "{attributes}");
    // As often printed, with a missing name.
    write(&own.join("plugins/__init__.py"), &OWN_FILE.replace("int(obj.mode)", "int(x.mode)"))?;
    let failed = scene.run(&["export"])?;
    let said = text(&failed);
    ensure!(
        !failed.status.success() && said.contains("permissions") && said.contains("'x'"),
        "{said}"
    );
    Ok(())
}

/// Code that renders a template of another module must find that module, even without code: one
/// with an empty package, and one without any.
fn code_knows_modules_without_code() -> Result<()> {
    let project = tempfile::tempdir()?;
    let libs = project.path().join("libs");
    for (name, plugins) in [("blank", Some("")), ("bare", None)] {
        let module = format!("name: {name}\nversion: 1.0.0\nlicense: MIT\n");
        write(&libs.join(name).join("module.yml"), &module)?;
        write(&libs.join(name).join("model/_init.cf"), "import std\n")?;
        write(&libs.join(name).join("templates/greeting.j2"), &format!("hello from {name}"))?;
        if let Some(code) = plugins {
            write(&libs.join(name).join("plugins/__init__.py"), code)?;
        }
    }
    write(&libs.join("reader/module.yml"), "name: reader\nversion: 1.0.0\nlicense: MIT\n")?;
    write(&libs.join("reader/model/_init.cf"), "import std\n")?;
    let code = "import os\n\nfrom inmanta.module import Project\nfrom inmanta.plugins import plugin\n\n\n\
         @plugin\ndef read(module: \"string\") -> \"string\":\n    \
         path = Project.get().modules[module]._path\n    \
         with open(os.path.join(path, \"templates\", \"greeting.j2\")) as stream:\n        \
         return stream.read()\n";
    write(&libs.join("reader/plugins/__init__.py"), code)?;
    write(&project.path().join("project.yml"), "name: test\nmodulepath: libs\n")?;
    let model = "import std\nimport blank\nimport bare\nimport reader\n\
         std::print(reader::read(\"blank\"))\nstd::print(reader::read(\"bare\"))\n";
    write(&project.path().join("main.cf"), model)?;
    let done = Command::new(BINARY).arg("compile").current_dir(project.path()).output()?;
    let said = text(&done);
    ensure!(said.contains("hello from blank") && said.contains("hello from bare"), "{said}");
    Ok(())
}

/// A module of the project with the name of a built-in one defines the export of its own entities.
fn lowered_entities_are_exported_once() -> Result<()> {
    let scene = Scene::new(false)?;
    let user = scene.project().join("libs/user");
    write(&user.join("module.yml"), "name: user\nversion: 1.0.0\nlicense: MIT\n")?;
    let lowering = "import std\nimport exec\n\nentity User extends std::Resource:\n    string name\n    \
         string group = \"\"\n    string? shell = null\n    bool purged = false\nend\n\n\
         User.host [1] -- std::Host\n\nimplementation useradd for User:\n    \
         exec::Run(host=self.host, command=\"/usr/sbin/useradd {{name}}\", \
         unless=\"/usr/bin/id {{name}}\")\nend\n\nimplement User using useradd\n";
    write(&user.join("model/_init.cf"), lowering)?;
    let model = "import std\nimport user\nhost = std::Host(name=\"localhost\", os=std::linux)\n\
         user::User(host=host, name=\"ann\")\n";
    scene.write_model(model)?;
    let report = scene.world.path("report.json");
    let report_text = report.to_str().context("a path")?;
    let done = scene.run(&["compile", "--resources", "--report", report_text])?;
    ensure!(done.status.success(), "{}", text(&done));
    let report: Value = serde_json::from_slice(&std::fs::read(&report)?)?;
    let ids: Vec<&str> = report["resources"]
        .as_array()
        .context("no resources")?
        .iter()
        .filter_map(|resource| resource["id"].as_str())
        .collect();
    ensure!(ids.len() == 1 && ids[0].starts_with("exec::Run["), "{ids:?}");
    ensure!(!text(&done).contains("user::User"), "{}", text(&done));
    Ok(())
}
