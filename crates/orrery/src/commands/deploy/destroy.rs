//! `orrery destroy`: removes everything that was deployed.

use std::path::{Path, PathBuf};

use orrery_api::{RemovalPlan, UploadBinding, VersionSummary, VersionUpload};
use orrery_executor::{declared_address, recover_with};
use orrery_handlers::HandlerCapabilities;
use orrery_model::{Removal, Resource, plan_removal};
use orrery_store::{ProjectBinding, StoreError};

use crate::cli::deploy::{Destroy, Selection, Takeover};
use crate::commands::export::{info, refuse_other_project, store};
use crate::commands::remote::terminal;
use crate::error::{CliError, finish};
use crate::remote::RemoteEnvironment;
use crate::{Exit, output, style};

use super::declared_agents::DeclaredAgents;
use super::edits::Edits;
use super::local_run::{LocalRun, RunReport, RunSummary};
use super::removal::{self, Candidate, FollowUpVersion};
use super::unmanaged::Unmanaged;
use super::unplaced::{Unplaced, inventory_here};
use super::{Handlers, LocalPaths, LocalStore, Purpose, failed, on_server, open};

const MESSAGE: &str = "orrery destroy";

pub(in crate::commands) fn run(options: &Destroy) -> Exit {
    match on_server::chosen(&options.deployment, &options.state, options.project.as_deref()) {
        Ok(Some(of)) => {
            finish(options.run.refuse_on_server().and_then(|()| destroy_on_server(&of, options)))
        }
        Ok(None) => destroy_here(options).unwrap_or_else(|error| match error {
            DestroyError::Failed(error) => failed(&*error),
            DestroyError::Refused(error) => finish(Err(error)),
            DestroyError::Reported(exit) => exit,
        }),
        Err(error) => finish(Err(error)),
    }
}

/// Reason why nothing was destroyed.
enum DestroyError {
    Failed(Box<dyn std::error::Error>),
    Refused(CliError),
    /// Printed already.
    Reported(Exit),
}

impl From<StoreError> for DestroyError {
    fn from(error: StoreError) -> Self {
        DestroyError::Failed(Box::new(error))
    }
}

/// Shows the plan and asks the user to type the name.
fn confirm(plan: &RemovalPlan, edits: &Edits, name: &str, yes: bool) -> Result<(), CliError> {
    removal::show(plan, edits);
    let count = style::count(plan.removed.len(), "resource");
    terminal::confirm_name(yes, &format!("remove {count}"), name)
}

/// Writes the report of a run without resources to remove.
fn report_nothing(version: Option<u32>, plan: &RemovalPlan) -> Exit {
    let report = RunReport {
        version,
        end: &RunSummary::default(),
        resources: Vec::new(),
        unplaced: &Unplaced::default(),
        unmanaged: &Unmanaged::default(),
        removal: Some(plan),
    };
    if report.print() { Exit::Done } else { Exit::Error }
}

fn print_destroyed(name: &str, plan: &RemovalPlan) {
    let name = style::sanitize(name);
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
    output::print_status(&format!("{}: {what}", style::good("destroyed")));
}

fn destroy_here(options: &Destroy) -> Result<Exit, DestroyError> {
    let here = || orrery_project::around_here().unwrap_or_else(|| PathBuf::from("."));
    let project = options.project.clone().unwrap_or_else(here);
    let file = options.state.file(&project);
    if !file.exists() {
        return Err(StoreError::Missing { path: file }.into());
    }
    let opened = open(&options.state, &project, "destroy")?;
    if let Some(name) = orrery_project::declared_name(&project) {
        super::check_project(&opened, &name, Takeover::default())?;
    }
    let bound = opened.store.environments().by_key(opened.environment)?.model_project;
    let name = if bound.is_empty() { orrery_project::name_of(&project) } else { bound };
    let Destroy { run, state, json, .. } = options;
    let paths = LocalPaths { project: &project, state, run, opened: Some(&opened) };
    let hosted =
        paths.stored_handler_entities().map_err(|error| DestroyError::Failed(Box::new(error)))?;
    // Agents are where they were for the version that is removed, unless the inventory says
    // otherwise by now.
    let newest = opened.store.versions().list(opened.environment)?.pop();
    let declared_agents = match &newest {
        Some(newest) => DeclaredAgents::of_version(&opened.store, &newest.info)?,
        None => DeclaredAgents::default(),
    };
    let known =
        removal::with_adopted(removal::deployed_remnants(&opened)?, options.include_adopted);
    let resources: Vec<&Resource> = known.iter().map(|one| &one.resource).collect();
    let declared_agents = declared_agents
        .with_current_inventory(&project, &resources)
        .map_err(DestroyError::Reported)?;
    let addresses = known.iter().filter_map(|one| declared_address(&one.resource)).collect();
    let inventory = inventory_here(addresses, &declared_agents);
    let capabilities =
        HandlerCapabilities::new(hosted).with_inventory(inventory.clone()).on_this_machine();
    let removal = plan_removal(Vec::new(), &known, &capabilities);
    let plan = removal::removal_plan(&removal);
    let exit = if plan.removed.is_empty() {
        if !plan.kept.is_empty() {
            removal::show(&plan, &Edits::default());
        }
        opened.store.leases().release(&opened.lease)?;
        Exit::Done
    } else {
        let edits =
            Edits::find_here(&opened, &removal, run, inventory).map_err(DestroyError::Failed)?;
        confirm(&plan, &edits, &name, options.yes).map_err(DestroyError::Refused)?;
        remove_here(&opened, removal, &plan, &paths, &declared_agents, *json)?
    };
    let left = removal::count_remaining(&opened, &plan)?;
    if left > 0 {
        removal::report_remaining(left, "destroy");
        return Ok(exit);
    }
    let after = FollowUpVersion {
        resources: Vec::new(),
        unknowns: &[],
        code: None,
        declared_agents: &DeclaredAgents::default(),
        message: MESSAGE,
        project: ProjectBinding::Unbind,
    };
    after.store_and_process(&opened, "destroy")?;
    if *json {
        let version = newest.map(|newest| newest.number.0);
        // A run that removed something has already reported.
        return Ok(if plan.removed.is_empty() { report_nothing(version, &plan) } else { exit });
    }
    print_destroyed(&name, &plan);
    Ok(exit)
}

/// Stores the removing version and runs it.
fn remove_here(
    opened: &LocalStore,
    removal: Removal,
    plan: &RemovalPlan,
    paths: &LocalPaths<'_>,
    declared_agents: &DeclaredAgents,
    json: bool,
) -> Result<Exit, DestroyError> {
    let handlers = Handlers::from_last_deploy(paths);
    let handlers = handlers.map_err(|error| DestroyError::Failed(Box::new(error)))?;
    let states = removal::states(opened)?;
    let Removal { resources, removed, .. } = removal;
    let unplaced = Unplaced::here(&resources, declared_agents, &handlers.registry);
    let code = handlers.code.as_deref();
    let purpose = Purpose { message: MESSAGE, removes: removed.len() };
    let (desired, _) = opened.put(resources, &[], code, declared_agents, purpose, None)?;
    let start = recover_with(&opened.store, opened.environment, desired, states)?;
    let (selection, unmanaged) = (Selection::default(), Unmanaged::default());
    let local_run = LocalRun {
        selection: &selection,
        run: paths.run,
        json,
        problems: 0,
        pending: false,
        unplaced,
        unmanaged: &unmanaged,
        removal: Some(plan),
    };
    Ok(local_run.run_to_end(opened, start, &handlers))
}

/// Name of the current project, if its project.yml has one.
fn own_name(project: Option<&Path>) -> Option<String> {
    let around = orrery_project::around_here();
    orrery_project::declared_name(project.or(around.as_deref())?)
}

fn destroy_on_server(of: &RemoteEnvironment, options: &Destroy) -> Result<Exit, CliError> {
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
            return Ok(report_nothing_removed(options.json, version, &name, &plan));
        }
        store(of, &after)?;
        return Ok(report_nothing_removed(options.json, version, &name, &plan));
    }
    let edits = Edits::find_on_server(of, candidate.version, options.json);
    let answer = edits.and_then(|edits| confirm(&plan, &edits, &name, options.yes));
    let done = candidate.confirmed(answer)?.carry_out(options.json)?;
    if done.left > 0 {
        removal::report_remaining(done.left, "destroy");
        return Ok(done.exit);
    }
    store(of, &after)?;
    if !options.json {
        print_destroyed(&name, &plan);
    }
    Ok(done.exit)
}

/// Reports that nothing had to be removed.
fn report_nothing_removed(
    json: bool,
    version: Option<u32>,
    name: &str,
    plan: &RemovalPlan,
) -> Exit {
    if json {
        return report_nothing(version, plan);
    }
    print_destroyed(name, plan);
    Exit::Done
}

fn newest_version(of: &RemoteEnvironment) -> Result<Option<VersionSummary>, CliError> {
    Ok(of.client.list::<VersionSummary>(&of.path(&["versions"])).next().transpose()?)
}
