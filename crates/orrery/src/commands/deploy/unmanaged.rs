//! Report about resources that a deploy no longer manages.

use orrery_api::UnmanagedResources;
use orrery_compiler::export::ExcludedResources;
use orrery_executor::{DesiredState, declared_addresses};
use orrery_handlers::HandlerCapabilities;
use orrery_model::{PathIndex, wants_absence};
use orrery_store::{RemovalScope, StoreError};
use serde_json::{Value, json};

use crate::error::CliError;
use crate::{output, style};

use super::LocalStore;
use super::declared_agents::DeclaredAgents;
use super::unplaced::inventory_here;

/// Maximum number of listed ids.
const SHOWN_MAX: usize = 10;

/// Deployed resources that may still exist and are in no version.
#[derive(Clone, Debug, Default)]
pub(in crate::commands) struct Unmanaged(UnmanagedResources);

impl Unmanaged {
    /// Unmanaged resources of a local project, without those that the model has but could not
    /// export. Call it after the version is stored and before an engine processes it.
    pub(super) fn of_local(
        opened: &LocalStore,
        desired: &DesiredState,
        declared_agents: &DeclaredAgents,
        left_out: &ExcludedResources,
    ) -> Result<Self, StoreError> {
        let scope = RemovalScope::Unmanaged;
        let mut found = opened.store.resources().unmanaged(opened.environment, scope)?;
        found.retain(|remnant| !left_out.may_have(&remnant.resource.id));
        if found.is_empty() {
            return Ok(Unmanaged::default());
        }
        let resources = &desired.resources;
        let present = resources.iter().filter(|one| !wants_absence(&one.attributes));
        let inventory = inventory_here(declared_addresses(resources), declared_agents);
        let capabilities = HandlerCapabilities::new([]).with_inventory(inventory).on_this_machine();
        let paths = PathIndex::new(present.map(|one| &one.id).chain(&left_out.ids), &capabilities);
        let orrery_handlers::Unmanaged { ids, removable } =
            orrery_handlers::Unmanaged::new(&found, &paths, &capabilities);
        Ok(Unmanaged(UnmanagedResources {
            total: ids.len() as u64,
            removable: removable as u64,
            ids: ids.iter().map(ToString::to_string).collect(),
        }))
    }

    /// Unmanaged resources that a server reported.
    pub(in crate::commands) fn of_server(resources: UnmanagedResources) -> Self {
        Unmanaged(resources)
    }

    /// Prints the report, if there are any.
    pub(in crate::commands) fn report(&self) {
        for line in self.lines() {
            output::print_status(&line);
        }
    }

    fn lines(&self) -> Vec<String> {
        let UnmanagedResources { total, removable, ids } = &self.0;
        let total = usize::try_from(*total).unwrap_or(usize::MAX);
        let (count, are) = match total {
            0 => return Vec::new(),
            1 => ("1 resource".to_owned(), "is no longer managed and is left in place"),
            _ => (style::count(total, "resource"), "are no longer managed and are left in place"),
        };
        let remedy = match *removable {
            0 => "",
            _ if total == 1 => "; `orrery deploy --prune` removes it",
            all if all as usize == total => "; `orrery deploy --prune` removes them",
            _ => "; `orrery deploy --prune` removes those that can be purged",
        };
        let mut lines = vec![format!("{}: {count} {are}{remedy}", style::help("note"))];
        let shown = ids.iter().take(SHOWN_MAX);
        lines.extend(shown.map(|id| format!("  {}", style::sanitize(id))));
        let more = total.saturating_sub(ids.len().min(SHOWN_MAX));
        if more > 0 {
            let more = style::grouped(more);
            lines.push(format!(
                "  … and {more} more; `orrery resources --status orphaned` lists them"
            ));
        }
        lines
    }

    /// JSON form.
    pub(in crate::commands) fn as_json(&self) -> Value {
        json!(self.0)
    }
}

/// Rejects --prune while resources of the model are left out: they would look unmanaged.
pub(in crate::commands) fn refuse_to_prune(left_out: &ExcludedResources) -> Result<(), CliError> {
    if left_out.is_empty() {
        return Ok(());
    }
    let count = style::count(left_out.len(), "resource");
    let are = if left_out.len() == 1 { "is" } else { "are" };
    let text = format!(
        "{count} of the model {are} left out: --prune could remove resources that are still in the model; nothing was changed"
    );
    let help = "fix the problems reported above, or omit --prune to deploy the rest without removing anything";
    Err(CliError::new(text).help(help))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(total: u64, removable: u64) -> String {
        let ids = (0..total.min(100)).map(|number| format!("a::B[c,d={number}]")).collect();
        Unmanaged(UnmanagedResources { total, removable, ids }).lines().join("\n")
    }

    #[test]
    fn unmanaged_resources_are_folded() {
        assert_eq!(lines(0, 0), "");
        let one = lines(1, 1);
        assert!(one.contains("1 resource is no longer managed"), "{one}");
        assert!(one.contains("--prune` removes it\n  a::B[c,d=0]"), "{one}");
        assert!(!lines(2, 0).contains("--prune"));
        assert!(lines(2, 1).contains("those that can be purged"));
        let many = lines(3000, 3000);
        assert!(many.contains("… and 2,990 more") || many.contains("… and 2990 more"), "{many}");
        assert_eq!(many.lines().count(), 12);
    }
}
