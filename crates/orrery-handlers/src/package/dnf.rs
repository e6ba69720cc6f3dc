//! Fedora and its relatives.

use std::collections::HashMap;

use super::{PackageManager, versions_by_name};
use crate::context::Context;
use crate::error::HandlerError;
use crate::target::CommandLine;
use crate::tools::{command_error, query, query_checked, run_checked};

pub(super) struct Dnf {
    /// `dnf`, or `yum` without it.
    pub(super) program: &'static str,
}

impl PackageManager for Dnf {
    fn installed(&self, context: &Context<'_>) -> Result<HashMap<String, String>, HandlerError> {
        let format = "%{NAME}\\t%{ARCH}\\t%{VERSION}-%{RELEASE}\\n";
        let command = CommandLine::new(["rpm", "--query", "--all", "--queryformat", format]);
        let text = query_checked(context, command)?;
        Ok(versions_by_name(&text, |fields| match fields {
            [name, architecture, version] => {
                Some([(*name).to_owned(), format!("{name}.{architecture}"), (*version).to_owned()])
            }
            _ => None,
        }))
    }

    fn newer_version(
        &self,
        name: &str,
        _installed: &str,
        context: &Context<'_>,
    ) -> Result<Option<String>, HandlerError> {
        /// Exit code of `check-update` with available updates.
        const UPDATES: i32 = 100;
        let command = CommandLine::new([self.program, "--quiet", "check-update", name]);
        let displayed = command.display();
        let output = query(context, command)?;
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
                // For an obsoleting package, only the other name is listed.
                Ok(Some(version.unwrap_or_else(|| "newer".to_owned())))
            }
            _ => Err(command_error(&displayed, &output)),
        }
    }

    fn install(&self, name: &str, context: &mut Context<'_>) -> Result<(), HandlerError> {
        run_checked(
            context,
            CommandLine::new([self.program, "--assumeyes", "--quiet", "install", name]),
        )
    }

    fn upgrade(&self, name: &str, context: &mut Context<'_>) -> Result<(), HandlerError> {
        // The subcommand that both programs support.
        run_checked(
            context,
            CommandLine::new([self.program, "--assumeyes", "--quiet", "update", name]),
        )
    }

    fn remove(&self, name: &str, context: &mut Context<'_>) -> Result<(), HandlerError> {
        run_checked(
            context,
            CommandLine::new([self.program, "--assumeyes", "--quiet", "remove", name]),
        )
    }
}
