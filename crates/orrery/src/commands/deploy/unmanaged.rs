//! What a deploy says about resources that it no longer manages.

use orrery_api::UnmanagedResources;
use orrery_compiler::export::LeftOutResources;
use orrery_executor::{Desired, declared_addresses};
use orrery_handlers::Abilities;
use orrery_model::{PathIndex, wants_absence};
use orrery_store::{RemnantScope, Store as _, StoreError};
use serde_json::{Value, json};

use crate::commands::trouble::Trouble;
use crate::{output, style};

use super::Opened;
use super::placing::inventory_here;

/// Ids that are shown to people at most.
const SHOWN_MAX: usize = 10;

/// Resources that were deployed, may still exist, and are in no version any more.
#[derive(Clone, Debug, Default)]
pub(in crate::commands) struct Unmanaged(UnmanagedResources);

impl Unmanaged {
    /// Those of a local project, without what the model has and the version lacks. To be asked after its version is stored, and before that is taken in by an engine.
    pub(super) fn of_local(
        opened: &Opened,
        desired: &Desired,
        local_agents: &[String],
        left_out: &LeftOutResources,
    ) -> Result<Self, StoreError> {
        let scope = RemnantScope::Unmanaged;
        let mut found = opened.store.records().remnants(opened.environment, scope)?;
        found.retain(|remnant| !left_out.may_have(&remnant.resource.id));
        if found.is_empty() {
            return Ok(Unmanaged::default());
        }
        let resources = &desired.resources;
        let present = resources.iter().filter(|one| !wants_absence(&one.attributes));
        let inventory = inventory_here(declared_addresses(resources), local_agents);
        let abilities = Abilities::new([]).with_inventory(inventory).on_this_machine();
        let paths = PathIndex::new(present.map(|one| &one.id).chain(&left_out.ids), &abilities);
        let orrery_handlers::Unmanaged { ids, removable } =
            orrery_handlers::Unmanaged::new(&found, &paths, &abilities);
        Ok(Unmanaged(UnmanagedResources {
            total: ids.len() as u64,
            removable: removable as u64,
            ids: ids.iter().map(ToString::to_string).collect(),
        }))
    }

    /// Those that a server told of.
    pub(in crate::commands) fn of_server(told: UnmanagedResources) -> Self {
        Unmanaged(told)
    }

    /// Says it to people, if there is something to say.
    pub(in crate::commands) fn tell(&self) {
        for line in self.lines() {
            output::say(&line);
        }
    }

    fn lines(&self) -> Vec<String> {
        let UnmanagedResources { total, removable, ids } = &self.0;
        let total = usize::try_from(*total).unwrap_or(usize::MAX);
        let (count, are) = match total {
            0 => return Vec::new(),
            1 => ("1 resource".to_owned(), "is no longer managed and stays as it is"),
            _ => (style::count(total, "resource"), "are no longer managed and stay as they are"),
        };
        let remedy = match *removable {
            0 => "",
            _ if total == 1 => "; `orrery deploy --prune` removes it",
            all if all as usize == total => "; `orrery deploy --prune` removes them",
            _ => "; `orrery deploy --prune` removes those that can be purged",
        };
        let mut lines = vec![format!("{}: {count} {are}{remedy}", style::help("note"))];
        let shown = ids.iter().take(SHOWN_MAX);
        lines.extend(shown.map(|id| format!("  {}", style::harmless(id))));
        let more = total.saturating_sub(ids.len().min(SHOWN_MAX));
        if more > 0 {
            let more = style::grouped(more);
            lines.push(format!(
                "  … and {more} more; `orrery resources --status orphaned` has them"
            ));
        }
        lines
    }

    /// The same for programs.
    pub(in crate::commands) fn as_json(&self) -> Value {
        json!(self.0)
    }
}

/// Refuses to prune while the model has resources that its version lacks: they look like resources that it no longer has.
pub(in crate::commands) fn refuse_to_prune(left_out: &LeftOutResources) -> Result<(), Trouble> {
    if left_out.is_empty() {
        return Ok(());
    }
    let count = style::count(left_out.len(), "resource");
    let are = if left_out.len() == 1 { "is" } else { "are" };
    let text = format!(
        "{count} of the model {are} left out: --prune could remove what is still wanted, so nothing is changed"
    );
    let help = "mend what is reported above, or leave out --prune: the rest is deployed and nothing is removed";
    Err(Trouble::said(text).help(help))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(total: u64, removable: u64) -> String {
        let ids = (0..total.min(100)).map(|number| format!("a::B[c,d={number}]")).collect();
        Unmanaged(UnmanagedResources { total, removable, ids }).lines().join("\n")
    }

    #[test]
    fn what_is_no_longer_managed_is_folded() {
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
