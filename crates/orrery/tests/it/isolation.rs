//! Handlers that attack their server, and packages that attack it during their installation. With
//! the real program; `ORRERY_TEST_SHARED_IDENTITY=1` shows the result without a sandbox.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use serde_json::json;

use crate::server_kills::{Server, World, git, until};

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, run: fn() -> Result<()>| {
        Trial::test(format!("isolation/{name}"), move || {
            Ok(run().map_err(|error| format!("{error:#}"))?)
        })
    };
    vec![
        trial(
            "handlers_and_packages_reach_nothing_of_others",
            handlers_and_packages_reach_nothing_of_others,
        ),
        trial(
            "only_handlers_of_administrators_have_the_servers_rights",
            only_handlers_of_administrators_have_the_servers_rights,
        ),
    ]
}

const MODEL: &str = "entity Spy extends std::PurgeableResource:\n    string name\n    string agent = \"internal\"\n    string data\nend\n\
                     implement Spy using std::none\n";

const HANDLER: &str = r#"
import glob, os, subprocess, sys
from inmanta.agent.handler import CRUDHandler, ResourcePurged, provider
from inmanta.resources import PurgeableResource, resource


@resource("spy::Spy", agent="agent", id_attribute="name")
class Spy(PurgeableResource):
    fields = ("name", "data")


def attempt(name, function):
    try:
        found = function()
    except Exception:
        return name + " held"
    return name + (" LEAK " + repr(found) if found else " held")


def password():
    found = []
    for one in glob.glob("/proc/*/environ"):
        try:
            found += [one] if b"ORRERY_ADMIN_PASSWORD" in open(one, "rb").read() else []
        except OSError:
            pass
    return found


@provider("spy::Spy", name="spy")
class SpyHandler(CRUDHandler):
    def read_resource(self, ctx, resource):
        raise ResourcePurged()

    def create_resource(self, ctx, resource):
        data = resource.data
        import innocent
        told = [
            attempt("password", password),
            attempt("variable", lambda: os.environ.get("ORRERY_ADMIN_PASSWORD")),
            attempt("key", lambda: open(data + "/secret.key").read()),
            attempt("database", lambda: open(data + "/server.db", "rb").read(16)),
            attempt("database write", lambda: open(data + "/server.db", "ab") and "open"),
            attempt("other", lambda: os.listdir(data + "/environments/other")),
            attempt("code", lambda: open(os.path.dirname(__file__) + "/new.py", "w").write("x")),
            attempt("package", lambda: open(innocent.__file__, "a").write("\n")),
            attempt("virtualenv", lambda: open(sys.prefix + "/new", "w").write("x")),
            attempt("at install", lambda: innocent.FOUND),
        ]
        subprocess.Popen(["env", "-i", "setsid", "sleep", "98765"], start_new_session=True)
        ctx.info("spied: %(told)s", told="; ".join(told))
        ctx.set_created()
"#;

/// A package that inspects its surroundings during its installation, as its own build backend.
const BACKEND: &str = r#"
import glob, os, zipfile


def look():
    found = []
    for one in glob.glob("/proc/*/environ"):
        try:
            if b"ORRERY_ADMIN_PASSWORD" in open(one, "rb").read():
                found.append(one)
        except OSError:
            pass
    for one in "/secret.key", "/server.db", "/environments/other/main.cf":
        try:
            found.append(open(DATA + one, "rb").read(1))
        except OSError:
            pass
    return found


def get_requires_for_build_wheel(config_settings=None):
    return []


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    name = "innocent-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w") as wheel:
        wheel.writestr("innocent/__init__.py", "FOUND = %r\n" % (look(),))
        wheel.writestr("innocent-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: innocent\nVersion: 1.0\n")
        wheel.writestr("innocent-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("innocent-1.0.dist-info/RECORD", "")
    return name
"#;

const PYPROJECT: &str = "[project]\nname = \"innocent\"\nversion = \"1.0\"\n\n\
                         [build-system]\nrequires = []\nbuild-backend = \"backend\"\nbackend-path = [\".\"]\n";

/// Prints its user whenever it runs.
const TELLER: &str = r#"
import os
from inmanta.agent.handler import CRUDHandler, ResourcePurged, provider
from inmanta.resources import PurgeableResource, resource


@resource("spy::Spy", agent="agent", id_attribute="name")
class Spy(PurgeableResource):
    fields = ("name", "data")


@provider("spy::Spy", name="spy")
class SpyHandler(CRUDHandler):
    def read_resource(self, ctx, resource):
        raise ResourcePurged()

    def create_resource(self, ctx, resource):
        try:
            found = open(resource.data + "/secret.key").read()
        except OSError:
            found = "nothing"
        ctx.info("user %(user)s found %(found)s", user=os.getuid(), found=found)
        ctx.set_created()
"#;

/// Commits a project with the module `spy`, and returns its repository.
fn commit_module(world: &World, handler: &str, requirements: &str) -> Result<PathBuf> {
    let repository = world.path("repository");
    let module = repository.join("libs/spy");
    std::fs::create_dir_all(module.join("model"))?;
    std::fs::create_dir_all(module.join("plugins"))?;
    std::fs::write(module.join("module.yml"), "name: spy\nversion: 1.0\nlicense: x\n")?;
    std::fs::write(module.join("model/_init.cf"), MODEL)?;
    std::fs::write(module.join("plugins/__init__.py"), handler)?;
    std::fs::write(module.join("requirements.txt"), requirements)?;
    std::fs::write(repository.join("project.yml"), "name: test\nmodulepath: libs\n")?;
    let data = world.path("data").display().to_string();
    let model = format!("import spy\nspy::Spy(name=\"one\", data={data:?})\n");
    std::fs::write(repository.join("main.cf"), model)?;
    git(&repository, &["init", "-q", "-b", "main"])?;
    git(&repository, &["add", "."])?;
    git(&repository, &["commit", "-q", "-m", "start"])?;
    Ok(repository)
}

/// An environment that follows a repository.
struct Environment<'a> {
    world: &'a World,
    server: &'a Server,
    address: String,
}

impl<'a> Environment<'a> {
    /// Waits until the repository is deployed.
    fn deployed(world: &'a World, server: &'a Server, repository: &Path) -> Result<Self> {
        let project = world.create(server, "/api/v1/projects", &json!({"name": "p"}))?;
        let body = json!({
            "project": project["id"], "name": "e", "repository": repository, "branch": "main",
        });
        let made = world.create(server, "/api/v1/environments", &body)?;
        let address = format!("/api/v1/environments/{}", made["id"].as_str().context("no id")?);
        world.create(server, &format!("{address}/compiles"), &json!({"update": true}))?;
        let this = Environment { world, server, address };
        until("it is deployed", || {
            let compiles = this.get("compiles")?;
            let is_failed = compiles["items"][0]["success"] == false;
            ensure!(!is_failed, "{compiles} {}", this.get("notifications")?);
            Ok(this.get("resource-counts")?["by_status"]["deployed"].as_u64() == Some(1))
        })?;
        Ok(this)
    }

    fn get(&self, path: &str) -> Result<serde_json::Value> {
        let address = format!("{}/{path}", self.address);
        let (status, answer) = self.world.call(self.server, "GET", &address, None)?;
        ensure!(status == 200, "{path}: {status} {answer}");
        Ok(answer)
    }

    fn logs(&self) -> Result<String> {
        Ok(self.get("resources/spy::Spy%5Binternal,name=one%5D/logs")?.to_string())
    }
}

fn only_handlers_of_administrators_have_the_servers_rights() -> Result<()> {
    let world = World::new(false)?;
    let repository = commit_module(&world, TELLER, "")?;
    let server = world.start()?;
    std::fs::write(world.path("data/secret.key"), "the key")?;
    let environment = Environment::deployed(&world, &server, &repository)?;
    let logs = environment.logs()?;
    ensure!(logs.contains("found the key"), "an administrator's handler: {logs}");
    // From the first developer on, environment code has its own rights.
    world.create(&server, "/api/v1/tokens", &json!({"name": "ci", "role": "developer"}))?;
    let repair = format!("{}/repair", environment.address);
    world.create(&server, &repair, &json!({}))?;
    until("it ran in a sandbox", || Ok(environment.logs()?.contains("found nothing")))
}

fn handlers_and_packages_reach_nothing_of_others() -> Result<()> {
    let world = World::new(false)?;
    let data = world.path("data").display().to_string();
    let package = world.path("package");
    std::fs::create_dir_all(&package)?;
    std::fs::write(package.join("pyproject.toml"), PYPROJECT)?;
    std::fs::write(package.join("backend.py"), format!("DATA = {data:?}\n{BACKEND}"))?;
    let requirement = format!("innocent @ file://{}\n", package.display());
    let repository = commit_module(&world, HANDLER, &requirement)?;
    let package = package.display().to_string();
    let mut options = vec!["--sandbox-readable", &*package];
    if std::env::var_os("ORRERY_TEST_SHARED_IDENTITY").is_some() {
        options.push("--unsafe-shared-identity");
    }
    let server = world.start_with(&options)?;
    std::fs::create_dir_all(world.path("data/environments/other/project"))?;
    std::fs::write(world.path("data/secret.key"), "key")?;
    world.create(&server, "/api/v1/tokens", &json!({"name": "ci", "role": "developer"}))?;
    let environment = Environment::deployed(&world, &server, &repository)?;
    let logs = environment.logs()?;
    ensure!(logs.contains("password held"), "{logs}");
    ensure!(!logs.contains("LEAK"), "{logs}");
    ensure!(logs.matches(" held").count() >= 10, "{logs}");
    let (status, health) = world.call(&server, "GET", "/health", None)?;
    ensure!(status == 200 && health["isolation"] == "sandboxed", "{status} {health}");
    // Processes of handlers do not outlive the server.
    drop(server);
    let is_left = || {
        let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let lines =
            all.map(|entry| std::fs::read(entry.path().join("cmdline")).unwrap_or_default());
        lines.into_iter().any(|line| line == b"sleep\x0098765\0")
    };
    until("nothing is left", || Ok(!is_left()))
}
