//! The same commands for an environment on a server: the model is compiled here and pushed, the server does the work, and the command
//! waits and tells.

use std::path::Path;

use orrery_api::{
    DeployRequest, Operation, ReleaseRequest, RemovalPlan, ResourceCounts, UploadBinding,
    VersionReleased, VersionUpload,
};
use orrery_store::ResourceQuery;

use crate::cli_deploy::{Repair, Selection, Takeover, Wanted};
use crate::commands::export::{ExportError, Push, info, store};
use crate::commands::inspect::find;
use crate::commands::inspect::on_server::OnServer;
use crate::commands::inspect::source::Deployment as _;
use crate::commands::remote::dry_run;
use crate::commands::trouble::{Trouble, finish};
use crate::remote::{RemoteEnvironment, WhereChoice};
use crate::signals::Interrupt;
use crate::state::StateOptions;
use crate::{Exit, output, style};

use super::forecast::Form;
use super::placing::Unplaced;
use super::prune;
use super::unmanaged::Unmanaged;
use super::waiting::{Run, number};

/// The environment on a server that is meant, if one is.
pub(super) fn chosen(
    place: &WhereChoice,
    state: &StateOptions,
    project: Option<&Path>,
) -> Result<Option<RemoteEnvironment>, Trouble> {
    // Whoever names the place of a local state means that.
    if state.data.is_some() { Ok(None) } else { place.remote(project) }
}

pub(super) fn deploy(of: &RemoteEnvironment, wanted: &Wanted, message: &str, yes: bool) -> Exit {
    let done = match wanted.prune {
        true => prune::on_a_server(of, wanted, message, yes),
        false => try_deploy(of, wanted, message),
    };
    match done {
        Ok(exit) => exit,
        Err(error) => error.tell(wanted.json),
    }
}

fn try_deploy(of: &RemoteEnvironment, wanted: &Wanted, message: &str) -> Result<Exit, ExportError> {
    refuse_if_halted(of)?;
    refuse_selection(&wanted.selection)?;
    let binding = wanted.takeover.upload_binding();
    let new = VersionUpload { info: info(message), binding, ..VersionUpload::default() };
    deploy_upload(of, wanted, how_to_push(wanted).make(of, new)?, None)
}

/// A server cannot deploy a part of a version.
pub(super) fn refuse_selection(selection: &Selection) -> Result<(), Trouble> {
    if !selection.is_all() {
        let trouble = Trouble::said("a server deploys all of a version");
        let help = "leave out --agent and --filter; `orrery repair` takes them on a server, too, also with --pending for what is not deployed";
        return Err(trouble.help(help));
    }
    Ok(())
}

/// An upload that can be looked at: its environment belongs to its project only when it is deployed.
pub(super) fn unbound(model: &VersionUpload, takeover: Takeover) -> VersionUpload {
    let project = model.project.clone().filter(|_| !takeover.rebind);
    let binding = if project.is_some() { UploadBinding::Check } else { UploadBinding::Bind };
    VersionUpload { project, binding, ..model.clone() }
}

/// Pushes what a project came to, and waits until it is deployed. `removal` is what it was found to remove, if that was asked for.
pub(super) fn deploy_upload(
    of: &RemoteEnvironment,
    wanted: &Wanted,
    (upload, coded): (VersionUpload, Vec<String>),
    removal: Option<&RemovalPlan>,
) -> Result<Exit, ExportError> {
    let new = VersionUpload { release: Some(true), only_if_changed: true, verify: true, ..upload };
    let unplaced = Unplaced::on_server(of, &new, &coded)?;
    if !wanted.json {
        unplaced.tell();
    }
    let stored = store(of, &new)?;
    let version = stored.version.number;
    if !wanted.json {
        let count = style::count(number(stored.version.total), "resource");
        let place = style::harmless(&of.place());
        let as_before = if stored.created_now { "" } else { ", as before" };
        output::say(&format!("version {version} of {place}: {count}{as_before}"));
    }
    let begun = match stored.operation {
        Some(begun) => begun,
        // A newer version was released meanwhile. The server says so, unless that is gone again.
        None => {
            let at = of.path(&["versions", &version.to_string(), "release"]);
            let wish = ReleaseRequest { deploy: true, verify: true };
            let released: VersionReleased = of.client.post(&at, &wish)?;
            released.operation.ok_or_else(|| superseded(version))?
        }
    };
    // The engine takes up a released version at once: what it did until now belongs to this, too.
    let since = if stored.created_now { &stored.version.created } else { &begun.created };
    let since = since.parse().unwrap_or_default();
    if let Some(project) = stored.rebound_from.as_ref().filter(|_| !wanted.json) {
        let project = style::harmless(project);
        output::say(&format!("{}: taken over from the project {project}", style::help("note")));
    }
    let unmanaged = Unmanaged::of_server(stored.unmanaged);
    let (json, selection) = (wanted.json, &wanted.selection);
    let run = Run { of, json, selection, unplaced: &unplaced, unmanaged: &unmanaged, removal };
    let exit = run.follow(&begun, version, since)?;
    if !wanted.json {
        unmanaged.tell();
    }
    Ok(exit)
}

/// A version that was stored, but not released: somebody else's was, meanwhile.
fn superseded(version: u32) -> Trouble {
    let trouble = Trouble::said(format!("version {version} is not released: a newer one is"));
    trouble.help("`orrery version list` shows which")
}

/// What a release or a roll-back has to ask for along with the version, so that it can be waited for: in one step with it, so that no
/// handler runs twice.
pub(in crate::commands) const DEPLOY_ALONG: ReleaseRequest =
    ReleaseRequest { deploy: true, verify: false };

/// Does something that releases a version along with [`DEPLOY_ALONG`], and waits until that is deployed.
pub(in crate::commands) fn release(
    of: &RemoteEnvironment,
    json: bool,
    release: impl FnOnce() -> Result<(u32, Option<Operation>), Trouble>,
) -> Result<Exit, Trouble> {
    refuse_if_halted(of)?;
    let before: ResourceCounts = of.client.get(&of.path(&["resource-counts"]))?;
    let (version, begun) = release()?;
    let begun = begun.ok_or_else(|| superseded(version))?;
    let since = before.counted_at.parse().unwrap_or_default();
    let (selection, unplaced) = (&Selection::default(), &Unplaced::default());
    let unmanaged = &Unmanaged::default();
    let run = Run { of, json, selection, unplaced, unmanaged, removal: None };
    run.follow(&begun, version, since)
}

pub(super) fn how_to_push(wanted: &Wanted) -> Push<'_> {
    Push {
        project: &wanted.project,
        limits: &wanted.limits,
        exporters: &[],
        verbose: false,
        quiet: wanted.json,
        takeover: wanted.takeover,
        prune: wanted.prune,
    }
}

pub(super) fn plan(of: &RemoteEnvironment, wanted: &Wanted, keep: bool, form: Form) -> Exit {
    match try_plan(of, wanted, keep, form) {
        Ok(exit) => exit,
        Err(error) => error.tell(wanted.json),
    }
}

fn try_plan(
    of: &RemoteEnvironment,
    wanted: &Wanted,
    keep: bool,
    form: Form,
) -> Result<Exit, ExportError> {
    let new = VersionUpload {
        info: info("orrery plan"),
        release: Some(false),
        prune: wanted.prune,
        include_adopted: wanted.include_adopted,
        ..VersionUpload::default()
    };
    let (upload, coded) = how_to_push(wanted).make(of, new)?;
    let upload = unbound(&upload, wanted.takeover);
    let unplaced = Unplaced::on_server(of, &upload, &coded)?.of_selected(&wanted.selection);
    if !wanted.json {
        unplaced.tell();
    }
    // From here on there may be a version to be deleted: whoever is in a hurry is heard when its number is known.
    let interrupt = Interrupt::listen().map_err(|error| Trouble::of(&error))?;
    let version = store(of, &upload)?.version.number;
    let found = dry_run::follow(of, version, wanted.json, &interrupt);
    let resources = upload.resources.into_iter().map(dry_run::Desired::from).collect();
    // Whatever came of it: nobody asked for a version.
    let removed = match keep {
        true => Ok(()),
        false => of.client.delete::<()>(&of.path(&["versions", &version.to_string()])),
    };
    let mut found = found?;
    removed?;
    let selection = &wanted.selection;
    found.changes.retain(|change| {
        change.resource.parse().is_ok_and(|id: orrery_model::ResourceId| selection.covers_id(&id))
    });
    if found.changes.is_empty() {
        selection.refuse_to_select_nothing()?;
    }
    let exit = dry_run::show_with(&found, resources, unplaced.groups(), form)?;
    if keep && !wanted.json {
        output::say(&format!("it is kept: orrery version release {version}"));
    }
    Ok(exit)
}

pub(super) fn repair(of: &RemoteEnvironment, options: &Repair) -> Exit {
    finish(try_repair(of, options))
}

fn try_repair(of: &RemoteEnvironment, options: &Repair) -> Result<Exit, Trouble> {
    refuse_if_halted(of)?;
    let server = OnServer::new(of.clone());
    let Some(version) = server.processed()? else { return Err(server.nothing_deployed()) };
    let mut request = DeployRequest::default();
    let selection = &options.selection;
    if selection.filter.is_some() {
        let mut ids = Vec::new();
        server.each(&ResourceQuery::default(), None, find::PAGE, &mut |seen| {
            if selection.covers_id(&seen.id) {
                ids.push(seen.id.to_string());
            }
            Ok(true)
        })?;
        if ids.is_empty() {
            let trouble = Trouble::said(format!("no resource of {} is selected", of.place()));
            return Err(trouble.help("`orrery resources` lists those that there are"));
        }
        request.ids = Some(ids);
    } else if !selection.agents.is_empty() {
        request.agents = Some(selection.agents.clone());
    }
    let action = if options.pending { "deploy" } else { "repair" };
    let begun: Operation = of.client.post(&of.path(&[action]), &request)?;
    let since = begun.created.parse().unwrap_or_default();
    let (unplaced, unmanaged) = (&Unplaced::default(), &Unmanaged::default());
    let run = Run { of, json: options.json, selection, unplaced, unmanaged, removal: None };
    run.follow(&begun, version.0, since)
}

pub(super) fn refuse_if_halted(of: &RemoteEnvironment) -> Result<(), Trouble> {
    if of.is_halted()? {
        let trouble = Trouble::said(format!("{} is halted: nothing is deployed there", of.place()));
        return Err(trouble.help(format!("orrery environment resume -e {}", of.name())));
    }
    Ok(())
}
