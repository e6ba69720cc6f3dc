//! State of a local project, open for reading.
//!
//! To predict the next steps of a resource, a halted scheduler is recovered from the state that the
//! engine would start from.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use orrery_api::UnknownEffect;
use orrery_executor::{DesiredState, declared_address, recover};
use orrery_model::{ResourceId, Status, VersionNumber};
use orrery_project::{MAIN_FILE, ProjectInventory, find_directory};
use orrery_scheduler::{Event, Interval, ResourceIndex, Scheduler, Settings, StateReason};
use orrery_store::{AgentState, EnvironmentKey, Holder, Store, StoreError, current_writer};
use serde_json::{Map, Value, json};

use super::changes::Differences;
use super::deployment::{
    ActiveRun, AgentView, BlockingRequirement, Changed, Counts, Deployment, DifferenceKind,
    NextStep, NextSteps, ResourceView, Visit, rank,
};
use super::from_api::placement_kind;
use super::view::{ActionView, FactView, ResourceSelection, VersionView};
use super::{CliError, find, json, status, text, undefined_values};
use crate::cli::inspect::InspectOptions;
use crate::commands::deploy::declared_agents::DeclaredAgents;
use crate::commands::deploy::unplaced::inventory_here;
use crate::commands::effects;

/// Maximum length of the chain of blocking requirements.
pub(super) const PATH_MAX: usize = 16;

/// Page size.
const PAGE: usize = 5000;

pub(crate) struct Local {
    project: PathBuf,
    file: PathBuf,
    store: Store,
    environment: EnvironmentKey,
}

impl Local {
    /// Returns the project directory and its state.
    pub(super) fn open(options: &InspectOptions) -> Result<(PathBuf, Self), CliError> {
        let project = match find_directory(options.project.as_deref(), MAIN_FILE) {
            Ok(project) => project,
            // --data alone needs no project.
            Err(_) if options.project.is_none() && options.state.data.is_some() => {
                PathBuf::from(".")
            }
            Err(error) => return Err(CliError::Project(error)),
        };
        let file = options.state.file(&project);
        let store = options.state.open_read_only(&project)?;
        let environment = store.environments().ensure_default().map_err(|error| match error {
            // There is no state, and a reader does not create one.
            StoreError::ReadOnly { .. } => nothing_deployed(&file),
            error => error.into(),
        })?;
        Ok((project.clone(), Local { project, file, store, environment }))
    }

    fn writer(&self) -> Result<Option<Holder>, CliError> {
        Ok(current_writer(&self.file)?)
    }

    /// A scheduler that knows what the engine would know at its start. It is halted, and without intervals:
    /// those are for an engine that stays.
    fn scheduler(&self, version: &VersionView) -> Result<Scheduler, CliError> {
        let resources = self.store.versions().load(self.environment, version.number)?.resources;
        let mut keys = Vec::with_capacity(resources.len());
        self.store
            .versions()
            .read(self.environment, version.number, &mut |row| keys.push(row.key))?;
        let desired = DesiredState { version: version.number, resources, keys };
        let mut start = recover(&self.store, self.environment, desired)?;
        start.recovery.halted = true;
        let settings = Settings {
            deploy_interval: Interval::Off,
            repair_interval: Interval::Off,
            ..Settings::default()
        };
        let mut scheduler = Scheduler::new(settings);
        let mut commands = Vec::new();
        scheduler.handle(
            Event::Recover(Box::new(start.recovery)),
            orrery_handlers::clock::now(),
            &mut commands,
        );
        Ok(scheduler)
    }

    /// Unknown values that block a resource.
    fn unknown_in(
        &self,
        id: &ResourceId,
        version: VersionNumber,
    ) -> Result<Option<String>, CliError> {
        let resources = self.store.versions().load(self.environment, version)?.resources;
        let Some(found) = resources.iter().find(|resource| resource.id == *id) else {
            return Ok(None);
        };
        let unknowns = self.store.versions().unknowns(self.environment, version)?;
        // Local unknowns are named by their attribute; the fact has no name.
        let waiting = unknowns.iter().filter(|(_, resolved)| !resolved);
        let mut missing: Vec<String> = waiting
            .filter_map(|(one, _)| {
                Some(undefined_values::describe("a fact", Some(one.resource.as_ref()?.as_str())))
            })
            .collect();
        missing.dedup();
        Ok(Some(undefined_values::explain(&found.attributes, &missing, version)))
    }

    /// Chain of blocking requirements, down to the root cause.
    fn path(
        &self,
        scheduler: &Scheduler,
        from: ResourceIndex,
    ) -> Result<Vec<BlockingRequirement>, CliError> {
        let mut steps: Vec<BlockingRequirement> = Vec::new();
        let mut at = from;
        while steps.len() < PATH_MAX {
            let mut bad: Vec<(u8, &str, ResourceIndex, Status)> = scheduler
                .requirements(at)
                .into_iter()
                .filter_map(|index| {
                    let status = scheduler.state(index)?.status();
                    let id = scheduler.id(index)?.as_str();
                    Some((rank(status)?, id, index, status))
                })
                .collect();
            bad.sort_unstable();
            let Some(&(_, id, index, status)) = bad.first() else { break };
            let seen = self.find(id)?;
            let message = match &seen {
                Some(seen) => status::message(self, seen)?,
                None => None,
            };
            // The next entry explains a requirement that only waits.
            let waits = matches!(status, Status::Skipped | Status::SkippedForUndefined);
            let leads_on = scheduler.requirements(index).into_iter().any(|index| {
                scheduler.state(index).is_some_and(|state| rank(state.status()).is_some())
            });
            steps.push(BlockingRequirement {
                id: id.to_owned(),
                status,
                message: message.filter(|_| !(waits && leads_on)),
                source: seen.and_then(|seen| seen.source),
                others: bad.len() - 1,
            });
            at = index;
            if !matches!(status, Status::Skipped | Status::SkippedForUndefined | Status::Available)
            {
                break;
            }
        }
        Ok(steps)
    }
}

fn nothing_deployed(file: &std::path::Path) -> CliError {
    let file = file.display();
    CliError::new(format!("{file} contains no version: nothing was deployed here yet"))
}

impl Deployment for Local {
    fn nothing_deployed(&self) -> CliError {
        nothing_deployed(&self.file)
    }

    fn versions(&self) -> Result<Vec<VersionView>, CliError> {
        let found = self.store.versions().list(self.environment)?;
        Ok(found.into_iter().map(VersionView::from).collect())
    }

    fn processed(&self) -> Result<Option<VersionNumber>, CliError> {
        Ok(self.store.engine().processed_version(self.environment)?)
    }

    fn unknown_effects(&self) -> Result<Vec<UnknownEffect>, CliError> {
        let found = self.store.effects().unknown(self.environment)?;
        Ok(found.into_iter().map(effects::from_store).collect())
    }

    fn counts(&self) -> Result<Counts, CliError> {
        let mut counts = Counts::default();
        for group in self.store.resources().count(self.environment)? {
            *counts.by_status.entry(group.status).or_default() += group.count;
            if group.status == Status::Deployed {
                counts.removed += group.removals;
            }
            if group.status != Status::Orphaned {
                counts.parked += group.parked;
                let runs = [counts.verified_since, group.oldest_run];
                counts.verified_since = runs.into_iter().flatten().min();
            }
        }
        Ok(counts)
    }

    fn agents(&self) -> Result<Vec<AgentView>, CliError> {
        let found = self.store.agents().states(self.environment)?;
        let versions = self.store.versions().list(self.environment)?;
        let released = versions.iter().rfind(|version| version.released);
        let declared = released.map(|one| DeclaredAgents::of_version(&self.store, &one.info));
        let mut declared = declared.transpose()?.unwrap_or_default();
        // As `orrery repair` would place them. Other commands report a file with problems.
        if let Ok(Some(inventory)) = ProjectInventory::read(&self.project) {
            declared = DeclaredAgents::of_project(declared.patterns, Some(inventory));
        }
        let mut addresses = BTreeMap::new();
        for agent in &found {
            let id = format!("std::AgentConfig[internal,agentname={}]", agent.name);
            if let Some(resource) = self.store.resources().read(self.environment, &id)? {
                addresses.extend(declared_address(&resource));
            }
        }
        let inventory = inventory_here(addresses, &declared);
        let counts = self.store.resources().count(self.environment)?;
        let refused: BTreeSet<&str> = counts
            .iter()
            .filter(|count| count.status == Status::Unavailable && count.count > 0)
            .map(|count| count.agent.as_str())
            .collect();
        let seen = |AgentState { name, paused }: AgentState| {
            let placement = inventory.placement_of(&name);
            let down = !placement.has_machine() && refused.contains(name.as_str());
            let reason = down.then(|| placement.reason(&name));
            AgentView { name, paused, down, reason, placement: placement_kind(&placement) }
        };
        Ok(found.into_iter().map(seen).collect())
    }

    fn at_work(&self) -> Result<Option<ActiveRun>, CliError> {
        Ok(self.writer()?.map(|holder| ActiveRun {
            text: format!("{holder} is running"),
            json: json!({
                "command": holder.command,
                "pid": holder.pid,
                "host": holder.host,
                "since": json::time(Some(holder.since)),
            }),
        }))
    }

    fn visit(
        &self,
        selection: &ResourceSelection,
        after: Option<&str>,
        batch: usize,
        visit: &mut Visit<'_>,
    ) -> Result<(), CliError> {
        let query = selection.into();
        let mut after = after.map(str::to_owned);
        let batch = batch.clamp(1, PAGE);
        loop {
            let store = &self.store;
            let page = store.resources().list(self.environment, &query, after.as_deref(), batch)?;
            for line in page.lines {
                if !visit(line.into())? {
                    return Ok(());
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    fn find(&self, id: &str) -> Result<Option<ResourceView>, CliError> {
        match self.store.resources().line(self.environment, id) {
            Ok(line) => Ok(Some(line.into())),
            Err(StoreError::NoResource(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn actions(&self, id: &str, limit: usize) -> Result<Vec<ActionView>, CliError> {
        let found = self.store.actions().of_resource(self.environment, id, None, limit)?;
        Ok(found.into_iter().map(ActionView::from).collect())
    }

    fn facts(&self, of: Option<&str>) -> Result<Vec<FactView>, CliError> {
        let facts_of = |id: &str| -> Result<Vec<FactView>, CliError> {
            let found = self.store.parameters().facts(self.environment, id)?;
            Ok(found.into_iter().map(FactView::from).collect())
        };
        if let Some(id) = of {
            return facts_of(id);
        }
        let mut facts = Vec::new();
        self.visit(&find::everything(), None, PAGE, &mut |resource| {
            facts.extend(facts_of(resource.id.as_str())?);
            Ok(true)
        })?;
        Ok(facts)
    }

    fn differences(
        &self,
        from: VersionNumber,
        to: VersionNumber,
        visit: &mut dyn FnMut(Changed),
    ) -> Result<(), CliError> {
        self.store.versions().diff(self.environment, from, to, &mut |difference| {
            let (before, after) = (difference.before, difference.after);
            let change = match (&before, &after) {
                (None, _) => DifferenceKind::Added,
                (_, None) => DifferenceKind::Removed,
                _ => DifferenceKind::Changed,
            };
            let differences = Differences::between(before.as_ref(), after.as_ref());
            let source = after.or(before).and_then(|side| side.source);
            visit(Changed { id: difference.id, change, differences, source });
        })?;
        Ok(())
    }

    fn changed_attributes(
        &self,
        id: &ResourceId,
        from: VersionNumber,
        to: VersionNumber,
    ) -> Result<Option<Vec<String>>, CliError> {
        let mut found = None;
        let read = self.store.versions().diff(self.environment, from, to, &mut |difference| {
            if difference.id != *id {
                return;
            }
            let (before, after) = (difference.before.as_ref(), difference.after.as_ref());
            let hash = |side: Option<&orrery_model::Resource>| side.map(|side| side.hash);
            if hash(before) != hash(after) {
                let differences = Differences::between(before, after);
                found = Some(differences.attributes.into_iter().map(|one| one.name).collect());
            }
        });
        match read {
            // The version may have been deleted.
            Ok(()) | Err(StoreError::NoVersion(_)) => Ok(found),
            Err(error) => Err(error.into()),
        }
    }

    fn attributes(&self, id: &ResourceId) -> Result<Option<Map<String, Value>>, CliError> {
        let versions = self.store.versions().list(self.environment)?;
        let Some(version) = versions.iter().rfind(|version| version.released) else {
            return Ok(None);
        };
        let resources = self.store.versions().load(self.environment, version.number)?.resources;
        let found = resources.iter().find(|resource| resource.id == *id);
        Ok(found.and_then(|resource| resource.attributes.read().ok()))
    }

    fn next_steps(
        &self,
        resource: &ResourceView,
        version: &VersionView,
    ) -> Result<NextSteps, CliError> {
        let scheduler = self.scheduler(version)?;
        let mut outlook = NextSteps::default();
        let Some(index) = scheduler.index_of(resource.id.as_str()) else {
            let text = format!("nothing: it is not in version {}", version.number);
            outlook.next.push(NextStep::new("not_wanted", text));
            return Ok(outlook);
        };
        let mut status = resource.status;
        if status != Status::Deploying
            && let Some(state) = scheduler.state(index)
        {
            status = state.status();
        }
        outlook.status = Some(status);
        if status == Status::Deploying {
            let next = match self.writer()? {
                Some(_) => NextStep::new("running", "its handler is running"),
                None => NextStep::new(
                    "cut_off",
                    "its handler was interrupted; the next deploy verifies it",
                ),
            };
            outlook.next.push(next);
            return Ok(outlook);
        }
        if matches!(status, Status::Skipped | Status::SkippedForUndefined | Status::Available) {
            outlook.path = self.path(&scheduler, index)?;
        }
        let because =
            scheduler.explain(index).map(|explanation| explanation.reasons).unwrap_or_default();
        outlook.next.extend(because.iter().filter_map(next));
        if status == Status::Undefined
            && let Some(next) = outlook.next.iter_mut().find(|next| next.kind == "undefined")
            && let Some(text) = self.unknown_in(&resource.id, version.number)?
        {
            next.text = text;
        }
        if outlook.next.is_empty() {
            // A halted scheduler has no further reason.
            let is_good = matches!(status, Status::Deployed | Status::Orphaned);
            let rest = if is_good { StateReason::Settled } else { StateReason::NothingPlanned };
            outlook.next.extend(next(&rest));
        }
        let agent = resource.id.agent();
        let is_paused = scheduler.agent_of(agent).is_some_and(|agent| scheduler.is_paused(agent));
        if is_paused && outlook.next.iter().all(|next| next.kind != "agent_paused") {
            outlook.next.extend(next(&StateReason::AgentPaused { agent: agent.into() }));
        }
        Ok(outlook)
    }
}

/// Converts the scheduler's reason to a next step.
pub(super) fn next(because: &StateReason) -> Option<NextStep> {
    let (kind, text) = match because {
        // Only true of this halted scheduler.
        StateReason::Halted => return None,
        StateReason::Queued { .. } => ("next_deploy", "the next deploy runs it".to_owned()),
        StateReason::WaitingOn { resources, .. } => {
            let names: Vec<&str> = resources.iter().map(|id| id.as_str()).collect();
            let names = text::some_of(&names);
            ("next_deploy", format!("the next deploy runs it, after {names}"))
        }
        StateReason::Undefined { path } => match path.as_slice() {
            [_, .., last] => ("undefined", format!("it is deployed once {last} is known")),
            _ => ("undefined", "it is deployed once all its attributes are known".to_owned()),
        },
        StateReason::AgentPaused { .. } => ("agent_paused", because.to_string()),
        StateReason::WaitingForRecovery { bad } => {
            let names: Vec<&str> = bad.iter().map(|id| id.as_str()).collect();
            let names = text::some_of(&names);
            ("waiting_for_recovery", format!("it is retried as soon as {names} is deployed"))
        }
        StateReason::Parked { .. } => ("parked", because.to_string()),
        StateReason::Settled => {
            ("settled", "nothing: it matches the model; `orrery repair` verifies it".to_owned())
        }
        StateReason::NothingPlanned => (
            "nothing_planned",
            "it is not retried automatically; `orrery deploy` or `orrery repair` retries it"
                .to_owned(),
        ),
        StateReason::Running { .. } | StateReason::Outdated => ("running", because.to_string()),
        StateReason::GroupFull { .. } => ("group_full", because.to_string()),
        StateReason::NextTimer { .. } | StateReason::NextCron { .. } => {
            ("timer", because.to_string())
        }
    };
    Some(NextStep { kind, text })
}
