//! Removal of resources: builds the version that removes deployed, unmanaged resources.
//!
//! Such a version holds the desired resources, and the others with `purged` set and their
//! requirements reversed, so that removal uses normal handler runs. A version with the desired
//! resources alone follows.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use serde_json::Value;

use crate::paths::identifying_path;
use crate::{
    Attributes, HandlerSupport, MACHINE_FACTS_ENTITY, PathIndex, Resource, ResourceFlags,
    ResourceId,
};

/// Attribute that is true if a resource must not exist.
const PURGED: &str = "purged";

/// A resource that was deployed and may still exist.
#[derive(Clone, Debug, PartialEq)]
pub struct DeployedResource {
    /// Last intent that creates it; if none is known, the last intent that removes it.
    pub resource: Resource,
    /// True if the requirements are already those of a removal, and name resources to remove first.
    pub is_removal: bool,
    /// True if the newest version contains it.
    pub is_managed: bool,
    /// True if the version last processed by the engine contains it.
    pub was_managed: bool,
    /// True if no deploy is known to have created it: its first recorded deploy found it in place.
    pub is_adopted: bool,
}

impl DeployedResource {
    /// False for a resource that is only read: without it, nothing is left to manage.
    pub fn leaves_a_trace(&self) -> bool {
        self.resource.id.entity() != MACHINE_FACTS_ENTITY
    }
}

/// Reason that a resource is not removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetainReason {
    /// Its type cannot be purged.
    NotPurgeable,
    /// No handler of its type is available.
    NoHandler,
    /// Its handler only reports.
    ReportOnly,
    /// An attribute was never known.
    Undefined,
    /// The model still has its path on the same machine, under another id.
    StillManaged,
    /// Adopted, not created.
    Adopted,
}

impl fmt::Display for RetainReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RetainReason::NotPurgeable => "its type cannot be purged",
            RetainReason::NoHandler => "the model has no handler for its type any more",
            RetainReason::ReportOnly => "it is only reported on",
            RetainReason::Undefined => "an attribute of it is not known",
            RetainReason::StillManaged => "the model has the same path on the same machine",
            RetainReason::Adopted => "it existed before its first recorded deploy",
        })
    }
}

/// An unmanaged resource that is not removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetainedResource {
    pub id: ResourceId,
    pub reason: RetainReason,
}

/// Plan for the removal of resources.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Removal {
    /// All resources of the removing version, sorted by id.
    pub resources: Vec<Resource>,
    /// Removed resources, in a valid order of removal.
    pub removed: Vec<ResourceId>,
    /// Retained resources, sorted by id.
    pub kept: Vec<RetainedResource>,
}

/// Returns the `purged` attribute; `None` if the type does not have it.
pub fn purged(attributes: &Attributes) -> Option<bool> {
    match attributes.to_object().get(PURGED)? {
        Value::Bool(purged) => Some(*purged),
        _ => Some(false),
    }
}

impl Attributes {
    /// Returns the attributes with `purged` set to this value.
    #[must_use]
    pub fn with_purged(&self, purged: bool) -> Attributes {
        let mut object = self.to_object();
        object.insert(PURGED.to_owned(), Value::Bool(purged));
        Attributes::from_object(object)
    }
}

/// Returns true if the attributes require that the resource does not exist.
pub fn wants_absence(attributes: &Attributes) -> bool {
    // A cheap test first: parsing a large content is slow.
    attributes.as_str().contains("\"purged\":true") && purged(attributes) == Some(true)
}

fn retain_reason(resource: &Resource, handlers: &dyn HandlerSupport) -> Option<RetainReason> {
    let entity = resource.id.entity();
    if purged(&resource.attributes).is_none() || !handlers.removes(entity) {
        Some(RetainReason::NotPurgeable)
    } else if resource.flags.report_only {
        Some(RetainReason::ReportOnly)
    } else if resource.flags.undefined {
        Some(RetainReason::Undefined)
    } else if !handlers.handles(entity) {
        Some(RetainReason::NoHandler)
    } else {
        None
    }
}

/// Known resources that no deploy created. A resource with the path of a created one counts as
/// created under another id.
struct AdoptedResources<'a> {
    created: PathIndex<'a>,
    handlers: &'a dyn HandlerSupport,
}

impl<'a> AdoptedResources<'a> {
    fn new(deployed: &'a [DeployedResource], handlers: &'a dyn HandlerSupport) -> Self {
        let created = deployed.iter().filter(|one| !one.is_adopted).map(|one| &one.resource.id);
        AdoptedResources { created: PathIndex::new(created, handlers), handlers }
    }

    fn has(&self, deployed_resource: &DeployedResource) -> bool {
        let id = &deployed_resource.resource.id;
        deployed_resource.is_adopted
            && self.handlers.can_preexist(id.entity())
            && !self.created.has(id)
    }
}

/// Plans the removal of known resources that are not desired. Dependents are removed first. A
/// desired former dependent is updated before its former requirement is removed; a desired resource
/// that replaces a removed one comes after it.
pub fn plan_removal(
    desired: Vec<Resource>,
    deployed: &[DeployedResource],
    handlers: &dyn HandlerSupport,
) -> Removal {
    let wanted_ids: BTreeSet<&ResourceId> = desired.iter().map(|resource| &resource.id).collect();
    let unwanted: Vec<&DeployedResource> = deployed
        .iter()
        .filter(|one| !wanted_ids.contains(&one.resource.id) && one.leaves_a_trace())
        .collect();
    if unwanted.is_empty() {
        return Removal { resources: desired, ..Removal::default() }.sorted();
    }
    let adopted = AdoptedResources::new(deployed, handlers);
    let present = desired.iter().filter(|one| !wants_absence(&one.attributes));
    let paths = PathIndex::new(present.map(|one| &one.id), handlers);
    let (mut removed, mut kept) = (BTreeMap::new(), Vec::new());
    for deployed_resource in unwanted {
        let id = &deployed_resource.resource.id;
        let reason = paths.has(id).then_some(RetainReason::StillManaged);
        let reason = reason.or_else(|| retain_reason(&deployed_resource.resource, handlers));
        match reason.or_else(|| adopted.has(deployed_resource).then_some(RetainReason::Adopted)) {
            Some(reason) => kept.push(RetainedResource { id: id.clone(), reason }),
            None => {
                removed.insert(id, deployed_resource);
            }
        }
    }
    kept.sort_unstable_by(|a, b| a.id.cmp(&b.id));
    let dependents = dependents(deployed);
    let stays = |id: &ResourceId| removed.contains_key(id) || wanted_ids.contains(id);
    let mut requires: BTreeMap<&ResourceId, BTreeSet<&ResourceId>> =
        removed.keys().map(|id| (*id, nearest_dependents(id, &dependents, &stays))).collect();
    break_cycles(&mut requires);
    let removed_ids = topological_order(&requires);

    let mut graph = Graph::new(&desired, &requires);
    let mut added: BTreeMap<&ResourceId, BTreeSet<&ResourceId>> = BTreeMap::new();
    for (of, first) in successions(&desired, &removed, handlers) {
        if !graph.reaches(first, of) {
            graph.add(of, first);
            added.entry(of).or_default().insert(first);
        }
    }
    let removals = removed.iter().map(|(id, deployed_resource)| {
        let first = requires.get(id).into_iter().flatten().map(|id| (*id).clone()).collect();
        let attributes = deployed_resource.resource.attributes.with_purged(true);
        Resource {
            set: deployed_resource.resource.set.clone(),
            source: deployed_resource.resource.source.clone(),
            // A removal sends and receives no events, and runs once.
            flags: ResourceFlags {
                receive_events: false,
                removal: true,
                ..ResourceFlags::default()
            },
            ..Resource::new((*id).clone(), attributes, first)
        }
    });
    let removals: Vec<Resource> = removals.collect();
    let added: BTreeMap<ResourceId, Vec<ResourceId>> = added
        .into_iter()
        .map(|(id, first)| (id.clone(), first.into_iter().cloned().collect()))
        .collect();
    let removed: Vec<ResourceId> = removed_ids.into_iter().cloned().collect();
    let mut resources = desired;
    for resource in &mut resources {
        if let Some(first) = added.get(&resource.id) {
            resource.requires.extend(first.iter().cloned());
            resource.requires.sort_unstable();
            resource.requires.dedup();
        }
    }
    resources.extend(removals);
    Removal { resources, removed, kept }.sorted()
}

impl Removal {
    fn sorted(mut self) -> Self {
        self.resources.sort_by(|a, b| a.id.cmp(&b.id));
        self
    }
}

/// Returns, for each resource, the dependents to remove before it.
fn dependents(deployed: &[DeployedResource]) -> BTreeMap<&ResourceId, BTreeSet<&ResourceId>> {
    let mut dependents: BTreeMap<&ResourceId, BTreeSet<&ResourceId>> = BTreeMap::new();
    for deployed_resource in deployed {
        let own = &deployed_resource.resource.id;
        for other in &deployed_resource.resource.requires {
            let (of, first) =
                if deployed_resource.is_removal { (own, other) } else { (other, own) };
            dependents.entry(of).or_default().insert(first);
        }
    }
    dependents
}

/// Returns the nearest dependents that are part of the version, skipping over the others.
fn nearest_dependents<'a>(
    id: &'a ResourceId,
    dependents: &BTreeMap<&'a ResourceId, BTreeSet<&'a ResourceId>>,
    stays: &dyn Fn(&ResourceId) -> bool,
) -> BTreeSet<&'a ResourceId> {
    let (mut found, mut seen) = (BTreeSet::new(), BTreeSet::from([id]));
    let mut pending = vec![id];
    while let Some(id) = pending.pop() {
        for dependent in dependents.get(id).into_iter().flatten() {
            if !seen.insert(dependent) {
                continue;
            }
            match stays(dependent) {
                true => {
                    found.insert(*dependent);
                }
                false => pending.push(dependent),
            }
        }
    }
    found
}

/// Removes the requirements within cycles: intents of different versions may require each other.
fn break_cycles<'a>(requires: &mut BTreeMap<&'a ResourceId, BTreeSet<&'a ResourceId>>) {
    let ordered: BTreeSet<&ResourceId> = topological_order(requires).into_iter().collect();
    let left: BTreeSet<&ResourceId> =
        requires.keys().copied().filter(|id| !ordered.contains(id)).collect();
    for id in &left {
        if let Some(first) = requires.get_mut(id) {
            first.retain(|other| !left.contains(other));
        }
    }
}

/// Returns the keys in topological order, without those in cycles.
fn topological_order<'a>(
    requires: &BTreeMap<&'a ResourceId, BTreeSet<&'a ResourceId>>,
) -> Vec<&'a ResourceId> {
    let mut waiting: BTreeMap<&ResourceId, usize> = BTreeMap::new();
    let mut then: BTreeMap<&ResourceId, Vec<&'a ResourceId>> = BTreeMap::new();
    for (id, first) in requires {
        let own = first.iter().filter(|other| requires.contains_key(*other));
        waiting.insert(id, own.clone().count());
        own.for_each(|other| then.entry(other).or_default().push(id));
    }
    let ready = requires.keys().filter(|id| waiting.get(*id) == Some(&0));
    let mut ready: VecDeque<&'a ResourceId> = ready.copied().collect();
    let mut ordered = Vec::with_capacity(requires.len());
    while let Some(id) = ready.pop_front() {
        ordered.push(id);
        for next in then.get(id).into_iter().flatten() {
            if let Some(count) = waiting.get_mut(next) {
                *count -= 1;
                if *count == 0 {
                    ready.push_back(next);
                }
            }
        }
    }
    ordered
}

/// Returns pairs of a desired resource and a resource to remove before it: because both have the
/// same path or value under different ids, or because the desired one is purged itself and the
/// other needed it.
fn successions<'a>(
    desired: &'a [Resource],
    removed: &BTreeMap<&'a ResourceId, &'a DeployedResource>,
    handlers: &dyn HandlerSupport,
) -> Vec<(&'a ResourceId, &'a ResourceId)> {
    if removed.is_empty() {
        return Vec::new();
    }
    let location =
        |id: &ResourceId| identifying_path(id, handlers).unwrap_or_else(|| id.value().to_owned());
    let mut places: BTreeMap<String, Vec<&'a ResourceId>> = BTreeMap::new();
    let mut needed: BTreeMap<&ResourceId, Vec<&'a ResourceId>> = BTreeMap::new();
    for (id, deployed_resource) in removed {
        places.entry(location(id)).or_default().push(id);
        if !deployed_resource.is_removal {
            for other in &deployed_resource.resource.requires {
                needed.entry(other).or_default().push(id);
            }
        }
    }
    let mut found = Vec::new();
    for resource in desired {
        let same = places.get(&location(&resource.id)).into_iter().flatten();
        found.extend(same.map(|first| (&resource.id, *first)));
        if let Some(users) = needed.get(&resource.id)
            && purged(&resource.attributes) == Some(true)
        {
            found.extend(users.iter().map(|first| (&resource.id, *first)));
        }
    }
    found
}

/// Requirement graph of the version under construction.
struct Graph<'a> {
    requires: BTreeMap<&'a ResourceId, Vec<&'a ResourceId>>,
}

impl<'a> Graph<'a> {
    fn new(
        desired: &'a [Resource],
        removals: &BTreeMap<&'a ResourceId, BTreeSet<&'a ResourceId>>,
    ) -> Self {
        let desired = desired.iter().map(|one| (&one.id, one.requires.iter().collect()));
        let removals = removals.iter().map(|(id, first)| (*id, first.iter().copied().collect()));
        Graph { requires: desired.chain(removals).collect() }
    }

    fn add(&mut self, of: &'a ResourceId, first: &'a ResourceId) {
        self.requires.entry(of).or_default().push(first);
    }

    /// Returns true if `from` requires `to`, directly or not.
    fn reaches(&self, from: &'a ResourceId, to: &ResourceId) -> bool {
        let (mut pending, mut seen) = (vec![from], BTreeSet::from([from]));
        while let Some(id) = pending.pop() {
            if id == to {
                return true;
            }
            let next = self.requires.get(id).into_iter().flatten();
            pending.extend(next.copied().filter(|id| seen.insert(id)));
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct All;

    impl HandlerSupport for All {
        fn handles(&self, entity: &str) -> bool {
            entity != "a::Gone"
        }

        fn removes(&self, entity: &str) -> bool {
            entity != "exec::Run"
        }

        fn resolve_path(&self, _agent: &str, path: &str) -> String {
            crate::flatten_path(path)
        }
    }

    fn id(text: &str) -> ResourceId {
        match text.split_once(' ') {
            None => ResourceId::new("std::File", "localhost", "path", text).unwrap(),
            Some((entity, value)) => ResourceId::new(entity, "localhost", "path", value).unwrap(),
        }
    }

    fn resource(name: &str, requires: &[&str]) -> Resource {
        let attributes = Attributes::parse(r#"{"owner":"ann","purged":false}"#).unwrap();
        Resource::new(id(name), attributes, requires.iter().map(|name| id(name)).collect())
    }

    fn deployed_resource(name: &str, requires: &[&str]) -> DeployedResource {
        DeployedResource {
            resource: resource(name, requires),
            is_removal: false,
            is_managed: false,
            was_managed: false,
            is_adopted: false,
        }
    }

    fn names(ids: &[ResourceId]) -> Vec<&str> {
        ids.iter().map(ResourceId::value).collect()
    }

    fn requires_of<'a>(removal: &'a Removal, name: &str) -> Vec<&'a str> {
        let found = removal.resources.iter().find(|one| one.id == id(name)).unwrap();
        names(&found.requires)
    }

    #[test]
    fn what_is_only_read_is_neither_removed_nor_kept() {
        let facts = DeployedResource {
            resource: Resource::machine_facts("localhost").unwrap(),
            ..deployed_resource("/a", &[])
        };
        let removal = plan_removal(Vec::new(), &[facts, deployed_resource("/a", &[])], &All);
        assert_eq!((names(&removal.removed), removal.kept.len()), (vec!["/a"], 0));
    }

    #[test]
    fn dependents_go_first() {
        let deployed = [
            deployed_resource("/d", &[]),
            deployed_resource("/d/a", &["/d"]),
            deployed_resource("/d/b", &["/d", "/d/a"]),
        ];
        let removal = plan_removal(Vec::new(), &deployed, &All);
        assert_eq!(names(&removal.removed), ["/d/b", "/d/a", "/d"]);
        assert_eq!(requires_of(&removal, "/d"), ["/d/a", "/d/b"]);
        assert_eq!(requires_of(&removal, "/d/a"), ["/d/b"]);
        assert!(requires_of(&removal, "/d/b").is_empty());
        for resource in &removal.resources {
            assert_eq!(resource.attributes.as_str(), r#"{"owner":"ann","purged":true}"#);
            assert_eq!(resource.hash, resource.attributes.hash(&resource.id));
        }
    }

    #[test]
    fn retained_resources_are_reported_and_keep_the_order() {
        let mut deployed = [
            deployed_resource("/d", &[]),
            deployed_resource("exec::Run make", &["/d"]),
            deployed_resource("/d/a", &["exec::Run make"]),
            deployed_resource("a::Gone x", &[]),
        ];
        let removal = plan_removal(Vec::new(), &deployed, &All);
        assert_eq!(names(&removal.removed), ["/d/a", "/d"]);
        assert_eq!(requires_of(&removal, "/d"), ["/d/a"]);
        let reasons: Vec<RetainReason> = removal.kept.iter().map(|kept| kept.reason).collect();
        assert_eq!(reasons, [RetainReason::NoHandler, RetainReason::NotPurgeable]);
        deployed[0].resource.attributes = Attributes::parse(r#"{"state":"on"}"#).unwrap();
        deployed[2].resource.flags.report_only = true;
        let removal = plan_removal(Vec::new(), &deployed, &All);
        assert!(removal.removed.is_empty() && removal.resources.is_empty());
        assert_eq!(removal.kept.len(), 4);
    }

    #[test]
    fn a_desired_dependent_is_updated_before_its_requirement_is_removed() {
        let deployed = [deployed_resource("/key", &[]), deployed_resource("/config", &["/key"])];
        let removal = plan_removal(vec![resource("/config", &[])], &deployed, &All);
        assert_eq!(names(&removal.removed), ["/key"]);
        assert_eq!(requires_of(&removal, "/key"), ["/config"]);
        assert!(requires_of(&removal, "/config").is_empty());
    }

    #[test]
    fn a_replacement_comes_after_the_removal() {
        let deployed = [deployed_resource("std::Directory /x", &[])];
        let removal = plan_removal(vec![resource("/x", &[])], &deployed, &All);
        assert_eq!(requires_of(&removal, "/x"), ["/x"]);
        assert!(requires_of(&removal, "std::Directory /x").is_empty());
        // Unless that would be a cycle: the file needed the directory at its own path.
        let deployed = [
            deployed_resource("std::Directory /x", &[]),
            deployed_resource("/x", &["std::Directory /x"]),
        ];
        let removal = plan_removal(vec![resource("/x", &[])], &deployed, &All);
        assert!(requires_of(&removal, "/x").is_empty());
        assert_eq!(requires_of(&removal, "std::Directory /x"), ["/x"]);
    }

    #[test]
    fn a_purged_resource_is_removed_after_its_dependents() {
        let deployed = [deployed_resource("/d", &[]), deployed_resource("/d/a", &["/d"])];
        let mut directory = resource("/d", &[]);
        directory.attributes = directory.attributes.with_purged(true);
        let removal = plan_removal(vec![directory], &deployed, &All);
        assert_eq!(requires_of(&removal, "/d"), ["/d/a"]);
        assert!(requires_of(&removal, "/d/a").is_empty());
    }

    #[test]
    fn a_removal_that_was_begun_is_not_turned_around() {
        let mut directory = deployed_resource("/d", &["/d/a"]);
        directory.is_removal = true;
        let deployed = [directory, deployed_resource("/d/a", &[])];
        let removal = plan_removal(Vec::new(), &deployed, &All);
        assert_eq!(names(&removal.removed), ["/d/a", "/d"]);
    }

    #[test]
    fn cycles_of_different_versions_are_broken() {
        let deployed = [
            deployed_resource("/a", &["/b"]),
            deployed_resource("/b", &["/a"]),
            deployed_resource("/c", &["/a"]),
        ];
        let removal = plan_removal(Vec::new(), &deployed, &All);
        assert_eq!(removal.removed.len(), 3);
        assert_eq!(requires_of(&removal, "/a"), ["/c"]);
    }

    #[test]
    fn adopted_resources_stay_unless_created_under_another_id() {
        let adopted =
            |name: &str| DeployedResource { is_adopted: true, ..deployed_resource(name, &[]) };
        let deployed = [adopted("/etc/hosts"), deployed_resource("/a", &[])];
        let removal = plan_removal(Vec::new(), &deployed, &All);
        assert_eq!(names(&removal.removed), ["/a"]);
        let reason = RetainReason::Adopted;
        assert_eq!(removal.kept, [RetainedResource { id: id("/etc/hosts"), reason }]);
        let deployed = [adopted("/a"), deployed_resource("//a", &[])];
        assert_eq!(plan_removal(Vec::new(), &deployed, &All).removed.len(), 2);
    }

    #[test]
    fn a_desired_path_in_another_spelling_stays() {
        let deployed = [
            deployed_resource("/x/../d/a", &[]),
            deployed_resource("/d/./b", &[]),
            deployed_resource("/d/c", &[]),
        ];
        let removal =
            plan_removal(vec![resource("/d/a", &[]), resource("/d/b", &[])], &deployed, &All);
        assert_eq!(names(&removal.removed), ["/d/c"]);
        let reasons: Vec<RetainReason> = removal.kept.iter().map(|kept| kept.reason).collect();
        assert_eq!(reasons, [RetainReason::StillManaged; 2]);
        // A resource of another type with the same path comes after the removed one, in any
        // spelling.
        let deployed = [deployed_resource("std::Directory /x/../y", &[])];
        let removal = plan_removal(vec![resource("/y", &[])], &deployed, &All);
        assert_eq!(requires_of(&removal, "/y"), ["/x/../y"]);
    }
}
