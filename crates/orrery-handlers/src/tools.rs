//! Running the tools of a machine: what they are asked, and what they are told to do.

use orrery_model::LogLevel;
use serde_json::Value;

use crate::context::Context;
use crate::error::HandlerError;
use crate::target::{CommandLine, Output};

/// Asks a tool something; whatever it ends with is an answer.
pub(crate) fn ask(context: &Context<'_>, command: CommandLine) -> Result<Output, HandlerError> {
    Ok(context.target().run(&command.plain(), context.stop())?)
}

/// Asks a tool something that it must know.
pub(crate) fn ask_checked(
    context: &Context<'_>,
    command: CommandLine,
) -> Result<String, HandlerError> {
    let shown = command.display();
    let output = ask(context, command.list_output())?;
    if !output.success() {
        return Err(complaint(&shown, &output));
    }
    if output.truncated {
        return Err(HandlerError::failed(format!("{shown} answered more than can be kept")));
    }
    Ok(output.stdout_text())
}

/// Tells a tool to do something, and logs that.
pub(crate) fn tell(context: &mut Context<'_>, command: CommandLine) -> Result<(), HandlerError> {
    let shown = command.display();
    let output = ask(context, command)?;
    let values = [
        ("command", Value::from(shown.as_str())),
        ("code", Value::from(output.code)),
        ("stdout", Value::from(output.stdout_text())),
        ("stderr", Value::from(output.stderr_text())),
    ];
    context.log(LogLevel::Debug, "ran a command", values);
    if output.success() { Ok(()) } else { Err(complaint(&shown, &output)) }
}

pub(crate) fn complaint(shown: &str, output: &Output) -> HandlerError {
    let said = match output.complaint() {
        said if said.is_empty() => "it says nothing".to_owned(),
        said => said,
    };
    HandlerError::failed(format!("{shown} ended with code {}: {said}", output.code))
}

/// Refuses names that a tool would take for an option or for several names.
pub(crate) fn check_name(what: &str, name: &str) -> Result<(), HandlerError> {
    let odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | ',' | '*' | '?');
    if name.is_empty() || name.starts_with('-') || name.contains(odd) {
        return Err(HandlerError::failed(format!("{name:?} cannot be the name of a {what}")));
    }
    Ok(())
}
