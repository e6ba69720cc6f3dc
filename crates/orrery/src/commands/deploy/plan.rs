//! `orrery plan`: changes of a deploy with their causes and risks.

use orrery_executor::{ChangeCause, DesiredState, PlanEntry, Risk, plan};
use orrery_model::{
    ChangeKind, DeployedResource, LogLevel, Outcome, OutcomeStatus, Resource, ResourceId,
    ResourceState, VersionNumber,
};
use orrery_scheduler::DryRunSkip;
use orrery_store::{BegunEffect, EffectVerdict, RemovalScope, StoreError};
use rustc_hash::FxHashMap;

use crate::Exit;
use crate::cli::deploy::{DeployOptions, Plan};
use crate::commands::effects;
use crate::signals::Interrupt;

use super::plan_order::{Required, by_dependency, held_up};
use super::plan_report::{PlanFormat, PlanReport, PlanReportEntry, PlannedChange};
use super::progress::RunDisplay;
use super::removal::with_adopted;
use super::unmanaged::refuse_to_prune;
use super::unplaced::Unplaced;
use super::{
    DeployableProject, Handlers, LocalPaths, compare_projects, failed, finish, on_server, prepare,
    prune, setup,
};

pub(in crate::commands) fn run(options: &Plan) -> Exit {
    let (keep, all) = (options.keep, options.all);
    let options = &options.deploy_options;
    let form = PlanFormat { json: options.json, all };
    match on_server::chosen(&options.deployment, &options.state, options.project.project.as_deref())
    {
        Ok(Some(of)) => {
            return match options.run.refuse_on_server() {
                Ok(()) => on_server::plan(&of, options, keep, form),
                Err(error) => finish(Err(error)),
            };
        }
        Ok(None) => {}
        Err(error) => return finish(Err(error)),
    }
    let prepared = match prepare(&options.project, &options.limits, options.json, &options.state) {
        Ok(prepared) => prepared,
        Err(exit) => return exit,
    };
    prepared.warn_if_empty(options.json || options.prune);
    let DeployableProject {
        project,
        name,
        mut resources,
        problems,
        left_out,
        code,
        declared_agents,
        ..
    } = prepared;
    if options.prune
        && let Err(error) = refuse_to_prune(&left_out)
    {
        return finish(Err(error));
    }
    let DeployHistory { states: known, effects, remnants } =
        match read_history(options, &project, &name) {
            Ok(known) => known,
            Err(error) => return failed(&error),
        };
    if options.prune {
        resources = prune::plan_here(
            remnants,
            &resources,
            code.as_ref(),
            &options.selection,
            &declared_agents,
        )
        .resources;
    }
    if let Err(error) = options.selection.check_selects_some(&resources) {
        return finish(Err(error));
    }
    let paths =
        LocalPaths { project: &project, state: &options.state, run: &options.run, opened: None };
    let handlers = match Handlers::for_code(code, &paths) {
        Ok(handlers) => handlers,
        Err(error) => return failed(&error),
    };
    let interrupt = match Interrupt::listen() {
        Ok(interrupt) => interrupt,
        Err(error) => return failed(&error),
    };
    let mut removed: Vec<String> = removed(&known, &resources);
    removed.retain(|id| !id.parse().is_ok_and(|id: ResourceId| left_out.may_have(&id)));
    // Includes requirements: their changes affect the selected resources.
    let states: Vec<Option<ResourceState>> =
        resources.iter().map(|resource| known.get(resource.id.as_str()).cloned()).collect();
    let desired =
        DesiredState { version: VersionNumber(0), resources: resources.clone(), keys: Vec::new() };
    let mut display = RunDisplay::only_bar(options.json);
    let mut watch = |progress: &orrery_executor::Progress| {
        display.show(progress);
        !interrupt.is_requested()
    };
    let unplaced = Unplaced::here(&resources, &declared_agents, &handlers.registry);
    let unplaced = unplaced.of_selected(&options.selection);
    if !options.json {
        unplaced.report();
    }
    let setup = setup(&handlers, &options.run, None, unplaced.inventory.clone());
    let answers = plan(setup, desired, states.clone(), &mut watch);
    handlers.close();
    let answers = match answers {
        Ok(answers) => answers,
        Err(error) => return failed(&error),
    };
    let mut report = PlanReport { left_out: problems, removed, ..PlanReport::default() };
    report.unavailable = unplaced.groups();
    let without_machine = unplaced.ids();
    let required: Vec<Required<'_>> = resources
        .iter()
        .map(|resource| Required {
            id: resource.id.as_str(),
            requires: resource.requires.iter().map(ResourceId::as_str).collect(),
        })
        .collect();
    let held_up = held_up(&without_machine.iter().map(ToString::to_string).collect(), &required);
    for ((resource, state), answer) in resources.iter().zip(&states).zip(&answers) {
        if without_machine.contains(&resource.id) {
            continue;
        }
        if options.selection.covers(resource) {
            if let Some(cause) = held_up.get(resource.id.as_str()) {
                report.entries.push(PlanReportEntry::skipped(resource.id.as_str(), cause));
                continue;
            }
            match unsettled(resource, &effects)
                .unwrap_or_else(|| plan_entry(resource, state.as_ref(), answer))
            {
                Some(entry) => report.entries.push(entry),
                None => report.same += 1,
            }
        }
    }
    display.close();
    report.sort(&by_dependency(required));
    let exit = report.show(form, display.elapsed(), serde_json::Value::Null);
    if interrupt.is_requested() { Exit::Error } else { exit }
}

/// State of earlier deploys.
#[derive(Default)]
struct DeployHistory {
    /// By resource id.
    states: FxHashMap<String, ResourceState>,
    /// Effects that must not be repeated and have no recorded outcome, by resource id.
    effects: FxHashMap<String, BegunEffect>,
    /// Resources that can be pruned.
    remnants: Vec<DeployedResource>,
}

/// Reads the stored state; empty if nothing was deployed.
fn read_history(
    options: &DeployOptions,
    project: &std::path::Path,
    name: &str,
) -> Result<DeployHistory, StoreError> {
    let mut known = DeployHistory::default();
    let store = match options.state.open_read_only(project) {
        Ok(store) => store,
        Err(StoreError::Missing { .. }) => return Ok(known),
        Err(error) => return Err(error),
    };
    let environments = store.environments().list(None)?;
    let Some(environment) = environments.first() else { return Ok(known) };
    compare_projects(&store, environment.key, name, options.takeover)?;
    store.engine().read_states(environment.key, &mut |row| {
        known.states.insert(row.id.to_owned(), row.state.clone());
    })?;
    let begun = store.effects().begun(environment.key)?;
    known.effects = begun.into_iter().map(|effect| (effect.name.clone(), effect)).collect();
    known.remnants = match options.prune {
        true => with_adopted(
            store.resources().unmanaged(environment.key, RemovalScope::All)?,
            options.include_adopted,
        ),
        false => Vec::new(),
    };
    Ok(known)
}

/// Ids of deployed resources that are no longer in the model.
fn removed(known: &FxHashMap<String, ResourceState>, resources: &[Resource]) -> Vec<String> {
    let deploy_options =
        |id: &str| resources.binary_search_by(|one| one.id.as_str().cmp(id)).is_ok();
    let mut removed: Vec<String> = known
        .iter()
        .filter(|(id, state)| state.intent.is_some() && !deploy_options(id))
        .map(|(id, _)| id.clone())
        .collect();
    removed.sort_unstable();
    removed
}

/// Planned change of a resource with an unrepeatable effect that was started: `Some(None)` if it
/// counts as done, `None` if it runs normally.
#[expect(clippy::option_option, reason = "the three cases are documented above")]
fn unsettled(
    resource: &Resource,
    effects: &FxHashMap<String, BegunEffect>,
) -> Option<Option<PlanReportEntry>> {
    let effect = effects.get(resource.id.as_str())?;
    match effect.choice {
        Some(EffectVerdict::RunAgain) => None,
        Some(EffectVerdict::Done) => Some(None),
        None => {
            let message = effects::pending_decision(effect.started.into());
            Some(Some(entry(resource, PlannedChange::Unclear(message))))
        }
    }
}

/// Entry of a resource in the plan, unless it is unchanged.
fn plan_entry(
    resource: &Resource,
    state: Option<&ResourceState>,
    answer: &PlanEntry,
) -> Option<PlanReportEntry> {
    let what = match answer {
        PlanEntry::Evaluated(Outcome { status: OutcomeStatus::Deployed, change, .. }) => {
            if change.kind == ChangeKind::NoChange {
                return None;
            }
            let cause = ChangeCause::for_change(resource, state, change);
            PlannedChange::Change {
                kind: change.kind,
                attributes: change.attributes.clone(),
                cause: Some(cause.as_str().to_owned()),
                risk: Some(Risk::for_change(resource, change, cause)),
            }
        }
        PlanEntry::Evaluated(outcome) => {
            let line = outcome.log.iter().rfind(|line| line.level >= LogLevel::Warning);
            let line = line.or(outcome.log.last());
            let message = line.map_or(outcome.status.as_str(), |line| &line.message);
            PlannedChange::Unclear(message.to_owned())
        }
        PlanEntry::NotEvaluated(DryRunSkip::Undefined) => {
            PlannedChange::Unclear("it has unknown attributes".to_owned())
        }
        PlanEntry::NotEvaluated(DryRunSkip::SkippedForUndefined) => {
            PlannedChange::Unclear("a requirement has unknown attributes".to_owned())
        }
        PlanEntry::NotEvaluated(DryRunSkip::AgentDown) => {
            PlannedChange::Unclear("its agent is paused".to_owned())
        }
        PlanEntry::Cancelled => PlannedChange::Unclear("the dry run was cancelled".to_owned()),
    };
    Some(entry(resource, what))
}

fn entry(resource: &Resource, what: PlannedChange) -> PlanReportEntry {
    let source = resource.source.as_ref().map(ToString::to_string);
    // Attributes written by the compiler are valid JSON.
    let desired = resource.attributes.read().unwrap_or_default();
    PlanReportEntry { id: resource.id.to_string(), source, what, desired }
}
