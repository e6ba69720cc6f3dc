//! Real server and command line: exports, compiles on the server, and a killed server.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use libtest_mimic::Trial;
use orrery_api::client::{self, Client, Connection};
use orrery_model::SecretText;
use serde_json::{Value, json};

use crate::BINARY;

const PASSWORD: &str = "Correct-horse-1";
const PATIENCE: Duration = Duration::from_secs(120);

type Test = fn(&World) -> Result<()>;

pub(crate) fn trials() -> Vec<Trial> {
    let tests: [(&str, Test); 4] = [
        ("a_model_is_pushed", a_model_is_pushed),
        ("code_of_handlers_travels_along", code_of_handlers_travels_along),
        ("failures_are_reported", failures_are_reported),
        ("a_killed_server_compiles_again_and_once", a_killed_server_compiles_again_and_once),
    ];
    let trial = |(name, test): (&'static str, Test)| {
        Trial::test(format!("exports/{name}"), move || {
            let world = World::new().map_err(|error| format!("{error:#}"))?;
            Ok(test(&world).map_err(|error| format!("{error:#}"))?)
        })
    };
    tests.into_iter().map(trial).collect()
}

/// A directory with a project, and servers with their state.
struct World {
    directory: tempfile::TempDir,
}

/// A server that ends with this value.
struct Running {
    process: Child,
    url: String,
    client: Client,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Running {
    /// Creates an environment and returns its id.
    fn environment(&self, name: &str, repository: &str) -> Result<String> {
        let project: Value = self.client.post("/api/v1/projects", &json!({ "name": name }))?;
        let new = json!({"project": project["id"], "name": "live", "repository": repository});
        let made: Value = self.client.post("/api/v1/environments", &new)?;
        Ok(made["id"].as_str().context("an id")?.to_owned())
    }

    fn versions(&self, environment: &str) -> Result<Vec<Value>> {
        let mut all: Vec<Value> = self
            .client
            .list(&format!("/api/v1/environments/{environment}/versions"))
            .collect::<Result<_, _>>()?;
        all.reverse();
        Ok(all)
    }
}

impl World {
    fn new() -> Result<Self> {
        Ok(World { directory: tempfile::tempdir()? })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn project(&self, model: &str) -> Result<PathBuf> {
        let path = self.path("project");
        std::fs::create_dir_all(&path)?;
        std::fs::write(path.join("project.yml"), "name: test\nmodulepath: libs\n")?;
        std::fs::write(path.join("main.cf"), model)?;
        Ok(path)
    }

    fn server(&self) -> Result<Running> {
        let log =
            std::fs::File::options().create(true).append(true).open(self.path("server.log"))?;
        let mut process = Command::new(BINARY)
            .args(["server", "--listen", "127.0.0.1:0", "--allow-local-repositories", "--data"])
            .arg(self.path("server"))
            .env("ORRERY_ADMIN_PASSWORD", PASSWORD)
            .env("HOME", self.directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()?;
        let mut line = String::new();
        let stdout = process.stdout.take().context("its output")?;
        BufReader::new(stdout).read_line(&mut line)?;
        let Some(at) = line.find("http") else {
            let _ = process.kill();
            bail!("{line:?}\n{}", std::fs::read_to_string(self.path("server.log"))?);
        };
        let url = line[at..].trim().to_owned();
        let target =
            |token: Option<SecretText>| Connection { server: url.clone(), token, ca: None };
        let login = json!({"name": "admin", "password": PASSWORD});
        let session: Value = Client::new(&target(None))?.post_once("/api/v1/login", &login)?;
        let token = session["token"].as_str().context("a token")?;
        let client = Client::new(&target(Some(SecretText::new(token))))?;
        let running = Running { process, url, client };
        std::fs::write(self.path("token"), token)?;
        Ok(running)
    }

    /// Runs `orrery export` in the project, with the token in the environment.
    fn export(&self, server: &Running, arguments: &[&str]) -> Result<Output> {
        Ok(Command::new(BINARY)
            .arg("export")
            .args(arguments)
            .current_dir(self.path("project"))
            .env("ORRERY_SERVER", &server.url)
            .env("ORRERY_TOKEN", std::fs::read_to_string(self.path("token"))?)
            .env("HOME", self.directory.path())
            .env_remove("XDG_CONFIG_HOME")
            .output()?)
    }
}

fn text(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    format!("{out}{err}")
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        ensure!(Instant::now() < until, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn a_model_is_pushed(world: &World) -> Result<()> {
    let server = world.server()?;
    let environment = server.environment("shop", "")?;
    let file = world.path("deployed");
    let model = |content: &str| {
        format!(
            "import std\nimport std::testing\n\nhost = std::Host(name=\"internal\", os=std::linux)\n\
             one = std::testing::NullResource(name=\"one\", agentname=\"internal\")\n\
             std::ConfigFile(host=host, path=\"{}\", content={content})\n",
            file.display()
        )
    };
    world.project(&model("\"pushed\""))?;
    let done = world.export(&server, &["--environment", "shop/live", "--no-release"])?;
    ensure!(done.status.success() && text(&done).contains("not released"), "{}", text(&done));
    let versions = server.versions(&environment)?;
    ensure!(versions.len() == 1 && versions[0]["released"] == false, "{versions:?}");
    // The model sees a known fact, and an unknown one is recorded.
    world.project(&model("std::getfact(one, \"colour\")"))?;
    let arguments = ["-e", "live", "--message", "with a fact", "--json"];
    let done = world.export(&server, &arguments)?;
    ensure!(done.status.success(), "{}", text(&done));
    let report: Value = serde_json::from_slice(&done.stdout)?;
    ensure!(report["version"]["info"]["message"] == "with a fact", "{report}");
    let number = &report["version"]["number"];
    let path = format!("/api/v1/environments/{environment}/versions/{number}/unknowns");
    let unknowns: Value = server.client.get(&path)?;
    ensure!(unknowns["items"][0]["name"] == "colour", "{unknowns:?}");
    let resource = "std::testing::NullResource[internal,name=one]";
    let path =
        client::path(&["environments", &environment, "resources", resource, "facts", "colour"]);
    let _: Value = server.client.put(&path, &json!({"value": "blue"}))?;
    let done = world.export(&server, &["-d", "--environment", &environment])?;
    ensure!(done.status.success() && text(&done).contains(", released"), "{}", text(&done));
    // It is not only stored, but deployed.
    wait_for("the file is there", || {
        let content = std::fs::read_to_string(&file).unwrap_or_default();
        Ok((content == "blue").then_some(()))
    })
}

fn code_of_handlers_travels_along(world: &World) -> Result<()> {
    let server = world.server()?;
    let environment = server.environment("shop", "")?;
    let project = world.project("import std\nimport mark\n\nmark::Mark(name=\"x\")\n")?;
    let module = project.join("libs/mark");
    std::fs::create_dir_all(module.join("model"))?;
    std::fs::create_dir_all(module.join("plugins"))?;
    std::fs::write(module.join("module.yml"), "name: mark\nversion: 1.0\nlicense: x\n")?;
    let model = "import std\n\nentity Mark extends std::Resource:\n    string name\nend\n\n\
         implement Mark using std::none\n";
    std::fs::write(module.join("model/_init.cf"), model)?;
    let mark = world.path("marked");
    let code = format!(
        "from inmanta.agent.handler import CRUDHandler, provider\n\
         from inmanta.resources import PurgeableResource, resource\n\n\n\
         @resource(\"mark::Mark\", agent=\"name\", id_attribute=\"name\")\n\
         class Mark(PurgeableResource):\n    fields = (\"name\",)\n\n    \
         @staticmethod\n    def get_purged(_, entity):\n        return False\n\n    \
         @staticmethod\n    def get_purge_on_delete(_, entity):\n        return False\n\n\n\
         @provider(\"mark::Mark\", name=\"mark\")\n\
         class MarkHandler(CRUDHandler):\n    \
         def read_resource(self, ctx, resource):\n        \
         open({:?}, \"w\").write(resource.name)\n\n    \
         def create_resource(self, ctx, resource):\n        ctx.set_created()\n\n    \
         def update_resource(self, ctx, changes, resource):\n        ctx.set_updated()\n\n    \
         def delete_resource(self, ctx, resource):\n        ctx.set_purged()\n",
        mark.display().to_string()
    );
    std::fs::write(module.join("plugins/__init__.py"), code)?;
    let done = world.export(&server, &["--environment", "live", "--release"])?;
    ensure!(done.status.success(), "{}", text(&done));
    let versions = server.versions(&environment)?;
    let code = versions[0]["info"]["code"].as_str().context("the version names its code")?;
    ensure!(server.client.missing_files(&[code.to_owned()])?.is_empty());
    // The project is no longer needed.
    std::fs::remove_dir_all(&project)?;
    wait_for("the handler ran", || Ok(mark.exists().then_some(())))
}

fn failures_are_reported(world: &World) -> Result<()> {
    let server = world.server()?;
    let environment = server.environment("shop", "")?;
    world.project("x = 1\nx = 2\n")?;
    let fails = |arguments: &[&str], words: &[&str]| {
        let done = world.export(&server, arguments)?;
        let said = text(&done);
        ensure!(done.status.code() == Some(1), "{arguments:?}: {said}");
        for word in words {
            ensure!(said.contains(word), "{arguments:?}: {word:?} is missing: {said}");
        }
        Ok(())
    };
    fails(&["-e", "live"], &["x = 2", "nothing was stored"])?;
    fails(&["-e", "live", "--json"], &["DoubleSetException"])?;
    fails(&["-e", "nowhere"], &["no environment nowhere", "shop/live"])?;
    fails(&[], &["--environment"])?;
    fails(&["-e", "live", "--server", "http://127.0.0.1:1"], &["does not answer"])?;
    fails(&["-e", "live", "--server", "127.0.0.1"], &["not a server address"])?;
    ensure!(server.versions(&environment)?.is_empty());
    // A login context and a selection in the project directory are enough.
    let path = world.path(".config/orrery/contexts.toml");
    let token = std::fs::read_to_string(world.path("token"))?;
    let directory = path.parent().context("a directory")?;
    std::fs::create_dir_all(directory)?;
    let contexts = format!(
        "current = \"work\"\n\n[contexts.work]\nserver = {:?}\ntoken = {token:?}\nenvironment = \"shop/live\"\n",
        server.url
    );
    std::fs::write(&path, contexts)?;
    world.project("import std\n")?;
    let export = || {
        Command::new(BINARY)
            .args(["export", "--project"])
            .arg(world.path("project"))
            .env("HOME", world.directory.path())
            .env_remove("XDG_CONFIG_HOME")
            .output()
    };
    // The default environment of a context does not apply to projects.
    let done = export()?;
    ensure!(text(&done).contains("no environment selected"), "{}", text(&done));
    let chosen = format!("server = {:?}\nenvironment = \"shop/live\"\n", server.url);
    std::fs::write(world.path("project/.orrery.toml"), chosen)?;
    let done = export()?;
    ensure!(done.status.success(), "{}", text(&done));
    ensure!(server.versions(&environment)?.len() == 1);
    Ok(())
}

fn git(directory: &Path, arguments: &[&str]) -> Result<()> {
    let done = Command::new("git")
        .current_dir(directory)
        .args(["-c", "user.name=Test", "-c", "user.email=test@example.org"])
        .args(["-c", "core.hooksPath=/dev/null", "-c", "commit.gpgsign=false"])
        .args(arguments)
        .output()?;
    ensure!(done.status.success(), "git {arguments:?}: {}", text(&done));
    Ok(())
}

fn a_killed_server_compiles_again_and_once(world: &World) -> Result<()> {
    let repository =
        world.project("import std\n\nstd::AgentConfig(autostart=true, agentname=\"a\")\n")?;
    git(&repository, &["init", "--quiet", "--initial-branch=main"])?;
    git(&repository, &["add", "--all"])?;
    git(&repository, &["commit", "--quiet", "--message=start"])?;
    let mut server = world.server()?;
    let environment = server.environment("shop", &repository.display().to_string())?;
    let compiles = format!("/api/v1/environments/{environment}/compiles");
    // Killed ever later, from the clone to the end.
    let mut asked = 0;
    for delay in [0, 40, 120, 250, 500, 900] {
        let _: Value = server.client.post(&compiles, &json!({"update": true}))?;
        asked += 1;
        std::thread::sleep(Duration::from_millis(delay));
        server.process.kill()?;
        server.process.wait()?;
        server = world.server()?;
    }
    let all = wait_for("all compiles have ended", || {
        let all: Vec<Value> = server.client.list(&compiles).collect::<Result<_, _>>()?;
        Ok(all.iter().all(|one| one["completed"].is_string()).then_some(all))
    })?;
    ensure!(all.len() >= asked, "{all:?}");
    for one in &all {
        ensure!(
            one["success"] == true,
            "{one}\n{}",
            std::fs::read_to_string(world.path("server.log"))?
        );
    }
    // The model is the same each time: one version, however many runs were started.
    let mut runs: Vec<&str> = all
        .iter()
        .map(|one| one["substitute"].as_str().or(one["id"].as_str()).unwrap_or_default())
        .collect();
    runs.sort_unstable();
    runs.dedup();
    let versions = server.versions(&environment)?;
    let mut made: Vec<&str> =
        versions.iter().filter_map(|one| one["info"]["compile"].as_str()).collect();
    made.sort_unstable();
    ensure!(made.len() == 1 && runs.contains(&made[0]), "{made:?} {runs:?}");
    ensure!(all.iter().all(|one| one["version"] == 1), "{all:?}");
    Ok(())
}
