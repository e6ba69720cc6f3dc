//! Conversion of rows to types, independent of the database. Statements name columns in the order
//! that is expected here.

use orrery_model::{Change, ChangeKind, LogLine, OutcomeStatus, Timestamp};
use rustc_hash::FxHashMap;

use crate::encoding::{
    Code, ORIGIN_ADOPTED, ORIGIN_CREATED, ORIGIN_REMOVED, flags_from_code, hash_from, unpack_keys,
    unsigned, version_number_from,
};
use crate::resource_loader::parse_id;
use crate::sql::{Row, RowExt as _};
use crate::{
    Action, ActionKey, ActionKind, ActionRecord, ParameterSource, ResourceFilter, ResourceKey,
    ResourceRow, Result, SourceRow, StoreError, StoredParameter, VersionInfo,
};

/// Columns of `version` in the order in which [`version_from`] reads them.
pub(crate) const VERSION_COLUMNS: &str =
    "number, made_at, released, info, total, added, changed, removed, step, released_at";

/// A version and its step.
pub(crate) fn version_from(row: &(impl Row + ?Sized)) -> Result<(VersionInfo, i64)> {
    let info = serde_json::from_str(row.str(3)?)
        .map_err(|error| StoreError::Unreadable(format!("information on a version: {error}")))?;
    let (made_at, released) = (row.time(1)?, row.flag(2)?);
    let version = VersionInfo {
        number: version_number_from(row.int(0)?)?,
        made_at,
        released,
        // A version that was released when it was stored has no release time of its own.
        released_at: released.then_some(row.maybe_time(9)?.unwrap_or(made_at)),
        info,
        total: unsigned(row.int(4)?)?,
        added: unsigned(row.int(5)?)?,
        changed: unsigned(row.int(6)?)?,
        removed: unsigned(row.int(7)?)?,
    };
    Ok((version, row.int(8)?))
}

/// Names that many rows share, read once.
pub(crate) struct SharedNames {
    pub(crate) sets: FxHashMap<i64, String>,
    pub(crate) files: FxHashMap<i64, String>,
}

impl SharedNames {
    /// Reads the columns `source_file`, `source_line` and `source_column` from `at` on.
    pub(crate) fn source(
        &self,
        row: &(impl Row + ?Sized),
        at: usize,
    ) -> Result<Option<SourceRow<'_>>> {
        let Some(file) = row.integer(at)? else { return Ok(None) };
        let file = self.files.get(&file).ok_or_else(|| {
            StoreError::Unreadable(format!("there is no source file number {file}"))
        })?;
        let (line, column) = (unsigned(row.int(at + 1)?)?, unsigned(row.int(at + 2)?)?);
        Ok(Some(SourceRow { file, line, column }))
    }

    fn set(&self, set: i64) -> Result<Option<&str>> {
        if set == 0 {
            return Ok(None);
        }
        let name = self.sets.get(&set);
        name.map(|name| Some(name.as_str()))
            .ok_or_else(|| StoreError::Unreadable(format!("there is no resource set number {set}")))
    }
}

/// Columns of a revision in the order in which [`resource_row`] reads them.
pub(crate) const REVISION_COLUMNS: &str = "revision.hash, revision.flags, revision.resource_set, \
     revision.attributes, revision.requires";

/// Builds a row from the columns of a revision and of its resource.
pub(crate) fn resource_row<'a>(
    row: &'a (impl Row + ?Sized),
    at: usize,
    (key, id): (i64, &'a str),
    source: Option<SourceRow<'a>>,
    names: &'a SharedNames,
    requires: &'a mut Vec<ResourceKey>,
) -> Result<ResourceRow<'a>> {
    unpack_keys(row.blob(at + 4)?, requires)?;
    Ok(ResourceRow {
        key: ResourceKey(key),
        id,
        hash: hash_from(row.blob(at)?)?,
        flags: flags_from_code(row.int(at + 1)?),
        set: names.set(row.int(at + 2)?)?,
        attributes: row.str(at + 3)?,
        requires,
        source,
    })
}

/// Greater than every text that can begin an id.
pub(crate) const LAST_NAME: &str = "\u{10ffff}";

/// Ranges of names, in order, that contain all resources with a filter's type and agent. `types`
/// are all types of the environment; they matter only for a filter with an agent and no type.
///
/// An id begins with its type, then `[`, then its agent, then `,`. An environment has few types, so
/// both filters are ranges of the one order in which resources are stored.
pub(crate) fn ranges(filter: &ResourceFilter, types: &[String]) -> Vec<(String, String)> {
    let range = |prefix: String| {
        let mut end = prefix.clone().into_bytes();
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        (prefix, String::from_utf8(end).unwrap_or_else(|_| LAST_NAME.to_owned()))
    };
    let agent = filter.agent.as_ref();
    let prefix = |entity: &str| match agent {
        Some(agent) => format!("{entity}[{agent},"),
        None => format!("{entity}["),
    };
    match (&filter.entity, agent) {
        (None, None) => vec![(String::new(), LAST_NAME.to_owned())],
        (Some(entity), _) => vec![range(prefix(entity))],
        (None, Some(_)) => {
            let mut prefixes: Vec<String> = types.iter().map(|name| prefix(name)).collect();
            prefixes.sort_unstable();
            prefixes.into_iter().map(range).collect()
        }
    }
}

/// Columns of `action` in the order in which [`action_from`] reads them.
pub(crate) const ACTION_COLUMNS: &str = "action.id, action.kind, action.version, action.started, \
     action.finished, action.outcome, action.change, action.changes, action.log";

pub(crate) fn action_from(row: &(impl Row + ?Sized)) -> Result<Action> {
    Ok(Action {
        key: ActionKey(row.int(0)?),
        kind: ActionKind::from_code(row.int(1)?)?,
        version: version_number_from(row.int(2)?)?,
        started: row.time(3)?,
        finished: row.maybe_time(4)?,
        outcome: row.integer(5)?.map(OutcomeStatus::from_code).transpose()?,
        change: Change {
            kind: ChangeKind::from_code(row.int(6)?)?,
            attributes: list_from(row.text(7)?)?,
        },
        log: list_from::<LogLine>(row.text(8)?)?,
    })
}

/// Parses a list that is not stored when it is empty.
fn list_from<T: serde::de::DeserializeOwned>(text: Option<&str>) -> Result<Vec<T>> {
    let Some(text) = text else { return Ok(Vec::new()) };
    serde_json::from_str(text)
        .map_err(|error| StoreError::Unreadable(format!("an entry of a log: {error}")))
}

/// The counterpart of [`list_from`].
pub(crate) fn list_text(list: &[impl serde::Serialize]) -> Result<Option<String>> {
    if list.is_empty() {
        return Ok(None);
    }
    serde_json::to_string(list)
        .map(Some)
        .map_err(|error| StoreError::Unreadable(format!("a log cannot be written: {error}")))
}

/// Origin of a resource after an action; `None` if the action does not determine it.
pub(crate) fn origin_after(action: &ActionRecord<'_>) -> Option<i64> {
    if action.kind != ActionKind::Deploy {
        return None;
    }
    if action.outcome != OutcomeStatus::Deployed {
        // A resource that a run created before it failed exists, and the next run finds it.
        let has_created = action.change.kind == ChangeKind::Created && !action.wants_absence;
        return has_created.then_some(ORIGIN_CREATED);
    }
    Some(match action.change.kind {
        _ if action.wants_absence => ORIGIN_REMOVED,
        ChangeKind::Purged => ORIGIN_REMOVED,
        ChangeKind::Created => ORIGIN_CREATED,
        ChangeKind::NoChange | ChangeKind::Updated => ORIGIN_ADOPTED,
    })
}

/// True if a deploy removed the resource that facts would describe.
pub(crate) fn is_purged(kind: ActionKind, outcome: OutcomeStatus, change: &Change) -> bool {
    kind == ActionKind::Deploy
        && outcome == OutcomeStatus::Deployed
        && change.kind == ChangeKind::Purged
}

/// Columns of `parameter` in the order in which [`parameter_from`] reads them.
pub(crate) const PARAMETER_COLUMNS: &str = "parameter.name, parameter.value, parameter.source, \
     parameter.updated, parameter.expires, parameter.metadata";

pub(crate) fn parameter_from(
    row: &(impl Row + ?Sized),
    resource: Option<&str>,
) -> Result<StoredParameter> {
    Ok(StoredParameter {
        name: row.string(0)?,
        value: row.string(1)?,
        resource: resource.map(parse_id).transpose()?,
        source: ParameterSource::from_code(row.int(2)?)?,
        updated: Timestamp(row.int(3)?),
        expires: row.flag(4)?,
        metadata: serde_json::from_str(row.str(5)?)
            .map_err(|error| StoreError::Unreadable(format!("metadata of a parameter: {error}")))?,
    })
}
