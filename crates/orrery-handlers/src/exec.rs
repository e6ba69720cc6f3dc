//! `exec::Run`: a command with conditions. It is not passed to a shell.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use orrery_model::{AttributeDiff, Attributes, Change, ChangeKind, LogLevel, ResourceType};
use serde::Deserialize;
use serde_json::Value;

use crate::context::{Context, changed};
use crate::error::{Cause, HandlerError, TargetError};
use crate::handler::Crud;
use crate::registry::Registry;
use crate::shell_words;
use crate::target::{CommandLine, Output};

/// Entity of commands. Purging one does not undo its effects.
pub(crate) const ENTITY: &str = "exec::Run";

pub(crate) fn register(registry: &mut Registry) {
    let fields = [
        "creates",
        "cwd",
        "environment",
        "once",
        "onlyif",
        "path",
        "purged",
        "reload",
        "reload_only",
        "returns",
        "skip_on_fail",
        "timeout",
        "unless",
    ];
    let declaration = ResourceType::new(ENTITY, "host.name", "command", &fields);
    registry.register(declaration, Arc::new(RunHandler));
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RunHandler;

#[derive(Debug, Deserialize)]
#[serde(default)]
pub(crate) struct Command {
    creates: String,
    cwd: String,
    environment: BTreeMap<String, Value>,
    once: bool,
    onlyif: String,
    path: String,
    purged: bool,
    reload: String,
    reload_only: bool,
    returns: Vec<i32>,
    skip_on_fail: bool,
    timeout: u64,
    unless: String,
}

impl Default for Command {
    fn default() -> Self {
        Command {
            creates: String::new(),
            cwd: String::new(),
            environment: BTreeMap::new(),
            once: false,
            onlyif: String::new(),
            path: String::new(),
            purged: false,
            reload: String::new(),
            reload_only: false,
            returns: vec![0],
            skip_on_fail: false,
            timeout: 300,
            unless: String::new(),
        }
    }
}

impl Command {
    fn command_line(&self, text: &str) -> Result<CommandLine, HandlerError> {
        let words =
            shell_words::split(text).filter(|words| !words.is_empty()).ok_or_else(|| {
                HandlerError::failed_with_hint(
                    format!("cannot parse the command {text:?}"),
                    "check its quotes; for shell syntax, use exec::in_shell",
                )
            })?;
        let mut command = CommandLine::new(words);
        command.environment = self
            .environment
            .iter()
            .map(|(name, value)| (name.clone(), environment_text(value)))
            .collect();
        command.directory = (!self.cwd.is_empty()).then(|| self.cwd.clone());
        command.search_path = (!self.path.is_empty()).then(|| self.path.clone());
        command.timeout = (self.timeout > 0).then(|| Duration::from_secs(self.timeout));
        Ok(command)
    }

    /// Runs a condition; returns true if it succeeds. A missing command counts as false.
    fn condition_holds(&self, text: &str, context: &mut Context<'_>) -> Result<bool, HandlerError> {
        let command = self.command_line(text)?;
        match context.target().run(&command, context.cancel_token()) {
            Ok(output) => {
                context.log(
                    LogLevel::Debug,
                    "checked a condition",
                    [("command", Value::from(text)), ("code", Value::from(output.code))],
                );
                Ok(output.success())
            }
            Err(TargetError { cause: Cause::CommandNotFound, .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns true if the command must run now.
    fn is_due(&self, context: &mut Context<'_>) -> Result<bool, HandlerError> {
        if self.purged || self.reload_only || (self.once && context.deployed_before()) {
            return Ok(false);
        }
        if !self.creates.is_empty() && context.target().stat_following(&self.creates)?.is_some() {
            return Ok(false);
        }
        if !self.unless.is_empty() && self.condition_holds(&self.unless, context)? {
            return Ok(false);
        }
        if !self.onlyif.is_empty() && !self.condition_holds(&self.onlyif, context)? {
            return Ok(false);
        }
        Ok(true)
    }

    fn run(&self, text: &str, context: &mut Context<'_>) -> Result<(), HandlerError> {
        let ran = self
            .command_line(text)
            .and_then(|command| Ok(context.target().run(&command, context.cancel_token())?));
        let failure = match ran {
            Ok(output) => {
                log_output(text, &output, context);
                if self.returns.contains(&output.code) {
                    return Ok(());
                }
                let message = format!("{text} exited with code {}", output.code);
                match output.error_excerpt() {
                    complaint if complaint.is_empty() => HandlerError::failed(message),
                    complaint => HandlerError::failed(format!("{message}: {complaint}")),
                }
            }
            // A cancelled run is reported as such, whatever `skip_on_fail` says.
            Err(error @ HandlerError::Target(TargetError { cause: Cause::Cancelled, .. })) => {
                context.mark_unclear();
                return Err(error);
            }
            Err(error) => {
                if matches!(&error, HandlerError::Target(found) if found.cause.is_unclear()) {
                    context.mark_unclear();
                }
                // Not a failure of the command: its effect is unknown, or it was not started.
                if matches!(&error, HandlerError::Target(found) if found.cause.is_transport()) {
                    return Err(error);
                }
                error
            }
        };
        Err(if self.skip_on_fail { HandlerError::Skipped(failure.to_string()) } else { failure })
    }
}

/// Value of an environment variable: strings verbatim, everything else as JSON.
fn environment_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn log_output(text: &str, output: &Output, context: &mut Context<'_>) {
    let values = [
        ("command", Value::from(text)),
        ("code", Value::from(output.code)),
        ("stdout", Value::from(output.stdout_text())),
        ("stderr", Value::from(output.stderr_text())),
        ("truncated", Value::from(output.truncated)),
    ];
    context.log(LogLevel::Info, "ran the command", values);
}

impl Crud for RunHandler {
    type Desired = Command;
    /// True if the command is due.
    type Current = bool;

    /// Commands with `once` and without an observable condition.
    fn must_not_repeat(attributes: &Attributes) -> bool {
        let attributes = attributes.to_object();
        let is_set = |name: &str| attributes.get(name).is_some_and(|value| *value == true);
        let is_empty =
            |name: &&str| attributes.get(*name).is_none_or(|value| value.is_null() || *value == "");
        is_set("once")
            && !is_set("reload_only")
            && ["creates", "unless", "onlyif"].iter().all(is_empty)
    }

    /// Effects of commands are not undone.
    fn is_purged(_desired: &Command) -> bool {
        false
    }

    fn read(
        &self,
        desired: &Command,
        context: &mut Context<'_>,
    ) -> Result<Option<bool>, HandlerError> {
        desired.is_due(context).map(Some)
    }

    fn diff(
        &self,
        _desired: &Command,
        due: &bool,
        _context: &mut Context<'_>,
    ) -> Result<Vec<AttributeDiff>, HandlerError> {
        Ok(if *due { vec![changed("executed", false, true)] } else { Vec::new() })
    }

    fn create(&self, desired: &Command, context: &mut Context<'_>) -> Result<(), HandlerError> {
        desired.run(context.id().value(), context)
    }

    fn update(
        &self,
        desired: &Command,
        _due: &bool,
        _changes: &[AttributeDiff],
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        desired.run(context.id().value(), context)
    }

    fn delete(&self, _: &Command, _: &bool, _: &mut Context<'_>) -> Result<(), HandlerError> {
        Ok(())
    }

    /// A command that just ran has seen the changes.
    fn is_reload_due(&self, desired: &Command, change: &Change, context: &Context<'_>) -> bool {
        let done_for_good = desired.once && desired.reload.is_empty();
        let idle = change.kind == ChangeKind::NoChange && !desired.purged && !done_for_good;
        idle && !context.changed_dependencies().is_empty()
    }

    fn reload(&self, desired: &Command, context: &mut Context<'_>) -> Result<(), HandlerError> {
        let text = if desired.reload.is_empty() { context.id().value() } else { &desired.reload };
        desired.run(text, context)
    }
}
