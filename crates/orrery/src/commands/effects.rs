//! Effects that must not be repeated and whose outcomes are unknown, in the words of all commands that show them.

use orrery_api::{SettleChoice, UnknownEffect};
use orrery_store::{BegunEffect, EffectChoice};

/// Where a decision takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acting {
    /// The engine of a server acts on it at once.
    AtOnce,
    /// The next deploy of a local project acts on it.
    NextDeploy,
}

impl Acting {
    /// What follows the words for a decision.
    fn suffix(self) -> &'static str {
        match self {
            Acting::AtOnce => "",
            Acting::NextDeploy => " with the next deploy",
        }
    }
}

/// The form that servers use, too.
pub(super) fn from_store(effect: BegunEffect) -> UnknownEffect {
    UnknownEffect {
        resource: effect.name,
        version: effect.version.0,
        started: effect.started.to_string(),
        choice: effect.choice.map(|choice| match choice {
            EffectChoice::Done => SettleChoice::Done,
            EffectChoice::RunAgain => SettleChoice::Again,
        }),
    }
}

/// `counts as done with the next deploy`
pub(super) fn decision(choice: SettleChoice, acting: Acting) -> String {
    let word = match choice {
        SettleChoice::Done => "counts as done",
        SettleChoice::Again => "is run again",
    };
    format!("{word}{}", acting.suffix())
}

/// What a plan says of a resource with an effect that nobody has decided about.
pub(super) fn foreseen(started: &str) -> String {
    format!(
        "it was begun at {started}, and its outcome is unknown: it is not run until `orrery settle` decides; `--done` counts it as done, `--again` runs it again"
    )
}

/// What comes next for the resource of an effect.
pub(super) fn outlook(effect: &UnknownEffect, acting: Acting) -> String {
    let started = &effect.started;
    match effect.choice {
        Some(choice) => {
            format!("begun at {started}, outcome unknown: it {}", decision(choice, acting))
        }
        None => format!(
            "begun at {started}, outcome unknown: it is not run again until `orrery settle` decides"
        ),
    }
}
