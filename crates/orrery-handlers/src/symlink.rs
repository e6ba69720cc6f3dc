//! `std::Symlink`: a symbolic link. `target` is its path, `source` its destination.

use std::sync::Arc;

use orrery_model::{AttributeDiff, ResourceId, ResourceType};
use serde::Deserialize;

use crate::context::{Context, changed};
use crate::error::HandlerError;
use crate::handler::Crud;
use crate::registry::Registry;
use crate::target::ReadAhead;

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
    /// Destination of the link.
    type Current = String;

    fn is_purged(desired: &Symlink) -> bool {
        desired.purged
    }

    fn read(
        &self,
        _desired: &Symlink,
        context: &mut Context<'_>,
    ) -> Result<Option<String>, HandlerError> {
        // Any other kind of file is an error and stays: it may be the only copy.
        Ok(context.target().read_link(context.id().value())?)
    }

    fn diff(
        &self,
        desired: &Symlink,
        current: &String,
        _context: &mut Context<'_>,
    ) -> Result<Vec<AttributeDiff>, HandlerError> {
        Ok(if *current == desired.source {
            Vec::new()
        } else {
            vec![changed("source", current.as_str(), desired.source.as_str())]
        })
    }

    fn create(&self, desired: &Symlink, context: &mut Context<'_>) -> Result<(), HandlerError> {
        if desired.source.is_empty() || desired.source.contains('\0') {
            return Err(HandlerError::failed(
                "the destination of a symbolic link must not be empty",
            ));
        }
        Ok(context.target().make_symlink(context.id().value(), &desired.source)?)
    }

    fn update(
        &self,
        desired: &Symlink,
        _current: &String,
        _changes: &[AttributeDiff],
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

    fn read_ahead<'i>(id: &'i ResourceId, _desired: &Symlink) -> Option<ReadAhead<'i>> {
        Some(ReadAhead { path: id.value(), content: None })
    }
}
