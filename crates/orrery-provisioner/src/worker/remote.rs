//! The side of the server: gives tasks to connected workers, or carries them out here if there are
//! none.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use orrery_base::lock::IgnorePoison as _;
use orrery_handlers::run::{HandlerRun, Purpose, Remote, RemoteCode, RemoteCommand, RemoteError};
use orrery_handlers::{CancelToken, CodePart, HandlerError, PortableCode, ServerReply};
use orrery_model::{Attributes, LogLevel, Outcome, OutcomeStatus, Resource, VersionNumber};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::{REPORT, TASK, command_id};
use crate::dispatch::{DispatchError, Dispatcher, LocalDispatcher};
use crate::plugin::PluginResources;
use crate::slots::Slots;
use crate::task::{Task, TaskReport};

/// A connected worker.
#[derive(Clone)]
pub struct WorkerSite {
    pub name: String,
    /// Number of tasks at a time, as it announced.
    pub slots: usize,
    pub remote: Arc<dyn Remote>,
}

impl fmt::Debug for WorkerSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerSite")
            .field("name", &self.name)
            .field("slots", &self.slots)
            .finish_non_exhaustive()
    }
}

/// The workers of an installation.
pub trait WorkerDirectory: Send + Sync {
    /// Connected ones.
    fn connected(&self) -> Vec<WorkerSite>;

    /// Returns true if there are workers, connected or not: tasks then wait for them.
    fn exist(&self) -> bool;

    /// UUID of the environment that workers belong to.
    fn environment(&self) -> &str;
}

/// Gives tasks to workers, in fair slots of their tenants.
pub struct WorkerDispatcher {
    workers: Arc<dyn WorkerDirectory>,
    contents: Arc<dyn PluginResources>,
    /// As many as all connected workers have.
    slots: Slots,
    /// Without workers.
    local: LocalDispatcher,
    /// Number of running tasks by worker.
    running: Mutex<BTreeMap<String, usize>>,
}

impl fmt::Debug for WorkerDispatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerDispatcher").field("slots", &self.slots).finish_non_exhaustive()
    }
}

/// A task on a worker. Dropping it frees its place.
struct OccupiedSlot<'a> {
    dispatcher: &'a WorkerDispatcher,
    site: WorkerSite,
}

impl Drop for OccupiedSlot<'_> {
    fn drop(&mut self) {
        let mut running = self.dispatcher.running.lock().ignore_poison();
        if let Some(count) = running.get_mut(&self.site.name) {
            *count = count.saturating_sub(1);
        }
    }
}

impl WorkerDispatcher {
    pub fn new(
        workers: Arc<dyn WorkerDirectory>,
        contents: Arc<dyn PluginResources>,
        local: LocalDispatcher,
    ) -> Self {
        let (slots, running) = (Slots::new(1), Mutex::default());
        WorkerDispatcher { workers, contents, slots, local, running }
    }

    /// Slots on workers.
    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Slots in this process.
    pub fn local_slots(&self) -> &Slots {
        self.local.slots()
    }

    /// Takes a place on the worker with the most free slots.
    fn occupy(&self, sites: Vec<WorkerSite>) -> Option<OccupiedSlot<'_>> {
        let mut running = self.running.lock().ignore_poison();
        let free = |site: &WorkerSite| {
            site.slots.saturating_sub(running.get(&site.name).copied().unwrap_or(0))
        };
        let site = sites.into_iter().filter(|site| free(site) > 0).max_by_key(free)?;
        *running.entry(site.name.clone()).or_default() += 1;
        drop(running);
        Some(OccupiedSlot { dispatcher: self, site })
    }
}

impl Dispatcher for WorkerDispatcher {
    fn run(&self, task: Task, stop: &CancelToken) -> Result<TaskReport, DispatchError> {
        let sites = self.workers.connected();
        if sites.is_empty() && !self.workers.exist() {
            return self.local.run(task, stop);
        }
        if sites.is_empty() {
            return Err(DispatchError::NotStarted("no worker is connected".to_owned()));
        }
        self.slots.set_total(sites.iter().map(|site| site.slots).sum());
        let slot = self.slots.acquire(&task.tenant, stop).map_err(|cause| {
            DispatchError::NotStarted(format!("no slot of a worker was free: {cause:?}"))
        })?;
        // Workers may have come and gone while the task waited.
        let place = self.occupy(self.workers.connected()).ok_or_else(|| {
            DispatchError::NotStarted("the workers that are connected are busy".to_owned())
        })?;
        let report = run_on(&place.site, self.workers.environment(), &*self.contents, task, stop);
        drop((place, slot));
        report
    }
}

/// Contents of the plug-in resources of one task, which its worker may fetch.
struct TaskContents<'a> {
    task: &'a Task,
    contents: &'a dyn PluginResources,
    environment: &'a str,
}

impl PortableCode for TaskContents<'_> {
    fn digest(&self) -> Result<String, HandlerError> {
        let digest = Sha256::digest(self.task.id.as_bytes());
        Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    fn environment(&self) -> &str {
        self.environment
    }

    fn read(
        &self,
        digest: &str,
        offset: u64,
        bytes_max: usize,
    ) -> Result<Option<CodePart>, HandlerError> {
        if !self.task.plugin_resources.values().any(|own| own == digest) {
            return Ok(None);
        }
        let content = self.contents.content(&self.task.tenant, digest);
        let content = content.map_err(|error| HandlerError::failed(error.message))?;
        Ok(content.map(|content| {
            let from = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
            let end = from.saturating_add(bytes_max).min(content.len());
            CodePart { size: content.len() as u64, content: content[from..end].to_vec() }
        }))
    }

    fn answer(&self, method: &str, _: &Map<String, Value>, _: bool) -> ServerReply {
        let result = json!({"message": format!("a task cannot call {method}")});
        ServerReply { status: 403, result }
    }
}

fn run_on(
    site: &WorkerSite,
    environment: &str,
    contents: &dyn PluginResources,
    task: Task,
    stop: &CancelToken,
) -> Result<TaskReport, DispatchError> {
    let not_started = |reason: String| DispatchError::NotStarted(reason);
    let id = command_id(&site.name, &task.id).map_err(|error| not_started(error.to_string()))?;
    let portable = TaskContents { task: &task, contents, environment };
    let text = json!({ TASK: &task }).to_string();
    let attributes = Attributes::parse(&text).map_err(|error| not_started(error.to_string()))?;
    let resource = Resource::new(id, attributes, Vec::new());
    let digest = portable.digest().map_err(|error| not_started(error.to_string()))?;
    let title = task.title();
    let run = HandlerRun {
        purpose: Purpose::Deploy,
        resource: &resource,
        version: VersionNumber(0),
        epoch: None,
        deployed_before: false,
        changed_dependencies: &[],
        reason: &title,
        stop,
        before_change: None,
        effects: None,
    };
    let command = RemoteCommand {
        run,
        contents: BTreeMap::new(),
        secrets: BTreeMap::new(),
        log_level: LogLevel::Info,
        code: Some(RemoteCode { digest, portable: &portable }),
    };
    match site.remote.run(&command) {
        Ok(ended) if ended.unclear || ended.repeated => Err(DispatchError::Unknown(format!(
            "the worker {} was restarted during: {title}",
            site.name
        ))),
        Ok(ended) => report_of(&site.name, &ended.outcome),
        Err(RemoteError::Unknown { reason }) => Err(DispatchError::Unknown(reason)),
        Err(RemoteError::Cancelled) => {
            Err(not_started("it was cancelled before it began".to_owned()))
        }
        Err(error) => Err(not_started(error.to_string())),
    }
}

/// Report in an outcome of a worker.
fn report_of(worker: &str, outcome: &Outcome) -> Result<TaskReport, DispatchError> {
    let report = outcome.log.iter().find_map(|line| line.values.get(REPORT));
    let reason = || {
        let last = outcome.log.last().map_or("without a reason", |line| line.message.as_str());
        format!("the worker {worker}: {last}")
    };
    match (report, outcome.status) {
        (Some(report), _) => serde_json::from_value(report.clone()).map_err(|error| {
            DispatchError::Unknown(format!("the report of {worker} is not readable: {error}"))
        }),
        (None, OutcomeStatus::Unavailable | OutcomeStatus::Skipped) => {
            Err(DispatchError::NotStarted(reason()))
        }
        (None, _) => Err(DispatchError::Unknown(reason())),
    }
}
