//! `std::Symlink`: a symbolic link. `target` is where it is, `source` what it leads to.

use std::sync::Arc;

use orrery_model::{AttributeChange, ResourceId, ResourceType};
use serde::Deserialize;

use crate::context::{Context, changed};
use crate::error::HandlerError;
use crate::handler::Crud;
use crate::registry::Registry;

pub(crate) fn register(registry: &mut Registry) {
    let declaration =
        ResourceType::new("std::Symlink", "host.name", "target", &["purged", "source"])
            .identified_by_path();
    registry.register(declaration, Arc::new(SymlinkHandler));
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SymlinkHandler;

#[derive(Debug, Deserialize)]
pub(crate) struct Symlink {
    source: String,
    #[serde(default)]
    purged: bool,
}

impl Crud for SymlinkHandler {
    type Desired = Symlink;
    /// What it leads to.
    type Current = String;

    fn is_purged(desired: &Symlink) -> bool {
        desired.purged
    }

    fn read(
        &self,
        _desired: &Symlink,
        context: &mut Context<'_>,
    ) -> Result<Option<String>, HandlerError> {
        // Anything else in its place is an error, and stays: it may be all there is of something.
        Ok(context.target().read_link(context.id().value())?)
    }

    fn diff(
        &self,
        desired: &Symlink,
        current: &String,
        _context: &mut Context<'_>,
    ) -> Result<Vec<AttributeChange>, HandlerError> {
        Ok(if *current == desired.source {
            Vec::new()
        } else {
            vec![changed("source", current.as_str(), desired.source.as_str())]
        })
    }

    fn create(&self, desired: &Symlink, context: &mut Context<'_>) -> Result<(), HandlerError> {
        if desired.source.is_empty() || desired.source.contains('\0') {
            return Err(HandlerError::failed("a symbolic link cannot lead to an empty path"));
        }
        Ok(context.target().make_symlink(context.id().value(), &desired.source)?)
    }

    fn update(
        &self,
        desired: &Symlink,
        _current: &String,
        _changes: &[AttributeChange],
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        self.create(desired, context)
    }

    fn delete(
        &self,
        _desired: &Symlink,
        _current: &String,
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        context.target().remove_file(context.id().value())?;
        Ok(())
    }

    fn watched_path(id: &ResourceId) -> Option<&str> {
        Some(id.value())
    }
}
