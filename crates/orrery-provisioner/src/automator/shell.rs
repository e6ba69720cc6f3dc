//! Automator `shell`: scripts on the node.
//!
//! A script is a plug-in resource of the type `scripts`, which is put on the node under its digest,
//! or any command. It reads the task from the file in `ORRERY_TASK`.

use orrery_handlers::target::{CommandLine, Ownership, RemovalMode};

use super::task_data::{environment, task_data};
use crate::node_files::make_directories;
use crate::plugin::{
    ActionOutput, ActionRun, FieldFormat, FieldSchema, PluginError, PluginKind, PluginManifest,
    ResourceFormat, ServiceAutomator,
};
use crate::task::{TaskAction, output_tail};

/// Program that runs daemons of services; scripts find it on their search path.
const DAEMON: &str = include_str!("orrery-daemon.sh");
const DAEMON_NAME: &str = "orrery-daemon";

/// Scripts on the node.
#[derive(Debug)]
pub struct ShellAutomator {
    manifest: PluginManifest,
}

impl Default for ShellAutomator {
    fn default() -> Self {
        ShellAutomator::new()
    }
}

impl ShellAutomator {
    pub fn new() -> Self {
        let text = FieldFormat::Text;
        let manifest = PluginManifest::new(
            PluginKind::Automator,
            "shell",
            "Shell",
            "Runs a script or a command on the node.",
        )
        .field(
            "script",
            FieldSchema::new("Script", text, "Name of an uploaded script, or a command."),
        )
        .field("args", FieldSchema::new("Arguments", text, "Arguments, as in a shell."))
        .requires(&["script"])
        .resource_type("scripts", ResourceFormat::File, Some("0755"))
        .resource_type("archives", ResourceFormat::Archive, None);
        ShellAutomator { manifest }
    }

    /// Puts the supervisor of daemons and all files on the node.
    fn bootstrap(&self, run: &ActionRun<'_>) -> Result<ActionOutput, PluginError> {
        let home = &run.access.home;
        let parts = ["state", "bin", "run", "log", "tasks", "scripts", "archives"];
        let paths = parts.map(|part| format!("{home}/{part}"));
        make_directories(&*run.access.target, &paths.each_ref().map(String::as_str), run.stop)?;
        let executable = Ownership { mode: Some(0o755), ..Ownership::default() };
        let daemon = format!("{home}/bin/{DAEMON_NAME}");
        run.access.target.write_file(&daemon, DAEMON.as_bytes(), executable)?;
        for resource in run.task.plugin_resources.keys() {
            match resource.split_once('/') {
                Some(("scripts", name)) => {
                    let path = put_script(run, name)?;
                    // Scripts call each other by name, and an action need not list all of them.
                    if name != DAEMON_NAME {
                        run.access.target.make_symlink(&format!("{home}/bin/{name}"), &path)?;
                    }
                }
                Some(("archives", name)) => put_archive(run, name)?,
                _ => {}
            }
        }
        Ok(ActionOutput::default())
    }

    fn run_script(&self, run: &ActionRun<'_>) -> Result<ActionOutput, PluginError> {
        let script = run.fields.text("script").unwrap_or_default();
        let program = match run.task.plugin_resources.contains_key(&format!("scripts/{script}")) {
            true => {
                let path = put_script(run, &script)?;
                shlex::try_quote(&path)
                    .map_err(|error| PluginError::new(format!("script {script}: {error}")))?
                    .into_owned()
            }
            false => script.clone(),
        };
        let arguments = run.fields.text("args").unwrap_or_default();
        let line = format!("{program} {arguments}");
        run_with_task_data(run, &format!("script {script}"), line.trim_end())
    }
}

/// Runs a command line on the node, with the data of the task in a file that is removed afterwards.
pub(super) fn run_with_task_data(
    run: &ActionRun<'_>,
    what: &str,
    line: &str,
) -> Result<ActionOutput, PluginError> {
    let (target, home) = (&*run.access.target, &run.access.home);
    let service = run.service.unwrap_or("machine");
    let file = format!("{home}/tasks/{service}-{}.json", run.action.as_str());
    let private = Ownership { mode: Some(0o600), ..Ownership::default() };
    let data = serde_json::to_vec_pretty(&task_data(run))
        .map_err(|error| PluginError::new(format!("cannot write the task: {error}")))?;
    if target.write_file(&file, &data, private).is_err() {
        make_directories(target, &[&format!("{home}/tasks")], run.stop)?;
        target.write_file(&file, &data, private)?;
    }
    let script = format!(
        "PATH=\"$ORRERY_NODE_DIR/bin:$PATH\"; export PATH; cd \"${{HOME:-/}}\" || exit\n\
         (\n{line}\n)\nstatus=$?; rm -f \"$ORRERY_TASK\"; exit $status"
    );
    let mut command = CommandLine::shell(&script);
    command.environment = environment(run, &file);
    command.timeout = run.stop.remaining();
    let ran = target.run(&command, run.stop);
    let output = ran.map_err(|error| {
        if let Err(error) = target.remove_file(&file) {
            tracing::warn!(task = %run.task.id, %error, "the data of a task was left on its node");
        }
        let hint = "look at the node: the action may have been carried out in part";
        let error = PluginError::from(error);
        // The command line itself is of no use in the message.
        let message = match error.message.rsplit_once(": ") {
            Some((_, cause)) => format!("{what} ({}): {cause}", run.action.as_str()),
            None => error.message.clone(),
        };
        PluginError { message, hint: error.hint.clone().or(Some(hint.to_owned())), ..error }
    })?;
    let (stdout, stderr) = (output_tail(&output.stdout), output_tail(&output.stderr));
    if output.success() {
        return Ok(ActionOutput { stdout, stderr });
    }
    let text = format!("{what} ({}) exited with code {}", run.action.as_str(), output.code);
    let message = match output.error_excerpt() {
        excerpt if excerpt.is_empty() => text,
        excerpt => format!("{text}: {excerpt}"),
    };
    Err(PluginError { stdout, stderr, ..PluginError::new(message) })
}

/// Content of a plug-in resource of the task.
pub(super) fn resource_content(
    run: &ActionRun<'_>,
    resource: &str,
) -> Result<(String, std::sync::Arc<[u8]>), PluginError> {
    let digest = run.task.plugin_resources.get(resource).ok_or_else(|| {
        PluginError::new(format!("the cluster has no plug-in resource {resource}"))
            .with_hint("upload and stage it, and update the cluster")
    })?;
    let is_digest = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_digest {
        return Err(PluginError::new(format!("{digest:?} of {resource} is no SHA-256")));
    }
    let content = run.resources.content(&run.task.tenant, digest)?.ok_or_else(|| {
        PluginError::new(format!("the content of the plug-in resource {resource} is missing"))
            .with_hint("upload it again")
    })?;
    Ok((digest.clone(), content))
}

fn check_name(name: &str) -> Result<(), PluginError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    if name.is_empty() || name.starts_with(['.', '-']) || !name.chars().all(is_plain) {
        return Err(PluginError::new(format!("{name:?} cannot be the name of a file")));
    }
    Ok(())
}

/// Puts a file on the node unless it is there, and returns its path.
pub(super) fn put_file(
    run: &ActionRun<'_>,
    kind: &str,
    name: &str,
    mode: u32,
) -> Result<String, PluginError> {
    check_name(name)?;
    let resource = format!("{kind}/{name}");
    let digest = run.task.plugin_resources.get(&resource).cloned().unwrap_or_default();
    let directory = format!("{}/{kind}/{digest}", run.access.home);
    let path = format!("{directory}/{name}");
    let target = &*run.access.target;
    if !digest.is_empty() && target.stat(&path)?.is_some() {
        return Ok(path);
    }
    let (_, content) = resource_content(run, &resource)?;
    make_directories(target, &[&directory], run.stop)?;
    let ownership = Ownership { mode: Some(mode), ..Ownership::default() };
    target.write_file(&path, &content, ownership)?;
    Ok(path)
}

fn put_script(run: &ActionRun<'_>, name: &str) -> Result<String, PluginError> {
    put_file(run, "scripts", name, 0o755)
}

/// Unpacks an archive on the node unless it is there. A link `archives/NAME` leads to it.
fn put_archive(run: &ActionRun<'_>, name: &str) -> Result<(), PluginError> {
    check_name(name)?;
    let target = &*run.access.target;
    let (digest, content) = resource_content(run, &format!("archives/{name}"))?;
    let archives = format!("{}/archives", run.access.home);
    let directory = format!("{archives}/{digest}");
    if target.stat(&directory)?.is_none() {
        let partial = format!("{archives}/{digest}.partial");
        target.remove_directory(&partial, RemovalMode::WithContent)?;
        make_directories(target, &[&partial], run.stop)?;
        let packed = format!("{partial}.tar");
        target.write_file(&packed, &content, Ownership::default())?;
        let words = ["tar", "-xf", &packed, "-C", &partial, "--no-same-owner"];
        let output = target.run(&CommandLine::new(words), run.stop)?;
        target.remove_file(&packed)?;
        if !output.success() {
            let excerpt = output.error_excerpt();
            return Err(PluginError::new(format!("cannot unpack archives/{name}: {excerpt}")));
        }
        let moved = target.run(&CommandLine::new(["mv", &partial, &directory]), run.stop)?;
        if !moved.success() {
            return Err(PluginError::new(format!("cannot unpack archives/{name}")));
        }
    }
    Ok(target.make_symlink(&format!("{archives}/{name}"), &directory)?)
}

impl ServiceAutomator for ShellAutomator {
    fn manifest(&self) -> &PluginManifest {
        &self.manifest
    }

    fn run(&self, run: &ActionRun<'_>) -> Result<ActionOutput, PluginError> {
        match run.action {
            TaskAction::Bootstrap => self.bootstrap(run),
            _ => self.run_script(run),
        }
    }
}
