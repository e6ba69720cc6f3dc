//! Calls that are made together: a host in another process answers many calls in hardly more time than one.
//!
//! When a call is due, the run queue is searched for further calls that could be made now. They are made in the order
//! of the queue, and their outcomes wait until their own turn comes. So nobody can tell the difference: what stands
//! between them in the queue has no effects outside of the model, and the search ends at the first that has.

use crate::host;
use crate::ir::{Callee, ExprId, ExprKind};
use crate::plugins::Outcome;
use crate::value::{Heap, Value};

use super::context::CallContext;
use super::{Kind, Machine, Ready};

/// How many calls are made together.
const CALLS_MAX: usize = 256;
/// How far the queue is searched.
const LOOKED_AT_MAX: usize = 4_096;

/// Plugins of the program itself that do something besides giving a value, or call others that may.
const WITH_EFFECTS: [&str; 6] = [
    "std::generate_password",
    "std::get_env",
    "std::getfact",
    "std::password",
    "std::print",
    "std::template",
];

/// A call that is made before its turn.
struct Ahead {
    unit: u32,
    plugin: u32,
    args: Vec<Value>,
    omitted: Vec<usize>,
}

impl Machine<'_> {
    /// Makes a call, and with it those that can be made at the same time.
    pub(super) fn call_host(
        &mut self,
        call: &host::Call<'_>,
        frame: u32,
        expr: ExprId,
        look_ahead: bool,
    ) -> Outcome {
        let host = self.host;
        let ahead = if look_ahead && self.can_batch(call.plugin, call.args) {
            self.find_ahead()
        } else {
            Vec::new()
        };
        if ahead.is_empty() {
            return host.call(call, &mut CallContext { machine: self, frame, expr });
        }
        let more = ahead.iter().map(|one| host::Call {
            plugin: one.plugin,
            args: &one.args,
            omitted: &one.omitted,
        });
        let calls: Vec<host::Call<'_>> = std::iter::once(*call).chain(more).collect();
        let outcomes = host.call_many(&calls, &mut CallContext { machine: self, frame, expr });
        let mut outcomes = outcomes.into_iter();
        let first = outcomes.next();
        self.early.extend(ahead.iter().map(|one| one.unit).zip(outcomes));
        first.unwrap_or_else(|| Err(crate::plugins::Failure::Runtime("there was no answer".into())))
    }

    fn can_batch(&self, plugin: u32, args: &[Value]) -> bool {
        self.host.can_batch(plugin) && args.iter().all(|&value| is_plain(&self.heap, value))
    }

    /// Calls further down the queue that could be made now.
    fn find_ahead(&mut self) -> Vec<Ahead> {
        let mut found: Vec<Ahead> = Vec::new();
        for at in 0..self.run.len().min(LOOKED_AT_MAX) {
            let Ready::Unit(unit) = self.run[at] else { continue };
            if self.units[unit as usize].kind != Kind::Call {
                continue;
            }
            match self.ahead(unit) {
                Look::Call(call) => found.push(call),
                Look::Pass => {}
                Look::Stop => break,
            }
            if found.len() + 1 == CALLS_MAX {
                break;
            }
        }
        found
    }

    /// What a call in the queue means for those that are made together.
    fn ahead(&mut self, id: u32) -> Look {
        let program = self.program;
        let unit = self.units[id as usize];
        let expr = ExprId(unit.node);
        let ExprKind::Call(call) = &program.expr(expr).kind else { return Look::Stop };
        let Callee::Plugin(number) = call.callee else { return Look::Pass };
        let plugin = &program.plugins[number as usize].signature;
        if !self.host.can_batch(number) {
            let harmless = plugin.place.is_none() && !WITH_EFFECTS.contains(&&*plugin.name);
            return if harmless { Look::Pass } else { Look::Stop };
        }
        if self.early.contains_key(&id) {
            return Look::Pass;
        }
        let mut arguments =
            call.positional.iter().copied().chain(call.keyword.iter().map(|of| of.1));
        let simple = call.spread.is_empty()
            && arguments.all(|argument| self.is_available(argument, unit.frame));
        if !simple || self.waiting_calls.contains_key(&id) {
            return Look::Stop;
        }
        let Ok((positional, keyword)) = self.call_arguments(expr, call, &unit) else {
            return Look::Stop;
        };
        let Ok(bound) = self.bind(plugin, &positional, &keyword) else { return Look::Stop };
        if !plugin.allow_unknown && self.has_unknown_argument(plugin, &bound.args) {
            return Look::Pass;
        }
        let fits = bound.unexpected.is_none()
            && self.can_batch(number, &bound.args)
            && self.validate_arguments(number, &bound.args, &bound.omitted, expr).is_ok();
        if !fits {
            return Look::Stop;
        }
        self.waiting_calls.insert(id, (positional, keyword));
        Look::Call(Ahead { unit: id, plugin: number, args: bound.args, omitted: bound.omitted })
    }
}

enum Look {
    Call(Ahead),
    /// It has nothing to do with the others.
    Pass,
    /// Nothing behind it may be done before it.
    Stop,
}

/// Whether nothing has to be read to know a value wholly.
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
