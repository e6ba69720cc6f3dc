//! Measures the store: `cargo run --release -p orrery-store --example measure -- COUNT
//! [DIRECTORY]`, or `-- COUNT --postgres [URL]`, which without a URL starts a server of its own.
//!
//! Puts a version of COUNT resources into a new store, puts it again unchanged and with one change,
//! reads it, and records results for all. Every tenth resource requires its neighbour.

#![allow(clippy::disallowed_methods, reason = "tests and measurements run in real time")]
#![expect(clippy::print_stdout, reason = "the report of a measurement goes to the terminal")]

use std::path::PathBuf;
use std::time::Instant;

use orrery_model::{
    Attributes, Change, LastRunStatus, OutcomeStatus, Resource, ResourceId, ResourceState, Source,
    Timestamp,
};
use orrery_store::{
    ActionKind, ActionRecord, EnvironmentKey, Holder, Lease, LeaseRequest, NewVersion, PutOutcome,
    PutScope, ResourceQuery, ResultRecord, StartedAction, Store,
};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const BATCH: usize = 2_000;

/// Repetitions of a put.
const ROUNDS: usize = 5;

fn resources(count: usize) -> Outcome<Vec<Resource>> {
    let file: std::sync::Arc<str> = "model/_init.cf".into();
    let mut ids = Vec::with_capacity(count);
    for number in 0..count {
        let (agent, path) =
            (format!("host{:03}", number * 200 / count), format!("/srv/app/config/{number:07}"));
        ids.push(ResourceId::new("std::File", &agent, "path", &path)?);
    }
    ids.sort_unstable();
    let mut resources = Vec::with_capacity(count);
    for (number, id) in ids.iter().enumerate() {
        let attributes = Attributes::parse(&format!(
            r#"{{"group":"root","hash":"{number:040x}","owner":"root","path":"{}","permissions":"0644","purged":false,"reload":false,"send_event":false}}"#,
            id.value()
        ))?;
        let requires = if number % 10 == 9 { vec![ids[number - 1].clone()] } else { Vec::new() };
        let mut resource = Resource::new(id.clone(), attributes, requires);
        let line = 1 + u32::try_from(number % 5_000)?;
        resource.source = Some(Source { file: file.clone(), line, column: 5 });
        resources.push(resource);
    }
    Ok(resources)
}

/// Runs `work` and prints its duration.
fn measure<T>(what: &str, count: usize, work: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    let (started, worked) = (Instant::now(), processor_seconds().unwrap_or(0.0));
    let answer = work()?;
    let seconds = started.elapsed().as_secs_f64();
    let worked = processor_seconds().unwrap_or(0.0) - worked;
    println!(
        "{what:<40} {:>9.1} ms {:>10.0} /s   {:>9.1} ms of a processor   peak {} MiB",
        seconds * 1e3,
        count as f64 / seconds,
        worked * 1e3,
        peak_mebibytes().unwrap_or(0)
    );
    Ok(answer)
}

/// CPU time of this thread and its database's server, which depends less on the load of the machine
/// than elapsed time.
fn processor_seconds() -> Option<f64> {
    let own = worked("/proc/thread-self/schedstat")?;
    let Some(database) = DATABASE.get() else { return Some(own) };
    // A local server names the database in the titles of its processes.
    let title = format!(" {database} ");
    let processes = std::fs::read_dir("/proc").ok()?.flatten().map(|process| process.path());
    let theirs = processes.filter(|path| {
        let command = std::fs::read(path.join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command);
        command.starts_with("postgres: ") && command.contains(&title)
    });
    Some(own + theirs.filter_map(|path| worked(path.join("schedstat"))).sum::<f64>())
}

fn worked(schedule: impl AsRef<std::path::Path>) -> Option<f64> {
    let text = std::fs::read_to_string(schedule).ok()?;
    Some(text.split_whitespace().next()?.parse::<f64>().ok()? / 1e9)
}

/// The name of the PostgreSQL database, if any.
static DATABASE: std::sync::OnceLock<String> = std::sync::OnceLock::new();

/// Peak memory of this process.
fn peak_mebibytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? / 1024)
}

fn put(
    store: &Store,
    environment: EnvironmentKey,
    resources: &[Resource],
    only_if_changed: bool,
) -> Outcome<PutOutcome> {
    Ok(store.versions().put(
        environment,
        &NewVersion {
            number: None,
            made_at: Timestamp(1),
            info: &serde_json::Value::Null,
            scope: PutScope::All,
            resources,
            base: None,
            unknowns: &[],
            released: true,
            only_if_changed,
            lease: None,
            project: None,
        },
    )?)
}

/// Puts versions into environments that are new, with everything changed from one to the next, and
/// prints the best times: those of a server whose connections are in use already.
fn put_repeatedly(store: &Store, resources: &[Resource]) -> Outcome<()> {
    let mut changed = resources.to_vec();
    for resource in &mut changed {
        resource.attributes = Attributes::parse(r#"{"changed":"all","mode":"0644"}"#)?;
        resource.hash = resource.attributes.hash(&resource.id);
    }
    let mut best = [f64::INFINITY; 3];
    for round in 0..ROUNDS {
        let environment = store.environments().create("measure", &format!("round {round}"))?;
        for (best, resources) in best.iter_mut().zip([resources, &changed, &changed]) {
            let started = Instant::now();
            put(store, environment.key, resources, true)?;
            *best = best.min(started.elapsed().as_secs_f64());
        }
    }
    for (what, seconds) in ["new environment", "all changed", "no change"].iter().zip(best) {
        println!("put, {what}, best of {ROUNDS:<16} {:>9.1} ms", seconds * 1e3);
    }
    Ok(())
}

fn record_all(
    store: &Store,
    lease: &Lease,
    resources: &[Resource],
    put: &PutOutcome,
    size: usize,
    mark: bool,
) -> Outcome<()> {
    let change = Change::default();
    for (batch, keys) in resources.chunks(size).zip(put.keys.chunks(size)) {
        let at = Timestamp(1_800_000_000_000_000);
        if mark {
            let started: Vec<StartedAction> = keys
                .iter()
                .map(|key| StartedAction {
                    resource: *key,
                    kind: ActionKind::Deploy,
                    version: put.number,
                    at,
                })
                .collect();
            store.engine().begin_actions(lease, &started)?;
        }
        let states: Vec<ResourceState> = batch
            .iter()
            .map(|resource| ResourceState {
                last_run: LastRunStatus::Successful,
                last_run_compliant: Some(true),
                last_outcome: Some(OutcomeStatus::Deployed),
                last_run_at: Some(at),
                last_deployed: Some(resource.hash),
                last_success: Some(at),
                ..ResourceState::new(resource.hash, false)
            })
            .collect();
        let results: Vec<ResultRecord<'_>> = keys
            .iter()
            .zip(&states)
            .map(|(key, state)| ResultRecord {
                resource: *key,
                state: Some(state),
                action: Some(ActionRecord {
                    kind: ActionKind::Deploy,
                    version: put.number,
                    started: at,
                    finished: at,
                    outcome: OutcomeStatus::Deployed,
                    change: &change,
                    wants_absence: false,
                    log: &[],
                }),
                facts: &[],
            })
            .collect();
        store.engine().record_results(lease, &results)?;
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let count: usize = arguments.next().map_or(Ok(100_000), |count| count.parse())?;
    let place = arguments.next();
    if place.as_deref() == Some("--postgres") {
        // Dropped at the end: a database of a private server ends with it.
        let private = match arguments.next() {
            Some(url) => Err(url),
            None => Ok(orrery_testing::Postgres::shared().database()),
        };
        let url = match &private {
            Ok(database) => database.url(),
            Err(url) => url.clone(),
        };
        let name = url.rsplit('/').next().unwrap_or_default();
        DATABASE.get_or_init(|| name.split('?').next().unwrap_or_default().to_owned());
        return run(count, &|holder| Ok(Store::connect(&url, holder)?));
    }
    let directory = tempfile::tempdir_in(place.map_or_else(std::env::temp_dir, PathBuf::from))?;
    let path = directory.path().join("store.db");
    run(count, &|holder| Ok(Store::open(&path, holder)?))?;
    println!("file: {} MiB", std::fs::metadata(&path)?.len() >> 20);
    Ok(())
}

fn run(count: usize, open: &dyn Fn(&Holder) -> Outcome<Store>) -> Outcome<()> {
    let mut resources = resources(count)?;
    println!("{count} resources, peak {} MiB", peak_mebibytes().unwrap_or(0));
    let holder = Holder::this_process("measure", Timestamp(0));
    let store = measure("open a new store", 1, || open(&holder))?;
    let store = &store;
    let environment = store.environments().ensure_default()?;
    let request = LeaseRequest { holder, now: Timestamp(0), expires: None };
    let lease = store.leases().acquire(environment, &request)?;

    let first = measure("put", count, || put(store, environment, &resources, false))?;
    measure("put, no change", count, || put(store, environment, &resources, true))?;
    resources[count / 2].attributes = Attributes::parse(r#"{"changed":true}"#)?;
    resources[count / 2].hash = resources[count / 2].attributes.hash(&resources[count / 2].id);
    let second = measure("put, one change", 1, || put(store, environment, &resources, true))?;
    measure("difference of the two", 1, || {
        let mut differences = 0;
        store
            .versions()
            .diff(environment, first.number, second.number, &mut |_| differences += 1)?;
        if differences == 1 { Ok(()) } else { Err(format!("{differences} differences").into()) }
    })?;
    for (what, version) in [("read the newest", &second), ("read the older", &first)] {
        measure(what, count, || {
            let mut bytes = 0;
            let visit = &mut |row: orrery_store::ResourceRow<'_>| bytes += row.attributes.len();
            store.versions().read(environment, version.number, visit)?;
            Ok(bytes)
        })?;
    }
    let loaded = measure("load the newest into memory", count, || {
        Ok(store.versions().load(environment, second.number)?)
    })?;
    if loaded.resources != resources {
        return Err("what was read differs from what was put".into());
    }
    drop(loaded);
    for resource in &mut resources {
        if let Some(source) = &mut resource.source {
            source.line += 1;
        }
    }
    measure("put, every line moved", count, || put(store, environment, &resources, true))?;
    measure("results, batches of 2000", count, || {
        record_all(store, &lease, &resources, &second, BATCH, false)
    })?;
    measure("results again, with marks of the start", count, || {
        record_all(store, &lease, &resources, &second, BATCH, true)
    })?;
    let few = count.min(200);
    measure("results, one by one", few, || {
        record_all(store, &lease, &resources[..few], &second, 1, false)
    })?;
    measure("read states", count, || {
        let mut known = 0;
        store.engine().read_states(environment, &mut |_| known += 1)?;
        Ok(known)
    })?;
    measure("count statuses", count, || Ok(store.resources().count_statuses(environment)?))?;
    let filter = ResourceQuery { agent: Some("host150".to_owned()), ..ResourceQuery::default() };
    measure("first page of one agent", 1, || {
        Ok(store.resources().list(environment, &filter, None, 100)?)
    })?;
    measure("resources that require one", 1, || {
        // Every tenth requires its neighbour.
        let id = &resources[count / 20 * 10 + 8].id;
        let found = store.resources().dependents(environment, id.as_str(), 1_000)?;
        assert_eq!(found.len(), 1);
        Ok(())
    })?;
    measure("log of one resource", 1, || {
        Ok(store.actions().of_resource(environment, resources[count / 2].id.as_str(), None, 10)?)
    })?;
    measure("delete the older version", 1, || {
        Ok(store.versions().delete(environment, first.number)?)
    })?;
    let problems = measure("check", 1, || Ok(store.check()?))?;
    put_repeatedly(store, &resources)?;
    if problems.is_empty() { Ok(()) } else { Err(format!("{problems:?}").into()) }
}
