//! The command line against a real server: successes and failures. `guide` runs the walk-through of
//! `docs/guide/server.md`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use orrery_testing::{Postgres, TestDatabase};

use crate::{BINARY, delayed_proxy};

pub(crate) const PASSWORD: &str = "correct horse battery staple 1";

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, run: fn() -> Result<()>| {
        Trial::test(format!("server_commands/{name}"), move || {
            Ok(run().map_err(|error| format!("{error:#}"))?)
        })
    };
    vec![
        trial("one_deploy_runs_each_handler_once_sqlite", || deploys_once(false)),
        trial("one_deploy_runs_each_handler_once_postgres", || deploys_once(true)),
        trial("one_release_runs_each_handler_once_sqlite", || releases_once(false)),
        trial("one_release_runs_each_handler_once_postgres", || releases_once(true)),
        trial("work_is_called_what_was_asked_for", work_is_called_what_was_asked_for),
        trial("mistakes", mistakes),
        trial("people_and_their_rights", people_and_their_rights),
        trial("plans_are_the_same_here_and_there", plans_are_the_same),
        trial("compile_errors_are_reported_once", compile_errors),
        trial("a_plan_that_is_interrupted_leaves_no_version", interrupted_plan),
        trial("a_plan_that_is_interrupted_as_it_pushes_leaves_no_version", interrupted_push),
        trial("completion", completion),
    ]
}

/// A server process that ends with this value.
struct Server {
    child: Child,
    url: String,
    /// From the link that a new server prints.
    ticket: Option<String>,
}

impl Server {
    /// Ends it as Ctrl-C does; returns its address.
    fn stop(mut self) -> Result<String> {
        let id = self.child.id().to_string();
        ensure!(Command::new("kill").args(["-INT", &id]).status()?.success(), "kill {id}");
        ensure!(self.child.wait()?.success(), "the server did not end well");
        Ok(self.url.clone())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) struct World {
    pub(crate) directory: tempfile::TempDir,
    /// Program of the server.
    pub(crate) program: PathBuf,
    database: Option<TestDatabase>,
    /// The working directory of commands.
    pub(crate) here: PathBuf,
    /// Further variables of the environment.
    pub(crate) variables: Vec<(String, String)>,
    server: Option<Server>,
    /// Environment of commands in every directory.
    environment: Option<&'static str>,
    /// Remote agents, which end with this value.
    agents: Vec<Agent>,
    /// Downtime of a restarted server.
    pause_before_start: std::time::Duration,
}

struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        // It may already be dead.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl World {
    pub(crate) fn new(postgres: bool) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let here = directory.path().canonicalize()?;
        let database = postgres.then(|| Postgres::shared().database());
        std::os::unix::fs::symlink(BINARY, here.join("orrery"))?;
        let (variables, agents) = (Vec::new(), Vec::new());
        let pause_before_start = std::time::Duration::ZERO;
        Ok(World {
            directory,
            program: BINARY.into(),
            database,
            here,
            variables,
            server: None,
            environment: None,
            agents,
            pause_before_start,
        })
    }

    /// Starts the server with these options, and returns its output; a running one is stopped
    /// first, and its address is kept.
    pub(crate) fn start(&mut self, with_account: bool, options: &str) -> Result<String> {
        let data = self.directory.path().join("server");
        let mut command = Command::new(&self.program);
        let before = self.server.take().map(Server::stop).transpose()?;
        std::thread::sleep(std::mem::take(&mut self.pause_before_start));
        let (listen, is_first) = match &before {
            Some(url) => (url.trim_start_matches("http://"), false),
            None => ("127.0.0.1:0", true),
        };
        command.args(["server", "--listen", listen, "--log", "warn", "--data"]).arg(data);
        command.args(options.split_whitespace());
        if let Some(database) = &self.database {
            command.arg("--database").arg(database.url());
        }
        if with_account {
            command.env("ORRERY_ADMIN_PASSWORD", PASSWORD);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let mut errors = BufReader::new(child.stderr.take().context("no standard error")?);
        let (mut ticket, mut printed) = (None, String::new());
        if !with_account && is_first {
            let mut line = String::new();
            while ticket.is_none() && errors.read_line(&mut line)? > 0 {
                ticket = line.split_once("/setup#").map(|(_, ticket)| ticket.trim().to_owned());
                printed.push_str(&line);
                line.clear();
            }
        }
        // An unread pipe would block the server.
        std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("no output")?).read_line(&mut line)?;
        let url = line.split_whitespace().last().context("the server did not start")?.to_owned();
        printed.push_str(&line);
        self.server = Some(Server { child, url, ticket });
        Ok(printed)
    }

    /// Starts a remote agent, and returns its first output.
    pub(crate) fn start_agent(&mut self, line: &str) -> Result<String> {
        let mut command = self.shell(&format!("exec {line} --log warn"))?;
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut printed = String::new();
        BufReader::new(child.stdout.take().context("no output")?).read_line(&mut printed)?;
        self.agents.push(Agent(child));
        Ok(printed)
    }

    /// From the link that a new server printed.
    pub(crate) fn bootstrap_token(&self) -> Option<&str> {
        self.server.as_ref()?.ticket.as_deref()
    }

    /// Ends the server.
    pub(crate) fn end(&mut self) -> Result<()> {
        self.server.take().map(Server::stop).transpose()?;
        Ok(())
    }

    /// Stops the server, and restarts it at the same address after a while.
    pub(crate) fn pause(&mut self, length: std::time::Duration) -> Result<()> {
        self.pause_before_start = length;
        self.start(false, "").map(drop)
    }

    /// Logs in, and selects the new environment shop/live for every directory.
    pub(crate) fn settle(&mut self, options: &str) -> Result<()> {
        self.start(true, options)?;
        let url = self.server()?.url.clone();
        self.done(&format!("orrery login {url} --name admin"))?;
        self.done("orrery project create shop && orrery environment create shop/live")?;
        self.environment = Some("shop/live");
        Ok(())
    }

    /// Address of the server.
    pub(crate) fn url(&self) -> Result<&str> {
        Ok(&self.server()?.url)
    }

    fn server(&self) -> Result<&Server> {
        self.server.as_ref().context("no server was started yet")
    }

    /// A shell command, with the binary in its search path and a private home directory.
    fn shell(&self, line: &str) -> Result<Command> {
        let path = format!("{}:{}", self.directory.path().display(), std::env::var("PATH")?);
        let mut command = Command::new("sh");
        command.arg("-c").arg(line).current_dir(&self.here);
        command.env("HOME", self.directory.path()).env("PATH", path).env("USER", "ada");
        for who in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{who}_NAME"), "Ada");
            command.env(format!("GIT_{who}_EMAIL"), "ada@example.org");
        }
        for name in ["XDG_CONFIG_HOME", "ORRERY_SERVER", "ORRERY_TOKEN", "ORRERY_CONTEXT"] {
            command.env_remove(name);
        }
        for name in ["ORRERY_ENVIRONMENT", "ORRERY_CONTEXTS", "ORRERY_CA", "ORRERY_DATA"] {
            command.env_remove(name);
        }
        for name in ["VIRTUAL_ENV", "CLICOLOR_FORCE", "RUST_LOG"] {
            command.env_remove(name);
        }
        if let Some(name) = self.environment {
            command.env("ORRERY_ENVIRONMENT", name);
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }

    /// Runs a shell command; returns its output and exit code.
    pub(crate) fn run(&self, line: &str) -> Result<(String, i32)> {
        let mut command = self.shell(&format!("exec 2>&1; {line}"))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        // Not every command reads it.
        let _ = writeln!(child.stdin.take().context("no input")?, "{PASSWORD}");
        let mut text = String::new();
        child.stdout.take().context("no output")?.read_to_string(&mut text)?;
        Ok((text, child.wait()?.code().unwrap_or(-1)))
    }

    pub(crate) fn done(&self, line: &str) -> Result<String> {
        let (text, code) = self.run(line)?;
        ensure!(code == 0, "{line}: {code}\n{text}");
        Ok(text)
    }
}

/// As a local deploy: everything is verified, and each handler runs once, whether or not the
/// version changed it.
fn deploys_once(postgres: bool) -> Result<()> {
    let mut world = World::new(postgres)?;
    world.settle("")?;
    world.done("orrery new once")?;
    let log = world.directory.path().join("log");
    for round in 1..=3 {
        // The second version changes one of them, the third deploy nothing.
        let text = format!(
            "import exec\nhost = std::Host(name=\"localhost\", os=std::linux)\n\
             exec::Run(host=host, command=\"sh -c 'echo same >> {0}'\")\n\
             exec::Run(host=host, command=\"sh -c 'echo changed >> {0}'\", timeout={1})\n",
            log.display(),
            100 + round.min(2),
        );
        std::fs::write(world.directory.path().join("once/main.cf"), text)?;
        world.done("cd once && orrery deploy")?;
        let told = std::fs::read_to_string(&log)?;
        for name in ["same", "changed"] {
            let runs = told.lines().filter(|line| *line == name).count();
            ensure!(runs == round, "{name} ran {runs} times in {round} deploys");
        }
    }
    Ok(())
}

/// A handler that fails at once fails before a separate deploy request could arrive.
fn releases_once(postgres: bool) -> Result<()> {
    let mut world = World::new(postgres)?;
    world.settle("")?;
    world.done("orrery new once")?;
    let log = world.directory.path().join("log");
    let versions: u32 = 4;
    for version in 1..=versions {
        let text = format!(
            "import exec\nhost = std::Host(name=\"localhost\", os=std::linux)\n\
             exec::Run(host=host, command=\"sh -c 'echo bad >> {0}; exit 1'\")\n\
             exec::Run(host=host, command=\"sh -c 'echo good >> {0}'\", timeout={1})\n",
            log.display(),
            100 + version,
        );
        std::fs::write(world.directory.path().join("once/main.cf"), text)?;
        world.done("cd once && orrery export --no-release")?;
    }
    let released = (1..=versions).map(|version| format!("release {version}"));
    let rolled_back = (1..versions).map(|version| format!("roll-back {version}"));
    for (round, command) in released.chain(rolled_back).enumerate() {
        let (text, code) = world.run(&format!("orrery version {command} --follow"))?;
        ensure!(code == 2 && text.contains("1 failed"), "{command}: {code}\n{text}");
        let told = std::fs::read_to_string(&log)?;
        for name in ["bad", "good"] {
            let runs = told.lines().filter(|line| *line == name).count();
            ensure!(runs == round + 1, "{name} ran {runs} times up to {command}");
        }
    }
    fails(&world, "orrery version release 2 --follow", &["newer"])
}

fn work_is_called_what_was_asked_for() -> Result<()> {
    let mut world = World::new(false)?;
    world.settle("")?;
    world.done("orrery new model")?;
    let home = world.directory.path().canonicalize()?;
    let script =
        "touch asked; until test -e answer -o ! -e command; do sleep 0.05; done; rm answer\n";
    std::fs::write(home.join("command"), script)?;
    let model = format!(
        "import exec\nhost = std::Host(name=\"localhost\", os=std::linux)\n\
         exec::Run(host=host, command=\"sh {0}/command\", cwd=\"{0}\")\n",
        home.display()
    );
    std::fs::write(home.join("model/main.cf"), model)?;
    for command in ["deploy", "repair"] {
        let (text, _) = world.run(&format!(
            "cd model; rm -f ../asked; orrery {command} & work=$!; \
             for i in $(seq 600); do test -e ../asked && break; sleep 0.05; done; \
             orrery status; orrery why command; touch ../answer; wait $work; echo \"ended with $?\"",
        ))?;
        let told = text.matches(&format!("the server is deploying: {command} since")).count();
        ensure!(told == 2 && text.contains("ended with 0"), "{command}:\n{text}");
    }
    Ok(())
}

pub(crate) fn fails(world: &World, line: &str, words: &[&str]) -> Result<()> {
    let (text, code) = world.run(line)?;
    ensure!(code == 1, "{line}: {code}\n{text}");
    for word in words {
        ensure!(text.contains(word), "{line}: {word:?} is missing:\n{text}");
    }
    Ok(())
}

fn mistakes() -> Result<()> {
    let mut world = World::new(false)?;
    fails(&world, "orrery project list", &["no server selected", "orrery login"])?;
    fails(&world, "orrery login nonsense --name a", &["not a server address"])?;
    fails(&world, "orrery login http://127.0.0.1:1 --name a", &["does not answer"])?;
    fails(&world, "orrery context use nowhere", &["no context nowhere"])?;
    world.start(true, "")?;
    let url = world.server()?.url.clone();
    fails(&world, &format!("echo wrong | orrery login {url} --name admin"), &["wrong"])?;
    let https = url.replace("http://", "https://");
    let (told, code) = world.run(&format!("orrery login {https} --name admin"))?;
    let remedy = format!("help: use {url}\n");
    ensure!(code == 1 && told.contains("does not speak TLS") && told.contains(&remedy), "{told}");
    let (text, code) = world.run(&format!("orrery login {url} --name admin --as work"))?;
    ensure!(code == 0, "{text}");
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(world.directory.path().join(".config/orrery/contexts.toml"))?
            .permissions(),
    );
    ensure!(mode & 0o777 == 0o600, "{mode:o}");
    fails(&world, "orrery status -e live", &["no environment live"])?;
    fails(&world, "orrery environment create live", &["no project yet", "orrery project create"])?;
    world.done("orrery project create shop")?;
    world.done("orrery project create spare")?;
    fails(&world, "orrery environment create live", &["several projects", "--project"])?;
    world.done("orrery environment create shop/live --use")?;
    world.done("orrery environment create spare/live")?;
    fails(&world, "orrery status -e live", &["several environments", "shop/live", "spare/live"])?;
    fails(&world, "orrery status", &["no released version"])?;
    fails(&world, "orrery version show 7", &["7"])?;
    fails(&world, "orrery environment setting set auto_deploy maybe", &["auto_deploy"])?;
    fails(&world, "orrery project delete shop < /dev/null", &["--yes"])?;
    fails(&world, "orrery project delete shop --yes", &["in use"])?;
    // Options that a server cannot honour, or that are for this machine, are rejected.
    fails(&world, "orrery watch", &["--local"])?;
    fails(&world, "orrery deploy --jobs 3 --timeout 9", &["--jobs and --timeout", "server"])?;
    fails(&world, "orrery repair --agent nope", &["no agent nope", "orrery agent list"])?;
    fails(&world, "orrery compile request", &["no repository", "--repository"])?;
    let local = "orrery environment update shop/live --repository /srv/model.git";
    fails(&world, local, &["--allow-local-repositories"])?;
    // A token with read access only.
    let token = world.done("orrery token create eyes --role viewer 2>/dev/null")?;
    let token = token.trim();
    let with = |line: &str| format!("ORRERY_TOKEN={token} {line}");
    world.done(&with("orrery environment show"))?;
    fails(&world, &with("orrery environment halt"), &["orrery context show"])?;
    let shown = world.done(&with("orrery context show"))?;
    for word in ["token:admin/eyes", "viewer everywhere", "ORRERY_TOKEN"] {
        ensure!(shown.contains(word), "{word}:\n{shown}");
    }
    fails(&world, "ORRERY_TOKEN=orr_nonsense orrery environment show", &["orrery login"])?;
    world.done("orrery token revoke eyes --yes")?;
    fails(&world, &with("orrery environment show"), &["orrery login"])?;
    // A file in a project cannot send a session to another server.
    let project = world.directory.path().join("project");
    std::fs::create_dir(&project)?;
    std::fs::write(project.join("project.yml"), "name: x\n")?;
    let foreign = "server = \"http://127.0.0.1:1\"\nenvironment = \"a\"\n";
    std::fs::write(project.join(".orrery.toml"), foreign)?;
    fails(&world, "cd project && orrery status", &[".orrery.toml", "not logged in", "--local"])?;
    // A logged-in user may mistake a local project for an environment.
    std::fs::remove_file(project.join(".orrery.toml"))?;
    world.done("orrery environment use none")?;
    fails(&world, "cd project && orrery status", &["local project", "orrery environment use"])?;
    let left: serde_json::Value = serde_json::from_str(&world.done("orrery logout --json")?)?;
    ensure!(left["logged_in"] == false && left["server"] == url, "{left}");
    fails(&world, "orrery project list", &["orrery login"])?;
    Ok(())
}

/// Checks that the output of a command contains these words.
pub(crate) fn prints(world: &World, line: &str, words: &[&str]) -> Result<()> {
    let text = world.done(line)?;
    for word in words {
        ensure!(text.contains(word), "{line}: {word:?} is missing:\n{text}");
    }
    Ok(())
}

fn people_and_their_rights() -> Result<()> {
    let mut world = World::new(false)?;
    world.start(true, "")?;
    let url = world.server()?.url.clone();
    world.done(&format!("orrery login {url} --name admin --as work"))?;
    world.done("orrery project create shop")?;
    world.done("orrery environment create live --use")?;
    fails(&world, "orrery user create grace --issuer corp", &["no issuer", "corp"])?;
    world.done("orrery user create bob")?;
    world.done("orrery user role add bob operator --in-environment shop/live")?;
    prints(&world, "orrery user role list", &["bob", "operator", "environment shop/live"])?;
    let wrong = "orrery user role remove bob viewer --in-environment shop/live";
    fails(&world, wrong, &["bob is not viewer in this scope, but operator"])?;
    // An operator is told about the missing role before the compile.
    let as_bob = format!("orrery login {url} --name bob --as bob --json");
    let bob: serde_json::Value = serde_json::from_str(&world.done(&as_bob)?)?;
    ensure!(bob["user"] == "user:bob" && bob.get("token").is_none(), "{bob}");
    let shown = world.done("orrery context show bob")?;
    ensure!(shown.contains("operator in environment shop/live"), "{shown}");
    world.done("orrery new model")?;
    for command in ["plan", "deploy"] {
        let line = format!("cd model && orrery {command} --context bob -e shop/live");
        let (text, code) = world.run(&line)?;
        ensure!(code == 1 && text.contains("the role developer"), "{text}");
        ensure!(!text.contains("compiled"), "{text}");
    }
    world.done("orrery context use work")?;
    prints(&world, "orrery user update bob --disable", &["bob is disabled"])?;
    fails(&world, "orrery environment show --context bob -e shop/live", &["orrery login"])?;
    prints(&world, "orrery user update bob --enable --admin", &["bob is active", "administrator"])?;
    world.done("orrery token create eyes --verbs get --groups environments,versions")?;
    let limits = "verbs GET; groups environments versions";
    prints(&world, "orrery token list", &[limits, "everywhere", "active"])?;
    world.done("orrery secret set password --shared")?;
    prints(&world, "orrery secret list --shared", &["password"])?;
    prints(&world, "orrery secret list", &["0 secrets"])?;
    let done = [
        "user bob",
        "bob: operator in environment shop/live",
        "user bob: disabled",
        "user bob: admin, enabled",
        "token eyes",
        "secret password set",
        "environment shop/live",
    ];
    prints(&world, "orrery audit list", &done)
}

fn plans_are_the_same() -> Result<()> {
    let mut world = World::new(false)?;
    world.settle("")?;
    world.done("orrery new model")?;
    world.here = world.here.join("model");
    let notes = world.directory.path().canonicalize()?.join("orrery-notes");
    let model = format!(
        "host = std::Host(name=\"localhost\", os=std::linux)\n\
         notes = std::Directory(host=host, path=\"{0}\")\n\
         std::File(host=host, path=\"{0}/today.txt\", content=\"Water the plants.\\n\", requires=notes)\n",
        notes.display()
    );
    std::fs::write(world.here.join("main.cf"), model)?;
    let plan = |place: &str| -> Result<serde_json::Value> {
        let (text, code) = world.run(&format!("orrery plan --json {place} 2> /dev/null"))?;
        ensure!(code == 2 || code == 0, "{code}: {text}");
        Ok(serde_json::from_str(&text)?)
    };
    let same = || -> Result<serde_json::Value> {
        let (here, there) = (plan("--local")?, plan("")?);
        for part in ["counts", "resources", "no_longer_wanted"] {
            ensure!(here[part] == there[part], "{part}: {} and {}", here[part], there[part]);
        }
        Ok(there)
    };
    let new = same()?;
    ensure!(new["resources"][0]["cause"] == "new", "{new}");
    world.done("orrery deploy --local")?;
    world.done("orrery deploy")?;
    // One resource drifts, another changes in the model, and one leaves it.
    world.done("orrery environment setting set drift_policies '{\"*\": \"report\"}'")?;
    world.done("chmod 700 ../orrery-notes && sed -i 's/Water/Drown/' main.cf")?;
    let changed = same()?;
    let causes: Vec<&str> = changed["resources"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|one| one["cause"].as_str())
        .collect();
    ensure!(causes == ["drift", "changed in the model"], "{changed}");
    world.done("sed -i '/^std::File(/,$d' main.cf")?;
    let fewer = same()?;
    ensure!(fewer["no_longer_wanted"].as_array().is_some_and(|ids| ids.len() == 1), "{fewer}");
    prints(&world, "orrery status || true", &["where    shop/live on http://127.0.0.1:"])
}

fn interrupted_plan() -> Result<()> {
    let mut world = World::new(false)?;
    world.settle("")?;
    world.done("orrery new model")?;
    let home = world.directory.path().canonicalize()?;
    // The response of the handler is held back.
    let script = "touch asked; until test -e answer -o ! -e condition; do sleep 0.05; done\n";
    std::fs::write(home.join("condition"), script)?;
    let model = format!(
        "import exec\nhost = std::Host(name=\"localhost\", os=std::linux)\n\
         exec::Run(host=host, command=\"true\", onlyif=\"sh {0}/condition\", cwd=\"{0}\")\n",
        home.display()
    );
    std::fs::write(home.join("model/main.cf"), model)?;
    let (text, _) = world.run(
        "cd model; orrery plan & plan=$!; \
         for i in $(seq 600); do test -e ../asked && break; sleep 0.05; done; \
         kill -TERM $plan; wait $plan; echo \"ended with $?\"; touch ../answer",
    )?;
    ensure!(text.contains("interrupted") && text.contains("ended with 1"), "{text}");
    prints(&world, "orrery version list", &["0 versions"])
}

/// The server has stored the version, and the command does not know its number yet.
fn interrupted_push() -> Result<()> {
    let mut world = World::new(false)?;
    world.start(true, "")?;
    let home = world.directory.path().canonicalize()?;
    let url = delayed_proxy::open(&world.server()?.url, ("POST", "/versions"), &home)?;
    world.done(&format!("orrery login {url} --name admin"))?;
    world.done("orrery project create shop")?;
    world.done("orrery new model")?;
    world.done("cd model && orrery environment create live --use")?;
    let (text, _) = world.run(
        "cd model; orrery plan & plan=$!; \
         for i in $(seq 600); do test -e ../answered && break; sleep 0.05; done; \
         orrery version list; kill -TERM $plan; sleep 0.2; touch ../go-on; \
         wait $plan; echo \"ended with $?\"",
    )?;
    ensure!(text.contains("1 version"), "it was not stored yet: {text}");
    ensure!(text.contains("interrupted") && text.contains("ended with 1"), "{text}");
    prints(&world, "cd model && orrery version list", &["0 versions"])
}

fn compile_errors() -> Result<()> {
    let mut world = World::new(false)?;
    world.start(true, "--allow-local-repositories")?;
    let url = world.server()?.url.clone();
    world.done(&format!("orrery login {url} --name admin"))?;
    world.done("orrery project create shop")?;
    world.done("orrery new model")?;
    world.done("cd model && echo 'x = nothing_like_this' > main.cf")?;
    world.done("cd model && git init -q -b main && git add -A && git commit -qm broken")?;
    world.done("orrery environment create live --use --repository \"$PWD/model\"")?;
    let (text, code) = world.run("orrery compile request --follow")?;
    ensure!(code == 2, "{code}: {text}");
    let told = text.matches("nothing_like_this").count();
    let (shown, code) = world.run("orrery compile request --deploy --json 2> /dev/null")?;
    let form: serde_json::Value = serde_json::from_str(&shown)?;
    ensure!(code == 2 && form["errors"].as_array().is_some_and(|all| all.len() == 1), "{shown}");
    // The message, and the line of the model.
    ensure!(told <= 3 && text.matches("error").count() <= 3, "{text}");
    ensure!(text.contains("main.cf:1") && !text.contains("/project/main.cf"), "{text}");
    Ok(())
}

/// Quotes a text for a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

fn completion() -> Result<()> {
    let world = World::new(false)?;
    for shell in ["bash", "zsh", "fish"] {
        let script = world.done(&format!("orrery completion {shell}"))?;
        for word in ["login", "environment", "roll-back", "--on-resume"] {
            ensure!(script.contains(word.trim_start_matches('-')), "{shell}: {word}");
        }
    }
    let script = world.done("orrery completion bash")?;
    for hidden in ["compile-job", "--serve-host"] {
        ensure!(!script.contains(hidden), "bash offers {hidden}");
    }
    // File completion is not offered for names.
    let complete = "source <(orrery completion bash); COMP_WORDS=(orrery status -e ''); COMP_CWORD=3; \
        _orrery orrery '' -e; echo \"offered: ${COMPREPLY[*]}\"";
    let offered = world.done(&format!("bash -c {} 2> /dev/null", quoted(complete)))?;
    ensure!(offered.trim() == "offered:", "{offered}");
    let file = world.directory.path().join("orrery.bash");
    std::fs::write(&file, world.done("orrery completion bash")?)?;
    ensure!(Path::new(&file).is_file());
    world.done("bash -n orrery.bash")?;
    Ok(())
}
