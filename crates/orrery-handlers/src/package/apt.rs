//! Debian and its relatives.

use std::collections::HashMap;

use super::{Manager, value_after, versions_by_name};
use crate::context::Context;
use crate::error::HandlerError;
use crate::target::CommandLine;
use crate::tools::{ask, ask_checked, complaint, tell};

pub(super) struct Apt;

/// Whether the lists of packages were fetched in this session.
struct Updated;

/// A change: without questions, keeping configuration that somebody edited, and with some patience for
/// another change that is going on.
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

impl Manager for Apt {
    fn installed(&self, context: &Context<'_>) -> Result<HashMap<String, String>, HandlerError> {
        let format = "${Package}\\t${Architecture}\\t${db:Status-Status}\\t${Version}\\n";
        let command = CommandLine::new(["dpkg-query", "--show", "--showformat", format]);
        let text = ask_checked(context, command)?;
        Ok(versions_by_name(&text, |fields| match fields {
            [name, architecture, "installed", version] => {
                Some([(*name).to_owned(), format!("{name}:{architecture}"), (*version).to_owned()])
            }
            // Removed ones stay listed while their configuration is there.
            _ => None,
        }))
    }

    fn newer(
        &self,
        name: &str,
        installed: &str,
        context: &Context<'_>,
    ) -> Result<Option<String>, HandlerError> {
        let text = ask_checked(context, CommandLine::new(["apt-cache", "policy", name]))?;
        let candidate = value_after(&text, "Candidate").unwrap_or("(none)");
        Ok((candidate != "(none)" && candidate != installed).then(|| candidate.to_owned()))
    }

    fn install(&self, name: &str, context: &mut Context<'_>) -> Result<(), HandlerError> {
        let command = apt_get(&["install", name]);
        let shown = command.display();
        let output = ask(context, command.clone())?;
        if output.success() {
            return Ok(());
        }
        // On a new machine, the lists of what there is were never fetched, or long ago.
        let unknown = output.stderr_text();
        let unknown =
            ["Unable to locate package", "has no installation candidate", "404  Not Found"]
                .iter()
                .any(|text| unknown.contains(text));
        if !unknown || context.session().known::<Updated>().is_some() {
            return Err(complaint(&shown, &output));
        }
        context.info("fetching the lists of packages");
        tell(context, apt_get(&["update"]))?;
        context.session().cached(|| Ok::<_, HandlerError>(Updated))?;
        tell(context, command)
    }

    fn upgrade(&self, name: &str, context: &mut Context<'_>) -> Result<(), HandlerError> {
        tell(context, apt_get(&["install", "--only-upgrade", name]))
    }

    fn remove(&self, name: &str, context: &mut Context<'_>) -> Result<(), HandlerError> {
        tell(context, apt_get(&["remove", name]))
    }
}
