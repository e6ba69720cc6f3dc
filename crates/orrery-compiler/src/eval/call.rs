//! Plugin calls and their outcomes.

use orrery_syntax::Explanation;

use crate::error::{CompileError, Result};
use crate::host::{self, Signature};
use crate::ir::{Call, Callee, ExprId, ExprKind};
use crate::plugins::{Failure, FileFailure, ParamKind};
use crate::program::Definition;
use crate::value::Value;

use super::bind::BoundArguments;
use super::build_units::Dest;
use super::{Evaluator, Unit};

impl Evaluator<'_> {
    pub(super) fn run_call(&mut self, id: u32, unit: &Unit) -> Result<()> {
        let program = self.program;
        let expr = ExprId(unit.node);
        let ExprKind::Call(call) = &program.expr(expr).kind else { return Ok(()) };
        let (positional, keyword) = match self.waiting_calls.remove(&id) {
            Some(args) => args,
            None => self.call_arguments(expr, call, unit)?,
        };
        let dest = Dest { unit: unit.dest, slot: unit.dest_slot };
        let number = match call.callee {
            Callee::Cast(cast) => {
                let value = self.cast_argument(expr, &positional, &keyword)?;
                let value = self.cast(cast, value).map_err(|e| self.blame_expr(e, expr))?;
                self.deliver(dest, value);
                self.free_unit(id);
                return Ok(());
            }
            Callee::Plugin(number) => number,
        };
        match self.call_plugin(expr, number, unit.frame, &positional, &keyword, Some(id))? {
            CallOutcome::Value(value) => {
                self.deliver(dest, value);
                self.free_unit(id);
            }
            CallOutcome::Unset(cells) => {
                self.waiting_calls.insert(id, (positional, keyword));
                self.suspend_call(id, &cells);
            }
        }
        Ok(())
    }

    /// Evaluates the arguments once, even if the call is repeated.
    pub(super) fn call_arguments(
        &mut self,
        expr: ExprId,
        call: &Call,
        unit: &Unit,
    ) -> Result<Arguments> {
        let program = self.program;
        let mut slot = 0;
        let mut positional = Vec::with_capacity(call.positional.len());
        for &arg in &call.positional {
            positional.push(self.eval_in(arg, unit, slot)?);
            slot += program.expr(arg).temps;
        }
        let mut keyword: Vec<(String, Value)> = Vec::new();
        for &(name, arg) in &call.keyword {
            let value = self.eval_in(arg, unit, slot)?;
            keyword.push((self.text(name).to_owned(), value));
            slot += program.expr(arg).temps;
        }
        for &arg in &call.spread {
            let value = self.eval_in(arg, unit, slot)?;
            for (name, value) in self.spread_entries(arg, value)? {
                if keyword.iter().any(|(other, _)| *other == name) {
                    let text = format!("Keyword argument {name} repeated in function call");
                    return Err(self.blame_expr(CompileError::new("RuntimeException", text), expr));
                }
                keyword.push((name, value));
            }
            slot += program.expr(arg).temps;
        }
        Ok((positional, keyword))
    }

    fn cast_argument(
        &self,
        expr: ExprId,
        positional: &[Value],
        keyword: &[(String, Value)],
    ) -> Result<Value> {
        let text = match (positional, keyword) {
            ([value], []) => return Ok(*value),
            (_, []) => {
                let shown: Vec<String> = positional.iter().map(|&arg| self.str(arg)).collect();
                let shown = shown.join(",");
                format!("Illegal arguments {shown}: type cast expects exactly 1 argument")
            }
            _ => "Only positional arguments allowed in type cast".into(),
        };
        Err(self.blame_expr(CompileError::new("RuntimeException", text), expr))
    }

    /// Suspends a call until the missing cells have values.
    fn suspend_call(&mut self, id: u32, cells: &[u32]) {
        self.units[id as usize].waiting = 1;
        for &cell in cells {
            self.units[id as usize].waiting += 1;
            self.add_waiter(cell, id);
        }
        self.unit_ready(id);
    }

    /// A call from the constraint of a typedef, which cannot wait.
    pub(super) fn call_direct(
        &mut self,
        expr: ExprId,
        number: u32,
        positional: Vec<Value>,
        keyword: Vec<(String, Value)>,
    ) -> Result<Value> {
        let outcome =
            self.call_plugin(expr, number, super::FILE_FRAME, &positional, &keyword, None);
        match outcome {
            Ok(CallOutcome::Value(value)) => Ok(value),
            Err(mut error) => {
                error.clear_locations();
                Err(error)
            }
            Ok(CallOutcome::Unset(_)) => {
                let text = format!(
                    "The statement {} can not be executed in this context",
                    self.renderer().expr(expr)
                );
                Err(self.blame_expr(CompileError::new("DirectExecuteException", text), expr))
            }
        }
    }

    fn call_plugin(
        &mut self,
        expr: ExprId,
        number: u32,
        frame: u32,
        positional: &[Value],
        keyword: &[(String, Value)],
        unit: Option<u32>,
    ) -> Result<CallOutcome> {
        let plugin = &self.program.plugins[number as usize].signature;
        let BoundArguments { args, omitted, unexpected } =
            self.bind(plugin, positional, keyword).map_err(|e| self.blame_expr(e, expr))?;
        if !plugin.allow_unknown && self.has_unknown_argument(plugin, &args) {
            return Ok(CallOutcome::Value(self.derived_unknown()));
        }
        self.validate_arguments(number, &args, &omitted, expr)?;
        if let Some(key) = unexpected {
            let text = format!("{}() got an unexpected keyword argument: '{key}'", plugin.name);
            return Err(self.blame_expr(CompileError::new("RuntimeException", text), expr));
        }
        if let Some(replacement) = &plugin.deprecated {
            let mut text = format!("Plugin '{}' is deprecated.", plugin.name);
            if !replacement.is_empty() {
                text.push_str(&format!(" It should be replaced by '{replacement}'."));
            }
            self.warnings.push((
                "PluginDeprecationWarning",
                text,
                Some(self.program.expr(expr).loc),
            ));
        }
        self.check_size().map_err(|e| self.blame_expr(e, expr))?;
        let call = host::PluginCall { plugin: number, args: &args, omitted: &omitted };
        let outcome = match unit.and_then(|unit| self.early.remove(&unit)) {
            Some(outcome) => outcome,
            None => self.call_host(&call, frame, expr, unit.is_some()),
        };
        self.check_size().map_err(|e| self.blame_expr(e, expr))?;
        match outcome {
            Ok(value) => {
                self.validate_result(number, value, expr)?;
                Ok(CallOutcome::Value(value))
            }
            Err(Failure::Unset(cells)) => {
                let mut cells: Vec<u32> = cells.into_iter().map(|cell| cell.0).collect();
                cells.retain(|&cell| (cell as usize) < self.cells.len() && !self.is_ready(cell));
                if cells.is_empty() {
                    // An immediate repetition would fail in the same way.
                    let failure = Failure::Runtime("it waits, but for no value".into());
                    return Err(self.plugin_failed(&plugin.name, failure, expr));
                }
                Ok(CallOutcome::Unset(cells))
            }
            Err(Failure::Unknown(value)) => Ok(CallOutcome::Value(value)),
            Err(failure) => Err(self.plugin_failed(&plugin.name, failure, expr)),
        }
    }

    pub(super) fn has_unknown_argument(&self, plugin: &Signature, args: &[Value]) -> bool {
        plugin.params.iter().zip(args).any(|(param, &value)| match (param.kind, value) {
            (_, Value::Unknown(_)) => true,
            (ParamKind::VarPositional, Value::List(list)) => {
                self.heap.items(list).iter().any(|item| item.is_unknown())
            }
            (ParamKind::VarKeyword, Value::Dict(dict)) => {
                self.heap.entries(dict).values().any(|item| item.is_unknown())
            }
            _ => false,
        })
    }

    fn plugin_failed(&self, name: &str, failure: Failure, expr: ExprId) -> Box<CompileError> {
        match failure {
            Failure::NeedsOtherHost(failure) => self.plugin_failed(name, *failure, expr),
            Failure::InFile(of) => {
                let FileFailure { failure, id, explanation, location } = *of;
                let mut error = self.plugin_failed(name, failure, expr);
                let label = if location.is_some() { "rendered by this call" } else { "" };
                error.explanation =
                    Some(Box::new(explanation.at(self.program.expr(expr).loc, label)));
                error.id = Some(id);
                error.file_location = location.map(Box::new);
                error
            }
            Failure::Plugin(message) => {
                let text = format!("PluginException in plugin {name}\n{message}");
                let explanation = self.failed_call(name, &message, expr);
                let error = CompileError::new("ExplicitPluginException", text);
                self.blame_expr(error.explained(explanation), expr)
            }
            Failure::Python(error) => {
                let text = format!("Exception in plugin {name}");
                let cause = format!("{}: {}", error.kind, error.message);
                let mut cause = CompileError::new(error.kind, cause);
                cause.bare = true;
                let kind = error.kind.rsplit('.').next().unwrap_or(error.kind);
                let message = if error.message.is_empty() { kind } else { &error.message };
                let explanation = self.failed_call(name, message, expr);
                let explanation = explanation.note(format!("it raised {kind}"));
                let error = CompileError::new("ExternalException", text).explained(explanation);
                self.blame_expr(error, expr).caused_by(cause)
            }
            Failure::Exception { class, message, explicit } => {
                let text = match message.as_str() {
                    "" => class.clone(),
                    message => format!("{class}: {message}"),
                };
                let mut cause = CompileError::new("Exception", text);
                cause.bare = true;
                let told = if message.is_empty() { &class } else { &message };
                let mut explanation = self.failed_call(name, told, expr);
                if !explicit {
                    explanation.notes.push(format!("it raised {class}"));
                }
                let error = if explicit {
                    let text = format!("PluginException in plugin {name}\n{message}");
                    CompileError::new("ExplicitPluginException", text)
                } else {
                    let text = format!("Exception in plugin {name}");
                    CompileError::new("ExternalException", text)
                };
                self.blame_expr(error.explained(explanation), expr).caused_by(cause)
            }
            Failure::Runtime(message) => {
                let text = format!("Exception in plugin {name}");
                let explanation = self.failed_call(name, &message, expr);
                let cause = CompileError::new("RuntimeException", message);
                let error = CompileError::new("WrappingRuntimeException", text).caused_by(cause);
                self.blame_expr(error.explained(explanation), expr)
            }
            Failure::Argument { name: argument, value, reason } => {
                let root = argument.split('[').next().unwrap_or(&argument);
                let plugin = self.program.plugins.iter().find(|one| *one.signature.name == *name);
                let expected = plugin
                    .and_then(|one| one.signature.params.iter().find(|param| *param.name == *root))
                    .map_or("", |param| &param.ty);
                let text = format!(
                    "Value {value} for argument {argument} of plugin {name} has incompatible type. Expected type: {expected}"
                );
                let cause = self.blame_expr(CompileError::new("RuntimeException", reason), expr);
                let error = CompileError::new("PluginTypeException", text).caused_by(cause);
                self.blame_expr(error, expr)
            }
            Failure::Optional { relation, instance, placed } => {
                let text = format!("Exception in plugin {name}");
                let cause = format!(
                    "Optional variable accessed that has no value (attribute `{relation}` of `{}`)",
                    self.str(Value::Instance(instance))
                );
                let mut cause = CompileError::new("OptionalValueException", cause);
                if placed {
                    cause = self.blame_expr(cause, expr);
                }
                self.blame_expr(CompileError::new("WrappingRuntimeException", text), expr)
                    .caused_by(cause)
            }
            Failure::Unset(_) | Failure::Unknown(_) => {
                CompileError::new("AssertionError", "a call that waits has not failed")
            }
        }
    }

    /// Explains the failure message of a plugin; further lines become a note.
    fn failed_call(&self, name: &str, message: &str, expr: ExprId) -> Explanation {
        let (first, rest) = message.split_once('\n').unwrap_or((message, ""));
        let mut explanation = Explanation::new(format!("plugin `{name}` failed: {first}"));
        if !rest.trim().is_empty() {
            explanation.notes.push(rest.trim_end().to_owned());
        }
        explanation.at(self.program.expr(expr).loc, "")
    }

    /// Calls a plugin for a template.
    pub(super) fn call_by_name(
        &mut self,
        name: &str,
        args: &[Value],
        frame: u32,
        expr: ExprId,
    ) -> std::result::Result<Value, Failure> {
        let Some(Definition::Plugin(number)) = self.program.find_definition(name) else {
            return Err(Failure::Plugin(format!("there is no plugin {name}")));
        };
        match self.call_plugin(expr, number, frame, args, &[], None) {
            Ok(CallOutcome::Value(value)) => Ok(value),
            Ok(CallOutcome::Unset(cells)) => {
                Err(Failure::Unset(cells.into_iter().map(crate::plugins::CellId).collect()))
            }
            Err(error) => Err(Failure::Plugin(error.text.clone())),
        }
    }
}

/// Positional and keyword arguments.
pub(super) type Arguments = (Vec<Value>, Vec<(String, Value)>);

enum CallOutcome {
    Value(Value),
    Unset(Vec<u32>),
}
