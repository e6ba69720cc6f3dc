//! Builds tasks from attributes, gives them to the dispatcher, and maps their ends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use orrery_base::clock::unix_seconds;
use orrery_cluster::macros::MacroError;
use orrery_cluster::render::{ActionAttributes, MachineAttributes, NodeAttributes};
use orrery_handlers::{CancelCause, Context, HandlerError};
use serde_json::{Map, Value};

use super::ClusterServices;
use crate::directory::{ClusterView, DirectoryError};
use crate::dispatch::DispatchError;
use crate::facts::NodeFacts;
use crate::machine_name::MachineName;
use crate::plugin::PluginKind;
use crate::redacted::RedactedMap;
use crate::task::{
    NodeDescription, Outputs, PluginInvocation, ServiceCall, Task, TaskAction, TaskReport,
    TaskStatus, Work,
};

/// Number of the next task of this process.
static NEXT_TASK: AtomicU64 = AtomicU64::new(0);

/// A node for which tasks are made.
pub(super) struct NodeCalls<'s> {
    services: &'s ClusterServices,
    view: Arc<ClusterView>,
    node: NodeAttributes,
    description: NodeDescription,
    plugin_resources: BTreeMap<String, String>,
}

impl<'s> NodeCalls<'s> {
    /// # Errors
    /// If the cluster cannot be read.
    pub(super) fn new(
        services: &'s ClusterServices,
        node: &NodeAttributes,
    ) -> Result<Self, HandlerError> {
        let view = services.directory.view(&node.cluster, false).map_err(directory_error)?;
        let description = NodeDescription {
            number: node.number,
            incarnation: node.incarnation,
            cluster_name: node.cluster_name.clone(),
            hostname: node.hostname.clone(),
            provider: node.provider.clone(),
            ssh_user: node.ssh_user.clone(),
            ..NodeDescription::default()
        };
        Ok(NodeCalls {
            services,
            view,
            node: node.clone(),
            description,
            plugin_resources: BTreeMap::new(),
        })
    }

    /// Adds the properties of a machine.
    pub(super) fn with_machine(mut self, machine: &MachineAttributes) -> Self {
        self.description.hardwaretype = machine.hardwaretype.clone();
        self.description.imagetype = machine.imagetype.clone();
        self.description.flavor = machine.flavor.clone();
        self.description.image = machine.image.clone();
        self.description.services = machine.services.clone();
        self
    }

    /// Adds files that the actions use.
    pub(super) fn with_plugin_resources(mut self, digests: &BTreeMap<String, String>) -> Self {
        self.plugin_resources = digests.clone();
        self
    }

    pub(super) fn machine_name(&self) -> Result<MachineName, HandlerError> {
        MachineName::new(&self.node.cluster, self.node.number, self.node.incarnation)
            .map_err(|error| HandlerError::failed(error.to_string()))
    }

    /// Known facts of this incarnation of the machine; reads the view anew if they are of another
    /// one. `None` if there are none.
    pub(super) fn facts(&mut self) -> Result<Option<NodeFacts>, HandlerError> {
        for refresh in [false, true] {
            if refresh {
                self.refresh()?;
            }
            if let Some(facts) = self.view.facts(&self.node.node)
                && facts.incarnation == Some(self.node.incarnation)
            {
                return Ok(Some(facts.clone()));
            }
        }
        Ok(None)
    }

    fn refresh(&mut self) -> Result<(), HandlerError> {
        let view = self.services.directory.view(&self.node.cluster, true);
        self.view = view.map_err(directory_error)?;
        Ok(())
    }

    /// Expands the macros of a configuration.
    pub(super) fn expand(
        &mut self,
        config: &Map<String, Value>,
    ) -> Result<RedactedMap, HandlerError> {
        let expanded = match self.view.expand(config, &self.node.node) {
            Err(MacroError::UnknownFact { .. }) => {
                self.refresh()?;
                self.view.expand(config, &self.node.node)
            }
            expanded => expanded,
        };
        expanded.map(RedactedMap).map_err(|error| match error {
            MacroError::UnknownFact { .. } => {
                HandlerError::Skipped(format!("a macro of the configuration waits: {error}"))
            }
            MacroError::Syntax { .. } | MacroError::TooFewNodes { .. } => {
                HandlerError::failed_with_hint(
                    format!("cannot expand the configuration: {error}"),
                    "correct the macro, and reconfigure the cluster",
                )
            }
        })
    }

    /// Checks the provider's fields, so that mistakes are found before a task is dispatched.
    fn provider_call(&self) -> Result<PluginInvocation, HandlerError> {
        let plugin = &self.node.provider_type;
        let checked = self.services.plugins.check_fields(
            PluginKind::Provider,
            plugin,
            &self.node.provider_fields,
            &self.view.user_fields,
        );
        let fields = checked.map_err(|error| {
            let text = format!("provider {}: {error}", self.node.provider);
            match error.hint {
                Some(hint) => HandlerError::failed_with_hint(text, hint),
                None => HandlerError::failed(text),
            }
        })?;
        Ok(PluginInvocation { plugin: plugin.clone(), fields })
    }

    /// Gives work to the dispatcher, and waits for its report.
    ///
    /// # Errors
    /// If it was not started, or its report is lost.
    pub(super) fn dispatch(
        &mut self,
        work: Work,
        context: &mut Context<'_>,
    ) -> Result<TaskReport, HandlerError> {
        context.check_cancelled()?;
        let facts = match &work {
            Work::Create | Work::List | Work::Delete { .. } => None,
            _ => self.facts()?,
        };
        let number = NEXT_TASK.fetch_add(1, Ordering::Relaxed);
        let limit = self.services.limits.action;
        let stop = context.cancel_token();
        let limit = stop.remaining().map_or(limit, |left| left.min(limit));
        let task = Task {
            id: format!("{:x}-{:x}-{number:x}", unix_seconds() as u64, std::process::id()),
            tenant: self.view.tenant.clone(),
            cluster: self.node.cluster.clone(),
            node: self.node.node.clone(),
            machine: self.machine_name()?.to_string(),
            provider: self.provider_call()?,
            description: self.description.clone(),
            facts: facts.unwrap_or_default(),
            work,
            plugin_resources: self.plugin_resources.clone(),
            limit_ms: limit.as_millis() as u64,
        };
        self.services.dispatcher.run(task, stop).map_err(|error| match error {
            DispatchError::NotStarted(_) => match stop.reason() {
                Some(CancelCause::Cancelled) => HandlerError::Cancelled,
                _ => HandlerError::Skipped(error.to_string()),
            },
            DispatchError::Unknown(_) => {
                if context.has_begun_effect() {
                    context.mark_unclear();
                }
                HandlerError::failed_with_hint(
                    error.to_string(),
                    "the next run reads the state of the machine first",
                )
            }
        })
    }

    /// Like `dispatch`, for work that has to succeed.
    pub(super) fn run(
        &mut self,
        work: Work,
        context: &mut Context<'_>,
    ) -> Result<Outputs, HandlerError> {
        let report = self.dispatch(work, context)?;
        log_output(&report, context);
        succeeded(report)
    }

    pub(super) fn wait_limit(&self, limit: Duration, context: &Context<'_>) -> Duration {
        context.cancel_token().remaining().map_or(limit, |left| left.min(limit))
    }
}

/// Returns the outputs of a task, or its failure as an error.
pub(super) fn succeeded(report: TaskReport) -> Result<Outputs, HandlerError> {
    if report.status == TaskStatus::Succeeded {
        return Ok(report.outputs);
    }
    Err(match report.hint {
        Some(hint) => HandlerError::failed_with_hint(report.message, hint),
        None => HandlerError::failed(report.message),
    })
}

/// Logs the output of an action.
pub(super) fn log_output(report: &TaskReport, context: &mut Context<'_>) {
    if report.stdout.is_empty() && report.stderr.is_empty() {
        return;
    }
    let values =
        [("stdout", Value::from(&*report.stdout)), ("stderr", Value::from(&*report.stderr))];
    context.log(orrery_model::LogLevel::Info, "output of the action", values);
}

/// Builds the call of an automator.
pub(super) fn service_call(attributes: &ActionAttributes) -> Result<ServiceCall, HandlerError> {
    let action = TaskAction::from_name(&attributes.name).ok_or_else(|| {
        let names = TaskAction::ALL.map(TaskAction::as_str).join(", ");
        HandlerError::failed_with_hint(
            format!("automators have no action {:?}", attributes.name),
            format!("actions are {names}"),
        )
    })?;
    let fields = RedactedMap(attributes.fields.clone());
    Ok(ServiceCall {
        action,
        automator: PluginInvocation { plugin: attributes.automator.clone(), fields },
    })
}

fn directory_error(error: DirectoryError) -> HandlerError {
    match error {
        DirectoryError::NotFound(_) => HandlerError::failed(error.to_string()),
        DirectoryError::Unavailable { .. } => HandlerError::Skipped(error.to_string()),
    }
}
