//! Reasons for the status of a resource: the chain of requirements that block it, and next steps.
//!
//! Derived from the store, so every process of the api role can answer. Costs one lookup per step of
//! the chain, whatever the size of the environment.

use orrery_api::{
    Actions, BlockingStep, ReasonKind, ResourceWhy, SourceLocation, StatusReason, Time,
};
use orrery_model::{Source, Status, Timestamp};
use orrery_scheduler::Settings;
use orrery_store::{
    Action, EnvironmentRecord, ResourceDetailsRecord, ResourceLine, Store, StoreError,
};

use crate::batch_loader::related;
use crate::causes::{leads_on, rank};
use crate::error::ServerError;
use crate::services::Services;
use crate::settings::EnvironmentSettings;

/// Steps of a chain.
const CHAIN_MAX: usize = 16;
/// Requirements that are considered on each step.
const REQUIRES_MAX: usize = 1000;
/// Unknown values that a reason names.
const UNKNOWNS_NAMED: usize = 3;

/// Explains the status of a resource. Actions have empty paths: they belong to the agent that
/// the reason names, or else to the environment.
pub(crate) async fn explain(
    services: &Services,
    environment: EnvironmentRecord,
    id: String,
) -> Result<ResourceWhy, ServerError> {
    let now = services.now();
    let answer = services
        .with_store(move |store| {
            let settings = store.settings().values(environment.key)?;
            let scheduling = EnvironmentSettings::from_map(&settings).scheduling();
            Inquiry { store, environment: &environment, scheduling, now }.explain(&id)
        })
        .await?;
    Ok(answer)
}

fn location(source: &Source) -> SourceLocation {
    SourceLocation { file: source.file.to_string(), line: source.line, column: source.column }
}

/// Everything that an explanation reads.
struct Inquiry<'a> {
    store: &'a Store,
    environment: &'a EnvironmentRecord,
    scheduling: Settings,
    now: Timestamp,
}

impl Inquiry<'_> {
    fn explain(&self, id: &str) -> Result<ResourceWhy, StoreError> {
        let details = self.details(id)?.ok_or_else(|| StoreError::NoResource(id.to_owned()))?;
        let status = details.line.summary.status;
        let last = self.last_failure(&details.line)?;
        let (chain, root, further) = match leads_on(status) {
            true => self.chain(&details)?,
            false => (Vec::new(), None, false),
        };
        let root = root.as_ref().unwrap_or(&details.line);
        let mut reasons = self.circumstances(&details.line, root)?;
        reasons.push(self.next_step(root, chain.is_empty())?);
        let message = last.as_ref().filter(|_| chain.is_empty()).and_then(message);
        let hint = last.as_ref().filter(|_| chain.is_empty()).and_then(Action::hint);
        Ok(ResourceWhy {
            id: details.line.summary.id.to_string(),
            status,
            source: details.line.summary.source.as_ref().map(location),
            message,
            hint: hint.map(str::to_owned),
            chain,
            further,
            reasons,
        })
    }

    fn details(&self, id: &str) -> Result<Option<ResourceDetailsRecord>, StoreError> {
        Ok(self.store.resources().details(&[(self.environment.key, id)])?.pop().flatten())
    }

    /// The last action, if the resource is not deployed.
    fn last_failure(&self, line: &ResourceLine) -> Result<Option<Action>, StoreError> {
        let summary = &line.summary;
        let has_run = summary.state.last_run_at.is_some();
        if !has_run || matches!(summary.status, Status::Deployed | Status::Orphaned) {
            return Ok(None);
        }
        let key = self.environment.key;
        Ok(self.store.actions().of_resource(key, summary.id.as_str(), None, 1)?.pop())
    }

    fn next_run(&self, line: &ResourceLine) -> Option<Timestamp> {
        let summary = &line.summary;
        let at_rest = !matches!(
            summary.status,
            Status::Deployed | Status::Deploying | Status::Available | Status::Orphaned
        );
        if !at_rest || self.environment.halted || self.environment.deleting {
            return None;
        }
        self.scheduling.next_run(&summary.id, &summary.state, self.now).map(|(at, _)| at)
    }

    /// Requirements that block a resource, down to the root cause, which is returned too; true if
    /// there are more steps.
    fn chain(
        &self,
        from: &ResourceDetailsRecord,
    ) -> Result<(Vec<BlockingStep>, Option<ResourceLine>, bool), StoreError> {
        let mut steps: Vec<BlockingStep> = Vec::new();
        let mut root = None;
        let mut keys = from.requires.clone();
        loop {
            keys.truncate(REQUIRES_MAX);
            let statuses = self.store.resources().statuses(&keys)?;
            let mut bad: Vec<(u8, String)> = related(&keys, &statuses)
                .into_iter()
                .filter_map(|(id, status)| Some((rank(status)?, id)))
                .collect();
            bad.sort_unstable();
            let others = u32::try_from(bad.len().saturating_sub(1)).unwrap_or(u32::MAX);
            let Some((_, id)) = bad.into_iter().next() else { break };
            // A cycle in an old version would have no end.
            if steps.len() == CHAIN_MAX || steps.iter().any(|step| step.id == id) {
                return Ok((steps, root, true));
            }
            let Some(details) = self.details(&id)? else { break };
            let summary = &details.line.summary;
            let last = self.last_failure(&details.line)?;
            steps.push(BlockingStep {
                id,
                status: summary.status,
                source: summary.source.as_ref().map(location),
                message: last.as_ref().filter(|_| !leads_on(summary.status)).and_then(message),
                attempts: summary.state.attempts,
                last_run_at: summary.state.last_run_at.map(Time),
                next_run_at: self.next_run(&details.line).map(Time),
                others,
            });
            let is_root = !leads_on(summary.status);
            keys = details.requires;
            root = Some(details.line);
            if is_root {
                break;
            }
        }
        Ok((steps, root, false))
    }

    fn reason(kind: ReasonKind, text: impl Into<String>) -> StatusReason {
        StatusReason { kind, text: text.into(), agent: None, at: None, actions: Actions::new() }
    }

    fn with_action(mut reason: StatusReason, name: &str) -> StatusReason {
        reason.actions.insert(name.to_owned(), String::new());
        reason
    }

    /// Reasons outside the resources: the environment and its agents.
    fn circumstances(
        &self,
        line: &ResourceLine,
        root: &ResourceLine,
    ) -> Result<Vec<StatusReason>, StoreError> {
        let mut reasons = Vec::new();
        if self.environment.halted {
            let text = "the environment is halted: nothing is deployed";
            let reason = Self::reason(ReasonKind::Halted, text);
            reasons.push(Self::with_action(reason, "resume"));
        } else if !self.environment.problem.is_empty() {
            reasons.push(Self::reason(ReasonKind::EngineError, &*self.environment.problem));
        }
        let is_done = |line: &ResourceLine| {
            matches!(line.summary.status, Status::Deployed | Status::Orphaned)
        };
        let mut agents: Vec<&str> = [line, root]
            .into_iter()
            .filter(|line| !is_done(line))
            .map(|line| line.summary.id.agent())
            .collect();
        agents.dedup();
        for agent in agents.into_iter().filter(|_| !self.environment.halted) {
            let record = match self.store.agents().get(self.environment.key, agent) {
                Ok(record) => record,
                Err(StoreError::NotFound { .. }) => continue,
                Err(error) => return Err(error),
            };
            if record.paused {
                let text = format!("agent {agent} is paused: its resources are not deployed");
                let mut reason = Self::reason(ReasonKind::AgentPaused, text);
                reason.agent = Some(agent.to_owned());
                reasons.push(Self::with_action(reason, "unpause"));
            }
        }
        Ok(reasons)
    }

    /// Next step of a resource, or of the root cause that it waits for.
    fn next_step(&self, root: &ResourceLine, is_own: bool) -> Result<StatusReason, StoreError> {
        let cause = &root.summary;
        Ok(match cause.status {
            Status::Orphaned => {
                Self::reason(ReasonKind::NotManaged, "it is in no version: it is left as it is")
            }
            Status::Deployed => Self::reason(ReasonKind::Settled, "it matches the model"),
            Status::Deploying if is_own => {
                Self::reason(ReasonKind::Running, "its handler is running")
            }
            Status::Deploying => {
                Self::reason(ReasonKind::WaitingOn, format!("it runs after {}", cause.id))
            }
            Status::Available if is_own => {
                Self::reason(ReasonKind::Queued, "it runs as soon as its turn comes")
            }
            Status::Available => {
                Self::reason(ReasonKind::WaitingOn, format!("it runs after {}", cause.id))
            }
            Status::Undefined | Status::SkippedForUndefined => self.undefined(root)?,
            _ if cause.state.parked => self.parked(root)?,
            _ => match self.next_run(root) {
                Some(at) => {
                    let text = match is_own {
                        true => "it is retried".to_owned(),
                        false => format!("{} is retried", cause.id),
                    };
                    let mut reason = Self::reason(ReasonKind::Timer, text);
                    reason.at = Some(Time(at));
                    reason
                }
                None => Self::reason(
                    ReasonKind::NothingPlanned,
                    "no run is planned: the environment has no retry interval",
                ),
            },
        })
    }

    fn parked(&self, line: &ResourceLine) -> Result<StatusReason, StoreError> {
        let summary = &line.summary;
        if self.store.effects().of_resource(summary.key)?.is_some() {
            let text = format!(
                "{} begun something that must not be repeated, and the outcome is lost: check it and decide",
                summary.id
            );
            return Ok(Self::reason(ReasonKind::UnknownEffect, text));
        }
        let text = format!(
            "{} failed {} times and is parked: it runs again on request",
            summary.id, summary.state.attempts
        );
        Ok(Self::with_action(Self::reason(ReasonKind::Parked, text), "deploy"))
    }

    fn undefined(&self, line: &ResourceLine) -> Result<StatusReason, StoreError> {
        let key = self.environment.key;
        let mut names = Vec::new();
        if let Some(newest) = self.store.versions().newest(key)? {
            let unknowns = self.store.versions().unknowns(key, newest)?;
            let missing = unknowns.into_iter().filter(|(_, is_resolved)| !is_resolved);
            names.extend(missing.map(|(unknown, _)| match unknown.resource {
                Some(resource) => format!("fact {} of {resource}", unknown.name),
                None => format!("parameter {}", unknown.name),
            }));
        }
        let more = names.len().saturating_sub(UNKNOWNS_NAMED);
        names.truncate(UNKNOWNS_NAMED);
        let id = &line.summary.id;
        let text = match (&names[..], more) {
            ([], _) => format!("a value of {id} is not known yet"),
            (names, 0) => format!("{id} needs a value that is not known yet: {}", names.join(", ")),
            (names, more) => format!(
                "{id} needs a value that is not known yet: {} and {more} more",
                names.join(", ")
            ),
        };
        Ok(Self::reason(ReasonKind::Undefined, text))
    }
}

fn message(action: &Action) -> Option<String> {
    action.failure_line().map(|line| line.message.clone())
}
