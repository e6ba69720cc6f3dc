//! Plugin calls: arguments to parameters as Python does it, validation, the call, and what comes back.

use crate::error::{CompileError, Result};
use crate::host::{self, DefaultValue, Parameter, Signature};
use crate::ir::{Call, Callee, ExprId, ExprKind};
use crate::plugins::{Failure, ParamKind};
use crate::program::{Definition, Plugin};
use crate::value::{Dict, Value};

use super::context::CallContext;
use super::emit::Dest;
use super::{Machine, Unit};

impl Machine<'_> {
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
        match self.call_plugin(expr, number, unit.frame, &positional, &keyword)? {
            CallOutcome::Value(value) => {
                self.deliver(dest, value);
                self.free_unit(id);
            }
            CallOutcome::Unset(cells) => {
                self.waiting_calls.insert(id, (positional, keyword));
                self.wait_again(id, &cells);
            }
        }
        Ok(())
    }

    /// Evaluates the arguments: once, however often the call is made.
    fn call_arguments(&mut self, expr: ExprId, call: &Call, unit: &Unit) -> Result<Arguments> {
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

    /// Lets a call wait for what it found missing.
    fn wait_again(&mut self, id: u32, cells: &[u32]) {
        self.units[id as usize].waiting = 1;
        for &cell in cells {
            self.units[id as usize].waiting += 1;
            self.add_waiter(cell, id);
        }
        self.unit_ready(id);
    }

    /// A call from the constraint of a typedef, where nothing can be waited for.
    pub(super) fn call_direct(
        &mut self,
        expr: ExprId,
        number: u32,
        positional: Vec<Value>,
        keyword: Vec<(String, Value)>,
    ) -> Result<Value> {
        let outcome = self.call_plugin(expr, number, super::FILE_FRAME, &positional, &keyword);
        match outcome {
            Ok(CallOutcome::Value(value)) => Ok(value),
            Err(mut error) => {
                error.forget_places();
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
    ) -> Result<CallOutcome> {
        let plugin = &self.program.plugins[number as usize].signature;
        let Bound { args, omitted, unexpected } =
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
        let host = self.host;
        let call = host::Call { plugin: number, args: &args, omitted: &omitted };
        let mut context = CallContext { machine: self, frame, expr };
        let outcome = host.call(&call, &mut context);
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
                    // Called again at once, it would say the same for ever.
                    let failure = Failure::Runtime("it waits, but for no value".into());
                    return Err(self.plugin_failed(&plugin.name, failure, expr));
                }
                Ok(CallOutcome::Unset(cells))
            }
            Err(Failure::Unknown(value)) => Ok(CallOutcome::Value(value)),
            Err(failure) => Err(self.plugin_failed(&plugin.name, failure, expr)),
        }
    }

    fn has_unknown_argument(&self, plugin: &Signature, args: &[Value]) -> bool {
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
            Failure::NotHere(failure) => self.plugin_failed(name, *failure, expr),
            Failure::Plugin(message) => {
                let text = format!("PluginException in plugin {name}\n{message}");
                self.blame_expr(CompileError::new("ExplicitPluginException", text), expr)
            }
            Failure::Python(error) => {
                let text = format!("Exception in plugin {name}");
                let cause = format!("{}: {}", error.kind, error.message);
                let mut cause = CompileError::new(error.kind, cause);
                cause.bare = true;
                self.blame_expr(CompileError::new("ExternalException", text), expr).caused_by(cause)
            }
            Failure::Exception { class, message, explicit } => {
                let cause = CompileError::new("Exception", format!("{class}: {message}"));
                let mut cause = cause;
                cause.bare = true;
                let error = if explicit {
                    let text = format!("PluginException in plugin {name}\n{message}");
                    CompileError::new("ExplicitPluginException", text)
                } else {
                    let text = format!("Exception in plugin {name}");
                    CompileError::new("ExternalException", text)
                };
                self.blame_expr(error, expr).caused_by(cause)
            }
            Failure::Runtime(message) => {
                let text = format!("Exception in plugin {name}");
                let cause = CompileError::new("RuntimeException", message);
                let error = CompileError::new("WrappingRuntimeException", text).caused_by(cause);
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

    /// Assigns arguments to parameters with Python's rules and messages.
    fn bind(
        &mut self,
        plugin: &Signature,
        positional: &[Value],
        keyword: &[(String, Value)],
    ) -> Result<Bound> {
        let name = &plugin.name;
        let params = &plugin.params;
        let plain = params.iter().all(|param| param.kind == ParamKind::Normal);
        if plain && keyword.is_empty() && positional.len() == params.len() {
            return Ok(Bound { args: positional.to_vec(), omitted: Vec::new(), unexpected: None });
        }
        let mut bound: Vec<Option<Value>> = vec![None; params.len()];
        let normal: Vec<usize> =
            (0..params.len()).filter(|&at| params[at].kind == ParamKind::Normal).collect();
        let var_positional = params.iter().position(|p| p.kind == ParamKind::VarPositional);
        let var_keyword = params.iter().position(|p| p.kind == ParamKind::VarKeyword);
        if positional.len() > normal.len() && var_positional.is_none() {
            let text = format!(
                "{name}() takes {} positional arguments but {} were given",
                normal.len(),
                positional.len()
            );
            return self.fail("RuntimeException", text);
        }
        let mut rest = Vec::new();
        for (at, &value) in positional.iter().enumerate() {
            match normal.get(at) {
                Some(&param) => bound[param] = Some(value),
                None => rest.push(value),
            }
        }
        let mut more = Dict::default();
        let mut unexpected = None;
        for (key, value) in keyword {
            let value = *value;
            let found = params.iter().position(|p| {
                p.name == *key && matches!(p.kind, ParamKind::Normal | ParamKind::KeywordOnly)
            });
            match found {
                Some(at) if bound[at].is_some() => {
                    let text = format!("{name}() got multiple values for argument '{key}'");
                    return self.fail("RuntimeException", text);
                }
                Some(at) => bound[at] = Some(value),
                None if var_keyword.is_some() => {
                    more.insert(self.heap.intern(key), value);
                }
                None => unexpected = unexpected.or(Some(key)),
            }
        }
        self.check_missing(plugin, &bound, ParamKind::Normal, "positional")?;
        self.check_missing(plugin, &bound, ParamKind::KeywordOnly, "keyword-only")?;
        if let Some(at) = var_positional {
            bound[at] = Some(self.heap.list(rest));
        }
        if let Some(at) = var_keyword {
            bound[at] = Some(self.heap.dict(more));
        }
        let mut args = Vec::with_capacity(params.len());
        let mut omitted = Vec::new();
        for (at, (param, value)) in params.iter().zip(bound).enumerate() {
            args.push(value.unwrap_or_else(|| {
                omitted.push(at);
                self.default_value(&param.default)
            }));
        }
        Ok(Bound { args, omitted, unexpected: unexpected.cloned() })
    }

    fn default_value(&mut self, default: &DefaultValue) -> Value {
        match default {
            DefaultValue::Required | DefaultValue::Null | DefaultValue::Kept => Value::Null,
            DefaultValue::Bool(bool) => Value::Bool(*bool),
            DefaultValue::Int(int) => Value::Int(*int),
            DefaultValue::Float(float) => Value::Float(*float),
            DefaultValue::Str(text) => self.heap.str(text),
            DefaultValue::List(items) => {
                let items = items.iter().map(|item| self.default_value(item)).collect();
                self.heap.list(items)
            }
        }
    }

    fn check_missing(
        &self,
        plugin: &Signature,
        bound: &[Option<Value>],
        kind: ParamKind,
        word: &str,
    ) -> Result<()> {
        let missing: Vec<String> = plugin
            .params
            .iter()
            .zip(bound)
            .filter(|(param, value)| {
                param.kind == kind && value.is_none() && param.default == DefaultValue::Required
            })
            .map(|(param, _)| format!("'{}'", param.name))
            .collect();
        let Some((last, first)) = missing.split_last() else { return Ok(()) };
        let list = if first.is_empty() {
            last.clone()
        } else {
            format!("{} and {last}", first.join(", "))
        };
        let plural = if missing.len() == 1 { "" } else { "s" };
        let text = format!(
            "{}() missing {} required {word} argument{plural}: {list}",
            plugin.name,
            missing.len()
        );
        self.fail("RuntimeException", text)
    }

    /// Defaults are taken as they are.
    fn validate_arguments(
        &mut self,
        number: u32,
        args: &[Value],
        omitted: &[usize],
        expr: ExprId,
    ) -> Result<()> {
        let plugin = &self.program.plugins[number as usize];
        for (at, (param, &value)) in plugin.signature.params.iter().zip(args).enumerate() {
            self.refuse_reference(&plugin.signature.name, param, value, expr)?;
            let Some(ty) = plugin.param_types[at].filter(|_| !omitted.contains(&at)) else {
                continue;
            };
            let several: Vec<Value>;
            let values: &[Value] = match (param.kind, value) {
                (ParamKind::VarPositional, Value::List(list)) => {
                    several = self.heap.items(list).to_vec();
                    &several
                }
                (ParamKind::VarKeyword, Value::Dict(dict)) => {
                    several = self.heap.entries(dict).values().copied().collect();
                    &several
                }
                _ => &[value],
            };
            for &value in values {
                self.validate(ty, value).map_err(|cause| {
                    let text = format!(
                        "Value {} for argument {} of plugin {} has incompatible type. Expected type: {}",
                        self.repr(value),
                        param.name,
                        plugin.signature.name,
                        param.ty
                    );
                    self.type_mismatch(text, cause, &param.ty, value, expr)
                })?;
            }
        }
        Ok(())
    }

    /// Plugins see references only where they say that they expect them.
    fn refuse_reference(
        &self,
        plugin: &str,
        param: &Parameter,
        value: Value,
        expr: ExprId,
    ) -> Result<()> {
        let Value::Other(id) = value else { return Ok(()) };
        if self.heap.get_other(id).reference.is_none() || param.ty.contains("Reference") {
            return Ok(());
        }
        let text = format!(
            "Value {} for argument {} of plugin {plugin} is a reference. To allow references, use `| Reference[...]` in your type annotation.",
            self.repr(value),
            param.name,
        );
        let cause = if param.ty == "any" {
            "References are not allowed for values of type `object`. While the `object` Python type is technically compatible with any value, references are considered special DSL values and are therefore guarded so that they don't accidentally show up where they are not expected. To work with references, explicitly declare support with a `object | Reference` annotation.".to_owned()
        } else {
            format!(
                "References are not allowed for values of type `{}`. To work with references, explicitly declare support with a `... | Reference[...]` annotation.",
                param.ty
            )
        };
        let cause = self.blame_expr(CompileError::new("RuntimeException", cause), expr);
        let error = CompileError::new("PluginTypeException", text).caused_by(cause);
        Err(self.blame_expr(error, expr))
    }

    /// A value that a plugin does not take or may not give; the cause is blamed on the call.
    fn type_mismatch(
        &self,
        text: String,
        mut cause: Box<CompileError>,
        ty: &str,
        value: Value,
        expr: ExprId,
    ) -> Box<CompileError> {
        if ty.starts_with("(Reference[") && !matches!(value, Value::List(_)) {
            cause.text = format!("Invalid value '{}', expected None", self.str(value));
        }
        cause.statement = None;
        cause.loc = None;
        self.blame_expr(CompileError::new("PluginTypeException", text).caused_by(cause), expr)
    }

    fn validate_result(&mut self, number: u32, value: Value, expr: ExprId) -> Result<()> {
        let Plugin { signature, result_type, .. } = &self.program.plugins[number as usize];
        let Some(ty) = *result_type else { return Ok(()) };
        self.validate(ty, value).map_err(|cause| {
            let text = format!(
                "Return value {} of plugin {} has incompatible type. Expected type: {}",
                self.str(value),
                signature.name,
                signature.returns
            );
            self.type_mismatch(text, cause, &signature.returns, value, expr)
        })
    }

    /// A result that a template asked another plugin for.
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
        match self.call_plugin(expr, number, frame, args, &[]) {
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

/// Arguments as a plugin gets them.
struct Bound {
    args: Vec<Value>,
    /// Positions of those that are defaults.
    omitted: Vec<usize>,
    /// The name of an argument that no parameter takes.
    unexpected: Option<String>,
}

enum CallOutcome {
    Value(Value),
    Unset(Vec<u32>),
}
