//! Texts about unrepeatable effects with unknown outcomes, shared by all commands.

use orrery_api::{SettleChoice, Time, UnknownEffect};
use orrery_store::{BegunEffect, EffectVerdict};

/// Time at which a decision is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SettleTiming {
    /// Immediately, by the engine of a server.
    AtOnce,
    /// With the next deploy of a local project.
    NextDeploy,
}

impl SettleTiming {
    /// Suffix of a decision text.
    fn suffix(self) -> &'static str {
        match self {
            SettleTiming::AtOnce => "",
            SettleTiming::NextDeploy => " with the next deploy",
        }
    }
}

/// Converts a stored effect to the form of the API.
pub(super) fn from_store(effect: BegunEffect) -> UnknownEffect {
    UnknownEffect {
        resource: effect.name,
        version: effect.version.0,
        started: effect.started.into(),
        choice: effect.choice.map(|choice| match choice {
            EffectVerdict::Done => SettleChoice::Done,
            EffectVerdict::RunAgain => SettleChoice::Again,
        }),
    }
}

/// `counts as done with the next deploy`
pub(super) fn decision(choice: SettleChoice, timing: SettleTiming) -> String {
    let word = match choice {
        SettleChoice::Done => "counts as done",
        SettleChoice::Again => "is run again",
    };
    format!("{word}{}", timing.suffix())
}

/// Plan text for an effect that needs a decision.
pub(super) fn pending_decision(started: Time) -> String {
    format!(
        "started at {started}, outcome unknown: not run until `orrery settle` decides; `--done` counts it as done, `--again` runs it again"
    )
}

/// Next step of a resource with such an effect.
pub(super) fn next_step_text(effect: &UnknownEffect, timing: SettleTiming) -> String {
    let started = &effect.started;
    match effect.choice {
        Some(choice) => {
            format!("started at {started}, outcome unknown: it {}", decision(choice, timing))
        }
        None => format!(
            "started at {started}, outcome unknown: not run again until `orrery settle` decides"
        ),
    }
}
