//! Traits `Handler` and `Crud`, and the only way to run the latter: read, diff, and then create,
//! update or delete.

use orrery_model::{
    AttributeDiff, Attributes, Change, ChangeKind, Fact, LogLevel, Outcome, OutcomeStatus,
    ResourceId,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::context::{Context, changed};
use crate::error::HandlerError;
use crate::handler_run::{Mode, PortableCode};
use crate::target::{ContentDigest, ReadAhead};

/// Brings resources of one type into their desired state. Called by the executor.
pub trait Handler: Send + Sync {
    /// Deploys, repairs, plans or reports, as the context says.
    fn run(&self, attributes: &Attributes, context: &mut Context<'_>) -> Outcome;

    /// Reads the facts of the resource.
    fn facts(
        &self,
        attributes: &Attributes,
        context: &mut Context<'_>,
    ) -> Result<Vec<Fact>, HandlerError>;

    /// Returns true if it resolves late-bound values itself; otherwise it gets values only.
    fn resolves_late_bound_values(&self) -> bool {
        false
    }

    /// Contents that a run may need, for a run without access to the store.
    fn named_contents(&self, _attributes: &Attributes) -> Vec<ContentDigest> {
        Vec::new()
    }

    /// Returns true if the effect must not be repeated, and cannot be observed afterwards. Its
    /// start is recorded first. Attributes may be late-bound.
    fn must_not_repeat(&self, _attributes: &Attributes) -> bool {
        false
    }

    /// Returns true if a run can find out the outcome of an unknown effect. Such a run starts with
    /// a read, and calls `Context::begin_effect` before an effect that must not be repeated.
    fn reads_back(&self) -> bool {
        false
    }

    /// Code with which the handler can run on another machine, if it is not built in.
    fn portable_code(&self) -> Option<&dyn PortableCode> {
        None
    }

    /// Path to watch for drift, if there is one.
    fn watched_path<'i>(&self, id: &'i ResourceId) -> Option<&'i str>;

    /// First read of a run, for targets that read for many runs at once.
    fn read_ahead<'i>(
        &self,
        _id: &'i ResourceId,
        _attributes: &Attributes,
    ) -> Option<ReadAhead<'i>> {
        None
    }
}

/// A handler in parts with one job each. The identifying attribute is in `context.id()`.
///
/// `read` and `diff` change nothing: dry runs call them, too. The others run only after them, and
/// only if there is something to do. A failed part may be rerun from the start, after any part of
/// its work is done.
pub trait Crud: Send + Sync {
    /// Attributes, as the model defines them.
    type Desired: DeserializeOwned;
    /// Current state.
    type Current;

    /// Returns true if it must not exist.
    fn is_purged(desired: &Self::Desired) -> bool;

    /// Like `Handler::must_not_repeat`.
    fn must_not_repeat(_attributes: &Attributes) -> bool {
        false
    }

    /// Like `Handler::reads_back`.
    fn reads_back(&self) -> bool {
        false
    }

    /// `None` if it does not exist.
    fn read(
        &self,
        desired: &Self::Desired,
        context: &mut Context<'_>,
    ) -> Result<Option<Self::Current>, HandlerError>;

    /// Differences between current and desired state, if it exists and should.
    fn diff(
        &self,
        desired: &Self::Desired,
        current: &Self::Current,
        context: &mut Context<'_>,
    ) -> Result<Vec<AttributeDiff>, HandlerError>;

    fn create(
        &self,
        desired: &Self::Desired,
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError>;

    /// `changes` is what `diff` gave, and not empty.
    fn update(
        &self,
        desired: &Self::Desired,
        current: &Self::Current,
        changes: &[AttributeDiff],
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError>;

    fn delete(
        &self,
        desired: &Self::Desired,
        current: &Self::Current,
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError>;

    /// Returns true if `reload` is due after a change of a requirement. `change` is the actual or
    /// planned change of this run: a service that was just started needs no restart.
    fn is_reload_due(
        &self,
        _desired: &Self::Desired,
        _change: &Change,
        _context: &Context<'_>,
    ) -> bool {
        false
    }

    fn reload(&self, _: &Self::Desired, _: &mut Context<'_>) -> Result<(), HandlerError> {
        Ok(())
    }

    /// Reads its facts; called after every successful run, and between runs.
    fn facts(&self, _: &Self::Desired, _: &mut Context<'_>) -> Result<Vec<Fact>, HandlerError> {
        Ok(Vec::new())
    }

    /// Contents that `create` or `update` may need.
    fn named_contents(_desired: &Self::Desired) -> Vec<ContentDigest> {
        Vec::new()
    }

    fn watched_path(_id: &ResourceId) -> Option<&str> {
        None
    }

    /// First read of a run, like `Handler::read_ahead`.
    fn read_ahead<'i>(_id: &'i ResourceId, _desired: &Self::Desired) -> Option<ReadAhead<'i>> {
        None
    }
}

/// Attribute name of a reload among the changes.
const RELOAD: &str = "reload";
/// Attribute name of creation and removal among the changes of a report.
const PURGED: &str = "purged";

impl<H: Crud> Handler for H {
    fn must_not_repeat(&self, attributes: &Attributes) -> bool {
        H::must_not_repeat(attributes)
    }

    fn reads_back(&self) -> bool {
        Crud::reads_back(self)
    }

    fn run(&self, attributes: &Attributes, context: &mut Context<'_>) -> Outcome {
        let mut done = Change::default();
        match execute(self, attributes, context, &mut done) {
            Ok((status, change)) => context.finish(status, change),
            Err(error) => Outcome { change: done, ..context.finish_with_error(&error) },
        }
    }

    fn facts(
        &self,
        attributes: &Attributes,
        context: &mut Context<'_>,
    ) -> Result<Vec<Fact>, HandlerError> {
        let desired = attributes.read().map_err(HandlerError::Attributes)?;
        Crud::facts(self, &desired, context)
    }

    /// Unreadable attributes name no contents: the run reports the error.
    fn named_contents(&self, attributes: &Attributes) -> Vec<ContentDigest> {
        attributes.read().map(|desired| H::named_contents(&desired)).unwrap_or_default()
    }

    fn watched_path<'i>(&self, id: &'i ResourceId) -> Option<&'i str> {
        H::watched_path(id)
    }

    /// Unreadable attributes, such as references to secrets, are not read ahead.
    fn read_ahead<'i>(&self, id: &'i ResourceId, attributes: &Attributes) -> Option<ReadAhead<'i>> {
        attributes.read().ok().and_then(|desired| H::read_ahead(id, &desired))
    }
}

/// Common path of deploy, repair, dry run and report. `done` is what a failed run created before.
fn execute<H: Crud>(
    handler: &H,
    attributes: &Attributes,
    context: &mut Context<'_>,
    done: &mut Change,
) -> Result<(OutcomeStatus, Change), HandlerError> {
    context.check_cancelled()?;
    let desired: H::Desired = attributes.read().map_err(HandlerError::Attributes)?;
    let purged = H::is_purged(&desired);
    let current = handler.read(&desired, context)?;
    let mut change = match &current {
        None if purged => Change::default(),
        None => Change { kind: ChangeKind::Created, attributes: Vec::new() },
        Some(_) if purged => Change { kind: ChangeKind::Purged, attributes: Vec::new() },
        Some(current) => {
            let attributes = handler.diff(&desired, current, context)?;
            let kind =
                if attributes.is_empty() { ChangeKind::NoChange } else { ChangeKind::Updated };
            Change { kind, attributes }
        }
    };
    if context.mode() == Mode::ReportOnly {
        return Ok(report(change, purged, context));
    }
    let reload = !purged && handler.is_reload_due(&desired, &change, context);
    if context.mode() == Mode::DryRun {
        if reload {
            add_reload(&mut change, context);
        }
        return Ok((OutcomeStatus::Deployed, change));
    }
    if change.kind != ChangeKind::NoChange || reload {
        context.check_cancelled()?;
        context.announce_change()?;
        // The announcement may have taken long.
        context.check_cancelled()?;
    }
    match (change.kind, &current) {
        (ChangeKind::Created, _) => {
            handler.create(&desired, context)?;
            done.kind = ChangeKind::Created;
        }
        (ChangeKind::Updated, Some(current)) => {
            handler.update(&desired, current, &change.attributes, context)?;
        }
        (ChangeKind::Purged, Some(current)) => handler.delete(&desired, current, context)?,
        (ChangeKind::NoChange | ChangeKind::Updated | ChangeKind::Purged, _) => {}
    }
    if reload {
        context.check_cancelled()?;
        handler.reload(&desired, context)?;
        add_reload(&mut change, context);
    }
    log_change(&change, context);
    if !purged {
        for fact in Crud::facts(handler, &desired, context)? {
            context.set_fact(fact.name, fact.value, fact.expires);
        }
    }
    Ok((OutcomeStatus::Deployed, change))
}

/// Outcome of a report-only resource: nothing changed, with these differences.
fn report(mut change: Change, purged: bool, context: &mut Context<'_>) -> (OutcomeStatus, Change) {
    match std::mem::take(&mut change.kind) {
        ChangeKind::NoChange => return (OutcomeStatus::Deployed, change),
        ChangeKind::Updated => {}
        ChangeKind::Created | ChangeKind::Purged => {
            change.attributes.push(changed(PURGED, !purged, purged));
        }
    }
    let names = change.attributes.iter().map(|change| Value::from(&*change.name)).collect();
    context.log(
        LogLevel::Warning,
        "not compliant; report only",
        [("attributes", Value::Array(names))],
    );
    (OutcomeStatus::NonCompliant, change)
}

fn add_reload(change: &mut Change, context: &Context<'_>) {
    let causes: Vec<Value> =
        context.changed_dependencies().iter().map(|id| Value::from(id.as_str())).collect();
    change.attributes.push(changed(RELOAD, Value::Null, causes));
    if change.kind == ChangeKind::NoChange {
        change.kind = ChangeKind::Updated;
    }
}

fn log_change(change: &Change, context: &mut Context<'_>) {
    let message = match change.kind {
        ChangeKind::NoChange => return,
        ChangeKind::Created => "created",
        ChangeKind::Updated => "updated",
        ChangeKind::Purged => "removed",
    };
    if change.attributes.is_empty() {
        context.info(message);
    } else {
        let names = change.attributes.iter().map(|change| Value::from(&*change.name)).collect();
        context.log(LogLevel::Info, message, [("attributes", Value::Array(names))]);
    }
}
