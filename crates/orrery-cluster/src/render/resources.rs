//! From intents to resource sets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use orrery_model::{AttributeHash, Attributes, Resource, ResourceId};

use super::digest::{Digests, Parts};
use super::draft::{Draft, Drafts, Kind, Source, State};
use super::rendering::{RenderError, RenderPolicy, Rendering, RestartPolicy};
use super::transition::{Side, Transition};
use super::view::{Completeness, View};
use super::write::{self, Mode, Writer};
use super::{BARRIERS, entity};
use crate::intent::ClusterIntent;

/// The resources of the transition from one intent to the next. Unless the result is settled, the
/// version of [`settled`] has to follow.
///
/// # Errors
/// Services lack requirements or wait for each other, or names cannot be part of resources.
pub fn render(
    old: Option<&ClusterIntent>,
    new: &ClusterIntent,
    policy: &RenderPolicy,
) -> Result<Rendering, RenderError> {
    let new_view = View::new(new, Completeness::Required)?;
    let new_digests = Digests::new(&new_view);
    let new_side = Side { view: &new_view, digests: &new_digests };
    let old_view = old.map(|old| View::new(old, Completeness::Any)).transpose()?;
    let old_digests = old_view.as_ref().map(Digests::new);
    let old_side = old_view.as_ref().zip(old_digests.as_ref());
    let old_side = old_side.map(|(view, digests)| Side { view, digests });
    let mut drafts = Transition::build(old_side, new_side, &policy.restart)?;
    let barriers: BTreeSet<(State, &str)> = drafts.resolve_groups().into_iter().collect();
    if let Some(old) = old_side {
        let mut before = Transition::build(None, old, &RestartPolicy::None)?;
        for barrier in before.resolve_groups() {
            if !barriers.contains(&barrier) {
                drafts.push_barrier(barrier, Vec::new(), true);
            }
        }
        if matches!(policy.restart, RestartPolicy::Rolling { .. }) {
            let mut after = Transition::build(None, new_side, &RestartPolicy::None)?;
            drafts.retain_barriers(&after.resolve_groups().into_iter().collect());
        }
    }
    let assembly = Assembly {
        drafts: &drafts,
        serial: new.serial,
        cluster: &new.cluster,
        new: (new_side, Writer::new(&new_view, &new_digests)),
        old: old_side.map(|old| (old, Writer::new(old.view, old.digests))),
    };
    let sets = assembly.sets()?;
    Ok(Rendering { sets, is_settled: !drafts.is_passing })
}

/// The resources of an intent after all transitions.
///
/// # Errors
/// As for [`render`].
pub fn settled(intent: &ClusterIntent) -> Result<Rendering, RenderError> {
    render(None, intent, &RenderPolicy::default())
}

struct Assembly<'a, 'i> {
    drafts: &'a Drafts<'i>,
    serial: u64,
    cluster: &'i str,
    new: (Side<'a, 'i>, Writer<'a, 'i>),
    old: Option<(Side<'a, 'i>, Writer<'a, 'i>)>,
}

impl<'a, 'i> Assembly<'a, 'i> {
    fn sets(&self) -> Result<BTreeMap<String, Vec<Resource>>, RenderError> {
        let drafts = &self.drafts.all;
        let ids: Vec<ResourceId> =
            drafts.iter().map(|draft| self.id(draft)).collect::<Result<_, _>>()?;
        if let Some(cycle) = self.drafts.cycle() {
            let cycle = cycle.into_iter().map(|draft| ids[draft as usize].as_str().to_owned());
            return Err(RenderError::Cycle(cycle.collect()));
        }
        let mut sets: BTreeMap<Arc<str>, Vec<Resource>> = BTreeMap::new();
        let mut hashes: Vec<AttributeHash> = Vec::with_capacity(drafts.len());
        let mut set: Arc<str> = BARRIERS.into();
        for (number, draft) in drafts.iter().enumerate() {
            // Barriers are last, behind the resources that they represent.
            let attributes = self.attributes(draft, &hashes);
            let id = ids[number].clone();
            let requires = draft.requires.iter().map(|required| ids[*required as usize].clone());
            let mut resource = Resource::new(id, attributes, requires.collect());
            let agent = resource.id.agent();
            if &*set != agent {
                set = agent.into();
            }
            resource.set = Some(Arc::clone(&set));
            hashes.push(resource.hash);
            sets.entry(Arc::clone(&set)).or_default().push(resource);
        }
        let sorted = sets.into_iter().map(|(name, mut set)| {
            set.sort_unstable_by(|one, other| one.id.cmp(&other.id));
            (name.to_string(), set)
        });
        Ok(sorted.collect())
    }

    fn source(&self, draft: &Draft<'_>) -> &(Side<'a, 'i>, Writer<'a, 'i>) {
        match (draft.source, &self.old) {
            (Source::Old, Some(old)) => old,
            _ => &self.new,
        }
    }

    fn id(&self, draft: &Draft<'_>) -> Result<ResourceId, RenderError> {
        let name = |entity: &str, agent: &str, value: &str| {
            ResourceId::new(entity, agent, "name", value).map_err(|error| RenderError::Name {
                name: value.to_owned(),
                reason: error.to_string(),
            })
        };
        if let Some((state, service)) = draft.barrier {
            return name(entity::BARRIER, BARRIERS, &format!("{}/{service}", state.name()));
        }
        let (side, _) = self.source(draft);
        let node = side.view.nodes[draft.node].name;
        let entity = match draft.kind {
            Kind::Machine => return name(entity::MACHINE, node, node),
            Kind::Reachable => return name(entity::REACHABLE, node, node),
            Kind::Toolchain => return name(entity::TOOLCHAIN, node, node),
            Kind::Installed => entity::INSTALLED,
            Kind::Quiesced => entity::QUIESCED,
            Kind::Configured => entity::CONFIGURED,
            Kind::Initialized => entity::INITIALIZED,
            Kind::Running | Kind::Barrier => entity::RUNNING,
        };
        name(entity, node, &format!("{node}/{}", side.view.services[draft.service].name))
    }

    fn attributes(&self, draft: &Draft<'_>, hashes: &[AttributeHash]) -> Attributes {
        if let Some((state, service)) = draft.barrier {
            let mut parts = Parts::new("barrier");
            for member in &draft.requires {
                parts.add_bytes(&hashes[*member as usize].0);
            }
            if state.is_passing() {
                // The same instances may stop again in a later operation.
                parts.add_number(self.serial);
            }
            let digest = parts.finish();
            return write::barrier(self.cluster, service, state.name(), &digest, draft.purged);
        }
        let (_, writer) = self.source(draft);
        let Draft { node, service, kind, purged, has_undo, is_up, .. } = *draft;
        match kind {
            Kind::Machine | Kind::Reachable => writer.machine(node, purged),
            Kind::Toolchain => writer.toolchain(node, purged),
            kind => writer.service(node, service, kind, Mode { purged, has_undo, is_up }),
        }
    }
}
