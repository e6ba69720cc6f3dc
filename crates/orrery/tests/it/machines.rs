//! Placement: resources are applied only where their agent is known to be, with the real binary,
//! locally and on a server. The tests check the machine itself.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use serde_json::Value;

use crate::scratch_project::{Ran, ScratchProject};
use crate::server_commands::World;

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, run: fn() -> Result<()>| {
        Trial::test(format!("machines: {name}"), move || {
            Ok(run().map_err(|error| format!("{error:#}"))?)
        })
    };
    vec![
        trial("another host's files are not written here", other_host),
        trial("a misspelt name is recognized", misspelt_name),
        trial("this host's own name is this machine", own_name),
        trial("a declared agent is this machine, and repair remembers it", declared_local),
        trial("an address over ssh is not this machine", address_of_the_model),
        trial("queues need no machine", queues),
        trial("many resources of an agent are reported in one line", reported_by_agent),
        trial("a handler in Python gets no other machine's io", python_io),
        trial("resources for one path of a machine collide", collisions),
        trial("a plan skips what waits for an unknown machine", dependents),
        trial("a server applies nothing for an unknown agent", on_a_server),
        trial("a server knows addresses of the model", address_on_a_server),
        trial("a project's declaration reaches the server", declared_on_a_server),
        trial("a setting declares agents of a server", setting_of_a_server),
        trial("hosts of the inventory are not this machine", inventory_of_the_project),
        trial("hosts of the inventory reach the server", inventory_on_a_server),
        trial("a setting places agents before the inventory", placements_of_a_server),
    ]
}

const OTHER_HOST: &str = r#"
web2 = std::Host(name="web2", os=std::linux)
Text(host=host, path="{{ root }}/here", content="x")
there = Text(host=web2, path="{{ root }}/there", content="x")
Text(host=host, path="{{ root }}/after", content="x", requires=there)
"#;

/// Position of a text, which must exist.
fn at(text: &str, part: &str) -> Result<usize> {
    text.find(part).with_context(|| format!("{part:?} is not in:\n{text}"))
}

/// Report about this agent before anything ran, exactly once.
fn reported_before(ran: &Ran, agent: &str, words: &[&str]) -> Result<()> {
    let told = format!("unavailable: agent {agent} with ");
    ensure!(ran.said.matches(&told).count() == 1, "{}", ran.said);
    if let Some(first) = ran.said.find("created ") {
        ensure!(at(&ran.said, &told)? < first, "{}", ran.said);
    }
    ran.says(words)
}

fn other_host() -> Result<()> {
    let project = ScratchProject::new(OTHER_HOST)?;
    let plan = project.expect(2, &["plan"])?;
    reported_before(
        &plan,
        "web2",
        &[
            "with 1 resource: web2 is not known to be this machine",
            "help: deploy on that machine itself",
            "`orrery agent invite web2`",
            "`orrery.local_agents` in project.yml",
            "1 unavailable",
        ],
    )?;
    let report = project.json(2, &["plan"])?;
    ensure!(report["counts"]["unavailable"] == 1, "{report}");
    ensure!(report["unavailable_agents"][0]["agent"] == "web2", "{report}");
    let ran = project.expect(2, &["deploy"])?;
    reported_before(&ran, "web2", &["1 created, 1 unavailable, 1 skipped"])?;
    ensure!(!ran.said.contains("unavailable std::File"), "told once only: {}", ran.said);
    ensure!(project.managed("here").exists());
    ensure!(!project.managed("there").exists(), "web2's file is on this machine");
    ensure!(!project.managed("after").exists(), "what requires it is skipped");
    let status = project.expect(2, &["status"])?;
    status.shows(&["web2 (unavailable)", "web2 is not known to be this machine"])?;
    let status = project.json(2, &["status"])?;
    let agents = status["agents"].as_array().context("agents")?;
    let placement = |name: &str| {
        let found = agents.iter().find(|agent| agent["name"] == name);
        found.map(|agent| agent["placement"].clone()).unwrap_or_default()
    };
    ensure!(placement("localhost") == "local" && placement("web2") == "unknown", "{status}");
    project.expect(2, &["repair"])?.says(&["agent web2 with 1 resource"])?;
    ensure!(!project.managed("there").exists());
    Ok(())
}

fn misspelt_name() -> Result<()> {
    let project = ScratchProject::new(
        "wrong = std::Host(name=\"localhots\", os=std::linux)\n\
         Text(host=wrong, path=\"{{ root }}/there\", content=\"x\")\n",
    )?;
    let ran = project.expect(2, &["deploy"])?;
    reported_before(&ran, "localhots", &["did you mean localhost?"])?;
    ensure!(!project.managed("there").exists());
    Ok(())
}

fn own_name() -> Result<()> {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let short = name.split('.').next().unwrap_or_default();
    let mut model = String::new();
    for (at, name) in [name.as_str(), short].into_iter().enumerate() {
        model.push_str(&format!(
            "h{at} = std::Host(name=\"{name}\", os=std::linux)\n\
             Text(host=h{at}, path=\"{{{{ root }}}}/f{at}\", content=\"x\")\n"
        ));
    }
    let project = ScratchProject::new(&model)?;
    project.expect(0, &["deploy"])?;
    ensure!(project.managed("f0").exists() && project.managed("f1").exists());
    Ok(())
}

fn declared_local() -> Result<()> {
    let project = ScratchProject::new(OTHER_HOST)?;
    project.expect(2, &["deploy"])?;
    project.declare_local(&["web?"])?;
    // The same resources with another placement are a new version.
    project.expect(0, &["deploy"])?.says(&["version 2: 3 resources", "2 created"])?;
    ensure!(project.managed("there").exists() && project.managed("after").exists());
    project.expect(0, &["status"])?;
    std::fs::remove_file(project.managed("there"))?;
    project.expect(0, &["repair"])?.says(&["1 created"])?;
    // Declared by the model itself.
    let project = ScratchProject::new(&format!(
        "std::AgentConfig(agentname=\"web2\", uri=\"local:\")\n{OTHER_HOST}"
    ))?;
    project.expect(0, &["deploy"])?;
    ensure!(project.managed("there").exists());
    Ok(())
}

const ADDRESSES: &str = r#"import ip
std::AgentConfig(agentname="web1", uri="ssh://root@127.0.0.1:1")
web1 = std::Host(name="web1", os=std::linux)
Text(host=web1, path="{{ root }}/web1", content="x")
db1 = ip::Host(name="db1", os=std::linux, ip="127.0.0.1", remote_port=1, remote_agent=true)
Text(host=db1, path="{{ root }}/db1", content="x")
"#;

fn address_of_the_model() -> Result<()> {
    let project = ScratchProject::new(ADDRESSES)?;
    // A pattern does not make another machine's address local.
    project.declare_local(&["*"])?;
    project.expect(2, &["plan"])?.says(&["2 unclear"])?;
    let ran = project.expect(2, &["deploy"])?;
    ran.says(&["root@127.0.0.1:1: cannot connect", "start its SSH server", "2 unavailable"])?;
    ensure!(!project.managed("web1").exists() && !project.managed("db1").exists());
    Ok(())
}

fn queues() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let server = std::thread::spawn(move || -> Result<String> {
        let (mut stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        let mut asked = [0; 4096];
        let count = stream.read(&mut asked)?;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")?;
        Ok(String::from_utf8_lossy(&asked[..count]).into_owned())
    });
    let project = ScratchProject::new(&format!(
        "import http\n\
         std::testing::NullResource(agentname=\"any-queue\", name=\"null\")\n\
         http::Request(agent=\"cloud-api\", name=\"ask\", url=\"http://{address}/asked\")\n"
    ))?;
    project.expect(0, &["deploy"])?;
    let asked = server.join().map_err(|_| anyhow::anyhow!("the peer panicked"))??;
    ensure!(asked.starts_with("GET /asked "), "{asked}");
    project.expect(0, &["status"])?;
    Ok(())
}

fn reported_by_agent() -> Result<()> {
    let project = ScratchProject::new(
        "web2 = std::Host(name=\"web2\", os=std::linux)\n\
         for at in std::sequence(500):\n    \
         Text(host=web2, path=\"{{ root }}/{{ at }}\", content=\"x\")\nend\n",
    )?;
    let ran = project.expect(2, &["deploy"])?;
    reported_before(&ran, "web2", &["with 500 resources", "500 unavailable"])?;
    ensure!(ran.said.lines().count() < 8, "{}", ran.said);
    ensure!(std::fs::read_dir(project.managed(""))?.next().is_none());
    Ok(())
}

const TOUCHING: [(&str, &str); 3] = [
    ("module.yml", "name: touching\nversion: 1.0\nlicense: ASL\n"),
    (
        "model/_init.cf",
        "entity Thing extends std::PurgeableResource:\n    string name\n    string agent\n    string path\n    \
         string way\nend\nindex Thing(agent, name)\nimplement Thing using std::none\n",
    ),
    (
        "plugins/__init__.py",
        r#"from inmanta.agent.handler import CRUDHandler, ResourcePurged, provider
from inmanta.agent.io import get_io
from inmanta.resources import PurgeableResource, resource


@resource("touching::Thing", agent="agent", id_attribute="name")
class Thing(PurgeableResource):
    fields = ("name", "path", "way")


@provider("touching::Thing", name="thing")
class ThingHandler(CRUDHandler):
    def read_resource(self, ctx, resource):
        if resource.way == "none":
            return
        if resource.way == "stubborn":
            try:
                self._io.put(resource.path, b"x")
            except BaseException:
                return
        if not self.io(resource).file_exists(resource.path):
            raise ResourcePurged()

    def io(self, resource):
        return get_io(None, self._agent.uri) if resource.way == "by hand" else self._io

    def create_resource(self, ctx, resource):
        self.io(resource).put(resource.path, b"x")
        ctx.set_created()

    def update_resource(self, ctx, changes, resource):
        pass

    def delete_resource(self, ctx, resource):
        self.io(resource).remove(resource.path)
"#,
    ),
];

fn python_io() -> Result<()> {
    let mut model = "import touching\n".to_owned();
    for agent in ["localhost", "web2"] {
        for way in ["io", "by hand", "stubborn", "none"] {
            model.push_str(&format!(
                "touching::Thing(name=\"{way}\", agent=\"{agent}\", way=\"{way}\", path=\"{{{{ root }}}}/{agent}-{way}\")\n"
            ));
        }
    }
    let project = ScratchProject::new(&model)?;
    for (name, text) in TOUCHING {
        project.write(&format!("libs/touching/{name}"), text)?;
    }
    let report = project.json(2, &["deploy"])?;
    let of = |agent: &str, way: &str| -> Result<Value> {
        let id = format!("touching::Thing[{agent},name={way}]");
        let all = report["resources"].as_array().context("resources")?;
        let found = all.iter().find(|one| one["id"] == id.as_str());
        // Unchanged placement is not reported.
        Ok(found.map_or(Value::from("deployed"), |one| one["status"].clone()))
    };
    for way in ["io", "by hand", "stubborn"] {
        ensure!(of("localhost", way)? == "deployed", "{way}: {report}");
        ensure!(of("web2", way)? == "unavailable", "{way}: {report}");
        ensure!(project.managed(&format!("localhost-{way}")).exists(), "{way}");
        ensure!(!project.managed(&format!("web2-{way}")).exists(), "{way}: on the wrong machine");
    }
    ensure!(of("web2", "none")? == "deployed", "what uses no io is not refused: {report}");
    ensure!(report.to_string().contains("web2 is not known to be this machine"), "{report}");
    let plan = project.expect(2, &["plan"])?;
    plan.shows(&["web2 is not known to be this machine"])?;
    project.declare_local(&["web2"])?;
    project.expect(0, &["deploy"])?;
    ensure!(project.managed("web2-io").exists());
    Ok(())
}

fn collisions() -> Result<()> {
    let project = ScratchProject::new(
        "one = std::Host(name=\"web1\", os=std::linux)\ntwo = std::Host(name=\"web2\", os=std::linux)\n\
         Text(host=one, path=\"{{ root }}/same\", content=\"1\")\n\
         Text(host=two, path=\"{{ root }}/same\", content=\"2\")\n\
         Text(host=host, path=\"{{ root }}/mixed\", content=\"3\")\n\
         Folder(host=host, path=\"{{ root }}/mixed/\")\n\
         Text(host=host, path=\"{{ root }}/twice\", content=\"5\")\n\
         Text(host=host, path=\"{{ root }}//twice\", content=\"6\")\n\
         Text(host=host, path=\"{{ root }}/other\", content=\"4\")\n",
    )?;
    // Two apparently different machines.
    let ran = project.expect(2, &["plan"])?;
    ran.says(&["error[path-collision]: several resources manage ", "/mixed on one machine"])?;
    ensure!(!ran.said.contains("/same on one machine"), "{}", ran.said);
    project.declare_local(&["web*"])?;
    let ran = project.expect(2, &["deploy"])?;
    ran.says(&[
        "/same on one machine",
        "web2 is this machine: orrery.local_agents in project.yml names it",
        "help: let one resource manage the path",
        "/twice on one machine",
        "6 left out",
    ])?;
    ensure!(project.managed("other").exists());
    ensure!(!project.managed("same").exists() && !project.managed("mixed").exists());
    ensure!(!project.managed("twice").exists());
    // All names of this machine are equivalent.
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let names = ["localhost", "internal", own.as_str()];
    let on = |name: &str| {
        format!(
            "Text(host=std::Host(name=\"{name}\", os=std::linux), path=\"{{{{ root }}}}/own\", content=\"\")\n"
        )
    };
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        project.write_model(&(on(names[one]) + &on(names[other])))?;
        let ran = project.expect(2, &["deploy"])?;
        ran.says(&["error[path-collision]", "/own on one machine", "2 left out"])?;
        ensure!(!project.managed("own").exists());
    }
    Ok(())
}

/// Plan and deploy agree about resources that wait for a missing machine.
fn dependents() -> Result<()> {
    let project = ScratchProject::new(
        "away = std::Host(name=\"web2\", os=std::linux)\n\
         first = Text(host=away, path=\"{{ root }}/first\", content=\"1\")\n\
         second = Text(host=host, path=\"{{ root }}/second\", content=\"2\", requires=first)\n\
         Text(host=host, path=\"{{ root }}/third\", content=\"3\", requires=second)\n",
    )?;
    let plan = project.expect(2, &["plan"])?;
    ensure!(plan.out.matches("skipped: it requires std::File[web2,").count() == 2, "{}", plan.out);
    ensure!(!plan.out.contains("+ std::File"), "{}", plan.out);
    project.expect(2, &["deploy"])?.says(&["1 unavailable", "2 skipped"])?;
    ensure!(!project.managed("second").exists());
    Ok(())
}

/// A server, and a project with this model.
fn served(model: &str) -> Result<World> {
    let mut world = World::new(false)?;
    world.settle("")?;
    world.done("mkdir -p model managed")?;
    let root = world.directory.path().canonicalize()?.join("managed");
    let user = world.done("id -un")?.trim().to_owned();
    let group = world.done("id -gn")?.trim().to_owned();
    let text = format!("std::File(mode=644, owner=\"{user}\", group=\"{group}\", ");
    let model = model.replace("Text(", &text).replace("{{ root }}", &root.display().to_string());
    let directory = world.directory.path().join("model");
    std::fs::write(directory.join("project.yml"), "name: shop\n")?;
    std::fs::write(directory.join("main.cf"), model)?;
    Ok(world)
}

/// Runs a command in the project and checks its exit code and output.
fn expect(world: &World, code: i32, line: &str, words: &[&str]) -> Result<String> {
    let (text, ended) = world.run(&format!("cd model && {line}"))?;
    ensure!(ended == code, "{line}: {ended}\n{text}");
    for word in words {
        at(&text, word)?;
    }
    Ok(text)
}

const SERVED: &str = r#"
host = std::Host(name="localhost", os=std::linux)
web2 = std::Host(name="web2", os=std::linux)
Text(host=host, path="{{ root }}/here", content="x")
Text(host=web2, path="{{ root }}/there", content="x")
"#;

fn exists(world: &World, name: &str) -> bool {
    world.directory.path().join("managed").join(name).exists()
}

fn on_a_server() -> Result<()> {
    let world = served(SERVED)?;
    let reason = "unavailable: agent web2 with 1 resource: web2 is not known to be this machine";
    expect(&world, 2, "orrery plan", &[reason, "`orrery agent invite web2`", "1 unavailable"])?;
    let text = expect(&world, 2, "orrery deploy", &[reason, "setting local_agents"])?;
    ensure!(at(&text, reason)? < at(&text, "version 2 of")?, "before anything is sent: {text}");
    ensure!(!text.contains("unavailable std::File"), "told once only: {text}");
    ensure!(exists(&world, "here"));
    ensure!(!exists(&world, "there"), "web2's file is on the server");
    let list = ["web2", "unavailable", "unknown", "localhost", "this machine", "help: enrol"];
    expect(&world, 0, "orrery agent list", &list)?;
    expect(&world, 2, "orrery status", &["web2 (unavailable)"])?;
    let next = "it waits for a machine: it is retried as soon as web2 can be reached, and at 2";
    expect(&world, 0, "orrery why /there", &[next, "Z (in "])?;
    world.done("cd model && orrery agent pause web2")?;
    let paused = expect(&world, 0, "orrery why /there", &["paused"])?;
    ensure!(!paused.contains("it waits for a machine"), "{paused}");
    world.done("cd model && orrery agent unpause web2")?;
    let json = expect(&world, 0, "orrery agent list --json 2> /dev/null", &[])?;
    let json: Value = serde_json::from_str(&json)?;
    let kinds: Vec<&Value> = json["items"]
        .as_array()
        .context("agents")?
        .iter()
        .map(|agent| &agent["placement"]["kind"])
        .collect();
    ensure!(kinds == ["local", "unknown"], "{json}");
    Ok(())
}

fn address_on_a_server() -> Result<()> {
    let model = ADDRESSES.to_owned()
        + "here = std::Host(name=\"localhost\", os=std::linux)\n\
         Text(host=here, path=\"{{ root }}/here\", content=\"x\")\n";
    let world = served(&model)?;
    expect(&world, 2, "orrery plan", &["unclear"])?;
    expect(&world, 2, "orrery deploy", &["root@127.0.0.1:1: cannot connect", "2 unavailable"])?;
    ensure!(exists(&world, "here"));
    ensure!(!exists(&world, "web1") && !exists(&world, "db1"), "they are on the server");
    expect(&world, 0, "orrery agent list", &["db1", "ssh"])?;
    // A newer version removes the address, and another declaration applies.
    world.done("cd model && sed -i 's#ssh://root@127.0.0.1:1#local:#' main.cf")?;
    expect(&world, 2, "orrery deploy", &["1 unavailable"])?;
    ensure!(exists(&world, "web1") && !exists(&world, "db1"));
    Ok(())
}

fn declared_on_a_server() -> Result<()> {
    let world = served(SERVED)?;
    expect(&world, 2, "orrery deploy", &[])?;
    world.done("cd model && echo 'orrery: {local_agents: [\"web?\"]}' >> project.yml")?;
    expect(&world, 0, "orrery deploy", &["1 created"])?;
    ensure!(exists(&world, "there"));
    expect(&world, 0, "orrery status", &[])?;
    Ok(())
}

/// Lets the server leave changes of files as they are.
fn report_drift(world: &World) -> Result<()> {
    let set = r#"orrery environment setting set drift_policies '{"*": "report"}'"#;
    expect(world, 0, set, &[])?;
    Ok(())
}

fn setting_of_a_server() -> Result<()> {
    let world = served(SERVED)?;
    expect(&world, 2, "orrery deploy", &[])?;
    ensure!(!exists(&world, "there"));
    expect(&world, 0, "orrery environment setting set local_agents web2", &[r#"["web2"]"#])?;
    // Resources of a machine that became reachable are applied automatically.
    crate::server_kills::until("it is applied", || Ok(exists(&world, "there")))?;
    report_drift(&world)?;
    expect(&world, 0, "orrery deploy", &[])?;
    world.done("rm managed/there")?;
    expect(&world, 0, "orrery environment setting reset local_agents", &[])?;
    expect(&world, 2, "orrery deploy", &["agent web2 with 1 resource"])?;
    ensure!(!exists(&world, "there"));
    Ok(())
}

const INVENTORY: &str = "defaults: { user: deploy }\n\
    groups:\n  web: { hosts: [\"web[1..2]\"], port: 1 }\n\
    hosts:\n  web2: { address: 127.0.0.1 }\n";

fn inventory_of_the_project() -> Result<()> {
    let project = ScratchProject::new(OTHER_HOST)?;
    // A pattern does not make a host of the inventory local.
    project.declare_local(&["*"])?;
    project.write("inventory.yml", INVENTORY)?;
    let ran = project.expect(2, &["deploy"])?;
    let words = ["deploy@127.0.0.1:1: cannot connect", "1 unavailable"];
    ran.says(&words)?;
    ensure!(project.managed("here").exists() && !project.managed("there").exists());
    // A repair uses the inventory of the version, not the file.
    project.remove("inventory.yml")?;
    project.expect(2, &["repair"])?.says(&words)?;
    ensure!(!project.managed("there").exists());
    project.expect(0, &["deploy"])?;
    ensure!(project.managed("there").exists(), "without the inventory, the pattern applies");
    project.write("inventory.yml", "hosts:\n  web2: { usr: x }\n")?;
    let ran = project.expect(1, &["deploy"])?;
    ran.says(&[
        "error[invalid-inventory]: unknown key \"usr\"",
        "inventory.yml:2:11",
        "did you mean user?",
    ])?;
    Ok(())
}

fn inventory_on_a_server() -> Result<()> {
    let world = served(SERVED)?;
    world.done("cd model && echo 'orrery: {local_agents: [\"*\"]}' >> project.yml")?;
    std::fs::write(world.directory.path().join("model/inventory.yml"), INVENTORY)?;
    expect(&world, 2, "orrery plan", &["unclear"])?;
    expect(&world, 2, "orrery deploy", &["deploy@127.0.0.1:1: cannot connect"])?;
    ensure!(exists(&world, "here") && !exists(&world, "there"));
    let words =
        ["web2  web", "ssh://deploy@127.0.0.1:1", "port 1 (group web)", "user deploy (defaults)"];
    expect(&world, 0, "orrery hosts", &words)?;
    let text = expect(&world, 0, "orrery hosts web2 --json 2> /dev/null", &[])?;
    let json: Value = serde_json::from_str(&text)?;
    ensure!(json["items"][0]["placement"]["kind"] == "ssh", "{json}");
    let words = ["ssh", "ssh://deploy@127.0.0.1:1", "the inventory gives web2"];
    expect(&world, 0, "orrery agent list", &words)?;
    // Without the file, the next version has no inventory.
    world.done("rm model/inventory.yml")?;
    expect(&world, 0, "orrery deploy", &["1 created"])?;
    ensure!(exists(&world, "there"));
    expect(&world, 0, "orrery hosts", &["0 hosts"])?;
    Ok(())
}

fn placements_of_a_server() -> Result<()> {
    let world = served(SERVED)?;
    std::fs::write(world.directory.path().join("model/inventory.yml"), INVENTORY)?;
    expect(&world, 2, "orrery deploy", &["deploy@127.0.0.1:1: cannot connect"])?;
    let set = "orrery environment setting set agent_placements";
    expect(&world, 0, &format!("{set} '{{\"web*\": \"local:\"}}'"), &["local:"])?;
    crate::server_kills::until("it is applied", || Ok(exists(&world, "there")))?;
    expect(&world, 0, "orrery agent list", &["setting agent_placements gives it a local address"])?;
    report_drift(&world)?;
    expect(&world, 0, "orrery deploy", &[])?;
    world.done("rm managed/there")?;
    expect(&world, 0, &format!("{set} '{{\"web*\": \"none:\"}}'"), &["none:"])?;
    expect(
        &world,
        2,
        "orrery deploy",
        &["the environment's setting agent_placements gives web2 no machine"],
    )?;
    ensure!(!exists(&world, "there"));
    expect(
        &world,
        1,
        &format!("{set} '{{\"web*\": \"ftp://x\"}}'"),
        &["expected local:, none: or ssh://"],
    )?;
    Ok(())
}
