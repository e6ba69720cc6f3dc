//! Automator `ansible`: a playbook against the node, with ansible-core in a virtualenv where the
//! task runs.

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use orrery_handlers::target::{CommandLine, Variables};
use orrery_handlers::{Durability, LocalTarget, Target as _};
use serde_json::{Value, json};

use super::shell::resource_content;
use super::task_data::task_data;
use crate::plugin::{
    ActionOutput, ActionRun, FieldFormat, FieldSchema, PluginError, PluginKind, PluginManifest,
    ResourceFormat, ServiceAutomator,
};
use crate::python_plugin::PythonPackages;
use crate::task::{TaskAction, output_tail};

const REQUIREMENTS: [&str; 1] = ["ansible-core>=2.16,<3"];

/// Playbooks.
#[derive(Debug)]
pub struct AnsibleAutomator {
    manifest: PluginManifest,
    packages: PythonPackages,
}

impl AnsibleAutomator {
    /// Creates the automator. ansible-core is installed below `directory` at the first use.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        let text = FieldFormat::Text;
        let manifest = PluginManifest::new(
            PluginKind::Automator,
            "ansible",
            "Ansible",
            "Runs a playbook against the node.",
        )
        .field(
            "playbook",
            FieldSchema::new("Playbook", text, "Name of an uploaded playbook, for hosts: all."),
        )
        .field("tags", FieldSchema::new("Tags", text, "Tags of the tasks to run."))
        .field(
            "variables",
            FieldSchema::new("Variables", FieldFormat::Json, "More variables of the playbook."),
        )
        .requires(&["playbook"])
        .resource_type("playbooks", ResourceFormat::File, None)
        .resource_type("roles", ResourceFormat::Archive, None);
        let packages = PythonPackages::new(directory.into(), &REQUIREMENTS);
        AnsibleAutomator { manifest, packages }
    }

    /// Writes everything that a run reads, for this account only. Returns the arguments.
    fn write_files(run: &ActionRun<'_>, directory: &Path) -> Result<Vec<String>, PluginError> {
        let failed = |error: io::Error| PluginError::io("write the files of ansible", &error);
        let playbook = run.fields.text("playbook").unwrap_or_default();
        let (_, content) = resource_content(run, &format!("playbooks/{playbook}"))?;
        let write = |name: &str, content: &[u8]| -> Result<String, PluginError> {
            let path = directory.join(name);
            let mut file = fs::OpenOptions::new();
            let mut file =
                file.write(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
            io::Write::write_all(&mut file, content).map_err(failed)?;
            Ok(path.display().to_string())
        };
        let mut host = json!({"ansible_python_interpreter": "auto_silent"});
        match &run.access.ssh {
            Some(login) => {
                let identity = write("identity", login.identity.expose().as_bytes())?;
                let name = match login.port {
                    22 => login.host.clone(),
                    port => format!("[{}]:{port}", login.host),
                };
                let key = login.host_key.clone().unwrap_or_default();
                let known = write("known_hosts", format!("{name} {key}\n").as_bytes())?;
                let options = format!(
                    "-o UserKnownHostsFile={known} -o StrictHostKeyChecking=yes -o IdentitiesOnly=yes"
                );
                let more = json!({
                    "ansible_host": login.host, "ansible_port": login.port,
                    "ansible_user": login.user, "ansible_ssh_private_key_file": identity,
                    "ansible_ssh_common_args": options, "ansible_become": login.user != "root",
                });
                merge(&mut host, more);
            }
            None => merge(&mut host, json!({"ansible_connection": "local"})),
        }
        let inventory = json!({"all": {"hosts": {run.task.node.clone(): host}}});
        let inventory = write("inventory.json", inventory.to_string().as_bytes())?;
        let mut variables = json!({"orrery": task_data(run)});
        if let Some(more) = run.fields.get("variables") {
            let more = match more.as_str() {
                Some(text) => serde_json::from_str(text)
                    .map_err(|error| PluginError::new(format!("the field variables: {error}")))?,
                None => more.clone(),
            };
            merge(&mut variables, more);
        }
        let variables = write("variables.json", variables.to_string().as_bytes())?;
        write("ansible.cfg", b"[defaults]\n")?;
        let playbook = write("playbook.yml", &content)?;
        let mut arguments =
            vec!["-i".to_owned(), inventory, "-e".to_owned(), format!("@{variables}")];
        arguments.extend(run.fields.text("tags").map(|tags| format!("--tags={tags}")));
        arguments.push(playbook);
        Ok(arguments)
    }
}

fn merge(into: &mut Value, more: Value) {
    if let (Some(into), Value::Object(more)) = (into.as_object_mut(), more) {
        into.extend(more);
    }
}

impl ServiceAutomator for AnsibleAutomator {
    fn manifest(&self) -> &PluginManifest {
        &self.manifest
    }

    fn run(&self, run: &ActionRun<'_>) -> Result<ActionOutput, PluginError> {
        let interpreter = self.packages.interpreter()?;
        if run.action == TaskAction::Bootstrap {
            // It needs Python on the node only.
            return Ok(ActionOutput::default());
        }
        let directory = tempfile::Builder::new()
            .prefix("orrery-ansible.")
            .tempdir()
            .map_err(|error| PluginError::io("create a directory for ansible", &error))?;
        let arguments = AnsibleAutomator::write_files(run, directory.path())?;
        let words = ["-I", "-m", "ansible", "playbook"].map(str::to_owned);
        let program = interpreter.program.display().to_string();
        let mut command = CommandLine::new([program].into_iter().chain(words).chain(arguments));
        let home = directory.path().display().to_string();
        // Settings of this machine's users do not count.
        command.environment = [
            ("HOME", home.clone()),
            ("ANSIBLE_CONFIG", format!("{home}/ansible.cfg")),
            ("ANSIBLE_HOME", format!("{home}/ansible")),
            ("ANSIBLE_LOCAL_TEMP", format!("{home}/tmp")),
            ("ANSIBLE_NOCOLOR", "1".to_owned()),
            ("ANSIBLE_RETRY_FILES_ENABLED", "0".to_owned()),
            ("LC_ALL", "C.UTF-8".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        command
            .environment
            .extend(run.access.environment.iter().filter(|(name, _)| name != "HOME").cloned());
        command.timeout = run.stop.remaining();
        let target = LocalTarget::new(Durability::None).with_variables(Variables::Standard);
        let output = target.run(&command, run.stop)?;
        let (stdout, stderr) = (output_tail(&output.stdout), output_tail(&output.stderr));
        if output.success() {
            return Ok(ActionOutput { stdout, stderr });
        }
        let playbook = run.fields.text("playbook").unwrap_or_default();
        let lines = String::from_utf8_lossy(&output.stdout);
        let fatal =
            lines.lines().find(|line| line.starts_with("fatal:") || line.starts_with("ERROR"));
        let reason = fatal.map_or_else(|| output.error_excerpt(), str::to_owned);
        let text = format!("playbook {playbook} ended with code {}: {reason}", output.code);
        Err(PluginError { stdout, stderr, ..PluginError::new(text) })
    }
}
