//! `cluster::Installed`, `Quiesced`, `Configured`, `Initialized` and `Running`: the states of a
//! service on a node.
//!
//! The node remembers what was done; a read compares that with the desired state. An initialization
//! happens once for each key: its start is recorded here and on the node before it runs.

use std::sync::Arc;

use orrery_cluster::render::{ActionAttributes, ServiceAttributes};
use orrery_handlers::{Context, Crud, HandlerError};
use orrery_model::{AttributeDiff, LogLevel};
use serde_json::Value;

use super::ClusterServices;
use super::calls::{NodeCalls, service_call, succeeded};
use super::service_steps::{perform, run_once, start, stop};
use crate::node_state::{InitializationState, ServiceRecord, StateChange};
use crate::task::{Outputs, TaskStatus, Work};

/// State of a service that one resource is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServiceStep {
    Installed,
    Quiesced,
    Configured,
    Initialized,
    Running,
}

#[derive(Clone)]
pub(super) struct ServiceHandler {
    pub(super) step: ServiceStep,
    pub(super) services: Arc<ClusterServices>,
}

/// A service as its node remembers it.
#[derive(Debug, Default)]
pub(super) struct CurrentService {
    pub(super) state: ServiceRecord,
    /// Complaint of the probe.
    pub(super) probe_failure: Option<String>,
    /// The service does not define the action, so there is nothing to do.
    is_trivial: bool,
}

/// Ends a run whose node has no machine yet.
///
/// # Errors
/// Unless it is a dry run, which reports what would be created.
pub(super) fn without_machine(context: &Context<'_>) -> Result<(), HandlerError> {
    match context.is_dry_run() {
        true => Ok(()),
        false => Err(HandlerError::Skipped("the machine has no known address yet".to_owned())),
    }
}

/// Action that stops a service.
pub(super) fn stop_action(desired: &ServiceAttributes) -> Option<&ActionAttributes> {
    let is_stop = |action: &&ActionAttributes| action.name == "stop";
    let action = desired.action.as_ref().filter(is_stop);
    desired.undo.as_ref().filter(is_stop).or(action)
}

impl ServiceHandler {
    /// Returns false if the service does not define what the resource needs.
    fn has_work(&self, desired: &ServiceAttributes) -> bool {
        let purged = desired.node.purged;
        let has_action = desired.action.is_some();
        match self.step {
            ServiceStep::Installed => has_action || (purged && desired.undo.is_some()),
            ServiceStep::Configured => !purged && has_action,
            ServiceStep::Initialized => !purged && has_action && desired.running,
            ServiceStep::Quiesced => !purged && stop_action(desired).is_some(),
            ServiceStep::Running => has_action || stop_action(desired).is_some(),
        }
    }

    /// Returns true if there is something that `diff` compares or `delete` removes.
    fn exists(&self, desired: &ServiceAttributes, state: &ServiceRecord) -> bool {
        match self.step {
            ServiceStep::Installed => state.installed.is_some(),
            ServiceStep::Configured => state.configured.is_some(),
            ServiceStep::Initialized => {
                let key = desired.once.as_deref().unwrap_or_default();
                state.initializations.get(key) == Some(&InitializationState::Done)
            }
            ServiceStep::Quiesced => true,
            ServiceStep::Running => {
                state.running.is_some() || (!desired.running && !desired.node.purged)
            }
        }
    }

    /// Says what would run.
    fn explain(&self, desired: &ServiceAttributes, does_stop: bool, context: &mut Context<'_>) {
        if !context.is_dry_run() {
            return;
        }
        let stop = stop_action(desired).filter(|_| does_stop);
        let other = match desired.node.purged {
            true => desired.undo.as_ref(),
            false => desired.action.as_ref(),
        };
        let actions = match self.step {
            ServiceStep::Quiesced => [stop, None],
            ServiceStep::Running if desired.node.purged || !desired.running => {
                [stop_action(desired), None]
            }
            _ => [stop, other],
        };
        for action in actions.into_iter().flatten() {
            let mut words = vec![action.automator.clone()];
            for field in ["script", "args", "playbook", "manifest"] {
                words.extend(action.fields.get(field).and_then(Value::as_str).map(str::to_owned));
            }
            context.log(
                LogLevel::Info,
                format!("would run {}: {}", action.name, words.join(" ")),
                [("service", Value::from(&*desired.service))],
            );
        }
    }

    fn inspect(
        &self,
        desired: &ServiceAttributes,
        context: &mut Context<'_>,
    ) -> Result<Option<Outputs>, HandlerError> {
        let mut calls = NodeCalls::new(&self.services, &desired.node)?;
        if calls.facts()?.is_none() {
            if !desired.node.purged {
                without_machine(context)?;
            }
            return Ok(None);
        }
        let wants_probe =
            self.step == ServiceStep::Running && desired.running && !desired.node.purged;
        let probe = desired.probe.as_ref().filter(|_| wants_probe);
        let probe = probe.map(service_call).transpose()?;
        let service = Some(desired.service.clone());
        let mut calls = calls.with_plugin_resources(&desired.plugin_resources);
        let report = calls.dispatch(Work::Inspect { service, probe }, context)?;
        if desired.node.purged && report.status != TaskStatus::Succeeded {
            // A machine that is gone has no services.
            let machines = calls.run(Work::List, context)?.machines;
            let name = calls.machine_name()?.to_string();
            if machines.iter().all(|machine| machine.name != name) {
                return Ok(None);
            }
        }
        succeeded(report).map(Some)
    }
}

impl Crud for ServiceHandler {
    type Desired = ServiceAttributes;
    type Current = CurrentService;

    fn is_purged(desired: &ServiceAttributes) -> bool {
        desired.node.purged
    }

    /// The node knows if an initialization of unknown outcome was begun.
    fn reads_back(&self) -> bool {
        self.step == ServiceStep::Initialized
    }

    fn read(
        &self,
        desired: &ServiceAttributes,
        context: &mut Context<'_>,
    ) -> Result<Option<CurrentService>, HandlerError> {
        if !self.has_work(desired) {
            let trivial = CurrentService { is_trivial: true, ..CurrentService::default() };
            return Ok((!desired.node.purged).then_some(trivial));
        }
        if self.step == ServiceStep::Initialized && desired.once.is_none() {
            return Err(HandlerError::failed("an initialization needs the attribute `once`"));
        }
        let outputs = self.inspect(desired, context)?;
        let found = outputs.map(|outputs| CurrentService {
            state: outputs.state.unwrap_or_default(),
            probe_failure: outputs.probe_failure,
            is_trivial: false,
        });
        // In a dry run without a machine, nothing runs with an outdated generation.
        let missing = match self.step {
            ServiceStep::Quiesced => Some(CurrentService::default()),
            _ => None,
        };
        let found = match found {
            None => missing.filter(|_| !desired.node.purged),
            found => found.filter(|current| self.exists(desired, &current.state)),
        };
        match &found {
            None if !desired.node.purged => self.explain(desired, false, context),
            Some(_) if desired.node.purged => self.explain(desired, true, context),
            _ => {}
        }
        Ok(found)
    }

    fn diff(
        &self,
        desired: &ServiceAttributes,
        current: &CurrentService,
        context: &mut Context<'_>,
    ) -> Result<Vec<AttributeDiff>, HandlerError> {
        if current.is_trivial {
            return Ok(Vec::new());
        }
        let changes = self.step.differences(desired, current);
        if !changes.is_empty() {
            let does_stop = matches!(self.step, ServiceStep::Quiesced | ServiceStep::Running);
            self.explain(desired, does_stop, context);
        }
        Ok(changes)
    }

    fn create(
        &self,
        desired: &ServiceAttributes,
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        let digest = desired.digest.clone();
        let services = &*self.services;
        match self.step {
            ServiceStep::Installed => {
                let record = vec![StateChange::Installed { digest }];
                perform(services, desired, desired.action.as_ref(), record, context)
            }
            ServiceStep::Configured => {
                let record = vec![StateChange::Configured { digest }];
                perform(services, desired, desired.action.as_ref(), record, context)
            }
            ServiceStep::Initialized => run_once(services, desired, context),
            ServiceStep::Running => start(services, desired, context),
            ServiceStep::Quiesced => Ok(()),
        }
    }

    fn update(
        &self,
        desired: &ServiceAttributes,
        current: &CurrentService,
        _: &[AttributeDiff],
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        match self.step {
            ServiceStep::Installed | ServiceStep::Configured | ServiceStep::Initialized => {
                self.create(desired, context)
            }
            ServiceStep::Quiesced => stop(&self.services, desired, context),
            ServiceStep::Running if !desired.running => stop(&self.services, desired, context),
            ServiceStep::Running => {
                if let Err(error) = stop(&self.services, desired, context) {
                    // It does not work any more, so it need not be stoppable.
                    if current.probe_failure.is_none() {
                        return Err(error);
                    }
                    context.warning(format!("the service could not be stopped first: {error}"));
                }
                start(&self.services, desired, context)
            }
        }
    }

    fn delete(
        &self,
        desired: &ServiceAttributes,
        _: &CurrentService,
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        match self.step {
            ServiceStep::Installed => {
                let record = vec![StateChange::Removed];
                perform(&self.services, desired, desired.undo.as_ref(), record, context)
            }
            ServiceStep::Running => stop(&self.services, desired, context),
            ServiceStep::Quiesced | ServiceStep::Configured | ServiceStep::Initialized => Ok(()),
        }
    }
}
