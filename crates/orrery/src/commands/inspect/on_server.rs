//! Deployment in an environment on a server, read through the API.

use std::collections::BTreeMap;

use orrery_api::client::query;
use orrery_api::{
    AgentStatus, Operation, ResourceAction, ResourceCounts, ResourceDetails, ResourceDifference,
    ResourceHistoryEntry, ResourceLogLine, ResourceSummary, Setting, Transitioning, Unknown,
    UnknownEffect, UnknownEffects, VersionSummary,
};
use orrery_model::{
    AttributeDiff, Change, LogLine, Pattern, ResourceId, Status, Timestamp, VersionNumber,
};
use orrery_scheduler::StateReason;
use serde_json::{Map, Value, json};

use super::deployment::{
    ActiveRun, AgentView, BlockingRequirement, Changed, Counts, Deployment, NextStep, NextSteps,
    ResourceView, Visit, rank,
};
use super::from_api::{
    action_kind, changed, parameter, version, view_from_details, view_from_summary,
};
use super::view::{ActionView, FactView, ResourceSelection, VersionView};
use super::{CliError, local, status, text, undefined_values};
use crate::commands::deploy::follow_operation;
use crate::remote::RemoteEnvironment;

/// Server setting with the verification interval.
const REPAIR_INTERVAL: &str = "autostart_agent_repair_interval";

pub(crate) struct OnServer {
    of: RemoteEnvironment,
}

impl OnServer {
    pub(crate) fn new(of: RemoteEnvironment) -> Self {
        OnServer { of }
    }

    fn resource(&self, id: &str, rest: &[&str]) -> String {
        let mut parts = vec!["resources", id];
        parts.extend(rest);
        self.of.path(&parts)
    }

    fn details(&self, id: &str) -> Result<Option<ResourceDetails>, CliError> {
        Ok(self.of.client.find(&self.resource(id, &[]))?)
    }

    /// Log lines by action, oldest first, back to action `oldest`.
    fn lines(&self, id: &str, oldest: i64) -> Result<BTreeMap<i64, Vec<LogLine>>, CliError> {
        let mut lines: BTreeMap<i64, Vec<LogLine>> = BTreeMap::new();
        for line in self.of.client.list::<ResourceLogLine>(&self.resource(id, &["logs"])).large() {
            let line = line?;
            if line.action_id < oldest {
                break;
            }
            lines.entry(line.action_id).or_default().push(LogLine {
                at: line.at.0,
                level: line.level,
                message: line.message,
                values: line.values,
            });
        }
        // The API returns the newest first.
        lines.values_mut().for_each(|lines| lines.reverse());
        Ok(lines)
    }

    /// Chain of blocking requirements, down to the root cause.
    fn requirements(&self, from: &ResourceDetails) -> Result<Vec<BlockingRequirement>, CliError> {
        let mut steps: Vec<BlockingRequirement> = Vec::new();
        let mut requires = from.requires.clone();
        while steps.len() < local::PATH_MAX {
            let mut bad = Vec::new();
            for one in &requires {
                bad.extend(rank(one.status).map(|rank| (rank, one.id.clone(), one.status)));
            }
            bad.sort_unstable();
            let others = bad.len().saturating_sub(1);
            let Some((_, id, status)) = bad.into_iter().next() else { break };
            let Some(details) = self.details(&id)? else { break };
            let waits = matches!(status, Status::Skipped | Status::SkippedForUndefined);
            let leads_on = details.requires.iter().any(|one| rank(one.status).is_some());
            let seen = view_from_details(&details)?;
            let message = status::message(self, &seen)?;
            steps.push(BlockingRequirement {
                id,
                status,
                message: message.filter(|_| !(waits && leads_on)),
                source: seen.source,
                others,
            });
            requires = details.requires;
            if !matches!(status, Status::Skipped | Status::SkippedForUndefined | Status::Available)
            {
                break;
            }
        }
        Ok(steps)
    }

    /// Unknown values that block a resource.
    fn unknown_in(
        &self,
        details: &ResourceDetails,
        version: VersionNumber,
    ) -> Result<String, CliError> {
        let at = self.of.path(&["versions", &version.to_string(), "unknowns"]);
        let mut missing = Vec::new();
        for one in self.of.client.list::<Unknown>(&at) {
            let one = one?;
            if !one.resolved {
                missing.push(undefined_values::describe(&one.name, one.resource.as_deref()));
            }
        }
        Ok(undefined_values::explain(&details.attributes, &missing, version))
    }

    /// End of an interval since the last run of a resource; `None` if the interval is disabled.
    fn interval(&self, setting: &str, seen: &ResourceView) -> Result<Option<String>, CliError> {
        let setting: Setting = self.of.client.get(&self.of.path(&["settings", setting]))?;
        let interval = match &setting.value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        Ok(match (interval.as_str(), interval.parse::<u64>()) {
            ("" | "0" | "null", _) => None,
            (cron, Err(_)) => Some(format!("at {cron} (UTC)")),
            (_, Ok(seconds)) => {
                let due = seen.last_run_at.map(|at| {
                    let micros = i64::try_from(seconds.saturating_mul(1_000_000));
                    Timestamp(at.0.saturating_add(micros.unwrap_or(i64::MAX)))
                });
                Some(match due {
                    Some(at) => format!("by {} ({})", text::moment(at), text::until(at)),
                    None => format!("within {seconds} s"),
                })
            }
        })
    }

    /// Next step of a resource that is not blocked.
    fn next(
        &self,
        details: &ResourceDetails,
        seen: &ResourceView,
        path: &[BlockingRequirement],
        version: VersionNumber,
    ) -> Result<NextStep, CliError> {
        let said = |because: &StateReason| {
            local::next(because).unwrap_or_else(|| NextStep::new("halted", because.to_string()))
        };
        Ok(match seen.status {
            Status::Orphaned => NextStep::new("not_wanted", "nothing: it is in no version"),
            Status::Deploying => NextStep::new("running", "its handler is running"),
            Status::Available => match path.first() {
                Some(step) => NextStep::new("queued", format!("it is deployed after {}", step.id)),
                None => NextStep::new("queued", "it is deployed as soon as its turn comes"),
            },
            Status::Undefined | Status::SkippedForUndefined => match path.last() {
                Some(step) => {
                    NextStep::new("undefined", format!("it is deployed once {} is known", step.id))
                }
                None => NextStep::new("undefined", self.unknown_in(details, version)?),
            },
            Status::Deployed => match self.interval(REPAIR_INTERVAL, seen)? {
                None => said(&StateReason::Settled),
                Some(when) => {
                    NextStep::new("settled", format!("it matches the model; it is verified {when}"))
                }
            },
            _ if details.state.parked => said(&StateReason::Parked { attempts: seen.attempts }),
            Status::Skipped if !path.is_empty() => {
                let names: Vec<&str> = path.iter().take(1).map(|step| step.id.as_str()).collect();
                let text =
                    format!("it is retried as soon as {} is deployed", text::some_of(&names));
                NextStep::new("waiting_for_recovery", text)
            }
            _ => match details.next_run_at.map(Timestamp::from) {
                None => said(&StateReason::NothingPlanned),
                Some(at) => {
                    let when = match at <= orrery_handlers::clock::now() {
                        true => "as soon as its turn comes".to_owned(),
                        false => format!("at {} ({})", text::moment(at), text::until(at)),
                    };
                    NextStep::new(
                        "timer",
                        match seen.status {
                            Status::Unavailable => format!(
                                "it waits for a machine: it is retried as soon as {} can be reached, and {when}",
                                seen.id.agent()
                            ),
                            _ => format!("it is retried {when}"),
                        },
                    )
                }
            },
        })
    }
}

impl Deployment for OnServer {
    fn nothing_deployed(&self) -> CliError {
        let error =
            CliError::new(format!("{} has no released version yet", self.of.display_name()));
        error.help("`orrery deploy` in a project creates one")
    }

    fn versions(&self) -> Result<Vec<VersionView>, CliError> {
        let pages = self.of.client.list::<VersionSummary>(&self.of.path(&["versions"])).large();
        let mut found = Vec::new();
        for one in pages {
            found.push(version(one?));
        }
        found.reverse();
        Ok(found)
    }

    fn processed(&self) -> Result<Option<VersionNumber>, CliError> {
        let active = query(&self.of.path(&["versions"]), &[("status", Some("active"))]);
        let first = self.of.client.list::<VersionSummary>(&active).next().transpose()?;
        Ok(first.map(|version| VersionNumber(version.number)))
    }

    fn unknown_effects(&self) -> Result<Vec<UnknownEffect>, CliError> {
        let found: UnknownEffects = self.of.client.get(&self.of.path(&["unknown-effects"]))?;
        Ok(found.items)
    }

    fn counts(&self) -> Result<Counts, CliError> {
        let counts: ResourceCounts = self.of.client.get(&self.of.path(&["resource-counts"]))?;
        Ok(Counts {
            by_status: counts.by_status,
            parked: counts.parked,
            removed: counts.removed,
            verified_since: counts.verified_since.map(Timestamp::from),
        })
    }

    fn agents(&self) -> Result<Vec<AgentView>, CliError> {
        let pages = self.of.client.list::<orrery_api::Agent>(&self.of.path(&["agents"])).large();
        // Agents on the server's own machine are down while no engine runs; that is normal.
        let agent = |one: orrery_api::Agent| {
            let lacks_machine = one.status == AgentStatus::Unavailable;
            let is_unreachable = one.transitioning == Transitioning::Error;
            let is_away = one.status == AgentStatus::Down && one.remote_agent.is_some();
            let message = Some(one.transitioning_message).filter(|text| !text.is_empty());
            let reason = match lacks_machine {
                true => Some(one.placement.reason),
                false => message.filter(|_| is_unreachable),
            };
            AgentView {
                down: lacks_machine || is_away || is_unreachable,
                reason,
                name: one.name,
                paused: one.paused,
                placement: one.placement.kind,
            }
        };
        Ok(pages.map(|one| one.map(agent)).collect::<Result<_, _>>()?)
    }

    fn environment(&self) -> Option<String> {
        Some(self.of.display_name())
    }

    fn at_work(&self) -> Result<Option<ActiveRun>, CliError> {
        if self.of.is_halted()? {
            let text = format!("{} is halted: nothing is deployed", self.of.name());
            return Ok(Some(ActiveRun { text, json: json!({ "halted": true }) }));
        }
        let latest = query(&self.of.path(&["operations"]), &[("limit", Some("20"))]);
        for operation in self.of.client.list::<Operation>(&latest).take(20) {
            let operation = operation?;
            if operation.transitioning == Transitioning::Yes {
                let since = text::moment(operation.created.0);
                let kind = operation.kind.as_str().replace('_', " ");
                let waits = follow_operation::reason(&operation);
                let text = match &waits {
                    None => format!("the server is deploying: {kind} since {since}"),
                    Some(reason) => format!("{kind} since {since}: {reason}"),
                };
                let json = json!({
                    "operation": operation.id, "kind": operation.kind, "since": operation.created,
                    "waits": waits,
                });
                return Ok(Some(ActiveRun { text, json }));
            }
        }
        let at_work = || ActiveRun { text: "the server is deploying".to_owned(), json: json!({}) };
        let deploying = self.counts()?.by_status.get(&Status::Deploying).copied().unwrap_or(0);
        Ok((deploying > 0).then(at_work))
    }

    fn visit(
        &self,
        wanted: &ResourceSelection,
        after: Option<&str>,
        batch: usize,
        visit: &mut Visit<'_>,
    ) -> Result<(), CliError> {
        let statuses: Vec<&str> = wanted.statuses.iter().map(|status| status.as_str()).collect();
        let statuses = statuses.join(",");
        let limit = batch.clamp(1, 1000).to_string();
        let path = query(
            &self.of.path(&["resources"]),
            &[
                ("agent", wanted.agent.as_deref()),
                ("type", wanted.entity.as_deref()),
                ("value", wanted.value.as_ref().map(Pattern::as_str)),
                ("removed", wanted.removed.then_some("true")),
                ("status", Some(statuses.as_str()).filter(|text| !text.is_empty())),
                ("limit", Some(&limit)),
            ],
        );
        for summary in self.of.client.list::<ResourceSummary>(&path) {
            let summary = summary?;
            // Page cursors are opaque; skip to the given id here.
            if after.is_some_and(|after| summary.id.as_str() <= after) {
                continue;
            }
            if !visit(view_from_summary(&summary)?)? {
                return Ok(());
            }
        }
        Ok(())
    }

    fn find(&self, id: &str) -> Result<Option<ResourceView>, CliError> {
        // A partial id cannot be looked up directly.
        if id.parse::<ResourceId>().is_err() {
            return Ok(None);
        }
        self.details(id)?.map(|details| view_from_details(&details)).transpose()
    }

    fn actions(&self, id: &str, limit: usize) -> Result<Vec<ActionView>, CliError> {
        let path = self.resource(id, &["actions"]);
        let page = query(&path, &[("limit", Some(&limit.clamp(1, 1000).to_string()))]);
        let found = self.of.client.list::<ResourceAction>(&page).take(limit);
        let found: Vec<ResourceAction> = found.collect::<Result<_, _>>()?;
        let Some(oldest) = found.iter().map(|action| action.id).min() else {
            return Ok(Vec::new());
        };
        let mut lines = match found.iter().any(|action| action.log_lines > 0) {
            true => self.lines(id, oldest)?,
            false => BTreeMap::new(),
        };
        let action = |one: ResourceAction| {
            let attributes = one.changes.into_iter().map(|change| AttributeDiff {
                name: change.name,
                current: change.current,
                desired: change.desired,
            });
            ActionView {
                kind: action_kind(one.action),
                version: VersionNumber(one.version),
                started: one.started.0,
                finished: one.finished.map(Timestamp::from),
                outcome: one.outcome,
                change: Change { kind: one.change, attributes: attributes.collect() },
                log: lines.remove(&one.id).unwrap_or_default(),
            }
        };
        Ok(found.into_iter().map(action).collect())
    }

    fn facts(&self, of: Option<&str>) -> Result<Vec<FactView>, CliError> {
        let path = query(&self.of.path(&["facts"]), &[("resource", of)]);
        let pages = self.of.client.list::<orrery_api::Parameter>(&path).large();
        pages.map(|one| parameter(one?)).collect()
    }

    fn differences(
        &self,
        from: VersionNumber,
        to: VersionNumber,
        visit: &mut dyn FnMut(Changed),
    ) -> Result<(), CliError> {
        let (from, to) = (from.to_string(), to.to_string());
        let path = self.of.path(&["versions", &from, "compare", &to]);
        for one in self.of.client.list::<ResourceDifference>(&path).large() {
            visit(changed(one?)?);
        }
        Ok(())
    }

    fn changed_attributes(
        &self,
        id: &ResourceId,
        from: VersionNumber,
        to: VersionNumber,
    ) -> Result<Option<Vec<String>>, CliError> {
        // Newest first: each entry applies from its version on.
        let path = self.resource(id.as_str(), &["history"]);
        let (mut before, mut after): (Option<ResourceHistoryEntry>, Option<ResourceHistoryEntry>) =
            (None, None);
        for entry in self.of.client.list::<ResourceHistoryEntry>(&path) {
            let entry = entry?;
            if after.is_none() && entry.version <= to.0 {
                after = Some(entry.clone());
            }
            if entry.version <= from.0 {
                before = Some(entry);
                break;
            }
        }
        let (Some(before), Some(after)) = (before, after) else { return Ok(None) };
        if before.hash == after.hash {
            return Ok(None);
        }
        let mut names: Vec<&String> =
            before.attributes.keys().chain(after.attributes.keys()).collect();
        names.sort_unstable();
        names.dedup();
        let differ = |name: &&String| before.attributes.get(*name) != after.attributes.get(*name);
        Ok(Some(names.into_iter().filter(differ).cloned().collect()))
    }

    fn is_in_released(&self, id: &ResourceId, released: &VersionView) -> Result<bool, CliError> {
        // Newest first: each entry applies from its version on.
        let path = self.resource(id.as_str(), &["history"]);
        for entry in self.of.client.list::<ResourceHistoryEntry>(&path) {
            if entry?.version <= released.number.0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn attributes(&self, id: &ResourceId) -> Result<Option<Map<String, Value>>, CliError> {
        let details = self.details(id.as_str())?;
        Ok(details.and_then(|details| details.attributes.read().ok()))
    }

    fn next_steps(
        &self,
        resource: &ResourceView,
        version: &VersionView,
    ) -> Result<NextSteps, CliError> {
        let Some(details) = self.details(resource.id.as_str())? else {
            let next = NextStep::new("not_wanted", "nothing: it is unknown");
            return Ok(NextSteps { next: vec![next], ..NextSteps::default() });
        };
        let seen = view_from_details(&details)?;
        let path = match seen.status {
            Status::Skipped | Status::SkippedForUndefined | Status::Available => {
                self.requirements(&details)?
            }
            _ => Vec::new(),
        };
        let mut next = Vec::new();
        if self.of.is_halted()? {
            next.push(NextStep::new("halted", format!("nothing: {} is halted", self.of.name())));
        } else {
            next.push(self.next(&details, &seen, &path, version.number)?);
        }
        let agent = resource.id.agent();
        let known: Option<orrery_api::Agent> =
            self.of.client.find(&self.of.path(&["agents", agent]))?;
        if known.is_some_and(|agent| agent.paused) {
            // A paused agent runs nothing.
            next.retain(|next| !matches!(next.kind, "timer" | "queued"));
            next.extend(local::next(&StateReason::AgentPaused { agent: agent.into() }));
        }
        Ok(NextSteps { status: Some(seen.status), path, next })
    }
}
