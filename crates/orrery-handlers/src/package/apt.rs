//! Debian and its relatives.

use std::collections::HashMap;

use super::{PackageManager, value_after, versions_by_name};
use crate::context::Context;
use crate::error::HandlerError;
use crate::target::CommandLine;
use crate::tools::{command_error, query, query_checked, run_checked};

pub(super) struct Apt;

/// Marks that the package lists were fetched in this deploy.
struct PackageListsFetched;

/// Builds an `apt-get` command: non-interactive, keeps edited configuration, and waits for the dpkg
/// lock.
fn apt_get(words: &[&str]) -> CommandLine {
    let options = [
        "apt-get",
        "--yes",
        "--quiet",
        "-o",
        "Dpkg::Options::=--force-confdef",
        "-o",
        "Dpkg::Options::=--force-confold",
        "-o",
        "DPkg::Lock::Timeout=60",
    ];
    CommandLine::new(options.iter().chain(words).copied()).env("DEBIAN_FRONTEND", "noninteractive")
}

impl PackageManager for Apt {
    fn installed(&self, context: &Context<'_>) -> Result<HashMap<String, String>, HandlerError> {
        let format = "${Package}\\t${Architecture}\\t${db:Status-Status}\\t${Version}\\n";
        let command = CommandLine::new(["dpkg-query", "--show", "--showformat", format]);
        let text = query_checked(context, command)?;
        Ok(versions_by_name(&text, |fields| match fields {
            [name, architecture, "installed", version] => {
                Some([(*name).to_owned(), format!("{name}:{architecture}"), (*version).to_owned()])
            }
            // Removed packages stay listed while their configuration exists.
            _ => None,
        }))
    }

    fn newer_version(
        &self,
        name: &str,
        installed: &str,
        context: &Context<'_>,
    ) -> Result<Option<String>, HandlerError> {
        let text = query_checked(context, CommandLine::new(["apt-cache", "policy", name]))?;
        let candidate = value_after(&text, "Candidate").unwrap_or("(none)");
        Ok((candidate != "(none)" && candidate != installed).then(|| candidate.to_owned()))
    }

    fn install(&self, name: &str, context: &mut Context<'_>) -> Result<(), HandlerError> {
        let command = apt_get(&["install", name]);
        let displayed = command.display();
        let output = query(context, command.clone())?;
        if output.success() {
            return Ok(());
        }
        // On a new machine, the package lists are missing or old.
        let unknown = output.stderr_text();
        let unknown =
            ["Unable to locate package", "has no installation candidate", "404  Not Found"]
                .iter()
                .any(|text| unknown.contains(text));
        if !unknown || context.cache().get::<PackageListsFetched>().is_some() {
            return Err(command_error(&displayed, &output));
        }
        context.info("fetching the lists of packages");
        run_checked(context, apt_get(&["update"]))?;
        context.cache().get_or_query(|| Ok::<_, HandlerError>(PackageListsFetched))?;
        run_checked(context, command)
    }

    fn upgrade(&self, name: &str, context: &mut Context<'_>) -> Result<(), HandlerError> {
        run_checked(context, apt_get(&["install", "--only-upgrade", name]))
    }

    fn remove(&self, name: &str, context: &mut Context<'_>) -> Result<(), HandlerError> {
        run_checked(context, apt_get(&["remove", name]))
    }
}
