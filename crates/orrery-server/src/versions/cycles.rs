//! Cycles: resources that require each other cannot be ordered, so such a version is refused.
//!
//! One pass over all requirements, without recursion: versions have many thousands of resources, in
//! chains of any length.

use std::collections::HashMap;

use orrery_model::Resource;
use orrery_store::{EnvironmentKey, Store};
use rustc_hash::FxHashMap;

use super::partial_update::{Base, Change, RuleViolation};
use crate::error::ServerError;

/// Maximum depth to follow a partial version through untouched resources. The engine drops the
/// requirement that closes a longer cycle, and logs it.
const ROUNDS_MAX: usize = 50;
const FOLLOWED_MAX: usize = 20_000;

/// Maximum number of named resources of a cycle.
const NAMED_MAX: usize = 10;

/// Requirements of resources that a partial version does not touch.
pub(super) type UntouchedRequires = HashMap<String, Vec<String>>;

/// Refuses resources that require each other, directly or indirectly.
pub(super) fn check(
    resources: &[Resource],
    untouched: &UntouchedRequires,
) -> Result<(), RuleViolation> {
    match find_cycle(resources, untouched) {
        None => Ok(()),
        Some(circle) => Err(RuleViolation::Cycle(format_cycle(&circle))),
    }
}

fn format_cycle(circle: &[&str]) -> String {
    let named = &circle[..circle.len().min(NAMED_MAX)];
    let mut text = named.join(" requires ");
    if circle.len() > NAMED_MAX {
        text.push_str(&format!(" requires {} more, which require ", circle.len() - NAMED_MAX));
    } else {
        text.push_str(" requires ");
    }
    text + circle[0]
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Visit {
    Not,
    /// On the current path.
    Open,
    Done,
}

/// Finds a cycle of requirements.
fn find_cycle<'a>(
    resources: &'a [Resource],
    untouched: &'a UntouchedRequires,
) -> Option<Vec<&'a str>> {
    if resources.iter().all(|resource| resource.requires.is_empty()) {
        return None;
    }
    let mut names: Vec<&str> = resources.iter().map(|resource| resource.id.as_str()).collect();
    names.extend(untouched.keys().map(String::as_str));
    let places: FxHashMap<&str, usize> =
        names.iter().enumerate().map(|(place, name)| (*name, place)).collect();
    let required = |place: usize, at: usize| match resources.get(place) {
        Some(resource) => resource.requires.get(at).map(orrery_model::ResourceId::as_str),
        None => untouched.get(names[place]).and_then(|ids| ids.get(at)).map(String::as_str),
    };
    let mut visits = vec![Visit::Not; names.len()];
    let mut path: Vec<(usize, usize)> = Vec::new();
    for start in 0..resources.len() {
        if visits[start] != Visit::Not {
            continue;
        }
        visits[start] = Visit::Open;
        path.push((start, 0));
        while let Some((place, at)) = path.last_mut() {
            let Some(name) = required(*place, *at) else {
                visits[*place] = Visit::Done;
                path.pop();
                continue;
            };
            *at += 1;
            // A missing resource is another problem.
            let Some(&next) = places.get(name) else { continue };
            match visits[next] {
                Visit::Done => {}
                Visit::Not => {
                    visits[next] = Visit::Open;
                    path.push((next, 0));
                }
                Visit::Open => {
                    let members = path.iter().map(|(place, _)| *place);
                    return Some(
                        members
                            .skip_while(|place| *place != next)
                            .map(|place| names[place])
                            .collect(),
                    );
                }
            }
        }
    }
    None
}

/// Reads the requirements of untouched resources that the change leads to.
///
/// Reads nothing if no cycle can be new: that takes a new requirement, and a resource that others
/// required before.
pub(super) fn read_untouched(
    store: &Store,
    environment: EnvironmentKey,
    (change, base): (&Change, &Base),
    resources: &[Resource],
) -> Result<UntouchedRequires, ServerError> {
    let mut untouched = UntouchedRequires::new();
    let was_there = |resource: &Resource| base.newest_revisions.contains_key(resource.id.as_str());
    let requires_more = |resource: &Resource| match base.newest_revisions.get(resource.id.as_str())
    {
        None => !resource.requires.is_empty(),
        Some(newest) => {
            resource.requires.iter().any(|id| newest.requires.iter().all(|old| old != id.as_str()))
        }
    };
    if !resources.iter().any(was_there) || !resources.iter().any(requires_more) {
        return Ok(untouched);
    }
    let touched = change.touched();
    let is_outside = |id: &str| change.find(id).is_none();
    let required = resources.iter().flat_map(|resource| &resource.requires);
    let mut next: Vec<String> =
        required.map(ToString::to_string).filter(|id| is_outside(id)).collect();
    for _ in 0..ROUNDS_MAX {
        next.sort_unstable();
        next.dedup();
        next.retain(|id| !untouched.contains_key(id));
        if next.is_empty() || untouched.len() + next.len() > FOLLOWED_MAX {
            break;
        }
        let unread: Vec<&str> = next
            .iter()
            .map(String::as_str)
            .filter(|id| !base.newest_revisions.contains_key(*id))
            .collect();
        let read = store.versions().newest_revisions(environment, &unread)?;
        let read: HashMap<&str, _> = unread.iter().copied().zip(read).collect();
        let mut found = Vec::new();
        for id in &next {
            let known = base.newest_revisions.get(id);
            let newest = known.or_else(|| read.get(id.as_str()).and_then(Option::as_ref));
            // A resource of a touched set that is not in the change is removed.
            let stays = newest
                .filter(|newest| newest.set.as_deref().is_none_or(|set| !touched.contains(set)));
            let requires = stays.map(|newest| newest.requires.clone()).unwrap_or_default();
            found.extend(requires.iter().filter(|id| is_outside(id)).cloned());
            untouched.insert(id.clone(), requires);
        }
        next = found;
    }
    Ok(untouched)
}

#[cfg(test)]
mod tests {
    use orrery_model::{Attributes, ResourceId};

    use super::*;

    fn id(name: &str) -> ResourceId {
        ResourceId::new("t::R", "a", "name", name).unwrap()
    }

    fn resource(name: &str, requires: &[&str]) -> Resource {
        let attributes = Attributes::parse("{}").unwrap();
        Resource::new(id(name), attributes, requires.iter().map(|name| id(name)).collect())
    }

    fn found(resources: &[Resource], untouched: &UntouchedRequires) -> Option<Vec<String>> {
        find_cycle(resources, untouched)
            .map(|circle| circle.into_iter().map(str::to_owned).collect())
    }

    #[test]
    fn cycles_are_found() {
        let none = UntouchedRequires::new();
        let tree = [resource("a", &["b", "c"]), resource("b", &["c"]), resource("c", &[])];
        assert_eq!(found(&tree, &none), None);
        let own = [resource("a", &["a"])];
        assert_eq!(found(&own, &none), Some(vec![id("a").to_string()]));
        let ring = [resource("a", &["b"]), resource("b", &["c"]), resource("c", &["b"])];
        assert_eq!(found(&ring, &none), Some(vec![id("b").to_string(), id("c").to_string()]));
        let untouched = UntouchedRequires::from([(id("s").to_string(), vec![id("a").to_string()])]);
        let through = [resource("a", &["s"])];
        assert_eq!(
            found(&through, &untouched),
            Some(vec![id("a").to_string(), id("s").to_string()])
        );
    }

    #[test]
    fn long_chains_take_no_stack_and_little_time() {
        let name = |number: usize| format!("n{number:06}");
        let mut chain: Vec<Resource> =
            (0..100_000).map(|at| resource(&name(at), &[name(at + 1).as_str()])).collect();
        assert_eq!(found(&chain, &UntouchedRequires::new()), None);
        chain.push(resource(&name(100_000), &[name(0).as_str()]));
        assert_eq!(found(&chain, &UntouchedRequires::new()).unwrap().len(), 100_001);
        let text = check(&chain, &UntouchedRequires::new()).unwrap_err().to_string();
        assert!(text.len() < 1000 && text.contains("99991 more"), "{text}");
    }
}
