//! Running engines that get new versions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use orrery_executor::{Engine, StoreHandle, Update, record_interrupted, recover};
use orrery_handlers::{Context, Handler, HandlerError, Moment, Permit};
use orrery_model::{
    Attributes, Change, DriftPolicies, DriftPolicy, Fact, Outcome, OutcomeStatus, Resource,
    ResourceId, Status,
};
use orrery_scheduler::{Event, Filter};
use orrery_store::Lease;

use crate::world::{World, file, id, now, on_agent, resource, scripted};

/// An engine that starts from one version and gets others.
struct LiveEngine {
    world: World,
    engine: Engine,
    lease: Lease,
}

impl LiveEngine {
    fn start(resources: &[Resource]) -> Self {
        LiveEngine::start_in(World::new(), resources)
    }

    fn start_in(world: World, resources: &[Resource]) -> Self {
        LiveEngine::start_under(world, resources, &Permit::unlimited())
    }

    fn start_under(world: World, resources: &[Resource], permit: &Permit) -> Self {
        let desired = world.put(resources);
        let lease = world.lease();
        record_interrupted(&world.store, &lease, now()).unwrap();
        let start = recover(&world.store, world.environment, desired).unwrap();
        let store_handle =
            StoreHandle { store: world.store.clone(), lease, permit: permit.clone() };
        let engine = Engine::start(world.setup(Some(store_handle)), start, Vec::new()).unwrap();
        LiveEngine { world, engine, lease }
    }

    /// Stores each version, and updates the engine once for all.
    fn update(&self, versions: &[&[Resource]]) {
        let from = self.engine.version();
        let steps: Vec<_> = versions.iter().map(|one| self.world.put(one).version).collect();
        let store = &self.world.store;
        let update = Update::read(store, self.world.environment, from, &steps).unwrap();
        self.engine.update(update);
        self.wait_until_quiescent();
    }

    fn wait_until_quiescent(&self) {
        let until = Instant::now() + Duration::from_secs(20);
        while !self.engine.is_quiescent() {
            assert!(Instant::now() < until, "the engine does not become quiescent");
            std::thread::sleep(Duration::from_millis(5));
        }
        self.engine.with_scheduler(|scheduler| scheduler.check_invariants()).unwrap();
    }

    /// Number of deploys in the log of a resource.
    fn runs(&self, name: &str) -> usize {
        self.world.actions(name).len()
    }

    /// Last success of a resource, as a number that grows with each run.
    fn last_run(&self, name: &str) -> usize {
        let index = |scheduler: &orrery_scheduler::Scheduler| {
            let index = scheduler.index_of(id(name).as_str())?;
            scheduler.state(index)?.last_success
        };
        let last = self.engine.with_scheduler(index).unwrap();
        usize::try_from(last.0).unwrap()
    }

    fn finish(self) -> World {
        self.engine.finish().unwrap();
        self.world.store.leases().release(&self.lease).unwrap();
        self.world
    }
}

#[test]
fn a_newer_version_runs_only_its_changes() {
    let live = LiveEngine::start(&[scripted("a", "{}", &[]), scripted("b", "{}", &["a"])]);
    live.wait_until_quiescent();
    assert_eq!((live.runs("a"), live.runs("b")), (1, 1));
    let changed = scripted("b", r#"{"note":1}"#, &["a"]);
    live.update(&[&[scripted("a", "{}", &[]), changed, scripted("c", "{}", &["b"])]]);
    assert_eq!((live.runs("a"), live.runs("b"), live.runs("c")), (1, 2, 1));
    let world = live.finish();
    assert_eq!(world.status("c"), Status::Deployed);
    let processed = world.store.engine().processed_version(world.environment).unwrap();
    assert_eq!(
        processed,
        world.store.versions().list(world.environment).unwrap().last().map(|one| one.number)
    );
}

#[test]
fn removed_resources_are_orphans_and_returning_ones_are_new() {
    let live = LiveEngine::start(&[scripted("a", "{}", &[]), scripted("b", "{}", &[])]);
    live.wait_until_quiescent();
    live.update(&[&[scripted("a", "{}", &[])]]);
    assert_eq!(live.world.status("b"), Status::Orphaned);
    live.update(&[&[scripted("a", "{}", &[]), scripted("b", "{}", &[])]]);
    assert_eq!(live.world.status("b"), Status::Deployed);
    // Removed and added within one update: still a new resource.
    live.update(&[
        &[scripted("a", "{}", &[])],
        &[scripted("a", "{}", &[]), scripted("b", "{}", &[])],
    ]);
    assert_eq!(live.runs("a"), 1);
    assert_eq!(live.runs("b"), 3);
    live.finish();
}

#[test]
fn positions_of_removed_resources_are_reused() {
    let many = |from: usize| -> Vec<Resource> {
        (from..from + 50).map(|at| scripted(&format!("r{at:04}"), "{}", &[])).collect()
    };
    let live = LiveEngine::start(&many(0));
    live.wait_until_quiescent();
    for round in 1..6 {
        live.update(&[&many(round * 25)]);
    }
    let world = live.finish();
    assert_eq!(world.status("r0150"), Status::Deployed);
    assert_eq!(world.status("r0000"), Status::Orphaned);
    let total = world.store.resources().count_statuses(world.environment).unwrap();
    assert_eq!(total[&Status::Deployed], 50);
}

#[test]
fn a_version_during_runs_loses_nothing() {
    let slow = r#"{"delay_ms":200}"#;
    let live = LiveEngine::start(&[on_agent("x", "slow", slow), on_agent("y", "gone", slow)]);
    let changed = on_agent("x", "slow", r#"{"delay_ms":200,"note":2}"#);
    live.update(&[&[changed, on_agent("z", "more", "{}")]]);
    let world = live.finish();
    let find = |agent: &str, name: &str| {
        let id = on_agent(agent, name, "{}").id;
        world.store.resources().find(world.environment, id.as_str()).unwrap().unwrap()
    };
    assert_eq!(find("x", "slow").status, Status::Deployed);
    assert_eq!(find("y", "gone").status, Status::Orphaned);
    assert_eq!(find("z", "more").status, Status::Deployed);
    let runs = world.store.actions().of_resource(
        world.environment,
        on_agent("x", "slow", "{}").id.as_str(),
        None,
        9,
    );
    assert_eq!(runs.unwrap().len(), 2);
    assert!(world.store.resources().find(world.environment, id("x").as_str()).unwrap().is_none());
}

/// Threads of this process by name.
fn threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|found| found.trim() == name).count()
}

#[test]
fn an_idle_engine_has_no_threads_and_resumes_on_demand() {
    let lives: Vec<LiveEngine> =
        (0..40).map(|_| LiveEngine::start(&[scripted("a", "{}", &[])])).collect();
    lives.iter().for_each(LiveEngine::wait_until_quiescent);
    let until = Instant::now() + Duration::from_secs(20);
    // Other tests run concurrently, with a few threads of their own.
    while threads("writer") + threads("worker") >= 40 {
        assert!(Instant::now() < until, "threads stay");
        std::thread::sleep(Duration::from_millis(50));
    }
    for live in &lives {
        live.update(&[&[scripted("a", r#"{"note":1}"#, &[])]]);
        assert_eq!(live.runs("a"), 2);
    }
    lives.into_iter().for_each(|live| drop(live.finish()));
}

/// Reads the machine once per deploy, and counts the reads.
#[derive(Default)]
struct CountingHandler {
    looks: AtomicUsize,
    runs: AtomicUsize,
}

struct CachedRead;

impl Handler for CountingHandler {
    fn run(&self, _: &Attributes, context: &mut Context<'_>) -> Outcome {
        self.runs.fetch_add(1, Ordering::Relaxed);
        let seen = context.cache().get_or_query(|| {
            self.looks.fetch_add(1, Ordering::Relaxed);
            Ok::<_, HandlerError>(CachedRead)
        });
        assert!(seen.is_ok());
        context.finish(OutcomeStatus::Deployed, Change::default())
    }

    fn facts(&self, _: &Attributes, _: &mut Context<'_>) -> Result<Vec<Fact>, HandlerError> {
        Ok(Vec::new())
    }

    fn watched_path<'i>(&self, _: &'i ResourceId) -> Option<&'i str> {
        None
    }
}

#[test]
fn target_caches_last_for_one_deploy() {
    let mut world = World::new();
    let looking = Arc::new(CountingHandler::default());
    world.registry.register_hosted("test::Looking".to_owned(), Arc::clone(&looking) as _);
    let resources = |note: u32| -> Vec<Resource> {
        let attributes = format!(r#"{{"note":{note}}}"#);
        ["a", "b", "c"].map(|name| resource("test::Looking", name, &attributes, &[])).to_vec()
    };
    let live = LiveEngine::start_in(world, &resources(1));
    live.wait_until_quiescent();
    let counts = || (looking.runs.load(Ordering::Relaxed), looking.looks.load(Ordering::Relaxed));
    assert_eq!(counts(), (3, 1));
    // The machine may have changed since.
    live.update(&[&resources(2)]);
    assert_eq!(counts(), (6, 2));
    live.finish();
}

fn slow(agents: usize, delay_ms: u32) -> Vec<Resource> {
    let attributes = format!(r#"{{"delay_ms":{delay_ms}}}"#);
    (0..agents).map(|at| on_agent(&format!("slow{at:03}"), "one", &attributes)).collect()
}

/// Eight may start at once; all of these only wait.
#[test]
fn slow_targets_run_in_parallel() {
    for agents in [40, 400] {
        let began = Instant::now();
        let live = LiveEngine::start(&slow(agents, 2_000));
        let mut most = 0;
        while !live.engine.is_quiescent() {
            most = most.max(live.engine.with_scheduler(|scheduler| scheduler.counts().running));
            std::thread::sleep(Duration::from_millis(5));
        }
        let took = began.elapsed();
        assert_eq!(most, agents, "at once");
        assert!(took < Duration::from_secs(10), "{agents} agents took {took:?}");
        live.finish();
    }
}

#[test]
fn slow_targets_do_not_block_others() {
    let busy = slow(20, 5_000);
    let live = LiveEngine::start(&busy);
    std::thread::sleep(Duration::from_millis(300));
    let mut wanted = busy.clone();
    wanted.extend((0..100).map(|at| on_agent(&format!("quick{at}"), "one", "{}")));
    let steps = [live.world.put(&wanted).version];
    let from = live.engine.version();
    let update = Update::read(&live.world.store, live.world.environment, from, &steps).unwrap();
    let began = Instant::now();
    live.engine.update(update);
    let quick: Vec<_> = (0..100).map(|at| format!("quick{at}")).collect();
    let is_deployed = |agent: &String| {
        let id = ResourceId::new("std::testing::ScriptedResource", agent, "name", "one").unwrap();
        let store = &live.world.store;
        let found = store.resources().find(live.world.environment, id.as_str()).unwrap();
        found.is_some_and(|found| found.status == Status::Deployed)
    };
    while !quick.iter().all(is_deployed) {
        assert!(began.elapsed() < Duration::from_secs(3), "the quick ones wait for the slow ones");
        std::thread::sleep(Duration::from_millis(20));
    }
    let running = live.engine.with_scheduler(|scheduler| scheduler.counts().running);
    assert_eq!(running, 20, "and those still run");
    live.wait_until_quiescent();
    live.finish();
}

#[test]
fn a_configured_limit_is_never_exceeded() {
    let mut world = World::new();
    world.settings.running_max = Some(3);
    let live = LiveEngine::start_in(world, &slow(12, 200));
    let mut most = 0;
    while !live.engine.is_quiescent() {
        most = most.max(live.engine.with_scheduler(|scheduler| scheduler.counts().running));
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(most, 3);
    live.finish();
}

/// A repair resumed after a restart counts all of its runs, and repeats none.
#[test]
fn a_resumed_repair_counts_earlier_runs() {
    let resources: Vec<Resource> =
        (0..5).map(|at| scripted(&format!("r{at}"), "{}", &[])).collect();
    let live = LiveEngine::start(&resources);
    live.wait_until_quiescent();
    std::thread::sleep(Duration::from_millis(2));
    let since = now();
    let names = Filter::ids((0..3).map(|at| id(&format!("r{at}"))));
    live.engine.handle_event(Event::Verify(names));
    live.wait_until_quiescent();
    let before: Vec<usize> = (0..5).map(|at| live.last_run(&format!("r{at}"))).collect();
    let id = live.engine.submit(Event::ResumeVerify { filter: Filter::all(), since });
    live.wait_until_quiescent();
    let after: Vec<usize> = (0..5).map(|at| live.last_run(&format!("r{at}"))).collect();
    let (answered, answer) = live.engine.take_finished_requests().pop().unwrap();
    assert_eq!((answered, answer.matched, answer.runs.deployed), (id, 5, 5));
    assert_eq!(answer.compliant, 0);
    for at in 0..3 {
        assert_eq!(before[at], after[at], "r{at} was verified before");
    }
    for at in 3..5 {
        assert!(after[at] > before[at], "r{at}");
    }
    live.finish();
}

/// The permit ends by the clock: runs are cancelled, nothing more starts, and ended runs are
/// persisted.
#[test]
fn nothing_starts_after_the_permit_ended() {
    let permit = Permit::until(Moment::now().after(Duration::from_millis(700)));
    // All of one agent, so serial.
    let names: Vec<String> = (0..50).map(|at| format!("r{at:02}")).collect();
    let resources: Vec<Resource> =
        names.iter().map(|name| scripted(name, r#"{"delay_ms":100}"#, &[])).collect();
    let live = LiveEngine::start_under(World::new(), &resources, &permit);
    let until = Instant::now() + Duration::from_secs(20);
    while !live.engine.is_unauthorized() || live.engine.is_running() {
        assert!(Instant::now() < until, "the engine goes on");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(permit.is_over());
    live.engine.handle_event(Event::Verify(Filter { agents: None, ids: None }));
    std::thread::sleep(Duration::from_millis(300));
    assert!(!live.engine.is_running());
    let world = live.finish();
    let done = |name: &&String| world.status(name) == Status::Deployed;
    let count = names.iter().filter(done).count();
    assert!((1..10).contains(&count), "{count} were deployed in the time of seven");
}

/// Policies apply from the start of an engine: a restart does not repair what only reports.
#[test]
fn reported_drift_stays_when_an_engine_starts() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let resources = [file(path.to_str().unwrap(), "content\n")];
    let mut world = World::new();
    world.deploy(&resources);
    std::fs::write(&path, "by hand\n").unwrap();
    world.drift_policies = DriftPolicies([("*".to_owned(), DriftPolicy::Report)].into());
    let live = LiveEngine::start_in(world, &resources);
    live.engine.handle_event(Event::Drift(Filter::all()));
    live.wait_until_quiescent();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "by hand\n");
    let mut world = live.finish();
    // Without the policy, the same event repairs.
    world.drift_policies = DriftPolicies::default();
    let live = LiveEngine::start_in(world, &resources);
    live.engine.handle_event(Event::Drift(Filter::all()));
    live.wait_until_quiescent();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "content\n");
    live.finish();
}

/// Threads without the engine see what waits on an agent, and run it; not after its end.
#[test]
fn a_handle_knows_what_waits_until_the_engine_ends() {
    let bad = scripted("bad", r#"{"outcome":"fail"}"#, &[]);
    let live = LiveEngine::start(&[bad.clone(), scripted("good", "{}", &[])]);
    let handle = live.engine.handle();
    live.wait_until_quiescent();
    assert!(handle.has_resources("here") && !handle.has_resources("elsewhere"));
    assert_eq!(handle.waiting_resources("here"), std::slice::from_ref(&bad.id));
    let (before, waiting) = (live.runs("bad"), handle.waiting_resources("here"));
    handle.handle_event(Event::DeployDirty(Filter::ids(waiting)));
    live.wait_until_quiescent();
    assert!(live.runs("bad") > before);
    live.finish();
    assert!(!handle.has_resources("here") && handle.waiting_resources("here").is_empty());
    handle.handle_event(Event::DeployDirty(Filter::ids([bad.id])));
}
