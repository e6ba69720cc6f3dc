//! Fedora and its relatives.

use std::collections::HashMap;

use super::{Manager, versions_by_name};
use crate::context::Context;
use crate::error::HandlerError;
use crate::target::CommandLine;
use crate::tools::{ask, ask_checked, complaint, tell};

pub(super) struct Dnf {
    /// `dnf`, or `yum` where there is no other.
    pub(super) program: &'static str,
}

impl Manager for Dnf {
    fn installed(&self, context: &Context<'_>) -> Result<HashMap<String, String>, HandlerError> {
        let format = "%{NAME}\\t%{ARCH}\\t%{VERSION}-%{RELEASE}\\n";
        let command = CommandLine::new(["rpm", "--query", "--all", "--queryformat", format]);
        let text = ask_checked(context, command)?;
        Ok(versions_by_name(&text, |fields| match fields {
            [name, architecture, version] => {
                Some([(*name).to_owned(), format!("{name}.{architecture}"), (*version).to_owned()])
            }
            _ => None,
        }))
    }

    fn newer(
        &self,
        name: &str,
        _installed: &str,
        context: &Context<'_>,
    ) -> Result<Option<String>, HandlerError> {
        /// Of `check-update`: there are updates.
        const UPDATES: i32 = 100;
        let command = CommandLine::new([self.program, "--quiet", "check-update", name]);
        let shown = command.display();
        let output = ask(context, command)?;
        match output.code {
            0 => Ok(None),
            UPDATES => {
                let text = output.stdout_text();
                let version = text.lines().find_map(|line| {
                    let mut fields = line.split_whitespace();
                    let (package, version) = (fields.next()?, fields.next()?);
                    let plain = package.rsplit_once('.').map_or(package, |(plain, _)| plain);
                    (plain == name || package == name).then(|| version.to_owned())
                });
                // Of a package that obsoletes it, only the other name is listed.
                Ok(Some(version.unwrap_or_else(|| "newer".to_owned())))
            }
            _ => Err(complaint(&shown, &output)),
        }
    }

    fn install(&self, name: &str, context: &mut Context<'_>) -> Result<(), HandlerError> {
        tell(context, CommandLine::new([self.program, "--assumeyes", "--quiet", "install", name]))
    }

    fn upgrade(&self, name: &str, context: &mut Context<'_>) -> Result<(), HandlerError> {
        // The word that both programs know.
        tell(context, CommandLine::new([self.program, "--assumeyes", "--quiet", "update", name]))
    }

    fn remove(&self, name: &str, context: &mut Context<'_>) -> Result<(), HandlerError> {
        tell(context, CommandLine::new([self.program, "--assumeyes", "--quiet", "remove", name]))
    }
}
