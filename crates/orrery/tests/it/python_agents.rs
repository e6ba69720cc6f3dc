//! Python handlers on other machines than the server: on remote agents, and through the helper over
//! SSH. With the real program; every handler leaves the command line of the process that ran it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use orrery_testing::TestSshd;
use serde_json::json;

use crate::BINARY;
use crate::environments::{write_index, write_wheel};
use crate::over_ssh::write_inventory;
use crate::remote_agents::{self, Process, Scene, orrery};
use crate::scratch_project::ScratchProject;
use crate::server_kills::{Server, until};

const MODULES: [(&str, [(&str, &str); 3]); 3] = [
    (
        "placed",
        [
            ("module.yml", include_str!("placed/module.yml")),
            ("model/_init.cf", include_str!("placed/model/_init.cf")),
            ("plugins/__init__.py", include_str!("placed/plugins/__init__.py")),
        ],
    ),
    (
        "south",
        [
            ("module.yml", include_str!("south/module.yml")),
            ("model/_init.cf", include_str!("south/model/_init.cf")),
            ("plugins/__init__.py", include_str!("south/plugins/__init__.py")),
        ],
    ),
    (
        "unrepeatable",
        [
            ("module.yml", include_str!("unrepeatable/module.yml")),
            ("model/_init.cf", include_str!("unrepeatable/model/_init.cf")),
            ("plugins/__init__.py", include_str!("unrepeatable/plugins/__init__.py")),
        ],
    ),
];

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, run: fn() -> Result<()>| {
        Trial::test(format!("python_agents/{name}"), move || {
            Ok(run().map_err(|error| format!("{error:#}"))?)
        })
    };
    vec![
        trial("code_requirements_and_contents_travel_to_the_agent", on_an_agent),
        trial("an_agent_killed_in_a_handler_does_not_repeat_it", killed),
        trial("an_effect_begun_by_a_killed_agent_is_parked", killed_after_an_effect),
        trial("a_machine_without_python_says_so", without_python),
        trial("a_policy_refuses_python_unless_it_allows_it", policy),
        trial("over_ssh_the_helper_runs_what_uses_io", over_ssh),
    ]
}

/// A server, and a project that is exported to it.
pub(crate) struct PythonScene {
    // Dropped before its database.
    pub(crate) server: Server,
    pub(crate) scene: Scene,
    pub(crate) project: PathBuf,
}

impl PythonScene {
    pub(crate) fn new() -> Result<Self> {
        let (scene, server) = remote_agents::scene(false)?;
        let project = scene.world.path("project");
        write_modules(&project)?;
        write(&project.join("project.yml"), "name: test\nmodulepath: libs\n")?;
        Ok(PythonScene { server, scene, project })
    }

    pub(crate) fn push(&self, model: &str) -> Result<()> {
        write(&self.project.join("main.cf"), model)?;
        let done = Command::new(BINARY)
            .args(["export", "--release"])
            .current_dir(&self.project)
            .env("ORRERY_SERVER", &self.server.base)
            .env("ORRERY_TOKEN", &self.server.token)
            .env("ORRERY_ENVIRONMENT", self.scene.id())
            .env_remove("VIRTUAL_ENV")
            .output()?;
        let said = [done.stdout, done.stderr].concat();
        ensure!(done.status.success(), "export: {}", String::from_utf8_lossy(&said));
        Ok(())
    }

    /// Invites and joins a machine as `web1`.
    fn join(&self) -> Result<()> {
        let invited = orrery(&self.server, self.scene.id(), &["agent", "invite", "web1"])?;
        let token = invited["token"].as_str().context("no token")?;
        let gateway = invited["gateway"].as_str().context("no gateway")?;
        let joined = remote_agents::join(gateway, token, &self.scene.state)?;
        joined.map_err(|said| anyhow::anyhow!("joining failed: {said}"))
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.scene.machine.join(name)
    }

    fn read(&self, name: &str) -> Result<String> {
        fs::read_to_string(self.file(name)).with_context(|| name.to_owned())
    }

    /// Resource in the model, with a file on the machine.
    fn note(&self, name: &str, more: &str) -> String {
        let path = self.file(name);
        format!("placed::Note(agent=\"web1\", path=\"{}\", {more})\n", path.display())
    }

    pub(crate) fn until_all(&self, status: &str, count: u64) -> Result<()> {
        self.scene.until_all(&self.server, status, count)
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::create_dir_all(path.parent().context("no directory")?)?;
    Ok(fs::write(path, text)?)
}

fn write_modules(project: &Path) -> Result<()> {
    for (module, files) in MODULES {
        for (name, text) in files {
            write(&project.join("libs").join(module).join(name), text)?;
        }
    }
    Ok(())
}

const IMPORTS: &str = "import std\nimport placed\nimport south\nimport unrepeatable\n";

/// Starts the agent with further arguments and variables.
fn run_agent(scene: &Scene, arguments: &[&str], variables: &[(&str, &str)]) -> Result<Process> {
    let mut command = Command::new(BINARY);
    command.args(["agent", "run", "--log", "warn", "--state"]).arg(&scene.state).args(arguments);
    command.envs(variables.iter().copied());
    remote_agents::started(&mut command)
}

fn on_an_agent() -> Result<()> {
    let scene = PythonScene::new()?;
    let (wheels, index) = (scene.scene.world.path("wheels"), scene.scene.world.path("index"));
    fs::create_dir(&wheels)?;
    write_wheel(&wheels, "ship-text", "1.0", "", "ship_text")?;
    add_text(&wheels)?;
    write_index(&wheels, &index)?;
    write(&scene.project.join("libs/placed/requirements.txt"), "ship-text>=1\n")?;
    let settings =
        format!("name: test\nmodulepath: libs\npip:\n    index_url: file://{}\n", index.display());
    write(&scene.project.join("project.yml"), &settings)?;
    scene.join()?;
    let mut agent = run_agent(&scene.scene, &[], &[])?;
    let large = "0123456789abcdef".repeat(400_000);
    let large = &large[..5_000_000];
    let content = scene.file("content");
    let model = format!(
        "{IMPORTS}{}south::File(agent=\"web1\", path=\"{}\", content=\"{large}\")\n",
        scene.note("note", "text=\"hello \", packages=true"),
        content.display(),
    );
    scene.push(&model)?;
    scene.until_all("deployed", 2)?;
    ensure!(scene.read("note")? == "hello from a package", "{}", scene.read("note")?);
    ensure!(scene.read("note.runner")?.contains("agent run"), "{}", scene.read("note.runner")?);
    ensure!(scene.read("content")? == large, "another content");
    // A change in one file of the code, and everything else is there.
    let code = scene.project.join("libs/placed/plugins/__init__.py");
    let text = fs::read_to_string(&code)?.replace("text = resource.text", "text = \"new \"");
    fs::write(&code, text)?;
    fs::remove_file(scene.file("note"))?;
    scene.push(&model.replace("hello", "changed"))?;
    until("the new code runs", || {
        Ok(fs::read_to_string(scene.file("note")).is_ok_and(|text| text == "new from a package"))
    })?;
    scene.until_all("deployed", 2)?;
    ensure!(agent.0.try_wait()?.is_none(), "the agent ended");
    Ok(())
}

/// Gives the package of the tests its content.
fn add_text(wheels: &Path) -> Result<()> {
    let script = "import sys, zipfile\n\
        path = sys.argv[1]\n\
        with zipfile.ZipFile(path) as old:\n    files = {name: old.read(name) for name in old.namelist()}\n\
        files['ship_text/__init__.py'] = b\"TEXT = 'from a package'\\n\"\n\
        with zipfile.ZipFile(path, 'w') as new:\n    [new.writestr(*file) for file in files.items()]\n";
    let wheel = wheels.join("ship_text-1.0-py3-none-any.whl");
    let status = Command::new("python3").args(["-I", "-c", script]).arg(wheel).status()?;
    ensure!(status.success(), "the wheel cannot be written");
    Ok(())
}

fn killed() -> Result<()> {
    let scene = PythonScene::new()?;
    scene.join()?;
    let mut agent = run_agent(&scene.scene, &[], &[])?;
    let gate = scene.file("gate");
    let note = scene.note("slow", &format!("text=\"x\", waits=\"{}\"", gate.display()));
    scene.push(&format!("{IMPORTS}{note}"))?;
    until("the handler begins", || {
        Ok(scene.read("slow.begun").is_ok_and(|text| text.ends_with('\n')))
    })?;
    let host = scene.read("slow.begun")?.trim().to_owned();
    agent.kill()?;
    // The process of the handler ends with its agent, before it changes anything.
    until("the host ends", || Ok(!Path::new(&format!("/proc/{host}")).exists()))?;
    let _agent = run_agent(&scene.scene, &[], &[])?;
    scene.until_all("failed", 1)?;
    let logs = scene.scene.logs(&scene.server)?;
    ensure!(logs.contains("restarted during the run, which is not repeated"), "{logs}");
    ensure!(scene.read("slow.begun")?.lines().count() == 1, "it ran twice");
    ensure!(!scene.file("slow").exists());
    // An operator's repair is another run.
    fs::write(&gate, "")?;
    orrery(&scene.server, scene.scene.id(), &["repair"])?;
    ensure!(scene.read("slow")? == "x" && scene.read("slow.begun")?.lines().count() == 2);
    Ok(())
}

fn killed_after_an_effect() -> Result<()> {
    let scene = PythonScene::new()?;
    scene.join()?;
    let mut agent = run_agent(&scene.scene, &[], &[])?;
    let journal = scene.file("journal");
    let model = format!(
        "{IMPORTS}unrepeatable::Call(name=\"once\", agent=\"web1\", journal=\"{}\", waits=600)\n",
        journal.display()
    );
    scene.push(&model)?;
    until("the effect happens", || Ok(journal.exists()))?;
    agent.kill()?;
    let _agent = run_agent(&scene.scene, &[], &[])?;
    until("the resource is parked", || {
        Ok(scene.scene.logs(&scene.server)?.contains("orrery settle"))
    })?;
    ensure!(scene.read("journal")?.lines().count() == 1, "{}", scene.read("journal")?);
    Ok(())
}

fn without_python() -> Result<()> {
    let scene = PythonScene::new()?;
    scene.join()?;
    let empty = scene.scene.world.path("empty");
    fs::create_dir(&empty)?;
    let nowhere = empty.to_str().context("a path")?;
    let variables = [("PATH", nowhere), ("HOME", nowhere), ("PYENV_ROOT", nowhere)];
    let _agent = run_agent(&scene.scene, &[], &variables)?;
    let (plain, user) = (scene.file("plain"), rustix::process::getuid().as_raw());
    let model = format!(
        "{IMPORTS}host = std::Host(name=\"web1\", os=std::linux)\n{}\
         std::File(host=host, path=\"{}\", content=\"x\", mode=644, owner=\"{user}\", group=\"{user}\")\n",
        scene.note("note", "text=\"x\""),
        plain.display(),
    );
    scene.push(&model)?;
    scene.until_all("unavailable", 1)?;
    scene.until_all("deployed", 1)?;
    ensure!(plain.exists() && !scene.file("note").exists());
    let logs = scene.scene.logs(&scene.server)?;
    ensure!(logs.contains("the machine of the agent has no Python"), "{logs}");
    ensure!(logs.contains("install Python 3.11 or newer on the machine"), "{logs}");
    Ok(())
}

fn policy() -> Result<()> {
    let scene = PythonScene::new()?;
    scene.join()?;
    let policy = scene.scene.world.path("policy.toml");
    let rules = "types = [\"*\"]\ncommands = [\"*\"]\nusers = [\"*\"]\npaths = [\"/\"]\n";
    let allow = |rules: &str| -> Result<()> {
        use std::os::unix::fs::PermissionsExt as _;
        fs::write(&policy, rules)?;
        Ok(fs::set_permissions(&policy, fs::Permissions::from_mode(0o600))?)
    };
    allow(rules)?;
    let policy_option = ["--policy", policy.to_str().context("a path")?];
    let mut agent = run_agent(&scene.scene, &policy_option, &[])?;
    scene.push(&format!("{IMPORTS}{}", scene.note("note", "text=\"x\"")))?;
    scene.until_all("failed", 1)?;
    let logs = scene.scene.logs(&scene.server)?;
    ensure!(logs.contains("does not allow that with `python = true`"), "{logs}");
    ensure!(!scene.file("note").exists());
    agent.kill()?;
    allow(&format!("{rules}python = true\n"))?;
    let _agent = run_agent(&scene.scene, &policy_option, &[])?;
    scene.until_all("deployed", 1)?;
    ensure!(scene.read("note")? == "x");
    Ok(())
}

fn over_ssh() -> Result<()> {
    let cache = tempfile::tempdir()?;
    let variable = format!("SetEnv XDG_CACHE_HOME={}", cache.path().display());
    let sshd = TestSshd::with_config(&variable);
    let model = "import placed\n\
        placed::Note(agent=\"web1\", path=\"{{ root }}/note\", text=\"hello\")\n\
        placed::Call(agent=\"web1\", path=\"{{ root }}/call\")\n";
    let mut project = ScratchProject::new(model)?;
    write_modules(project.project())?;
    write_inventory(&mut project, &[("web1", &sshd)])?;
    // As it is installed: with debug information it is too large for an upload.
    let installed = tempfile::tempdir()?;
    let program = installed.path().join("orrery");
    let stripped = Command::new("strip").arg("-o").arg(&program).arg(BINARY).status()?;
    ensure!(stripped.success(), "strip failed");
    let deploy = || -> Result<String> {
        let mut command = project.command(&["deploy"]);
        let mut own = Command::new(&program);
        own.args(command.get_args()).current_dir(command.get_current_dir().context("none")?);
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => own.env(name, value),
                None => own.env_remove(name),
            };
        }
        command = own;
        let done = command.stdin(Stdio::null()).output()?;
        let said = [done.stdout, done.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        ensure!(done.status.success(), "{said}");
        Ok(said)
    };
    let said = deploy()?;
    ensure!(said.contains("2 created"), "{said}");
    ensure!(project.read("note")? == "hello");
    let runner = project.read("note.runner")?;
    ensure!(runner.contains("helper-") && runner.contains("agent once"), "{runner}");
    let caller = project.read("call")?;
    ensure!(caller.contains("deploy"), "a handler without io stays where the deploy is: {caller}");
    let code = cache.path().join("orrery/python/code");
    ensure!(fs::read_dir(&code)?.count() == 1, "the code is cached on the machine");
    // The code is there, and a drift is repaired with it.
    fs::write(project.managed("note"), "drift")?;
    let said = deploy()?;
    ensure!(said.contains("unchanged") || said.contains("updated"), "{said}");
    ensure!(json!(project.read("note")?) == json!("hello") || said.contains("unchanged"), "{said}");
    Ok(())
}
