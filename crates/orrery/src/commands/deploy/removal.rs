//! What pruning and destroying have in common: the plan that is shown, the version that removes, and the version after it.

use std::collections::BTreeSet;

use orrery_api::{
    KeptResource, ReleaseRequest, RemovalPlan, VersionReleased, VersionStored, VersionUpload,
};
use orrery_executor::KnownStates;
use orrery_model::{KeptReason, Remnant, Removal, Resource, ResourceState, Status};
use orrery_store::{
    LeaseRequest, ProjectBinding, RemnantScope, ResourceKey, ResourceQuery, StateRecord, Store,
    StoreError, Unknown,
};

use crate::cli_deploy::Selection;
use crate::commands::export::store;
use crate::commands::inspect::find;
use crate::commands::inspect::on_server::OnServer;
use crate::commands::inspect::source::Deployment as _;
use crate::commands::trouble::Trouble;
use crate::remote::RemoteEnvironment;
use crate::state::now;
use crate::{Exit, output, style};

use super::edits::Edits;
use super::placing::Unplaced;
use super::unmanaged::Unmanaged;
use super::waiting::Run;
use super::{Opened, Purpose};

/// Resources of a plan that are shown at most.
const SHOWN_MAX: usize = 200;

/// The plan of a removal, as it is told.
pub(super) fn plan_of(removal: &Removal) -> RemovalPlan {
    let kept = removal.kept.iter();
    RemovalPlan {
        removed: removal.removed.iter().map(ToString::to_string).collect(),
        kept: kept
            .map(|kept| KeptResource {
                id: kept.id.to_string(),
                reason: kept.reason.to_string(),
                adopted: kept.reason == KeptReason::Adopted,
            })
            .collect(),
    }
}

/// Shows what is removed and what stays. Resources that were edited come first, so that no fold hides them; the rest is in the order
/// of its removal.
pub(super) fn show(plan: &RemovalPlan, edits: &Edits) {
    let mut lines: Vec<String> = Vec::new();
    let more = |total: usize| {
        (total > SHOWN_MAX).then(|| format!("  … and {} more", style::grouped(total - SHOWN_MAX)))
    };
    let notes = plan.removed.iter().map(|id| (id, edits.note_on(id)));
    let (edited, others): (Vec<_>, Vec<_>) = notes.partition(|(_, note)| note.is_some());
    let edited_count = edited.len();
    for (id, note) in edited.into_iter().chain(others).take(SHOWN_MAX) {
        let note = note.map(|note| format!(" ({})", style::harmless(&note)));
        let (sign, id) = (style::removed("-"), style::harmless(id));
        lines.push(format!("{sign} {id}{}", style::warning(&note.unwrap_or_default())));
    }
    lines.extend(more(plan.removed.len()));
    for kept in plan.kept.iter().take(SHOWN_MAX) {
        let id = style::harmless(&kept.id);
        let reason = style::harmless(&kept.reason);
        lines.push(format!("{} {id} (left in place: {reason})", style::warning("·")));
    }
    lines.extend(more(plan.kept.len()));
    let edited = match edited_count {
        0 => String::new(),
        1 => style::warning(" (of these, 1 edited since it was deployed)"),
        count => {
            let count = style::grouped(count);
            style::warning(&format!(" (of these, {count} edited since they were deployed)"))
        }
    };
    let mut counts = vec![format!("{} to remove{edited}", style::grouped(plan.removed.len()))];
    if !plan.kept.is_empty() {
        counts.push(format!("{} left in place", style::grouped(plan.kept.len())));
    }
    lines.push(format!("{}: {}", style::heading("plan"), counts.join(", ")));
    if plan.kept.iter().any(|kept| kept.adopted) {
        let help = "--include-adopted also removes what existed before its first recorded deploy";
        lines.push(format!("{}: {help}", style::help("help")));
    }
    lines.iter().for_each(|line| output::say(line));
}

/// Says what a removal did not achieve.
pub(super) fn tell_left(left: usize, again: &str) {
    let count = style::count(left, "resource");
    let verb = if left == 1 { "is" } else { "are" };
    let word = style::warning("warning");
    output::say(&format!("{word}: {count} {verb} not removed yet; `orrery {again}` tries again"));
}

/// Everything that was deployed here and may still exist.
pub(super) fn known(opened: &Opened) -> Result<Vec<Remnant>, StoreError> {
    opened.store.records().remnants(opened.environment, RemnantScope::All)
}

/// The same, with what was adopted counted as created.
pub(super) fn with_adopted(mut known: Vec<Remnant>, include: bool) -> Vec<Remnant> {
    known.iter_mut().for_each(|remnant| remnant.is_adopted &= !include);
    known
}

/// Those of a plan that may still exist here.
pub(super) fn left_here(opened: &Opened, plan: &RemovalPlan) -> Result<usize, StoreError> {
    let removed: BTreeSet<&str> = plan.removed.iter().map(String::as_str).collect();
    let known = known(opened)?;
    Ok(known.iter().filter(|one| removed.contains(one.resource.id.as_str())).count())
}

/// The version after a removal: what is wanted, and nothing else.
pub(super) struct Afterwards<'a> {
    pub(super) resources: Vec<Resource>,
    pub(super) unknowns: &'a [Unknown],
    pub(super) code: Option<&'a str>,
    pub(super) local_agents: &'a [String],
    pub(super) message: &'a str,
    pub(super) project: ProjectBinding<'a>,
}

impl Afterwards<'_> {
    /// Stores it here and takes it in, which no engine has to do: nothing is left to be run.
    pub(super) fn keep(self, opened: &Opened, command: &str) -> Result<(), StoreError> {
        let holder = orrery_store::Holder::this_process(format!("orrery {command}"), now());
        let request = LeaseRequest { holder, now: now(), expires: None };
        let lease = opened.store.acquire_lease(opened.environment, &request)?;
        let store = std::sync::Arc::clone(&opened.store);
        let opened = Opened { store, environment: opened.environment, lease };
        let wanted: BTreeSet<String> =
            self.resources.iter().map(|resource| resource.id.to_string()).collect();
        let (desired, _) = opened.put(
            self.resources,
            self.unknowns,
            self.code,
            self.local_agents,
            Purpose::deploy(self.message),
            Some(self.project),
        )?;
        let mut gone: Vec<(ResourceKey, ResourceState)> = Vec::new();
        opened.store.read_states(opened.environment, &mut |row| {
            if row.state.intent.is_some() && !wanted.contains(row.id) {
                gone.push((row.key, ResourceState { intent: None, ..row.state.clone() }));
            }
        })?;
        let records: Vec<StateRecord<'_>> =
            gone.iter().map(|(key, state)| StateRecord { resource: *key, state }).collect();
        opened.store.process_version(&opened.lease, desired.version, &records)?;
        opened.store.release_lease(&opened.lease)
    }
}

/// The states that a local engine starts from.
pub(super) fn states(opened: &Opened) -> Result<KnownStates, StoreError> {
    KnownStates::read(&*opened.store, opened.environment)
}

/// A version on a server that removes, before it is released.
pub(super) struct Candidate<'a> {
    pub(super) of: &'a RemoteEnvironment,
    pub(super) version: u32,
    pub(super) plan: RemovalPlan,
}

/// How a removal on a server ended.
pub(super) struct Removed {
    pub(super) exit: Exit,
    /// Resources that are not known to be gone.
    pub(super) left: usize,
}

impl<'a> Candidate<'a> {
    /// Stores what was worked out here, without releasing it. The server adds what has to go.
    pub(super) fn store(
        of: &'a RemoteEnvironment,
        upload: &VersionUpload,
    ) -> Result<Self, Trouble> {
        let VersionStored { version, removal, .. } = store(of, upload)?;
        Ok(Candidate { of, version: version.number, plan: removal.unwrap_or_default() })
    }

    fn path(&self, rest: &[&str]) -> String {
        let number = self.version.to_string();
        let mut parts = vec!["versions", number.as_str()];
        parts.extend(rest);
        self.of.path(&parts)
    }

    /// Takes it back: nothing was done.
    pub(super) fn discard(self) -> Result<(), Trouble> {
        Ok(self.of.client.delete::<()>(&self.path(&[]))?)
    }

    /// Takes it back if its removal is not wanted.
    pub(super) fn confirmed(self, answer: Result<(), Trouble>) -> Result<Self, Trouble> {
        match answer {
            Ok(()) => Ok(self),
            Err(refusal) => {
                self.discard()?;
                Err(refusal)
            }
        }
    }

    /// Releases it, waits, and tells.
    pub(super) fn carry_out(&self, json: bool) -> Result<Removed, Trouble> {
        let wish = ReleaseRequest { deploy: true, verify: true };
        let released: VersionReleased = self.of.client.post(&self.path(&["release"]), &wish)?;
        let begun = released.operation.ok_or_else(|| {
            let text = format!("version {} is not released: a newer one is", self.version);
            Trouble::said(text).help("`orrery version list` shows which")
        })?;
        let since = begun.created.parse().unwrap_or_default();
        let (selection, unmanaged) = (Selection::default(), Unmanaged::default());
        let unplaced = Unplaced::default();
        let run = Run {
            of: self.of,
            json,
            selection: &selection,
            unplaced: &unplaced,
            unmanaged: &unmanaged,
            removal: Some(&self.plan),
        };
        let exit = run.follow(&begun, self.version, since)?;
        let mut left: BTreeSet<&str> = self.plan.removed.iter().map(String::as_str).collect();
        let deployed =
            ResourceQuery { statuses: vec![Status::Deployed], ..ResourceQuery::default() };
        OnServer::new(self.of.clone()).each(&deployed, None, find::PAGE, &mut |seen| {
            left.remove(seen.id.as_str());
            Ok(true)
        })?;
        Ok(Removed { exit, left: left.len() })
    }
}
