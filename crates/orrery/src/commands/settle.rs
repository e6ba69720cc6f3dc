//! `orrery settle`: decides about effects that must not be repeated and of which nobody knows whether they happened.

use orrery_api::{Operation, SettleChoice, SettleRequest, UnknownEffect, UnknownEffects};
use orrery_store::{EffectChoice, EffectDecision, Store as _};
use serde_json::json;

use super::deploy;
use super::effects::{self, Acting};
use super::inspect::print_json;
use super::trouble::{Trouble, finish};
use crate::cli_inspect::Settle;
use crate::projects::{self, MAIN_FILE};
use crate::remote::RemoteEnvironment;
use crate::{Exit, output, style};

pub(crate) fn run(options: &Settle) -> Exit {
    finish(settle(options))
}

fn settle(options: &Settle) -> Result<Exit, Trouble> {
    let look = &options.look;
    let place: Box<dyn Place> = match look.place.remote(look.project.as_deref())? {
        Some(remote) if look.state.data.is_none() => Box::new(remote),
        _ => {
            let project = projects::directory(look.project.as_deref(), MAIN_FILE)
                .map_err(Trouble::Project)?;
            Box::new(deploy::open(&look.state, &project, "settle")?)
        }
    };
    let unknown = place.unknown()?;
    let Some(asked) = &options.resource else {
        return list(&unknown, look.json, place.acting());
    };
    let found: Vec<&UnknownEffect> = match unknown.iter().find(|one| one.resource == *asked) {
        Some(exact) => vec![exact],
        None => unknown.iter().filter(|one| one.resource.contains(asked.as_str())).collect(),
    };
    let [effect] = found[..] else {
        let message = match found.len() {
            0 => format!("no effect with an unknown outcome belongs to {asked:?}"),
            count => format!("{count} effects with unknown outcomes belong to {asked:?}"),
        };
        let help = "`orrery settle` without a resource lists all of them";
        return Err(Trouble::said(message).help(help));
    };
    let choice = if options.done { SettleChoice::Done } else { SettleChoice::Again };
    let is_forgotten = place.choose(&effect.resource, choice)?;
    if look.json {
        let report = json!({
            "resource": effect.resource,
            "choice": choice,
            "forgotten": is_forgotten,
        });
        print_json(&report)?;
        return Ok(Exit::Done);
    }
    let next = match is_forgotten {
        true => "no version has it any more, the effect is forgotten".to_owned(),
        false => effects::decision(choice, place.acting()),
    };
    output::say(&format!("{}: {next}", style::harmless(&effect.resource)));
    Ok(Exit::Done)
}

fn list(unknown: &[UnknownEffect], json: bool, acting: Acting) -> Result<Exit, Trouble> {
    if json {
        print_json(&json!({ "items": unknown }))?;
    } else {
        let mut text: String = unknown
            .iter()
            .map(|one| {
                let resource = style::harmless(&one.resource);
                let started = &one.started;
                let next = match one.choice {
                    Some(choice) => format!(": {}", effects::decision(choice, acting)),
                    None => String::new(),
                };
                format!("{resource}: begun at {started}, outcome unknown{next}\n")
            })
            .collect();
        if unknown.is_empty() {
            text.push_str("no outcome is unknown\n");
        }
        if !output::print_styled(&text) {
            return Ok(Exit::Error);
        }
    }
    let is_decided = unknown.iter().all(|effect| effect.choice.is_some());
    Ok(if is_decided { Exit::Done } else { Exit::Pending })
}

/// Where effects are known.
trait Place {
    fn unknown(&self) -> Result<Vec<UnknownEffect>, Trouble>;
    /// Answers whether the effect is forgotten, because no version has its resource any more.
    fn choose(&self, resource: &str, choice: SettleChoice) -> Result<bool, Trouble>;
    /// When a choice takes effect.
    fn acting(&self) -> Acting;
}

impl Place for RemoteEnvironment {
    fn unknown(&self) -> Result<Vec<UnknownEffect>, Trouble> {
        let found: UnknownEffects = self.client.get(&self.path(&["unknown-effects"]))?;
        Ok(found.items)
    }

    fn choose(&self, resource: &str, choice: SettleChoice) -> Result<bool, Trouble> {
        let request = SettleRequest { resource: resource.to_owned(), choice };
        let path = self.path(&["unknown-effects", "settle"]);
        let made: Operation = self.client.post(&path, &request)?;
        Ok(made.outcome.is_some_and(|outcome| outcome["forgotten"] == true))
    }

    fn acting(&self) -> Acting {
        Acting::AtOnce
    }
}

impl Place for deploy::Opened {
    fn unknown(&self) -> Result<Vec<UnknownEffect>, Trouble> {
        let records = self.store.records();
        // This process holds the lease: nothing is under way.
        records.recover_effects(&self.lease)?;
        let found = records.unknown_effects(self.environment)?;
        Ok(found.into_iter().map(effects::from_store).collect())
    }

    fn choose(&self, resource: &str, choice: SettleChoice) -> Result<bool, Trouble> {
        let choice = match choice {
            SettleChoice::Done => EffectChoice::Done,
            SettleChoice::Again => EffectChoice::RunAgain,
        };
        let decision = self.store.records().choose_effect_under(&self.lease, resource, choice)?;
        Ok(decision == EffectDecision::Forgotten)
    }

    fn acting(&self) -> Acting {
        Acting::NextDeploy
    }
}
