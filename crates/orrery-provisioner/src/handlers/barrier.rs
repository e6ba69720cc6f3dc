//! `cluster::Barrier`: represents all instances of a service for those that require them. Does
//! nothing.

use std::sync::Arc;

use orrery_cluster::render::entity;
use orrery_handlers::{Context, Crud, HandlerError, Registry};
use orrery_model::{AttributeDiff, ResourceType};
use serde::Deserialize;

pub(super) fn register(registry: &mut Registry) {
    let fields = ["cluster", "service", "state", "digest", "purged"];
    let declaration = ResourceType::new(entity::BARRIER, "cluster", "name", &fields).outward();
    registry.register(declaration, Arc::new(BarrierHandler));
}

#[derive(Clone, Copy, Debug)]
struct BarrierHandler;

#[derive(Debug, Deserialize)]
struct Barrier {}

impl Crud for BarrierHandler {
    type Desired = Barrier;
    type Current = ();

    fn is_purged(_: &Barrier) -> bool {
        false
    }

    fn read(&self, _: &Barrier, _: &mut Context<'_>) -> Result<Option<()>, HandlerError> {
        Ok(Some(()))
    }

    fn diff(
        &self,
        _: &Barrier,
        (): &(),
        _: &mut Context<'_>,
    ) -> Result<Vec<AttributeDiff>, HandlerError> {
        Ok(Vec::new())
    }

    fn create(&self, _: &Barrier, _: &mut Context<'_>) -> Result<(), HandlerError> {
        Ok(())
    }

    fn update(
        &self,
        _: &Barrier,
        (): &(),
        _: &[AttributeDiff],
        _: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        Ok(())
    }

    fn delete(&self, _: &Barrier, (): &(), _: &mut Context<'_>) -> Result<(), HandlerError> {
        Ok(())
    }
}
