//! `orrery settle`: decides about unrepeatable effects with unknown outcomes.

use orrery_api::{Operation, SettleChoice, SettleRequest, UnknownEffect, UnknownEffects};
use orrery_project::{MAIN_FILE, find_directory};
use orrery_store::{EffectResolution, EffectVerdict};
use serde_json::json;

use super::deploy;
use super::effects::{self, SettleTiming};
use super::inspect::print_json;
use crate::cli::inspect::Settle;
use crate::error::{CliError, finish};
use crate::remote::RemoteEnvironment;
use crate::{Exit, output, style};

pub(crate) fn run(options: &Settle) -> Exit {
    finish(settle(options))
}

fn settle(options: &Settle) -> Result<Exit, CliError> {
    let inspect = &options.inspect;
    let effects_of: Box<dyn EffectStore> =
        match inspect.deployment.remote(inspect.project.as_deref())? {
            Some(remote) if inspect.state.data.is_none() => Box::new(remote),
            _ => {
                let project = find_directory(inspect.project.as_deref(), MAIN_FILE)
                    .map_err(CliError::Project)?;
                Box::new(deploy::open(&inspect.state, &project, "settle")?)
            }
        };
    let unknown = effects_of.unknown()?;
    let Some(asked) = &options.resource else {
        return list(&unknown, inspect.json, effects_of.timing());
    };
    let found: Vec<&UnknownEffect> = match unknown.iter().find(|one| one.resource == *asked) {
        Some(exact) => vec![exact],
        None => unknown.iter().filter(|one| one.resource.contains(asked.as_str())).collect(),
    };
    let [effect] = found[..] else {
        let message = match found.len() {
            0 => format!("no effect with an unknown outcome matches {asked:?}"),
            count => format!("{count} effects with unknown outcomes match {asked:?}"),
        };
        let help = "`orrery settle` without a resource lists all of them";
        return Err(CliError::new(message).help(help));
    };
    let choice = if options.done { SettleChoice::Done } else { SettleChoice::Again };
    let is_forgotten = effects_of.choose(&effect.resource, choice)?;
    if inspect.json {
        let report = json!({
            "resource": effect.resource,
            "choice": choice,
            "forgotten": is_forgotten,
        });
        print_json(&report)?;
        return Ok(Exit::Done);
    }
    let next = match is_forgotten {
        true => "in no version any more: effect dropped".to_owned(),
        false => effects::decision(choice, effects_of.timing()),
    };
    output::print_status(&format!("{}: {next}", style::sanitize(&effect.resource)));
    Ok(Exit::Done)
}

fn list(unknown: &[UnknownEffect], json: bool, timing: SettleTiming) -> Result<Exit, CliError> {
    if json {
        print_json(&json!({ "items": unknown }))?;
    } else {
        let mut text: String = unknown
            .iter()
            .map(|one| {
                let resource = style::sanitize(&one.resource);
                let started = &one.started;
                let next = match one.choice {
                    Some(choice) => format!(": {}", effects::decision(choice, timing)),
                    None => String::new(),
                };
                format!("{resource}: started at {started}, outcome unknown{next}\n")
            })
            .collect();
        if unknown.is_empty() {
            text.push_str("no unknown outcomes\n");
        }
        if !output::print_styled(&text) {
            return Ok(Exit::Error);
        }
    }
    let is_decided = unknown.iter().all(|effect| effect.choice.is_some());
    Ok(if is_decided { Exit::Done } else { Exit::Pending })
}

/// Store of unknown effects, local or on a server.
trait EffectStore {
    fn unknown(&self) -> Result<Vec<UnknownEffect>, CliError>;
    /// Stores the choice. Returns true if the effect was dropped, because its resource is in no
    /// version.
    fn choose(&self, resource: &str, choice: SettleChoice) -> Result<bool, CliError>;
    /// Time at which a choice is applied.
    fn timing(&self) -> SettleTiming;
}

impl EffectStore for RemoteEnvironment {
    fn unknown(&self) -> Result<Vec<UnknownEffect>, CliError> {
        let found: UnknownEffects = self.client.get(&self.path(&["unknown-effects"]))?;
        Ok(found.items)
    }

    fn choose(&self, resource: &str, choice: SettleChoice) -> Result<bool, CliError> {
        let request = SettleRequest { resource: resource.to_owned(), choice };
        let path = self.path(&["unknown-effects", "settle"]);
        let created: Operation = self.client.post(&path, &request)?;
        Ok(created.outcome.is_some_and(|outcome| outcome["forgotten"] == true))
    }

    fn timing(&self) -> SettleTiming {
        SettleTiming::AtOnce
    }
}

impl EffectStore for deploy::LocalStore {
    fn unknown(&self) -> Result<Vec<UnknownEffect>, CliError> {
        let store = &self.store;
        // This process holds the lease: nothing is running.
        store.effects().recover(&self.lease)?;
        let found = store.effects().unknown(self.environment)?;
        Ok(found.into_iter().map(effects::from_store).collect())
    }

    fn choose(&self, resource: &str, choice: SettleChoice) -> Result<bool, CliError> {
        let choice = match choice {
            SettleChoice::Done => EffectVerdict::Done,
            SettleChoice::Again => EffectVerdict::RunAgain,
        };
        let decision = self.store.effects().resolve_under_lease(&self.lease, resource, choice)?;
        Ok(decision == EffectResolution::Deleted)
    }

    fn timing(&self) -> SettleTiming {
        SettleTiming::NextDeploy
    }
}
