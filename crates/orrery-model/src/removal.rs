//! Removal of resources: the version that takes away what was deployed and is no longer wanted.
//!
//! Such a version holds the wanted resources, and the others with `purged` set and their requirements reversed, so that the one
//! way to run a handler also removes. It is followed by a version with the wanted resources alone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use serde_json::Value;

use crate::paths::path_of;
use crate::{Attributes, Handles, PathIndex, Resource, ResourceFlags, ResourceId};

/// Attribute that says whether a resource must not exist.
const PURGED: &str = "purged";

/// A resource that was deployed and may still exist.
#[derive(Clone, Debug, PartialEq)]
pub struct Remnant {
    /// The last intent to have it; if none is known, the last intent to remove it.
    pub resource: Resource,
    /// Whether the requirements are those of a removal already: what has to be removed before it.
    pub is_removal: bool,
    /// Whether the newest version has it.
    pub is_managed: bool,
    /// Whether its engine knows it as wanted: the version that an engine took in last has it.
    pub was_managed: bool,
    /// Whether it is not known to be created by a deploy: its first recorded deploy found it in place.
    pub is_adopted: bool,
}

/// Reason why a resource is not removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptReason {
    /// Its type cannot be purged.
    NotPurgeable,
    /// No handler of its type is at hand.
    NoHandler,
    /// Its handler only reports.
    ReportOnly,
    /// An attribute of it was never known.
    Undefined,
    /// The model still has its path on the same machine, under another id.
    StillWanted,
    /// It was adopted, not created.
    Adopted,
}

impl fmt::Display for KeptReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeptReason::NotPurgeable => "its type cannot be purged",
            KeptReason::NoHandler => "the model has no handler for its type any more",
            KeptReason::ReportOnly => "it is only reported on",
            KeptReason::Undefined => "an attribute of it is not known",
            KeptReason::StillWanted => "the model has the same path on the same machine",
            KeptReason::Adopted => "it existed before its first recorded deploy",
        })
    }
}

/// A resource that stays although it is no longer wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub id: ResourceId,
    pub reason: KeptReason,
}

/// What has to be done to remove resources.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Removal {
    /// All resources of the version that removes, in the order of their ids.
    pub resources: Vec<Resource>,
    /// Those that are removed, in an order in which that is possible.
    pub removed: Vec<ResourceId>,
    /// Those that cannot be removed, in the order of their ids.
    pub kept: Vec<Kept>,
}

/// Whether attributes say that the resource must not exist; `None` if its type does not know that.
pub fn purged(attributes: &Attributes) -> Option<bool> {
    match attributes.to_object().get(PURGED)? {
        Value::Bool(purged) => Some(*purged),
        _ => Some(false),
    }
}

impl Attributes {
    /// The same, of a resource that must or must not exist.
    #[must_use]
    pub fn with_purged(&self, purged: bool) -> Attributes {
        let mut object = self.to_object();
        object.insert(PURGED.to_owned(), Value::Bool(purged));
        Attributes::from_object(object)
    }
}

/// Whether attributes say that the resource must not exist.
pub fn wants_absence(attributes: &Attributes) -> bool {
    // Most do not, and parsing a large content to find out is slow.
    attributes.as_str().contains("\"purged\":true") && purged(attributes) == Some(true)
}

fn kept_reason(resource: &Resource, handlers: &dyn Handles) -> Option<KeptReason> {
    let entity = resource.id.entity();
    if purged(&resource.attributes).is_none() || !handlers.removes(entity) {
        Some(KeptReason::NotPurgeable)
    } else if resource.flags.report_only {
        Some(KeptReason::ReportOnly)
    } else if resource.flags.undefined {
        Some(KeptReason::Undefined)
    } else if !handlers.handles(entity) {
        Some(KeptReason::NoHandler)
    } else {
        None
    }
}

/// Known resources that deploys did not create. One that has the path of a created one was created under another id.
struct Adopted<'a> {
    created: PathIndex<'a>,
    handlers: &'a dyn Handles,
}

impl<'a> Adopted<'a> {
    fn new(known: &'a [Remnant], handlers: &'a dyn Handles) -> Self {
        let created = known.iter().filter(|one| !one.is_adopted).map(|one| &one.resource.id);
        Adopted { created: PathIndex::new(created, handlers), handlers }
    }

    fn has(&self, remnant: &Remnant) -> bool {
        let id = &remnant.resource.id;
        remnant.is_adopted && self.handlers.can_preexist(id.entity()) && !self.created.has(id)
    }
}

/// Works out how to remove those of the known resources that are not wanted. Dependents go first. What is wanted and was a dependent
/// is brought up to date before what it needed goes; what is wanted in the place of something that goes comes after it.
pub fn plan_removal(wanted: Vec<Resource>, known: &[Remnant], handlers: &dyn Handles) -> Removal {
    let wanted_ids: BTreeSet<&ResourceId> = wanted.iter().map(|resource| &resource.id).collect();
    let unwanted: Vec<&Remnant> =
        known.iter().filter(|one| !wanted_ids.contains(&one.resource.id)).collect();
    if unwanted.is_empty() {
        return Removal { resources: wanted, ..Removal::default() }.sorted();
    }
    let adopted = Adopted::new(known, handlers);
    let present = wanted.iter().filter(|one| !wants_absence(&one.attributes));
    let paths = PathIndex::new(present.map(|one| &one.id), handlers);
    let (mut removed, mut kept) = (BTreeMap::new(), Vec::new());
    for remnant in unwanted {
        let id = &remnant.resource.id;
        let reason = paths.has(id).then_some(KeptReason::StillWanted);
        let reason = reason.or_else(|| kept_reason(&remnant.resource, handlers));
        match reason.or_else(|| adopted.has(remnant).then_some(KeptReason::Adopted)) {
            Some(reason) => kept.push(Kept { id: id.clone(), reason }),
            None => {
                removed.insert(id, remnant);
            }
        }
    }
    kept.sort_unstable_by(|a, b| a.id.cmp(&b.id));
    let dependents = dependents(known);
    let stays = |id: &ResourceId| removed.contains_key(id) || wanted_ids.contains(id);
    let mut requires: BTreeMap<&ResourceId, BTreeSet<&ResourceId>> =
        removed.keys().map(|id| (*id, nearest(id, &dependents, &stays))).collect();
    break_cycles(&mut requires);
    let removed_ids = in_order(&requires);

    let mut graph = Graph::new(&wanted, &requires);
    let mut added: BTreeMap<&ResourceId, BTreeSet<&ResourceId>> = BTreeMap::new();
    for (of, first) in successions(&wanted, &removed, handlers) {
        if !graph.reaches(first, of) {
            graph.add(of, first);
            added.entry(of).or_default().insert(first);
        }
    }
    let removals = removed.iter().map(|(id, remnant)| {
        let first = requires.get(id).into_iter().flatten().map(|id| (*id).clone()).collect();
        let attributes = remnant.resource.attributes.with_purged(true);
        Resource {
            set: remnant.resource.set.clone(),
            source: remnant.resource.source.clone(),
            // Nothing is to happen because something goes, and what goes does so once.
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
    let mut resources = wanted;
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

/// For each resource, those that have to go before it.
fn dependents(known: &[Remnant]) -> BTreeMap<&ResourceId, BTreeSet<&ResourceId>> {
    let mut dependents: BTreeMap<&ResourceId, BTreeSet<&ResourceId>> = BTreeMap::new();
    for remnant in known {
        let own = &remnant.resource.id;
        for other in &remnant.resource.requires {
            let (of, first) = if remnant.is_removal { (own, other) } else { (other, own) };
            dependents.entry(of).or_default().insert(first);
        }
    }
    dependents
}

/// Dependents that the version has; those of the others in their place.
fn nearest<'a>(
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

/// Intents of different versions may require each other. What is part of a circle waits for nothing else in it.
fn break_cycles<'a>(requires: &mut BTreeMap<&'a ResourceId, BTreeSet<&'a ResourceId>>) {
    let ordered: BTreeSet<&ResourceId> = in_order(requires).into_iter().collect();
    let left: BTreeSet<&ResourceId> =
        requires.keys().copied().filter(|id| !ordered.contains(id)).collect();
    for id in &left {
        if let Some(first) = requires.get_mut(id) {
            first.retain(|other| !left.contains(other));
        }
    }
}

/// The keys so that each comes after what it requires; those in circles are left out.
fn in_order<'a>(
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

/// Wanted resources, each with one that has to go before it: because it has the same place in the world under another id, or because
/// it is to be purged itself and the other one needed it.
fn successions<'a>(
    wanted: &'a [Resource],
    removed: &BTreeMap<&'a ResourceId, &'a Remnant>,
    handlers: &dyn Handles,
) -> Vec<(&'a ResourceId, &'a ResourceId)> {
    if removed.is_empty() {
        return Vec::new();
    }
    let place = |id: &ResourceId| path_of(id, handlers).unwrap_or_else(|| id.value().to_owned());
    let mut places: BTreeMap<String, Vec<&'a ResourceId>> = BTreeMap::new();
    let mut needed: BTreeMap<&ResourceId, Vec<&'a ResourceId>> = BTreeMap::new();
    for (id, remnant) in removed {
        places.entry(place(id)).or_default().push(id);
        if !remnant.is_removal {
            for other in &remnant.resource.requires {
                needed.entry(other).or_default().push(id);
            }
        }
    }
    let mut found = Vec::new();
    for resource in wanted {
        let same = places.get(&place(&resource.id)).into_iter().flatten();
        found.extend(same.map(|first| (&resource.id, *first)));
        if let Some(users) = needed.get(&resource.id)
            && purged(&resource.attributes) == Some(true)
        {
            found.extend(users.iter().map(|first| (&resource.id, *first)));
        }
    }
    found
}

/// Requirements of a version that is being put together.
struct Graph<'a> {
    requires: BTreeMap<&'a ResourceId, Vec<&'a ResourceId>>,
}

impl<'a> Graph<'a> {
    fn new(
        wanted: &'a [Resource],
        removals: &BTreeMap<&'a ResourceId, BTreeSet<&'a ResourceId>>,
    ) -> Self {
        let wanted = wanted.iter().map(|one| (&one.id, one.requires.iter().collect()));
        let removals = removals.iter().map(|(id, first)| (*id, first.iter().copied().collect()));
        Graph { requires: wanted.chain(removals).collect() }
    }

    fn add(&mut self, of: &'a ResourceId, first: &'a ResourceId) {
        self.requires.entry(of).or_default().push(first);
    }

    /// Whether `from` requires `to`, directly or not.
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

    impl Handles for All {
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

    fn remnant(name: &str, requires: &[&str]) -> Remnant {
        Remnant {
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
    fn dependents_go_first() {
        let known =
            [remnant("/d", &[]), remnant("/d/a", &["/d"]), remnant("/d/b", &["/d", "/d/a"])];
        let removal = plan_removal(Vec::new(), &known, &All);
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
    fn what_cannot_be_removed_is_told_and_keeps_the_order() {
        let mut known = [
            remnant("/d", &[]),
            remnant("exec::Run make", &["/d"]),
            remnant("/d/a", &["exec::Run make"]),
            remnant("a::Gone x", &[]),
        ];
        let removal = plan_removal(Vec::new(), &known, &All);
        assert_eq!(names(&removal.removed), ["/d/a", "/d"]);
        assert_eq!(requires_of(&removal, "/d"), ["/d/a"]);
        let reasons: Vec<KeptReason> = removal.kept.iter().map(|kept| kept.reason).collect();
        assert_eq!(reasons, [KeptReason::NoHandler, KeptReason::NotPurgeable]);
        known[0].resource.attributes = Attributes::parse(r#"{"state":"on"}"#).unwrap();
        known[2].resource.flags.report_only = true;
        let removal = plan_removal(Vec::new(), &known, &All);
        assert!(removal.removed.is_empty() && removal.resources.is_empty());
        assert_eq!(removal.kept.len(), 4);
    }

    #[test]
    fn what_is_wanted_stops_to_depend_before_the_other_goes() {
        let known = [remnant("/key", &[]), remnant("/config", &["/key"])];
        let removal = plan_removal(vec![resource("/config", &[])], &known, &All);
        assert_eq!(names(&removal.removed), ["/key"]);
        assert_eq!(requires_of(&removal, "/key"), ["/config"]);
        assert!(requires_of(&removal, "/config").is_empty());
    }

    #[test]
    fn what_takes_the_place_comes_afterwards() {
        let known = [remnant("std::Directory /x", &[])];
        let removal = plan_removal(vec![resource("/x", &[])], &known, &All);
        assert_eq!(requires_of(&removal, "/x"), ["/x"]);
        assert!(requires_of(&removal, "std::Directory /x").is_empty());
        // Unless that would be a circle: the file needed the directory in its place, whatever that means.
        let known = [remnant("std::Directory /x", &[]), remnant("/x", &["std::Directory /x"])];
        let removal = plan_removal(vec![resource("/x", &[])], &known, &All);
        assert!(requires_of(&removal, "/x").is_empty());
        assert_eq!(requires_of(&removal, "std::Directory /x"), ["/x"]);
    }

    #[test]
    fn what_the_model_purges_goes_after_what_needed_it() {
        let known = [remnant("/d", &[]), remnant("/d/a", &["/d"])];
        let mut directory = resource("/d", &[]);
        directory.attributes = directory.attributes.with_purged(true);
        let removal = plan_removal(vec![directory], &known, &All);
        assert_eq!(requires_of(&removal, "/d"), ["/d/a"]);
        assert!(requires_of(&removal, "/d/a").is_empty());
    }

    #[test]
    fn a_removal_that_was_begun_is_not_turned_around() {
        let mut directory = remnant("/d", &["/d/a"]);
        directory.is_removal = true;
        let known = [directory, remnant("/d/a", &[])];
        let removal = plan_removal(Vec::new(), &known, &All);
        assert_eq!(names(&removal.removed), ["/d/a", "/d"]);
    }

    #[test]
    fn circles_of_different_versions_are_broken() {
        let known = [remnant("/a", &["/b"]), remnant("/b", &["/a"]), remnant("/c", &["/a"])];
        let removal = plan_removal(Vec::new(), &known, &All);
        assert_eq!(removal.removed.len(), 3);
        assert_eq!(requires_of(&removal, "/a"), ["/c"]);
    }

    #[test]
    fn what_was_adopted_stays_unless_it_was_created_under_another_id() {
        let adopted = |name: &str| Remnant { is_adopted: true, ..remnant(name, &[]) };
        let known = [adopted("/etc/hosts"), remnant("/a", &[])];
        let removal = plan_removal(Vec::new(), &known, &All);
        assert_eq!(names(&removal.removed), ["/a"]);
        let reason = KeptReason::Adopted;
        assert_eq!(removal.kept, [Kept { id: id("/etc/hosts"), reason }]);
        let known = [adopted("/a"), remnant("//a", &[])];
        assert_eq!(plan_removal(Vec::new(), &known, &All).removed.len(), 2);
    }

    #[test]
    fn what_is_wanted_under_another_spelling_stays() {
        let known = [remnant("/x/../d/a", &[]), remnant("/d/./b", &[]), remnant("/d/c", &[])];
        let removal =
            plan_removal(vec![resource("/d/a", &[]), resource("/d/b", &[])], &known, &All);
        assert_eq!(names(&removal.removed), ["/d/c"]);
        let reasons: Vec<KeptReason> = removal.kept.iter().map(|kept| kept.reason).collect();
        assert_eq!(reasons, [KeptReason::StillWanted; 2]);
        // Another kind of resource in the same place comes after what goes, however that is spelt.
        let known = [remnant("std::Directory /x/../y", &[])];
        let removal = plan_removal(vec![resource("/y", &[])], &known, &All);
        assert_eq!(requires_of(&removal, "/y"), ["/x/../y"]);
    }
}
