//! Services of systemd. One query covers all loaded units; others are queried one by one.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Action, ServiceManager, ServiceState};
use crate::context::Context;
use crate::error::HandlerError;
use crate::target::CommandLine;
use crate::tools::{query_checked, run_checked};

pub(super) struct Systemd;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unit {
    found: ServiceState,
    /// True if its file changed since systemd read it.
    outdated: bool,
}

/// All loaded services, by each of their names.
struct LoadedUnits(HashMap<String, Unit>);

const PROPERTIES: &str = "--property=Id,Names,LoadState,ActiveState,UnitFileState,NeedDaemonReload";

/// Returns the unit name; `.service` is the default suffix.
fn unit_name(name: &str) -> String {
    let ends = [".service", ".socket", ".timer", ".target", ".path", ".mount", ".slice"];
    if ends.iter().any(|end| name.ends_with(end)) {
        name.to_owned()
    } else {
        format!("{name}.service")
    }
}

/// Parses blocks of `Name=value`, separated by empty lines.
fn parse(text: &str) -> HashMap<String, Unit> {
    let mut units = HashMap::new();
    for block in text.split("\n\n") {
        let value = |name: &str| {
            block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).unwrap_or("")
        };
        if matches!(value("LoadState"), "" | "not-found") {
            continue;
        }
        let found = ServiceState {
            running: matches!(
                value("ActiveState"),
                "active" | "activating" | "reloading" | "refreshing"
            ),
            onboot: match value("UnitFileState") {
                "enabled" | "enabled-runtime" => Some(true),
                "disabled" | "masked" | "masked-runtime" | "linked" | "linked-runtime" => {
                    Some(false)
                }
                // Static, generated and alias units cannot be enabled.
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

fn loaded(context: &Context<'_>) -> Result<Arc<LoadedUnits>, HandlerError> {
    context.cache().get_or_query(|| {
        let command =
            CommandLine::new(["systemctl", "show", "--no-pager", PROPERTIES, "*.service"]);
        query_checked(context, command).map(|text| LoadedUnits(parse(&text)))
    })
}

fn find(name: &str, context: &Context<'_>) -> Result<Option<Unit>, HandlerError> {
    let name = unit_name(name);
    if let Some(unit) = loaded(context)?.0.get(&name) {
        return Ok(Some(*unit));
    }
    // Unreferenced units are not loaded.
    let command = CommandLine::new(["systemctl", "show", "--no-pager", PROPERTIES, "--", &name]);
    let units = parse(&query_checked(context, command)?);
    Ok(units.get(&name).or_else(|| units.values().next()).copied())
}

impl ServiceManager for Systemd {
    fn find(
        &self,
        name: &str,
        context: &Context<'_>,
    ) -> Result<Option<ServiceState>, HandlerError> {
        Ok(find(name, context)?.map(|unit| unit.found))
    }

    fn control(
        &self,
        action: Action,
        name: &str,
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        if action != Action::Stop && find(name, context)?.is_some_and(|unit| unit.outdated) {
            run_checked(context, CommandLine::new(["systemctl", "daemon-reload"]))?;
        }
        context.cache().invalidate::<LoadedUnits>();
        let unit = unit_name(name);
        run_checked(context, CommandLine::new(["systemctl", action.as_str(), "--", &unit])).map_err(
            |error| {
                let hint = format!("`journalctl --unit {unit}` has the details");
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
        context.cache().invalidate::<LoadedUnits>();
        let action = if onboot { "enable" } else { "disable" };
        run_checked(
            context,
            CommandLine::new(["systemctl", action, "--quiet", "--", &unit_name(name)]),
        )
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
        let ssh = ServiceState { running: true, onboot: Some(true) };
        assert_eq!(units["ssh.service"], Unit { found: ssh, outdated: false });
        assert_eq!(units["sshd.service"].found, ssh);
        let dbus = ServiceState { running: false, onboot: None };
        assert_eq!(units["dbus.service"], Unit { found: dbus, outdated: true });
        assert_eq!(units.len(), 3);
    }
}
