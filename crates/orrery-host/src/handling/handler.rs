//! A handler whose code runs in a host, as the executor sees it.

use std::sync::Arc;

use orrery_handlers::{Context, Handler, HandlerError, Mode, StopReason};
use orrery_model::{Attributes, Change, Fact, LogLevel, Outcome, OutcomeStatus, ResourceId};
use serde_json::Value;

use super::host::Loss;
use super::messages::{Question, Report, ReportedState, operation};
use super::operation::End;
use super::pool::{HandlerHosts, Performed};

/// Serves all entities that the code of its hosts has handlers for.
#[derive(Clone, Debug)]
pub struct HostedHandler {
    hosts: Arc<HandlerHosts>,
}

impl HostedHandler {
    pub fn new(hosts: Arc<HandlerHosts>) -> Self {
        HostedHandler { hosts }
    }

    fn perform(
        &self,
        question: Question,
        attributes: &Attributes,
        context: &mut Context<'_>,
    ) -> Performed {
        let operation = operation(question, attributes, context, context.target().machine());
        self.hosts.perform(&operation, context)
    }
}

impl Handler for HostedHandler {
    fn resolves_references(&self) -> bool {
        true
    }

    fn reads_back(&self) -> bool {
        true
    }

    fn run(&self, attributes: &Attributes, context: &mut Context<'_>) -> Outcome {
        if let Err(error) = context.check_stop() {
            return context.finish_with_error(&error);
        }
        // Nobody tells when the code over there begins to change something.
        if context.mode() == Mode::Deploy
            && let Err(error) = context.announce_change()
        {
            return context.finish_with_error(&error);
        }
        // That may have taken long.
        if let Err(error) = context.check_stop() {
            return context.finish_with_error(&error);
        }
        match self.perform(Question::Run, attributes, context) {
            Performed::Ended(End::Report(report)) => {
                note_effect(&report, context);
                finish(report, context)
            }
            Performed::Unavailable(reason) => {
                context.log(LogLevel::Error, reason, []);
                context.finish(OutcomeStatus::Unavailable, Change::default())
            }
            other => {
                if context.has_begun_effect() {
                    context.note_unclear();
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
        context.check_stop()?;
        match self.perform(Question::Facts, attributes, context) {
            Performed::Ended(End::Report(mut report)) => match report.state {
                ReportedState::Deployed | ReportedState::Dry | ReportedState::NonCompliant => {
                    Ok(report.facts())
                }
                ReportedState::Skipped | ReportedState::SkippedForDependency => {
                    Err(HandlerError::Skipped("its facts cannot be asked for yet".to_owned()))
                }
                ReportedState::Cancelled => Err(stopped(context)),
                ReportedState::Failed | ReportedState::Unavailable => {
                    Err(HandlerError::failed("its facts could not be asked for"))
                }
            },
            Performed::Unavailable(reason) => {
                Err(HandlerError::Failed { message: reason, hint: None })
            }
            other => Err(failure(other, context)),
        }
    }

    fn watched_path<'i>(&self, _: &'i ResourceId) -> Option<&'i str> {
        None
    }
}

/// Whether an effect that was begun is known to have happened, or not to have.
fn note_effect(report: &Report, context: &mut Context<'_>) {
    let is_known = report.state == ReportedState::Deployed || report.effect_undone;
    if context.has_begun_effect() && !is_known {
        context.note_unclear();
    }
}

/// What a report means.
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

/// Why there is no report.
fn failure(performed: Performed, context: &mut Context<'_>) -> HandlerError {
    match performed {
        Performed::Ended(End::Lost(loss)) => lost(&loss, context),
        Performed::Ended(End::GivenUp(StopReason::Cancelled)) => {
            context.warning("it did not end when it was cancelled: its process was ended");
            HandlerError::Cancelled
        }
        Performed::Ended(End::GivenUp(StopReason::DeadlinePassed)) => {
            HandlerError::failed_with_hint(
                "it took longer than it may and did not end when it was cancelled: its process was ended",
                "give it more time with --timeout, or see in its log what it waits for",
            )
        }
        Performed::TooLong => {
            HandlerError::failed("the resource is too large to be sent to its handler")
        }
        Performed::Unavailable(reason) => HandlerError::failed(reason),
        Performed::Stopped | Performed::Ended(End::Report(_)) => stopped(context),
    }
}

fn stopped(context: &Context<'_>) -> HandlerError {
    context.check_stop().err().unwrap_or(HandlerError::Cancelled)
}

/// What is known about a process that was lost, and what it printed last.
fn lost(loss: &Loss, context: &mut Context<'_>) -> HandlerError {
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
