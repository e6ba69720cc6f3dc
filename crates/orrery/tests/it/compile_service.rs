//! The compile service with real git repositories and the real program: from a commit to a version.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use libtest_mimic::Trial;
use orrery_model::Timestamp;
use orrery_server::compiling::{CompileOptions, CompileService};
use orrery_server::{App, AppSettings};
use orrery_store::{
    CompileRecord, CompileRequest, EnvironmentChange, EnvironmentRecord, Holder, NewCompile,
    NewEnvironment, SqliteStore, Store,
};
use uuid::Uuid;

use crate::BINARY;

const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn trials() -> Vec<Trial> {
    let tests: [(&str, fn(&mut World) -> Result<()>); 13] = [
        ("a_commit_becomes_a_version", a_commit_becomes_a_version),
        ("errors_are_structured_and_told", errors_are_structured_and_told),
        ("a_check_stores_nothing", a_check_stores_nothing),
        ("equal_requests_share_a_run", equal_requests_share_a_run),
        ("another_repository_is_cloned_anew", another_repository_is_cloned_anew),
        ("a_branch_is_followed", a_branch_is_followed),
        ("a_stopped_compile_is_done_again", a_stopped_compile_is_done_again),
        ("a_compile_that_takes_too_long_is_ended", a_compile_that_takes_too_long_is_ended),
        ("a_cancelled_compile_ends", a_cancelled_compile_ends),
        ("values_that_were_unknown_are_compiled_in", values_that_were_unknown_are_compiled_in),
        ("repositories_of_the_machine_need_permission", repositories_need_permission),
        ("a_lost_checkout_is_noticed", a_lost_checkout_is_noticed),
        ("schedules_make_compiles", schedules_make_compiles),
    ];
    let trial = |(name, test): (&'static str, fn(&mut World) -> Result<()>)| {
        Trial::test(format!("compile_service/{name}"), move || {
            let mut world = World::new().map_err(|error| format!("{error:#}"))?;
            Ok(test(&mut world).map_err(|error| format!("{error:#}"))?)
        })
    };
    tests.into_iter().map(trial).collect()
}

pub(crate) struct World {
    directory: tempfile::TempDir,
    pub(crate) app: App,
    options: CompileOptions,
    service: Option<CompileService>,
}

/// A model of one file, whose content is the given expression.
fn model(content: &str) -> String {
    format!(
        "import std\n\nhost = std::Host(name=\"internal\", os=std::linux)\n\
         std::ConfigFile(host=host, path=\"/tmp/orrery-compile-service\", content={content})\n"
    )
}

impl World {
    pub(crate) fn new() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let holder = Holder::this_process("test", Timestamp(1));
        let store: Arc<dyn Store> =
            Arc::new(SqliteStore::open(directory.path().join("state.db"), &holder)?);
        let settings = AppSettings { local_repositories: true, ..AppSettings::default() };
        let app = App::new(store, settings);
        let mut options = CompileOptions::new(directory.path().join("data"), BINARY.into());
        options.parallel = 2;
        Ok(World { directory, app, options, service: None })
    }

    fn start(&mut self) -> Result<()> {
        self.service = Some(CompileService::start(self.app.clone(), self.options.clone())?);
        Ok(())
    }

    fn stop(&mut self) {
        self.service = None;
    }

    fn store(&self) -> &dyn Store {
        &**self.app.store()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A repository with a project whose model is given.
    fn repository(&self, name: &str, model: &str) -> Result<PathBuf> {
        let path = self.path(name);
        std::fs::create_dir_all(&path)?;
        git(&path, &["init", "--quiet", "--initial-branch=main"])?;
        std::fs::write(path.join("project.yml"), "name: test\nmodulepath: libs\n")?;
        self.commit(&path, model)?;
        Ok(path)
    }

    fn commit(&self, repository: &Path, model: &str) -> Result<()> {
        std::fs::write(repository.join("main.cf"), model)?;
        git(repository, &["add", "--all"])?;
        git(repository, &["commit", "--quiet", "--message=change"])
    }

    fn environment(&self, repository: &str, branch: &str) -> Result<EnvironmentRecord> {
        let records = self.store().records();
        let project = [7; 16];
        let _ = records.create_project(project, "project", "", Timestamp(1));
        let uuid = Uuid::new_v4();
        let name = uuid.to_string();
        let new = NewEnvironment {
            uuid: uuid.into_bytes(),
            project: &project,
            name: &name,
            description: "",
            icon: "",
            repository,
            branch,
        };
        Ok(records.add_environment(&new, Timestamp(1))?)
    }

    fn ask(&self, of: &EnvironmentRecord, request: &CompileRequest) -> Result<[u8; 16]> {
        let id = Uuid::new_v4().into_bytes();
        let new = NewCompile { id, request };
        self.store().records().add_compile(of.key, &new, self.app.now())?;
        self.app.nudge();
        Ok(id)
    }

    fn find(&self, of: &EnvironmentRecord, id: &[u8; 16]) -> Result<CompileRecord> {
        Ok(self.store().records().compile(of.key, id)?)
    }

    fn ended(&self, of: &EnvironmentRecord, id: &[u8; 16]) -> Result<CompileRecord> {
        wait_for("the compile ends", || {
            Ok(Some(self.find(of, id)?).filter(|one| one.completed.is_some()))
        })
    }

    fn compile(&self, of: &EnvironmentRecord, request: &CompileRequest) -> Result<CompileRecord> {
        let id = self.ask(of, request)?;
        self.ended(of, &id)
    }

    fn succeed(&self, of: &EnvironmentRecord, request: &CompileRequest) -> Result<CompileRecord> {
        let done = self.compile(of, request)?;
        ensure!(done.success == Some(true), "{done:?}\n{}", self.output(&done)?);
        Ok(done)
    }

    fn stages(&self, compile: &CompileRecord) -> Result<Vec<String>> {
        let stages = self.store().records().stages(&compile.run_by())?;
        Ok(stages.into_iter().map(|stage| stage.name).collect())
    }

    fn output(&self, compile: &CompileRecord) -> Result<String> {
        let pieces = self.store().records().output(&compile.run_by(), 0, 10_000)?;
        Ok(pieces.into_iter().map(|piece| piece.text).collect())
    }

    /// The content of the one file that the newest version wants.
    fn wanted(&self, of: &EnvironmentRecord) -> Result<String> {
        let versions = self.store().versions(of.key)?;
        let newest = versions.last().context("there is no version")?;
        let version = orrery_store::load_version(self.store(), of.key, newest.number)?;
        let mut files =
            version.resources.iter().filter(|one| one.id.entity() != "std::AgentConfig");
        let file = files.next().context("there is no resource")?;
        Ok(file.attributes.to_object()["content"].as_str().unwrap_or("(unknown)").to_owned())
    }
}

fn git(directory: &Path, arguments: &[&str]) -> Result<()> {
    let done = Command::new("git")
        .current_dir(directory)
        .args(["-c", "user.name=Test", "-c", "user.email=test@example.org"])
        .args(["-c", "core.hooksPath=/dev/null", "-c", "commit.gpgsign=false"])
        .args(arguments)
        .output()?;
    ensure!(done.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    Ok(())
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if Instant::now() > until {
            bail!("waited too long until {what}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn update() -> CompileRequest {
    CompileRequest { update: true, ..CompileRequest::because("api", "a test") }
}

fn a_commit_becomes_a_version(world: &mut World) -> Result<()> {
    world.start()?;
    let repository = world.repository("model", &model("\"one\""))?;
    let environment = world.environment(&format!("file://{}", repository.display()), "")?;
    let first = world.succeed(&environment, &update())?;
    let stages = world.stages(&first)?;
    let model_stage = "Recompiling configuration model";
    ensure!(
        stages == ["Init", "Cloning repository", "Installing modules", model_stage],
        "{stages:?}"
    );
    ensure!(world.wanted(&environment)? == "one");
    let versions = world.store().versions(environment.key)?;
    let version = &versions[0];
    ensure!(Some(version.number) == first.version && version.released, "{version:?}");
    ensure!(version.info["compile"] == Uuid::from_bytes(first.id).to_string(), "{version:?}");
    ensure!(version.info["export_metadata"]["message"] == "a test", "{version:?}");
    ensure!(version.info["commit"].as_str().is_some_and(|hash| hash.len() == 40), "{version:?}");
    world.commit(&repository, &model("\"two\""))?;
    // Without an update, nothing is fetched.
    world.succeed(&environment, &CompileRequest::default())?;
    ensure!(world.wanted(&environment)? == "one");
    let second = world.succeed(&environment, &update())?;
    ensure!(world.wanted(&environment)? == "two");
    let stages = world.stages(&second)?;
    let expected = ["Init", "Fetching new branch heads", "Pulling updates", "Updating modules"];
    ensure!(stages == [&expected[..], &[model_stage]].concat(), "{stages:?}");
    let settings = serde_json::json!(false);
    world.store().set_setting(environment.key, "auto_deploy", Some(&settings))?;
    world.succeed(&environment, &update())?;
    let versions = world.store().versions(environment.key)?;
    ensure!(!versions.last().context("a version")?.released);
    // History that was rewritten is followed too.
    std::fs::write(repository.join("main.cf"), model("\"three\""))?;
    git(&repository, &["commit", "--quiet", "--all", "--amend", "--message=other"])?;
    world.succeed(&environment, &update())?;
    ensure!(world.wanted(&environment)? == "three");
    Ok(())
}

fn errors_are_structured_and_told(world: &mut World) -> Result<()> {
    world.start()?;
    let repository = world.repository("model", "import std\n\nx = 1\nx = 2\n")?;
    let environment = world.environment(&text(&repository), "main")?;
    let failed = world.compile(&environment, &update())?;
    ensure!(failed.success == Some(false) && failed.version.is_none(), "{failed:?}");
    let data = failed.data.clone().context("errors")?;
    let error = &data["errors"][0];
    ensure!(error["category"] == "runtime_error", "{data}");
    ensure!(error["type"] == "DoubleSetException", "{data}");
    ensure!(error["location"]["uri"] == "main.cf", "{data}");
    ensure!(error["location"]["range"]["start"]["line"] == 3, "{data}");
    ensure!(error["source"] == "x = 2", "{data}");
    ensure!(world.output(&failed)?.contains("x = 2"), "{}", world.output(&failed)?);
    ensure!(world.store().versions(environment.key)?.is_empty());
    let filter = orrery_store::NotificationFilter::default();
    let told = world.store().records().notifications(environment.key, &filter, None, 10)?;
    ensure!(told.len() == 1 && told[0].compile == Some(failed.id), "{told:?}");
    ensure!(told[0].uri.ends_with(&Uuid::from_bytes(failed.id).to_string()), "{told:?}");
    world.commit(&repository, "entity X\n")?;
    let failed = world.compile(&environment, &update())?;
    let data = failed.data.context("errors")?;
    ensure!(data["errors"][0]["category"] == "parse_error", "{data}");
    Ok(())
}

fn a_check_stores_nothing(world: &mut World) -> Result<()> {
    world.start()?;
    let repository = world.repository("model", &model("\"one\""))?;
    let environment = world.environment(&text(&repository), "main")?;
    let check = CompileRequest { export: false, ..update() };
    let done = world.succeed(&environment, &check)?;
    ensure!(done.version.is_none() && world.store().versions(environment.key)?.is_empty());
    world.commit(&repository, "x = y\n")?;
    ensure!(world.compile(&environment, &check)?.success == Some(false));
    let filter = orrery_store::NotificationFilter::default();
    let told = world.store().records().notifications(environment.key, &filter, None, 10)?;
    ensure!(told.is_empty(), "{told:?}");
    Ok(())
}

fn equal_requests_share_a_run(world: &mut World) -> Result<()> {
    let repository = world.repository("model", &model("std::get_env(\"WORDS\", \"none\")"))?;
    let environment = world.environment(&text(&repository), "main")?;
    let with = |joined: &str, own: &[(&str, &str)]| CompileRequest {
        joined_variables: [("WORDS".to_owned(), joined.to_owned())].into(),
        variables: own.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
        ..update()
    };
    // They wait before anybody serves them.
    let one = world.ask(&environment, &with("a", &[]))?;
    let other = world.ask(&environment, &with("x", &[("ELSE", "1")]))?;
    let two = world.ask(&environment, &with("b", &[]))?;
    world.start()?;
    let (one, two) = (world.ended(&environment, &one)?, world.ended(&environment, &two)?);
    let other = world.ended(&environment, &other)?;
    ensure!(two.substitute == Some(one.id) && one.substitute.is_none(), "{two:?}");
    ensure!(one.version == two.version && other.substitute.is_none(), "{other:?}");
    ensure!(other.started >= one.completed, "one at a time: {other:?} {one:?}");
    let first = one.version.context("a version")?;
    let version = orrery_store::load_version(world.store(), environment.key, first)?;
    let wants = format!("{:?}", version.resources);
    ensure!(wants.contains("a b"), "{wants}");
    ensure!(world.store().versions(environment.key)?.len() == 2);
    // What the server's own environment has is not for models.
    world.commit(&repository, &model("std::get_env(\"CARGO_MANIFEST_DIR\", \"hidden\")"))?;
    world.succeed(&environment, &update())?;
    ensure!(world.wanted(&environment)? == "hidden");
    Ok(())
}

fn another_repository_is_cloned_anew(world: &mut World) -> Result<()> {
    world.start()?;
    let first = world.repository("first", &model("\"first\""))?;
    let second = world.repository("second", &model("\"second\""))?;
    let environment = world.environment(&text(&first), "main")?;
    world.succeed(&environment, &CompileRequest::default())?;
    let repository = text(&second);
    let change = EnvironmentChange { repository: Some(&repository), ..Default::default() };
    let now = world.app.now();
    world.store().records().update_environment(&environment.uuid, None, &change, now)?;
    let done = world.succeed(&environment, &CompileRequest::default())?;
    ensure!(world.stages(&done)?.contains(&"Cloning repository".to_owned()));
    ensure!(world.wanted(&environment)? == "second");
    let again = CompileRequest { reinstall: true, ..CompileRequest::default() };
    let done = world.succeed(&environment, &again)?;
    ensure!(world.stages(&done)?.contains(&"Cloning repository".to_owned()));
    Ok(())
}

fn a_branch_is_followed(world: &mut World) -> Result<()> {
    world.start()?;
    let repository = world.repository("model", &model("\"main\""))?;
    let environment = world.environment(&text(&repository), "main")?;
    world.succeed(&environment, &CompileRequest::default())?;
    git(&repository, &["checkout", "--quiet", "-b", "feature/x"])?;
    world.commit(&repository, &model("\"feature\""))?;
    let change = EnvironmentChange { branch: Some("feature/x"), ..Default::default() };
    let now = world.app.now();
    world.store().records().update_environment(&environment.uuid, None, &change, now)?;
    let done = world.succeed(&environment, &CompileRequest::default())?;
    ensure!(world.stages(&done)?.contains(&"Switching branch".to_owned()));
    ensure!(world.wanted(&environment)? == "feature");
    let change = EnvironmentChange { branch: Some("nowhere"), ..Default::default() };
    world.store().records().update_environment(&environment.uuid, None, &change, now)?;
    let failed = world.compile(&environment, &update())?;
    ensure!(failed.success == Some(false), "{failed:?}");
    let data = failed.data.context("errors")?.to_string();
    ensure!(data.contains("nowhere") && data.contains("Switching branch"), "{data}");
    Ok(())
}

/// A repository whose model waits in Python for as long as a file says.
fn slow_repository(world: &World) -> Result<PathBuf> {
    let path = world.repository("slow", "import std\nimport slow\n\nx = slow::wait()\n")?;
    let module = path.join("libs/slow");
    std::fs::create_dir_all(module.join("model"))?;
    std::fs::create_dir_all(module.join("plugins"))?;
    std::fs::write(module.join("module.yml"), "name: slow\nversion: 1.0\nlicense: x\n")?;
    std::fs::write(module.join("model/_init.cf"), "")?;
    let waiting = format!(
        "import os, time\nfrom inmanta.plugins import plugin\n\n@plugin\ndef wait() -> \"int\":\n    \
         open({started:?}, \"a\").write(\"x\")\n    while os.path.exists({held:?}):\n        \
         time.sleep(0.02)\n    return 1\n",
        started = world.path("started").display().to_string(),
        held = world.path("held").display().to_string(),
    );
    std::fs::write(module.join("plugins/__init__.py"), waiting)?;
    std::fs::write(world.path("held"), "")?;
    git(&path, &["add", "--all"])?;
    git(&path, &["commit", "--quiet", "--message=slow"])?;
    Ok(path)
}

fn wait_until_started(world: &World, times: u64) -> Result<()> {
    wait_for("the model waits", || {
        let size = std::fs::metadata(world.path("started")).map_or(0, |found| found.len());
        Ok((size >= times).then_some(()))
    })
}

fn a_stopped_compile_is_done_again(world: &mut World) -> Result<()> {
    let repository = slow_repository(world)?;
    let environment = world.environment(&text(&repository), "main")?;
    world.start()?;
    let id = world.ask(&environment, &update())?;
    wait_until_started(world, 1)?;
    world.stop();
    let left = world.find(&environment, &id)?;
    ensure!(left.started.is_some() && left.completed.is_none(), "{left:?}");
    ensure!(running_in(world.directory.path())?.is_empty(), "something still runs");
    world.start()?;
    wait_until_started(world, 2)?;
    std::fs::remove_file(world.path("held"))?;
    let done = world.ended(&environment, &id)?;
    ensure!(done.success == Some(true), "{done:?}\n{}", world.output(&done)?);
    ensure!(world.store().versions(environment.key)?.len() == 1);
    Ok(())
}

/// Processes that were started for compiles below a directory.
fn running_in(directory: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let path = entry?.path();
        let environment = std::fs::read(path.join("environ")).unwrap_or_default();
        let marked = environment.split(|byte| *byte == 0).any(|variable| {
            let text = String::from_utf8_lossy(variable);
            text.strip_prefix("ORRERY_COMPILE_IN=")
                .is_some_and(|at| Path::new(at).starts_with(directory))
        });
        if marked {
            found.push(std::fs::read_to_string(path.join("cmdline")).unwrap_or_default());
        }
    }
    Ok(found)
}

fn a_compile_that_takes_too_long_is_ended(world: &mut World) -> Result<()> {
    let repository = slow_repository(world)?;
    let environment = world.environment(&text(&repository), "main")?;
    world.options.time_max = Duration::from_secs(8);
    world.start()?;
    let failed = world.compile(&environment, &update())?;
    let data = failed.data.context("errors")?;
    ensure!(data["errors"][0]["category"] == "limit", "{data}");
    ensure!(running_in(world.directory.path())?.is_empty(), "something still runs");
    Ok(())
}

fn a_cancelled_compile_ends(world: &mut World) -> Result<()> {
    let repository = slow_repository(world)?;
    let environment = world.environment(&text(&repository), "main")?;
    world.start()?;
    let id = world.ask(&environment, &update())?;
    wait_until_started(world, 1)?;
    let now = world.app.now();
    world.store().records().cancel_compile(environment.key, &id, "ada", now)?;
    wait_for("all processes are gone", || {
        Ok(running_in(world.directory.path())?.is_empty().then_some(()))
    })?;
    std::fs::remove_file(world.path("held"))?;
    world.succeed(&environment, &update())?;
    Ok(())
}

fn values_that_were_unknown_are_compiled_in(world: &mut World) -> Result<()> {
    world.start()?;
    let asking = "import std\nimport std::testing\n\nhost = std::Host(name=\"internal\", os=std::linux)\n\
         one = std::testing::NullResource(name=\"one\", agentname=\"internal\")\n\
         std::ConfigFile(host=host, path=\"/tmp/two\", content=std::getfact(one, \"size\"))\n";
    let repository = world.repository("model", asking)?;
    let environment = world.environment(&text(&repository), "main")?;
    let first = world.succeed(&environment, &update())?;
    let number = first.version.context("a version")?;
    let unknowns = world.store().unknowns(environment.key, number)?;
    ensure!(unknowns.len() == 1 && unknowns[0].0.name == "size", "{unknowns:?}");
    let resource = unknowns[0].0.resource.clone().context("a fact")?;
    let new = orrery_store::NewParameter {
        name: "size",
        value: "42",
        resource: Some(resource.as_str()),
        source: orrery_store::ParameterSource::Fact,
        expires: true,
    };
    let (key, now) = (environment.key, world.app.now());
    let trigger = orrery_server::compiling::Trigger::Fact;
    world.store().records().put_parameter(key, &new, now, &|sql, effect| {
        orrery_server::compiling::request_for_values(sql, key, trigger, effect, false, now)?;
        Ok(())
    })?;
    world.app.nudge();
    let next = wait_for("a second version", || {
        Ok(world.store().versions(key)?.into_iter().find(|one| one.number > number))
    })?;
    let version = orrery_store::load_version(world.store(), key, next.number)?;
    let wants = format!("{:?}", version.resources);
    ensure!(wants.contains("42"), "{wants}");
    ensure!(next.info["export_metadata"]["type"] == "fact", "{next:?}");
    // Setting a parameter: only a change that is wanted is a reason.
    let count = || Ok::<_, anyhow::Error>(world.store().records().compile_queue(key)?.len());
    let set = |value: &str, wanted: bool| {
        let new = orrery_store::NewParameter {
            name: "zone",
            value,
            resource: None,
            source: orrery_store::ParameterSource::User,
            expires: false,
        };
        let trigger = orrery_server::compiling::Trigger::Parameter;
        world.store().records().put_parameter(key, &new, now, &|sql, effect| {
            orrery_server::compiling::request_for_values(sql, key, trigger, effect, wanted, now)?;
            Ok(())
        })
    };
    world.stop_without_drop();
    let before = count()?;
    for (value, wanted, more) in [("a", false, 0), ("b", true, 1), ("b", true, 1), ("c", true, 2)] {
        set(value, wanted)?;
        ensure!(count()? == before + more, "{value} {wanted}");
    }
    Ok(())
}

impl World {
    /// Halts all environments, so that nothing starts any more.
    fn stop_without_drop(&self) {
        for one in self.store().records().list_environments(None).unwrap_or_default() {
            let _ = self.store().records().set_halted(&one.uuid, true, self.app.now());
        }
    }
}

fn repositories_need_permission(world: &mut World) -> Result<()> {
    world.app = App::new(Arc::clone(world.app.store()), AppSettings::default());
    world.start()?;
    let repository = world.repository("model", &model("\"one\""))?;
    for url in [text(&repository), format!("file://{}", repository.display())] {
        let environment = world.environment(&url, "main")?;
        let failed = world.compile(&environment, &update())?;
        let data = failed.data.context("errors")?.to_string();
        ensure!(data.contains("local_repositories"), "{data}");
    }
    let environment = world.environment("", "")?;
    let data = world.compile(&environment, &update())?.data.context("errors")?.to_string();
    ensure!(data.contains("no repository"), "{data}");
    Ok(())
}

fn a_lost_checkout_is_noticed(world: &mut World) -> Result<()> {
    world.start()?;
    let repository = world.repository("model", &model("\"one\""))?;
    let here = world.environment(&text(&repository), "main")?;
    let halted = world.environment(&text(&repository), "main")?;
    for environment in [&here, &halted] {
        world.succeed(environment, &update())?;
    }
    world.stop();
    let now = world.app.now();
    world.store().records().set_halted(&halted.uuid, true, now)?;
    std::fs::remove_dir_all(world.path("data"))?;
    let is_recovery = |one: &CompileRecord| one.request.metadata["type"] == "recovery";
    let recovered = |of: &EnvironmentRecord| {
        let all = world.app.store().records().compiles(of.key, Default::default(), None, 10)?;
        Ok::<_, anyhow::Error>(
            all.into_iter().find(|one| is_recovery(one) && one.completed.is_some()),
        )
    };
    let service = CompileService::start(world.app.clone(), world.options.clone())?;
    let done = wait_for("the checkout is made again", || recovered(&here))?;
    ensure!(done.success == Some(true) && done.request.update, "{done:?}");
    ensure!(recovered(&halted)?.is_none());
    world.store().records().set_halted(&halted.uuid, false, now)?;
    world.app.nudge();
    wait_for("the checkout is made again after the halt", || recovered(&halted))?;
    // What is as it was is left alone.
    drop(service);
    let count = || {
        let all = world.app.store().records().compiles(here.key, Default::default(), None, 99);
        all.map(|all| all.len())
    };
    let before = count()?;
    let service = CompileService::start(world.app.clone(), world.options.clone())?;
    std::thread::sleep(Duration::from_millis(500));
    ensure!(count()? == before);
    drop(service);
    Ok(())
}

fn schedules_make_compiles(world: &mut World) -> Result<()> {
    world.start()?;
    let repository = world.repository("model", &model("\"one\""))?;
    let environment = world.environment(&text(&repository), "main")?;
    let every_second = serde_json::json!("* * * * * * *");
    let now = world.app.now();
    let records = world.store().records();
    records.change_setting(environment.key, "auto_full_compile", Some(&every_second), now)?;
    world.app.nudge();
    let done = wait_for("a scheduled compile has ended", || {
        let all = records.compiles(environment.key, Default::default(), None, 10)?;
        Ok(all.into_iter().find(|one| one.completed.is_some()))
    })?;
    ensure!(done.request.metadata["type"] == "schedule", "{done:?}");
    records.change_setting(environment.key, "auto_full_compile", None, world.app.now())?;
    world.app.nudge();
    let mut seen: BTreeMap<usize, u32> = BTreeMap::new();
    wait_for("nothing is scheduled any more", || {
        let all = records.compiles(environment.key, Default::default(), None, 999)?;
        let times = seen.entry(all.len()).or_default();
        *times += 1;
        // As many as before for two seconds.
        Ok((*times > 100).then_some(()))
    })
}
