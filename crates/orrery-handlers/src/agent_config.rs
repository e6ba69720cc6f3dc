//! `std::AgentConfig`: the address of an agent. It is read when the agent's site is resolved; the
//! handler does nothing.

use std::sync::Arc;

use orrery_model::{AttributeDiff, ResourceType};
use serde::Deserialize;

use crate::context::Context;
use crate::error::HandlerError;
use crate::handler::Crud;
use crate::registry::Registry;

pub(crate) fn register(registry: &mut Registry) {
    let fields = ["autostart", "purged", "uri"];
    let declaration =
        ResourceType::new("std::AgentConfig", "agent", "agentname", &fields).outward();
    registry.register(declaration, Arc::new(AgentConfigHandler));
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct AgentConfigHandler;

#[derive(Debug, Deserialize)]
pub(crate) struct AgentConfig {}

impl Crud for AgentConfigHandler {
    type Desired = AgentConfig;
    type Current = ();

    fn is_purged(_: &AgentConfig) -> bool {
        false
    }

    fn read(&self, _: &AgentConfig, _: &mut Context<'_>) -> Result<Option<()>, HandlerError> {
        Ok(Some(()))
    }

    fn diff(
        &self,
        _: &AgentConfig,
        (): &(),
        _: &mut Context<'_>,
    ) -> Result<Vec<AttributeDiff>, HandlerError> {
        Ok(Vec::new())
    }

    fn create(&self, _: &AgentConfig, _: &mut Context<'_>) -> Result<(), HandlerError> {
        Ok(())
    }

    fn update(
        &self,
        _: &AgentConfig,
        (): &(),
        _: &[AttributeDiff],
        _: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        Ok(())
    }

    fn delete(&self, _: &AgentConfig, (): &(), _: &mut Context<'_>) -> Result<(), HandlerError> {
        Ok(())
    }
}
