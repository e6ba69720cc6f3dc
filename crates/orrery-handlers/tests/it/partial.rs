//! Runs that fail after a part of their work.

use std::sync::Arc;

use orrery_handlers::{Context, Crud, HandlerError, MemoryTarget};
use orrery_model::{AttributeDiff, ChangeKind, Fact, OutcomeStatus, ResourceType};
use serde::Deserialize;

use crate::harness::{Agent, reason};

/// Creates a missing object, and fails at one step.
struct FailingHandler {
    step: &'static str,
}

#[derive(Deserialize)]
struct PartialState {}

impl FailingHandler {
    fn take(&self, step: &str) -> Result<(), HandlerError> {
        match self.step == step {
            true => Err(HandlerError::failed(format!("{step} fails"))),
            false => Ok(()),
        }
    }
}

impl Crud for FailingHandler {
    type Desired = PartialState;
    type Current = ();

    fn is_purged(_: &PartialState) -> bool {
        false
    }

    fn read(&self, _: &PartialState, _: &mut Context<'_>) -> Result<Option<()>, HandlerError> {
        self.take("read").map(|()| None)
    }

    fn diff(
        &self,
        _: &PartialState,
        (): &(),
        _: &mut Context<'_>,
    ) -> Result<Vec<AttributeDiff>, HandlerError> {
        Ok(Vec::new())
    }

    fn create(&self, _: &PartialState, _: &mut Context<'_>) -> Result<(), HandlerError> {
        self.take("create")
    }

    fn update(
        &self,
        _: &PartialState,
        (): &(),
        _: &[AttributeDiff],
        _: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        Ok(())
    }

    fn delete(&self, _: &PartialState, (): &(), _: &mut Context<'_>) -> Result<(), HandlerError> {
        Ok(())
    }

    fn facts(&self, _: &PartialState, _: &mut Context<'_>) -> Result<Vec<Fact>, HandlerError> {
        self.take("facts").map(|()| Vec::new())
    }
}

#[test]
fn a_creation_before_a_failure_is_reported() {
    for (step, kind) in [
        ("read", ChangeKind::NoChange),
        ("create", ChangeKind::NoChange),
        ("facts", ChangeKind::Created),
    ] {
        let target = MemoryTarget::default();
        let mut agent = Agent::new(&target);
        let declaration = ResourceType::new("test::Thing", "agent", "name", &[]);
        agent.registry.register(declaration, Arc::new(FailingHandler { step }));
        let outcome = agent.deploy("test::Thing[localhost,name=x]", "{}");
        assert_eq!(outcome.status, OutcomeStatus::Failed, "{step}");
        assert_eq!(reason(&outcome), format!("{step} fails"));
        assert_eq!(outcome.change.kind, kind, "{step}");
    }
}
