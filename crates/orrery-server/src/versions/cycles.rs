//! Resources that require each other have no order in which they could be deployed: such a version is not stored.
//!
//! One pass over all requirements, without recursion: versions have many thousands of resources, in chains of any length.

use std::collections::HashMap;

use orrery_model::Resource;
use orrery_store::{EnvironmentKey, Store};
use rustc_hash::FxHashMap;

use super::rules::{Base, Broken, Change};
use crate::problem::ServerError;

/// A change of some sets is followed so far through what it leaves alone. What lies behind that is left to the engine, which
/// leaves out the requirement that closes a circle, and says so.
const ROUNDS_MAX: usize = 50;
const FOLLOWED_MAX: usize = 20_000;

/// So many members of a circle are named.
const NAMED_MAX: usize = 10;

/// What resources that a change leaves alone require.
pub(super) type Left = HashMap<String, Vec<String>>;

/// Refuses resources that require each other, be it by way of others.
pub(super) fn check(resources: &[Resource], left: &Left) -> Result<(), Broken> {
    match find(resources, left) {
        None => Ok(()),
        Some(circle) => Err(Broken::Cycle(told(&circle))),
    }
}

fn told(circle: &[&str]) -> String {
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
    /// On the path from the start to here.
    Open,
    Done,
}

/// A circle of requirements, if there is one.
fn find<'a>(resources: &'a [Resource], left: &'a Left) -> Option<Vec<&'a str>> {
    if resources.iter().all(|resource| resource.requires.is_empty()) {
        return None;
    }
    let mut names: Vec<&str> = resources.iter().map(|resource| resource.id.as_str()).collect();
    names.extend(left.keys().map(String::as_str));
    let places: FxHashMap<&str, usize> =
        names.iter().enumerate().map(|(place, name)| (*name, place)).collect();
    let required = |place: usize, at: usize| match resources.get(place) {
        Some(resource) => resource.requires.get(at).map(orrery_model::ResourceId::as_str),
        None => left.get(names[place]).and_then(|ids| ids.get(at)).map(String::as_str),
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
            // What is not there is another problem.
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

/// What the resources of a change lead to among those that it leaves alone.
///
/// Nothing is read if no circle can be new: it takes a requirement that is new, and a resource that others required before.
pub(super) fn read_left(
    store: &dyn Store,
    environment: EnvironmentKey,
    (change, base): (&Change, &Base),
    resources: &[Resource],
) -> Result<Left, ServerError> {
    let mut left = Left::new();
    let was_there = |resource: &Resource| base.standings.contains_key(resource.id.as_str());
    let requires_more = |resource: &Resource| match base.standings.get(resource.id.as_str()) {
        None => !resource.requires.is_empty(),
        Some(standing) => resource
            .requires
            .iter()
            .any(|id| standing.requires.iter().all(|old| old != id.as_str())),
    };
    if !resources.iter().any(was_there) || !resources.iter().any(requires_more) {
        return Ok(left);
    }
    let touched = change.touched();
    let is_outside = |id: &str| change.find(id).is_none();
    let required = resources.iter().flat_map(|resource| &resource.requires);
    let mut next: Vec<String> =
        required.map(ToString::to_string).filter(|id| is_outside(id)).collect();
    for _ in 0..ROUNDS_MAX {
        next.sort_unstable();
        next.dedup();
        next.retain(|id| !left.contains_key(id));
        if next.is_empty() || left.len() + next.len() > FOLLOWED_MAX {
            break;
        }
        let unread: Vec<&str> = next
            .iter()
            .map(String::as_str)
            .filter(|id| !base.standings.contains_key(*id))
            .collect();
        let read = store.records().standings(environment, &unread)?;
        let read: HashMap<&str, _> = unread.iter().copied().zip(read).collect();
        let mut found = Vec::new();
        for id in &next {
            let known = base.standings.get(id);
            let standing = known.or_else(|| read.get(id.as_str()).and_then(Option::as_ref));
            // What is in a set that the change says everything about, and not in the change, goes.
            let stays = standing.filter(|standing| {
                standing.set.as_deref().is_none_or(|set| !touched.contains(set))
            });
            let requires = stays.map(|standing| standing.requires.clone()).unwrap_or_default();
            found.extend(requires.iter().filter(|id| is_outside(id)).cloned());
            left.insert(id.clone(), requires);
        }
        next = found;
    }
    Ok(left)
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

    fn found(resources: &[Resource], left: &Left) -> Option<Vec<String>> {
        find(resources, left).map(|circle| circle.into_iter().map(str::to_owned).collect())
    }

    #[test]
    fn circles_are_found_and_other_graphs_have_none() {
        let none = Left::new();
        let tree = [resource("a", &["b", "c"]), resource("b", &["c"]), resource("c", &[])];
        assert_eq!(found(&tree, &none), None);
        let own = [resource("a", &["a"])];
        assert_eq!(found(&own, &none), Some(vec![id("a").to_string()]));
        let ring = [resource("a", &["b"]), resource("b", &["c"]), resource("c", &["b"])];
        assert_eq!(found(&ring, &none), Some(vec![id("b").to_string(), id("c").to_string()]));
        let left = Left::from([(id("s").to_string(), vec![id("a").to_string()])]);
        let through = [resource("a", &["s"])];
        assert_eq!(found(&through, &left), Some(vec![id("a").to_string(), id("s").to_string()]));
    }

    #[test]
    fn long_chains_take_no_stack_and_little_time() {
        let name = |number: usize| format!("n{number:06}");
        let mut chain: Vec<Resource> =
            (0..100_000).map(|at| resource(&name(at), &[name(at + 1).as_str()])).collect();
        assert_eq!(found(&chain, &Left::new()), None);
        chain.push(resource(&name(100_000), &[name(0).as_str()]));
        assert_eq!(found(&chain, &Left::new()).unwrap().len(), 100_001);
        let told = check(&chain, &Left::new()).unwrap_err().to_string();
        assert!(told.len() < 1000 && told.contains("99991 more"), "{told}");
    }
}
