//! Services with a script in `/etc/init.d`.

use super::{Action, ServiceManager, ServiceState};
use crate::context::Context;
use crate::error::{Cause, HandlerError, TargetError};
use crate::target::CommandLine;
use crate::tools::{command_error, query, run_checked};

pub(super) struct SysV;

/// Multi-user run levels.
const RUN_LEVELS: [u8; 4] = [2, 3, 4, 5];

fn script(name: &str) -> String {
    format!("/etc/init.d/{name}")
}

/// Returns true if a link in a run level's directory starts a script: `S01cron`.
fn starts(link: &str, name: &str) -> bool {
    let number_ends = |rest: &str| {
        rest.len() > 2
            && rest.is_char_boundary(2)
            && rest.bytes().take(2).all(|b| b.is_ascii_digit())
    };
    link.strip_prefix('S').is_some_and(|rest| number_ends(rest) && &rest[2..] == name)
}

/// Names of all links that start a script.
struct Links(Vec<String>);

fn links(context: &Context<'_>) -> Result<Vec<String>, HandlerError> {
    let mut links = Vec::new();
    for level in RUN_LEVELS {
        match context.target().list_directory(&format!("/etc/rc{level}.d")) {
            Ok(names) => links.extend(names),
            Err(TargetError { cause: Cause::NotFound, .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(links)
}

impl ServiceManager for SysV {
    fn find(
        &self,
        name: &str,
        context: &Context<'_>,
    ) -> Result<Option<ServiceState>, HandlerError> {
        /// Exit codes of a stopped service, by the LSB.
        const STOPPED: [i32; 3] = [1, 2, 3];
        let script = script(name);
        if context.target().stat_following(&script)?.is_none() {
            return Ok(None);
        }
        let command = CommandLine::new([&*script, "status"]);
        let displayed = command.display();
        let output = query(context, command)?;
        let running = match output.code {
            0 => true,
            code if STOPPED.contains(&code) => false,
            _ => return Err(command_error(&displayed, &output)),
        };
        let links = context.cache().get_or_query(|| links(context).map(Links))?;
        let onboot = links.0.iter().any(|link| starts(link, name));
        Ok(Some(ServiceState { running, onboot: Some(onboot) }))
    }

    fn control(
        &self,
        action: Action,
        name: &str,
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        run_checked(context, CommandLine::new([&*script(name), action.as_str()]))
    }

    fn set_onboot(
        &self,
        onboot: bool,
        name: &str,
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        context.cache().invalidate::<Links>();
        if context.target().which("update-rc.d", None)?.is_some() {
            if onboot {
                // Creates missing links; existing ones stay.
                run_checked(context, CommandLine::new(["update-rc.d", name, "defaults"]))?;
            }
            let action = if onboot { "enable" } else { "disable" };
            return run_checked(context, CommandLine::new(["update-rc.d", name, action]));
        }
        let state = if onboot { "on" } else { "off" };
        run_checked(context, CommandLine::new(["chkconfig", name, state]))
    }
}

#[cfg(test)]
mod tests {
    use super::starts;

    #[test]
    fn start_links_are_recognized() {
        assert!(starts("S01cron", "cron"));
        for link in ["K01cron", "S01crond", "S1cron", "Scron", "S01", "README", "Sé1cron"] {
            assert!(!starts(link, "cron"), "{link}");
        }
    }
}
