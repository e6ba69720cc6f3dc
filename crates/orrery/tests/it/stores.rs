//! Deployment states for tests, created through the store's interface as by an engine, with fixed
//! times.

use std::path::Path;

use anyhow::{Context, Result, bail};
use orrery_model::{
    AttributeDiff, Attributes, Blocked, Change, ChangeKind, Fact, LogLevel, LogLine, OutcomeStatus,
    Resource, ResourceId, ResourceState, Source, Timestamp, VersionNumber,
};
use orrery_store::{
    ActionKind, ActionRecord, EnvironmentKey, Holder, Lease, LeaseRequest, NewVersion, PutOutcome,
    PutScope, ResourceKey, ResultRecord, StateRecord, Store,
};
use serde_json::{Value, json};

/// 2026-11-16 09:30:00 UTC
const START: i64 = 1_794_821_400_000_000;

/// Creates the named state in a file.
pub(crate) fn create(name: &str, file: &Path) -> Result<()> {
    let scene = Scene::open(file)?;
    match name {
        "shop" => shop(&scene),
        "calm" => calm(&scene),
        "crowd" => crowd(&scene, 25),
        "waiting" => waiting(&scene),
        "nothing" => Ok(()),
        "empty" => scene.put(1, json!(null), &[]).map(drop),
        other => bail!("there is no store {other}"),
    }
}

/// A time in seconds after the start.
pub(crate) fn at(seconds: f64) -> Timestamp {
    #[expect(clippy::cast_possible_truncation, reason = "the numbers of tests are small")]
    let micros = (seconds * 1e6) as i64;
    Timestamp(START + micros)
}

pub(crate) struct Scene {
    pub(crate) store: Store,
    environment: EnvironmentKey,
    lease: Lease,
}

/// Result of a handler run.
struct Run<'a> {
    at: f64,
    version: u32,
    outcome: OutcomeStatus,
    change: Change,
    log: &'a [LogLine],
}

impl Scene {
    pub(crate) fn open(file: &Path) -> Result<Self> {
        let holder = Holder { since: at(0.0), ..Holder::this_process("orrery deploy", at(0.0)) };
        let store = Store::open(file, &holder)?;
        let environment = store.environments().ensure_default()?;
        let request = LeaseRequest { holder, now: at(0.0), expires: None };
        let lease = store.leases().acquire(environment, &request)?;
        Ok(Scene { store, environment, lease })
    }

    /// Stores and releases a version.
    pub(crate) fn put(
        &self,
        number: u32,
        info: Value,
        resources: &[Resource],
    ) -> Result<PutOutcome> {
        let mut resources = resources.to_vec();
        resources.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(self.store.versions().put(
            self.environment,
            &NewVersion {
                number: None,
                made_at: at(f64::from(number) * 3600.0),
                info: &info,
                scope: PutScope::All,
                resources: &resources,
                base: None,
                unknowns: &[],
                released: true,
                only_if_changed: false,
                lease: Some(&self.lease),
                project: None,
            },
        )?)
    }

    fn key(&self, id: &ResourceId) -> Result<ResourceKey> {
        let found = self.store.resources().find(self.environment, id.as_str())?;
        Ok(found.with_context(|| format!("there is no {id}"))?.key)
    }

    fn process(&self, version: u32, states: &[(&ResourceId, ResourceState)]) -> Result<()> {
        let keys: Vec<ResourceKey> =
            states.iter().map(|(id, _)| self.key(id)).collect::<Result<_>>()?;
        let records: Vec<StateRecord<'_>> = keys
            .iter()
            .zip(states)
            .map(|(&resource, (_, state))| StateRecord { resource, state })
            .collect();
        Ok(self.store.engine().process_version(&self.lease, VersionNumber(version), &records)?)
    }

    /// Records the result of a run and the resulting state.
    fn record(&self, resource: &Resource, run: &Run<'_>, facts: &[Fact]) -> Result<()> {
        let finished = at(run.at + 0.012);
        let good = run.outcome == OutcomeStatus::Deployed;
        let waits = run.outcome == OutcomeStatus::SkippedForDependency;
        let known = self.store.resources().find(self.environment, resource.id.as_str())?;
        let before = known.map(|known| known.state);
        let mut state = ResourceState::new(resource.hash, false);
        state.blocked = if waits { Blocked::TemporarilyBlocked } else { Blocked::NotBlocked };
        state.last_run = run.outcome.into();
        state.last_run_compliant = Some(good);
        state.last_outcome = Some(run.outcome);
        state.last_run_at = Some(finished);
        state.last_deployed = Some(resource.hash);
        state.last_success =
            if good { Some(at(run.at)) } else { before.and_then(|b| b.last_success) };
        state.attempts = u32::from(run.outcome == OutcomeStatus::Failed);
        let action = ActionRecord {
            wants_absence: false,
            kind: ActionKind::Deploy,
            version: VersionNumber(run.version),
            started: at(run.at),
            finished,
            outcome: run.outcome,
            change: &run.change,
            log: run.log,
        };
        let resource = self.key(&resource.id)?;
        let record = ResultRecord { resource, state: Some(&state), action: Some(action), facts };
        self.store.engine().record_results(&self.lease, &[record])?;
        Ok(())
    }
}

pub(crate) fn resource(
    id: &str,
    attributes: Value,
    requires: &[&str],
    line: u32,
) -> Result<Resource> {
    let attributes = attributes.as_object().cloned().unwrap_or_default();
    let requires = requires.iter().map(|id| id.parse()).collect::<Result<_, _>>()?;
    let mut resource = Resource::new(id.parse()?, Attributes::from_object(attributes), requires);
    resource.source = Some(Source { file: "./main.cf".into(), line, column: 1 });
    Ok(resource)
}

fn line(seconds: f64, level: LogLevel, message: &str, values: Value) -> LogLine {
    let values = values.as_object().cloned().unwrap_or_default();
    LogLine { at: at(seconds), level, message: message.to_owned(), values }
}

/// A run for the second version of the shop.
fn run(at: f64, outcome: OutcomeStatus, change: Change, log: &[LogLine]) -> Run<'_> {
    Run { at, version: 2, outcome, change, log }
}

fn change(kind: ChangeKind, attributes: &[(&str, Value, Value)]) -> Change {
    let attributes = attributes.iter().cloned().map(|(name, current, desired)| AttributeDiff {
        name: name.to_owned(),
        current,
        desired,
    });
    Change { kind, attributes: attributes.collect() }
}

const MOTD: &str = "std::File[web1,path=/etc/motd]";
const MOTD_D: &str = "std::Directory[web1,path=/etc/motd.d]";
const CONFIG: &str = "std::File[web1,path=/etc/shop.conf]";
const SERVICE: &str = "std::Service[web1,name=shop]";
const CHECK: &str = "exec::Run[db1,command=check-shop]";
const OLD: &str = "std::File[db1,path=/etc/old]";
const REPORT: &str = "std::File[db1,path=/srv/report]";
const SUMMARY: &str = "std::File[db1,path=/srv/summary]";

/// Two versions with changed, drifted, failed, waiting, unknown and removed resources.
fn shop(scene: &Scene) -> Result<()> {
    let motd = |content: &str| {
        resource(MOTD, json!({"content": content, "mode": 644, "purged": false}), &[MOTD_D], 4)
    };
    let directory = resource(MOTD_D, json!({"mode": 755, "purged": false}), &[], 3)?;
    let old = resource(OLD, json!({"content": "old", "purged": false}), &[], 9)?;
    let first_motd = motd("Welcome!\nThis is the shop.\nBe kind.\n")?;
    scene.put(
        1,
        json!({"message": "the first"}),
        &[directory.clone(), old.clone(), first_motd.clone()],
    )?;
    scene.process(1, &[])?;
    let created = |at: f64, log| Run {
        at,
        version: 1,
        outcome: OutcomeStatus::Deployed,
        change: change(ChangeKind::Created, &[]),
        log,
    };
    scene.record(&directory, &created(3601.0, &[]), &[])?;
    scene.record(&old, &created(3601.5, &[]), &[])?;
    let log = [
        line(3602.001, LogLevel::Debug, "reading the file", json!({"path": "/etc/motd"})),
        line(3602.004, LogLevel::Info, "wrote the file", json!({"size": 37})),
    ];
    let facts = [Fact { name: "size".to_owned(), value: "37".to_owned(), expires: true }];
    scene.record(&first_motd, &created(3602.0, &log), &facts)?;

    let motd = motd("Welcome!\nThis is the new shop.\nBe kind.\n")?;
    let config = resource(CONFIG, json!({"content": "port = 80\n", "owner": "shop"}), &[], 12)?;
    let service = resource(SERVICE, json!({"state": "running"}), &[CONFIG, MOTD], 14)?;
    let check = resource(CHECK, json!({"command": "check-shop"}), &[SERVICE], 16)?;
    let mut report = resource(REPORT, json!({"content": null}), &[], 20)?;
    report.flags.undefined = true;
    let summary = resource(SUMMARY, json!({"content": "s"}), &[REPORT], 21)?;
    let all = [&motd, &directory, &config, &service, &check, &report, &summary].map(Clone::clone);
    scene.put(2, json!({"message": "open the shop"}), &all)?;
    let gone = ResourceState { intent: None, ..ResourceState::new(old.hash, false) };
    let blocked =
        ResourceState { blocked: Blocked::Blocked, ..ResourceState::new(summary.hash, false) };
    let unknown = ResourceState::new(report.hash, true);
    scene.process(2, &[(&old.id, gone), (&summary.id, blocked), (&report.id, unknown)])?;
    let log = [line(7201.003, LogLevel::Info, "wrote the file", json!({"size": 41}))];
    let texts =
        ["Welcome!\nThis is the shop.\nBe kind.\n", "Welcome!\nThis is the new shop.\nBe kind.\n"];
    let updated = change(ChangeKind::Updated, &[("content", json!(texts[0]), json!(texts[1]))]);
    scene.record(&motd, &run(7201.0, OutcomeStatus::Deployed, updated, &log), &[])?;
    let log = [line(
        7202.002,
        LogLevel::Error,
        "there is no user shop",
        json!({"user": "shop", "hint": "make the user before, or let the model do it"}),
    )];
    scene.record(&config, &run(7202.0, OutcomeStatus::Failed, Change::default(), &log), &[])?;
    for (waiting, on, at) in [(&service, CONFIG, 7203.0), (&check, SERVICE, 7204.0)] {
        let message = "a requirement is not deployed";
        let log = [line(at, LogLevel::Warning, message, json!({"resources": [on]}))];
        let run = run(at, OutcomeStatus::SkippedForDependency, Change::default(), &log);
        scene.record(waiting, &run, &[])?;
    }
    // The file was edited by hand, and a later deploy repaired it.
    let drift = change(ChangeKind::Updated, &[("mode", json!(600), json!(644))]);
    let log = [line(
        7800.5,
        LogLevel::Warning,
        "the mode was changed",
        json!({"found": 600, "output": "first line\nsecond \u{1b}[31mline"}),
    )];
    scene.record(&motd, &run(7800.0, OutcomeStatus::Deployed, drift, &log), &[])?;
    scene.store.agents().set_paused(scene.environment, Some("db1"), true)?;
    Ok(())
}

/// Everything is compliant.
fn calm(scene: &Scene) -> Result<()> {
    let directory = resource(MOTD_D, json!({"mode": 755}), &[], 3)?;
    scene.put(1, json!("by hand"), std::slice::from_ref(&directory))?;
    scene.process(1, &[])?;
    let run = Run {
        at: 3601.0,
        version: 1,
        outcome: OutcomeStatus::Deployed,
        change: change(ChangeKind::Created, &[]),
        log: &[],
    };
    scene.record(&directory, &run, &[])
}

/// Many failures on many agents.
fn crowd(scene: &Scene, count: u32) -> Result<()> {
    let resources: Vec<Resource> = (0..count)
        .map(|number| {
            let id = format!("std::File[host{:02},path=/srv/{number:04}]", number % 10);
            resource(&id, json!({"content": "x"}), &[], 1)
        })
        .collect::<Result<_>>()?;
    scene.put(1, json!(null), &resources)?;
    scene.process(1, &[])?;
    let log = [line(3601.0, LogLevel::Error, "there is no space left", json!({}))];
    for resource in &resources {
        let run = Run {
            at: 3601.0,
            version: 1,
            outcome: OutcomeStatus::Failed,
            change: Change::default(),
            log: &log,
        };
        scene.record(resource, &run, &[])?;
    }
    Ok(())
}

/// Resources of a version without any run.
pub(crate) fn many(scene: &Scene, count: u32) -> Result<()> {
    let resources: Vec<Resource> = (0..count)
        .map(|number| {
            let id = format!("std::File[host,path=/srv/{number:06}]");
            resource(&id, json!({"content": "x"}), &[], 1)
        })
        .collect::<Result<_>>()?;
    scene.put(1, json!(null), &resources).map(drop)
}

/// The first version is deployed; a newer one is released but not started.
fn waiting(scene: &Scene) -> Result<()> {
    calm(scene)?;
    let directory = resource(MOTD_D, json!({"mode": 700}), &[], 3)?;
    let file = resource(MOTD, json!({"content": "x"}), &[MOTD_D], 4)?;
    scene.put(2, json!({"export_metadata": {"message": "tighter"}}), &[directory, file]).map(drop)
}
