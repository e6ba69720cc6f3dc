//! Plans of operations in their API form.

use std::collections::BTreeMap;

use orrery_api::{ClusterPlan, ClusterResourceChanges, LayoutGroup, PreviewedStep};
use orrery_cluster::intent::ClusterIntent;
use orrery_cluster::planner::{Effect, Plan, Step};
use orrery_cluster::render::{self, Rendering};
use orrery_model::{AttributeHash, ResourceId};

/// Groups of identical nodes.
pub(crate) fn layout(intent: &ClusterIntent) -> Vec<LayoutGroup> {
    let mut groups: BTreeMap<(&str, &str, Vec<&str>), u32> = BTreeMap::new();
    for node in intent.nodes.values() {
        let services = node.services.keys().map(String::as_str).collect();
        *groups.entry((&node.hardwaretype, &node.imagetype, services)).or_default() += 1;
    }
    let group = |((hardwaretype, imagetype, services), count): ((&str, &str, Vec<&str>), u32)| {
        LayoutGroup {
            count,
            hardwaretype: hardwaretype.to_owned(),
            imagetype: imagetype.to_owned(),
            services: services.into_iter().map(str::to_owned).collect(),
        }
    };
    groups.into_iter().map(group).collect()
}

fn step_view(step: &Step) -> PreviewedStep {
    // Verified resources are only read, not changed.
    let action = match step.effect {
        Effect::Verify => "VERIFY",
        Effect::Apply | Effect::Remove => step.action(),
    };
    PreviewedStep {
        node: step.node.clone(),
        action: action.to_owned(),
        service: step.service.clone(),
    }
}

fn hashes(rendering: &Rendering) -> BTreeMap<&ResourceId, AttributeHash> {
    let resources = rendering.sets.values().flatten();
    resources.map(|resource| (&resource.id, resource.hash)).collect()
}

fn changes(before: Option<&ClusterIntent>, after: &Rendering) -> ClusterResourceChanges {
    let before = before.and_then(|intent| render::settled(intent).ok()).unwrap_or_default();
    let (before, now) = (hashes(&before), hashes(after));
    let mut changes = ClusterResourceChanges::default();
    for (id, hash) in &now {
        match before.get(id) {
            None => changes.added += 1,
            Some(old) if old != hash => changes.changed += 1,
            Some(_) => {}
        }
    }
    changes.removed = before.keys().filter(|id| !now.contains_key(*id)).count() as u64;
    changes
}

/// Describes the change from one intent to another.
pub(crate) fn describe(
    old: Option<&ClusterIntent>,
    new: &ClusterIntent,
    plan: &Plan,
    rendering: &Rendering,
) -> ClusterPlan {
    let mut described = ClusterPlan {
        pending_restarts: new.pending_restarts().into_keys().map(str::to_owned).collect(),
        layout: layout(new),
        steps: plan.steps.len() as u64,
        resources: changes(old, rendering),
        ..ClusterPlan::default()
    };
    for (name, node) in new.nodes_by_number() {
        match old.and_then(|old| old.nodes.get(name)) {
            None => described.added.push(name.clone()),
            Some(before) if !before.is_same_machine(node) => described.replaced.push(name.clone()),
            Some(_) => {}
        }
    }
    let gone = old.map(ClusterIntent::nodes_by_number).unwrap_or_default().into_iter();
    let gone = gone.filter(|(name, _)| !new.nodes.contains_key(*name));
    described.removed = gone.map(|(name, _)| name.clone()).collect();
    let view = |step: usize| step_view(&plan.steps[step]);
    let stages = plan.stages().into_iter();
    described.stages = stages.map(|stage| stage.into_iter().map(view).collect()).collect();
    described
}
