//! Changes of resources after a position in the change feed, with their present states.

use std::collections::BTreeSet;

use orrery_store::{ChangeSeq, EnvironmentKey, ResourceKey, ResourceLine, Store, StoreError};

/// Changes of the feed that are read.
const CHANGES_MAX: usize = 1_000;
/// Resources that are listed.
const RESOURCES_MAX: usize = 500;
/// Resources that are read at a time.
const BATCH: usize = 64;

/// Changed resources; `None` if there are too many, or changes were missed.
pub(crate) struct Changed {
    pub(crate) lines: Option<Vec<ResourceLine>>,
    pub(crate) position: ChangeSeq,
}

/// Lists the resources that changed after a position. Without one, returns the present position.
pub(crate) fn since(
    store: &Store,
    environment: EnvironmentKey,
    since: Option<ChangeSeq>,
) -> Result<Changed, StoreError> {
    let position = store.changes().latest()?;
    let Some(since) = since else { return Ok(Changed { lines: Some(Vec::new()), position }) };
    let changes = store.changes().list(since, Some(environment), CHANGES_MAX)?;
    // Later changes than `position` may be among them.
    let position = changes.last().map_or(position, |last| last.seq.max(position));
    let is_missing = since < store.changes().oldest()? || changes.len() == CHANGES_MAX;
    let keys = match is_missing {
        true => None,
        false => keys(changes.iter().map(|change| (&*change.kind, &*change.subject))),
    };
    let Some(keys) = keys else { return Ok(Changed { lines: None, position }) };
    let keys: Vec<ResourceKey> = keys.into_iter().collect();
    let names = store.resources().statuses(&keys)?;
    let names: BTreeSet<&str> = names.values().map(|(name, _)| &**name).collect();
    let names: Vec<_> = names.into_iter().map(|name| (environment, name)).collect();
    let mut lines = Vec::with_capacity(names.len());
    for batch in names.chunks(BATCH) {
        let found = store.resources().details(batch)?;
        lines.extend(found.into_iter().flatten().map(|details| details.line));
    }
    Ok(Changed { lines: Some(lines), position })
}

/// Collects the resources that changes name; `None` if one names all, or they are too many.
fn keys<'a>(changes: impl Iterator<Item = (&'a str, &'a str)>) -> Option<BTreeSet<ResourceKey>> {
    let mut keys = BTreeSet::new();
    for (kind, subject) in changes {
        match kind {
            "resources" => keys.extend(ResourceKey::parse_list(subject)?),
            // A version changes the desired states of any number.
            "version" | "environment" => return None,
            _ => {}
        }
        if keys.len() > RESOURCES_MAX {
            return None;
        }
    }
    Some(keys)
}
