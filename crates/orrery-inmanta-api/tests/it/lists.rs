//! List of resources of the Inmanta-compatible API: reading only the page must give the same result
//! as reading everything.

use serde_json::{Value, json};

use crate::world::{World, on_both};

on_both!(pages_by_type_are_those_of_the_whole_list);

fn list(world: &World, query: &str) -> Value {
    let headers = [("X-Inmanta-tid", world.id.as_str())];
    world.admin().send("GET", &format!("/api/v2/resource?{query}"), &headers, None).good()
}

/// Returns the ids of a page, and the counts around it.
fn page_ids(page: &Value) -> (Vec<String>, Value) {
    let items = page["data"].as_array().unwrap().iter();
    let ids = items.map(|item| item["resource_id"].as_str().unwrap().to_owned()).collect();
    (ids, page["metadata"].clone())
}

/// Creates types in another order than the ids, removed resources, and some that never ran.
fn fill(world: &World) {
    let types = ["t::R", "t::Rx", "t::RX", "t::R::In", "t::Ra", "s::A", "u::Z"];
    let resource =
        |entity: &str, name: &str| json!({"id": format!("{entity}[a,n={name}]"), "attributes": {}});
    let all: Vec<Value> = types
        .iter()
        .flat_map(|entity| ["1", "2", "]", "é"].map(|name| resource(entity, name)))
        .collect();
    let first = world.post("/versions", &json!({"resources": all})).good();
    let lease = world.lease();
    let number = u32::try_from(first["number"].as_u64().unwrap()).unwrap();
    world.deploy(&lease, number, &[]);
    let mut gone = Vec::new();
    let store = world.store();
    store
        .engine()
        .read_states(world.key(), &mut |row| {
            if row.id.contains("=2]") || row.id.starts_with("u::Z") {
                let state = orrery_model::ResourceState { intent: None, ..row.state.clone() };
                gone.push((row.key, state));
            }
        })
        .unwrap();
    let states: Vec<orrery_store::StateRecord<'_>> = gone
        .iter()
        .map(|(key, state)| orrery_store::StateRecord { resource: *key, state })
        .collect();
    store.engine().process_version(&lease, orrery_model::VersionNumber(number), &states).unwrap();
    let more: Vec<Value> = all.into_iter().chain([resource("t::R", "new")]).collect();
    world.post("/versions", &json!({"resources": more, "release": false})).good();
}

fn pages_by_type_are_those_of_the_whole_list(world: World) {
    // Every name contains the empty text: such a filter changes only the algorithm.
    const WHOLE: &str = "filter.agent=";
    assert_eq!(list(&world, "limit=3")["data"], json!([]));
    fill(&world);
    for filter in
        ["", "&filter.status=!orphaned", "&filter.resource_type=rX", "&filter.resource_type=none"]
    {
        for order in ["", "&sort=resource_type.asc", "&sort=resource_type.desc"] {
            for limit in [1, 4, 5, 1000] {
                let query = format!("limit={limit}{filter}{order}");
                let mut page = list(&world, &query);
                assert_eq!(
                    page_ids(&page),
                    page_ids(&list(&world, &format!("{query}&{WHOLE}"))),
                    "{query}"
                );
                let mut ids = page_ids(&page).0;
                while let Some(next) = page["links"]["next"].as_str() {
                    let query = next.split_once('?').unwrap().1.to_owned();
                    page = list(&world, &query);
                    let whole = list(&world, &format!("{query}&{WHOLE}"));
                    assert_eq!(page_ids(&page), page_ids(&whole), "{query}");
                    ids.extend(page_ids(&page).0);
                }
                assert_eq!(
                    ids.len() as u64,
                    page["metadata"]["total"].as_u64().unwrap(),
                    "{query}"
                );
                while let Some(previous) = page["links"]["prev"].as_str() {
                    let query = previous.split_once('?').unwrap().1.to_owned();
                    page = list(&world, &query);
                    let whole = list(&world, &format!("{query}&{WHOLE}"));
                    assert_eq!(page_ids(&page), page_ids(&whole), "{query}");
                }
                assert_eq!(page["metadata"]["before"], 0, "{query}");
            }
        }
    }
    // Bounds that match no item.
    for bound in [
        "start=t::R",
        "end=t::R",
        "start=t::Q",
        "end=t::Rb&last_id=x",
        "start=t::R&first_id=t::R[a,n=15]",
        "end=t::R&last_id=zzz",
        "start=t::R&first_id=",
        "first_id=t::R[a,n=1]",
        "start=zz",
    ] {
        for order in ["asc", "desc"] {
            let query = format!("limit=4&sort=resource_type.{order}&{bound}");
            let whole = list(&world, &format!("{query}&{WHOLE}"));
            assert_eq!(page_ids(&list(&world, &query)), page_ids(&whole), "{query}");
        }
    }
}
