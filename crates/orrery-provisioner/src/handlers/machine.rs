//! `cluster::Machine`: the machine of a node exists, and no other one of it.

use std::sync::Arc;

use orrery_cluster::render::MachineAttributes;
use orrery_handlers::{Context, Crud, HandlerError, changed};
use orrery_model::AttributeDiff;
use serde_json::Value;

use super::ClusterServices;
use super::calls::NodeCalls;
use crate::task::{MachineRecord, Work};

pub(super) struct MachineHandler(pub(super) Arc<ClusterServices>);

/// Machines of the node at the provider, of any incarnation.
#[derive(Debug)]
pub(super) struct Machines {
    wanted: String,
    found: Vec<MachineRecord>,
}

impl Machines {
    fn is_running(&self) -> bool {
        self.found.iter().any(|machine| machine.name == self.wanted && machine.is_running)
    }

    fn leftovers(&self) -> impl Iterator<Item = &MachineRecord> {
        self.found.iter().filter(|machine| machine.name != self.wanted)
    }
}

impl MachineHandler {
    fn calls(&self, desired: &MachineAttributes) -> Result<NodeCalls<'_>, HandlerError> {
        Ok(NodeCalls::new(&self.0, &desired.node)?.with_machine(desired))
    }

    fn delete_machines<'m>(
        &self,
        desired: &MachineAttributes,
        machines: impl Iterator<Item = &'m MachineRecord>,
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        let mut calls = self.calls(desired)?;
        for machine in machines {
            calls.run(Work::Delete { machine: machine.name.clone() }, context)?;
            context.info(format!("deleted the machine {}", machine.name));
        }
        Ok(())
    }
}

impl Crud for MachineHandler {
    type Desired = MachineAttributes;
    type Current = Machines;

    fn is_purged(desired: &MachineAttributes) -> bool {
        desired.node.purged
    }

    fn read(
        &self,
        desired: &MachineAttributes,
        context: &mut Context<'_>,
    ) -> Result<Option<Machines>, HandlerError> {
        let mut calls = self.calls(desired)?;
        let wanted = calls.machine_name()?.to_string();
        let found = calls.run(Work::List, context)?.machines;
        if found.is_empty() {
            if context.is_dry_run() && !desired.node.purged {
                context.info(format!("would create the machine {wanted}"));
            }
            return Ok(None);
        }
        Ok(Some(Machines { wanted, found }))
    }

    fn diff(
        &self,
        _: &MachineAttributes,
        current: &Machines,
        _: &mut Context<'_>,
    ) -> Result<Vec<AttributeDiff>, HandlerError> {
        let mut changes = Vec::new();
        if !current.is_running() {
            let exists = current.found.iter().any(|machine| machine.name == current.wanted);
            let now = if exists { "stopped" } else { "absent" };
            changes.push(changed("machine", now, "running"));
        }
        let leftovers: Vec<Value> =
            current.leftovers().map(|machine| Value::from(&*machine.name)).collect();
        if !leftovers.is_empty() {
            changes.push(changed("leftovers", leftovers, Value::Array(Vec::new())));
        }
        Ok(changes)
    }

    fn create(
        &self,
        desired: &MachineAttributes,
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        self.calls(desired)?.run(Work::Create, context).map(drop)
    }

    /// Machines of earlier incarnations go first: they may have the address or the host of the new
    /// one.
    fn update(
        &self,
        desired: &MachineAttributes,
        current: &Machines,
        _: &[AttributeDiff],
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        self.delete_machines(desired, current.leftovers(), context)?;
        if current.is_running() { Ok(()) } else { self.create(desired, context) }
    }

    fn delete(
        &self,
        desired: &MachineAttributes,
        current: &Machines,
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        self.delete_machines(desired, current.found.iter(), context)
    }
}
