//! `std::Service`: a service of the host's init system: its state, and its start at boot.

mod systemd;
mod sysv;

use std::sync::Arc;

use orrery_model::{AttributeDiff, Change, ChangeKind, ResourceType};
use serde::Deserialize;

use crate::context::{Context, changed};
use crate::error::HandlerError;
use crate::handler::Crud;
use crate::registry::Registry;
use crate::tools;

pub(crate) fn register(registry: &mut Registry) {
    let declaration = ResourceType::new("std::Service", "host.name", "name", &["onboot", "state"]);
    registry.register(declaration, Arc::new(ServiceHandler));
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ServiceHandler;

#[derive(Debug, Deserialize)]
pub(crate) struct Service {
    state: State,
    onboot: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Running,
    Stopped,
}

impl State {
    fn from_running(running: bool) -> Self {
        if running { State::Running } else { State::Stopped }
    }

    fn as_str(self) -> &'static str {
        match self {
            State::Running => "running",
            State::Stopped => "stopped",
        }
    }
}

/// Current state of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServiceState {
    running: bool,
    /// `None` if it cannot be enabled: other units start it on demand.
    onboot: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Start,
    Stop,
    Restart,
}

impl Action {
    fn as_str(self) -> &'static str {
        match self {
            Action::Start => "start",
            Action::Stop => "stop",
            Action::Restart => "restart",
        }
    }
}

/// Service manager of an init system.
trait ServiceManager: Send + Sync {
    /// Returns `None` if the service does not exist.
    fn find(&self, name: &str, context: &Context<'_>)
    -> Result<Option<ServiceState>, HandlerError>;

    fn control(
        &self,
        action: Action,
        name: &str,
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError>;

    fn set_onboot(
        &self,
        onboot: bool,
        name: &str,
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError>;
}

struct DetectedManager(Box<dyn ServiceManager>);

fn manager(context: &Context<'_>) -> Result<Arc<DetectedManager>, HandlerError> {
    context.cache().get_or_query(|| {
        // Exists if and only if systemd is the running init system.
        if context.target().stat("/run/systemd/system")?.is_some() {
            return Ok(DetectedManager(Box::new(systemd::Systemd)));
        }
        if context.target().stat("/etc/init.d")?.is_some() {
            return Ok(DetectedManager(Box::new(sysv::SysV)));
        }
        Err(HandlerError::failed_with_hint(
            "no init system: neither /run/systemd/system nor /etc/init.d exists",
            "services are managed on hosts with systemd or SysV init; containers mostly have neither",
        ))
    })
}

impl Crud for ServiceHandler {
    type Desired = Service;
    type Current = ServiceState;

    /// Services come and go with their packages.
    fn is_purged(_desired: &Service) -> bool {
        false
    }

    fn read(
        &self,
        desired: &Service,
        context: &mut Context<'_>,
    ) -> Result<Option<ServiceState>, HandlerError> {
        let name = context.id().value();
        tools::check_name("service", name)?;
        let found = manager(context)?.0.find(name, context)?;
        // A missing service neither runs nor starts at boot; in a dry run it may come with a
        // package.
        let may_be_missing = desired.state == State::Stopped && !desired.onboot;
        if found.is_none() && (may_be_missing || context.is_dry_run()) {
            return Ok(Some(ServiceState { running: false, onboot: Some(false) }));
        }
        let missing = || {
            HandlerError::failed_with_hint(
                format!("there is no service {name}"),
                "declare the std::Package that provides it and require it",
            )
        };
        found.map(Some).ok_or_else(missing)
    }

    fn diff(
        &self,
        desired: &Service,
        current: &ServiceState,
        _context: &mut Context<'_>,
    ) -> Result<Vec<AttributeDiff>, HandlerError> {
        let mut changes = Vec::new();
        if State::from_running(current.running) != desired.state {
            let current = State::from_running(current.running).as_str();
            changes.push(changed("state", current, desired.state.as_str()));
        }
        if let Some(onboot) = current.onboot
            && onboot != desired.onboot
        {
            changes.push(changed("onboot", onboot, desired.onboot));
        }
        Ok(changes)
    }

    fn create(&self, _: &Service, _: &mut Context<'_>) -> Result<(), HandlerError> {
        Ok(())
    }

    fn update(
        &self,
        desired: &Service,
        current: &ServiceState,
        _changes: &[AttributeDiff],
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        let (manager, name) = (manager(context)?, context.id().value());
        if current.onboot.is_some_and(|onboot| onboot != desired.onboot) {
            manager.0.set_onboot(desired.onboot, name, context)?;
        }
        match (State::from_running(current.running), desired.state) {
            (State::Stopped, State::Running) => manager.0.control(Action::Start, name, context),
            (State::Running, State::Stopped) => manager.0.control(Action::Stop, name, context),
            _ => Ok(()),
        }
    }

    fn delete(
        &self,
        _: &Service,
        _: &ServiceState,
        _: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        Ok(())
    }

    /// A service that was just started has seen the changes.
    fn is_reload_due(&self, desired: &Service, change: &Change, context: &Context<'_>) -> bool {
        let started = change.kind != ChangeKind::NoChange
            && change.attributes.iter().any(|change| change.name == "state");
        desired.state == State::Running && !started && !context.changed_dependencies().is_empty()
    }

    fn reload(&self, _desired: &Service, context: &mut Context<'_>) -> Result<(), HandlerError> {
        manager(context)?.0.control(Action::Restart, context.id().value(), context)
    }
}
