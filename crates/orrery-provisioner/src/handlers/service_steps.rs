//! Differences and actions of the states of a service.

use std::time::Duration;

use orrery_base::clock::monotonic;
use orrery_cluster::render::{ActionAttributes, ServiceAttributes};
use orrery_handlers::{Context, EffectStart, HandlerError, changed};
use orrery_model::AttributeDiff;
use serde_json::Value;

use super::ClusterServices;
use super::calls::{NodeCalls, log_output, service_call, succeeded};
use super::service::{CurrentService, ServiceStep, stop_action};
use crate::node_state::StateChange;
use crate::task::{ServiceWork, TaskReport, TaskStatus, Work};

/// First and longest pause between probes of a service that was just started.
const PROBE_PAUSE: Duration = Duration::from_millis(100);
const PROBE_PAUSE_MAX: Duration = Duration::from_secs(2);

impl ServiceStep {
    /// Differences between the remembered and the desired state.
    pub(super) fn differences(
        self,
        desired: &ServiceAttributes,
        current: &CurrentService,
    ) -> Vec<AttributeDiff> {
        let state = &current.state;
        let digest = |found: &Option<String>| match found {
            Some(found) if *found == desired.digest => Vec::new(),
            found => vec![changed("digest", found.clone(), desired.digest.as_str())],
        };
        let outdated = state.running.filter(|running| *running != desired.generation);
        match self {
            ServiceStep::Installed => digest(&state.installed),
            ServiceStep::Configured => digest(&state.configured),
            ServiceStep::Initialized => Vec::new(),
            ServiceStep::Quiesced => outdated
                .map(|generation| vec![changed("generation", generation, Value::Null)])
                .unwrap_or_default(),
            ServiceStep::Running if !desired.running => match state.running {
                Some(_) => vec![changed("running", true, false)],
                None => Vec::new(),
            },
            ServiceStep::Running => {
                let mut changes = Vec::new();
                changes.extend(
                    outdated
                        .map(|generation| changed("generation", generation, desired.generation)),
                );
                changes.extend(
                    current.probe_failure.as_deref().map(|failure| changed("probe", failure, "ok")),
                );
                changes
            }
        }
    }
}

fn dispatch(
    services: &ClusterServices,
    desired: &ServiceAttributes,
    action: Option<&ActionAttributes>,
    once: Option<String>,
    record: Vec<StateChange>,
    context: &mut Context<'_>,
) -> Result<TaskReport, HandlerError> {
    let calls = NodeCalls::new(services, &desired.node)?;
    let mut calls = calls.with_plugin_resources(&desired.plugin_resources);
    let config = calls.expand(&desired.config)?;
    let call = action.map(service_call).transpose()?;
    let service = Some(desired.service.clone());
    let work = ServiceWork { service, call, config, once, record };
    let report = calls.dispatch(Work::Act(work), context)?;
    log_output(&report, context);
    Ok(report)
}

/// Carries out an action, and records its result on the node.
pub(super) fn perform(
    services: &ClusterServices,
    desired: &ServiceAttributes,
    action: Option<&ActionAttributes>,
    record: Vec<StateChange>,
    context: &mut Context<'_>,
) -> Result<(), HandlerError> {
    succeeded(dispatch(services, desired, action, None, record, context)?).map(drop)
}

/// Stops a service.
pub(super) fn stop(
    services: &ClusterServices,
    desired: &ServiceAttributes,
    context: &mut Context<'_>,
) -> Result<(), HandlerError> {
    perform(services, desired, stop_action(desired), vec![StateChange::Stopped], context)
}

/// Starts a service, and waits until its probe succeeds.
pub(super) fn start(
    services: &ClusterServices,
    desired: &ServiceAttributes,
    context: &mut Context<'_>,
) -> Result<(), HandlerError> {
    let record = vec![StateChange::Started { generation: desired.generation }];
    let action = desired.action.as_ref().filter(|action| action.name == "start");
    perform(services, desired, action, record, context)?;
    let Some(probe) = desired.probe.as_ref().map(service_call).transpose()? else {
        return Ok(());
    };
    let deadline = monotonic() + services.limits.probe;
    let mut pause = PROBE_PAUSE;
    loop {
        let calls = NodeCalls::new(services, &desired.node)?;
        let mut calls = calls.with_plugin_resources(&desired.plugin_resources);
        let service = Some(desired.service.clone());
        let work = Work::Inspect { service, probe: Some(probe.clone()) };
        let report = calls.dispatch(work, context)?;
        let Some(failure) = succeeded(report)?.probe_failure else { return Ok(()) };
        if monotonic() >= deadline {
            return Err(HandlerError::failed_with_hint(
                format!("{} was started and does not work: {failure}", desired.service),
                "see the output of the start action, and the log of the service on the node",
            ));
        }
        if context.cancel_token().sleep(pause).is_some() {
            context.check_cancelled()?;
        }
        pause = (pause * 2).min(PROBE_PAUSE_MAX);
    }
}

/// Carries out an initialization, which must not be repeated. Its start is recorded first: in the
/// store, and on the node.
pub(super) fn run_once(
    services: &ClusterServices,
    desired: &ServiceAttributes,
    context: &mut Context<'_>,
) -> Result<(), HandlerError> {
    let key = desired.once.clone().unwrap_or_default();
    let mut calls = NodeCalls::new(services, &desired.node)?;
    let work = Work::Inspect { service: Some(desired.service.clone()), probe: None };
    let state = calls.run(work, context)?.state.unwrap_or_default();
    // A node without a mark has never begun it.
    let did_not_happen = !state.initializations.contains_key(&key);
    if context.begin_effect(did_not_happen)? == EffectStart::Refused {
        return Err(HandlerError::failed_with_hint(
            format!("the initialization of {} was begun, and its end is unknown", desired.service),
            "look at the service on the node, and settle the resource: `orrery settle`",
        ));
    }
    let record = vec![StateChange::Initialized { key: key.clone() }];
    let action = desired.action.as_ref();
    let report = dispatch(services, desired, action, Some(key), record, context)?;
    if report.status == TaskStatus::Unclear {
        context.mark_unclear();
    }
    succeeded(report).map(drop)
}
