//! `orrery repair`: verifies and mends the newest version as it is kept.

use std::path::PathBuf;

use orrery_executor::{Desired, recovery};
use orrery_store::{Store, StoreError, load_version};

use crate::cli_deploy::Repair;
use crate::{Exit, output, projects, style};

use super::pass::Pass;
use super::{Handlers, Opened, Place, failed, finish, on_server, open};

pub(in crate::commands) fn run(options: &Repair) -> Exit {
    match on_server::chosen(&options.place, &options.state, options.project.as_deref()) {
        Ok(Some(of)) => return on_server::repair(&of, options),
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
    let desired = match newest(&opened) {
        Ok(Some(desired)) => desired,
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
    let Repair { selection, run, json, state, .. } = options;
    let place = Place { project: &project, state, run, opened: Some(&opened) };
    let handlers = match Handlers::kept(&start.desired.resources, &place) {
        Ok(handlers) => handlers,
        Err(error) => return failed(&error),
    };
    let pass = Pass { selection, run, json: *json, problems: 0 };
    pass.go(&opened, start, &handlers)
}

/// The newest released version, with the keys of its resources.
fn newest(opened: &Opened) -> Result<Option<Desired>, StoreError> {
    let store = &*opened.store;
    let versions = store.versions(opened.environment)?;
    let Some(version) = versions.iter().rev().find(|version| version.released) else {
        return Ok(None);
    };
    let loaded = load_version(store, opened.environment, version.number)?;
    let mut keys = Vec::with_capacity(loaded.resources.len());
    store.read_version(opened.environment, version.number, &mut |row| keys.push(row.key))?;
    Ok(Some(Desired { version: version.number, resources: loaded.resources, keys }))
}
