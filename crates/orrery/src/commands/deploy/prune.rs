//! `orrery deploy --prune`: makes the model real, and removes what it does not have any more.

use orrery_api::VersionUpload;
use orrery_executor::{declared_addresses, recovery_with};
use orrery_handlers::Abilities;
use orrery_host::code::CodeSet;
use orrery_model::{Removal, plan_removal};
use orrery_store::StoreError;

use crate::cli_deploy::{Selection, Wanted};
use crate::commands::export::{ExportError, info};
use crate::commands::remote::terminal;
use crate::commands::trouble::Trouble;
use crate::remote::RemoteEnvironment;
use crate::{Exit, output, projects, style};

use super::edits::Edits;
use super::pass::Pass;
use super::placing::{Unplaced, inventory_here};
use super::removal::{self, Afterwards, Candidate};
use super::unmanaged::{Unmanaged, refuse_to_prune};
use super::{
    Handlers, Opened, Place, Prepared, Purpose, failed, finish, on_server, open, prepare_and_open,
};

/// Says what is removed, and asks whether that is meant.
fn confirm(
    plan: &orrery_api::RemovalPlan,
    edits: &Edits,
    place: &str,
    yes: bool,
) -> Result<(), Trouble> {
    removal::show(plan, edits);
    let count = style::count(plan.removed.len(), "resource");
    terminal::confirm(yes, &format!("remove {count} of {}", style::harmless(place)))
}

/// What of the deployed resources the model does not have any more, and how it goes.
pub(super) fn plan_here(
    known: Vec<orrery_model::Remnant>,
    resources: &[orrery_model::Resource],
    code: Option<&CodeSet>,
    selection: &Selection,
    local_agents: &[String],
) -> Removal {
    let mut known = known;
    let is_wanted =
        |id: &orrery_model::ResourceId| resources.binary_search_by(|one| one.id.cmp(id)).is_ok();
    known.retain(|one| is_wanted(&one.resource.id) || selection.covers(&one.resource));
    let hosted = code.map(|code| code.handlers.clone()).unwrap_or_default();
    let inventory = inventory_here(declared_addresses(resources), local_agents);
    let abilities = Abilities::new(hosted).with_inventory(inventory).on_this_machine();
    plan_removal(resources.to_vec(), &known, &abilities)
}

/// Deploys here and prunes.
pub(super) fn run(wanted: &Wanted, message: &str, yes: bool) -> Exit {
    let Wanted { project, state, selection, run, limits, json, .. } = wanted;
    let (prepared, opened) = match prepare_and_open(project, limits, *json, state, "deploy") {
        Ok(found) => found,
        Err(exit) => return exit,
    };
    let Prepared { project, mut resources, unknowns, problems, left_out, code, local_agents } =
        prepared;
    if let Err(trouble) = refuse_to_prune(&left_out) {
        return finish(Err(trouble));
    }
    resources.sort_by(|a, b| a.id.cmp(&b.id));
    let opened = opened.unwrap_or_else(|| {
        let opened = open(state, &project, "deploy")?;
        let states = removal::states(&opened)?;
        Ok((opened, states))
    });
    let planned = opened.and_then(|(opened, states)| {
        let known = removal::with_adopted(removal::known(&opened)?, wanted.include_adopted);
        Ok((opened, states, known))
    });
    let (opened, states, known) = match planned {
        Ok(found) => found,
        Err(error) => return failed(&error),
    };
    if let Err(error) = super::check_project(&opened, &project, wanted.takeover) {
        return failed(&error);
    }
    let removal = plan_here(known, &resources, code.as_ref(), selection, &local_agents);
    let plan = removal::plan_of(&removal);
    let name = projects::name_of(&project);
    if plan.removed.is_empty() {
        if let Err(trouble) = selection.refuse_if_none_of(&resources) {
            return finish(Err(trouble));
        }
        if !plan.kept.is_empty() {
            removal::show(&plan, &Edits::default());
        } else if !json {
            crate::commands::compile::tell_if_no_resources(resources.len(), problems);
        }
    } else {
        let inventory = inventory_here(declared_addresses(&removal.resources), &local_agents);
        let edits = match Edits::find_here(&opened, &removal, run, inventory) {
            Ok(edits) => edits,
            Err(error) => return failed(&*error),
        };
        if let Err(refusal) = confirm(&plan, &edits, &name, yes) {
            return finish(Err(refusal));
        }
    }
    let place = Place { project: &project, state, run, opened: Some(&opened) };
    let handlers = match Handlers::of(code, &place) {
        Ok(handlers) => handlers,
        Err(error) => return failed(&error),
    };
    let binding = wanted.takeover.binding(&name);
    let hash = handlers.code.as_deref();
    let unplaced = Unplaced::here(&removal.resources, &local_agents, &handlers.registry);
    let unplaced = unplaced.of_selected(selection);
    let resources_of_removal = removal.resources;
    let started = || -> Result<_, StoreError> {
        let (desired, created) = opened.put(
            resources_of_removal,
            &unknowns,
            hash,
            &local_agents,
            Purpose { message, removes: plan.removed.len() },
            Some(binding),
        )?;
        let unmanaged = Unmanaged::of_local(&opened, &desired, &local_agents, &left_out)?;
        let start = recovery_with(&*opened.store, opened.environment, desired, states)?;
        Ok((start, created, unmanaged))
    };
    let (start, created, unmanaged) = match started() {
        Ok(found) => found,
        Err(error) => return failed(&error),
    };
    if created && !json {
        let count = style::count(start.desired.resources.len(), "resource");
        let removed = match plan.removed.len() {
            0 => String::new(),
            count => format!(", {} of them to be removed", style::grouped(count)),
        };
        output::say(&format!("version {}: {count}{removed}", start.desired.version));
    }
    let (json, unmanaged) = (*json, &unmanaged);
    let (pending, removal) = (false, Some(&plan));
    let pass = Pass { selection, run, json, problems, pending, unplaced, unmanaged, removal };
    let exit = pass.go(&opened, start, &handlers);
    let after = Afterwards {
        resources,
        unknowns: &unknowns,
        code: hash,
        local_agents: &local_agents,
        message,
        project: binding,
    };
    let exit = match conclude(&opened, &plan, after) {
        Ok(0) => exit,
        Ok(left) => {
            removal::tell_left(left, "deploy --prune");
            exit
        }
        Err(error) => failed(&error),
    };
    if !json {
        unmanaged.tell();
    }
    place.tidy_up(handlers.code.as_deref());
    exit
}

/// Takes what is gone out of the newest version, if all of it is; answers how much is left.
fn conclude(
    opened: &Opened,
    plan: &orrery_api::RemovalPlan,
    after: Afterwards<'_>,
) -> Result<usize, StoreError> {
    let left = removal::left_here(opened, plan)?;
    if left == 0 && !plan.removed.is_empty() {
        after.keep(opened, "deploy")?;
    }
    Ok(left)
}

/// Deploys on a server and prunes.
pub(super) fn on_a_server(
    of: &RemoteEnvironment,
    wanted: &Wanted,
    message: &str,
    yes: bool,
) -> Result<Exit, ExportError> {
    on_server::refuse_if_halted(of)?;
    on_server::refuse_selection(&wanted.selection)?;
    let binding = wanted.takeover.upload_binding();
    let new = VersionUpload { info: info(message), binding, ..VersionUpload::default() };
    let (model, coded) = on_server::how_to_push(wanted).make(of, new)?;
    let candidate = Candidate::store(
        of,
        &VersionUpload {
            prune: true,
            include_adopted: wanted.include_adopted,
            release: Some(false),
            ..on_server::unbound(&model, wanted.takeover)
        },
    )?;
    if candidate.plan.removed.is_empty() {
        if !candidate.plan.kept.is_empty() {
            removal::show(&candidate.plan, &Edits::default());
        }
        let plan = candidate.plan.clone();
        candidate.discard()?;
        return on_server::deploy_upload(of, wanted, (model, coded), Some(&plan));
    }
    let edits = Edits::find_on_server(of, candidate.version, wanted.json);
    let answer = edits.and_then(|edits| confirm(&candidate.plan, &edits, &of.place(), yes));
    let candidate = candidate.confirmed(answer)?;
    let done = candidate.carry_out(wanted.json)?;
    if done.left > 0 {
        removal::tell_left(done.left, "deploy --prune");
        return Ok(done.exit);
    }
    let after = VersionUpload { release: Some(true), only_if_changed: true, ..model };
    let stored = crate::commands::export::store(of, &after)?;
    if !wanted.json {
        Unmanaged::of_server(stored.unmanaged).tell();
    }
    Ok(done.exit)
}
