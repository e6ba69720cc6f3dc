//! `orrery plan`: what a deploy would change, why, and how risky that is.

use orrery_executor::{Cause, Desired, Planned, Risk, plan};
use orrery_model::{
    ChangeKind, LogLevel, Outcome, OutcomeStatus, Remnant, Resource, ResourceId, ResourceState,
    VersionNumber,
};
use orrery_scheduler::DryRunAnswer;
use orrery_store::{BegunEffect, EffectChoice, RemnantScope, Store, StoreError};
use rustc_hash::FxHashMap;

use crate::Exit;
use crate::cli_deploy::{Plan, Wanted};
use crate::commands::effects;
use crate::signals::Interrupt;

use super::forecast::{Entry, Forecast, Form, What};
use super::placing::Unplaced;
use super::plan_order::{Required, by_dependency, held_up};
use super::progress::Display;
use super::removal::with_adopted;
use super::unmanaged::refuse_to_prune;
use super::{
    Handlers, Place, Prepared, compare_projects, failed, finish, on_server, prepare, prune, setup,
};

pub(in crate::commands) fn run(options: &Plan) -> Exit {
    let (keep, all) = (options.keep, options.all);
    let options = &options.wanted;
    let form = Form { json: options.json, all };
    match on_server::chosen(&options.place, &options.state, options.project.project.as_deref()) {
        Ok(Some(of)) => {
            return match options.run.refuse_on_server() {
                Ok(()) => on_server::plan(&of, options, keep, form),
                Err(trouble) => finish(Err(trouble)),
            };
        }
        Ok(None) => {}
        Err(trouble) => return finish(Err(trouble)),
    }
    let prepared = match prepare(&options.project, &options.limits, options.json, &options.state) {
        Ok(prepared) => prepared,
        Err(exit) => return exit,
    };
    prepared.tell_if_empty(options.json || options.prune);
    let Prepared { project, mut resources, problems, left_out, code, local_agents, .. } = prepared;
    if options.prune
        && let Err(trouble) = refuse_to_prune(&left_out)
    {
        return finish(Err(trouble));
    }
    let Known { states: known, effects, remnants } = match known_states(options, &project) {
        Ok(known) => known,
        Err(error) => return failed(&error),
    };
    if options.prune {
        resources = prune::plan_here(
            remnants,
            &resources,
            code.as_ref(),
            &options.selection,
            &local_agents,
        )
        .resources;
    }
    if let Err(trouble) = options.selection.refuse_if_none_of(&resources) {
        return finish(Err(trouble));
    }
    let place = Place { project: &project, state: &options.state, run: &options.run, opened: None };
    let handlers = match Handlers::of(code, &place) {
        Ok(handlers) => handlers,
        Err(error) => return failed(&error),
    };
    let interrupt = match Interrupt::listen() {
        Ok(interrupt) => interrupt,
        Err(error) => return failed(&error),
    };
    let mut removed: Vec<String> = removed(&known, &resources);
    removed.retain(|id| !id.parse().is_ok_and(|id: ResourceId| left_out.may_have(&id)));
    // Requirements are looked at too, since what they would change matters to those that are selected.
    let states: Vec<Option<ResourceState>> =
        resources.iter().map(|resource| known.get(resource.id.as_str()).cloned()).collect();
    let desired =
        Desired { version: VersionNumber(0), resources: resources.clone(), keys: Vec::new() };
    let mut display = Display::only_bar(options.json);
    let mut watch = |progress: &orrery_executor::Progress| {
        display.show(progress);
        !interrupt.is_asked()
    };
    let unplaced = Unplaced::here(&resources, &local_agents, &handlers.registry);
    let unplaced = unplaced.of_selected(&options.selection);
    if !options.json {
        unplaced.tell();
    }
    let setup = setup(&handlers, &options.run, None, unplaced.inventory.clone());
    let answers = plan(setup, desired, states.clone(), &mut watch);
    handlers.close();
    let answers = match answers {
        Ok(answers) => answers,
        Err(error) => return failed(&error),
    };
    let mut forecast = Forecast { left_out: problems, removed, ..Forecast::default() };
    forecast.unavailable = unplaced.groups();
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
                forecast.entries.push(Entry::skipped(resource.id.as_str(), cause));
                continue;
            }
            match unsettled(resource, &effects)
                .unwrap_or_else(|| foreseen(resource, state.as_ref(), answer))
            {
                Some(entry) => forecast.entries.push(entry),
                None => forecast.same += 1,
            }
        }
    }
    display.close();
    forecast.sort(&by_dependency(required));
    let exit = forecast.show(form, display.elapsed(), serde_json::Value::Null);
    if interrupt.is_asked() { Exit::Error } else { exit }
}

/// What is known of earlier deploys.
#[derive(Default)]
struct Known {
    /// By the ids of resources.
    states: FxHashMap<String, ResourceState>,
    /// Effects that must not be repeated and whose results are not recorded, by the ids of resources.
    effects: FxHashMap<String, BegunEffect>,
    /// What can be pruned.
    remnants: Vec<Remnant>,
}

/// What is kept; nothing if nothing was ever deployed.
fn known_states(options: &Wanted, project: &std::path::Path) -> Result<Known, StoreError> {
    let mut known = Known::default();
    let store = match options.state.look(project) {
        Ok(store) => store,
        Err(StoreError::Missing { .. }) => return Ok(known),
        Err(error) => return Err(error),
    };
    let environments = store.environments()?;
    let Some(environment) = environments.first() else { return Ok(known) };
    compare_projects(&store, environment.key, project, options.takeover)?;
    store.read_states(environment.key, &mut |row| {
        known.states.insert(row.id.to_owned(), row.state.clone());
    })?;
    let begun = store.records().begun_effects(environment.key)?;
    known.effects = begun.into_iter().map(|effect| (effect.name.clone(), effect)).collect();
    known.remnants = match options.prune {
        true => with_adopted(
            store.records().remnants(environment.key, RemnantScope::All)?,
            options.include_adopted,
        ),
        false => Vec::new(),
    };
    Ok(known)
}

/// Resources that were wanted and are not any more.
fn removed(known: &FxHashMap<String, ResourceState>, resources: &[Resource]) -> Vec<String> {
    let wanted = |id: &str| resources.binary_search_by(|one| one.id.as_str().cmp(id)).is_ok();
    let mut removed: Vec<String> = known
        .iter()
        .filter(|(id, state)| state.intent.is_some() && !wanted(id))
        .map(|(id, _)| id.clone())
        .collect();
    removed.sort_unstable();
    removed
}

/// What would become of a resource whose effect must not be repeated and was begun before: `Some(None)` if it counts as done,
/// `None` if it would be run as any other.
fn unsettled(
    resource: &Resource,
    effects: &FxHashMap<String, BegunEffect>,
) -> Option<Option<Entry>> {
    let effect = effects.get(resource.id.as_str())?;
    match effect.choice {
        Some(EffectChoice::RunAgain) => None,
        Some(EffectChoice::Done) => Some(None),
        None => {
            let message = effects::foreseen(&effect.started.to_string());
            Some(Some(entry(resource, What::Unclear(message))))
        }
    }
}

/// What would become of a resource, unless it stays as it is.
fn foreseen(resource: &Resource, state: Option<&ResourceState>, answer: &Planned) -> Option<Entry> {
    let what = match answer {
        Planned::Asked(Outcome { status: OutcomeStatus::Deployed, change, .. }) => {
            if change.kind == ChangeKind::NoChange {
                return None;
            }
            let cause = Cause::of(resource, state, change);
            What::Change {
                kind: change.kind,
                attributes: change.attributes.clone(),
                cause: Some(cause.as_str().to_owned()),
                risk: Some(Risk::of(resource, change, cause)),
            }
        }
        Planned::Asked(outcome) => {
            let line = outcome.log.iter().rfind(|line| line.level >= LogLevel::Warning);
            let line = line.or(outcome.log.last());
            let message = line.map_or(outcome.status.as_str(), |line| &line.message);
            What::Unclear(message.to_owned())
        }
        Planned::NotAsked(DryRunAnswer::Undefined) => {
            What::Unclear("something about it is not known yet".to_owned())
        }
        Planned::NotAsked(DryRunAnswer::SkippedForUndefined) => {
            What::Unclear("something that it requires is not known yet".to_owned())
        }
        Planned::NotAsked(DryRunAnswer::AgentDown) => {
            What::Unclear("its agent is paused".to_owned())
        }
        Planned::Unanswered => What::Unclear("it was not asked".to_owned()),
    };
    Some(entry(resource, what))
}

fn entry(resource: &Resource, what: What) -> Entry {
    let source = resource.source.as_ref().map(ToString::to_string);
    // The compiler has written what is read here.
    let desired = resource.attributes.read().unwrap_or_default();
    Entry { id: resource.id.to_string(), source, what, desired }
}
