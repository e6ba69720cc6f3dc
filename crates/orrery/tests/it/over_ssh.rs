//! Deploys over SSH with the real binary and real SSH servers: the right machine, refused host keys,
//! a machine that disappears in the middle, and the same from a server.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};
use libtest_mimic::Trial;
use orrery_testing::TestSshd;

use crate::scratch_project::ScratchProject;
use crate::server_commands::World;
use crate::server_kills::until;

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, run: fn() -> Result<()>| {
        Trial::test(format!("over ssh: {name}"), move || {
            Ok(run().map_err(|error| format!("{error:#}"))?)
        })
    };
    vec![
        trial("two machines get their own files over one connection each", two_machines),
        trial("a changed host key is refused, and nothing is changed", changed_host_key),
        trial("a machine that disappears is said, and the next deploy finishes", disappears),
        trial("repair and destroy use the inventory as it is now", corrected_address),
        trial("a command that must not be repeated is parked if its connection is lost", parked),
        trial("ping shows what is reached and why not", ping),
        trial("ping says that only a server can use the secrets of its vault", ping_with_secrets),
        trial("a server reaches machines with secrets of the environment only", from_a_server),
    ]
}

const TWO: &str = r#"
web1 = std::Host(name="web1", os=std::linux)
web2 = std::Host(name="web2", os=std::linux)
Text(host=host, path="{{ root }}/here", content="here")
for at in std::sequence(5):
    Text(host=web1, path="{{ root }}/one-{{ at }}", content="one {{ at }}")
    Text(host=web2, path="{{ root }}/two-{{ at }}", content="two {{ at }}")
end
"#;

/// Writes the inventory and a home directory in which both servers are known.
pub(crate) fn write_inventory(
    project: &mut ScratchProject,
    hosts: &[(&str, &TestSshd)],
) -> Result<()> {
    let mut inventory = String::from("hosts:\n");
    let mut known = String::new();
    for (name, sshd) in hosts {
        inventory.push_str(&format!(
            "  {name}: {{ address: 127.0.0.1, port: {}, user: {}, identity: {} }}\n",
            sshd.port(),
            sshd.user(),
            sshd.identity()
        ));
        known.push_str(&sshd.known_hosts_line());
    }
    project.write("inventory.yml", &inventory)?;
    let home = project.data().join("home");
    fs::create_dir_all(home.join(".ssh"))?;
    fs::write(home.join(".ssh/known_hosts"), known)?;
    project.set("HOME", &home.display().to_string());
    project.set("SSH_AUTH_SOCK", "");
    Ok(())
}

fn connections(sshd: &TestSshd) -> usize {
    sshd.log().matches("Accepted publickey").count()
}

fn two_machines() -> Result<()> {
    let (one, two) = (TestSshd::start(), TestSshd::start());
    let mut project = ScratchProject::new(TWO)?;
    write_inventory(&mut project, &[("web1", &one), ("web2", &two)])?;
    let plan = project.expect(2, &["plan"])?;
    plan.says(&["11 to create"]).or_else(|_| plan.shows(&["11"]))?;
    ensure!(fs::read_dir(project.managed(""))?.next().is_none(), "a plan changes nothing");
    let before = (connections(&one), connections(&two));
    project.expect(0, &["deploy"])?.says(&["11 created"])?;
    for at in 0..5 {
        ensure!(project.read(&format!("one-{at}"))? == format!("one {at}"));
        ensure!(project.read(&format!("two-{at}"))? == format!("two {at}"));
    }
    let after = (connections(&one) - before.0, connections(&two) - before.1);
    ensure!(after == (1, 1), "one connection for each machine: {after:?}\n{}", one.log());
    project.expect(0, &["deploy"])?.says(&["11 resources unchanged"])?;
    fs::write(project.managed("two-3"), "drift")?;
    project.expect(0, &["repair"])?.says(&["1 updated"])?;
    ensure!(project.read("two-3")? == "two 3");
    Ok(())
}

fn changed_host_key() -> Result<()> {
    let (one, mut two) = (TestSshd::start(), TestSshd::start());
    let mut project = ScratchProject::new(TWO)?;
    write_inventory(&mut project, &[("web1", &one), ("web2", &two)])?;
    two.kill();
    two.replace_host_key();
    two.restart();
    let known = project.data().join("home/.ssh/known_hosts");
    let ran = project.expect(2, &["deploy"])?;
    let place = format!("{}:2 has another one", known.display());
    ran.says(&["has changed", &place, "ssh-keygen -f", "5 unavailable"])?;
    ensure!(project.managed("one-0").exists() && !project.managed("two-0").exists());
    ensure!(connections(&two) == 0, "{}", two.log());
    Ok(())
}

fn disappears() -> Result<()> {
    let mut one = TestSshd::start();
    let mut project = ScratchProject::new(
        r#"
web1 = std::Host(name="web1", os=std::linux)
first = exec::Run(host=web1, command=exec::in_shell("touch {{ root }}/started; sleep 600"), creates="{{ root }}/done")
Text(host=web1, path="{{ root }}/after", content="x", requires=first)
"#,
    )?;
    write_inventory(&mut project, &[("web1", &one)])?;
    let mut running = project.start(&["deploy"])?;
    let started = project.managed("started");
    until("the command starts", || Ok(started.exists() || running.has_ended()?))?;
    if !started.exists() {
        let ran = running.wait()?;
        anyhow::bail!("it ended: {}{}", ran.out, ran.said);
    }
    one.kill();
    let ran = running.wait()?;
    ensure!(ran.code == Some(2), "{:?} {}", ran.code, ran.said);
    // The command may have run: that is said, and nothing after it is done. A helper on the machine
    // and commands without one name the lost connection in their own words.
    ran.says(&["the connection ", " was lost", "the effect is unknown", "1 failed"])?;
    ensure!(!project.managed("after").exists());
    let ran = project.expect(2, &["deploy"])?;
    ran.says(&["cannot connect", "start its SSH server", "unavailable"])?;
    one.restart();
    fs::write(project.managed("done"), "")?;
    project.expect(0, &["deploy"])?;
    ensure!(project.managed("after").exists());
    Ok(())
}

/// Placement is no part of the desired state: a corrected file needs no deploy.
fn corrected_address() -> Result<()> {
    let (mut one, two) = (TestSshd::start(), TestSshd::start());
    let mut project = ScratchProject::new(
        "web1 = std::Host(name=\"web1\", os=std::linux)\nText(host=web1, path=\"{{ root }}/one\", content=\"x\")\n",
    )?;
    write_inventory(&mut project, &[("web1", &one)])?;
    one.kill();
    project.expect(2, &["deploy"])?.says(&["cannot connect", "1 unavailable"])?;
    write_inventory(&mut project, &[("web1", &two)])?;
    let places = [&one, &two].map(|sshd| format!("127.0.0.1:{}", sshd.port()));
    let ran = project.expect(0, &["repair"])?;
    ran.says(&[
        "inventory.yml has changed since the last deploy: web1 is at",
        &places[1],
        &places[0],
    ])?;
    ensure!(project.read("one")? == "x" && connections(&two) > 0);
    // An unusable file is not replaced by an older one.
    let right = fs::read_to_string(project.project().join("inventory.yml"))?;
    project.write("inventory.yml", "hosts: 7\n")?;
    for command in [&["repair"][..], &["destroy", "--yes"]] {
        project.expect(1, command)?.says(&["inventory.yml"])?;
    }
    ensure!(project.managed("one").exists());
    project.write("inventory.yml", &right)?;
    let before = connections(&two);
    project.expect(0, &["destroy", "--yes"])?.says(&["web1 is at", &places[1]])?;
    ensure!(!project.managed("one").exists() && connections(&two) > before);
    Ok(())
}

fn ping() -> Result<()> {
    let (one, mut two) = (TestSshd::start(), TestSshd::start());
    let mut project = ScratchProject::new("")?;
    write_inventory(&mut project, &[("web1", &one), ("web2", &two)])?;
    project.expect(0, &["ping"])?.shows(&["web1", "web2", "reachable", " ms"])?;
    two.kill();
    let ran = project.expect(2, &["ping"])?;
    ran.shows(&["unreachable", "cannot connect", "reachable"])?;
    ran.says(&["help for web2: start its SSH server"])?;
    project
        .expect(1, &["ping", "web"])?
        .says(&["no host and no group", "'*web*' selects web1, web2"])?;
    project.expect(2, &["ping", "web*"])?.shows(&["web1", "web2"])?;
    let report = project.json(2, &["ping", "web2"])?;
    ensure!(report["items"][0]["state"] == "unreachable", "{report}");
    let report = project.json(0, &["ping", "web1"])?;
    ensure!(report["items"][0]["facts"]["kernel"] == "Linux", "{report}");
    ensure!(report["items"][0]["latency_ms"].as_f64().is_some(), "{report}");
    Ok(())
}

/// With `once`, a lost command may have done its work: it is not repeated, whatever happens.
fn parked() -> Result<()> {
    let mut one = TestSshd::start();
    let mut project = ScratchProject::new(
        r#"
web1 = std::Host(name="web1", os=std::linux)
exec::Run(host=web1, command=exec::in_shell("echo x >> {{ root }}/log; sleep 600"), once=true)
"#,
    )?;
    write_inventory(&mut project, &[("web1", &one)])?;
    let mut running = project.start(&["deploy"])?;
    let log = project.managed("log");
    until("the command starts", || Ok(log.exists() || running.has_ended()?))?;
    one.kill();
    let ran = running.wait()?;
    ensure!(ran.code == Some(2), "{:?} {}", ran.code, ran.said);
    ran.says(&["unknown effect", "orrery settle --done", "orrery settle --again"])?;
    one.restart();
    for command in ["deploy", "repair"] {
        project.expect(2, &[command])?.says(&["unknown effect", "orrery settle"])?;
        ensure!(project.read("log")? == "x\n", "it was repeated");
    }
    Ok(())
}

fn ping_with_secrets() -> Result<()> {
    let sshd = TestSshd::start();
    let mut project = ScratchProject::new("")?;
    write_inventory(&mut project, &[("web1", &sshd)])?;
    let inventory = fs::read_to_string(project.project().join("inventory.yml"))?;
    let with = |secret: &str| {
        inventory.replace("identity: ", "identity_secret: ").replace(&sshd.identity(), secret)
    };
    // Secrets of this machine.
    project.write("inventory.yml", &with(&format!("file:{}", sshd.identity())))?;
    project.expect(0, &["ping", "web1"])?.shows(&["reachable"])?;
    project.set("DEPLOY_KEY", &fs::read_to_string(sshd.identity())?);
    project.write("inventory.yml", &with("env:DEPLOY_KEY"))?;
    project.expect(0, &["ping"])?.shows(&["reachable"])?;
    // A secret of a vault, and no server.
    project.write("inventory.yml", &with("deploy-key"))?;
    let before = connections(&sshd);
    let ran = project.expect(2, &["ping"])?;
    ran.shows(&["not checked", "its secret deploy-key is in the vault of a server"])?;
    ran.says(&["help for web1: log in (`orrery login`)", "name a key of yours"])?;
    ensure!(connections(&sshd) == before, "{}", sshd.log());
    Ok(())
}

fn from_a_server() -> Result<()> {
    let sshd = TestSshd::start();
    let mut world = World::new(false)?;
    world.settle("")?;
    world.done("mkdir -p model managed")?;
    let root = world.directory.path().canonicalize()?.join("managed");
    let (user, model) = (sshd.user(), world.directory.path().join("model"));
    let group = world.done("id -gn")?.trim().to_owned();
    fs::write(model.join("project.yml"), "name: shop\n")?;
    fs::write(
        model.join("main.cf"),
        format!(
            "web1 = std::Host(name=\"web1\", os=std::linux)\n\
             std::File(host=web1, mode=644, owner=\"{user}\", group=\"{group}\", path=\"{}/there\", content=\"x\")\n",
            root.display()
        ),
    )?;
    let inventory = |key: &str| {
        let host = format!(
            "hosts:\n  web1: {{ address: 127.0.0.1, port: {}, user: {user}, {key}, strict_host_key: accept-new }}\n",
            sshd.port()
        );
        fs::write(model.join("inventory.yml"), host)
    };
    let deploy = |code: i32, words: &[&str]| -> Result<()> {
        let (text, ended) = world.run("cd model && orrery deploy")?;
        ensure!(ended == code, "{ended}: {text}");
        for word in words {
            ensure!(text.contains(word), "{word:?} is not in {text}");
        }
        Ok(())
    };
    // A model cannot use a key of the server's machine by its path.
    inventory(&format!("identity: {}", sshd.identity()))?;
    deploy(2, &["does not count here", "identity_secret"])?;
    ensure!(!root.join("there").exists() && connections(&sshd) == 0);
    inventory("identity_secret: deploy-key")?;
    deploy(2, &["deploy-key"])?;
    world.done(&format!("orrery secret set deploy-key < {}", sshd.identity()))?;
    // Only the server has the secret, and it has not connected yet.
    let (text, ended) = world.run("cd model && orrery ping")?;
    ensure!(ended == 2 && text.contains("not checked"), "{ended}: {text}");
    deploy(0, &["1 created"])?;
    until("ping shows the state of the server's connection", || {
        let (text, ended) = world.run("cd model && orrery ping")?;
        Ok(ended == 0 && text.contains("reachable") && text.contains("as its server sees it"))
    })?;
    ensure!(root.join("there").exists());
    ensure!(connections(&sshd) == 1, "{}", sshd.log());
    // The connection is used again.
    fs::remove_file(root.join("there"))?;
    let (text, ended) = world.run("cd model && orrery repair")?;
    ensure!(ended == 0 && root.join("there").exists(), "{text}");
    ensure!(connections(&sshd) == 1, "{}", sshd.log());
    // Also by a dry run beside the engine; drift is only reported meanwhile.
    world.done("orrery environment setting set drift_policies '{\"*\": \"report\"}'")?;
    fs::write(root.join("there"), "drift")?;
    let (text, ended) = world.run("cd model && orrery plan")?;
    ensure!(ended == 2 && text.contains("content"), "{ended}: {text}");
    ensure!(connections(&sshd) == 1, "{}", sshd.log());
    let (text, _) = world.run("cd model && orrery agent list")?;
    ensure!(text.contains("ssh") && !text.contains("unsupported"), "{text}");
    known_hosts_of_the_environment(world.directory.path(), &sshd)
}

/// The recorded key is in the data directory, in the environment's own file.
fn known_hosts_of_the_environment(directory: &Path, sshd: &TestSshd) -> Result<()> {
    let line = sshd.known_hosts_line();
    let found = std::process::Command::new("grep")
        .args(["-rlF", line.trim(), "--include=known_hosts"])
        .arg(directory)
        .output()?;
    let text = String::from_utf8(found.stdout)?;
    ensure!(text.lines().count() == 1 && text.contains("/ssh/"), "{text}");
    Ok(())
}
