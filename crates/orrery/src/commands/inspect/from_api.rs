//! From the words of the API to those of the model: what a server answers, read for the commands that look.

use orrery_api::{
    ResourceDetails, ResourceDifference, ResourceSummary, SourcePlace, VersionSummary,
};
use orrery_model::{LogLevel, OutcomeStatus, ResourceId, Source, Status, Timestamp, VersionNumber};
use orrery_store::{ActionKind, Parameter, ParameterSource, RemovalStage, VersionInfo};

use super::Trouble;
use super::changes::{Difference, Differences};
use super::source::{ChangeOf, Changed, Seen};

pub(super) const LEVELS: [LogLevel; 5] =
    [LogLevel::Debug, LogLevel::Info, LogLevel::Warning, LogLevel::Error, LogLevel::Critical];
pub(super) const KINDS: [ActionKind; 4] =
    [ActionKind::Deploy, ActionKind::DryRun, ActionKind::GetFacts, ActionKind::Other];

/// What a word of the API stands for.
pub(super) fn word<T: Copy>(
    what: &str,
    word: &str,
    all: &[T],
    name: impl Fn(T) -> &'static str,
) -> Result<T, Trouble> {
    all.iter()
        .copied()
        .find(|one| name(*one) == word)
        .ok_or_else(|| newer(&format!("the {what} {word}")))
}

/// What a newer server says, and this program does not know.
pub(super) fn newer(what: &str) -> Trouble {
    let trouble =
        Trouble::said(format!("the server tells of {what}, which this program does not know"));
    trouble.help("the server may be newer than this program")
}

pub(super) fn state(name: &str) -> Result<Status, Trouble> {
    word("status", name, &Status::ALL, Status::as_str)
}

pub(super) fn time(text: &str) -> Result<Timestamp, Trouble> {
    text.parse().map_err(|_| newer(&format!("the time {text}")))
}

pub(super) fn maybe_time(text: Option<&String>) -> Result<Option<Timestamp>, Trouble> {
    text.map(|text| time(text)).transpose()
}

pub(super) fn outcome(name: Option<&String>) -> Result<Option<OutcomeStatus>, Trouble> {
    name.map(|name| word("outcome", name, &OutcomeStatus::ALL, OutcomeStatus::as_str)).transpose()
}

fn removal(name: &str) -> Result<RemovalStage, Trouble> {
    match name {
        "pending" => Ok(RemovalStage::Pending),
        "done" => Ok(RemovalStage::Done),
        _ => Err(newer(&format!("the removal {name}"))),
    }
}

pub(super) fn place(place: &SourcePlace) -> Source {
    Source { file: place.file.as_str().into(), line: place.line, column: place.column }
}

pub(super) fn id_of(text: &str) -> Result<ResourceId, Trouble> {
    text.parse().map_err(|_| newer(&format!("the resource {text}")))
}

pub(super) fn seen(summary: &ResourceSummary) -> Result<Seen, Trouble> {
    Ok(Seen {
        id: id_of(&summary.id)?,
        status: state(&summary.status)?,
        last_run_at: maybe_time(summary.last_run_at.as_ref())?,
        last_outcome: outcome(summary.last_outcome.as_ref())?,
        last_success: None,
        attempts: summary.attempts,
        parked: summary.parked,
        source: summary.source.as_ref().map(place),
        removal: summary.removal.as_deref().map(removal).transpose()?,
    })
}

pub(super) fn seen_in(details: &ResourceDetails) -> Result<Seen, Trouble> {
    let axes = &details.state;
    Ok(Seen { last_success: maybe_time(axes.last_success.as_ref())?, ..seen(&details.summary)? })
}

pub(super) fn version(summary: VersionSummary) -> Result<VersionInfo, Trouble> {
    Ok(VersionInfo {
        number: VersionNumber(summary.number),
        made_at: time(&summary.created)?,
        released: summary.released,
        released_at: maybe_time(summary.released_at.as_ref())?,
        info: summary.info,
        total: summary.total,
        added: summary.added,
        changed: summary.changed,
        removed: summary.removed,
    })
}

pub(super) fn parameter(one: orrery_api::Parameter) -> Result<Parameter, Trouble> {
    Ok(Parameter {
        metadata: serde_json::Map::new(),
        resource: one.resource.as_deref().map(id_of).transpose()?,
        source: match one.source.as_str() {
            "fact" => ParameterSource::Fact,
            "plugin" => ParameterSource::Plugin,
            "report" => ParameterSource::Report,
            _ => ParameterSource::User,
        },
        updated: time(&one.updated)?,
        name: one.name,
        value: one.value,
        expires: one.expires,
    })
}

pub(super) fn changed(found: ResourceDifference) -> Result<Changed, Trouble> {
    let change = match found.status.as_str() {
        "added" => ChangeOf::Added,
        "deleted" => ChangeOf::Removed,
        _ => ChangeOf::Changed,
    };
    let attributes = found.changes.into_iter().map(|one| Difference {
        name: one.name,
        before: Some(one.current).filter(|_| change != ChangeOf::Added),
        after: Some(one.desired).filter(|_| change != ChangeOf::Removed),
    });
    Ok(Changed {
        id: id_of(&found.id)?,
        change,
        differences: Differences {
            attributes: attributes.collect(),
            requires_added: found.requires_added,
            requires_removed: found.requires_removed,
        },
        source: found.source.as_ref().map(place),
    })
}
