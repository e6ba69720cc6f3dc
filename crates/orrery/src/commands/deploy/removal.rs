//! Shared steps of pruning and destroying: the plan, the removing version, and the version after
//! it.

use std::collections::BTreeSet;

use orrery_api::{
    KeptResource, ReleaseRequest, RemovalPlan, VersionReleased, VersionStored, VersionUpload,
};
use orrery_executor::StoredStates;
use orrery_handlers::clock::now;
use orrery_model::{DeployedResource, Removal, Resource, ResourceState, RetainReason, Status};
use orrery_store::{
    LeaseRequest, ProjectBinding, RemovalScope, ResourceKey, StateRecord, StoreError,
    UndefinedParameter,
};

use crate::cli::deploy::Selection;
use crate::commands::export::store;
use crate::commands::inspect::deployment::Deployment as _;
use crate::commands::inspect::find;
use crate::commands::inspect::on_server::OnServer;
use crate::commands::inspect::view::ResourceSelection;
use crate::error::CliError;
use crate::remote::RemoteEnvironment;
use crate::{Exit, output, style};

use super::declared_agents::DeclaredAgents;
use super::edits::Edits;
use super::follow_operation::FollowedOperation;
use super::unmanaged::Unmanaged;
use super::unplaced::Unplaced;
use super::{LocalStore, Purpose};

/// Maximum number of listed resources.
const SHOWN_MAX: usize = 200;

/// Removal plan for reports.
pub(super) fn removal_plan(removal: &Removal) -> RemovalPlan {
    let kept = removal.kept.iter();
    RemovalPlan {
        removed: removal.removed.iter().map(ToString::to_string).collect(),
        kept: kept
            .map(|kept| KeptResource {
                id: kept.id.to_string(),
                reason: kept.reason.to_string(),
                adopted: kept.reason == RetainReason::Adopted,
            })
            .collect(),
    }
}

/// Shows removed and kept resources. Edited resources come first, so that folding never hides them;
/// the rest is in order of removal.
pub(super) fn show(plan: &RemovalPlan, edits: &Edits) {
    let mut lines: Vec<String> = Vec::new();
    let more = |total: usize| {
        (total > SHOWN_MAX).then(|| format!("  … and {} more", style::grouped(total - SHOWN_MAX)))
    };
    let notes = plan.removed.iter().map(|id| (id, edits.note_on(id)));
    let (edited, others): (Vec<_>, Vec<_>) = notes.partition(|(_, note)| note.is_some());
    let edited_count = edited.len();
    for (id, note) in edited.into_iter().chain(others).take(SHOWN_MAX) {
        let note = note.map(|note| format!(" ({})", style::sanitize(&note)));
        let (sign, id) = (style::removed("-"), style::sanitize(id));
        lines.push(format!("{sign} {id}{}", style::warning(&note.unwrap_or_default())));
    }
    lines.extend(more(plan.removed.len()));
    for kept in plan.kept.iter().take(SHOWN_MAX) {
        let id = style::sanitize(&kept.id);
        let reason = style::sanitize(&kept.reason);
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
        let help = "--include-adopted also removes resources that existed before their first recorded deploy";
        lines.push(format!("{}: {help}", style::help("help")));
    }
    lines.iter().for_each(|line| output::print_status(line));
}

/// Reports resources that are not removed yet.
pub(super) fn report_remaining(left: usize, again: &str) {
    let count = style::count(left, "resource");
    let verb = if left == 1 { "is" } else { "are" };
    let word = style::warning("warning");
    output::print_status(&format!(
        "{word}: {count} {verb} not removed yet; `orrery {again}` retries"
    ));
}

/// Deployed resources that may still exist.
pub(super) fn deployed_remnants(opened: &LocalStore) -> Result<Vec<DeployedResource>, StoreError> {
    opened.store.resources().unmanaged(opened.environment, RemovalScope::All)
}

/// The same, with adopted resources treated as created.
pub(super) fn with_adopted(
    mut known: Vec<DeployedResource>,
    include: bool,
) -> Vec<DeployedResource> {
    known.iter_mut().for_each(|remnant| remnant.is_adopted &= !include);
    known
}

/// Number of resources of a plan that may still exist.
pub(super) fn count_remaining(
    opened: &LocalStore,
    plan: &RemovalPlan,
) -> Result<usize, StoreError> {
    let removed: BTreeSet<&str> = plan.removed.iter().map(String::as_str).collect();
    let known = deployed_remnants(opened)?;
    Ok(known.iter().filter(|one| removed.contains(one.resource.id.as_str())).count())
}

/// The version after a removal, without the removed resources.
pub(super) struct FollowUpVersion<'a> {
    pub(super) resources: Vec<Resource>,
    pub(super) unknowns: &'a [UndefinedParameter],
    pub(super) code: Option<&'a str>,
    pub(super) declared_agents: &'a DeclaredAgents,
    pub(super) message: &'a str,
    pub(super) project: ProjectBinding<'a>,
}

impl FollowUpVersion<'_> {
    /// Stores the version and marks it as processed: no engine is needed, since nothing is left to
    /// run.
    pub(super) fn store_and_process(
        self,
        opened: &LocalStore,
        command: &str,
    ) -> Result<(), StoreError> {
        let holder = orrery_store::Holder::this_process(format!("orrery {command}"), now());
        let request = LeaseRequest { holder, now: now(), expires: None };
        let lease = opened.store.leases().acquire(opened.environment, &request)?;
        let store = opened.store.clone();
        let opened = LocalStore { store, environment: opened.environment, lease };
        let deploy_options: BTreeSet<String> =
            self.resources.iter().map(|resource| resource.id.to_string()).collect();
        let (desired, _) = opened.put(
            self.resources,
            self.unknowns,
            self.code,
            self.declared_agents,
            Purpose::deploy(self.message),
            Some(self.project),
        )?;
        let mut gone: Vec<(ResourceKey, ResourceState)> = Vec::new();
        opened.store.engine().read_states(opened.environment, &mut |row| {
            if row.state.intent.is_some() && !deploy_options.contains(row.id) {
                gone.push((row.key, ResourceState { intent: None, ..row.state.clone() }));
            }
        })?;
        let records: Vec<StateRecord<'_>> =
            gone.iter().map(|(key, state)| StateRecord { resource: *key, state }).collect();
        opened.store.engine().process_version(&opened.lease, desired.version, &records)?;
        opened.store.leases().release(&opened.lease)
    }
}

/// States that a local engine starts from.
pub(super) fn states(opened: &LocalStore) -> Result<StoredStates, StoreError> {
    StoredStates::read(&opened.store, opened.environment)
}

/// A removing version on a server, before its release.
pub(super) struct Candidate<'a> {
    pub(super) of: &'a RemoteEnvironment,
    pub(super) version: u32,
    pub(super) plan: RemovalPlan,
}

/// Result of a removal on a server.
pub(super) struct RemovalResult {
    pub(super) exit: Exit,
    /// Number of resources that may still exist.
    pub(super) left: usize,
}

impl<'a> Candidate<'a> {
    /// Stores the version without releasing it. The server adds the removals.
    pub(super) fn store(
        of: &'a RemoteEnvironment,
        upload: &VersionUpload,
    ) -> Result<Self, CliError> {
        let VersionStored { version, removal, .. } = store(of, upload)?;
        Ok(Candidate { of, version: version.number, plan: removal.unwrap_or_default() })
    }

    fn path(&self, rest: &[&str]) -> String {
        let number = self.version.to_string();
        let mut parts = vec!["versions", number.as_str()];
        parts.extend(rest);
        self.of.path(&parts)
    }

    /// Deletes the version.
    pub(super) fn discard(self) -> Result<(), CliError> {
        Ok(self.of.client.delete::<()>(&self.path(&[]))?)
    }

    /// Deletes the version unless its removals are confirmed.
    pub(super) fn confirmed(self, answer: Result<(), CliError>) -> Result<Self, CliError> {
        match answer {
            Ok(()) => Ok(self),
            Err(refusal) => {
                self.discard()?;
                Err(refusal)
            }
        }
    }

    /// Releases the version, waits and reports.
    pub(super) fn carry_out(&self, json: bool) -> Result<RemovalResult, CliError> {
        let wish = ReleaseRequest { deploy: true, verify: true };
        let released: VersionReleased = self.of.client.post(&self.path(&["release"]), &wish)?;
        let begun = released.operation.ok_or_else(|| {
            let text = format!("version {} was not released: a newer version is", self.version);
            CliError::new(text).help("`orrery version list` lists the versions")
        })?;
        let (selection, unmanaged) = (Selection::default(), Unmanaged::default());
        let unplaced = Unplaced::default();
        let run = FollowedOperation {
            of: self.of,
            json,
            selection: &selection,
            unplaced: &unplaced,
            unmanaged: &unmanaged,
            removal: Some(&self.plan),
        };
        let exit = run.follow(&begun, self.version, begun.created.0)?;
        let mut left: BTreeSet<&str> = self.plan.removed.iter().map(String::as_str).collect();
        let deployed =
            ResourceSelection { statuses: vec![Status::Deployed], ..ResourceSelection::default() };
        OnServer::new(self.of.clone()).visit(&deployed, None, find::PAGE, &mut |seen| {
            left.remove(seen.id.as_str());
            Ok(true)
        })?;
        Ok(RemovalResult { exit, left: left.len() })
    }
}
