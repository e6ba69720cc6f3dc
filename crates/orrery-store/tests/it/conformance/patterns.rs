//! Patterns select the same resources in memory and in every list of the store.

use std::cell::Cell;
use std::collections::BTreeSet;

use orrery_model::{Pattern, Resource, ResourceId, Timestamp};
use orrery_store::{NewDiscovered, ResourceFilter, ResourceQuery};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::support::{Backend, put, resource};

super::list_cases![patterns_select_the_same_resources_everywhere];

/// Ids whose values have both cases, wildcards of SQL and of patterns, brackets, and letters
/// beyond ASCII.
fn ids() -> impl Strategy<Value = BTreeSet<ResourceId>> {
    let value = "[abAB/%_*?\\[=éÉ]{1,5}";
    let id = ("[ab]", "[xX]{1,2}", value).prop_filter_map("an id", |(entity, agent, value)| {
        format!("t::{}[{agent},name={value}]", entity.to_uppercase()).parse::<ResourceId>().ok()
    });
    proptest::collection::btree_set(id, 1..25)
}

/// Texts, texts with wildcards, and parts that SQL would treat specially.
fn pattern() -> impl Strategy<Value = String> {
    "[abAB/%_*?\\[=éÉ]{1,4}"
}

fn patterns_select_the_same_resources_everywhere(backend: Backend) {
    let store = backend.fresh();
    let environment = store.environments().ensure_default().unwrap();
    let mut runner = TestRunner::new(Config { cases: 40, ..Config::default() });
    let patterns = proptest::collection::vec(pattern(), 6);
    let selected = Cell::new(0);
    runner
        .run(&(ids(), patterns), |(ids, patterns)| {
            let resources: Vec<Resource> = ids.iter().map(|id| resource(id, 1, &[])).collect();
            let number = put(&store, environment, &resources).unwrap().number;
            let attributes = serde_json::json!({});
            let found: Vec<_> = ids
                .iter()
                .map(|id| NewDiscovered {
                    name: id.as_str(),
                    attributes: &attributes,
                    discovery_resource: "",
                })
                .collect();
            for old in store.discovered().list(environment, None, "", 1000).unwrap() {
                store.discovered().delete(environment, &old.name, Timestamp(1)).unwrap();
            }
            store.discovered().put(environment, &found, Timestamp(1)).unwrap();
            for text in patterns {
                let pattern = Pattern::new(text.clone());
                let mut expected: Vec<String> = ids
                    .iter()
                    .filter(|id| pattern.matches_value(id))
                    .map(ToString::to_string)
                    .collect();
                expected.sort();
                let value = Some(pattern);
                let query = ResourceQuery { value: value.clone(), ..ResourceQuery::default() };
                let list = store.resources().list(environment, &query, None, 100).unwrap();
                let listed: Vec<String> =
                    list.lines.iter().map(|line| line.summary.id.to_string()).collect();
                prop_assert_eq!(&listed, &expected, "list, {}", text);
                let filter = ResourceFilter { value, ..ResourceFilter::default() };
                let (of_version, _) =
                    store.versions().resources(environment, number, &filter, None, 100).unwrap();
                let of_version: Vec<String> = of_version.into_iter().map(|one| one.id).collect();
                prop_assert_eq!(&of_version, &expected, "version, {}", text);
                let (discovered, _) =
                    store.discovered().list_filtered(environment, None, &filter, "", 100).unwrap();
                let discovered: Vec<String> = discovered.into_iter().map(|one| one.name).collect();
                prop_assert_eq!(&discovered, &expected, "discovered, {}", text);
                selected.set(selected.get() + expected.len());
            }
            Ok(())
        })
        .unwrap();
    assert!(selected.get() > 0);
}
