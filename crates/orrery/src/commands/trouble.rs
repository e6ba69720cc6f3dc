//! Why a command has no answer, and how that is told.

use std::error::Error;
use std::io;

use orrery_api::client::ClientError;
use orrery_compiler::diagnostic::Diagnostic;
use orrery_compiler::error::CompileError;
use orrery_compiler::source::Sources;
use orrery_store::StoreError;

use crate::remote::contexts::ContextsError;
use crate::render::Shown;
use crate::{Exit, output, style};

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Trouble {
    Said {
        message: String,
        help: Option<String>,
    },
    Project(Box<CompileError>),
    /// What was found could not be written.
    Output(io::Error),
}

impl Trouble {
    pub(crate) fn said(message: impl Into<String>) -> Self {
        Trouble::Said { message: message.into(), help: None }
    }

    /// An error with all its causes.
    pub(crate) fn of(error: &dyn Error) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message += &format!(": {cause}");
            source = cause.source();
        }
        Trouble::said(message)
    }

    pub(crate) fn help(self, text: impl Into<String>) -> Self {
        match self {
            Trouble::Said { message, .. } => Trouble::Said { message, help: Some(text.into()) },
            other => other,
        }
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Trouble::Said { message, .. } => f.write_str(message),
            Trouble::Project(error) => f.write_str(&error.text),
            Trouble::Output(error) => write!(f, "{error}"),
        }
    }
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Trouble::of(&error)
    }
}

impl From<ContextsError> for Trouble {
    fn from(error: ContextsError) -> Self {
        Trouble::of(&error)
    }
}

impl From<ClientError> for Trouble {
    fn from(error: ClientError) -> Self {
        let trouble = match &error {
            // What the server says then is meant for programs.
            ClientError::Refused { server, problem, known: false } if problem.status == 401 => {
                Trouble::said(format!("you are not logged in on {server}"))
            }
            error => Trouble::of(error),
        };
        match error.help() {
            Some(help) => trouble.help(help),
            None => trouble,
        }
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Trouble::Output(error)
    }
}

/// Tells what came of a command.
pub(crate) fn finish(answer: Result<Exit, Trouble>) -> Exit {
    match answer {
        Ok(exit) => exit,
        // A reader that has seen enough is no error.
        Err(Trouble::Output(error)) => {
            if output::is_written(Err(error)) {
                Exit::Done
            } else {
                Exit::Error
            }
        }
        Err(Trouble::Project(error)) => {
            let sources = Sources::default();
            let path = |name: &str| name.to_owned();
            let shown = Shown { sources: &sources, path: &path, width: output::width() };
            output::say(&shown.long(&Diagnostic::from(&*error)));
            Exit::Error
        }
        Err(Trouble::Said { message, help }) => {
            output::say(&format!("{}: {}", style::error("error"), style::harmless(&message)));
            if let Some(help) = help {
                output::say(&format!("{}: {}", style::help("help"), style::harmless(&help)));
            }
            Exit::Error
        }
    }
}
