//! The state of a local project, open for reading.
//!
//! To say what will become of a resource, a scheduler is brought to where the engine would start from, but halted, so that it
//! decides and does nothing; what it says is what a deploy would do.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use orrery_api::UnknownEffect;
use orrery_executor::{Desired, declared_address, recovery};
use orrery_model::{ResourceId, Status, VersionNumber};
use orrery_scheduler::{Because, Event, Interval, ResourceIndex, Scheduler, Settings};
use orrery_store::{
    Action, Agent, EnvironmentKey, Holder, Parameter, ResourceQuery, SqliteStore, Store,
    StoreError, VersionInfo, current_writer, load_version, local_agents,
};
use serde_json::{Map, Value, json};

use super::changes::Differences;
use super::source::{
    AgentSeen, AtWork, ChangeOf, Changed, Counts, Deployment, Next, Outlook, Seen, Step, Visit,
    rank,
};
use super::{Trouble, find, json, status, text, unknown};
use crate::cli_inspect::LookOptions;
use crate::commands::deploy::placing::inventory_here;
use crate::commands::effects;
use crate::projects::{self, MAIN_FILE};
use crate::state;

/// How far the requirements that are not as wanted are followed.
pub(super) const PATH_MAX: usize = 16;

/// Resources that are read at once.
const PAGE: usize = 5000;

pub(crate) struct Local {
    file: PathBuf,
    store: SqliteStore,
    environment: EnvironmentKey,
}

impl Local {
    /// The project's directory, and its state.
    pub(super) fn open(options: &LookOptions) -> Result<(PathBuf, Self), Trouble> {
        let project = match projects::directory(options.project.as_deref(), MAIN_FILE) {
            Ok(project) => project,
            // Whoever names the state needs no project.
            Err(_) if options.project.is_none() && options.state.data.is_some() => {
                PathBuf::from(".")
            }
            Err(error) => return Err(Trouble::Project(error)),
        };
        let file = options.state.file(&project);
        let store = options.state.look(&project)?;
        let environment = store.default_environment().map_err(|error| match error {
            // There is none, and to make one is not for those who look.
            StoreError::ReadOnly { .. } => nothing_deployed(&file),
            error => error.into(),
        })?;
        Ok((project, Local { file, store, environment }))
    }

    fn writer(&self) -> Result<Option<Holder>, Trouble> {
        Ok(current_writer(&self.file)?)
    }

    /// A scheduler that knows what the engine would know at its start. It is halted, and without intervals:
    /// those are for an engine that stays.
    fn scheduler(&self, version: &VersionInfo) -> Result<Scheduler, Trouble> {
        let resources = load_version(&self.store, self.environment, version.number)?.resources;
        let mut keys = Vec::with_capacity(resources.len());
        self.store.read_version(self.environment, version.number, &mut |row| keys.push(row.key))?;
        let desired = Desired { version: version.number, resources, keys };
        let mut start = recovery(&self.store, self.environment, desired)?;
        start.recovery.halted = true;
        let settings = Settings {
            deploy_interval: Interval::Off,
            repair_interval: Interval::Off,
            ..Settings::default()
        };
        let mut scheduler = Scheduler::new(settings);
        let mut commands = Vec::new();
        scheduler.handle(Event::Recover(Box::new(start.recovery)), state::now(), &mut commands);
        Ok(scheduler)
    }

    /// What a resource waits for of which something is not known.
    fn unknown_in(
        &self,
        id: &ResourceId,
        version: VersionNumber,
    ) -> Result<Option<String>, Trouble> {
        let resources = load_version(&self.store, self.environment, version)?.resources;
        let Some(found) = resources.iter().find(|resource| resource.id == *id) else {
            return Ok(None);
        };
        let unknowns = self.store.unknowns(self.environment, version)?;
        // Here they are called by the attribute that they are for, and the fact has no name.
        let waiting = unknowns.iter().filter(|(_, resolved)| !resolved);
        let mut missing: Vec<String> = waiting
            .filter_map(|(one, _)| {
                Some(unknown::called("a fact", Some(one.resource.as_ref()?.as_str())))
            })
            .collect();
        missing.dedup();
        Ok(Some(unknown::told(&found.attributes, &missing, version)))
    }

    /// The chain of requirements that are not as wanted, down to the one that is to blame.
    fn path(&self, scheduler: &Scheduler, from: ResourceIndex) -> Result<Vec<Step>, Trouble> {
        let mut steps: Vec<Step> = Vec::new();
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
            // What merely waits says so by the next step.
            let waits = matches!(status, Status::Skipped | Status::SkippedForUndefined);
            let leads_on = scheduler.requirements(index).into_iter().any(|index| {
                scheduler.state(index).is_some_and(|state| rank(state.status()).is_some())
            });
            steps.push(Step {
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

fn nothing_deployed(file: &std::path::Path) -> Trouble {
    let file = file.display();
    Trouble::said(format!("{file} holds no version: nothing was deployed here yet"))
}

impl Deployment for Local {
    fn nothing_deployed(&self) -> Trouble {
        nothing_deployed(&self.file)
    }

    fn versions(&self) -> Result<Vec<VersionInfo>, Trouble> {
        Ok(self.store.versions(self.environment)?)
    }

    fn processed(&self) -> Result<Option<VersionNumber>, Trouble> {
        Ok(self.store.processed_version(self.environment)?)
    }

    fn unknown_effects(&self) -> Result<Vec<UnknownEffect>, Trouble> {
        let found = self.store.records().unknown_effects(self.environment)?;
        Ok(found.into_iter().map(effects::from_store).collect())
    }

    fn counts(&self) -> Result<Counts, Trouble> {
        let mut counts = Counts::default();
        for group in self.store.records().count_resources(self.environment)? {
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

    fn agents(&self) -> Result<Vec<AgentSeen>, Trouble> {
        let found = self.store.agents(self.environment)?;
        let versions = self.store.versions(self.environment)?;
        let released = versions.iter().rfind(|version| version.released);
        let patterns = released.map(|one| local_agents(&one.info)).unwrap_or_default();
        let mut addresses = BTreeMap::new();
        for agent in &found {
            let id = format!("std::AgentConfig[internal,agentname={}]", agent.name);
            if let Some(resource) = self.store.read_resource(self.environment, &id)? {
                addresses.extend(declared_address(&resource));
            }
        }
        let inventory = inventory_here(addresses, &patterns);
        let counts = self.store.records().count_resources(self.environment)?;
        let refused: BTreeSet<&str> = counts
            .iter()
            .filter(|count| count.status == Status::Unavailable && count.count > 0)
            .map(|count| count.agent.as_str())
            .collect();
        let seen = |Agent { name, paused }: Agent| {
            let placement = inventory.place(&name);
            let down = !placement.has_machine() && refused.contains(name.as_str());
            let reason = down.then(|| placement.reason(&name));
            AgentSeen { name, paused, down, reason, placement: placement.as_str().to_owned() }
        };
        Ok(found.into_iter().map(seen).collect())
    }

    fn at_work(&self) -> Result<Option<AtWork>, Trouble> {
        Ok(self.writer()?.map(|holder| AtWork {
            text: format!("{holder} is at work"),
            json: json!({
                "command": holder.command,
                "pid": holder.pid,
                "host": holder.host,
                "since": json::time(Some(holder.since)),
            }),
        }))
    }

    fn each(
        &self,
        query: &ResourceQuery,
        after: Option<&str>,
        batch: usize,
        visit: &mut Visit<'_>,
    ) -> Result<(), Trouble> {
        let mut after = after.map(str::to_owned);
        let batch = batch.clamp(1, PAGE);
        loop {
            let records = self.store.records();
            let page = records.list_resources(self.environment, query, after.as_deref(), batch)?;
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

    fn find(&self, id: &str) -> Result<Option<Seen>, Trouble> {
        match self.store.records().resource_line(self.environment, id) {
            Ok(line) => Ok(Some(line.into())),
            Err(StoreError::NoResource(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn actions(&self, id: &str, limit: usize) -> Result<Vec<Action>, Trouble> {
        Ok(self.store.actions(self.environment, id, None, limit)?)
    }

    fn facts(&self, of: Option<&str>) -> Result<Vec<Parameter>, Trouble> {
        if let Some(id) = of {
            return Ok(self.store.facts(self.environment, id)?);
        }
        let mut facts = Vec::new();
        self.each(&find::everything(), None, PAGE, &mut |resource| {
            facts.extend(self.store.facts(self.environment, resource.id.as_str())?);
            Ok(true)
        })?;
        Ok(facts)
    }

    fn differences(
        &self,
        from: VersionNumber,
        to: VersionNumber,
        visit: &mut dyn FnMut(Changed),
    ) -> Result<(), Trouble> {
        self.store.diff_versions(self.environment, from, to, &mut |difference| {
            let (before, after) = (difference.before, difference.after);
            let change = match (&before, &after) {
                (None, _) => ChangeOf::Added,
                (_, None) => ChangeOf::Removed,
                _ => ChangeOf::Changed,
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
    ) -> Result<Option<Vec<String>>, Trouble> {
        let mut found = None;
        let read = self.store.diff_versions(self.environment, from, to, &mut |difference| {
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
            // A version of long ago may be gone; then nobody knows.
            Ok(()) | Err(StoreError::NoVersion(_)) => Ok(found),
            Err(error) => Err(error.into()),
        }
    }

    fn attributes(&self, id: &ResourceId) -> Result<Option<Map<String, Value>>, Trouble> {
        let versions = self.store.versions(self.environment)?;
        let Some(version) = versions.iter().rfind(|version| version.released) else {
            return Ok(None);
        };
        let resources = load_version(&self.store, self.environment, version.number)?.resources;
        let found = resources.iter().find(|resource| resource.id == *id);
        Ok(found.and_then(|resource| resource.attributes.read().ok()))
    }

    fn outlook(&self, resource: &Seen, version: &VersionInfo) -> Result<Outlook, Trouble> {
        let scheduler = self.scheduler(version)?;
        let mut outlook = Outlook::default();
        let Some(index) = scheduler.index_of(resource.id.as_str()) else {
            let text = format!("nothing: version {} does not have it", version.number);
            outlook.next.push(Next::new("not_wanted", text));
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
                Some(_) => Next::new("running", "its handler runs now"),
                None => {
                    Next::new("cut_off", "its handler was cut off; the next deploy verifies it")
                }
            };
            outlook.next.push(next);
            return Ok(outlook);
        }
        if matches!(status, Status::Skipped | Status::SkippedForUndefined | Status::Available) {
            outlook.path = self.path(&scheduler, index)?;
        }
        let because = scheduler.why(index).map(|why| why.because).unwrap_or_default();
        outlook.next.extend(because.iter().filter_map(next));
        if status == Status::Undefined
            && let Some(next) = outlook.next.iter_mut().find(|next| next.kind == "undefined")
            && let Some(text) = self.unknown_in(&resource.id, version.number)?
        {
            next.text = text;
        }
        if outlook.next.is_empty() {
            // The scheduler was halted, and had no more to say than that.
            let is_good = matches!(status, Status::Deployed | Status::Orphaned);
            let rest = if is_good { Because::Settled } else { Because::NothingPlanned };
            outlook.next.extend(next(&rest));
        }
        let agent = resource.id.agent();
        let is_paused = scheduler.agent_of(agent).is_some_and(|agent| scheduler.is_paused(agent));
        if is_paused && outlook.next.iter().all(|next| next.kind != "agent_paused") {
            outlook.next.extend(next(&Because::AgentPaused { agent: agent.into() }));
        }
        Ok(outlook)
    }
}

/// What the scheduler says, as what will come.
pub(super) fn next(because: &Because) -> Option<Next> {
    let (kind, text) = match because {
        // That is only true of the scheduler that was asked.
        Because::Halted => return None,
        Because::Queued { .. } => ("next_deploy", "the next deploy runs it".to_owned()),
        Because::WaitingOn { resources, .. } => {
            let names: Vec<&str> = resources.iter().map(|id| id.as_str()).collect();
            let names = text::some_of(&names);
            ("next_deploy", format!("the next deploy runs it, after {names}"))
        }
        Because::Undefined { path } => match path.as_slice() {
            [_, .., last] => ("undefined", format!("it is deployed when {last} is known")),
            _ => ("undefined", "it is deployed when all of its attributes are known".to_owned()),
        },
        Because::AgentPaused { .. } => ("agent_paused", because.to_string()),
        Because::WaitingForRecovery { bad } => {
            let names: Vec<&str> = bad.iter().map(|id| id.as_str()).collect();
            let names = text::some_of(&names);
            ("waiting_for_recovery", format!("it is tried as soon as {names} is deployed"))
        }
        Because::Parked { .. } => ("parked", because.to_string()),
        Because::Settled => {
            ("settled", "nothing: it matches the model; `orrery repair` verifies it".to_owned())
        }
        Because::NothingPlanned => (
            "nothing_planned",
            "it is not tried by itself; `orrery deploy` or `orrery repair` tries it".to_owned(),
        ),
        Because::Running { .. } | Because::Outdated => ("running", because.to_string()),
        Because::GroupFull { .. } => ("group_full", because.to_string()),
        Because::NextTimer { .. } | Because::NextCron { .. } => ("timer", because.to_string()),
    };
    Some(Next { kind, text })
}
