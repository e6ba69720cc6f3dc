//! `std::MachineFacts`: the facts of the agent's machine. The handler changes nothing.

use std::sync::Arc;

use orrery_model::{AttributeDiff, Fact, MACHINE_FACTS_ENTITY, ResourceType};
use serde::Deserialize;

use crate::context::Context;
use crate::error::HandlerError;
use crate::handler::Crud;
use crate::registry::Registry;

pub(crate) fn register(registry: &mut Registry) {
    let declaration = ResourceType::new(MACHINE_FACTS_ENTITY, "name", "name", &[]);
    registry.register(declaration, Arc::new(MachineFactsHandler));
}

#[derive(Clone, Copy, Debug)]
struct MachineFactsHandler;

#[derive(Debug, Deserialize)]
struct Desired {}

impl Crud for MachineFactsHandler {
    type Desired = Desired;
    type Current = ();

    fn is_purged(_: &Desired) -> bool {
        false
    }

    fn read(&self, _: &Desired, _: &mut Context<'_>) -> Result<Option<()>, HandlerError> {
        Ok(Some(()))
    }

    fn diff(
        &self,
        _: &Desired,
        (): &(),
        _: &mut Context<'_>,
    ) -> Result<Vec<AttributeDiff>, HandlerError> {
        Ok(Vec::new())
    }

    fn create(&self, _: &Desired, _: &mut Context<'_>) -> Result<(), HandlerError> {
        Ok(())
    }

    fn update(
        &self,
        _: &Desired,
        (): &(),
        _: &[AttributeDiff],
        _: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        Ok(())
    }

    fn delete(&self, _: &Desired, (): &(), _: &mut Context<'_>) -> Result<(), HandlerError> {
        Ok(())
    }

    fn facts(&self, _: &Desired, context: &mut Context<'_>) -> Result<Vec<Fact>, HandlerError> {
        let facts = context.target().machine_facts(context.cancel_token())?;
        if facts.kernel.is_none() {
            let text = "the machine does not report its facts: `uname` printed nothing usable";
            return Err(HandlerError::failed_with_hint(text, "install `uname` on the machine"));
        }
        Ok(facts.to_facts())
    }
}
