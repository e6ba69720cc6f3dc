//! Converts API types to model types for the commands that inspect.

use orrery_api::{
    PlacementKind, RemovalState, ResourceActionKind, ResourceDetails, ResourceDifference,
    ResourceSummary, SourceLocation, ValueSource, VersionSummary,
};
use orrery_model::{Placement, ResourceId, Source, Timestamp, VersionNumber};
use serde_json::Value;

use super::CliError;
use super::changes::{Difference, Differences};
use super::deployment::{Changed, DifferenceKind, ResourceView};
use super::view::{ActionViewKind, FactOrigin, FactView, RemovalProgress, VersionView};

/// Key in the information on a version: the number of resources that it removes.
const REMOVAL_COUNT: &str = "removes";

pub(super) fn action_kind(kind: ResourceActionKind) -> ActionViewKind {
    match kind {
        ResourceActionKind::Deploy => ActionViewKind::Deploy,
        ResourceActionKind::DryRun => ActionViewKind::DryRun,
        ResourceActionKind::GetFacts => ActionViewKind::GetFacts,
        ResourceActionKind::Other => ActionViewKind::Other,
    }
}

/// Error for a value that a newer server may send.
fn unsupported(what: &str) -> CliError {
    let error = CliError::new(format!("unknown value from the server: {what}"));
    error.help("the server may be newer than this `orrery`")
}

pub(in crate::commands) fn placement_kind(placement: &Placement) -> PlacementKind {
    match placement {
        Placement::Local(_) => PlacementKind::Local,
        Placement::Remote => PlacementKind::Remote,
        Placement::Revoked => PlacementKind::Revoked,
        Placement::Ssh { .. } => PlacementKind::Ssh,
        Placement::Provisioned => PlacementKind::Provisioned,
        Placement::Nowhere(_) => PlacementKind::None,
        Placement::Invalid { .. } | Placement::Unknown { .. } => PlacementKind::Unknown,
    }
}

fn removal(state: RemovalState) -> RemovalProgress {
    match state {
        RemovalState::Pending => RemovalProgress::Pending,
        RemovalState::Done => RemovalProgress::Done,
    }
}

pub(super) fn source_location(place: &SourceLocation) -> Source {
    Source { file: place.file.as_str().into(), line: place.line, column: place.column }
}

pub(super) fn id_of(text: &str) -> Result<ResourceId, CliError> {
    text.parse().map_err(|_| unsupported(&format!("the resource {text}")))
}

pub(super) fn view_from_summary(summary: &ResourceSummary) -> Result<ResourceView, CliError> {
    Ok(ResourceView {
        id: id_of(&summary.id)?,
        status: summary.status,
        last_run_at: summary.last_run_at.map(Timestamp::from),
        last_outcome: summary.last_outcome,
        last_success: None,
        attempts: summary.attempts,
        parked: summary.parked,
        source: summary.source.as_ref().map(source_location),
        removal: summary.removal.map(removal),
    })
}

pub(super) fn view_from_details(details: &ResourceDetails) -> Result<ResourceView, CliError> {
    let axes = &details.state;
    Ok(ResourceView {
        last_success: axes.last_success.map(Timestamp::from),
        ..view_from_summary(&details.summary)?
    })
}

pub(super) fn version(summary: VersionSummary) -> VersionView {
    VersionView {
        number: VersionNumber(summary.number),
        made_at: summary.created.0,
        released: summary.released,
        released_at: summary.released_at.map(Timestamp::from),
        removes: summary.info.get(REMOVAL_COUNT).and_then(Value::as_u64).unwrap_or(0),
        info: summary.info,
        total: summary.total,
        added: summary.added,
        changed: summary.changed,
        removed: summary.removed,
    }
}

pub(super) fn parameter(one: orrery_api::Parameter) -> Result<FactView, CliError> {
    Ok(FactView {
        resource: one.resource.as_deref().map(id_of).transpose()?,
        origin: match one.source {
            ValueSource::Fact => FactOrigin::Fact,
            ValueSource::Plugin => FactOrigin::Plugin,
            ValueSource::Report => FactOrigin::Report,
            ValueSource::User => FactOrigin::User,
        },
        updated: one.updated.0,
        name: one.name,
        value: one.value,
        expires: one.expires,
    })
}

pub(super) fn changed(found: ResourceDifference) -> Result<Changed, CliError> {
    let change = match found.status {
        orrery_api::DifferenceKind::Added => DifferenceKind::Added,
        orrery_api::DifferenceKind::Deleted => DifferenceKind::Removed,
        orrery_api::DifferenceKind::Modified => DifferenceKind::Changed,
    };
    let attributes = found.changes.into_iter().map(|one| Difference {
        name: one.name,
        before: Some(one.current).filter(|_| change != DifferenceKind::Added),
        after: Some(one.desired).filter(|_| change != DifferenceKind::Removed),
    });
    Ok(Changed {
        id: id_of(&found.id)?,
        change,
        differences: Differences {
            attributes: attributes.collect(),
            requires_added: found.requires_added,
            requires_removed: found.requires_removed,
        },
        source: found.source.as_ref().map(source_location),
    })
}
