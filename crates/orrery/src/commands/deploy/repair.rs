//! `orrery repair`: verifies and repairs the newest stored version.

use std::path::PathBuf;

use orrery_executor::{DesiredState, recover};
use orrery_model::Resource;
use orrery_store::{StoreError, VersionInfo};

use crate::cli::deploy::Repair;
use crate::commands::inspect::unfinished_removal::unfinished_removal;
use crate::commands::inspect::view::VersionView;
use crate::error::CliError;
use crate::remote::RemoteEnvironment;
use crate::{Exit, output, style};

use super::declared_agents::DeclaredAgents;
use super::local_run::LocalRun;
use super::unmanaged::Unmanaged;
use super::unplaced::Unplaced;
use super::{Handlers, LocalPaths, LocalStore, failed, finish, on_server, open};

pub(in crate::commands) fn run(options: &Repair) -> Exit {
    match on_server::chosen(&options.deployment, &options.state, options.project.as_deref()) {
        Ok(Some(of)) => {
            let checked = options
                .run
                .refuse_on_server()
                .and_then(|()| check_agents_exist(&of, &options.selection.agents));
            return match checked {
                Ok(()) => on_server::repair(&of, options),
                Err(error) => finish(Err(error)),
            };
        }
        Ok(None) => {}
        Err(error) => return finish(Err(error)),
    }
    let here = || orrery_project::around_here().unwrap_or_else(|| PathBuf::from("."));
    let project = options.project.clone().unwrap_or_else(here);
    let file = options.state.file(&project);
    if !file.exists() {
        return failed(&StoreError::Missing { path: file });
    }
    let opened = match open(&options.state, &project, "repair") {
        Ok(opened) => opened,
        Err(error) => return failed(&error),
    };
    let newest_version = match newest(&opened) {
        Ok(version) => version,
        Err(error) => return failed(&error),
    };
    if let Some(sentence) =
        newest_version.clone().map(VersionView::from).as_ref().and_then(unfinished_removal)
    {
        return finish(Err(CliError::new(sentence)));
    }
    let (desired, declared_agents) = match newest_version.map(|one| load(&opened, &one)).transpose()
    {
        Ok(Some(found)) => found,
        Ok(None) => {
            let noun = style::error("error");
            output::print_status(&format!(
                "{noun}: no version is stored here yet; `orrery deploy` creates one"
            ));
            return Exit::Error;
        }
        Err(error) => return failed(&error),
    };
    let resources: Vec<&Resource> = desired.resources.iter().collect();
    let declared_agents = match declared_agents.with_current_inventory(&project, &resources) {
        Ok(declared_agents) => declared_agents,
        Err(exit) => return exit,
    };
    let start = match recover(&opened.store, opened.environment, desired) {
        Ok(start) => start,
        Err(error) => return failed(&error),
    };
    let Repair { selection, run, json, state, pending, .. } = options;
    if !start.desired.resources.iter().any(|resource| selection.covers(resource))
        && !selection.is_all()
    {
        let error = CliError::new("no resource of the newest version selected");
        let help = "`orrery resources` lists them; --agent takes an exact agent name";
        return finish(Err(error.help(help)));
    }
    let paths = LocalPaths { project: &project, state, run, opened: Some(&opened) };
    let handlers = match Handlers::from_last_deploy(&paths) {
        Ok(handlers) => handlers,
        Err(error) => return failed(&error),
    };
    let resources = &start.desired.resources;
    let unplaced = Unplaced::here(resources, &declared_agents, &handlers.registry);
    let unplaced = unplaced.of_selected(selection);
    let unmanaged = &Unmanaged::default();
    let (json, pending) = (*json, *pending);
    let (problems, removal) = (0, None);
    let local_run =
        LocalRun { selection, run, json, problems, pending, unplaced, unmanaged, removal };
    local_run.run_to_end(&opened, start, &handlers)
}

/// Rejects unknown agent names, which would select nothing and report success.
fn check_agents_exist(of: &RemoteEnvironment, names: &[String]) -> Result<(), CliError> {
    for name in names {
        let known: Option<orrery_api::Agent> = of.client.find(&of.path(&["agents", name]))?;
        if known.is_none() {
            let error = CliError::new(format!("{} has no agent {name}", of.display_name()));
            return Err(error.help("`orrery agent list` lists the agents"));
        }
    }
    Ok(())
}

/// The newest released version.
fn newest(opened: &LocalStore) -> Result<Option<VersionInfo>, StoreError> {
    let versions = opened.store.versions().list(opened.environment)?;
    Ok(versions.into_iter().rev().find(|version| version.released))
}

/// A version with its resource keys, and its declarations about agents.
fn load(
    opened: &LocalStore,
    version: &VersionInfo,
) -> Result<(DesiredState, DeclaredAgents), StoreError> {
    let store = &opened.store;
    let loaded = store.versions().load(opened.environment, version.number)?;
    let mut keys = Vec::with_capacity(loaded.resources.len());
    store.versions().read(opened.environment, version.number, &mut |row| keys.push(row.key))?;
    let desired = DesiredState { version: version.number, resources: loaded.resources, keys };
    Ok((desired, DeclaredAgents::of_version(store, &version.info)?))
}
