//! Cluster documents on a real server, from the command line.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::server_commands::{PASSWORD, World, fails};

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, run: fn() -> Result<()>| {
        Trial::test(format!("cluster_server/{name}"), move || {
            Ok(run().map_err(|error| format!("{error:#}"))?)
        })
    };
    vec![
        trial("documents go to a server and are solved there", walk),
        trial("documents of a project stay in it", projects),
        trial("weak accounts read and change nothing", weak_accounts),
        trial("odd files are refused", odd_files),
        trial("templates without a layout are warned of", unsolvable_templates),
        trial("names of templates are completed", completed_names),
        trial("a cluster is created, changed and deleted", a_life),
    ]
}

/// A server, and the example documents.
fn world() -> Result<World> {
    let mut world = World::new(false)?;
    world.start(true, "")?;
    let url = world.url()?.to_owned();
    world.done(&format!("orrery login {url} --name admin"))?;
    copy(&xtask::repository_root().join("examples/webstack"), &world.here.join("webstack"))?;
    fs::create_dir(world.here.join("empty"))?;
    Ok(world)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &target)?,
            false => fs::copy(entry.path(), target).map(drop)?,
        }
    }
    Ok(())
}

fn json_of(world: &World, line: &str) -> Result<Value> {
    let text = world.done(&format!("{line} 2>/dev/null"))?;
    serde_json::from_str(&text).with_context(|| format!("{line}: {text}"))
}

/// Removes locations in files, which a server does not know.
fn without_lines(mut value: Value) -> Value {
    let conflict = value.get_mut("conflict").and_then(Value::as_array_mut);
    for rule in conflict.into_iter().flatten() {
        if let Some(rule) = rule.as_object_mut() {
            rule.retain(|key, _| !["file", "line", "column"].contains(&key.as_str()));
        }
    }
    value
}

fn walk() -> Result<()> {
    let world = world()?;
    // Nothing is stored before the confirmation, and a dry run reports pending changes.
    fails(&world, "orrery cluster import webstack", &["+ template webstack", "--yes"])?;
    let (text, code) = world.run("orrery cluster import webstack --dry-run")?;
    ensure!(code == 2 && text.contains("10 documents would be created"), "{code}\n{text}");
    let text = world.done("orrery template list")?;
    ensure!(text.contains("0 templates"), "{text}");
    let text = world.done("orrery cluster import webstack --yes")?;
    ensure!(text.contains("10 documents created"), "{text}");
    let text = world.done("orrery cluster import webstack")?;
    ensure!(text.contains("10 documents unchanged"), "{text}");
    let text = world.done("orrery service list")?;
    for word in ["nginx", "postgresql", "user:admin", "installation", "5 services"] {
        ensure!(text.contains(word), "{word}: {text}");
    }
    let names = json_of(&world, "orrery hardware list --json")?;
    ensure!(
        names["items"][0]["name"] == "large" && names["items"][1]["name"] == "small",
        "{names}"
    );

    // The same results as from files.
    for (size, is_solved) in [(3, false), (4, true), (8, true), (50, true)] {
        let here = world.run(&format!(
            "orrery cluster solve webstack --size {size} --documents webstack --json 2>/dev/null"
        ))?;
        let there =
            world.run(&format!("cd empty; orrery cluster solve webstack --size {size} --json"))?;
        ensure!(here.1 == there.1 && (here.1 == 0) == is_solved, "{here:?}\n{there:?}");
        let here: Value = serde_json::from_str(&here.0)?;
        let there: Value = serde_json::from_str(&there.0).with_context(|| there.0.clone())?;
        ensure!(without_lines(here.clone()) == there, "{here:#}\n{there:#}");
        let line = format!("orrery cluster solve webstack --size {size}");
        let here = world.run(&format!("{line} --documents webstack"))?;
        let there = world.run(&format!("cd empty; {line}"))?;
        ensure!(!is_solved || here == there, "{}\n{}", here.0, there.0);
        ensure!(is_solved || there.0.contains("size 4 is the smallest that fits"), "{}", there.0);
    }
    // An existing cluster grows and shrinks in the same way.
    world.done("orrery cluster solve webstack --size 5 --documents webstack --json > five.json")?;
    for (size, word) in [(7, "2 nodes added: webstack-1005, webstack-1006"), (4, "1 node removed")]
    {
        let line = format!("orrery cluster solve webstack --size {size}");
        let here = world.done(&format!("{line} --from five.json --documents webstack"))?;
        let there = world.done(&format!("cd empty; {line} --from ../five.json"))?;
        ensure!(here == there && here.contains(word), "{here}\n{there}");
    }
    fails(
        &world,
        "cd empty; orrery cluster solve webstack --size 4 --from ../orrery",
        &["is not a layout"],
    )?;
    fails(&world, "cd empty; orrery cluster solve webstak --size 4", &["did you mean webstack"])?;
    // Documents of the working directory take precedence, unless a server is named.
    let url = world.url()?.to_owned();
    fs::write(world.here.join("webstack/hardwaretypes/small.yaml"), SMALL_CHEAPER)?;
    let line = "cd webstack; orrery cluster solve webstack --size 4 --json";
    let (here, there) =
        (json_of(&world, line)?, json_of(&world, &format!("{line} --server {url}"))?);
    ensure!(here["cost"] != there["cost"], "{here:#}\n{there:#}");

    // A change is shown and stored, and has a history.
    let (text, code) = world.run("orrery hardware apply -f webstack --dry-run")?;
    ensure!(code == 2 && text.contains("~ hardware type small"), "{code}\n{text}");
    ensure!(text.contains('-') && text.contains("0.5"), "{text}");
    let text = world.done("orrery hardware apply -f webstack/hardwaretypes/small.yaml --yes")?;
    ensure!(text.contains("1 document updated"), "{text}");
    let there = json_of(&world, "cd empty; orrery cluster solve webstack --size 4 --json")?;
    ensure!(here["cost"] == there["cost"], "{here:#}\n{there:#}");
    let history = json_of(&world, "orrery hardware history small --json")?;
    ensure!(
        history["items"][0]["revision"] == 2 && history["items"][1]["revision"] == 1,
        "{history}"
    );
    let old = json_of(&world, "orrery hardware show small --revision 1")?;
    ensure!(old["providermap"]["local"]["cost"] == 1, "{old}");
    // Printed documents can be applied again.
    world.done("orrery hardware show small 2>/dev/null > small.json")?;
    let text = world.done("orrery hardware apply -f small.json")?;
    ensure!(text.contains("1 document unchanged"), "{text}");

    // Problems are reported at their locations in the files, whichever documents they concern.
    fs::write(
        world.here.join("bad.yaml"),
        "name: nginx\ndependencies:\n  runtime:\n    requires: [appp]\n",
    )?;
    fails(
        &world,
        "orrery service apply -f bad.yaml --yes",
        &["bad.yaml:4:16", "did you mean `app`?"],
    )?;
    fs::write(world.here.join("bad.yaml"), "name: nginx\ncolour: red\n")?;
    fails(&world, "orrery service apply -f bad.yaml --yes", &["unknown-field", "bad.yaml:2:1"])?;
    let shown = json_of(&world, "orrery service show nginx --json")?;
    ensure!(shown["revision"] == 1, "{shown}");

    // Documents with references cannot be deleted.
    fails(
        &world,
        "orrery service delete redis --yes",
        &["service redis is in use by", "service app", "template webstack"],
    )?;
    fails(&world, "orrery service delete redis", &["--yes"])?;
    let text = world.done("orrery template delete webstack --yes")?;
    ensure!(text.contains("deleted template webstack"), "{text}");
    fails(&world, "orrery template show webstack", &["there is no"])?;
    let history = world.done("orrery template history webstack")?;
    ensure!(history.contains("deleted") && history.contains("created"), "{history}");
    fails(&world, "orrery provider apply -f nowhere.yaml", &["nowhere.yaml"])?;
    conflict(&world)
}

const SMALL_CHEAPER: &str =
    "name: small\nprovidermap:\n  local: {flavor: small, cost: 0.5, vcpu: 2, ram: 2048}\n";

/// A change between preview and confirmation is not overwritten: the shown revision is sent.
fn conflict(world: &World) -> Result<()> {
    let url = world.url()?.to_owned();
    let session = fs::read_to_string(world.directory.path().join(".config/orrery/contexts.toml"))?;
    let token = session.lines().find_map(|line| line.strip_prefix("token = "));
    let token = token.context("no token")?.trim_matches('"').to_owned();
    let body = json!({"documents": [
        {"kind": "service", "content": {"name": "redis", "label": "late"}, "revision": 7},
    ]});
    let answer = ureq::post(format!("{url}/api/v1/cluster-documents/apply"))
        .header("authorization", format!("Bearer {token}"))
        .header("content-type", "application/json")
        .config()
        .http_status_as_error(false)
        .build()
        .send(body.to_string());
    let mut answer = answer?;
    ensure!(answer.status() == 412, "{}", answer.status());
    let problem: Value = serde_json::from_str(&answer.body_mut().read_to_string()?)?;
    ensure!(problem["code"] == "outdated", "{problem}");
    ensure!(
        problem["detail"].as_str().is_some_and(|text| text.contains("service redis")),
        "{problem}"
    );
    Ok(())
}

fn projects() -> Result<()> {
    let world = world()?;
    world.done("orrery project create shop && orrery project create zoo")?;
    world.done("orrery cluster import webstack --yes")?;
    fs::write(world.here.join("small.yaml"), SMALL_CHEAPER)?;
    world.done("orrery hardware --project shop apply -f small.yaml --yes")?;
    let cost = |more: &str| -> Result<Value> {
        let line = format!("cd empty; orrery cluster solve webstack --size 4 --json {more}");
        Ok(json_of(&world, &line)?["cost"].clone())
    };
    ensure!(cost("")? == cost("--project zoo")? && cost("")? != cost("--project shop")?, "costs");
    let text = world.done("orrery hardware --project shop list")?;
    ensure!(text.contains("project shop") && text.contains("installation"), "{text}");
    fails(&world, "orrery hardware --project nowhere list", &["no project nowhere"])
}

fn weak_accounts() -> Result<()> {
    let world = world()?;
    world.done("orrery cluster import webstack --yes")?;
    world.done("orrery project create shop")?;
    world.done(&format!("echo '{PASSWORD}x' | orrery user create vera"))?;
    world.done("orrery user role add vera viewer --in-project shop")?;
    let url = world.url()?.to_owned();
    world.done(&format!("echo '{PASSWORD}x' | orrery login {url} --name vera --as vera"))?;
    let text = world.done("orrery template list")?;
    ensure!(text.contains("webstack"), "{text}");
    let solved = json_of(&world, "cd empty; orrery cluster solve webstack --size 4 --json")?;
    ensure!(solved["status"] == "solved", "{solved}");
    for line in [
        "orrery cluster import webstack --yes",
        "orrery cluster import webstack --project shop --yes",
        "orrery service apply -f webstack --yes",
        "orrery template delete webstack --yes",
    ] {
        fails(&world, line, &["this needs the right to administer"])?;
    }
    let text = world.done("orrery --color never context show")?;
    ensure!(text.contains("vera"), "{text}");
    Ok(())
}

/// Documents must be regular files below the named directory.
fn odd_files() -> Result<()> {
    let world = World::new(false)?;
    copy(&xtask::repository_root().join("examples/webstack"), &world.here.join("webstack"))?;
    let services = world.here.join("webstack/services");
    world.done("mkfifo webstack/services/pipe.yaml")?;
    fails(
        &world,
        "timeout 20 orrery cluster check webstack",
        &["pipe.yaml is not a regular file"],
    )?;
    fs::remove_file(services.join("pipe.yaml"))?;
    fs::write(world.here.join("secret.yaml"), "name: secret\n")?;
    std::os::unix::fs::symlink("../../secret.yaml", services.join("link.yaml"))?;
    fails(&world, "orrery cluster check webstack", &["link.yaml leads out of webstack"])?;
    fs::remove_file(services.join("link.yaml"))?;
    std::os::unix::fs::symlink("nginx.yaml", services.join("same.yaml"))?;
    fails(&world, "orrery cluster check webstack", &["duplicate-document"])?;
    fs::remove_file(services.join("same.yaml"))?;
    fs::rename(&services, world.here.join("webstack/service"))?;
    fails(
        &world,
        "orrery cluster check webstack",
        &["webstack/service", "did you mean `services`?"],
    )
}

/// A template with conflicting rules is stored, with the explanation of `orrery cluster check`.
fn unsolvable_templates() -> Result<()> {
    let world = world()?;
    let text = world.done("orrery cluster import webstack --yes")?;
    ensure!(!text.contains("unsolvable-template"), "{text}");
    let template = r#"{"name": "web", "defaults": {"services": ["base", "app", "nginx", "postgresql", "redis"], "provider": "local"},
 "constraints": {"size": {"max": 1}, "layout": {"cantcoexist": [["app", "postgresql"]]}}}"#;
    fs::write(world.here.join("web.json"), template)?;
    for (code, end) in [(2, "--dry-run"), (0, "--yes")] {
        let (text, ended) = world.run(&format!("orrery template apply -f web.json {end}"))?;
        ensure!(ended == code, "{ended}: {text}");
        for word in [
            "warning[unsolvable-template]: template web has no layout",
            "web.json:2:",
            "cantcoexist",
        ] {
            ensure!(text.contains(word), "{word}: {text}");
        }
    }
    let text = world.done("orrery template list")?;
    ensure!(text.contains("web "), "{text}");

    // The same for all documents at once, and as JSON.
    fs::copy(world.here.join("web.json"), world.here.join("webstack/clustertemplates/web.json"))?;
    world.done("orrery project create shop")?;
    let text = world.done("orrery cluster import webstack --yes --project shop")?;
    ensure!(text.contains("warning[unsolvable-template]"), "{text}");
    let report = json_of(&world, "orrery cluster import webstack --yes --project shop --json")?;
    ensure!(report["warnings"][0]["id"] == "unsolvable-template", "{report}");
    Ok(())
}

fn completed_names() -> Result<()> {
    let world = world()?;
    world.done("orrery cluster import webstack --yes")?;
    let offered = |words: &str, count: usize| {
        let script = format!(
            "source <(orrery completion bash); COMP_WORDS=({words}); COMP_CWORD={count}; \
             _orrery_with_names orrery \"${{COMP_WORDS[{count}]}}\" \"${{COMP_WORDS[{count}-1]}}\"; echo \"offered: ${{COMPREPLY[*]}}\""
        );
        world.done(&format!("bash -c '{script}' 2> /dev/null"))
    };
    for (words, count) in
        [("orrery cluster solve web", 3), ("orrery cluster create shop --template web", 5)]
    {
        let found = offered(words, count)?;
        ensure!(found.trim() == "offered: webstack", "{words}: {found}");
    }
    let found = offered("orrery cluster sol", 2)?;
    ensure!(found.contains("solve"), "{found}");
    Ok(())
}

/// Documents of a cluster of simulated machines.
fn write_shop(directory: &Path) -> Result<()> {
    let journals = directory.join("journals");
    fs::create_dir_all(&journals)?;
    let service = |name: &str, requires: &[&str]| {
        let action = |name: &str| {
            (
                name.to_owned(),
                json!({"type": "shell", "fields": {"script": "run.sh", "args": name}}),
            )
        };
        let actions: serde_json::Map<String, Value> =
            ["install", "configure", "start", "stop", "remove"].map(action).into_iter().collect();
        json!({
            "name": name, "dependencies": {"runtime": {"requires": requires}},
            "provisioner": {"actions": actions},
        })
    };
    let provider =
        json!({"name": "local", "providertype": "sim", "provisioner": {"directory": journals}});
    let quantities = |most: u32| json!({"quantities": {"min": 1, "max": most}});
    let template = json!({
        "name": "shop",
        "defaults": {"provider": "local", "services": ["app", "db"]},
        "constraints": {
            "services": {"db": quantities(1), "app": quantities(20)},
            "layout": {"cantcoexist": [["app", "db"]]},
        },
    });
    let offers = json!({"local": {"flavor": "s1", "image": "debian-12"}});
    for (path, document) in [
        ("providers/local.json", provider),
        ("hardwaretypes/small.json", json!({"name": "small", "providermap": offers})),
        ("imagetypes/debian.json", json!({"name": "debian", "providermap": offers})),
        ("services/db.json", service("db", &[])),
        ("services/app.json", service("app", &["db"])),
        ("clustertemplates/shop.json", template),
    ] {
        let path = directory.join(path);
        fs::create_dir_all(path.parent().context("a directory")?)?;
        fs::write(path, document.to_string())?;
    }
    Ok(())
}

fn a_life() -> Result<()> {
    let world = world()?;
    write_shop(&world.here.join("shop"))?;
    world.done("orrery cluster import shop --yes; orrery project create web")?;
    let create = "orrery cluster create store --template shop --size 3";
    let (text, code) = world.run(&format!("{create} --dry-run"))?;
    ensure!(code == 2 && text.contains("create machine ×3"), "{code}: {text}");
    ensure!(json_of(&world, "orrery cluster list --json")?["items"] == json!([]));
    fails(&world, create, &["confirmation required", "--yes"])?;
    world.done(&format!("{create} --yes"))?;
    let shown = json_of(&world, "orrery cluster show web/store --json")?;
    ensure!(shown["cluster"]["status"] == "active", "{shown}");
    ensure!(shown["nodes"][2]["name"] == "store-1002", "{shown}");
    fails(&world, "orrery cluster grow store 2", &["already has 3 nodes", "shrink"])?;
    fails(&world, "orrery cluster remove-service store db", &["app requires it"])?;
    fails(&world, "orrery cluster show stor", &["did you mean store"])?;
    world.done("orrery cluster grow store 5 --yes")?;
    fs::write(world.here.join("store.yml"), "app: {port: 81}\n")?;
    world.done("orrery cluster reconfigure store --config store.yml --restart rolling --yes")?;
    let ended = world.done("orrery cluster stop store app --yes --json 2>/dev/null")?;
    let ended: Value = serde_json::from_str(&ended)?;
    ensure!(ended["state"] == "done" && ended["kind"] == "stop", "{ended}");
    world.done("orrery cluster renew store 2h")?;
    world.done("orrery cluster logs store")?;
    world.done("orrery cluster delete store --yes")?;
    ensure!(json_of(&world, "orrery cluster list --json")?["items"] == json!([]));
    let all = json_of(&world, "orrery cluster list --all --json")?;
    ensure!(all["items"][0]["status"] == "terminated", "{all}");
    let workers = json_of(&world, "orrery worker list --json")?;
    ensure!(workers["items"][0]["in_process"] == true, "{workers}");
    Ok(())
}
