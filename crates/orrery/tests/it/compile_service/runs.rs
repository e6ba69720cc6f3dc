//! Compile runs: errors, merging, limits, cancellation, and triggers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use orrery_store::{CompileRequest, NewCompileRecord, OnParameterChanged};

use super::{World, git, model, text, update, wait_for};

pub(super) fn errors_are_structured_and_reported(world: &mut World) -> Result<()> {
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
    ensure!(world.store().versions().list(environment.key)?.is_empty());
    let filter = orrery_store::NotificationFilter::default();
    let told = world.store().notifications().list(environment.key, &filter, None, 10)?;
    ensure!(told.len() == 1 && told[0].compile == Some(failed.id), "{told:?}");
    let first =
        error["message"].as_str().and_then(|text| text.lines().next()).context("no text")?;
    ensure!(told[0].message.contains(first), "{first:?} is not in {told:?}");
    ensure!(told[0].uri.ends_with(&failed.id.uuid().to_string()), "{told:?}");
    world.commit(&repository, "entity X\n")?;
    let failed = world.compile(&environment, &update())?;
    let data = failed.data.context("errors")?;
    ensure!(data["errors"][0]["category"] == "parse_error", "{data}");
    Ok(())
}

pub(super) fn a_check_stores_nothing(world: &mut World) -> Result<()> {
    world.start()?;
    let repository = world.repository("model", &model("\"one\""))?;
    let environment = world.environment(&text(&repository), "main")?;
    let check = CompileRequest { export: false, ..update() };
    let done = world.succeed(&environment, &check)?;
    ensure!(done.version.is_none() && world.store().versions().list(environment.key)?.is_empty());
    world.commit(&repository, "x = y\n")?;
    ensure!(world.compile(&environment, &check)?.success == Some(false));
    let filter = orrery_store::NotificationFilter::default();
    let told = world.store().notifications().list(environment.key, &filter, None, 10)?;
    ensure!(told.is_empty(), "{told:?}");
    Ok(())
}

pub(super) fn equal_requests_share_a_run(world: &mut World) -> Result<()> {
    let repository = world.repository("model", &model("std::get_env(\"WORDS\", \"none\")"))?;
    let environment = world.environment(&text(&repository), "main")?;
    let with = |joined: &str, own: &[(&str, &str)]| CompileRequest {
        joined_variables: [("WORDS".to_owned(), joined.to_owned())].into(),
        variables: own.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
        ..update()
    };
    // They wait until a service starts.
    let one = world.ask(&environment, &with("a", &[]))?;
    let other = world.ask(&environment, &with("x", &[("ELSE", "1")]))?;
    let two = world.ask(&environment, &with("b", &[]))?;
    world.start()?;
    let (one, two) =
        (world.await_compile(&environment, one)?, world.await_compile(&environment, two)?);
    let other = world.await_compile(&environment, other)?;
    ensure!(two.substitute == Some(one.id) && one.substitute.is_none(), "{two:?}");
    ensure!(one.version == two.version && other.substitute.is_none(), "{other:?}");
    ensure!(other.started >= one.completed, "one at a time: {other:?} {one:?}");
    let first = one.version.context("a version")?;
    let version = world.store().versions().load(environment.key, first)?;
    let wants = format!("{:?}", version.resources);
    ensure!(wants.contains("a b"), "{wants}");
    ensure!(world.store().versions().list(environment.key)?.len() == 2);
    // Variables of the server are not visible to models.
    world.commit(&repository, &model("std::get_env(\"CARGO_MANIFEST_DIR\", \"hidden\")"))?;
    world.succeed(&environment, &update())?;
    ensure!(world.newest_content(&environment)? == "hidden");
    Ok(())
}

/// A repository with a model that waits in Python as long as a file exists.
fn slow_repository(world: &World) -> Result<PathBuf> {
    let path = world.repository("slow", "import std\nimport slow\n\nx = slow::wait()\n")?;
    let module = path.join("libs/slow");
    std::fs::create_dir_all(module.join("model"))?;
    std::fs::create_dir_all(module.join("plugins"))?;
    std::fs::write(module.join("module.yml"), "name: slow\nversion: 1.0\nlicense: x\n")?;
    std::fs::write(module.join("model/_init.cf"), "")?;
    let waiting = "import os, time\nfrom inmanta.plugins import plugin\n\n\
                   here = os.environ[\"PYTHONPYCACHEPREFIX\"]\n\n@plugin\ndef wait() -> \"int\":\n    \
                   open(here + \"/started\", \"a\").write(\"x\")\n    \
                   while not os.path.exists(here + \"/released\"):\n        \
                   time.sleep(0.02)\n    return 1\n";
    std::fs::write(module.join("plugins/__init__.py"), waiting)?;
    git(&path, &["add", "--all"])?;
    git(&path, &["commit", "--quiet", "--message=slow"])?;
    Ok(path)
}

/// Lets waiting models continue.
fn release(world: &World) -> Result<()> {
    let directory = world.bytecode().context("no compile has run")?;
    Ok(std::fs::write(directory.join("released"), "")?)
}

fn wait_until_started(world: &World, times: u64) -> Result<()> {
    wait_for("the model waits", || {
        let started = world.bytecode().map(|directory| directory.join("started"));
        let size = started.and_then(|path| std::fs::metadata(path).ok());
        let size = size.map_or(0, |found| found.len());
        Ok((size >= times).then_some(()))
    })
}

pub(super) fn a_stopped_compile_is_done_again(world: &mut World) -> Result<()> {
    let repository = slow_repository(world)?;
    let environment = world.environment(&text(&repository), "main")?;
    world.start()?;
    let id = world.ask(&environment, &update())?;
    wait_until_started(world, 1)?;
    world.stop();
    let left = world.find(&environment, id)?;
    ensure!(left.started.is_some() && left.completed.is_none(), "{left:?}");
    ensure!(running_in(world.directory.path())?.is_empty(), "something still runs");
    world.start()?;
    wait_until_started(world, 2)?;
    release(world)?;
    let done = world.await_compile(&environment, id)?;
    ensure!(done.success == Some(true), "{done:?}\n{}", world.output(&done)?);
    ensure!(world.store().versions().list(environment.key)?.len() == 1);
    Ok(())
}

/// Processes of compiles below a directory.
fn running_in(directory: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let path = entry?.path();
        let environment = std::fs::read(path.join("environ")).unwrap_or_default();
        let marked = String::from_utf8_lossy(&environment).contains(&*directory.to_string_lossy());
        if marked {
            found.push(std::fs::read_to_string(path.join("cmdline")).unwrap_or_default());
        }
    }
    Ok(found)
}

pub(super) fn a_compile_that_takes_too_long_is_ended(world: &mut World) -> Result<()> {
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

/// The program itself, and module code in another process.
pub(super) fn too_much_memory(world: &mut World) -> Result<()> {
    let many = "entity A:\n    int n\nend\nimplement A using std::none\nimport std\n\n\
                for i in std::sequence(3000000):\n    A(n=i)\nend\n";
    let asking = "import std\n\nx = std::sequence(300000000)\n";
    world.options.memory_max = Some(700 << 20);
    world.start()?;
    for (name, model) in [("many", many), ("asking", asking)] {
        let repository = world.repository(name, model)?;
        let environment = world.environment(&text(&repository), "main")?;
        let failed = world.compile(&environment, &update())?;
        let data = failed.data.context("errors")?;
        let first = &data["errors"][0];
        ensure!(
            first["help"].as_str().is_some_and(|help| help.contains("--compile-memory")),
            "{data}"
        );
        ensure!(!data.to_string().contains("this is a bug"), "{data}");
    }
    Ok(())
}

pub(super) fn a_cancelled_compile_ends(world: &mut World) -> Result<()> {
    let repository = slow_repository(world)?;
    let environment = world.environment(&text(&repository), "main")?;
    world.start()?;
    let id = world.ask(&environment, &update())?;
    wait_until_started(world, 1)?;
    let now = world.app.now();
    world.store().compiles().cancel(environment.key, id, "ada", now)?;
    wait_for("all processes are gone", || {
        Ok(running_in(world.directory.path())?.is_empty().then_some(()))
    })?;
    release(world)?;
    world.succeed(&environment, &update())?;
    Ok(())
}

pub(super) fn values_that_were_unknown_are_compiled_in(world: &mut World) -> Result<()> {
    world.start()?;
    let asking = "import std\nimport std::testing\n\nhost = std::Host(name=\"internal\", os=std::linux)\n\
         one = std::testing::NullResource(name=\"one\", agentname=\"internal\")\n\
         std::ConfigFile(host=host, path=\"/tmp/two\", content=std::getfact(one, \"size\"))\n";
    let repository = world.repository("model", asking)?;
    let environment = world.environment(&text(&repository), "main")?;
    let first = world.succeed(&environment, &update())?;
    let number = first.version.context("a version")?;
    let unknowns = world.store().versions().unknowns(environment.key, number)?;
    ensure!(unknowns.len() == 1 && unknowns[0].0.name == "size", "{unknowns:?}");
    let resource = unknowns[0].0.resource.clone().context("a fact")?;
    let new = orrery_store::NewParameter {
        metadata: None,
        name: "size",
        value: "42",
        resource: Some(resource.as_str()),
        source: orrery_store::ParameterSource::Fact,
        expires: true,
    };
    let (key, now) = (environment.key, world.app.now());
    let trigger = orrery_compile_service::Trigger::Fact;
    let (id, request) = trigger.to_compile();
    let compile = NewCompileRecord { id, request: &request };
    let then = OnParameterChanged::EnqueueCompile { compile, if_changed: false };
    world.store().parameters().put(key, &new, now, then)?;
    world.app.wake_up();
    let next = wait_for("a second version", || {
        Ok(world.store().versions().list(key)?.into_iter().find(|one| one.number > number))
    })?;
    let version = world.store().versions().load(key, next.number)?;
    let wants = format!("{:?}", version.resources);
    ensure!(wants.contains("42"), "{wants}");
    ensure!(next.info["export_metadata"]["type"] == "fact", "{next:?}");
    // Setting a parameter: only a change with `recompile` triggers a compile.
    let count = || Ok::<_, anyhow::Error>(world.store().compiles().queue(key)?.len());
    let set = |value: &str, wanted: bool| {
        let new = orrery_store::NewParameter {
            metadata: None,
            name: "zone",
            value,
            resource: None,
            source: orrery_store::ParameterSource::User,
            expires: false,
        };
        let trigger = orrery_compile_service::Trigger::Parameter;
        let (id, request) = trigger.to_compile();
        let compile = NewCompileRecord { id, request: &request };
        let then = OnParameterChanged::EnqueueCompile { compile, if_changed: wanted };
        world.store().parameters().put(key, &new, now, then)
    };
    // The version exists a moment before its compile ends.
    wait_for("no compile is left", || Ok((count()? == 0).then_some(())))?;
    world.stop_without_drop();
    let before = count()?;
    for (value, wanted, more) in [("a", false, 0), ("b", true, 1), ("b", true, 1), ("c", true, 2)] {
        set(value, wanted)?;
        ensure!(count()? == before + more, "{value} {wanted}");
    }
    Ok(())
}

pub(super) fn schedules_make_compiles(world: &mut World) -> Result<()> {
    world.start()?;
    let repository = world.repository("model", &model("\"one\""))?;
    let environment = world.environment(&text(&repository), "main")?;
    let every_second = serde_json::json!("* * * * * * *");
    let now = world.app.now();
    let store = world.store();
    store.settings().change(environment.key, "auto_full_compile", Some(&every_second), now)?;
    world.app.wake_up();
    let done = wait_for("a scheduled compile has ended", || {
        let all = store.compiles().list(environment.key, Default::default(), None, 10)?;
        Ok(all.into_iter().find(|one| one.completed.is_some()))
    })?;
    ensure!(done.request.metadata["type"] == "schedule", "{done:?}");
    store.settings().change(environment.key, "auto_full_compile", None, world.app.now())?;
    world.app.wake_up();
    let mut seen: BTreeMap<usize, u32> = BTreeMap::new();
    wait_for("nothing is scheduled any more", || {
        let all = store.compiles().list(environment.key, Default::default(), None, 999)?;
        let times = seen.entry(all.len()).or_default();
        *times += 1;
        // Unchanged for two seconds.
        Ok((*times > 100).then_some(()))
    })
}

/// Also if the schedule was read just before it was disabled, and a wake-up comes when it would
/// have been due.
pub(super) fn switched_off(world: &mut World) -> Result<()> {
    const PERIOD: i64 = 4_000_000;
    world.start()?;
    // Compiles fail at once, so that no wake-up follows.
    let environment = world.environment("/nowhere", "main")?;
    let store = world.store();
    let set = |name: &str, value: Option<serde_json::Value>| {
        let now = world.app.now();
        store.settings().change(environment.key, name, value.as_ref(), now)?;
        world.app.wake_up();
        anyhow::Ok(now)
    };
    let requested = || -> Result<Vec<orrery_model::Timestamp>> {
        let all = store.compiles().list(environment.key, Default::default(), None, 999)?;
        let scheduled = all.iter().filter(|one| one.request.metadata["type"] == "schedule");
        Ok(scheduled.map(|one| one.requested).collect())
    };
    // Remaining time until it is due again.
    let wait_until = |before: i64| {
        let left = PERIOD - world.app.now().0.rem_euclid(PERIOD) - before;
        std::thread::sleep(Duration::from_micros(u64::try_from(left).unwrap_or(0)));
    };
    for round in 0..3 {
        let before = requested()?.len();
        set("auto_full_compile", Some("*/4 * * * * * *".into()))?;
        wait_for("a compile is scheduled", || Ok((requested()?.len() > before).then_some(())))?;
        wait_until(600_000);
        set("resource_action_logs_retention", Some(round.into()))?;
        wait_until(300_000);
        let ended = set("auto_full_compile", None)?;
        for _ in 0..40 {
            world.app.wake_up();
            std::thread::sleep(Duration::from_millis(20));
        }
        let late: Vec<_> = requested()?.into_iter().filter(|at| *at > ended).collect();
        ensure!(late.is_empty(), "switched off at {ended:?}, asked for at {late:?}");
    }
    Ok(())
}
