//! Deploy, plan and repair for an environment on a server: compiles locally, uploads the version,
//! and follows the server.

use std::path::Path;

use orrery_api::{
    DeployRequest, Operation, ReleaseRequest, RemovalPlan, ResourceCounts, UploadBinding,
    VersionReleased, VersionUpload,
};

use crate::cli::deploy::{DeployOptions, Repair, Selection, Takeover};
use crate::commands::export::{ExportError, Push, info, store};
use crate::commands::inspect::deployment::Deployment as _;
use crate::commands::inspect::find;
use crate::commands::inspect::on_server::OnServer;
use crate::commands::inspect::view::ResourceSelection;
use crate::commands::remote::dry_run;
use crate::error::{CliError, finish};
use crate::remote::{DeploymentChoice, RemoteEnvironment};
use crate::signals::Interrupt;
use crate::state::StateOptions;
use crate::{Exit, output, style};

use super::follow_operation::{FollowedOperation, number};
use super::machine_facts;
use super::plan_report::PlanFormat;
use super::prune;
use super::unmanaged::Unmanaged;
use super::unplaced::Unplaced;

/// Returns the selected environment on a server, if any.
pub(super) fn chosen(
    choice: &DeploymentChoice,
    state: &StateOptions,
    project: Option<&Path>,
) -> Result<Option<RemoteEnvironment>, CliError> {
    // --data selects the local state.
    if state.data.is_some() { Ok(None) } else { choice.remote(project) }
}

pub(super) fn deploy(
    of: &RemoteEnvironment,
    deploy_options: &DeployOptions,
    message: &str,
    yes: bool,
) -> Exit {
    let done = match deploy_options.prune {
        true => prune::on_a_server(of, deploy_options, message, yes),
        false => try_deploy(of, deploy_options, message),
    };
    match done {
        Ok(exit) => exit,
        Err(error) => error.report(deploy_options.json),
    }
}

fn try_deploy(
    of: &RemoteEnvironment,
    deploy_options: &DeployOptions,
    message: &str,
) -> Result<Exit, ExportError> {
    refuse_if_halted(of)?;
    refuse_selection(&deploy_options.selection)?;
    let binding = deploy_options.takeover.upload_binding();
    let new = || VersionUpload { info: info(message), binding, ..VersionUpload::default() };
    let push = push_options(deploy_options);
    let prepared = push.prepare_upload(of, new())?;
    let missing = machine_facts::missing(&prepared.0);
    let exit = deploy_upload(of, deploy_options, prepared, None)?;
    // A server with the model compiles again by itself, and --json prints one report.
    let compiles_here = of.details().is_ok_and(|details| details.repository.is_empty());
    let may_learn = exit == Exit::Pending && !missing.is_empty() && !deploy_options.json;
    if !may_learn || !compiles_here || !machine_facts::has_learned(of, &missing)? {
        return Ok(exit);
    }
    output::print_status("machines have told their facts: compiling again");
    deploy_upload(of, deploy_options, push.prepare_upload(of, new())?, None)
}

/// Rejects a selection: a server cannot deploy a part of a version.
pub(super) fn refuse_selection(selection: &Selection) -> Result<(), CliError> {
    if !selection.is_all() {
        let error = CliError::new("a server deploys whole versions");
        let help = "omit --agent and --filter; `orrery repair` accepts them on a server, with --pending for resources that are not deployed";
        return Err(error.help(help));
    }
    Ok(())
}

/// Upload for a dry run: the environment is bound to its project only by a deploy.
pub(super) fn unbound(model: &VersionUpload, takeover: Takeover) -> VersionUpload {
    let project = model.project.clone().filter(|_| !takeover.rebind);
    let binding = if project.is_some() { UploadBinding::Check } else { UploadBinding::Bind };
    VersionUpload { project, binding, ..model.clone() }
}

/// Uploads a version and waits until it is deployed. `removal` is its removal plan, if requested.
pub(super) fn deploy_upload(
    of: &RemoteEnvironment,
    deploy_options: &DeployOptions,
    (upload, coded): (VersionUpload, Vec<String>),
    removal: Option<&RemovalPlan>,
) -> Result<Exit, ExportError> {
    let new = VersionUpload { release: Some(true), only_if_changed: true, verify: true, ..upload };
    let unplaced = Unplaced::on_server(of, &new, &coded)?;
    if !deploy_options.json {
        unplaced.report();
    }
    let stored = store(of, &new)?;
    let version = stored.version.number;
    if !deploy_options.json {
        let count = style::count(number(stored.version.total), "resource");
        let place = style::sanitize(&of.display_name());
        let as_before = if stored.created_now { "" } else { ", unchanged" };
        output::print_status(&format!("version {version} of {place}: {count}{as_before}"));
    }
    let begun = match stored.operation {
        Some(begun) => begun,
        // A newer version was released meanwhile. The server reports that, unless the newer one is
        // gone again.
        None => {
            let at = of.path(&["versions", &version.to_string(), "release"]);
            let wish = ReleaseRequest { deploy: true, verify: true };
            let released: VersionReleased = of.client.post(&at, &wish)?;
            released.operation.ok_or_else(|| superseded(version))?
        }
    };
    // The engine starts a released version at once: runs since the upload belong to this deploy.
    let since = if stored.created_now { stored.version.created } else { begun.created };
    if let Some(project) = stored.rebound_from.as_ref().filter(|_| !deploy_options.json) {
        let project = style::sanitize(project);
        output::print_status(&format!(
            "{}: taken over from project {project}",
            style::help("note")
        ));
    }
    let unmanaged = Unmanaged::of_server(stored.unmanaged);
    let (json, selection) = (deploy_options.json, &deploy_options.selection);
    let run = FollowedOperation {
        of,
        json,
        selection,
        unplaced: &unplaced,
        unmanaged: &unmanaged,
        removal,
    };
    let exit = run.follow(&begun, version, since.0)?;
    if !deploy_options.json {
        unmanaged.report();
    }
    Ok(exit)
}

/// Error for a stored version that another release has superseded.
fn superseded(version: u32) -> CliError {
    let error = CliError::new(format!("version {version} was not released: a newer version is"));
    error.help("`orrery version list` lists the versions")
}

/// Deploy request that accompanies a release or rollback. Both are one step, so that the deploy can
/// be followed and no handler runs twice.
pub(in crate::commands) const DEPLOY_ALONG: ReleaseRequest =
    ReleaseRequest { deploy: true, verify: false };

/// Releases a version with [`DEPLOY_ALONG`] and waits until it is deployed.
pub(in crate::commands) fn release(
    of: &RemoteEnvironment,
    json: bool,
    release: impl FnOnce() -> Result<(u32, Option<Operation>), CliError>,
) -> Result<Exit, CliError> {
    refuse_if_halted(of)?;
    let before: ResourceCounts = of.client.get(&of.path(&["resource-counts"]))?;
    let (version, begun) = release()?;
    let begun = begun.ok_or_else(|| superseded(version))?;
    let (selection, unplaced) = (&Selection::default(), &Unplaced::default());
    let unmanaged = &Unmanaged::default();
    let run = FollowedOperation { of, json, selection, unplaced, unmanaged, removal: None };
    run.follow(&begun, version, before.counted_at.0)
}

pub(super) fn push_options(deploy_options: &DeployOptions) -> Push<'_> {
    Push {
        project: &deploy_options.project,
        limits: &deploy_options.limits,
        exporters: &[],
        verbose: false,
        quiet: deploy_options.json,
        takeover: deploy_options.takeover,
        prune: deploy_options.prune,
    }
}

pub(super) fn plan(
    of: &RemoteEnvironment,
    deploy_options: &DeployOptions,
    keep: bool,
    form: PlanFormat,
) -> Exit {
    match try_plan(of, deploy_options, keep, form) {
        Ok(exit) => exit,
        Err(error) => error.report(deploy_options.json),
    }
}

fn try_plan(
    of: &RemoteEnvironment,
    deploy_options: &DeployOptions,
    keep: bool,
    form: PlanFormat,
) -> Result<Exit, ExportError> {
    let new = VersionUpload {
        info: info("orrery plan"),
        release: Some(false),
        prune: deploy_options.prune,
        include_adopted: deploy_options.include_adopted,
        ..VersionUpload::default()
    };
    let (upload, coded) = push_options(deploy_options).prepare_upload(of, new)?;
    let upload = unbound(&upload, deploy_options.takeover);
    let unplaced = Unplaced::on_server(of, &upload, &coded)?.of_selected(&deploy_options.selection);
    if !deploy_options.json {
        unplaced.report();
    }
    // From here on there may be a version to delete: Ctrl-C is handled once its number is known.
    let interrupt = Interrupt::listen().map_err(|error| CliError::from_error(&error))?;
    let version = store(of, &upload)?.version.number;
    let found = dry_run::follow(of, version, deploy_options.json, &interrupt);
    let resources = upload.resources.into_iter().map(dry_run::Desired::from).collect();
    // A plan leaves no version behind, whatever its outcome.
    let removed = match keep {
        true => Ok(()),
        false => of.client.delete::<()>(&of.path(&["versions", &version.to_string()])),
    };
    let mut found = found?;
    removed?;
    let selection = &deploy_options.selection;
    found.changes.retain(|change| {
        change.resource.parse().is_ok_and(|id: orrery_model::ResourceId| selection.covers_id(&id))
    });
    if found.changes.is_empty() {
        selection.nothing_selected()?;
    }
    let exit = dry_run::show_with(&found, resources, unplaced.groups(), form)?;
    if keep && !deploy_options.json {
        output::print_status(&format!("version kept: orrery version release {version}"));
    }
    Ok(exit)
}

pub(super) fn repair(of: &RemoteEnvironment, options: &Repair) -> Exit {
    finish(try_repair(of, options))
}

fn try_repair(of: &RemoteEnvironment, options: &Repair) -> Result<Exit, CliError> {
    refuse_if_halted(of)?;
    let server = OnServer::new(of.clone());
    let Some(version) = server.processed()? else { return Err(server.nothing_deployed()) };
    let mut request = DeployRequest::default();
    let selection = &options.selection;
    if selection.filter.is_some() {
        let mut ids = Vec::new();
        server.visit(&ResourceSelection::default(), None, find::PAGE, &mut |seen| {
            if selection.covers_id(&seen.id) {
                ids.push(seen.id.to_string());
            }
            Ok(true)
        })?;
        if ids.is_empty() {
            let error = CliError::new(format!("no resource of {} is selected", of.display_name()));
            return Err(error.help("`orrery resources` lists the resources"));
        }
        request.ids = Some(ids);
    } else if !selection.agents.is_empty() {
        request.agents = Some(selection.agents.clone());
    }
    let action = if options.pending { "deploy" } else { "repair" };
    let begun: Operation = of.client.post(&of.path(&[action]), &request)?;
    let (unplaced, unmanaged) = (&Unplaced::default(), &Unmanaged::default());
    let run =
        FollowedOperation { of, json: options.json, selection, unplaced, unmanaged, removal: None };
    run.follow(&begun, version.0, begun.created.0)
}

pub(super) fn refuse_if_halted(of: &RemoteEnvironment) -> Result<(), CliError> {
    if of.is_halted()? {
        let error = CliError::new(format!("{} is halted: nothing is deployed", of.display_name()));
        return Err(error.help(format!("orrery environment resume -e {}", of.name())));
    }
    Ok(())
}
