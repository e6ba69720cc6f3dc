//! `orrery hosts`: the inventory of the project, or that of an environment on a server.

use std::path::Path;
use std::sync::Arc;

use orrery_api::{AgentPlacement, HostSetting, HostSummary};
use orrery_handlers::target::host_name;
use orrery_model::{Deployer, HostValue, Inventory};
use orrery_project::{INVENTORY_FILE, MAIN_FILE, ProjectInventory, find_directory};

use crate::cli::hosts::Hosts;
use crate::commands::inspect::placement_kind;
use crate::commands::remote::table::Table;
use crate::commands::remote::{read_list, show_list};
use crate::error::{CliError, finish};
use crate::remote::RemoteEnvironment;
use crate::render::{DiagnosticRenderer, path_from_here};
use crate::{Exit, output};

use super::{host_selection, report};

pub(crate) fn hosts(options: &Hosts) -> Exit {
    finish(run(options))
}

fn run(options: &Hosts) -> Result<Exit, CliError> {
    let found = match options.deployment.remote(options.project.as_deref())? {
        Some(remote) => on_server(&remote)?,
        None => match in_project(options)? {
            Ok(found) => found,
            Err(exit) => return Ok(exit),
        },
    };
    let found = host_selection::select(options.pattern.as_deref(), found, |host| {
        (&host.name, &host.groups)
    })?;
    let table = Table::new("host", &["NAME", "GROUPS", "ADDRESS", "VALUES"]);
    show_list(options.json, &found, table, |host| {
        let address = host.address.split('?').next().unwrap_or_default().to_owned();
        vec![host.name.clone(), host.groups.join(", "), address, values(host)]
    })
}

/// Values of a host beside its address, each with its source.
fn values(host: &HostSummary) -> String {
    let values = host.values.iter().filter(|(key, _)| *key != "address");
    let value = |(key, HostSetting { value, source }): (&String, &HostSetting)| {
        format!("{key} {value} ({source})")
    };
    values.map(value).collect::<Vec<_>>().join(", ")
}

fn on_server(of: &RemoteEnvironment) -> Result<Vec<HostSummary>, CliError> {
    let pages = of.client.list::<HostSummary>(&of.path(&["inventory", "hosts"]));
    Ok(read_list(pages.large(), None)?)
}

/// Reads the inventory of a project. Problems of the file are printed.
pub(super) fn read_inventory(
    project: Option<&Path>,
) -> Result<Result<ProjectInventory, Exit>, CliError> {
    let directory = find_directory(project, MAIN_FILE).map_err(CliError::Project)?;
    match read_inventory_in(&directory) {
        Ok(Some(inventory)) => Ok(Ok(inventory)),
        Ok(None) => {
            let error = CliError::new(format!("this project has no {INVENTORY_FILE}"));
            Err(error.help(match ProjectInventory::misnamed(&directory) {
                Some(name) => format!("rename {name} to {INVENTORY_FILE}"),
                None => "the guide, \"Placement of agents\", describes it".to_owned(),
            }))
        }
        Err(exit) => Ok(Err(exit)),
    }
}

/// Reads the inventory in a directory; `None` if there is none. Problems of the file are printed.
pub(super) fn read_inventory_in(directory: &Path) -> Result<Option<ProjectInventory>, Exit> {
    ProjectInventory::read(directory).map_err(|error| {
        let compiled = error.into_compilation();
        let path = |name: &str| path_from_here(directory, name);
        let sources = &compiled.sources;
        let renderer = DiagnosticRenderer { sources, path: &path, width: output::width() };
        report::show_errors(&renderer, &compiled.errors());
        Exit::Error
    })
}

/// Hosts of the project here.
fn in_project(options: &Hosts) -> Result<Result<Vec<HostSummary>, Exit>, CliError> {
    let inventory = match read_inventory(options.project.as_deref())? {
        Ok(inventory) => inventory,
        Err(exit) => return Ok(Err(exit)),
    };
    let hosts = Arc::clone(&inventory.hosts);
    let known = Inventory { hosts, ..Inventory::default() }.on_host(&host_name());
    let setting = |(key, value): (&&'static str, &HostValue)| {
        let setting = HostSetting { value: value.value.clone(), source: value.source.to_string() };
        ((*key).to_owned(), setting)
    };
    let summary = |(name, host): (&String, &orrery_model::InventoryHost)| {
        let placement = known.placement_of(name);
        HostSummary {
            name: name.clone(),
            groups: host.groups.clone(),
            address: host.address.to_string(),
            values: host.values.iter().map(setting).collect(),
            placement: AgentPlacement {
                kind: placement_kind(&placement),
                has_machine: placement.has_machine(),
                address: placement.address(),
                reason: placement.reason(name),
                help: placement.help(name, Deployer::Command),
            },
        }
    };
    Ok(Ok(inventory.hosts.hosts().map(summary).collect()))
}
