//! Services of systemd. One query answers for all units that are loaded; only others are asked for one
//! by one.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Action, Found, Manager};
use crate::context::Context;
use crate::error::HandlerError;
use crate::target::CommandLine;
use crate::tools::{ask_checked, tell};

pub(super) struct Systemd;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unit {
    found: Found,
    /// Whether its file changed since systemd read it.
    outdated: bool,
}

/// All loaded services, by all of their names.
struct Loaded(HashMap<String, Unit>);

const PROPERTIES: &str = "--property=Id,Names,LoadState,ActiveState,UnitFileState,NeedDaemonReload";

/// The name of the unit: without an end it is a service.
fn unit_name(name: &str) -> String {
    let ends = [".service", ".socket", ".timer", ".target", ".path", ".mount", ".slice"];
    if ends.iter().any(|end| name.ends_with(end)) {
        name.to_owned()
    } else {
        format!("{name}.service")
    }
}

/// Reads blocks of `Name=value`, with an empty line between two units.
fn parse(text: &str) -> HashMap<String, Unit> {
    let mut units = HashMap::new();
    for block in text.split("\n\n") {
        let value = |name: &str| {
            block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).unwrap_or("")
        };
        if matches!(value("LoadState"), "" | "not-found") {
            continue;
        }
        let found = Found {
            running: matches!(
                value("ActiveState"),
                "active" | "activating" | "reloading" | "refreshing"
            ),
            onboot: match value("UnitFileState") {
                "enabled" | "enabled-runtime" => Some(true),
                "disabled" | "masked" | "masked-runtime" | "linked" | "linked-runtime" => {
                    Some(false)
                }
                // Static, generated, alias and the like have nothing to switch on.
                _ => None,
            },
        };
        let unit = Unit { found, outdated: value("NeedDaemonReload") == "yes" };
        for name in value("Names").split_whitespace().chain([value("Id")]) {
            units.insert(name.to_owned(), unit);
        }
    }
    units
}

fn loaded(context: &Context<'_>) -> Result<Arc<Loaded>, HandlerError> {
    context.session().cached(|| {
        let command =
            CommandLine::new(["systemctl", "show", "--no-pager", PROPERTIES, "*.service"]);
        ask_checked(context, command).map(|text| Loaded(parse(&text)))
    })
}

fn find(name: &str, context: &Context<'_>) -> Result<Option<Unit>, HandlerError> {
    let name = unit_name(name);
    if let Some(unit) = loaded(context)?.0.get(&name) {
        return Ok(Some(*unit));
    }
    // It may be there without being loaded, since nothing refers to it.
    let command = CommandLine::new(["systemctl", "show", "--no-pager", PROPERTIES, "--", &name]);
    let units = parse(&ask_checked(context, command)?);
    Ok(units.get(&name).or_else(|| units.values().next()).copied())
}

impl Manager for Systemd {
    fn find(&self, name: &str, context: &Context<'_>) -> Result<Option<Found>, HandlerError> {
        Ok(find(name, context)?.map(|unit| unit.found))
    }

    fn act(
        &self,
        action: Action,
        name: &str,
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        if action != Action::Stop && find(name, context)?.is_some_and(|unit| unit.outdated) {
            tell(context, CommandLine::new(["systemctl", "daemon-reload"]))?;
        }
        context.session().forget::<Loaded>();
        let unit = unit_name(name);
        tell(context, CommandLine::new(["systemctl", action.as_str(), "--", &unit])).map_err(
            |error| {
                let hint = format!("`journalctl --unit {unit}` may say why");
                HandlerError::failed_with_hint(error.to_string(), hint)
            },
        )
    }

    fn set_onboot(
        &self,
        onboot: bool,
        name: &str,
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        context.session().forget::<Loaded>();
        let action = if onboot { "enable" } else { "disable" };
        tell(context, CommandLine::new(["systemctl", action, "--quiet", "--", &unit_name(name)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_found_by_all_their_names() {
        let text = "Id=ssh.service\nNames=ssh.service sshd.service\nLoadState=loaded\n\
                    ActiveState=active\nUnitFileState=enabled\nNeedDaemonReload=no\n\n\
                    Id=gone.service\nNames=gone.service\nLoadState=not-found\nActiveState=inactive\n\
                    UnitFileState=\nNeedDaemonReload=no\n\n\
                    Id=dbus.service\nNames=dbus.service\nLoadState=loaded\nActiveState=failed\n\
                    UnitFileState=static\nNeedDaemonReload=yes\n";
        let units = parse(text);
        let ssh = Found { running: true, onboot: Some(true) };
        assert_eq!(units["ssh.service"], Unit { found: ssh, outdated: false });
        assert_eq!(units["sshd.service"].found, ssh);
        let dbus = Found { running: false, onboot: None };
        assert_eq!(units["dbus.service"], Unit { found: dbus, outdated: true });
        assert_eq!(units.len(), 3);
    }
}
