//! `std::Directory`: a directory with its owner and permissions.

use std::sync::Arc;

use orrery_model::{AttributeDiff, ResourceId, ResourceType};
use serde::Deserialize;

use crate::context::Context;
use crate::error::{HandlerError, TargetError};
use crate::handler::Crud;
use crate::ownership::{DesiredOwnership, Permissions};
use crate::registry::Registry;
use crate::target::{FileKind, ReadAhead, RemovalMode, Stat};

pub(crate) fn register(registry: &mut Registry) {
    let handler = Arc::new(DirectoryHandler);
    for entity in ["std::Directory", "std::DefaultDirectory"] {
        let fields = ["group", "mode", "owner", "purge_content", "purged"];
        let declaration =
            ResourceType::new(entity, "host.name", "path", &fields).identified_by_path();
        registry.register(declaration, handler.clone());
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct DirectoryHandler;

#[derive(Debug, Deserialize)]
pub(crate) struct Directory {
    #[serde(alias = "permissions")]
    mode: Option<Permissions>,
    owner: Option<String>,
    group: Option<String>,
    #[serde(default)]
    purged: bool,
    #[serde(default)]
    purge_content: bool,
}

impl Directory {
    fn desired_ownership(&self) -> DesiredOwnership<'_> {
        DesiredOwnership::new(self.mode, self.owner.as_deref(), self.group.as_deref())
    }
}

/// Error for another kind of file at the path. It is never replaced: its content may be valuable.
fn wrong_kind_error(path: &str, kind: FileKind) -> HandlerError {
    let (what, hint) = match kind {
        FileKind::Symlink => (
            "a symbolic link",
            "manage the directory that it points to, or purge the link with a std::Symlink first",
        ),
        FileKind::File => ("a file", "purge it with a std::File first, or choose another path"),
        FileKind::Directory | FileKind::Other => {
            ("a special file", "remove it by hand, or choose another path")
        }
    };
    HandlerError::failed_with_hint(format!("{path} should be a directory, but is {what}"), hint)
}

impl Crud for DirectoryHandler {
    type Desired = Directory;
    type Current = Stat;

    fn is_purged(desired: &Directory) -> bool {
        desired.purged
    }

    fn read(
        &self,
        _desired: &Directory,
        context: &mut Context<'_>,
    ) -> Result<Option<Stat>, HandlerError> {
        let path = context.id().value();
        match context.target().stat(path)? {
            Some(stat) if stat.kind != FileKind::Directory => {
                Err(wrong_kind_error(path, stat.kind))
            }
            stat => Ok(stat),
        }
    }

    fn diff(
        &self,
        desired: &Directory,
        current: &Stat,
        context: &mut Context<'_>,
    ) -> Result<Vec<AttributeDiff>, HandlerError> {
        let mut changes = Vec::new();
        desired.desired_ownership().diff(*current, context, &mut changes)?;
        Ok(changes)
    }

    fn create(&self, desired: &Directory, context: &mut Context<'_>) -> Result<(), HandlerError> {
        let ownership = desired.desired_ownership().resolve(context)?;
        Ok(context.target().make_directory(context.id().value(), ownership)?)
    }

    fn update(
        &self,
        desired: &Directory,
        _current: &Stat,
        _changes: &[AttributeDiff],
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        let ownership = desired.desired_ownership().resolve(context)?;
        Ok(context.target().set_attributes(context.id().value(), ownership)?)
    }

    fn delete(
        &self,
        desired: &Directory,
        _current: &Stat,
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        let tree =
            if desired.purge_content { RemovalMode::WithContent } else { RemovalMode::OnlyIfEmpty };
        let removed: Result<bool, TargetError> =
            context.target().remove_directory(context.id().value(), tree);
        removed?;
        Ok(())
    }

    fn watched_path(id: &ResourceId) -> Option<&str> {
        Some(id.value())
    }

    fn read_ahead<'i>(id: &'i ResourceId, _desired: &Directory) -> Option<ReadAhead<'i>> {
        Some(ReadAhead { path: id.value(), content: None })
    }
}
