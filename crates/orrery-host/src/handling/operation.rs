//! One operation from its beginning to its end: what the host says meanwhile, and when it is given up.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use orrery_handlers::{Context, EffectStart, StopReason};
use orrery_model::LogLevel;
use serde_json::Value;

use super::Limits;
use super::host::{Host, Loss, Said, Ticket};
use super::messages::{Report, ServerCall};
use super::services::{Reply, Services};

/// The call by which a handler asks to begin an effect that must not be repeated.
const BEGIN_EFFECT: &str = "begin_effect";

/// How often it is looked whether somebody has cancelled.
const POLL: Duration = Duration::from_millis(50);
/// How long an operation may take to end when the right to act is over: another process may be about to begin the same one.
const UNAUTHORIZED_TIME_MAX: Duration = Duration::from_secs(2);
/// How long it may take to find out how a host was lost.
const LOSS_TIME_MAX: Duration = Duration::from_secs(10);

/// How an operation ended.
#[derive(Debug)]
pub(super) enum End {
    Report(Report),
    /// The host was lost.
    Lost(Arc<Loss>),
    /// It did not end when it should have; its process was ended.
    GivenUp(StopReason),
}

/// Waits for an operation. Lines of its log go to the context as they come, so that they survive whatever follows.
pub(super) fn follow(
    host: &Host,
    ticket: &Ticket,
    context: &mut Context<'_>,
    services: &Services,
    limits: &Limits,
) -> End {
    let mut stopped: Option<(StopReason, Instant)> = None;
    let end = loop {
        match ticket.said.recv_timeout(POLL) {
            Ok(Said::Lines(lines)) => lines.into_iter().for_each(|line| context.add_line(line)),
            Ok(Said::Call(call)) => {
                let reply = if call.method == BEGIN_EFFECT {
                    begin_effect(&call, context)
                } else {
                    let changed = !context.standing().changed.is_empty();
                    services.call(&call.method, &call.args, changed)
                };
                host.reply(ticket.number, call.q, &reply);
            }
            Ok(Said::Report(report)) => {
                host.finish(ticket.number);
                break End::Report(report);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                break End::Lost(
                    host.wait_for_loss(LOSS_TIME_MAX).unwrap_or_else(|| unclear(host)),
                );
            }
        }
        let patience = match context.stop().is_unauthorized() {
            true => limits.cancel_time_max.min(UNAUTHORIZED_TIME_MAX),
            false => limits.cancel_time_max,
        };
        match (&stopped, context.stop().reason()) {
            (None, Some(reason)) => {
                host.cancel(ticket.number);
                stopped = Some((reason, Instant::now()));
            }
            (Some((reason, since)), _) if since.elapsed() > patience => {
                let reason = *reason;
                host.give_up(ticket.number);
                host.finish(ticket.number);
                for said in ticket.said.try_iter() {
                    if let Said::Lines(lines) = said {
                        lines.into_iter().for_each(|line| context.add_line(line));
                    }
                }
                break End::GivenUp(reason);
            }
            _ => {}
        }
    };
    let dropped = ticket.dropped.load(Ordering::Relaxed);
    if dropped > 0 {
        let values = [("dropped", Value::from(dropped))];
        let message =
            format!("{dropped} further lines of its log were dropped: they were too many");
        context.log(LogLevel::Warning, message, values);
    }
    end
}

/// Records that an effect begins which must not be repeated. Anything but 200 means that it must not begin.
fn begin_effect(call: &ServerCall, context: &mut Context<'_>) -> Reply {
    let did_not_happen = call.args.get("did_not_happen").and_then(Value::as_bool);
    match context.begin_effect(did_not_happen.unwrap_or(false)) {
        // Recording may have taken long.
        Ok(EffectStart::Recorded) if context.stop().reason().is_some() => {
            Reply::refused(410, "the operation is over")
        }
        Ok(EffectStart::Recorded) => Reply::ok(Value::Null),
        Ok(EffectStart::Refused) => {
            Reply::refused(409, "an earlier run began it, and its result was lost")
        }
        Err(error) => Reply::refused(503, &error.to_string()),
    }
}

/// A loss about which nothing could be learned in time.
fn unclear(host: &Host) -> Arc<Loss> {
    let lost = crate::session::Lost {
        name: host.name().to_owned(),
        reason: "it does not answer".to_owned(),
        last_lines: Vec::new(),
    };
    Arc::new(Loss { lost, in_flight: 1, blamed: None })
}
