//! Machines in network namespaces, with real SSH servers and remote agents: one model, links that
//! are cut while commands and handlers in Python run, privilege by sudo, and a jump host.
//!
//! Every command and every handler in Python appends to a journal on its own machine, which shows
//! what really ran.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use libtest_mimic::Trial;
use orrery_testing::{TestLink, TestMachine, keygen};
use serde_json::Value;

use crate::BINARY;
use crate::scratch_project::ScratchProject;
use crate::server_commands::World;
use crate::server_kills::until;

/// Commands of each machine, and the time that each takes.
const COMMANDS: usize = 8;
const COMMAND_SECONDS: f32 = 0.4;
/// The command of each machine over SSH that goes on only when all links are cut. On agents, a
/// handler in Python does.
const HELD_AT: usize = 3;
/// Resources of each machine that handlers of the project's own module manage.
const PYTHON: [&str; 4] = ["before", "middle", "after", "uploaded"];
const MODULE: [(&str, &str); 3] = [
    ("module.yml", include_str!("apart/module.yml")),
    ("model/_init.cf", include_str!("apart/model/_init.cf")),
    ("plugins/__init__.py", include_str!("apart/plugins/__init__.py")),
];
/// Longer than the gateway waits for a silent agent, and shorter than it waits for a command.
const OUTAGE: Duration = Duration::from_secs(12);
/// Address of the gateway, which all machines reach over their own link.
const GATEWAY: &str = "10.77.0.1";
/// Puts the program where an earlier deploy would have left it: the upload of one that is not
/// optimised takes long.
const HELPER_IN_CACHE: &str = "mkdir -m 700 /var/cache/orrery\n\
    helper=/var/cache/orrery/helper-$(sha256sum </run/programs/orrery | cut -c -64)\n\
    : >$helper\nmount --bind /run/programs/orrery $helper";
const PASSWORD: &str = "open sesame";

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, run: fn() -> Result<()>| {
        Trial::test(format!("separate_machines/{name}"), move || {
            Ok(apart(run).map_err(|error| format!("{error:#}"))?)
        })
    };
    vec![
        trial("links_are_cut_while_one_model_converges", links_are_cut),
        trial("sudo_with_and_without_a_password_and_a_jump_host", sudo_and_jump_host),
    ]
}

/// Runs a test in a thread of its own, which enters a network that the test made.
fn apart(run: fn() -> Result<()>) -> Result<()> {
    if let Some(reason) = TestMachine::obstacle() {
        eprintln!("separate_machines: skipped: no namespaces: {reason}");
        return Ok(());
    }
    match std::thread::spawn(run).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// A machine with its link to the hub.
struct Site {
    machine: TestMachine,
    link: TestLink,
}

impl Site {
    /// Starts machine number `number`, which has the address `10.77.NUMBER.2`.
    fn start(hub: &TestMachine, name: &str, number: usize) -> Self {
        Site::start_with(hub, name, number, BINARY)
    }

    fn start_with(hub: &TestMachine, name: &str, number: usize, program: &str) -> Self {
        let machine = TestMachine::start(name, &[program]);
        let (own, other) = (format!("10.77.{number}.2"), format!("10.77.{number}.1"));
        let link = TestLink::connect((hub, &other), (&machine, &own));
        link.make_default_route();
        Site { machine, link }
    }

    /// Lines of the journal: `begin NUMBER` and `end NUMBER`.
    fn journal(&self) -> Vec<String> {
        self.machine.read("/srv/journal").lines().map(str::to_owned).collect()
    }

    fn begun(&self) -> usize {
        self.journal().iter().filter(|line| line.starts_with("begin ")).count()
    }

    /// Lines of the handlers in Python: `begin PATH` and `end PATH`.
    fn python_journal(&self) -> Vec<String> {
        self.machine.read("/srv/python-journal").lines().map(str::to_owned).collect()
    }

    fn is_held_in_python(&self) -> bool {
        let (begin, end) = ("begin /srv/app/middle".to_owned(), "end /srv/app/middle".to_owned());
        let journal = self.python_journal();
        journal.contains(&begin) && !journal.contains(&end)
    }

    fn run_agent(&self) -> Result<RunningAgent> {
        let script = "echo $$ > /run/agent.pid\n\
            exec orrery agent run --state /srv/agent --log warn > /run/agent.log 2>&1";
        let mut command = self.machine.command("sh");
        Ok(RunningAgent(command.args(["-euc", script]).stdin(Stdio::null()).spawn()?))
    }
}

/// `nsenter` in front of an agent, which ends with its machine.
struct RunningAgent(Child);

impl Drop for RunningAgent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the hub, and moves this thread into its network.
fn enter_hub() -> TestMachine {
    let hub = TestMachine::start("hub", &[]);
    hub.enter_network();
    hub.run(&format!("ip address add {GATEWAY}/32 dev lo"));
    hub
}

/// Creates a key; returns its path and the line for `authorized_keys`.
fn make_key(directory: &std::path::Path) -> Result<(String, String)> {
    let path = directory.join("deploy_key").display().to_string();
    keygen(&["-t", "ed25519", "-f", &path]);
    let public = fs::read_to_string(format!("{path}.pub"))?;
    Ok((path, public))
}

/// Makes `ops`, who may become root without a password, and `ada`, who needs one.
fn make_sudoers(machine: &TestMachine) {
    machine.run(&format!(
        "useradd -m -s /bin/sh ops; useradd -m -s /bin/sh ada\n\
         printf 'ops:unused\\nada:{PASSWORD}\\n' | chpasswd\n\
         printf 'ops ALL=(ALL) NOPASSWD: ALL\\nada ALL=(ALL) ALL\\n' > /etc/sudoers.d/test\n\
         chmod 440 /etc/sudoers.d/test"
    ));
}

/// Six machines: three over SSH, the third of them behind the first, and three with agents.
struct Site6 {
    world: World,
    ssh: [Site; 2],
    /// Behind `ssh[0]`: the server has no route to it.
    inner: Site,
    agents: Vec<Site>,
    _running: Vec<RunningAgent>,
    _hub: TestMachine,
}

impl Site6 {
    fn start() -> Result<Self> {
        let hub = enter_hub();
        let mut world = World::new(false)?;
        // As it is installed, it is small enough to be a helper: handlers in Python run there.
        world.program = world.directory.path().join("installed/orrery");
        fs::create_dir(world.directory.path().join("installed"))?;
        let strip = Command::new("strip").arg("-o").arg(&world.program).arg(BINARY).status()?;
        ensure!(strip.success(), "strip failed");
        let gateway = format!("{GATEWAY}:8889");
        world.settle(&format!("--gateway-listen 0.0.0.0:8889 --gateway-address {gateway}"))?;
        let (key, public) = make_key(world.directory.path())?;
        let program = world.program.display().to_string();
        let site = |name, number| Site::start_with(&hub, name, number, &program);
        let ssh = [site("ssh1", 1), site("ssh2", 2)];
        make_sudoers(&ssh[1].machine);
        let machine = TestMachine::start("ssh3", &[&program]);
        let link = TestLink::connect((&ssh[0].machine, "10.99.0.1"), (&machine, "10.99.0.2"));
        let inner = Site { machine, link };
        for site in ssh.iter().chain([&inner]) {
            site.machine.start_sshd(&public, "");
            site.machine.run(HELPER_IN_CACHE);
        }
        world.done(&format!("orrery secret set deploy-key < {key}"))?;
        // Failures are retried soon.
        let setting = "orrery environment setting set";
        world.done(&format!("{setting} autostart_agent_deploy_interval '\"4\"'"))?;
        let (mut agents, mut running) = (Vec::new(), Vec::new());
        for number in 1..=3 {
            let name = format!("agent{number}");
            let site = Site::start(&hub, &name, 10 + number);
            let invited = world.done(&format!("orrery agent invite {name} --json 2>/dev/null"))?;
            let invited: Value = serde_json::from_str(&invited)?;
            let token = invited["token"].as_str().context("no token")?;
            site.machine.run(&format!("orrery agent join {gateway} {token} --state /srv/agent"));
            running.push(site.run_agent()?);
            agents.push(site);
        }
        Ok(Site6 { world, ssh, inner, agents, _running: running, _hub: hub })
    }

    fn sites(&self) -> impl Iterator<Item = &Site> {
        self.ssh.iter().chain([&self.inner]).chain(&self.agents)
    }

    fn site(&self, name: &str) -> Result<&Site> {
        self.sites().find(|site| site.machine.name() == name).context("no such machine")
    }

    /// Output of a command with `--json`, whatever its exit code.
    fn json(&self, line: &str) -> Result<Value> {
        let (text, _) = self.world.run(&format!("cd model && {line} --json 2>/dev/null"))?;
        serde_json::from_str(&text).with_context(|| format!("{line}: {text}"))
    }

    fn is_done(&self) -> Result<bool> {
        Ok(self.json("orrery status")?["done"] == true)
    }

    /// Journals and states, for the diagnosis of a failure.
    fn describe(&self) -> String {
        let journals = self.sites().map(|site| {
            format!("{} {:?} {:?}", site.machine.name(), site.journal(), site.python_journal())
        });
        let journals: Vec<String> = journals.collect();
        let said = self.world.run("cd model; orrery status; orrery settle");
        format!("{}\n{}", journals.join("\n"), said.map_or_else(|e| e.to_string(), |ran| ran.0))
    }

    fn write_model(&self) -> Result<()> {
        let directory = self.world.directory.path().join("model");
        fs::create_dir_all(&directory)?;
        fs::write(directory.join("project.yml"), "name: shop\nmodulepath: libs\n")?;
        for (name, text) in MODULE {
            let path = directory.join("libs/apart").join(name);
            fs::create_dir_all(path.parent().context("no directory")?)?;
            fs::write(path, text)?;
        }
        fs::write(
            directory.join("inventory.yml"),
            "defaults: { identity_secret: deploy-key, strict_host_key: accept-new, user: root }\n\
             hosts:\n  ssh1: { address: 10.77.1.2 }\n  \
               ssh2: { address: 10.77.2.2, user: ops, sudo: true }\n  \
               ssh3: { address: 10.99.0.2, jump: ssh1 }\n",
        )?;
        let names: Vec<&str> = self.sites().map(|site| site.machine.name()).collect();
        let names = serde_json::to_string(&names)?;
        let model = format!(
            r#"import apart
import exec

for name in {names}:
    host = std::Host(name=name, os=std::linux)
    folder = std::Directory(host=host, path="/srv/app", owner="root", group="root", mode=750)
    for number in std::sequence(3):
        std::File(
            host=host, path="/srv/app/{{{{ number }}}}.conf", owner="root", group="root", mode=640,
            content="{{{{ name }}}} {{{{ number }}}}\n", requires=folder,
        )
    end
    is_agent = name in ["agent1", "agent2", "agent3"]
    held = is_agent ? "false" : "[ -e /srv/hold ]"
    before = apart::Step(
        host=host, path="/srv/app/before", text=name, journal="/srv/python-journal", requires=folder,
    )
    apart::File(
        host=host, path="/srv/app/uploaded", content="content of {{{{ name }}}}\n", journal="/srv/python-journal", requires=before,
    )
    middle = apart::Step(
        host=host, path="/srv/app/middle", text=name, journal="/srv/python-journal", requires=before,
        hold=is_agent ? "/srv/hold" : "",
    )
    after = apart::Step(
        host=host, path="/srv/app/after", text=name, journal="/srv/python-journal", requires=middle,
    )
    for number in std::sequence({COMMANDS}):
        exec::Run(
            host=host, once=true, requires=before, provides=after,
            command=exec::in_shell(
                "echo begin {{{{ number }}}} >> /srv/journal; while {{{{ held }}}} && [ $(grep -c begin /srv/journal) -ge {HELD_AT} ]; do sleep 0.1; done; sleep {COMMAND_SECONDS}; echo end {{{{ number }}}} >> /srv/journal"
            ),
        )
    end
end
"#
        );
        Ok(fs::write(directory.join("main.cf"), model)?)
    }

    /// Decides about each lost outcome by what the machine's journal says.
    fn settle_by_the_journals(&self) -> Result<usize> {
        let listed = self.json("orrery settle")?;
        let items = listed["items"].as_array().context("no items")?;
        for item in items {
            let id = item["resource"].as_str().context("no id")?;
            let (agent, command) =
                id.split_once('[').and_then(|(_, rest)| rest.split_once(',')).context("an id")?;
            let begin = command.split("echo ").nth(1).and_then(|rest| rest.split(" >>").next());
            let begin = begin.context("no command")?;
            let ran = self.site(agent)?.journal().iter().any(|line| line == begin);
            let choice = if ran { "--done" } else { "--again" };
            let id = id.replace('\'', r"'\''");
            let (said, code) =
                self.world.run(&format!("cd model && orrery settle {choice} '{id}' 2>&1"))?;
            // The agent may have reported the outcome in the meantime.
            let is_known = said.contains("no effect with an unknown outcome");
            ensure!(code == 0 || is_known, "settle {choice} {id}: {said}");
        }
        Ok(items.len())
    }
}

fn links_are_cut() -> Result<()> {
    let scene = Site6::start()?;
    scene.write_model()?;
    let world = &scene.world;
    until("the agents are connected", || {
        let listed = scene.json("orrery agent remotes")?;
        let items = listed["items"].as_array().context("no items")?;
        Ok(items.len() == 3 && items.iter().all(|item| item["status"] == "connected"))
    })?;
    for site in scene.sites() {
        fs::write(site.machine.path("/srv/hold"), "")?;
    }
    world.done("cd model && orrery export --release")?;

    // Visible and silent cuts, of a machine over SSH and a remote agent each.
    let (lossy, down) = ([&scene.ssh[0], &scene.agents[0]], [&scene.ssh[1], &scene.agents[1]]);
    // Each in the middle of its own commands: machines over SSH begin later than agents.
    until("the machines are in the middle", || {
        let over_ssh = scene.ssh.iter().chain([&scene.inner]);
        Ok(over_ssh.into_iter().all(|site| site.begun() >= HELD_AT)
            && scene.agents.iter().all(Site::is_held_in_python))
    })
    .with_context(|| scene.describe())?;
    lossy.iter().for_each(|site| site.link.lose_packets());
    down.iter().for_each(|site| site.link.take_down());
    let cut_at = Instant::now();
    for site in scene.sites() {
        fs::remove_file(site.machine.path("/srv/hold"))?;
    }
    // Sessions of a machine over SSH end while it is cut off, as a firewall's state does.
    let ended = "for one in $(pgrep -x sshd); do\n\
        [ $one = $(cat /run/sshd.pid) ] || { kill -KILL $one; echo $one; }\ndone";
    ensure!(!scene.ssh[1].machine.run(ended).is_empty(), "there was no session");

    // A machine that is not cut off goes on: the links stay cut until it is done.
    until("the connected agent is done", || {
        Ok(scene.agents[2].python_journal().contains(&"end /srv/app/after".to_owned()))
    })
    .with_context(|| scene.describe())?;
    until("the cut agents are seen as disconnected", || {
        let listed = scene.json("orrery agent remotes")?;
        let down = |item: &&Value| item["status"] == "disconnected";
        Ok(listed["items"].as_array().context("no items")?.iter().filter(down).count() == 2)
    })?;
    std::thread::sleep(OUTAGE.saturating_sub(cut_at.elapsed()));
    lossy.iter().chain(&down).for_each(|site| site.link.restore());

    let restored = Instant::now();
    let (total, mut settled) = (6 * (4 + COMMANDS + PYTHON.len()), 0);
    until("everything is deployed", || {
        settled += scene.settle_by_the_journals()?;
        scene.is_done()
    })
    .with_context(|| scene.describe())?;
    eprintln!(
        "separate_machines: recovered {:.1} s after the links, {settled} lost outcomes settled",
        restored.elapsed().as_secs_f32()
    );

    for site in scene.sites() {
        let (name, mut begun) = (site.machine.name(), site.journal());
        begun.retain(|line| line.starts_with("begin "));
        begun.sort_unstable();
        let expected: Vec<String> = (0..COMMANDS).map(|number| format!("begin {number}")).collect();
        ensure!(begun == expected, "{name}: a command ran twice or never: {begun:?}");
        let mut expected: Vec<String> = PYTHON
            .iter()
            .flat_map(|file| ["begin", "end"].map(|word| format!("{word} /srv/app/{file}")))
            .collect();
        expected.sort_unstable();
        let mut python = site.python_journal();
        python.sort_unstable();
        ensure!(python == expected, "{name}: a handler ran twice or not to its end: {python:?}");
        for file in ["before", "middle", "after"] {
            ensure!(site.machine.read(&format!("/srv/app/{file}")) == name, "{name}: {file}");
        }
        let uploaded = site.machine.read("/srv/app/uploaded");
        ensure!(uploaded == format!("content of {name}\n"), "{name}: {uploaded}");
        for number in 0..3 {
            let content = site.machine.read(&format!("/srv/app/{number}.conf"));
            ensure!(content == format!("{name} {number}\n"), "{name}: {content}");
        }
        let mode = site.machine.run("stat -c '%U %G %a' /srv/app /srv/app/0.conf");
        ensure!(mode == "root root 750\nroot root 640\n", "{name}: {mode}");
    }
    ensure!(!std::path::Path::new("/srv/app").exists(), "the server's machine was changed");
    // The hub has no route to the machine behind the jump host.
    let routes = std::process::Command::new("ip").args(["route", "get", "10.99.0.2"]).output()?;
    ensure!(!routes.status.success(), "{}", String::from_utf8_lossy(&routes.stdout));
    let repeated = world.done("cd model && orrery deploy")?;
    ensure!(repeated.contains(&format!("{total} resources unchanged")), "{repeated}");
    Ok(())
}

/// Deploys without a server.
fn sudo_and_jump_host() -> Result<()> {
    let hub = enter_hub();
    let (outer, target) = (Site::start(&hub, "gate", 1), Site::start(&hub, "web1", 2));
    let inner = TestMachine::start("db1", &[]);
    let _link = TestLink::connect((&outer.machine, "10.99.0.1"), (&inner, "10.99.0.2"));
    make_sudoers(&target.machine);
    let mut project = ScratchProject::new(
        r#"
for name in ["ops1", "ada1", "db1"]:
    machine = std::Host(name=name, os=std::linux)
    std::File(host=machine, path="/srv/{{ name }}", owner="root", group="root", mode=600, content=name)
    exec::Run(host=machine, command=exec::in_shell("id -un >> /srv/{{ name }}-user"), once=true)
end
"#,
    )?;
    let home = project.data().join("home");
    fs::create_dir_all(home.join(".ssh"))?;
    let (key, public) = make_key(&home)?;
    outer.machine.start_sshd(&public, "");
    target.machine.start_sshd(&public, "");
    inner.start_sshd(&public, "");
    project.set("HOME", &home.display().to_string());
    project.set("SSH_AUTH_SOCK", "");
    let inventory = |secret: &str| {
        format!(
            "defaults: {{ identity: {key}, strict_host_key: accept-new }}\n\
             hosts:\n  gate: {{ address: 10.77.1.2, user: root }}\n  \
             ops1: {{ address: 10.77.2.2, user: ops, sudo: true }}\n  \
             ada1: {{ address: 10.77.2.2, user: ada, sudo: true{secret} }}\n  \
             db1: {{ address: 10.99.0.2, user: root, jump: gate }}\n"
        )
    };
    // Without the password, only that machine's resources are affected.
    project.write("inventory.yml", &inventory(""))?;
    let ran = project.expect(2, &["deploy"])?;
    ran.says(&["sudo refuses to run commands", "sudo_secret"])?;
    ensure!(!target.machine.path("/srv/ada1").exists());
    ensure!(target.machine.read("/srv/ops1") == "ops1" && inner.read("/srv/db1") == "db1");
    project.write("inventory.yml", &inventory(", sudo_secret: \"env:SUDO_PASSWORD\""))?;
    project.set("SUDO_PASSWORD", "wrong");
    let began = Instant::now();
    project.expect(2, &["deploy"])?.says(&["sudo refuses to run commands"])?;
    ensure!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
    ensure!(!target.machine.path("/srv/ada1").exists());
    project.set("SUDO_PASSWORD", PASSWORD);
    project.expect(0, &["deploy"])?;
    project.expect(0, &["deploy"])?.says(&["6 resources unchanged"])?;
    for (machine, name) in [(&target.machine, "ops1"), (&target.machine, "ada1"), (&inner, "db1")] {
        let user = machine.read(&format!("/srv/{name}-user"));
        ensure!(user == "root\n", "{name}: {user:?}");
        let shown = machine.run(&format!("stat -c '%U %a' /srv/{name}"));
        ensure!(shown == "root 600\n", "{name}: {shown}");
    }
    let seen = target.machine.run("cat /run/sshd.log; cat /proc/*/cmdline | tr '\\0' ' '");
    ensure!(!seen.contains(PASSWORD), "the password is visible");
    // Without the jump host, the machine behind it is unreachable, and the others are not.
    outer.link.take_down();
    let began = Instant::now();
    fs::write(target.machine.path("/srv/ops1"), "drift")?;
    let ran = project.run(&["repair"])?;
    if ran.code != Some(2) {
        bail!("{:?}: {}{}", ran.code, ran.out, ran.said);
    }
    ran.says(&["jump host"])?;
    ensure!(target.machine.read("/srv/ops1") == "ops1");
    ensure!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
    outer.link.restore();
    project.expect(0, &["repair"])?;
    Ok(())
}
