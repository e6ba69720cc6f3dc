//! `orrery settle`: decides about effects that must not be repeated and of which nobody knows whether they happened.

use orrery_api::{Operation, SettleChoice, SettleRequest, UnknownEffect, UnknownEffects};
use orrery_store::{EffectChoice, Store as _, StoreError};
use serde_json::json;

use super::deploy;
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
        return list(&unknown, look.json);
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
    place.choose(&effect.resource, choice)?;
    if look.json {
        print_json(&json!({"resource": effect.resource, "choice": choice}))?;
        return Ok(Exit::Done);
    }
    let word = match choice {
        SettleChoice::Done => "counts as done",
        SettleChoice::Again => "is run again",
    };
    let when = place.when();
    output::say(&format!("{}: {word}{when}", style::harmless(&effect.resource)));
    Ok(Exit::Done)
}

fn list(unknown: &[UnknownEffect], json: bool) -> Result<Exit, Trouble> {
    if json {
        print_json(&json!({ "items": unknown }))?;
    } else {
        let mut text: String = unknown
            .iter()
            .map(|one| {
                let resource = style::harmless(&one.resource);
                format!("{resource}: begun at {}, outcome unknown\n", one.started)
            })
            .collect();
        if unknown.is_empty() {
            text.push_str("no outcome is unknown\n");
        }
        if !output::print_styled(&text) {
            return Ok(Exit::Error);
        }
    }
    Ok(if unknown.is_empty() { Exit::Done } else { Exit::Pending })
}

/// Where effects are known.
trait Place {
    fn unknown(&self) -> Result<Vec<UnknownEffect>, Trouble>;
    fn choose(&self, resource: &str, choice: SettleChoice) -> Result<(), Trouble>;
    /// When a choice takes effect, if that is not at once.
    fn when(&self) -> &'static str;
}

impl Place for RemoteEnvironment {
    fn unknown(&self) -> Result<Vec<UnknownEffect>, Trouble> {
        let found: UnknownEffects = self.client.get(&self.path(&["unknown-effects"]))?;
        Ok(found.items)
    }

    fn choose(&self, resource: &str, choice: SettleChoice) -> Result<(), Trouble> {
        let request = SettleRequest { resource: resource.to_owned(), choice };
        let path = self.path(&["unknown-effects", "settle"]);
        let _: Operation = self.client.post(&path, &request)?;
        Ok(())
    }

    fn when(&self) -> &'static str {
        ""
    }
}

impl Place for deploy::Opened {
    fn unknown(&self) -> Result<Vec<UnknownEffect>, Trouble> {
        let found = self.store.records().unknown_effects(self.environment)?;
        let shown = |one: orrery_store::BegunEffect| UnknownEffect {
            resource: one.name,
            version: one.version.0,
            started: one.started.to_string(),
            choice: None,
        };
        Ok(found.into_iter().map(shown).collect())
    }

    fn choose(&self, resource: &str, choice: SettleChoice) -> Result<(), Trouble> {
        let choice = match choice {
            SettleChoice::Done => EffectChoice::Done,
            SettleChoice::Again => EffectChoice::RunAgain,
        };
        let chosen: Result<(), StoreError> =
            self.store.records().choose_effect_under(&self.lease, resource, choice);
        Ok(chosen?)
    }

    fn when(&self) -> &'static str {
        " with the next deploy"
    }
}
