//! Calls of running commands to their server. A call survives the loss of a session: it is sent
//! again when the server asks for its command again.

use std::time::Duration;

use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;
use orrery_handlers::{CancelCause, HandlerError, ServerCalls, ServerReply};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::workers::CANCEL_POLL_INTERVAL;
use super::{QueuedCommand, Shared};
use crate::calls::{BEGIN_EFFECT, is_too_deep};
use crate::protocol::{CallReply, FromAgent, HandlerCall};

/// Timeout for the reply to a call.
const REPLY_TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum size of the arguments of a call, in bytes.
const ARGUMENTS_MAX: usize = 32 << 20;

/// A call that waits for its reply.
pub(super) struct PendingCall {
    message: HandlerCall,
    reply: Option<ServerReply>,
}

/// Calls of one command.
pub(super) struct CommandCalls<'a> {
    pub(super) shared: &'a Shared,
    pub(super) queued: &'a QueuedCommand,
}

impl CommandCalls<'_> {
    /// Records in the server that an effect starts which must not be repeated.
    pub(super) fn begin_effect(&self) -> Result<(), HandlerError> {
        let reply = self.call(BEGIN_EFFECT, Map::new())?;
        if reply.status == 200 {
            return Ok(());
        }
        let reason = reply.result.get("message").and_then(Value::as_str).unwrap_or_default();
        Err(HandlerError::failed(format!("the server did not record the effect: {reason}")))
    }
}

impl ServerCalls for CommandCalls<'_> {
    fn call(
        &self,
        method: &str,
        arguments: Map<String, Value>,
    ) -> Result<ServerReply, HandlerError> {
        let refused = |status, message: &str| {
            Ok(ServerReply { status, result: json!({ "message": message }) })
        };
        let arguments = Value::Object(arguments);
        if is_too_deep(&arguments) {
            return refused(400, "the arguments are nested too deeply");
        }
        if serde_json::to_string(&arguments).map_or(0, |text| text.len()) > ARGUMENTS_MAX {
            return refused(413, "the arguments are too large");
        }
        let Value::Object(arguments) = arguments else { return refused(400, "no arguments") };
        self.shared.call(self.queued, method, arguments)
    }
}

impl Shared {
    fn call(
        &self,
        queued: &QueuedCommand,
        method: &str,
        arguments: Map<String, Value>,
    ) -> Result<ServerReply, HandlerError> {
        let (key, message) = {
            let mut state = self.state.lock().ignore_poison();
            state.last_call += 1;
            let (id, call) = (queued.id(), state.last_call);
            let message = HandlerCall { id, call, method: method.to_owned(), arguments };
            let pending = PendingCall { message: message.clone(), reply: None };
            state.calls.insert((id, call), pending);
            ((id, call), message)
        };
        self.send(FromAgent::Call(Box::new(message)));
        let until = monotonic() + REPLY_TIMEOUT;
        let mut state = self.state.lock().ignore_poison();
        let replied = loop {
            if let Some(reply) = state.calls.get_mut(&key).and_then(|call| call.reply.take()) {
                break Ok(reply);
            }
            match queued.stop.reason() {
                Some(CancelCause::Cancelled) => break Err(HandlerError::Cancelled),
                Some(CancelCause::DeadlinePassed) => break Err(HandlerError::DeadlinePassed),
                None if monotonic() >= until => {
                    let text = format!("the server did not answer the call {method} in time");
                    break Err(HandlerError::failed(text));
                }
                None => {}
            }
            let waited = self.change_recorded.wait_timeout(state, CANCEL_POLL_INTERVAL);
            state = waited.ignore_poison().0;
        };
        state.calls.remove(&key);
        replied
    }

    pub(super) fn receive_reply(&self, reply: CallReply) {
        let CallReply { id, call, status, result } = reply;
        if let Some(pending) = self.state.lock().ignore_poison().calls.get_mut(&(id, call)) {
            pending.reply = Some(ServerReply { status, result });
        }
        self.change_recorded.notify_all();
    }

    /// Repeats the calls of a command without a reply.
    pub(super) fn repeat_calls(&self, id: Uuid) {
        let messages: Vec<HandlerCall> = {
            let state = self.state.lock().ignore_poison();
            let calls = state.calls.range((id, 0)..=(id, u64::MAX));
            let unanswered = calls.filter(|(_, call)| call.reply.is_none());
            unanswered.map(|(_, call)| call.message.clone()).collect()
        };
        messages.into_iter().for_each(|message| self.send(FromAgent::Call(Box::new(message))));
    }
}
