//! Rules of the application layer, which the Inmanta-compatible API applies like Orrery's own.

use serde_json::{Value, json};

use crate::world::World;

fn send(world: &World, method: &str, path: &str, body: &Value) -> u16 {
    let headers = [("X-Inmanta-tid", world.id.as_str())];
    world.admin().send(method, path, &headers, Some(body).filter(|body| !body.is_null())).status
}

#[test]
fn an_environment_that_is_being_deleted_takes_neither_values_nor_releases() {
    let world = World::sqlite();
    let resources = json!([{"id": "t::R[agent,name=a]", "attributes": {"value": 1}}]);
    let stored = world.post("/versions", &json!({"resources": resources, "release": false}));
    let number = stored.good()["number"].clone();
    let value = json!({"source": "user", "value": "1"});
    assert_eq!(send(&world, "PUT", "/api/v2/parameters/before", &value), 200);
    assert_eq!(world.delete("").status, 202);
    for (method, path, body) in [
        ("PUT", "/api/v2/parameters/after".to_owned(), value.clone()),
        ("PUT", "/api/v1/parameter/after".to_owned(), value),
        ("DELETE", "/api/v1/parameter/before".to_owned(), Value::Null),
        ("POST", format!("/api/v1/version/{number}"), json!({"push": false})),
        ("POST", format!("/api/v2/desiredstate/{number}/promote"), json!({})),
    ] {
        assert_eq!(send(&world, method, &path, &body), 409, "{method} {path}");
    }
    assert_eq!(world.get("/parameters/before").good()["value"], "1");
    assert_eq!(world.get(&format!("/versions/{number}")).good()["released"], false);
}

#[test]
fn names_of_parameters_are_limited() {
    let world = World::sqlite();
    for (name, status) in [(String::new(), 400), ("x".repeat(1025), 400), ("x".repeat(1024), 200)] {
        let body = json!({"parameters": [{"id": name, "value": "1", "source": "user"}]});
        assert_eq!(send(&world, "PUT", "/api/v1/parameters", &body), status, "{}", name.len());
    }
}
