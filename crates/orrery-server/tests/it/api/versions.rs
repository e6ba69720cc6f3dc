//! Versions: upload, comparison, release, roll-back, deletion.

use orrery_model::OutcomeStatus;
use serde_json::{Value, json};

use crate::support::gzip;

use super::{World, id_of, ids, on_both, path_of, refused, resource};

on_both!(
    an_operation_is_created_with_its_release,
    a_verification_is_created_with_its_release,
    versions_are_stored_and_shown,
    numbers_are_reserved_first,
    bad_versions_are_refused_whole,
    paths_of_one_machine_have_one_resource,
    of_concurrent_releases_one_wins,
    an_older_version_never_overrides_a_newer_one,
    versions_are_compared,
    any_version_can_be_rolled_back_to,
    only_unused_versions_are_deleted,
    deleting_versions_and_recording_results_do_not_block_each_other,
    compressed_uploads_are_decompressed_within_limits,
);

fn versions_are_stored_and_shown(world: World) {
    let info = json!({"message": "first"});
    let resources = [
        json!({"id": id_of("a"), "attributes": {"value": 1, "send_event": true}, "requires": [id_of("b")],
               "source": {"file": "main.cf", "line": 3, "column": 1}}),
        json!({"id": id_of("b"), "attributes": {"value": 1}, "set": "s", "undefined": true}),
    ];
    let unknowns = [json!({"name": "u", "resource": id_of("b"), "source": "fact"})];
    let upload = json!({"resources": resources, "unknowns": unknowns, "info": info});
    let answer = world.post("/versions", &upload);
    assert_eq!(answer.status, 201);
    assert_eq!(answer.headers["location"], world.at("/versions/1"));
    let stored = answer.good();
    assert_eq!((&stored["total"], &stored["released"]), (&json!(2), &json!(true)));
    assert_eq!((&stored["status"], &stored["transitioning"]), (&json!("candidate"), &json!("yes")));
    assert_eq!(stored["info"]["message"], "first");

    let found = world.get("/versions/1/resources").good();
    assert_eq!(ids(&found), [id_of("a"), id_of("b")]);
    assert_eq!(found["items"][0]["requires"], json!([id_of("b")]));
    assert_eq!(
        (&found["items"][1]["set"], &found["items"][1]["undefined"]),
        (&json!("s"), &json!(true))
    );
    let found = world.get("/versions/1/resources?value=B").good();
    assert_eq!(ids(&found), [id_of("b")], "part of the value, in any case");
    assert_eq!(ids(&world.get("/versions/1/resources?agent=nobody").good()), Vec::<String>::new());
    let unknowns = world.get("/versions/1/unknowns").good();
    assert_eq!(
        (&unknowns["items"][0]["name"], &unknowns["items"][0]["resolved"]),
        (&json!("u"), &json!(false))
    );

    let mut same = upload.clone();
    same["only_if_changed"] = json!(true);
    let answer = world.post("/versions", &same);
    assert_eq!((answer.status, &answer.body["created_now"]), (200, &json!(false)));
    world.put("/settings/auto_deploy", &json!({"value": false})).good();
    let second = world.upload(&[("a", 2)]);
    let third = world.upload(&[("a", 3)]);
    let lease = world.lease();
    world.post_empty(&format!("/versions/{third}/release")).good();
    world.deploy(&lease, third, &[]);
    let list = world.get("/versions").good();
    let shown: Vec<(&Value, &Value)> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|version| (&version["number"], &version["status"]))
        .collect();
    assert_eq!(
        shown,
        [
            (&json!(third), &json!("active")),
            (&json!(second), &json!("skipped_candidate")),
            (&json!(1), &json!("retired")),
        ]
    );
    let page = world.get("/versions?limit=2").good();
    let next = page["next"].as_str().unwrap();
    let page = world.get(&format!("/versions?limit=2&after={next}")).good();
    assert_eq!((&page["items"][0]["number"], &page["next"]), (&json!(1), &Value::Null));
    assert_eq!(world.get("/versions?status=active").good()["items"].as_array().unwrap().len(), 1);
    refused(&world.get("/versions?status=old"), 400, "bad-filter");
    refused(&world.get("/versions/99"), 404, "not-found");
}

fn numbers_are_reserved_first(world: World) {
    let resources = json!([resource("a", 1)]);
    let with =
        |number: u64| world.post("/versions", &json!({"number": number, "resources": resources}));
    refused(&with(1), 400, "version-not-reserved");
    let number = world.post_empty("/versions/reserve").good()["number"].as_u64().unwrap();
    assert_eq!(with(number).status, 201);
    refused(&with(number), 409, "exists");
    refused(&with(u64::MAX), 400, "version-not-reserved");
    refused(&with(0), 400, "version-not-reserved");
    assert_eq!(world.get("/versions").good()["items"].as_array().unwrap().len(), 1);
}

fn bad_versions_are_refused_whole(world: World) {
    let put = |resources: Value| world.post("/versions", &json!({"resources": resources}));
    let twice = json!([resource("a", 1), resource("a", 2)]);
    refused(&put(twice), 400, "duplicate-resource");
    let dangling = json!([{"id": id_of("a"), "attributes": {}, "requires": [id_of("b")]}]);
    refused(&put(dangling), 400, "dangling-requires");
    let circle = json!([
        {"id": id_of("a"), "attributes": {}, "requires": [id_of("b")]},
        {"id": id_of("b"), "attributes": {}, "requires": [id_of("c")]},
        {"id": id_of("c"), "attributes": {}, "requires": [id_of("b")]},
    ]);
    let answer = put(circle);
    refused(&answer, 400, "requirement-cycle");
    let (b, c) = (id_of("b"), id_of("c"));
    let told = answer.body["detail"].as_str().unwrap();
    assert!(told.contains(&format!("{b} requires {c} requires {b}")), "{told}");
    let own = json!([{"id": id_of("a"), "attributes": {}, "requires": [id_of("a")]}]);
    refused(&put(own), 400, "requirement-cycle");
    refused(&put(json!([{"id": "a", "attributes": {}}])), 422, "invalid");
    refused(
        &put(json!([{"id": id_of("a"), "attributes": {}, "set": ""}])),
        400,
        "invalid-set-name",
    );
    refused(&put(json!([{"id": id_of("a"), "attributes": []}])), 422, "invalid");
    let missing = json!({"resources": [], "code": "0".repeat(40)});
    refused(&world.post("/versions", &missing), 400, "code-missing");
    assert!(world.get("/versions").good()["items"].as_array().unwrap().is_empty());
    assert_eq!(world.upload(&[]), 1, "an empty version is one");
}

fn paths_of_one_machine_have_one_resource(world: World) {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let file = |agent: &str, path: &str, purged: bool| {
        let id = format!("std::File[{agent},path={path}]");
        json!({"id": id, "attributes": {"path": path, "purged": purged}})
    };
    let put = |resources: &[Value]| world.post("/versions", &json!({"resources": resources}));
    let both = [file(&host, "/srv/a", false), file("localhost", "/srv//a", true)];
    let answer = put(&both);
    refused(&answer, 400, "path-collision");
    let told = answer.body["detail"].as_str().unwrap();
    for part in ["/srv/a", &format!("std::File[{host},path=/srv/a]"), "keep one of them"] {
        assert!(told.contains(part), "{part} in {told}");
    }
    assert!(world.get("/versions").good()["items"].as_array().unwrap().is_empty());
    let apart = [file("web1", "/srv/a", false), file("localhost", "/srv/a", false)];
    assert_eq!(put(&apart).status, 201, "two machines");
    let declared = json!({"resources": apart, "local_agents": ["web*"]});
    refused(&world.post("/versions", &declared), 400, "path-collision");
    let purged = [file(&host, "/srv/a", true), file("localhost", "/srv/a", true)];
    assert_eq!(put(&purged).status, 201, "absence is one thing");
}

fn of_concurrent_releases_one_wins(world: World) {
    world.put("/settings/auto_deploy", &json!({"value": false})).good();
    let number = world.upload(&[("a", 1)]);
    let path = world.at(&format!("/versions/{number}/release"));
    let answers: Vec<u16> = std::thread::scope(|scope| {
        let release = || world.admin().send("POST", &path, &[], None).status;
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(release)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(answers.iter().filter(|status| **status == 200).count(), 1, "{answers:?}");
    assert!(answers.iter().all(|status| [200, 409].contains(status)), "{answers:?}");
}

fn an_older_version_never_overrides_a_newer_one(world: World) {
    world.put("/settings/auto_deploy", &json!({"value": false})).good();
    let (old, new) = (world.upload(&[("a", 1)]), world.upload(&[("a", 2)]));
    let before = world.get(&format!("/versions/{new}")).good();
    assert!(before.get("released_at").is_none(), "{before}");
    let after = world.post_empty(&format!("/versions/{new}/release")).good();
    let (made, released) = (after["created"].as_str(), after["released_at"].as_str());
    assert!(made.is_some() && made < released, "{after}");
    refused(&world.post_empty(&format!("/versions/{old}/release")), 409, "superseded");
    refused(&world.post_empty(&format!("/versions/{new}/release")), 409, "already-released");
    // A reserved number that is stored after a newer version was released.
    let late = world.post_empty("/versions/reserve").good()["number"].as_u64().unwrap();
    let newest = world.upload(&[("a", 3)]);
    world.post_empty(&format!("/versions/{newest}/release")).good();
    let upload = json!({"number": late, "resources": [resource("a", 4)], "release": true});
    let stored = world.post("/versions", &upload).good();
    assert_eq!(stored["released"], false);
    assert_eq!(stored["transitioning_message"], "not released: a newer version is");
}

fn versions_are_compared(world: World) {
    let old = json!({"resources": [
        {"id": id_of("a"), "attributes": {"x": 1, "y": 2}},
        {"id": id_of("b"), "attributes": {}},
        {"id": id_of("c"), "attributes": {}},
    ]});
    let new = json!({"resources": [
        {"id": id_of("a"), "attributes": {"x": 1, "z": [3]}, "requires": [id_of("c")]},
        {"id": id_of("c"), "attributes": {}},
        {"id": id_of("d"), "attributes": {"w": null}},
    ]});
    world.post("/versions", &old).good();
    world.post("/versions", &new).good();
    let found = world.get("/versions/1/compare/2").good();
    let found = found["items"].as_array().unwrap();
    let short: Vec<(&str, &str)> = found
        .iter()
        .map(|each| (each["id"].as_str().unwrap(), each["status"].as_str().unwrap()))
        .collect();
    let (a, b, d) = (id_of("a"), id_of("b"), id_of("d"));
    assert_eq!(short, [(a.as_str(), "modified"), (b.as_str(), "deleted"), (d.as_str(), "added")]);
    assert_eq!(
        found[0]["changes"],
        json!([
            {"name": "y", "current": 2, "desired": null},
            {"name": "z", "current": null, "desired": [3]},
        ])
    );
    assert_eq!(found[0]["requires_added"], json!([id_of("c")]));
    let back = world.get("/versions/2/compare/1").good();
    assert_eq!(back["items"][1]["status"], "added");
    let page = world.get("/versions/1/compare/2?limit=2").good();
    let next = page["next"].as_str().unwrap();
    assert_eq!(ids(&world.get(&format!("/versions/1/compare/2?limit=2&after={next}")).good()), [d]);
    refused(&world.get("/versions/1/compare/9"), 404, "not-found");
    let counts = world.get("/versions/1/compare/2/counts").good();
    assert_eq!(counts, json!({"added": 1, "modified": 1, "deleted": 1}));
    let none = world.get("/versions/2/compare/2/counts").good();
    assert_eq!(none, json!({"added": 0, "modified": 0, "deleted": 0}));
    let of = |status: &str| ids(&world.get(&format!("/versions/1/compare/2?{status}")).good());
    assert_eq!((of("status=deleted"), of("status=added&limit=1")), (vec![b], vec![id_of("d")]));
    refused(&world.get("/versions/1/compare/2?status=odd"), 400, "bad-filter");
    refused(&world.get("/versions/1/compare/9/counts"), 404, "not-found");
}

fn any_version_can_be_rolled_back_to(world: World) {
    let first = json!({
        "resources": [resource("a", 1), {"id": id_of("s"), "attributes": {"value": 1}, "set": "x", "undefined": true}],
        "unknowns": [{"name": "u", "source": "user"}], "info": {"message": "good"},
    });
    world.post("/versions", &first).good();
    world.upload(&[("a", 2), ("b", 1)]);
    let back = world.post_empty("/versions/1/roll-back");
    assert_eq!(back.status, 201);
    let back = back.good();
    assert_eq!((&back["number"], &back["released"]), (&json!(3), &json!(true)));
    assert_eq!(
        (&back["info"]["rolled_back_to"], &back["info"]["message"]),
        (&json!(1), &json!("good"))
    );
    let same = world.get("/versions/1/compare/3").good();
    assert!(same["items"].as_array().unwrap().is_empty(), "{same}");
    assert_eq!(world.get("/versions/3/unknowns").good()["items"].as_array().unwrap().len(), 1);
    refused(&world.post_empty("/versions/9/roll-back"), 404, "not-found");
}

fn only_unused_versions_are_deleted(world: World) {
    world.upload(&[("a", 1)]);
    world.upload(&[("a", 2)]);
    refused(&world.delete("/versions/2"), 409, "in-use");
    assert_eq!(world.delete("/versions/1").status, 204);
    refused(&world.delete("/versions/1"), 404, "not-found");
    world.put("/settings/auto_deploy", &json!({"value": false})).good();
    let candidate = world.upload(&[("a", 3)]);
    assert_eq!(
        world.delete(&format!("/versions/{candidate}")).status,
        204,
        "an upgrade is called off"
    );
    assert_eq!(world.get(&path_of("a")).good()["attributes"]["value"], 2);
}

fn deleting_versions_and_recording_results_do_not_block_each_other(world: World) {
    let numbers: Vec<u32> =
        (0..12).map(|value| world.upload(&[("a", value), ("b", value)])).collect();
    let (last, old) = numbers.split_last().unwrap();
    let lease = world.lease();
    world.deploy(&lease, *last, &[]);
    std::thread::scope(|scope| {
        let record = scope.spawn(|| {
            for _ in 0..10 {
                let outcomes = [("a", OutcomeStatus::Deployed), ("b", OutcomeStatus::Failed)];
                world.deploy(&lease, *last, &outcomes);
            }
        });
        for number in old {
            assert_eq!(world.delete(&format!("/versions/{number}")).status, 204);
        }
        record.join().unwrap();
    });
    let left = world.get("/versions").good();
    assert_eq!(left["items"].as_array().unwrap().len(), 1);
    assert_eq!(world.store().check().unwrap(), Vec::<String>::new());
}

fn compressed_uploads_are_decompressed_within_limits(world: World) {
    let send = |body: Vec<u8>, encoding: &str| {
        let headers = [("content-encoding", encoding), ("content-type", "application/json")];
        world.admin().send_bytes("POST", &world.at("/versions"), &headers, body)
    };
    let upload = json!({"resources": [resource("a", 1)]}).to_string();
    assert_eq!(send(gzip(upload.as_bytes()), "gzip").status, 201);
    let strange = send(upload.clone().into_bytes(), "snappy");
    refused(&strange, 415, "unsupported-media-type");
    assert!(
        strange.text.contains("unsupported Content-Encoding")
            && !strange.text.contains("must be JSON")
    );
    let broken = send(b"no gzip".to_vec(), "gzip");
    refused(&broken, 400, "bad-request");
    assert!(
        broken.text.contains("Content-Encoding") && !broken.text.contains("buffer"),
        "{broken:?}"
    );
    let bad = |path: &str, words: &str| {
        let answer = world.get(path);
        refused(&answer, 400, "bad-request");
        assert!(answer.text.contains(words), "{answer:?}");
    };
    bad("/versions?released=no", "released must be true or false");
    bad("/versions?limit=many", "limit must be a whole number");
    bad("/versions/many", "must be a whole number");
    bad("/operations/x", "must be an id");
    let action = world.post_empty("/agents/agent/explode");
    refused(&action, 400, "bad-request");
    assert!(action.text.contains("explode in the path is unknown"), "{action:?}");
    // Small when compressed, and much too large decompressed.
    let bomb = gzip(&vec![b' '; 101 * 1024 * 1024]);
    assert!(bomb.len() < 1024 * 1024);
    refused(&send(bomb, "gzip"), 413, "too-large");
    assert_eq!(world.get("/versions").good()["items"].as_array().unwrap().len(), 1);
}

fn an_operation_is_created_with_its_release(world: World) {
    let store = |note: u32| {
        let resources = json!([{"id": "t::R[a,name=n]", "attributes": {"note": note}}]);
        let stored = world.post("/versions", &json!({"resources": resources, "release": false}));
        stored.good()["number"].as_u64().unwrap()
    };
    let (first, second) = (store(1), store(2));
    let ask = |number: u64, action: &str, wish: &str| {
        world.post(&format!("/versions/{number}/{action}"), &json!({wish: true}))
    };
    refused(&ask(first, "release", "destroy"), 422, "invalid");
    assert_eq!(world.get(&format!("/versions/{first}")).good()["released"], false);
    // The second time, the version is released already: only the operation is created.
    for (wish, request) in [("deploy", json!({})), ("verify", json!({"verify": true}))] {
        let released = ask(first, "release", wish).good();
        assert_eq!((&released["number"], &released["released"]), (&json!(first), &json!(true)));
        let operation = &released["operation"];
        assert_eq!((&operation["kind"], &operation["request"]), (&json!("deploy"), &request));
        let path = format!("/operations/{}", released["operation"]["id"].as_str().unwrap());
        assert_eq!(world.get(&path).good()["transitioning"], "yes");
    }
    assert!(
        world.post_empty(&format!("/versions/{second}/release")).good().get("operation").is_none()
    );
    // The operation would apply to another version.
    refused(&ask(first, "release", "deploy"), 409, "superseded");
    let back = ask(first, "roll-back", "deploy").good();
    assert_eq!((&back["released"], &back["operation"]["kind"]), (&json!(true), &json!("deploy")));
    assert!(
        world
            .post_empty(&format!("/versions/{second}/roll-back"))
            .good()
            .get("operation")
            .is_none()
    );
    assert_eq!(world.get("/operations").good()["items"].as_array().unwrap().len(), 3);

    world.post_empty("/halt").good();
    let third = store(3);
    refused(&ask(third, "release", "deploy"), 409, "conflict");
    refused(&ask(first, "roll-back", "deploy"), 409, "conflict");
    assert_eq!(world.get("/versions").good()["items"].as_array().unwrap().len(), 5);
    assert_eq!(world.get(&format!("/versions/{third}")).good()["released"], false);
}

fn a_verification_is_created_with_its_release(world: World) {
    let resources = json!([{"id": "t::R[a,name=n]", "attributes": {}}]);
    let upload = |release: bool| {
        let body = json!({
            "resources": resources, "release": release, "verify": true, "only_if_changed": true,
        });
        world.post("/versions", &body)
    };
    refused(&upload(false), 422, "invalid");
    // The second stores nothing, and is verified nevertheless.
    for is_new in [true, false] {
        let stored = upload(true).good();
        assert_eq!((&stored["created_now"], &stored["released"]), (&json!(is_new), &json!(true)));
        let operation = &stored["operation"];
        assert_eq!(operation["kind"], "deploy", "{stored}");
        assert_eq!(operation["request"], json!({"verify": true}), "{stored}");
        let path = format!("/operations/{}", operation["id"].as_str().unwrap());
        assert_eq!(world.get(&path).good()["transitioning"], "yes");
    }
    assert_eq!(world.get("/operations").good()["items"].as_array().unwrap().len(), 2);
}
