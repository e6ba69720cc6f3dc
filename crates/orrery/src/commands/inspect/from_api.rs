//! Converts API types to model types for the commands that inspect.

use orrery_api::{
    ResourceDetails, ResourceDifference, ResourceSummary, SourceLocation, VersionSummary,
};
use orrery_model::{LogLevel, OutcomeStatus, ResourceId, Source, Status, Timestamp, VersionNumber};
use serde_json::Value;

use super::CliError;
use super::changes::{Difference, Differences};
use super::deployment::{Changed, DifferenceKind, ResourceView};
use super::view::{FactOrigin, FactView, RemovalProgress, VersionView};

/// Key in the information on a version: the number of resources that it removes.
const REMOVAL_COUNT: &str = "removes";

pub(super) const LEVELS: [LogLevel; 5] =
    [LogLevel::Debug, LogLevel::Info, LogLevel::Warning, LogLevel::Error, LogLevel::Critical];

/// Parses an enum value of the API.
pub(super) fn word<T: Copy>(
    what: &str,
    word: &str,
    all: &[T],
    name: impl Fn(T) -> &'static str,
) -> Result<T, CliError> {
    all.iter()
        .copied()
        .find(|one| name(*one) == word)
        .ok_or_else(|| unsupported(&format!("the {what} {word}")))
}

/// Error for a value that a newer server may send.
pub(super) fn unsupported(what: &str) -> CliError {
    let error = CliError::new(format!("unknown value from the server: {what}"));
    error.help("the server may be newer than this `orrery`")
}

pub(super) fn state(name: &str) -> Result<Status, CliError> {
    word("status", name, &Status::ALL, Status::as_str)
}

pub(super) fn time(text: &str) -> Result<Timestamp, CliError> {
    text.parse().map_err(|_| unsupported(&format!("the time {text}")))
}

pub(super) fn maybe_time(text: Option<&String>) -> Result<Option<Timestamp>, CliError> {
    text.map(|text| time(text)).transpose()
}

pub(super) fn outcome(name: Option<&String>) -> Result<Option<OutcomeStatus>, CliError> {
    name.map(|name| word("outcome", name, &OutcomeStatus::ALL, OutcomeStatus::as_str)).transpose()
}

fn removal(name: &str) -> Result<RemovalProgress, CliError> {
    match name {
        "pending" => Ok(RemovalProgress::Pending),
        "done" => Ok(RemovalProgress::Done),
        _ => Err(unsupported(&format!("the removal {name}"))),
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
        status: state(&summary.status)?,
        last_run_at: maybe_time(summary.last_run_at.as_ref())?,
        last_outcome: outcome(summary.last_outcome.as_ref())?,
        last_success: None,
        attempts: summary.attempts,
        parked: summary.parked,
        source: summary.source.as_ref().map(source_location),
        removal: summary.removal.as_deref().map(removal).transpose()?,
    })
}

pub(super) fn view_from_details(details: &ResourceDetails) -> Result<ResourceView, CliError> {
    let axes = &details.state;
    Ok(ResourceView {
        last_success: maybe_time(axes.last_success.as_ref())?,
        ..view_from_summary(&details.summary)?
    })
}

pub(super) fn version(summary: VersionSummary) -> Result<VersionView, CliError> {
    Ok(VersionView {
        number: VersionNumber(summary.number),
        made_at: time(&summary.created)?,
        released: summary.released,
        released_at: maybe_time(summary.released_at.as_ref())?,
        removes: summary.info.get(REMOVAL_COUNT).and_then(Value::as_u64).unwrap_or(0),
        info: summary.info,
        total: summary.total,
        added: summary.added,
        changed: summary.changed,
        removed: summary.removed,
    })
}

pub(super) fn parameter(one: orrery_api::Parameter) -> Result<FactView, CliError> {
    Ok(FactView {
        resource: one.resource.as_deref().map(id_of).transpose()?,
        origin: match one.source.as_str() {
            "fact" => FactOrigin::Fact,
            "plugin" => FactOrigin::Plugin,
            "report" => FactOrigin::Report,
            _ => FactOrigin::User,
        },
        updated: time(&one.updated)?,
        name: one.name,
        value: one.value,
        expires: one.expires,
    })
}

pub(super) fn changed(found: ResourceDifference) -> Result<Changed, CliError> {
    let change = match found.status.as_str() {
        "added" => DifferenceKind::Added,
        "deleted" => DifferenceKind::Removed,
        _ => DifferenceKind::Changed,
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
