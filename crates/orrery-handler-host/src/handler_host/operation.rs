//! One operation from start to end: messages of the host, cancellation and abandonment.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use orrery_base::clock::monotonic;
use orrery_handlers::{CancelCause, Context, EffectStart};
use orrery_model::LogLevel;
use serde_json::Value;

use super::HostLimits;
use super::callbacks::{HandlerCallbacks, Reply};
use super::host::{Host, HostLoss, HostMessage, OperationHandle};
use super::messages::{Report, ServerCall};
use super::server_calls;

/// Callback that requests the start of a non-repeatable effect.
const BEGIN_EFFECT: &str = "begin_effect";

/// Poll interval for cancellation.
const POLL: Duration = Duration::from_millis(50);
/// Grace period after the permit ends: another process may be about to start the same operation.
const UNAUTHORIZED_TIME_MAX: Duration = Duration::from_secs(2);
/// Time limit to learn the cause of a loss.
const LOSS_TIME_MAX: Duration = Duration::from_secs(10);

/// End of an operation.
#[derive(Debug)]
pub(super) enum OperationEnd {
    Report(Report),
    /// The host was lost.
    Lost(Arc<HostLoss>),
    /// The operation did not end in time, and its process was ended.
    GivenUp(CancelCause),
}

/// Waits for an operation. Log lines go to the context as they arrive, so that they survive any
/// failure.
pub(super) fn wait_for_operation(
    host: &Host,
    handle: &OperationHandle,
    context: &mut Context<'_>,
    services: &HandlerCallbacks,
    limits: &HostLimits,
) -> OperationEnd {
    let mut stopped: Option<(CancelCause, Instant)> = None;
    let end = loop {
        match handle.messages.recv_timeout(POLL) {
            Ok(HostMessage::Lines(lines)) => {
                lines.into_iter().for_each(|line| context.add_line(line));
            }
            Ok(HostMessage::Call(call)) => {
                let q = call.q;
                let reply = match context.server() {
                    _ if call.method == BEGIN_EFFECT => begin_effect(&call, context),
                    Some(server) => {
                        server_calls::answer(server, &services.files, call.method, call.args)
                    }
                    None => {
                        let changed = !context.changed_dependencies().is_empty();
                        services.call(&call.method, &call.args, changed)
                    }
                };
                host.reply(handle.number, q, &reply);
            }
            Ok(HostMessage::Report(report)) => {
                host.finish(handle.number);
                break OperationEnd::Report(report);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                break OperationEnd::Lost(
                    host.wait_for_loss(LOSS_TIME_MAX).unwrap_or_else(|| unknown_loss(host)),
                );
            }
        }
        let patience = match context.cancel_token().is_unauthorized() {
            true => limits.cancel_time_max.min(UNAUTHORIZED_TIME_MAX),
            false => limits.cancel_time_max,
        };
        match (&stopped, context.cancel_token().reason()) {
            (None, Some(reason)) => {
                host.cancel(handle.number);
                stopped = Some((reason, monotonic()));
            }
            (Some((reason, since)), _) if since.elapsed() > patience => {
                let reason = *reason;
                host.abandon(handle.number);
                host.finish(handle.number);
                for message in handle.messages.try_iter() {
                    if let HostMessage::Lines(lines) = message {
                        lines.into_iter().for_each(|line| context.add_line(line));
                    }
                }
                break OperationEnd::GivenUp(reason);
            }
            _ => {}
        }
    };
    let dropped = handle.dropped.load(Ordering::Relaxed);
    if dropped > 0 {
        let values = [("dropped", Value::from(dropped))];
        let message = format!("{dropped} further log lines were dropped: the limit is reached");
        context.log(LogLevel::Warning, message, values);
    }
    end
}

/// Records the start of a non-repeatable effect. Any code but 200 means that it must not begin.
fn begin_effect(call: &ServerCall, context: &mut Context<'_>) -> Reply {
    let did_not_happen = call.args.get("did_not_happen").and_then(Value::as_bool);
    match context.begin_effect(did_not_happen.unwrap_or(false)) {
        // Recording may have taken long.
        Ok(EffectStart::Recorded) if context.cancel_token().reason().is_some() => {
            Reply::refused(410, "the operation is over")
        }
        Ok(EffectStart::Recorded) => Reply::ok(Value::Null),
        Ok(EffectStart::Refused) => {
            Reply::refused(409, "an earlier run began it, and its result was lost")
        }
        Err(error) => Reply::refused(503, &error.to_string()),
    }
}

/// Returns a loss of unknown cause.
fn unknown_loss(host: &Host) -> Arc<HostLoss> {
    let lost = orrery_host::handshake::LostHost {
        name: host.name().to_owned(),
        reason: "it does not answer".to_owned(),
        last_lines: Vec::new(),
    };
    Arc::new(HostLoss { lost, in_flight: 1, blamed: None })
}
