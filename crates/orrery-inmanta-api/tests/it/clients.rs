//! Inmanta-compatible API: parsing and responses, without the client (`tests/classic` has that
//! one).

use serde_json::{Value, json};

use crate::support::{Answer, Client, Served};

/// A client of one environment.
struct InmantaClient {
    served: Served,
    environment: String,
}

impl InmantaClient {
    fn start() -> Self {
        let served = Served::start();
        let project = served.admin.put("/api/v2/project", &json!({"name": "p"})).good();
        let new = json!({"project_id": project["data"]["id"], "name": "e"});
        let environment = served.admin.put("/api/v2/environment", &new).good();
        let environment = environment["data"]["id"].as_str().unwrap().to_owned();
        InmantaClient { served, environment }
    }

    fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        self.send_as(&self.served.admin, method, path, body)
    }

    fn send_as(&self, who: &Client, method: &str, path: &str, body: Option<&Value>) -> Answer {
        who.send(method, path, &[("X-Inmanta-tid", &self.environment)], body)
    }

    fn get(&self, path: &str) -> Answer {
        self.send("GET", path, None)
    }

    fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, Some(body))
    }

    /// Stores a version with these resources, which is not deployed.
    fn put(&self, resources: &Value, more: Value) -> Answer {
        let number = self.post("/api/v2/reserve_version", &json!({})).good()["data"].clone();
        let mut body =
            json!({"version": number, "resources": resources, "module_version_info": {}});
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        self.send("PUT", "/api/v1/version", Some(&body))
    }
}

fn idle(name: &str) -> Value {
    json!({"id": format!("std::testing::NullResource[one,name={name}],v=0"), "name": name, "requires": []})
}

fn message(answer: &Answer) -> &str {
    answer.body["message"].as_str().unwrap_or_else(|| panic!("{answer:?}"))
}

#[test]
fn errors_have_the_inmanta_form_and_other_paths_keep_theirs() {
    let client = InmantaClient::start();
    let admin = &client.served.admin;
    let nobody = client.served.anonymous();
    let cases = [
        (nobody.get("/api/v2/project"), 401, "Unauthorized: "),
        (admin.get("/api/v2/agents"), 400, "Invalid request: Field 'tid' is required."),
        (client.get("/api/v2/agents?sort=x.asc"), 400, "Invalid request: Sort parameter invalid"),
        (admin.get("/api/v2/nothing"), 404, "Request or referenced resource does not exist: "),
        (admin.patch("/api/v2/project", &json!({})), 405, ""),
        (admin.put("/api/v2/project", &json!({"name": "p"})), 409, "Request conflicts"),
        (admin.put("/api/v2/project", &json!({"name": "x", "y": 1})), 400, "Invalid request: "),
        (admin.get("/api/v1/version/1"), 400, "Invalid request: Field 'tid' is required."),
        (client.get("/api/v1/version/1"), 404, "Request or referenced resource does not exist: "),
    ];
    for (answer, status, beginning) in cases {
        assert_eq!(answer.status, status, "{answer:?}");
        assert!(message(&answer).starts_with(beginning), "{answer:?}");
        assert_eq!(answer.headers["content-type"], "application/json");
    }
    let own = admin.get("/api/v1/projects/nothing");
    assert_eq!(own.headers["content-type"], "application/problem+json");
    let unknown = [("X-Inmanta-tid", "00000000-0000-0000-0000-000000000000")];
    assert_eq!(admin.send("GET", "/api/v2/agents", &unknown, None).status, 404);
}

#[test]
fn bodies_need_no_media_type_and_may_be_left_out() {
    let client = InmantaClient::start();
    // The client sends JSON with the content type of a form.
    let headers = [("X-Inmanta-tid", client.environment.as_str())];
    let url = format!("{}/api/v2/reserve_version", client.served.admin.base);
    let token = format!("Bearer {}", client.served.admin.token.as_ref().unwrap());
    for (expected, body) in [(1, "{}"), (2, "")] {
        let answer = ureq::post(&url)
            .header(headers[0].0, headers[0].1)
            .header("authorization", &token)
            .header("content-type", "application/x-www-form-urlencoded")
            .send(body)
            .unwrap()
            .body_mut()
            .read_to_string()
            .unwrap();
        assert_eq!(serde_json::from_str::<Value>(&answer).unwrap(), json!({"data": expected}));
    }
    let nul = client.send(
        "PUT",
        "/api/v2/parameters/x",
        Some(&json!({"source": "user", "value": "a\0"})),
    );
    assert_eq!(nul.status, 400, "{nul:?}");
}

#[test]
fn pages_are_cut_at_any_column_and_keep_their_counts() {
    let client = InmantaClient::start();
    for name in ["b", "a", "d", "c", "e"] {
        let value = json!({"source": if name < "c" { "user" } else { "plugin" }, "value": name});
        client.send("PUT", &format!("/api/v2/parameters/{name}"), Some(&value)).good();
    }
    let names = |page: &Value| {
        let names =
            page["data"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap());
        names.collect::<Vec<_>>().concat()
    };
    let page = client.get("/api/v2/parameters?limit=2").good();
    assert_eq!(names(&page), "ab");
    assert_eq!(page["metadata"], json!({"total": 5, "before": 0, "after": 3, "page_size": 2}));
    assert!(page["links"].get("prev").is_none() && page["links"].get("first").is_none());
    let page = client.get(page["links"]["next"].as_str().unwrap()).good();
    assert_eq!(names(&page), "cd");
    assert_eq!(page["metadata"], json!({"total": 5, "before": 2, "after": 1, "page_size": 2}));
    let first = client.get(page["links"]["first"].as_str().unwrap()).good();
    assert_eq!(names(&first), "ab");
    let back = client.get(page["links"]["prev"].as_str().unwrap()).good();
    assert_eq!(names(&back), "ab");
    let same = client.get(page["links"]["self"].as_str().unwrap()).good();
    assert_eq!(same["data"], page["data"]);
    // The items next to the bound, in either order.
    assert_eq!(
        names(&client.get("/api/v2/parameters?limit=2&sort=name.desc&start=b").good()),
        "dc"
    );
    assert_eq!(names(&client.get("/api/v2/parameters?limit=2&end=d").good()), "bc");
    let beyond = client.get("/api/v2/parameters?start=z").good();
    assert_eq!(names(&beyond), "");
    assert_eq!(beyond["metadata"], json!({"total": 5, "before": 5, "after": 0, "page_size": 1000}));
    assert_eq!(names(&client.get("/api/v2/parameters?filter.source=use").good()), "ab");
    assert_eq!(names(&client.get("/api/v2/parameters?filter.name=a&filter.name=E").good()), "ae");
    let ranges = "filter.updated=gt:2020-01-01T00:00:00&filter.updated=lt:2021-01-01T00:00:00";
    assert_eq!(names(&client.get(&format!("/api/v2/parameters?{ranges}")).good()), "");
    for wrong in ["updated=soon", "updated=ge:soon", "updated=about:2020-01-01"] {
        assert_eq!(
            client.get(&format!("/api/v2/parameters?filter.{wrong}")).status,
            400,
            "{wrong}"
        );
    }
}

#[test]
fn versions_are_stored_with_their_code() {
    let client = InmantaClient::start();
    let content = "print('hello')\n";
    let hash = orrery_host::bundle::sha1_hex(content.as_bytes());
    let file = |path: &str| json!({"path": path, "hash_value": hash});
    let module = |version: &str| {
        json!({"name": "mine", "version": version, "requirements": [], "load_module_on_agents": ["one"],
               "files_in_module": [file("inmanta_plugins/mine/__init__.py"), file("setup.cfg")]})
    };
    let resources = json!([
        {"id": "mine::Thing[one,name=a],v=0", "name": "a", "requires": []},
        idle("b"),
    ]);
    let missing = client.put(&resources, json!({"module_version_info": {"mine": module("1")}}));
    assert_eq!(missing.status, 400, "{missing:?}");
    assert!(message(&missing).contains("were not uploaded"), "{missing:?}");
    let upload = json!({"content": "cHJpbnQoJ2hlbGxvJykK"});
    client.send("PUT", &format!("/api/v1/file/{hash}"), Some(&upload)).good();
    let stored = client.put(
        &resources,
        json!({
            "module_version_info": {"mine": module("1")},
            "pip_config": {"index-url": null},
            "resource_sets": {"mine::Thing[one,name=a]": "A"},
        }),
    );
    assert_eq!(stored.status, 200, "{stored:?}");
    let store = client.served.app.store();
    let environment =
        store.environments().list(None).unwrap().into_iter().find(|one| one.name == "e").unwrap();
    let code_of = || {
        let versions = store.versions().list(environment.key).unwrap();
        let info = versions.last().unwrap().info.clone();
        let code = info["code"].as_str().unwrap().to_owned();
        let file = client.get(&format!("/api/v1/file/{code}")).good();
        let file = base64(file["content"].as_str().unwrap());
        serde_json::from_slice::<orrery_host::bundle::Bundle>(&file).unwrap()
    };
    let bundle = code_of();
    assert_eq!(bundle.set.handlers, ["mine::Thing"]);
    assert_eq!(bundle.files.keys().collect::<Vec<_>>(), ["inmanta_plugins/mine/__init__.py"]);
    assert_eq!(client.get("/api/v2/pip/config/2").good(), json!({"data": {"index-url": null}}));

    // Code of a partial version: unchanged, or with permission to change.
    let partial =
        |version: &str, allow: bool| {
            client.send("PUT", "/api/v2/version/partial", Some(&json!({
            "resources": [{"id": "mine::Other[one,name=c],v=0", "name": "c", "requires": []}],
            "resource_sets": {"mine::Other[one,name=c]": "C"},
            "module_version_info": {"mine": module(version)},
            "allow_handler_code_update": allow,
        })))
        };
    assert_eq!(partial("2", false).status, 400);
    assert_eq!(partial("1", false).good(), json!({"data": 3}));
    assert_eq!(code_of().set.handlers, ["mine::Other", "mine::Thing"]);
    assert_eq!(partial("2", true).good(), json!({"data": 4}));
    assert_eq!(code_of().set.modules[0].version, "2");
}

fn base64(text: &str) -> Vec<u8> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(text).unwrap()
}

#[test]
fn a_compile_is_requested_by_an_audited_get() {
    let client = InmantaClient::start();
    let path = format!("/api/v1/notify/{}", client.environment);
    assert_eq!(client.send("HEAD", &path, None).status, 204);
    client.served.admin.get(&format!("{path}?update=true&reinstall=false")).good();
    assert_eq!(client.send("HEAD", &path, None).status, 200);
    let queue = client.get("/api/v1/compilequeue").good();
    assert_eq!(queue["queue"][0]["force_update"], json!(true));
    // A cross-site page cannot trigger one with the session cookie of a browser.
    let session = client.served.admin.token.clone().unwrap();
    let cookie = format!("orrery={session}");
    let from = |site: &str| {
        let headers = [("cookie", cookie.as_str()), ("sec-fetch-site", site)];
        client.served.anonymous().send("GET", &path, &headers, None).status
    };
    assert_eq!((from("same-site"), from("same-origin")), (403, 200));
    let setting = json!({"value": false});
    client.post("/api/v2/environment_settings/server_compile", &setting).good();
    let skipped = client.served.admin.post(&path, &json!({})).good();
    assert!(skipped["metadata"]["warnings"][0].as_str().unwrap().contains("not enabled"));
    let log = client.served.admin.get("/api/v1/audit").good();
    let noted = log["items"]
        .as_array()
        .unwrap()
        .iter()
        .any(|entry| entry["action"] == json!("GET /api/v1/notify/{environment}"));
    assert!(noted, "{log}");
}

/// A version of many resources is streamed completely.
#[test]
fn a_large_version_is_streamed() {
    let client = InmantaClient::start();
    let all: Vec<Value> = (0..1003).map(|n| idle(&format!("r{n:04}"))).collect();
    assert_eq!(client.put(&json!(all), json!({})).status, 200);
    let version = client.get("/api/v1/version/1");
    assert!(!version.headers.contains_key("content-length"), "it is in memory as a whole");
    let version = version.good();
    let rows = version["resources"].as_array().unwrap();
    let ids: std::collections::BTreeSet<&str> =
        rows.iter().map(|row| row["resource_id"].as_str().unwrap()).collect();
    assert_eq!((rows.len(), ids.len()), (1003, 1003));
    assert_eq!(version["model"]["version"], json!(1));
    let few = client.get("/api/v1/version/1?limit=3&include_logs=true").good();
    assert_eq!(few["resources"].as_array().unwrap().len(), 3);
    assert!(few["resources"][0]["actions"].is_array(), "{few}");
    assert_eq!(client.get("/api/v1/version/2").status, 404);
}

#[test]
fn undefined_resources_and_unknowns_are_stored_as_sent() {
    let client = InmantaClient::start();
    let id = "std::testing::NullResource[one,name=a]";
    let stored = client.put(
        &json!([idle("a")]),
        json!({
            "resource_state": {id: "undefined"},
            "unknowns": [{"parameter": "ip", "source": "fact", "resource": id}],
        }),
    );
    assert_eq!(stored.status, 200, "{stored:?}");
    let version = client.get("/api/v1/version/1").good();
    assert_eq!(version["resources"][0]["is_undefined"], json!(true));
    assert_eq!(version["unknowns"][0]["resource_id"], json!(id));
    let listed = client.get("/api/v2/resource").good();
    assert_eq!(listed["data"][0]["status"], json!("undefined"));
    // A resolved unknown triggers a compile, requested or not.
    let environment = json!({"name": "e", "repository": "https://a.invalid/b", "branch": "main"});
    let path = format!("/api/v2/environment/{}", client.environment);
    client.served.admin.post(&path, &environment).good();
    let fact = json!({"source": "fact", "value": "::1", "resource_id": id});
    client.send("PUT", "/api/v2/facts/ip", Some(&fact)).good();
    assert_eq!(client.get("/api/v2/compilereport").good()["metadata"]["total"], json!(1));
}
