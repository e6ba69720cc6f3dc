//! `orrery agent install-script`: the printed script installs a program from the gateway, joins, and
//! the agent connects. A directory stands for the file system of the machine.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use serde_json::json;

use crate::BINARY;
use crate::remote_agents::{Process, Scene, orrery, scene_with};
use crate::server_kills::{Server, until};

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::test("install_script/a_machine_installs_joins_and_serves", || {
        Ok(install_join_and_serve().map_err(|error| format!("{error:#}"))?)
    })]
}

/// Program of an agent: the agent of this binary, which notes the arguments of each call.
fn write_program(path: &Path, arguments: &Path) -> Result<()> {
    let text = format!(
        "#!/bin/sh\nprintf '%s\\n' \"$*\" >> {}\nexec {BINARY} agent \"$@\"\n",
        arguments.display()
    );
    Ok(orrery_testing::write_program(path, &text)?)
}

/// Writes a script with the command, and returns its text.
fn script(server: &Server, scene: &Scene, to: &Path, options: &[&str]) -> Result<String> {
    let file = to.to_str().context("not UTF-8")?;
    let command = [&["agent", "install-script", "web1", "--output", file], options].concat();
    orrery(server, scene.id(), &command)?;
    let mode = std::fs::metadata(to)?.permissions().mode() & 0o777;
    ensure!(mode == 0o600, "other users can read the script: {mode:o}");
    Ok(std::fs::read_to_string(to)?)
}

/// Runs a script on the machine; returns success and output.
fn install(script: &Path, root: &Path) -> Result<(bool, String)> {
    let mut sh = Command::new("sh");
    let done = sh.arg(script).env("ORRERY_INSTALL_ROOT", root).stdin(Stdio::null()).output()?;
    let said = String::from_utf8([done.stdout, done.stderr].concat())?;
    Ok((done.status.success(), said))
}

fn install_join_and_serve() -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let at = |name: &str| -> PathBuf { scratch.path().join(name) };
    let (program, arguments) = (at("program"), at("arguments"));
    write_program(&program, &arguments)?;
    let path = program.to_str().context("not UTF-8")?;
    let (scene, server) = scene_with(false, &["--gateway-program", path])?;
    let root = at("root");
    let text = script(&server, &scene, &at("install.sh"), &[])?;
    let token = text.lines().find_map(|line| line.strip_prefix("token=")).context("no token")?;

    // A program with another digest is not installed, and the token stays unused.
    std::fs::write(&program, "#!/bin/sh\necho tampered\n")?;
    let (is_done, said) = install(&at("install.sh"), &root)?;
    ensure!(!is_done && said.contains("does not have the SHA-256"), "{said}");
    ensure!(!root.join("usr/local/bin/orrery-agent").exists());
    ensure!(std::fs::read_dir(root.join("usr/local/bin"))?.next().is_none(), "it left a file");

    write_program(&program, &arguments)?;
    let (is_done, said) = install(&at("install.sh"), &root)?;
    ensure!(is_done && said.contains("joined"), "{said}");
    let calls = std::fs::read_to_string(&arguments)?;
    ensure!(calls.starts_with("join ") && !calls.contains(token), "{calls}");
    let unit = std::fs::read_to_string(root.join("etc/systemd/system/orrery-agent.service"))?;
    ensure!(unit.contains("ExecStart=/usr/local/bin/orrery-agent run"), "{unit}");
    let state = root.join("var/lib/orrery-agent");
    let mode = std::fs::metadata(&state)?.permissions().mode() & 0o777;
    ensure!(mode == 0o700, "{mode:o}");

    // Again: nothing is left to do.
    let (is_done, said) = install(&at("install.sh"), &root)?;
    ensure!(is_done && said.contains("has joined already"), "{said}");
    ensure!(!said.contains("installed"), "{said}");

    let mut run = Command::new(root.join("usr/local/bin/orrery-agent"));
    run.args(["run", "--state"]).arg(&state).stdin(Stdio::null()).stdout(Stdio::null());
    let _agent = Process(run.spawn()?);
    until("the agent is connected", || {
        Ok(scene.get(&server, "/remote-agents")?["items"][0]["status"] == "connected")
    })?;
    let motd = scene.machine.join("motd");
    let attributes = json!({"path": motd, "content": "hello\n", "purged": false});
    let id = format!("std::File[web1,path={}]", motd.display());
    scene.put(&server, &[json!({"id": id, "attributes": attributes})])?;
    scene.until_all(&server, "deployed", 1)?;
    ensure!(std::fs::read_to_string(&motd)? == "hello\n");
    Ok(())
}
