//! What a handler is (`Handler`), what most of them are written as (`Crud`), and the one way in which
//! those are run: read, diff, and only then create, update or delete.

use orrery_model::{
    AttributeChange, Attributes, Change, ChangeKind, Fact, LogLevel, Outcome, OutcomeStatus,
    ResourceId,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::context::{Context, Mode, changed};
use crate::error::HandlerError;
use crate::target::ContentDigest;

/// Brings resources of one kind into their desired state. What the executor calls.
pub trait Handler: Send + Sync {
    /// Deploys, repairs, says what it would do, or whether all is well: as the context says.
    fn run(&self, attributes: &Attributes, context: &mut Context<'_>) -> Outcome;

    /// What is to be known about the resource as it is now.
    fn facts(
        &self,
        attributes: &Attributes,
        context: &mut Context<'_>,
    ) -> Result<Vec<Fact>, HandlerError>;

    /// Whether it finds the values of references itself; otherwise it only ever sees values.
    fn resolves_references(&self) -> bool {
        false
    }

    /// The contents that a run may ask for, so that it can be made where there is no way to ask.
    fn named_contents(&self, _attributes: &Attributes) -> Vec<ContentDigest> {
        Vec::new()
    }

    /// Whether what a run does must not be done twice, and nothing can be looked at that tells whether it was done. Such an effect is
    /// recorded before it begins. Attributes may be references.
    fn must_not_repeat(&self, _attributes: &Attributes) -> bool {
        false
    }

    /// Whether a run can be made to find out what became of an effect with an unknown outcome. Such a run begins with reading, and
    /// asks (`Context::begin_effect`) before it does anything that must not be repeated.
    fn reads_back(&self) -> bool {
        false
    }

    /// The path whose changes mean that the resource may no longer be as wanted, if there is one.
    fn watched_path<'i>(&self, id: &'i ResourceId) -> Option<&'i str>;
}

/// A handler in parts, each of which does one thing. The identifying attribute is in `context.id()`.
///
/// `read` and `diff` change nothing: they run in a dry run too. Everything else runs only after them,
/// and when there is something to do. A part that fails may be run again from the start, after any
/// part of its work is done.
pub trait Crud: Send + Sync {
    /// The attributes that it needs, as the model gives them.
    type Desired: DeserializeOwned;
    /// What it found.
    type Current;

    /// Whether it must not exist.
    fn is_purged(desired: &Self::Desired) -> bool;

    /// As `Handler::must_not_repeat`.
    fn must_not_repeat(_attributes: &Attributes) -> bool {
        false
    }

    /// `None` if it does not exist.
    fn read(
        &self,
        desired: &Self::Desired,
        context: &mut Context<'_>,
    ) -> Result<Option<Self::Current>, HandlerError>;

    /// What differs between what is and what should be, if it exists and should.
    fn diff(
        &self,
        desired: &Self::Desired,
        current: &Self::Current,
        context: &mut Context<'_>,
    ) -> Result<Vec<AttributeChange>, HandlerError>;

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
        changes: &[AttributeChange],
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError>;

    fn delete(
        &self,
        desired: &Self::Desired,
        current: &Self::Current,
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError>;

    /// Whether `reload` has to be called, since something that it requires changed. `change` is what this
    /// run did, or would do: a service that was just started need not be restarted.
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

    /// What is to be known about it; asked after every good run, and between runs.
    fn facts(&self, _: &Self::Desired, _: &mut Context<'_>) -> Result<Vec<Fact>, HandlerError> {
        Ok(Vec::new())
    }

    /// The contents that `create` or `update` may ask for.
    fn named_contents(_desired: &Self::Desired) -> Vec<ContentDigest> {
        Vec::new()
    }

    fn watched_path(_id: &ResourceId) -> Option<&str> {
        None
    }
}

/// The name under which a reload stands among the changes.
const RELOAD: &str = "reload";
/// The name under which coming and going stands among the changes of a report.
const PURGED: &str = "purged";

impl<H: Crud> Handler for H {
    fn must_not_repeat(&self, attributes: &Attributes) -> bool {
        H::must_not_repeat(attributes)
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

    /// What cannot be read names nothing: a run will say what is wrong with it.
    fn named_contents(&self, attributes: &Attributes) -> Vec<ContentDigest> {
        attributes.read().map(|desired| H::named_contents(&desired)).unwrap_or_default()
    }

    fn watched_path<'i>(&self, id: &'i ResourceId) -> Option<&'i str> {
        H::watched_path(id)
    }
}

/// The one path of deploy, repair, dry run and report. `done` is what a run that fails has created before.
fn execute<H: Crud>(
    handler: &H,
    attributes: &Attributes,
    context: &mut Context<'_>,
    done: &mut Change,
) -> Result<(OutcomeStatus, Change), HandlerError> {
    context.check_stop()?;
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
        context.check_stop()?;
        context.announce_change()?;
        // That may have taken long.
        context.check_stop()?;
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
        context.check_stop()?;
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

/// What a resource that is only reported on comes to: nothing was changed, but this differs.
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
        "it is not as wanted, and only reported on",
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
