//! `orrery repair`: verifies and mends the newest version as it is kept.

use std::path::PathBuf;

use orrery_executor::{Desired, recovery};
use orrery_store::{Store, StoreError, VersionInfo, load_version, local_agents};

use crate::cli_deploy::Repair;
use crate::commands::inspect::unfinished::unfinished_removal;
use crate::commands::trouble::Trouble;
use crate::remote::RemoteEnvironment;
use crate::{Exit, output, projects, style};

use super::pass::Pass;
use super::placing::Unplaced;
use super::unmanaged::Unmanaged;
use super::{Handlers, Opened, Place, failed, finish, on_server, open};

pub(in crate::commands) fn run(options: &Repair) -> Exit {
    match on_server::chosen(&options.place, &options.state, options.project.as_deref()) {
        Ok(Some(of)) => {
            let checked = options
                .run
                .refuse_on_server()
                .and_then(|()| agents_are_known(&of, &options.selection.agents));
            return match checked {
                Ok(()) => on_server::repair(&of, options),
                Err(trouble) => finish(Err(trouble)),
            };
        }
        Ok(None) => {}
        Err(trouble) => return finish(Err(trouble)),
    }
    let here = || projects::around_here().unwrap_or_else(|| PathBuf::from("."));
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
    if let Some(sentence) = newest_version.as_ref().and_then(unfinished_removal) {
        return finish(Err(Trouble::said(sentence)));
    }
    let (desired, local_agents) = match newest_version.map(|one| load(&opened, &one)).transpose() {
        Ok(Some(found)) => found,
        Ok(None) => {
            let noun = style::error("error");
            output::say(&format!("{noun}: no version is kept here yet; `orrery deploy` makes one"));
            return Exit::Error;
        }
        Err(error) => return failed(&error),
    };
    let start = match recovery(&*opened.store, opened.environment, desired) {
        Ok(start) => start,
        Err(error) => return failed(&error),
    };
    let Repair { selection, run, json, state, pending, .. } = options;
    if !start.desired.resources.iter().any(|resource| selection.covers(resource))
        && !selection.is_all()
    {
        let trouble = Trouble::said("no resource of the newest version is selected");
        let help = "`orrery resources` lists them; --agent wants the exact name of an agent";
        return finish(Err(trouble.help(help)));
    }
    let place = Place { project: &project, state, run, opened: Some(&opened) };
    let handlers = match Handlers::kept(&place) {
        Ok(handlers) => handlers,
        Err(error) => return failed(&error),
    };
    let resources = &start.desired.resources;
    let unplaced = Unplaced::here(resources, &local_agents, &handlers.registry);
    let unplaced = unplaced.of_selected(selection);
    let unmanaged = &Unmanaged::default();
    let (json, pending) = (*json, *pending);
    let (problems, removal) = (0, None);
    let pass = Pass { selection, run, json, problems, pending, unplaced, unmanaged, removal };
    pass.go(&opened, start, &handlers)
}

/// A name that nobody has selects nothing, which would look as if all were well.
fn agents_are_known(of: &RemoteEnvironment, names: &[String]) -> Result<(), Trouble> {
    for name in names {
        let known: Option<orrery_api::Agent> = of.client.find(&of.path(&["agents", name]))?;
        if known.is_none() {
            let trouble = Trouble::said(format!("{} has no agent {name}", of.place()));
            return Err(trouble.help("`orrery agent list` shows those that there are"));
        }
    }
    Ok(())
}

/// The newest released version.
fn newest(opened: &Opened) -> Result<Option<VersionInfo>, StoreError> {
    let versions = opened.store.versions(opened.environment)?;
    Ok(versions.into_iter().rev().find(|version| version.released))
}

/// A version with the keys of its resources, and the agents that it declares to be this machine.
fn load(opened: &Opened, version: &VersionInfo) -> Result<(Desired, Vec<String>), StoreError> {
    let store = &*opened.store;
    let loaded = load_version(store, opened.environment, version.number)?;
    let mut keys = Vec::with_capacity(loaded.resources.len());
    store.read_version(opened.environment, version.number, &mut |row| keys.push(row.key))?;
    let desired = Desired { version: version.number, resources: loaded.resources, keys };
    Ok((desired, local_agents(&version.info)))
}
