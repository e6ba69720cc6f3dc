//! Batched plugin calls: a host in another process executes many calls in little more time than
//! one.
//!
//! When a call is due, the run queue is searched for further calls that can run now. They run in
//! queue order, and their outcomes are stored until their own turn. Batching is not observable: the
//! units between them have no effects outside of the model, and the search ends at the first unit
//! that has.

use crate::host;
use crate::ir::{Callee, ExprId, ExprKind};
use crate::plugins::PluginResult;
use crate::value::{Heap, Value};

use super::context::CallContext;
use super::{Evaluator, Kind, ReadyStep};

/// Maximum number of calls in a batch.
const CALLS_MAX: usize = 256;
/// Maximum number of queue entries that are searched.
const SEARCHED_MAX: usize = 4_096;

/// Built-in plugins with side effects, or that call other plugins.
const WITH_EFFECTS: [&str; 7] = [
    "std::facts",
    "std::generate_password",
    "std::get_env",
    "std::getfact",
    "std::password",
    "std::print",
    "std::template",
];

/// A call that runs before its turn.
struct BatchedCall {
    unit: u32,
    plugin: u32,
    args: Vec<Value>,
    omitted: Vec<usize>,
}

impl Evaluator<'_> {
    /// Executes a call together with those that can run at the same time.
    pub(super) fn call_host(
        &mut self,
        call: &host::PluginCall<'_>,
        frame: u32,
        expr: ExprId,
        look_ahead: bool,
    ) -> PluginResult {
        let host = self.host;
        let ahead = if look_ahead && self.can_batch(call.plugin, call.args) {
            self.find_batchable_calls()
        } else {
            Vec::new()
        };
        if ahead.is_empty() {
            return host.call(call, &mut CallContext { evaluator: self, frame, expr });
        }
        let more = ahead.iter().map(|one| host::PluginCall {
            plugin: one.plugin,
            args: &one.args,
            omitted: &one.omitted,
        });
        let calls: Vec<host::PluginCall<'_>> = std::iter::once(*call).chain(more).collect();
        let outcomes = host.call_many(&calls, &mut CallContext { evaluator: self, frame, expr });
        let mut outcomes = outcomes.into_iter();
        let first = outcomes.next();
        self.early.extend(ahead.iter().map(|one| one.unit).zip(outcomes));
        first.unwrap_or_else(|| Err(crate::plugins::Failure::Runtime("there was no answer".into())))
    }

    fn can_batch(&self, plugin: u32, args: &[Value]) -> bool {
        self.host.can_batch(plugin) && args.iter().all(|&value| is_plain(&self.heap, value))
    }

    /// Calls further down the queue that can run now.
    fn find_batchable_calls(&mut self) -> Vec<BatchedCall> {
        let mut found: Vec<BatchedCall> = Vec::new();
        for at in 0..self.run.len().min(SEARCHED_MAX) {
            let ReadyStep::Unit(unit) = self.run[at] else { continue };
            if self.units[unit as usize].kind != Kind::Call {
                continue;
            }
            match self.batch_decision(unit) {
                BatchDecision::Call(call) => found.push(call),
                BatchDecision::Skip => {}
                BatchDecision::Stop => break,
            }
            if found.len() + 1 == CALLS_MAX {
                break;
            }
        }
        found
    }

    /// Decides whether a queued call joins the batch.
    fn batch_decision(&mut self, id: u32) -> BatchDecision {
        let program = self.program;
        let unit = self.units[id as usize];
        let expr = ExprId(unit.node);
        let ExprKind::Call(call) = &program.expr(expr).kind else { return BatchDecision::Stop };
        let Callee::Plugin(number) = call.callee else { return BatchDecision::Skip };
        let plugin = &program.plugins[number as usize].signature;
        if !self.host.can_batch(number) {
            let harmless = plugin.location.is_none() && !WITH_EFFECTS.contains(&&*plugin.name);
            return if harmless { BatchDecision::Skip } else { BatchDecision::Stop };
        }
        if self.early.contains_key(&id) {
            return BatchDecision::Skip;
        }
        let mut arguments =
            call.positional.iter().copied().chain(call.keyword.iter().map(|of| of.1));
        let simple = call.spread.is_empty()
            && arguments.all(|argument| self.is_available(argument, unit.frame));
        if !simple || self.waiting_calls.contains_key(&id) {
            return BatchDecision::Stop;
        }
        let Ok((positional, keyword)) = self.call_arguments(expr, call, &unit) else {
            return BatchDecision::Stop;
        };
        let Ok(bound) = self.bind(plugin, &positional, &keyword) else {
            return BatchDecision::Stop;
        };
        if !plugin.allow_unknown && self.has_unknown_argument(plugin, &bound.args) {
            return BatchDecision::Skip;
        }
        let fits = bound.unexpected.is_none()
            && self.can_batch(number, &bound.args)
            && self.validate_arguments(number, &bound.args, &bound.omitted, expr).is_ok();
        if !fits {
            return BatchDecision::Stop;
        }
        self.waiting_calls.insert(id, (positional, keyword));
        BatchDecision::Call(BatchedCall {
            unit: id,
            plugin: number,
            args: bound.args,
            omitted: bound.omitted,
        })
    }
}

enum BatchDecision {
    Call(BatchedCall),
    /// Independent of the batch.
    Skip,
    /// Nothing behind it may run before it.
    Stop,
}

/// True if a value can be read completely without the machine.
fn is_plain(heap: &Heap, value: Value) -> bool {
    match value {
        Value::Null
        | Value::Bool(_)
        | Value::Int(_)
        | Value::Float(_)
        | Value::Str(_)
        | Value::Big(_) => true,
        Value::List(id) => heap.items(id).iter().all(|&item| is_plain(heap, item)),
        Value::Dict(id) => heap.entries(id).values().all(|&item| is_plain(heap, item)),
        Value::Instance(_) | Value::Unknown(_) | Value::Other(_) => false,
    }
}
