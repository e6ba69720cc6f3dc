//! `cluster::Reachable`: the machine accepts logins. Its facts are addresses and the pinned key.

use std::sync::Arc;

use orrery_cluster::render::MachineAttributes;
use orrery_handlers::run::Purpose;
use orrery_handlers::{Context, Crud, HandlerError};
use orrery_model::{AttributeDiff, Fact};

use super::ClusterServices;
use super::calls::{NodeCalls, succeeded};
use crate::facts::NodeFacts;
use crate::task::{TaskStatus, Work};

pub(super) struct ReachableHandler(pub(super) Arc<ClusterServices>);

impl ReachableHandler {
    /// Looks once; returns facts if the machine accepts logins.
    fn check(
        &self,
        desired: &MachineAttributes,
        context: &mut Context<'_>,
    ) -> Result<Option<NodeFacts>, HandlerError> {
        let mut calls = NodeCalls::new(&self.0, &desired.node)?.with_machine(desired);
        let wait_ms = calls.wait_limit(self.0.limits.check, context).as_millis() as u64;
        // A machine without facts was never confirmed: `create` waits for it.
        if calls.facts()?.is_none() && context.run().purpose != Purpose::DryRun {
            return Ok(None);
        }
        let report = calls.dispatch(Work::Confirm { wait_ms }, context)?;
        Ok(match report.status {
            TaskStatus::Succeeded => report.outputs.facts,
            TaskStatus::Failed | TaskStatus::Unclear => None,
        })
    }
}

fn report_facts(facts: &NodeFacts, context: &mut Context<'_>) {
    for fact in facts.to_facts() {
        context.set_fact(fact.name, fact.value, fact.expires);
    }
}

impl Crud for ReachableHandler {
    type Desired = MachineAttributes;
    type Current = ();

    fn is_purged(desired: &MachineAttributes) -> bool {
        desired.node.purged
    }

    fn read(
        &self,
        desired: &MachineAttributes,
        context: &mut Context<'_>,
    ) -> Result<Option<()>, HandlerError> {
        // Nothing is left of it without the machine.
        if desired.node.purged {
            return Ok(None);
        }
        let Some(facts) = self.check(desired, context)? else { return Ok(None) };
        report_facts(&facts, context);
        Ok(Some(()))
    }

    fn diff(
        &self,
        _: &MachineAttributes,
        (): &(),
        _: &mut Context<'_>,
    ) -> Result<Vec<AttributeDiff>, HandlerError> {
        Ok(Vec::new())
    }

    fn create(
        &self,
        desired: &MachineAttributes,
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        let mut calls = NodeCalls::new(&self.0, &desired.node)?.with_machine(desired);
        let wait = calls.wait_limit(self.0.limits.confirm, context);
        let work = Work::Confirm { wait_ms: wait.as_millis() as u64 };
        let report = calls.dispatch(work, context)?;
        let facts = succeeded(report)?.facts.unwrap_or_default();
        report_facts(&facts, context);
        Ok(())
    }

    fn update(
        &self,
        _: &MachineAttributes,
        (): &(),
        _: &[AttributeDiff],
        _: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        Ok(())
    }

    fn delete(
        &self,
        _: &MachineAttributes,
        (): &(),
        _: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        Ok(())
    }

    /// Only between runs: a run has just reported them.
    fn facts(
        &self,
        desired: &MachineAttributes,
        context: &mut Context<'_>,
    ) -> Result<Vec<Fact>, HandlerError> {
        if context.run().purpose != Purpose::Facts {
            return Ok(Vec::new());
        }
        let facts = self.check(desired, context)?.ok_or_else(|| {
            HandlerError::Skipped("the machine does not accept logins".to_owned())
        })?;
        Ok(facts.to_facts())
    }
}
