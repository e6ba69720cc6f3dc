//! Runs the tools of a machine, for queries and for changes.

use orrery_model::LogLevel;
use serde_json::Value;

use crate::context::Context;
use crate::error::HandlerError;
use crate::target::{CommandLine, Output};

/// Runs a query; every exit code is a result.
pub(crate) fn query(context: &Context<'_>, command: CommandLine) -> Result<Output, HandlerError> {
    Ok(context.target().run(&command.plain(), context.cancel_token())?)
}

/// Runs a query that must succeed.
pub(crate) fn query_checked(
    context: &Context<'_>,
    command: CommandLine,
) -> Result<String, HandlerError> {
    let displayed = command.display();
    let output = query(context, command.list_output())?;
    if !output.success() {
        return Err(command_error(&displayed, &output));
    }
    if output.truncated {
        return Err(HandlerError::failed(format!("the output of {displayed} is too large")));
    }
    Ok(output.stdout_text())
}

/// Runs a command that must succeed, and logs it.
pub(crate) fn run_checked(
    context: &mut Context<'_>,
    command: CommandLine,
) -> Result<(), HandlerError> {
    let displayed = command.display();
    let output = query(context, command)?;
    let values = [
        ("command", Value::from(displayed.as_str())),
        ("code", Value::from(output.code)),
        ("stdout", Value::from(output.stdout_text())),
        ("stderr", Value::from(output.stderr_text())),
    ];
    context.log(LogLevel::Debug, "ran a command", values);
    if output.success() { Ok(()) } else { Err(command_error(&displayed, &output)) }
}

pub(crate) fn command_error(displayed: &str, output: &Output) -> HandlerError {
    let excerpt = match output.error_excerpt() {
        excerpt if excerpt.is_empty() => "no output".to_owned(),
        excerpt => excerpt,
    };
    HandlerError::failed(format!("{displayed} exited with code {}: {excerpt}", output.code))
}

/// Rejects names that a tool would parse as an option or as several names.
pub(crate) fn check_name(what: &str, name: &str) -> Result<(), HandlerError> {
    let odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | ',' | '*' | '?');
    if name.is_empty() || name.starts_with('-') || name.contains(odd) {
        return Err(HandlerError::failed(format!("invalid {what} name {name:?}")));
    }
    Ok(())
}
