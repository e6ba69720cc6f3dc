//! Error type of commands, and its output.

use std::error::Error;
use std::io;

use orrery_api::client::ClientError;
use orrery_base::error_chain::error_chain;
use orrery_compiler::diagnostic::Diagnostic;
use orrery_compiler::error::CompileError;
use orrery_compiler::source::Sources;
use orrery_store::StoreError;

use crate::render::DiagnosticRenderer;
use crate::{Exit, output, style};

/// Error of a command.
#[derive(Debug)]
pub(crate) enum CliError {
    Message {
        message: String,
        help: Option<String>,
    },
    Project(Box<CompileError>),
    /// The output could not be written.
    Output(io::Error),
}

impl CliError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        CliError::Message { message: message.into(), help: None }
    }

    /// An error with all its causes.
    pub(crate) fn from_error(error: &dyn Error) -> Self {
        CliError::new(error_chain(error))
    }

    pub(crate) fn help(self, text: impl Into<String>) -> Self {
        match self {
            CliError::Message { message, .. } => {
                CliError::Message { message, help: Some(text.into()) }
            }
            other => other,
        }
    }
}

impl std::fmt::Display for CliError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CliError::Message { message, .. } => f.write_str(message),
            CliError::Project(error) => f.write_str(&error.text),
            CliError::Output(error) => write!(f, "{error}"),
        }
    }
}

impl From<StoreError> for CliError {
    fn from(error: StoreError) -> Self {
        CliError::from_error(&error)
    }
}

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> Self {
        let reported = match &error {
            // The server's message is meant for programs.
            ClientError::Refused { server, problem, known: false } if problem.status == 401 => {
                CliError::new(format!("not logged in to {server}"))
            }
            error => CliError::from_error(error),
        };
        match error.help() {
            Some(help) => reported.help(help),
            None => reported,
        }
    }
}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        CliError::Output(error)
    }
}

/// Reports the result of a command.
pub(crate) fn finish(answer: Result<Exit, CliError>) -> Exit {
    match answer {
        Ok(exit) => exit,
        // A closed pipe is not an error.
        Err(CliError::Output(error)) => {
            if output::is_written(Err(error)) {
                Exit::Done
            } else {
                Exit::Error
            }
        }
        Err(CliError::Project(error)) => {
            let sources = Sources::default();
            let path = |name: &str| name.to_owned();
            let shown =
                DiagnosticRenderer { sources: &sources, path: &path, width: output::width() };
            output::print_status(&shown.long(&Diagnostic::from(&*error)));
            Exit::Error
        }
        Err(CliError::Message { message, help }) => {
            output::print_status(&format!(
                "{}: {}",
                style::error("error"),
                style::sanitize(&message)
            ));
            if let Some(help) = help {
                output::print_status(&format!(
                    "{}: {}",
                    style::help("help"),
                    style::sanitize(&help)
                ));
            }
            Exit::Error
        }
    }
}
