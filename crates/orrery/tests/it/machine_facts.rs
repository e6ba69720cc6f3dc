//! Facts of machines in models: on this machine, over SSH and on a remote agent, with and without a
//! server. The files at the targets contain what the machines themselves say.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use orrery_testing::TestSshd;
use serde_json::json;

use crate::over_ssh::write_inventory;
use crate::remote_agents::{self, Port, orrery};
use crate::scratch_project::ScratchProject;
use crate::server_commands;
use crate::server_handlers::Scene;
use crate::server_kills::{World, until};

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, run: fn() -> Result<()>| {
        Trial::test(format!("machine_facts/{name}"), move || {
            Ok(run().map_err(|error| format!("{error:#}"))?)
        })
    };
    vec![
        trial("the_first_deploy_knows_reachable_machines", first_deploy),
        trial("facts_decide_which_facts_are_asked_for", chained),
        trial("expired_facts_are_read_again_before_a_deploy", expired),
        trial("a_server_completes_the_model_as_machines_are_reached", on_a_server),
        trial("the_first_push_to_a_server_knows_reachable_machines", pushed),
    ]
}

/// A shell expression that prints what the model writes.
const ABOUT: &str =
    "printf '%s on %s with %s' \"$(. /etc/os-release; echo $ID)\" \"$(uname -m)\" \"$(uname -r)\"";

/// The same in the model.
const IN_MODEL: &str =
    r#"facts["os"] + " on " + facts["arch"] + " with " + facts["kernel_release"]"#;

fn about_this_machine() -> Result<String> {
    let output = Command::new("sh").args(["-euc", ABOUT]).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

fn model() -> String {
    format!(
        r#"
for name in ["localhost", "web1", "gone"]:
    machine = std::Host(name=name, os=std::linux)
    facts = std::facts(machine)
    Text(host=machine, path="{{{{ root }}}}/about-{{{{ name }}}}", content={IN_MODEL})
    Text(host=machine, path="{{{{ root }}}}/plain-{{{{ name }}}}", content="x")
    Text(host=host, path="{{{{ root }}}}/count-{{{{ name }}}}", content=std::json_dumps(facts["processors"]))
end
"#
    )
}

fn first_deploy() -> Result<()> {
    let (web, mut gone) = (TestSshd::start(), TestSshd::start());
    let mut project = ScratchProject::new(&model())?;
    write_inventory(&mut project, &[("web1", &web), ("gone", &gone)])?;
    gone.kill();
    let expected = about_this_machine()?;
    // The plan of a new project knows them, too, and stores nothing.
    let plan = project.json(2, &["plan"])?;
    let planned = plan.to_string();
    ensure!(planned.contains(&expected), "{planned}");
    ensure!(fs::read_dir(project.managed(""))?.next().is_none(), "a plan changes nothing");
    let ran = project.expect(2, &["deploy"])?;
    ran.says(&["cannot connect", "start its SSH server"])?;
    for name in ["localhost", "web1"] {
        let content = project.read(&format!("about-{name}"))?;
        ensure!(content == expected, "{name}: {content}");
        ensure!(project.read(&format!("plain-{name}"))? == "x");
    }
    let cores = std::thread::available_parallelism()?;
    ensure!(project.read("count-web1")? == cores.to_string());
    // Only what depends on the other machine is left out, wherever it is.
    for name in ["about-gone", "plain-gone", "count-gone"] {
        ensure!(!project.managed(name).exists(), "{name}");
    }
    let listed = project.expect(0, &["facts"])?;
    listed.shows(&["std::MachineFacts[web1,name=web1]", "kernel_release", "processors"])?;
    ensure!(!listed.out.contains("[gone"), "{}", listed.out);
    gone.restart();
    project.expect(0, &["deploy"])?;
    ensure!(project.read("about-gone")? == expected && project.managed("count-gone").exists());
    project.expect(0, &["deploy"])?.says(&["12 resources unchanged"])?;
    // Without the call, the facts are gone, and nobody has to remove anything.
    project.write_model("")?;
    let ran = project.run(&["deploy"])?;
    ensure!(!ran.said.contains("MachineFacts"), "{}", ran.said);
    Ok(())
}

fn chained() -> Result<()> {
    let project = ScratchProject::new(
        r#"
facts = std::facts(host)
if facts["kernel"] == "Linux":
    more = std::facts(std::Host(name="internal", os=std::linux))
    Text(host=host, path="{{ root }}/chained", content=more["kernel"])
end
"#,
    )?;
    project.expect(0, &["deploy"])?;
    ensure!(project.read("chained")? == "Linux");
    Ok(())
}

fn expired() -> Result<()> {
    let project = ScratchProject::new(&format!(
        "facts = std::facts(host)\nText(host=host, path=\"{{{{ root }}}}/about\", content={IN_MODEL})\n"
    ))?;
    let expected = about_this_machine()?;
    project.expect(0, &["deploy"])?;
    ensure!(project.read("about")? == expected);
    // As if the machine had been upgraded since: a fact of the last hour counts, an older one is
    // read again.
    let change = |age: &str| -> Result<()> {
        let script = format!(
            "import sqlite3, sys\ndb = sqlite3.connect(sys.argv[1])\n\
             db.execute(\"UPDATE parameter SET value = 'old', updated = updated - {age} * 1000000 WHERE name = 'arch'\")\n\
             db.commit()\n"
        );
        let state = project.data().join("state.db");
        let done = Command::new("python3").args(["-I", "-c", &script]).arg(&state).output()?;
        ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        Ok(())
    };
    change("0")?;
    project.expect(0, &["deploy"])?;
    ensure!(project.read("about")?.contains(" on old with "), "{}", project.read("about")?);
    change("4000")?;
    project.expect(0, &["deploy"])?;
    ensure!(project.read("about")? == expected, "{}", project.read("about")?);
    Ok(())
}

fn on_a_server() -> Result<()> {
    let sshd = TestSshd::start();
    let world = World::new(false)?;
    let port = Port::reserve()?;
    let [listen, address] = port.options();
    let server = world.start_with(&[&listen, &address])?;
    let (repository, machines) = (world.path("repository"), world.path("machines"));
    fs::create_dir_all(&repository)?;
    fs::create_dir(&machines)?;
    let inventory = format!(
        "hosts:\n  web1: {{ address: 127.0.0.1, port: {}, user: {}, identity_secret: deploy-key, strict_host_key: accept-new }}\n",
        sshd.port(),
        sshd.user(),
    );
    fs::write(repository.join("inventory.yml"), inventory)?;
    let scene = Scene::with_module(world, server, ("none", &[]), |_| server_model(&machines))?;
    let id = scene.environment.rsplit('/').next().context("no id")?.to_owned();
    let path = format!("{}/settings/autostart_agent_deploy_interval", scene.environment);
    scene.world.call(&scene.server, "PUT", &path, Some(&json!({"value": "1"})))?;
    let key = fs::read_to_string(sshd.identity())?;
    let path = format!("{}/secrets/deploy-key", scene.environment);
    let (status, answer) =
        scene.world.call(&scene.server, "PUT", &path, Some(&json!({"value": key})))?;
    ensure!(status < 300, "{status} {answer}");

    let expected = about_this_machine()?;
    let about = |name: &str| fs::read_to_string(machines.join(name)).unwrap_or_default();
    until("the machine over SSH has its file", || Ok(about("web1") == expected)).with_context(
        || scene.get("resources").map_or_else(|e| e.to_string(), |r| r.to_string()),
    )?;
    ensure!(about("agent1").is_empty() && about("agent1-here").is_empty());
    ensure!(scene.compiles("fact")? > 0, "the compile did not follow by itself");
    until("this machine is known", || {
        let facts = scene.get("facts?name=kernel")?.to_string();
        Ok(facts.contains("std::MachineFacts[localhost,name=localhost]"))
    })?;

    let invited = orrery(&scene.server, &id, &["agent", "invite", "agent1"])?;
    let token = invited["token"].as_str().context("no token")?;
    let gateway = invited["gateway"].as_str().context("no gateway")?;
    let state = scene.world.path("agent");
    let joined = remote_agents::join(gateway, token, &state)?;
    joined.map_err(|said| anyhow::anyhow!("joining failed: {said}"))?;
    let _agent = remote_agents::run(&state)?;
    until("the remote agent has its file", || {
        Ok(about("agent1") == expected && about("agent1-here") == expected)
    })
    .with_context(|| scene.get("resources").map_or_else(|e| e.to_string(), |r| r.to_string()))?;
    scene.until_deployed(6)?;

    // Facts that are the same again cause no compile. No compile ran when these were first read, so
    // no version was stored without them since.
    let compiles = scene.get("compiles")?["items"].as_array().map(Vec::len);
    let resource = "std::MachineFacts[agent1,name=agent1]";
    let encoded: String = resource.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let fact = format!("resources/{encoded}/facts/kernel");
    let before = scene.get(&fact)?["updated"].clone();
    let refresh = format!("{}/resources/{encoded}/refresh-facts", scene.environment);
    scene.world.create(&scene.server, &refresh, &json!({}))?;
    until("the facts are read again", || Ok(scene.get(&fact)?["updated"] != before))?;
    let after = scene.get("compiles")?;
    ensure!(after["items"].as_array().map(Vec::len) == compiles, "{after:#}");
    Ok(())
}

fn pushed() -> Result<()> {
    let sshd = TestSshd::start();
    let mut world = server_commands::World::new(false)?;
    world.settle("")?;
    world.done("mkdir -p model machines")?;
    world.done(&format!("orrery secret set deploy-key < {}", sshd.identity()))?;
    let directory = world.directory.path().canonicalize()?;
    let (machines, model) = (directory.join("machines"), directory.join("model"));
    fs::write(model.join("project.yml"), "name: shop\n")?;
    let inventory = format!(
        "hosts:\n  web1: {{ address: 127.0.0.1, port: {}, user: {}, identity_secret: deploy-key, strict_host_key: accept-new }}\n",
        sshd.port(),
        sshd.user(),
    );
    fs::write(model.join("inventory.yml"), inventory)?;
    let user = rustix::process::getuid().as_raw();
    let text = format!(
        "web = std::Host(name=\"web1\", os=std::linux)\nfacts = std::facts(web)\n\
         std::File(host=web, path=\"{}/about\", content={IN_MODEL}, mode=644, owner=\"{user}\", group=\"{user}\")\n",
        machines.display()
    );
    fs::write(model.join("main.cf"), text)?;
    let said = world.done("cd model && orrery deploy")?;
    ensure!(said.contains("compiling again"), "{said}");
    let content = fs::read_to_string(machines.join("about"))?;
    ensure!(content == about_this_machine()?, "{content}");
    let said = world.done("cd model && orrery deploy")?;
    ensure!(said.contains("2 resources unchanged") && !said.contains("again"), "{said}");
    Ok(())
}

/// Files on two machines, one more on the first that depends on the second, and facts of a third.
fn server_model(machines: &Path) -> String {
    let user = rustix::process::getuid().as_raw();
    let machines = machines.display();
    format!(
        r#"import std
web = std::Host(name="web1", os=std::linux)
for name in ["web1", "agent1"]:
    machine = std::Host(name=name, os=std::linux)
    facts = std::facts(machine)
    std::File(host=machine, path="{machines}/{{{{ name }}}}", content={IN_MODEL}, mode=644, owner="{user}", group="{user}")
    if name != "web1":
        std::File(host=web, path="{machines}/{{{{ name }}}}-here", content={IN_MODEL}, mode=644, owner="{user}", group="{user}")
    end
end
std::facts(std::Host(name="localhost", os=std::linux))
"#
    )
}
