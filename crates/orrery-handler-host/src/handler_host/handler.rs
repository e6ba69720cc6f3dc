//! Handler that runs in a host, as the executor uses it.

use std::fmt;
use std::sync::Arc;

use orrery_handlers::{CancelCause, Context, Handler, HandlerError, Mode, PortableCode};
use orrery_model::{Attributes, Change, Fact, LogLevel, Outcome, OutcomeStatus, ResourceId};
use serde_json::Value;

use super::host::HostLoss;
use super::messages::{OperationKind, Report, ReportedState, operation};
use super::operation::OperationEnd;
use super::pool::{HandlerHosts, OperationResult};

/// Serves all entities with handlers in its hosts' code.
#[derive(Clone)]
pub struct HostedHandler {
    hosts: Arc<HandlerHosts>,
    code: Option<Arc<dyn PortableCode>>,
}

impl fmt::Debug for HostedHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostedHandler").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

impl HostedHandler {
    pub fn new(hosts: Arc<HandlerHosts>) -> Self {
        HostedHandler { hosts, code: None }
    }

    /// Adds the code with which the handlers can run on other machines.
    #[must_use]
    pub fn with_code(self, code: Arc<dyn PortableCode>) -> Self {
        HostedHandler { code: Some(code), ..self }
    }

    fn run_operation(
        &self,
        question: OperationKind,
        attributes: &Attributes,
        context: &mut Context<'_>,
    ) -> OperationResult {
        let operation = operation(question, attributes, context, context.target().machine());
        self.hosts.run_operation(&operation, context)
    }
}

impl Handler for HostedHandler {
    fn resolves_late_bound_values(&self) -> bool {
        true
    }

    fn reads_back(&self) -> bool {
        true
    }

    fn run(&self, attributes: &Attributes, context: &mut Context<'_>) -> Outcome {
        if let Err(error) = context.check_cancelled() {
            return context.finish_with_error(&error);
        }
        // The host does not report when its code begins a change.
        if context.mode() == Mode::Deploy
            && let Err(error) = context.announce_change()
        {
            return context.finish_with_error(&error);
        }
        // The previous step may have taken long.
        if let Err(error) = context.check_cancelled() {
            return context.finish_with_error(&error);
        }
        match self.run_operation(OperationKind::Run, attributes, context) {
            OperationResult::Ended(OperationEnd::Report(report)) => {
                mark_unclear_effect(&report, context);
                finish(report, context)
            }
            OperationResult::Unavailable(reason) => {
                context.log(LogLevel::Error, reason, []);
                context.finish(OutcomeStatus::Unavailable, Change::default())
            }
            other => {
                if context.has_begun_effect() {
                    context.mark_unclear();
                }
                let error = failure(other, context);
                context.finish_with_error(&error)
            }
        }
    }

    fn facts(
        &self,
        attributes: &Attributes,
        context: &mut Context<'_>,
    ) -> Result<Vec<Fact>, HandlerError> {
        context.check_cancelled()?;
        match self.run_operation(OperationKind::Facts, attributes, context) {
            OperationResult::Ended(OperationEnd::Report(mut report)) => match report.state {
                ReportedState::Deployed | ReportedState::Dry | ReportedState::NonCompliant => {
                    Ok(report.facts())
                }
                ReportedState::Skipped | ReportedState::SkippedForDependency => {
                    Err(HandlerError::Skipped("its facts cannot be read yet".to_owned()))
                }
                ReportedState::Cancelled => Err(stopped(context)),
                ReportedState::Failed | ReportedState::Unavailable => {
                    Err(HandlerError::failed("its facts could not be read"))
                }
            },
            OperationResult::Unavailable(reason) => {
                Err(HandlerError::Failed { message: reason, hint: None })
            }
            other => Err(failure(other, context)),
        }
    }

    fn portable_code(&self) -> Option<&dyn PortableCode> {
        self.code.as_deref()
    }

    fn watched_path<'i>(&self, _: &'i ResourceId) -> Option<&'i str> {
        None
    }
}

/// Marks a begun effect as unclear, unless the report shows that it happened or was undone.
fn mark_unclear_effect(report: &Report, context: &mut Context<'_>) {
    let is_known = report.state == ReportedState::Deployed || report.effect_undone;
    if context.has_begun_effect() && !is_known {
        context.mark_unclear();
    }
}

/// Converts a report to an outcome.
fn finish(mut report: Report, context: &mut Context<'_>) -> Outcome {
    let status = match report.state {
        ReportedState::Deployed | ReportedState::Dry => OutcomeStatus::Deployed,
        ReportedState::Failed => OutcomeStatus::Failed,
        ReportedState::Skipped => OutcomeStatus::Skipped,
        ReportedState::SkippedForDependency => OutcomeStatus::SkippedForDependency,
        ReportedState::Unavailable => OutcomeStatus::Unavailable,
        ReportedState::NonCompliant => OutcomeStatus::NonCompliant,
        ReportedState::Cancelled => {
            let error = stopped(context);
            return context.finish_with_error(&error);
        }
    };
    for Fact { name, value, expires } in report.facts() {
        context.set_fact(name, value, expires);
    }
    let change = report.change(context.is_dry_run());
    context.finish(status, change)
}

/// Converts a missing report to an error.
fn failure(performed: OperationResult, context: &mut Context<'_>) -> HandlerError {
    match performed {
        OperationResult::Ended(OperationEnd::Lost(loss)) => lost(&loss, context),
        OperationResult::Ended(OperationEnd::GivenUp(CancelCause::Cancelled)) => {
            context.warning("it did not end when it was cancelled: its process was ended");
            HandlerError::Cancelled
        }
        OperationResult::Ended(OperationEnd::GivenUp(CancelCause::DeadlinePassed)) => {
            HandlerError::failed_with_hint(
                "it exceeded its time limit and did not end when it was cancelled: its process was ended",
                "give it more time with --timeout, or see in its log what it waits for",
            )
        }
        OperationResult::TooLong => {
            HandlerError::failed("the resource is too large to be sent to its handler")
        }
        OperationResult::Unavailable(reason) => HandlerError::failed(reason),
        OperationResult::Stopped | OperationResult::Ended(OperationEnd::Report(_)) => {
            stopped(context)
        }
    }
}

fn stopped(context: &Context<'_>) -> HandlerError {
    context.check_cancelled().err().unwrap_or(HandlerError::Cancelled)
}

/// Converts the loss of a process to an error, and logs its last output.
fn lost(loss: &HostLoss, context: &mut Context<'_>) -> HandlerError {
    if !loss.lost.last_lines.is_empty() {
        let lines = loss.lost.last_lines.iter().map(|line| Value::from(&**line)).collect();
        context.log(
            LogLevel::Info,
            "the last output of its process",
            [("output", Value::Array(lines))],
        );
    }
    HandlerError::failed(format!("the process of its handler was lost: {}", loss.lost.reason))
}
