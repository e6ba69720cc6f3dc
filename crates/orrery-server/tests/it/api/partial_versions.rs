//! Partial versions: rules, and preserved resources.

use serde_json::{Value, json};

use super::{World, id_of, ids, on_both, refused};

on_both!(
    each_rule_has_its_own_error_code_and_stores_nothing,
    untouched_sets_stay,
    concurrent_partial_versions_are_all_stored,
    cycles_through_untouched_resources_are_refused,
);

fn of(name: &str, set: Option<&str>, value: i64, requires: &[&str]) -> Value {
    let requires: Vec<String> = requires.iter().map(|name| id_of(name)).collect();
    let mut resource =
        json!({"id": id_of(name), "attributes": {"value": value}, "requires": requires});
    if let Some(set) = set {
        resource["set"] = json!(set);
    }
    resource
}

fn change(world: &World, resources: Vec<Value>, removed: &[&str]) -> crate::support::Answer {
    let upload = json!({"scope": "partial", "resources": resources, "removed_sets": removed});
    world.post("/versions", &upload)
}

fn file(world: &World, content: &str) -> String {
    use sha1::Digest as _;
    let digest = sha1::Sha1::digest(content.as_bytes());
    let name: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let path = format!("/api/v1/files/{name}");
    let headers = [("content-type", "application/octet-stream")];
    let kept = world.admin().send_bytes("PUT", &path, &headers, content.as_bytes().to_vec());
    assert_eq!(kept.status, 204);
    name
}

fn each_rule_has_its_own_error_code_and_stores_nothing(world: World) {
    refused(&change(&world, vec![of("a", Some("x"), 1, &[])], &[]), 400, "no-base-version");
    let bundle = |content: &str| {
        let place = "inmanta_plugins/fs";
        let module = json!({
            "name": "fs", "package": "inmanta_plugins.fs", "code": place, "root": place, "version": "1",
        });
        let set = json!({
            "modules": [module], "handlers": [], "program": "", "path": [], "requirements": [],
        });
        let files = json!({"inmanta_plugins/fs/__init__.py": file(&world, content)});
        file(&world, &json!({"hash": content, "set": set, "files": files}).to_string())
    };
    let (code, other_code) = (bundle("1"), bundle("2"));
    let base = json!({"code": code, "resources": [
        of("s", None, 1, &[]), of("x1", Some("x"), 1, &["s"]), of("y1", Some("y"), 1, &["s"]),
    ]});
    world.post("/versions", &base).good();
    let cases = [
        ("set-updated-and-removed", vec![of("x1", Some("x"), 1, &[])], vec!["x"]),
        ("cross-set-requires", vec![of("x1", Some("x"), 1, &["y1"])], vec![]),
        ("moved-between-sets", vec![of("y1", Some("x"), 1, &[])], vec![]),
        ("moved-between-sets", vec![of("s", Some("x"), 1, &[])], vec![]),
        ("shared-resource-changed", vec![of("s", None, 2, &[])], vec![]),
        ("dangling-requires", vec![of("x1", Some("x"), 1, &["nothing"])], vec![]),
        (
            "duplicate-resource",
            vec![of("x1", Some("x"), 1, &[]), of("x1", Some("x"), 2, &[])],
            vec![],
        ),
    ];
    for (code, resources, removed) in cases {
        refused(&change(&world, resources, &removed), 400, code);
    }
    let with_number = json!({"scope": "partial", "number": 1, "resources": []});
    refused(&world.post("/versions", &with_number), 400, "number-too-late");
    let full = json!({"resources": [], "removed_sets": ["x"]});
    refused(&world.post("/versions", &full), 400, "removed-sets-in-full");
    let mut other =
        json!({"scope": "partial", "resources": [of("x1", Some("x"), 1, &[])], "code": other_code});
    refused(&world.post("/versions", &other), 400, "code-differs");
    assert_eq!(
        world.get("/versions").good()["items"].as_array().unwrap().len(),
        1,
        "nothing was stored"
    );
    other["allow_code_update"] = json!(true);
    assert_eq!(world.post("/versions", &other).good()["info"]["code"], json!(other_code));
    let kept = change(&world, vec![of("x1", Some("x"), 5, &[])], &[]).good();
    assert_eq!(kept["info"]["code"], json!(other_code), "code goes on from version to version");

    let unsuitable =
        json!({"resources": [of("x1", Some("x"), 1, &["y1"]), of("y1", Some("y"), 1, &[])]});
    world.post("/versions", &unsuitable).good();
    refused(&change(&world, vec![of("y1", Some("y"), 2, &[])], &[]), 400, "base-not-suitable");
}

fn cycles_through_untouched_resources_are_refused(world: World) {
    // s requires t, and t requires x1: a chain through the shared set and back into a named one.
    let base = json!({"resources": [
        of("s", None, 1, &["t"]), of("t", None, 1, &["u"]), of("u", None, 1, &["x1"]),
        of("x1", Some("x"), 1, &[]), of("y1", Some("y"), 1, &[]),
    ]});
    world.post("/versions", &base).good();
    let closing = change(&world, vec![of("x1", Some("x"), 1, &["s"])], &[]);
    refused(&closing, 400, "requirement-cycle");
    let inside = vec![of("x1", Some("x"), 1, &["x2"]), of("x2", Some("x"), 1, &["x1"])];
    refused(&change(&world, inside, &[]), 400, "requirement-cycle");
    let added = vec![of("s", None, 1, &["x1"]), of("x1", Some("x"), 1, &["s"])];
    refused(&change(&world, added, &[]), 400, "requirement-cycle");
    assert_eq!(world.get("/versions").good()["items"].as_array().unwrap().len(), 1);
    change(&world, vec![of("x1", Some("x"), 2, &[])], &[]).good();
    change(&world, vec![of("y1", Some("y"), 1, &["s"])], &[]).good();
}

fn untouched_sets_stay(world: World) {
    let base = json!({
        "resources": [
            of("s", None, 1, &["x1", "y1"]), of("x1", Some("x"), 1, &[]), of("x2", Some("x"), 1, &[]),
            of("y1", Some("y"), 1, &[]), of("z1", Some("z"), 1, &[]),
        ],
        "unknowns": [
            {"name": "u", "resource": id_of("x1"), "source": "fact"},
            {"name": "u", "resource": id_of("y1"), "source": "fact"},
            {"name": "p", "source": "user"},
        ],
    });
    world.post("/versions", &base).good();
    let upload = json!({
        "scope": "partial",
        "resources": [of("s", None, 1, &["t"]), of("t", None, 1, &[]), of("x2", Some("x"), 2, &[])],
        "removed_sets": ["z"],
        "unknowns": [{"name": "v", "resource": id_of("x2"), "source": "fact"}],
    });
    let stored = world.post("/versions", &upload).good();
    assert_eq!((&stored["total"], &stored["info"]["partial_base"]), (&json!(4), &json!(1)));
    let found = world.get("/versions/2/resources").good();
    assert_eq!(ids(&found), [id_of("s"), id_of("t"), id_of("x2"), id_of("y1")]);
    assert_eq!(found["items"][0]["requires"], json!([id_of("t"), id_of("y1")]), "x1 is gone");
    let unknowns = world.get("/versions/2/unknowns").good();
    let unknowns: Vec<(String, String)> = unknowns["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|each| {
            (
                each["name"].as_str().unwrap().to_owned(),
                each["resource"].as_str().unwrap_or("").to_owned(),
            )
        })
        .collect();
    let named = |name: &str, id: String| (name.to_owned(), id);
    assert_eq!(
        unknowns,
        [named("p", String::new()), named("v", id_of("x2")), named("u", id_of("y1"))]
    );
    let diff = world.get("/versions/1/compare/2").good();
    assert!(!ids(&diff).contains(&id_of("y1")));
}

fn concurrent_partial_versions_are_all_stored(world: World) {
    world.upload(&[("s", 1)]);
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|set| {
                let world = &world;
                scope.spawn(move || {
                    let name = format!("set{set}");
                    let resources = vec![of(&format!("r{set}"), Some(&name), 1, &["s"])];
                    change(world, resources, &[]).status
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(statuses, [201; 8]);
    let newest = world.get("/versions?limit=1").good();
    assert_eq!(
        (&newest["items"][0]["number"], &newest["items"][0]["total"]),
        (&json!(9), &json!(9))
    );
}
