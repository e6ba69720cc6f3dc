//! `std::testing::NullResource`, which does nothing, and `std::testing::ScriptedResource`, which
//! has a chosen outcome. For tests of models and of the engine.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use orrery_model::{AttributeDiff, Fact, ResourceType};
use serde::Deserialize;

use crate::context::{Context, changed};
use crate::error::HandlerError;
use crate::handler::Crud;
use crate::handler_run::Mode;
use crate::registry::Registry;
use crate::target::CancelCause;

pub(crate) fn register(registry: &mut Registry) {
    let fields = ["fail", "int_value", "purged", "value"];
    let declaration =
        ResourceType::new("std::testing::NullResource", "agentname", "name", &fields).outward();
    registry.register(declaration, Arc::new(NullHandler));
    let fields = ["delay_ms", "facts", "fail", "int_value", "outcome", "purged", "value"];
    let scripted = "std::testing::ScriptedResource";
    let declaration = ResourceType::new(scripted, "agentname", "name", &fields).outward();
    registry.register(declaration, Arc::new(NullHandler));
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct NullHandler;

#[derive(Debug, Deserialize)]
pub(crate) struct Null {
    #[serde(default)]
    fail: bool,
    #[serde(default)]
    outcome: ScriptedOutcome,
    #[serde(default)]
    delay_ms: u64,
    #[serde(default)]
    facts: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ScriptedOutcome {
    #[default]
    Ok,
    /// Success with a reported change.
    Changed,
    Fail,
    Skip,
    Panic,
}

impl Crud for NullHandler {
    type Desired = Null;
    type Current = ();

    /// Has nothing to remove.
    fn is_purged(_desired: &Null) -> bool {
        false
    }

    fn read(&self, desired: &Null, context: &mut Context<'_>) -> Result<Option<()>, HandlerError> {
        match context.cancel_token().sleep(Duration::from_millis(desired.delay_ms)) {
            None => {}
            Some(CancelCause::Cancelled) => return Err(HandlerError::Cancelled),
            Some(CancelCause::DeadlinePassed) => return Err(HandlerError::DeadlinePassed),
        }
        let outcome = if desired.fail { ScriptedOutcome::Fail } else { desired.outcome };
        match outcome {
            _ if context.mode() != Mode::Deploy => Ok(Some(())),
            ScriptedOutcome::Ok | ScriptedOutcome::Changed => Ok(Some(())),
            ScriptedOutcome::Fail => Err(HandlerError::failed("it was told to fail")),
            ScriptedOutcome::Skip => Err(HandlerError::Skipped("it was told to skip".to_owned())),
            ScriptedOutcome::Panic => panic!("it was told to panic"),
        }
    }

    fn diff(
        &self,
        desired: &Null,
        _current: &(),
        _context: &mut Context<'_>,
    ) -> Result<Vec<AttributeDiff>, HandlerError> {
        Ok(match desired.outcome {
            ScriptedOutcome::Changed => vec![changed("outcome", "unchanged", "changed")],
            _ => Vec::new(),
        })
    }

    fn create(&self, _: &Null, _: &mut Context<'_>) -> Result<(), HandlerError> {
        Ok(())
    }

    fn update(
        &self,
        _: &Null,
        (): &(),
        _: &[AttributeDiff],
        _: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        Ok(())
    }

    fn delete(&self, _: &Null, (): &(), _: &mut Context<'_>) -> Result<(), HandlerError> {
        Ok(())
    }

    fn facts(&self, desired: &Null, _: &mut Context<'_>) -> Result<Vec<Fact>, HandlerError> {
        let fact = |(name, value): (&String, &String)| Fact {
            name: name.clone(),
            value: value.clone(),
            expires: true,
        };
        Ok(desired.facts.iter().map(fact).collect())
    }
}
