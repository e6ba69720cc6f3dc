//! Carries out tasks with the plug-ins of this process.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use orrery_handlers::target::Ownership;
use orrery_handlers::{CancelToken, Target};

use crate::machine_name::MachineName;
use crate::node_files::make_directories;
use crate::node_state::{ServiceRecord, StateChange};
use crate::plugin::{
    ActionOutput, ActionRun, MachineCall, MachineProvider, NodeAccess, PluginError, PluginKind,
    PluginResources,
};
use crate::plugins::Plugins;
use crate::redacted::RedactedMap;
use crate::task::{
    Outputs, ServiceCall, ServiceWork, Task, TaskAction, TaskReport, TaskStatus, Work,
};

/// Largest state file in bytes.
const STATE_BYTES_MAX: u64 = 1024 * 1024;
/// Name of the state file of the machine itself; services have other characters at the start.
const MACHINE_STATE: &str = "_machine";

/// Runs tasks in the thread of the caller.
#[derive(Clone)]
pub struct PluginRunner {
    plugins: Arc<Plugins>,
    resources: Arc<dyn PluginResources>,
}

/// The runner under its short name, where its module qualifies it.
pub use PluginRunner as Runner;

impl fmt::Debug for PluginRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PluginRunner").field("plugins", &self.plugins).finish_non_exhaustive()
    }
}

impl PluginRunner {
    pub fn new(plugins: Arc<Plugins>, resources: Arc<dyn PluginResources>) -> Self {
        PluginRunner { plugins, resources }
    }

    pub fn plugins(&self) -> &Plugins {
        &self.plugins
    }

    /// Carries out a task within its time limit. Always returns a report.
    pub fn run(&self, task: &Task, stop: &CancelToken) -> TaskReport {
        let stop = stop.within(Duration::from_millis(task.limit_ms));
        let caught = catch_unwind(AssertUnwindSafe(|| self.try_run(task, &stop)));
        let report = match caught {
            Ok(Ok(report)) => report,
            Ok(Err(error)) => error.into(),
            Err(_) => {
                let text = format!("a plug-in crashed during: {}", task.title());
                PluginError::new(text).unclear().into()
            }
        };
        if report.status == TaskStatus::Succeeded {
            tracing::debug!(task = %task.id, "done: {}", task.title());
        } else {
            tracing::info!(task = %task.id, message = %report.message, "failed: {}", task.title());
        }
        report
    }

    fn try_run(&self, task: &Task, stop: &CancelToken) -> Result<TaskReport, PluginError> {
        let provider = self.plugins.provider(&task.provider.plugin)?;
        let name = task.machine_name().map_err(|error| PluginError::new(error.to_string()))?;
        let fields = self.plugins.check_fields(
            PluginKind::Provider,
            &task.provider.plugin,
            &task.provider.fields.0,
            &serde_json::Map::new(),
        )?;
        let call = MachineCall { task, name: &name, fields: &fields, stop };
        let mut report = TaskReport::default();
        match &task.work {
            Work::Create => report.outputs.facts = Some(provider.create(&call)?),
            Work::Confirm { wait_ms } => {
                let facts = provider.confirm(&call, Duration::from_millis(*wait_ms))?;
                report.outputs.facts = Some(facts);
            }
            Work::Delete { machine } => {
                let machine: MachineName =
                    machine.parse().map_err(|error: crate::machine_name::MachineNameError| {
                        PluginError::new(error.to_string())
                    })?;
                if !machine.is_same_node(&name) {
                    let text = format!("{machine} is not a machine of the node {}", task.node);
                    return Err(PluginError::new(text));
                }
                provider.delete(&call, &machine)?;
            }
            Work::List => report.outputs.machines = provider.list(&call)?,
            Work::Inspect { service, probe } => {
                report.outputs =
                    self.inspect(provider.as_ref(), &call, service.as_deref(), probe.as_ref())?;
            }
            Work::Act(work) => {
                let output = self.run_action(provider.as_ref(), &call, work)?;
                (report.stdout, report.stderr) = (output.stdout, output.stderr);
            }
        }
        Ok(report)
    }

    fn inspect(
        &self,
        provider: &dyn MachineProvider,
        call: &MachineCall<'_>,
        service: Option<&str>,
        probe: Option<&ServiceCall>,
    ) -> Result<Outputs, PluginError> {
        let mut outputs = Outputs::default();
        if let Some(simulation) = provider.simulation() {
            outputs.state = Some(simulation.inspect(call, service)?);
            return Ok(outputs);
        }
        let access = provider.access(call)?;
        let file = StateFile::new(&access, service)?;
        let state = file.read()?;
        if let Some(probe) = probe.filter(|_| state.running.is_some()) {
            let config = RedactedMap::default();
            match self.call_automator(call, &access, service, probe, &config) {
                Ok(_) => {}
                Err(error) if error.is_unclear => return Err(error),
                Err(error) => outputs.probe_failure = Some(error.message),
            }
        }
        outputs.state = Some(state);
        Ok(outputs)
    }

    fn run_action(
        &self,
        provider: &dyn MachineProvider,
        call: &MachineCall<'_>,
        work: &ServiceWork,
    ) -> Result<ActionOutput, PluginError> {
        if let Some(simulation) = provider.simulation() {
            simulation.run_action(call, work)?;
            return Ok(ActionOutput::default());
        }
        let access = provider.access(call)?;
        let file = StateFile::new(&access, work.service.as_deref())?;
        if let Some(key) = &work.once {
            file.change(&[StateChange::InitializationBegun { key: key.clone() }])?;
        }
        let mut output = ActionOutput::default();
        if let Some(service_call) = &work.call {
            let service = work.service.as_deref();
            let done = self.call_automator(call, &access, service, service_call, &work.config);
            if let (Err(error), Some(key)) = (&done, &work.once)
                && !error.is_unclear
            {
                file.change(&[StateChange::InitializationFailed { key: key.clone() }])?;
            }
            output = done?;
        }
        // The action was carried out: without its record, its outcome is unknown.
        file.change(&work.record).map_err(|error| match &work.once {
            Some(_) => error.unclear(),
            None => error,
        })?;
        Ok(output)
    }

    fn call_automator(
        &self,
        call: &MachineCall<'_>,
        access: &NodeAccess,
        service: Option<&str>,
        service_call: &ServiceCall,
        config: &RedactedMap,
    ) -> Result<ActionOutput, PluginError> {
        let plugin = &service_call.automator.plugin;
        let automator = self.plugins.automator(plugin)?;
        let fields = match service_call.action {
            // Prepares the machine for all services: there are no fields.
            TaskAction::Bootstrap => RedactedMap::default(),
            _ => self.plugins.check_fields(
                PluginKind::Automator,
                plugin,
                &service_call.automator.fields.0,
                &serde_json::Map::new(),
            )?,
        };
        automator.run(&ActionRun {
            task: call.task,
            action: service_call.action,
            service,
            fields: &fields,
            config,
            access,
            resources: &*self.resources,
            stop: call.stop,
        })
    }
}

/// State file of one service on a machine.
struct StateFile<'a> {
    target: &'a dyn Target,
    directory: String,
    path: String,
}

impl<'a> StateFile<'a> {
    fn new(access: &'a NodeAccess, service: Option<&str>) -> Result<Self, PluginError> {
        let name = service.unwrap_or(MACHINE_STATE);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        if name.is_empty() || name.starts_with('.') || !name.chars().all(is_plain) {
            return Err(PluginError::new(format!("{name:?} cannot be the name of a service")));
        }
        let directory = format!("{}/state", access.home);
        let path = format!("{directory}/{name}.json");
        Ok(StateFile { target: &*access.target, directory, path })
    }

    fn read(&self) -> Result<ServiceRecord, PluginError> {
        let Some(text) = self.target.read_file(&self.path, STATE_BYTES_MAX)? else {
            return Ok(ServiceRecord::default());
        };
        serde_json::from_slice(&text).map_err(|error| {
            PluginError::new(format!("cannot read {} on the machine: {error}", self.path))
                .with_hint("replace the node, or correct the file")
        })
    }

    /// Applies changes in one step.
    fn change(&self, changes: &[StateChange]) -> Result<(), PluginError> {
        let mut state = self.read()?;
        let before = state.clone();
        changes.iter().for_each(|change| state.apply(change));
        if state == before {
            return Ok(());
        }
        let text = serde_json::to_vec(&state)
            .map_err(|error| PluginError::new(format!("cannot write {}: {error}", self.path)))?;
        let private = Ownership { mode: Some(0o600), ..Ownership::default() };
        if self.target.write_file(&self.path, &text, private).is_err() {
            make_directories(self.target, &[&self.directory], &CancelToken::never())?;
            self.target.write_file(&self.path, &text, private)?;
        }
        // What else a loss of power takes away is done again.
        if changes.iter().any(StateChange::is_of_initialization) {
            self.target.sync()?;
        }
        Ok(())
    }
}
