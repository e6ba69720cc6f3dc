//! Discovered resources.

use serde_json::{Value, json};

use super::{World, id_of, ids, on_both, refused};

on_both!(discovered_resources_show_if_they_are_managed);

fn discovered_resources_show_if_they_are_managed(world: World) {
    world.upload(&[("a", 1)]);
    let found = |names: &[&str]| {
        let resources: Vec<Value> = names
            .iter()
            .map(|name| json!({"id": id_of(name), "attributes": {"n": name}, "discovery_resource": id_of("a")}))
            .collect();
        world.put("/discovered", &json!({"resources": resources}))
    };
    assert_eq!(found(&["a", "b", "c"]).status, 204);
    assert_eq!(found(&["c"]).status, 204, "again");
    let list = |query: &str| ids(&world.get(&format!("/discovered?{query}")).good());
    assert_eq!(list(""), [id_of("a"), id_of("b"), id_of("c")]);
    assert_eq!(list("managed=true"), [id_of("a")]);
    assert_eq!(list("managed=false&limit=1"), [id_of("b")]);
    let other = json!([{"id": "t::Other[x,name=Bee]", "attributes": {}}]);
    assert_eq!(world.put("/discovered", &json!({"resources": other})).status, 204);
    assert_eq!(list("type=t::Other"), ["t::Other[x,name=Bee]"]);
    assert_eq!(list("type=t::R&limit=3"), [id_of("a"), id_of("b"), id_of("c")]);
    assert_eq!(list("type=t"), Vec::<String>::new(), "all of a type's name");
    assert_eq!(list("agent=x"), ["t::Other[x,name=Bee]"]);
    assert_eq!(list("value=b"), ["t::Other[x,name=Bee]".to_owned(), id_of("b")]);
    assert_eq!(list("value=b&agent=agent&managed=false"), [id_of("b")]);
    let page = world.get("/discovered?type=t::R&limit=2").good();
    let next = page["next"].as_str().unwrap();
    assert_eq!(list(&format!("type=t::R&limit=2&after={next}")), [id_of("c")]);
    refused(&world.get("/discovered?color=red"), 400, "unknown-parameter");
    let path = super::path_of("a").replace("/resources/", "/discovered/");
    let one = world.get(&path).good();
    assert_eq!(one["managed"], world.at(&super::path_of("a")).replace("::", "%3A%3A"));
    assert_eq!(one["discovery_resource"], id_of("a"));
    assert_eq!(world.delete(&path).status, 204);
    refused(&world.get(&path), 404, "not-found");
    refused(
        &world.put("/discovered", &json!({"resources": [{"id": "x", "attributes": {}}]})),
        422,
        "invalid",
    );
}
