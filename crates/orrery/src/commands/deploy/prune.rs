//! `orrery deploy --prune`: deploys the model and removes what is no longer in it.

use orrery_api::VersionUpload;
use orrery_executor::{declared_addresses, recover_with};
use orrery_handlers::HandlerCapabilities;
use orrery_host::code_store::CodeSet;
use orrery_model::{Removal, plan_removal};
use orrery_store::StoreError;

use crate::cli::deploy::{DeployOptions, Selection};
use crate::commands::export::{ExportError, info};
use crate::commands::remote::terminal;
use crate::error::CliError;
use crate::remote::RemoteEnvironment;
use crate::{Exit, output, style};

use super::declared_agents::DeclaredAgents;
use super::edits::Edits;
use super::local_run::LocalRun;
use super::removal::{self, Candidate, FollowUpVersion};
use super::unmanaged::{Unmanaged, refuse_to_prune};
use super::unplaced::{Unplaced, inventory_here};
use super::{
    DeployableProject, Handlers, LocalPaths, LocalStore, Purpose, failed, finish, on_server, open,
    prepare_and_open,
};

/// Shows the removals and asks for confirmation.
fn confirm(
    plan: &orrery_api::RemovalPlan,
    edits: &Edits,
    place: &str,
    yes: bool,
) -> Result<(), CliError> {
    removal::show(plan, edits);
    let count = style::count(plan.removed.len(), "resource");
    terminal::confirm(yes, &format!("remove {count} of {}", style::sanitize(place)))
}

/// Removal plan of deployed resources that are no longer in the model.
pub(super) fn plan_here(
    known: Vec<orrery_model::DeployedResource>,
    resources: &[orrery_model::Resource],
    code: Option<&CodeSet>,
    selection: &Selection,
    declared_agents: &DeclaredAgents,
) -> Removal {
    let mut known = known;
    let is_wanted =
        |id: &orrery_model::ResourceId| resources.binary_search_by(|one| one.id.cmp(id)).is_ok();
    known.retain(|one| is_wanted(&one.resource.id) || selection.covers(&one.resource));
    let hosted = code.map(|code| code.handlers.clone()).unwrap_or_default();
    let inventory = inventory_here(declared_addresses(resources), declared_agents);
    let capabilities = HandlerCapabilities::new(hosted).with_inventory(inventory).on_this_machine();
    plan_removal(resources.to_vec(), &known, &capabilities)
}

/// Deploys and prunes locally.
pub(super) fn run(deploy_options: &DeployOptions, message: &str, yes: bool) -> Exit {
    let DeployOptions { project, state, selection, run, limits, json, .. } = deploy_options;
    let (prepared, opened) = match prepare_and_open(project, limits, *json, state, "deploy") {
        Ok(found) => found,
        Err(exit) => return exit,
    };
    let DeployableProject {
        project,
        name,
        mut resources,
        unknowns,
        problems,
        left_out,
        code,
        declared_agents,
    } = prepared;
    if let Err(error) = refuse_to_prune(&left_out) {
        return finish(Err(error));
    }
    resources.sort_by(|a, b| a.id.cmp(&b.id));
    let opened = opened.unwrap_or_else(|| {
        let opened = open(state, &project, "deploy")?;
        let states = removal::states(&opened)?;
        Ok((opened, states))
    });
    let planned = opened.and_then(|(opened, states)| {
        let known = removal::with_adopted(
            removal::deployed_remnants(&opened)?,
            deploy_options.include_adopted,
        );
        Ok((opened, states, known))
    });
    let (opened, states, known) = match planned {
        Ok(found) => found,
        Err(error) => return failed(&error),
    };
    if let Err(error) = super::check_project(&opened, &name, deploy_options.takeover) {
        return failed(&error);
    }
    let removal = plan_here(known, &resources, code.as_ref(), selection, &declared_agents);
    let plan = removal::removal_plan(&removal);
    if plan.removed.is_empty() {
        if let Err(error) = selection.check_selects_some(&resources) {
            return finish(Err(error));
        }
        if !plan.kept.is_empty() {
            removal::show(&plan, &Edits::default());
        } else if !json {
            crate::commands::project_output::warn_if_no_resources(resources.len(), problems);
        }
    } else {
        let inventory = inventory_here(declared_addresses(&removal.resources), &declared_agents);
        let edits = match Edits::find_here(&opened, &removal, run, inventory) {
            Ok(edits) => edits,
            Err(error) => return failed(&*error),
        };
        if let Err(refusal) = confirm(&plan, &edits, &name, yes) {
            return finish(Err(refusal));
        }
    }
    let paths = LocalPaths { project: &project, state, run, opened: Some(&opened) };
    let handlers = match Handlers::for_code(code, &paths) {
        Ok(handlers) => handlers,
        Err(error) => return failed(&error),
    };
    let binding = deploy_options.takeover.binding(&name);
    let hash = handlers.code.as_deref();
    let unplaced = Unplaced::here(&removal.resources, &declared_agents, &handlers.registry);
    let unplaced = unplaced.of_selected(selection);
    let resources_of_removal = removal.resources;
    let started = || -> Result<_, StoreError> {
        let (desired, created) = opened.put(
            resources_of_removal,
            &unknowns,
            hash,
            &declared_agents,
            Purpose { message, removes: plan.removed.len() },
            Some(binding),
        )?;
        let unmanaged = Unmanaged::of_local(&opened, &desired, &declared_agents, &left_out)?;
        let start = recover_with(&opened.store, opened.environment, desired, states)?;
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
        output::print_status(&format!("version {}: {count}{removed}", start.desired.version));
    }
    let (json, unmanaged) = (*json, &unmanaged);
    let (pending, removal) = (false, Some(&plan));
    let local_run =
        LocalRun { selection, run, json, problems, pending, unplaced, unmanaged, removal };
    let exit = local_run.run_to_end(&opened, start, &handlers);
    let after = FollowUpVersion {
        resources,
        unknowns: &unknowns,
        code: hash,
        declared_agents: &declared_agents,
        message,
        project: binding,
    };
    let exit = match conclude(&opened, &plan, after) {
        Ok(0) => exit,
        Ok(left) => {
            removal::report_remaining(left, "deploy --prune");
            exit
        }
        Err(error) => failed(&error),
    };
    if !json {
        unmanaged.report();
    }
    paths.remove_unused(handlers.code.as_deref());
    exit
}

/// Drops the removed resources from the newest version once all are gone; returns the number that
/// remain.
fn conclude(
    opened: &LocalStore,
    plan: &orrery_api::RemovalPlan,
    after: FollowUpVersion<'_>,
) -> Result<usize, StoreError> {
    let left = removal::count_remaining(opened, plan)?;
    if left == 0 && !plan.removed.is_empty() {
        after.store_and_process(opened, "deploy")?;
    }
    Ok(left)
}

/// Deploys and prunes on a server.
pub(super) fn on_a_server(
    of: &RemoteEnvironment,
    deploy_options: &DeployOptions,
    message: &str,
    yes: bool,
) -> Result<Exit, ExportError> {
    on_server::refuse_if_halted(of)?;
    on_server::refuse_selection(&deploy_options.selection)?;
    let binding = deploy_options.takeover.upload_binding();
    let new = VersionUpload { info: info(message), binding, ..VersionUpload::default() };
    let (model, coded) = on_server::push_options(deploy_options).prepare_upload(of, new)?;
    let candidate = Candidate::store(
        of,
        &VersionUpload {
            prune: true,
            include_adopted: deploy_options.include_adopted,
            release: Some(false),
            ..on_server::unbound(&model, deploy_options.takeover)
        },
    )?;
    if candidate.plan.removed.is_empty() {
        if !candidate.plan.kept.is_empty() {
            removal::show(&candidate.plan, &Edits::default());
        }
        let plan = candidate.plan.clone();
        candidate.discard()?;
        return on_server::deploy_upload(of, deploy_options, (model, coded), Some(&plan));
    }
    let edits = Edits::find_on_server(of, candidate.version, deploy_options.json);
    let answer = edits.and_then(|edits| confirm(&candidate.plan, &edits, &of.display_name(), yes));
    let candidate = candidate.confirmed(answer)?;
    let done = candidate.carry_out(deploy_options.json)?;
    if done.left > 0 {
        removal::report_remaining(done.left, "deploy --prune");
        return Ok(done.exit);
    }
    let after = VersionUpload { release: Some(true), only_if_changed: true, ..model };
    let stored = crate::commands::export::store(of, &after)?;
    if !deploy_options.json {
        Unmanaged::of_server(stored.unmanaged).report();
    }
    Ok(done.exit)
}
