//! Measures tasks per second on simulated machines: `cargo run --release --example sim_tasks`.
//!
//! Arguments: number of nodes (10000), threads (4), share of failures (0.01).

#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a measurement, run by hand")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use orrery_handlers::CancelToken;
use orrery_provisioner::dispatch::{Dispatcher, LocalDispatcher};
use orrery_provisioner::facts::NodeFacts;
use orrery_provisioner::journal_check::JournalCheck;
use orrery_provisioner::node_state::StateChange;
use orrery_provisioner::plugin::{PluginError, PluginResources};
use orrery_provisioner::plugins::Plugins;
use orrery_provisioner::provider::SimProvider;
use orrery_provisioner::redacted::RedactedMap;
use orrery_provisioner::runner::PluginRunner;
use orrery_provisioner::sim_journal::SimJournals;
use orrery_provisioner::slots::Slots;
use orrery_provisioner::task::{
    NodeDescription, PluginInvocation, ServiceCall, ServiceWork, Task, TaskAction, TaskStatus, Work,
};

struct NoResources;

impl PluginResources for NoResources {
    fn content(&self, _: &str, _: &str) -> Result<Option<Arc<[u8]>>, PluginError> {
        Ok(None)
    }
}

fn argument(position: usize, default: f64) -> f64 {
    std::env::args().nth(position).and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Work on one node: its machine, and a service.
fn steps() -> Vec<Work> {
    let act = |action, change| {
        Work::Act(ServiceWork {
            service: Some("app".to_owned()),
            call: Some(ServiceCall {
                action,
                automator: PluginInvocation {
                    plugin: "shell".to_owned(),
                    fields: RedactedMap::default(),
                },
            }),
            config: RedactedMap::default(),
            once: None,
            record: vec![change],
        })
    };
    let digest = || "d".to_owned();
    vec![
        Work::List,
        Work::Create,
        Work::Confirm { wait_ms: 0 },
        Work::Inspect { service: Some("app".to_owned()), probe: None },
        act(TaskAction::Install, StateChange::Installed { digest: digest() }),
        act(TaskAction::Configure, StateChange::Configured { digest: digest() }),
        act(TaskAction::Initialize, StateChange::Initialized { key: digest() }),
        act(TaskAction::Start, StateChange::Started { generation: 1 }),
    ]
}

fn main() {
    let (nodes, threads, failures) =
        (argument(1, 10_000.0) as u64, argument(2, 4.0) as u64, argument(3, 0.01));
    let directory = tempfile::tempdir().unwrap();
    let mut plugins = Plugins::default();
    plugins.add_provider(Arc::new(SimProvider::new(directory.path())));
    let runner = PluginRunner::new(Arc::new(plugins), Arc::new(NoResources));
    let dispatcher = LocalDispatcher::new(Arc::new(runner), Slots::new(threads as usize));
    let fields = serde_json::json!({"failure_rate": failures, "seed": 1});
    let fields = RedactedMap(fields.as_object().cloned().unwrap());
    let (tasks, next) = (AtomicU64::new(0), AtomicU64::new(0));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= nodes {
                        return;
                    }
                    for work in steps() {
                        loop {
                            let id = tasks.fetch_add(1, Ordering::Relaxed);
                            let task = Task {
                                id: id.to_string(),
                                tenant: "shop".to_owned(),
                                cluster: "c1".to_owned(),
                                node: format!("n-{number}"),
                                machine: format!("orr-c1-{number}-1"),
                                provider: PluginInvocation {
                                    plugin: "sim".to_owned(),
                                    fields: fields.clone(),
                                },
                                description: NodeDescription {
                                    number,
                                    incarnation: 1,
                                    ..NodeDescription::default()
                                },
                                facts: NodeFacts::default(),
                                work: work.clone(),
                                plugin_resources: BTreeMap::new(),
                                limit_ms: 60_000,
                            };
                            let report = dispatcher.run(task, &CancelToken::never()).unwrap();
                            if report.status == TaskStatus::Succeeded {
                                break;
                            }
                        }
                    }
                }
            });
        }
    });
    let (seconds, tasks) = (began.elapsed().as_secs_f64(), tasks.into_inner());
    let check = JournalCheck::run(&SimJournals::new(directory.path())).unwrap();
    println!(
        "{nodes} nodes, {tasks} tasks in {seconds:.1} s: {:.0}/s; {} effects, {} failures, {} problems",
        tasks as f64 / seconds,
        check.effects,
        check.failures,
        check.problems.len()
    );
}
