//! `orrery destroy`: removes everything that was deployed.

use std::path::{Path, PathBuf};

use orrery_api::{RemovalPlan, UploadBinding, VersionSummary, VersionUpload};
use orrery_executor::{declared_address, recovery_with};
use orrery_handlers::Abilities;
use orrery_model::{Removal, plan_removal};
use orrery_store::{ProjectBinding, Store as _, StoreError, local_agents};

use crate::cli_deploy::{Destroy, Selection, Takeover};
use crate::commands::export::{info, refuse_other_project, store};
use crate::commands::remote::terminal;
use crate::commands::trouble::{Trouble, finish};
use crate::remote::RemoteEnvironment;
use crate::{Exit, output, projects, style};

use super::edits::Edits;
use super::pass::{End, Pass, Report};
use super::placing::{Unplaced, inventory_here};
use super::removal::{self, Afterwards, Candidate};
use super::unmanaged::Unmanaged;
use super::{Handlers, Opened, Place, Purpose, failed, on_server, open};

const MESSAGE: &str = "orrery destroy";

pub(in crate::commands) fn run(options: &Destroy) -> Exit {
    match on_server::chosen(&options.place, &options.state, options.project.as_deref()) {
        Ok(Some(of)) => {
            finish(options.run.refuse_on_server().and_then(|()| destroy_on_server(&of, options)))
        }
        Ok(None) => destroy_here(options).unwrap_or_else(|error| match error {
            Stopped::Failed(error) => failed(&*error),
            Stopped::Refused(trouble) => finish(Err(trouble)),
        }),
        Err(trouble) => finish(Err(trouble)),
    }
}

/// Why nothing was destroyed.
enum Stopped {
    Failed(Box<dyn std::error::Error>),
    Refused(Trouble),
}

impl From<StoreError> for Stopped {
    fn from(error: StoreError) -> Self {
        Stopped::Failed(Box::new(error))
    }
}

/// Shows what goes, and has its name typed.
fn confirm(plan: &RemovalPlan, edits: &Edits, name: &str, yes: bool) -> Result<(), Trouble> {
    removal::show(plan, edits);
    let count = style::count(plan.removed.len(), "resource");
    terminal::confirm_name(yes, &format!("remove {count}"), name)
}

/// Writes the report of a run that had nothing to do.
fn report_nothing(version: Option<u32>, plan: &RemovalPlan) -> Exit {
    let report = Report {
        version,
        end: &End::default(),
        resources: Vec::new(),
        unplaced: &Unplaced::default(),
        unmanaged: &Unmanaged::default(),
        removal: Some(plan),
    };
    if report.print() { Exit::Done } else { Exit::Error }
}

fn tell_destroyed(name: &str, plan: &RemovalPlan) {
    let name = style::harmless(name);
    let what = match (plan.removed.len(), plan.kept.len()) {
        (0, 0) => format!("nothing of {name} was deployed"),
        (_, 0) => format!("nothing of {name} is left"),
        (_, kept) => {
            format!(
                "nothing of {name} is managed; {} left in place",
                style::count(kept, "resource")
            )
        }
    };
    output::say(&format!("{}: {what}", style::good("destroyed")));
}

fn destroy_here(options: &Destroy) -> Result<Exit, Stopped> {
    let here = || projects::around_here().unwrap_or_else(|| PathBuf::from("."));
    let project = options.project.clone().unwrap_or_else(here);
    let file = options.state.file(&project);
    if !file.exists() {
        return Err(StoreError::Missing { path: file }.into());
    }
    let opened = open(&options.state, &project, "destroy")?;
    if projects::described_name(&project).is_some() {
        super::check_project(&opened, &project, Takeover::default())?;
    }
    let bound = opened.store.records().environment_of(opened.environment)?.model_project;
    let name = if bound.is_empty() { projects::name_of(&project) } else { bound };
    let Destroy { run, state, json, .. } = options;
    let place = Place { project: &project, state, run, opened: Some(&opened) };
    let hosted = place.kept_handlers().map_err(|error| Stopped::Failed(Box::new(error)))?;
    // The machines are those of what is removed.
    let newest = opened.store.versions(opened.environment)?.pop();
    let local_agents = newest.as_ref().map(|newest| local_agents(&newest.info)).unwrap_or_default();
    let known = removal::with_adopted(removal::known(&opened)?, options.include_adopted);
    let addresses = known.iter().filter_map(|one| declared_address(&one.resource)).collect();
    let inventory = inventory_here(addresses, &local_agents);
    let abilities = Abilities::new(hosted).with_inventory(inventory.clone()).on_this_machine();
    let removal = plan_removal(Vec::new(), &known, &abilities);
    let plan = removal::plan_of(&removal);
    let exit = if plan.removed.is_empty() {
        if !plan.kept.is_empty() {
            removal::show(&plan, &Edits::default());
        }
        opened.store.release_lease(&opened.lease)?;
        Exit::Done
    } else {
        let edits = Edits::find_here(&opened, &removal, run, inventory).map_err(Stopped::Failed)?;
        confirm(&plan, &edits, &name, options.yes).map_err(Stopped::Refused)?;
        remove_here(&opened, removal, &plan, &place, &local_agents, *json)?
    };
    let left = removal::left_here(&opened, &plan)?;
    if left > 0 {
        removal::tell_left(left, "destroy");
        return Ok(exit);
    }
    let after = Afterwards {
        resources: Vec::new(),
        unknowns: &[],
        code: None,
        local_agents: &[],
        message: MESSAGE,
        project: ProjectBinding::Unbind,
    };
    after.keep(&opened, "destroy")?;
    if *json {
        let version = newest.map(|newest| newest.number.0);
        // A run that removed something has reported already.
        return Ok(if plan.removed.is_empty() { report_nothing(version, &plan) } else { exit });
    }
    tell_destroyed(&name, &plan);
    Ok(exit)
}

/// Stores the version that removes, and runs it.
fn remove_here(
    opened: &Opened,
    removal: Removal,
    plan: &RemovalPlan,
    place: &Place<'_>,
    local_agents: &[String],
    json: bool,
) -> Result<Exit, Stopped> {
    let handlers = Handlers::kept(place);
    let handlers = handlers.map_err(|error| Stopped::Failed(Box::new(error)))?;
    let states = removal::states(opened)?;
    let Removal { resources, removed, .. } = removal;
    let unplaced = Unplaced::here(&resources, local_agents, &handlers.registry);
    let code = handlers.code.as_deref();
    let purpose = Purpose { message: MESSAGE, removes: removed.len() };
    let (desired, _) = opened.put(resources, &[], code, local_agents, purpose, None)?;
    let start = recovery_with(&*opened.store, opened.environment, desired, states)?;
    let (selection, unmanaged) = (Selection::default(), Unmanaged::default());
    let pass = Pass {
        selection: &selection,
        run: place.run,
        json,
        problems: 0,
        pending: false,
        unplaced,
        unmanaged: &unmanaged,
        removal: Some(plan),
    };
    Ok(pass.go(opened, start, &handlers))
}

/// The project around here, if it says what it is called.
fn own_name(project: Option<&Path>) -> Option<String> {
    let around = projects::around_here();
    projects::described_name(project.or(around.as_deref())?)
}

fn destroy_on_server(of: &RemoteEnvironment, options: &Destroy) -> Result<Exit, Trouble> {
    on_server::refuse_if_halted(of)?;
    let project = own_name(options.project.as_deref());
    if let Some(name) = &project {
        refuse_other_project(of, name, Takeover::default())?;
    }
    let binding = if project.is_some() { UploadBinding::Check } else { UploadBinding::Bind };
    let nothing = VersionUpload { info: info(MESSAGE), project, binding, ..Default::default() };
    let upload = VersionUpload {
        prune: true,
        include_adopted: options.include_adopted,
        release: Some(false),
        ..nothing.clone()
    };
    let candidate = Candidate::store(of, &upload)?;
    let name = of.name();
    let plan = candidate.plan.clone();
    let after = VersionUpload {
        release: Some(true),
        only_if_changed: true,
        binding: UploadBinding::Unbind,
        ..nothing
    };
    if plan.removed.is_empty() {
        candidate.discard()?;
        if !plan.kept.is_empty() {
            removal::show(&plan, &Edits::default());
        }
        let newest = newest_version(of)?;
        let version = newest.as_ref().map(|newest| newest.number);
        if newest.is_none_or(|newest| newest.total == 0) && plan.kept.is_empty() {
            return Ok(tell_nothing(options.json, version, &name, &plan));
        }
        store(of, &after)?;
        return Ok(tell_nothing(options.json, version, &name, &plan));
    }
    let edits = Edits::find_on_server(of, candidate.version, options.json);
    let answer = edits.and_then(|edits| confirm(&plan, &edits, &name, options.yes));
    let done = candidate.confirmed(answer)?.carry_out(options.json)?;
    if done.left > 0 {
        removal::tell_left(done.left, "destroy");
        return Ok(done.exit);
    }
    store(of, &after)?;
    if !options.json {
        tell_destroyed(&name, &plan);
    }
    Ok(done.exit)
}

/// Tells that nothing had to be removed.
fn tell_nothing(json: bool, version: Option<u32>, name: &str, plan: &RemovalPlan) -> Exit {
    if json {
        return report_nothing(version, plan);
    }
    tell_destroyed(name, plan);
    Exit::Done
}

fn newest_version(of: &RemoteEnvironment) -> Result<Option<VersionSummary>, Trouble> {
    Ok(of.client.list::<VersionSummary>(&of.path(&["versions"])).next().transpose()?)
}
