//! Tests of the rules for partial versions: each rule alone, and all on random changes.

use orrery_model::Attributes;
use proptest::prelude::*;

use super::*;

fn id(name: &str) -> ResourceId {
    ResourceId::new("t::R", "a", "name", name).unwrap()
}

fn resource(name: &str, set: Option<&str>, value: u8, requires: &[&str]) -> Resource {
    let attributes = Attributes::parse(&format!(r#"{{"value":{value}}}"#)).unwrap();
    let mut made =
        Resource::new(id(name), attributes, requires.iter().map(|name| id(name)).collect());
    made.set = set.map(Into::into);
    made
}

fn base_of(resources: &[Resource]) -> Base {
    let newest = |resource: &Resource| NewestRevision {
        set: resource.set.as_deref().map(str::to_owned),
        hash: resource.hash,
        requires: resource.requires.iter().map(ToString::to_string).collect(),
    };
    let revisions = resources.iter().map(|resource| (resource.id.to_string(), newest(resource)));
    let suitable = is_suitable(resources);
    Base { newest_revisions: revisions.collect(), code: None, differing: Vec::new(), suitable }
}

fn change(mut resources: Vec<Resource>, removed: &[&str]) -> Change {
    resources.sort_unstable_by(|a, b| a.id.cmp(&b.id));
    let removed_sets = removed.iter().map(|set| (*set).to_owned()).collect();
    Change { resources, removed_sets, ..Change::default() }
}

fn refused(change: &Change, base: &Base) -> &'static str {
    check(change, base).unwrap_err().code()
}

#[test]
fn each_rule_is_enforced() {
    let base = base_of(&[
        resource("s", None, 1, &[]),
        resource("a1", Some("a"), 1, &["s"]),
        resource("b1", Some("b"), 1, &["s"]),
    ]);
    let both = change(vec![resource("a1", Some("a"), 1, &[])], &["a"]);
    assert_eq!(refused(&both, &base), "set-updated-and-removed");
    let crossing = change(vec![resource("a1", Some("a"), 1, &["b1"])], &[]);
    assert_eq!(refused(&crossing, &base), "cross-set-requires");
    let moved = change(vec![resource("b1", Some("a"), 1, &[])], &[]);
    assert_eq!(refused(&moved, &base), "moved-between-sets");
    let moved_with_both = change(vec![resource("b1", Some("a"), 1, &[])], &["b"]);
    assert!(check(&moved_with_both, &base).is_ok());
    let out_of_shared = change(vec![resource("s", Some("a"), 1, &[])], &[]);
    assert_eq!(refused(&out_of_shared, &base), "moved-between-sets");
    let shared = change(vec![resource("s", None, 2, &[])], &[]);
    assert_eq!(refused(&shared, &base), "shared-resource-changed");
    let added = change(vec![resource("new", None, 2, &[])], &[]);
    assert!(check(&added, &base).is_ok());
    let unsuitable = Base { suitable: false, ..base.clone() };
    assert_eq!(refused(&added, &unsuitable), "base-not-suitable");
    let differing = vec!["fs".to_owned()];
    let with_code = Base { code: Some("1".to_owned()), differing, ..base };
    let other_code = Change { code: Some("2".to_owned()), ..added };
    assert_eq!(refused(&other_code, &with_code), "code-differs");
    let allowed = Change { allow_code_update: true, ..other_code.clone() };
    assert!(check(&allowed, &with_code).is_ok());
    let same_modules = Base { differing: Vec::new(), ..with_code };
    assert!(check(&other_code, &same_modules).is_ok());
}

#[test]
fn shared_resources_keep_remaining_requirements() {
    let base = base_of(&[
        resource("s", None, 1, &["t", "a1", "b1"]),
        resource("t", None, 1, &[]),
        resource("a1", Some("a"), 1, &[]),
        resource("b1", Some("b"), 1, &[]),
    ]);
    let copy = change(vec![resource("s", None, 1, &["u"]), resource("u", None, 1, &[])], &["a"]);
    let stored = check(&copy, &base).unwrap();
    let shared = stored.iter().find(|resource| resource.id == id("s")).unwrap();
    assert_eq!(shared.requires, [id("b1"), id("t"), id("u")]);
}

#[test]
fn an_unsuitable_base_is_stored_again_unchanged() {
    let before = [resource("a", Some("a"), 0, &["b"]), resource("b", Some("b"), 0, &[])];
    let base = base_of(&before);
    let empty = change(Vec::new(), &[]);
    let stored = check(&empty, &base).unwrap();
    assert_eq!(applied(&before, &empty, &stored), before);
    let removal = change(Vec::new(), &["c"]);
    assert_eq!(check(&removal, &base).unwrap_err(), RuleViolation::UnsuitableBase);
}

fn any_resource() -> impl Strategy<Value = Resource> {
    let set = prop_oneof![Just(None), Just(Some("a")), Just(Some("b")), Just(Some("c"))];
    let requires = proptest::collection::vec(0..8_u8, 0..3);
    (0..8_u8, set, 0..2_u8, requires).prop_map(|(name, set, value, requires)| {
        let requires: Vec<String> = requires.iter().map(|name| format!("r{name}")).collect();
        let requires: Vec<&str> = requires.iter().map(String::as_str).collect();
        resource(&format!("r{name}"), set, value, &requires)
    })
}

fn any_resources() -> impl Strategy<Value = Vec<Resource>> {
    proptest::collection::vec(any_resource(), 0..8).prop_map(|mut resources| {
        resources.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        resources.dedup_by(|a, b| a.id == b.id);
        let ids: Vec<ResourceId> = resources.iter().map(|resource| resource.id.clone()).collect();
        for resource in &mut resources {
            resource.requires.retain(|required| ids.contains(required));
        }
        resources
    })
}

/// Returns the version that results from a change.
fn applied(base: &[Resource], change: &Change, stored: &[Resource]) -> Vec<Resource> {
    let touched = change.touched();
    let stays = |resource: &&Resource| {
        resource.set.as_deref().is_none_or(|set| !touched.contains(set))
            && stored.iter().all(|new| new.id != resource.id)
    };
    let mut after: Vec<Resource> = base.iter().filter(stays).cloned().collect();
    after.extend_from_slice(stored);
    after.sort_unstable_by(|a, b| a.id.cmp(&b.id));
    after
}

proptest! {
    #[test]
    fn a_valid_change_keeps_the_rest(
        before in any_resources(),
        new in any_resources(),
        removed in proptest::collection::vec(prop_oneof![Just("a"), Just("b")], 0..2),
    ) {
        let base = base_of(&before);
        let change = change(new, &removed);
        let Ok(stored) = check(&change, &base) else { return Ok(()) };
        let after = applied(&before, &change, &stored);
        let touched = change.touched();
        for old in &before {
            let now = after.iter().find(|resource| resource.id == old.id);
            match old.set.as_deref() {
                // A shared resource stays, with the same intent and at least its remaining
                // requirements.
                None => {
                    let now = now.expect("shared resources stay");
                    prop_assert_eq!(&now.set, &None);
                    prop_assert_eq!(now.hash, old.hash);
                    let there = |id: &&ResourceId| after.iter().any(|other| other.id == **id);
                    for required in old.requires.iter().filter(there) {
                        prop_assert!(now.requires.contains(required));
                    }
                }
                Some(set) if !touched.contains(set) => prop_assert_eq!(now, Some(old)),
                Some(_) => {}
            }
        }
        for new in &change.resources {
            prop_assert!(after.iter().any(|resource| resource.id == new.id && resource.set == new.set));
        }
        // A changed version can be changed again. An unsuitable one is at most stored again.
        prop_assert!(is_suitable(&after) || (!base.suitable && after == before));
    }
}
