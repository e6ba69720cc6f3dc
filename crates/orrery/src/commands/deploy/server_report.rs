//! Results of an operation on a server: exact counts, runs with changes, and resources that are not
//! deployed.

use std::collections::BTreeMap;
use std::time::Duration;

use orrery_api::client::{ClientError, query};
use orrery_api::{Operation, OperationKind, OperationReport, OperationResult, ResourceSummary};
use orrery_executor::Tally;
use orrery_model::{
    AttributeDiff, Change, ChangeKind, OutcomeStatus, ResourceId, Status, Timestamp,
};
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::{Value, json};

use crate::cli::deploy::Selection;
use crate::commands::inspect::text;
use crate::remote::RemoteEnvironment;
use crate::style;

use super::follow_operation::number;
use super::local_run::RunSummary;
use super::results::{CHANGES_MAX, RunResult};

/// Page size.
const PAGE: &str = "1000";
/// Maximum number of failures that are fetched for a terminal; the counts are complete.
const BAD_MAX: usize = 20_000;
/// Statuses of resources that are not deployed.
const BAD: [Status; 8] = [
    Status::Available,
    Status::Deploying,
    Status::Failed,
    Status::Unavailable,
    Status::NonCompliant,
    Status::Skipped,
    Status::Undefined,
    Status::SkippedForUndefined,
];

/// A resource that was changed or is not deployed.
pub(super) struct ServerResult {
    id: String,
    status: Status,
    /// `None` if it did not run.
    pub(super) run: Option<RunResult>,
    took: Option<Duration>,
}

/// Query for the results of an operation.
pub(super) struct ServerReport<'a> {
    pub(super) of: &'a RemoteEnvironment,
    pub(super) selection: &'a Selection,
    pub(super) begun: &'a Operation,
    /// Start of the operation, for runs that are found by time.
    pub(super) since: Timestamp,
}

type ReportResult = (RunSummary, Vec<ServerResult>);

impl ServerReport<'_> {
    /// Results of a finished operation. `all`: fetches every change, not only as many as a terminal
    /// shows.
    pub(super) fn read(&self, all: bool) -> Result<ReportResult, ClientError> {
        let counts: OperationReport = self.of.client.get(&self.path("report"))?;
        let changes_max = if all { usize::MAX } else { CHANGES_MAX };
        let bad_max = if all { usize::MAX } else { BAD_MAX };
        let mut results = self.runs("changed", changes_max)?;
        let count = |status: Status| counts.by_status.get(&status).copied().unwrap_or(0);
        let tally = Tally {
            deployed: count(Status::Deployed),
            created: counts.created,
            updated: counts.updated,
            purged: counts.purged,
            ..bad_tally(count)
        };
        let is_bad = BAD.into_iter().any(|status| count(status) > 0);
        if is_bad {
            let runs = self.runs("bad", bad_max)?;
            let bad = self.bad(runs, bad_max)?;
            // A resource may have been changed before it failed.
            let ids: FxHashSet<&str> = bad.iter().map(|bad| &*bad.id).collect();
            results.retain(|result| !ids.contains(&*result.id));
            results.extend(bad);
        }
        Ok((
            RunSummary { tally, unknown: unknown(count), problems: 0, interrupted: false },
            results,
        ))
    }

    /// Results so far of a running operation.
    pub(super) fn read_unfinished(&self, version: u32) -> Result<ReportResult, ClientError> {
        let verifies =
            self.begun.kind == OperationKind::Repair || self.begun.request["verify"] == true;
        let active = query(&self.of.path(&["versions"]), &[("status", Some("active"))]);
        let active =
            self.of.client.list::<orrery_api::VersionSummary>(&active).next().transpose()?;
        let is_taken_in = active.is_some_and(|active| active.number == version);
        let mut counts: BTreeMap<Status, u64> = BTreeMap::new();
        self.visit_resources(&[], |_, summary, status| {
            let has_run = summary.last_run_at.is_some_and(|at| at.0 >= self.since);
            let had_its_turn = is_taken_in
                && match status {
                    Status::Available | Status::Deploying => false,
                    Status::Deployed => has_run || !verifies,
                    Status::Undefined | Status::SkippedForUndefined | Status::Orphaned => true,
                    Status::Failed
                    | Status::Unavailable
                    | Status::Skipped
                    | Status::NonCompliant => has_run,
                };
            *counts.entry(if had_its_turn { status } else { Status::Available }).or_default() += 1;
        })?;
        let results = self.runs("all", usize::MAX)?;
        let changed = |kind: ChangeKind| {
            let is_such = |run: &RunResult| run.is_good() && run.change.kind == kind;
            results.iter().filter(|one| one.run.as_ref().is_some_and(is_such)).count() as u64
        };
        let count = |status: Status| counts.get(&status).copied().unwrap_or(0);
        let tally = Tally {
            deployed: count(Status::Deployed),
            created: changed(ChangeKind::Created),
            updated: changed(ChangeKind::Updated),
            purged: changed(ChangeKind::Purged),
            ..bad_tally(count)
        };
        let end = RunSummary { tally, unknown: unknown(count), problems: 0, interrupted: true };
        Ok((end, results))
    }

    fn path(&self, rest: &str) -> String {
        self.of.path(&["operations", &self.begun.id.to_string(), rest])
    }

    /// Runs of the operation, one per resource, in the order of their first runs.
    fn runs(&self, only: &str, most: usize) -> Result<Vec<ServerResult>, ClientError> {
        let only = Some(only).filter(|only| *only != "all");
        let path = query(&self.path("results"), &[("only", only), ("limit", Some(PAGE))]);
        let mut found: Vec<ServerResult> = Vec::new();
        let mut at: FxHashMap<String, usize> = FxHashMap::default();
        for result in self.of.client.list::<OperationResult>(&path) {
            let result = ServerResult::from(result?);
            match at.get(&result.id) {
                Some(&at) => found[at].merge(result),
                None if found.len() >= most => break,
                None => {
                    at.insert(result.id.clone(), found.len());
                    found.push(result);
                }
            }
        }
        Ok(found)
    }

    /// Resources that are not deployed, with their runs in this operation.
    fn bad(&self, runs: Vec<ServerResult>, most: usize) -> Result<Vec<ServerResult>, ClientError> {
        let mut runs: FxHashMap<String, ServerResult> =
            runs.into_iter().map(|run| (run.id.clone(), run)).collect();
        let mut found = Vec::new();
        self.visit_resources(&BAD, |id, summary, status| {
            if found.len() >= most {
                return;
            }
            let run = runs.remove(id.as_str());
            found.push(match run {
                Some(run) => ServerResult { status, ..run },
                None => ServerResult::earlier(summary, status),
            });
        })?;
        Ok(found)
    }

    /// Visits selected resources.
    fn visit_resources(
        &self,
        statuses: &[Status],
        mut visit: impl FnMut(&ResourceId, &ResourceSummary, Status),
    ) -> Result<(), ClientError> {
        let statuses: Vec<&str> = statuses.iter().map(|status| status.as_str()).collect();
        let statuses = statuses.join(",");
        let statuses = Some(statuses.as_str()).filter(|text| !text.is_empty());
        let resources = self.of.path(&["resources"]);
        let path = query(&resources, &[("status", statuses), ("limit", Some(PAGE))]);
        for summary in self.of.client.list::<ResourceSummary>(&path) {
            let summary = summary?;
            if let Ok(id) = summary.id.parse::<ResourceId>()
                && self.selection.covers_id(&id)
            {
                visit(&id, &summary, summary.status);
            }
        }
        Ok(())
    }
}

fn bad_tally(count: impl Fn(Status) -> u64) -> Tally {
    Tally {
        failed: count(Status::Failed),
        unavailable: count(Status::Unavailable),
        skipped: count(Status::Skipped),
        non_compliant: count(Status::NonCompliant),
        // Not started, because the agent is paused or the environment is halted.
        cancelled: count(Status::Available) + count(Status::Deploying),
        ..Tally::default()
    }
}

fn unknown(count: impl Fn(Status) -> u64) -> usize {
    number(count(Status::Undefined) + count(Status::SkippedForUndefined))
}

impl From<OperationResult> for ServerResult {
    fn from(result: OperationResult) -> Self {
        let OperationResult { resource, run, message, hint, blocked_by } = result;
        let attribute = |one: orrery_api::AttributeChange| AttributeDiff {
            name: one.name,
            current: one.current,
            desired: one.desired,
        };
        let change = Change {
            kind: run.change,
            attributes: run.changes.into_iter().map(attribute).collect(),
        };
        let took = run.finished.map(|finished| finished.0.since(run.started.0));
        ServerResult {
            id: resource.clone(),
            status: Status::Deployed,
            run: Some(RunResult {
                id: resource,
                // A run without an outcome was interrupted.
                status: run.outcome.unwrap_or(OutcomeStatus::Failed),
                change,
                message,
                hint,
                blocked_by,
            }),
            took,
        }
    }
}

impl ServerResult {
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// A resource without a run in this operation.
    fn earlier(summary: &ResourceSummary, status: Status) -> Self {
        ServerResult { id: summary.id.clone(), status, run: None, took: None }
    }

    /// Merges a later run of the same resource: created and then updated counts as created.
    fn merge(&mut self, later: ServerResult) {
        let kind = |result: &ServerResult| {
            result.run.as_ref().filter(|run| run.is_good()).map_or(0, |run| match run.change.kind {
                ChangeKind::NoChange => 0,
                ChangeKind::Updated => 1,
                ChangeKind::Purged => 2,
                ChangeKind::Created => 3,
            })
        };
        let is_bad = later.run.as_ref().is_some_and(|run| !run.is_good());
        if is_bad || kind(&later) >= kind(self) {
            *self = later;
        }
    }

    /// Line of a resource that did not run.
    pub(super) fn line(&self) -> String {
        let status = text::coloured(self.status, self.status.as_str());
        format!("{status} {}", style::sanitize(&self.id))
    }

    pub(super) fn as_json(&self) -> Value {
        let run = self.run.as_ref();
        let status = match run {
            Some(run) => run.status.as_str(),
            None => self.status.as_str(),
        };
        json!({
            "id": self.id,
            "status": status,
            "change": run.map_or(ChangeKind::NoChange, |run| run.change.kind),
            "attributes": run.map(|run| run.change.attributes.clone()).unwrap_or_default(),
            "message": run.filter(|run| !run.is_good()).and_then(|run| run.message.clone()),
            "hint": run.and_then(|run| run.hint.clone()),
            "blocked_by": run.map(|run| run.blocked_by.clone()).unwrap_or_default(),
            "seconds": self.took.map(|took| took.as_secs_f64()),
        })
    }
}
