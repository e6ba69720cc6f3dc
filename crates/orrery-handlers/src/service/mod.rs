//! `std::Service`: a service of the host's init system: whether it runs, and whether it is started with
//! the host.

mod systemd;
mod sysv;

use std::sync::Arc;

use orrery_model::{AttributeChange, Change, ChangeKind, ResourceType};
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
    fn of(running: bool) -> Self {
        if running { State::Running } else { State::Stopped }
    }

    fn as_str(self) -> &'static str {
        match self {
            State::Running => "running",
            State::Stopped => "stopped",
        }
    }
}

/// What was found of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    running: bool,
    /// `None` if it cannot be chosen: others start it when they need it.
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

/// What differs between init systems.
trait Manager: Send + Sync {
    /// `None` if there is no such service.
    fn find(&self, name: &str, context: &Context<'_>) -> Result<Option<Found>, HandlerError>;

    fn act(
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

struct Chosen(Box<dyn Manager>);

fn manager(context: &Context<'_>) -> Result<Arc<Chosen>, HandlerError> {
    context.session().cached(|| {
        // There if and only if systemd is what this host was started with.
        if context.target().stat("/run/systemd/system")?.is_some() {
            return Ok(Chosen(Box::new(systemd::Systemd)));
        }
        if context.target().stat("/etc/init.d")?.is_some() {
            return Ok(Chosen(Box::new(sysv::SysV)));
        }
        Err(HandlerError::failed_with_hint(
            "there is no init system: neither /run/systemd/system nor /etc/init.d exists",
            "services are managed on hosts with systemd or SysV init; containers mostly have neither",
        ))
    })
}

impl Crud for ServiceHandler {
    type Desired = Service;
    type Current = Found;

    /// Services come and go with their packages.
    fn is_purged(_desired: &Service) -> bool {
        false
    }

    fn read(
        &self,
        desired: &Service,
        context: &mut Context<'_>,
    ) -> Result<Option<Found>, HandlerError> {
        let name = context.id().value();
        tools::check_name("service", name)?;
        let found = manager(context)?.0.find(name, context)?;
        // What does not exist neither runs nor is started; and in a dry run it may come with a package.
        let may_be_missing = desired.state == State::Stopped && !desired.onboot;
        if found.is_none() && (may_be_missing || context.is_dry_run()) {
            return Ok(Some(Found { running: false, onboot: Some(false) }));
        }
        let missing = || {
            HandlerError::failed_with_hint(
                format!("there is no service {name}"),
                "declare the std::Package that brings it and require it",
            )
        };
        found.map(Some).ok_or_else(missing)
    }

    fn diff(
        &self,
        desired: &Service,
        current: &Found,
        _context: &mut Context<'_>,
    ) -> Result<Vec<AttributeChange>, HandlerError> {
        let mut changes = Vec::new();
        if State::of(current.running) != desired.state {
            let current = State::of(current.running).as_str();
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
        current: &Found,
        _changes: &[AttributeChange],
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        let (manager, name) = (manager(context)?, context.id().value());
        if current.onboot.is_some_and(|onboot| onboot != desired.onboot) {
            manager.0.set_onboot(desired.onboot, name, context)?;
        }
        match (State::of(current.running), desired.state) {
            (State::Stopped, State::Running) => manager.0.act(Action::Start, name, context),
            (State::Running, State::Stopped) => manager.0.act(Action::Stop, name, context),
            _ => Ok(()),
        }
    }

    fn delete(&self, _: &Service, _: &Found, _: &mut Context<'_>) -> Result<(), HandlerError> {
        Ok(())
    }

    /// A service that was just started has seen the changes.
    fn is_reload_due(&self, desired: &Service, change: &Change, context: &Context<'_>) -> bool {
        let started = change.kind != ChangeKind::NoChange
            && change.attributes.iter().any(|change| change.name == "state");
        desired.state == State::Running && !started && !context.changed_dependencies().is_empty()
    }

    fn reload(&self, _desired: &Service, context: &mut Context<'_>) -> Result<(), HandlerError> {
        manager(context)?.0.act(Action::Restart, context.id().value(), context)
    }
}
