//! Plugin calls: arguments to parameters as Python does it, validation, the call, and what comes back.

use crate::error::{CompileError, Result};
use crate::ir::{Call, Callee, ExprId, ExprKind};
use crate::plugins::{Failure, NativePlugin, ParamDefault, ParamKind};
use crate::program::{Definition, Program, Type, TypeId};
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
            if !self.is_ready(cell) {
                self.units[id as usize].waiting += 1;
                self.add_waiter(cell, id);
            }
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
        let plugin = &self.program.plugins[number as usize];
        let (args, unexpected) =
            self.bind(plugin, positional, keyword).map_err(|e| self.blame_expr(e, expr))?;
        if !plugin.allow_unknown && self.has_unknown_argument(plugin, &args) {
            return Ok(CallOutcome::Value(self.derived_unknown()));
        }
        self.validate_arguments(number, &args, expr)?;
        if let Some(key) = unexpected {
            let text = format!("{}() got an unexpected keyword argument: '{key}'", plugin.name);
            return Err(self.blame_expr(CompileError::new("RuntimeException", text), expr));
        }
        if let Some(replacement) = plugin.deprecated {
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
        let run = plugin.run;
        let mut context = CallContext { machine: self, frame, expr };
        match run(&mut context, &args) {
            Ok(value) => {
                self.validate_result(number, value, expr)?;
                Ok(CallOutcome::Value(value))
            }
            Err(Failure::Unset(cells)) => {
                Ok(CallOutcome::Unset(cells.into_iter().map(|cell| cell.0).collect()))
            }
            Err(Failure::Unknown(value)) => Ok(CallOutcome::Value(value)),
            Err(failure) => Err(self.plugin_failed(plugin.name, failure, expr)),
        }
    }

    fn has_unknown_argument(&self, plugin: &NativePlugin, args: &[Value]) -> bool {
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
            Failure::Runtime(message) => {
                let text = format!("Exception in plugin {name}");
                let cause = CompileError::new("RuntimeException", message);
                let error = CompileError::new("WrappingRuntimeException", text).caused_by(cause);
                self.blame_expr(error, expr)
            }
            Failure::Optional { relation, instance } => {
                let text = format!("Exception in plugin {name}");
                let cause = format!(
                    "Optional variable accessed that has no value (attribute `{relation}` of `{}`)",
                    self.str(Value::Instance(instance))
                );
                let cause = CompileError::new("OptionalValueException", cause);
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
        plugin: &NativePlugin,
        positional: &[Value],
        keyword: &[(String, Value)],
    ) -> Result<(Vec<Value>, Option<String>)> {
        let name = plugin.name;
        let params = plugin.params;
        let plain = params.iter().all(|param| param.kind == ParamKind::Normal);
        if plain && keyword.is_empty() && positional.len() == params.len() {
            return Ok((positional.to_vec(), None));
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
        for (param, value) in params.iter().zip(bound) {
            args.push(match (value, param.default) {
                (Some(value), _) => value,
                (None, ParamDefault::Bool(b)) => Value::Bool(b),
                (None, ParamDefault::Int(i)) => Value::Int(i),
                (None, ParamDefault::Str(text)) => self.heap.str(text),
                (None, ParamDefault::Strs(texts)) => {
                    let texts = texts.iter().map(|text| self.heap.str(text)).collect();
                    self.heap.list(texts)
                }
                (None, ParamDefault::Null | ParamDefault::Required) => Value::Null,
            });
        }
        Ok((args, unexpected.cloned()))
    }

    fn check_missing(
        &self,
        plugin: &NativePlugin,
        bound: &[Option<Value>],
        kind: ParamKind,
        word: &str,
    ) -> Result<()> {
        let missing: Vec<String> = plugin
            .params
            .iter()
            .zip(bound)
            .filter(|(param, value)| {
                param.kind == kind
                    && value.is_none()
                    && matches!(param.default, ParamDefault::Required)
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

    fn validate_arguments(&mut self, number: u32, args: &[Value], expr: ExprId) -> Result<()> {
        let plugin = &self.program.plugins[number as usize];
        let types = &self.program.plugin_types[number as usize];
        for (at, (param, &value)) in plugin.params.iter().zip(args).enumerate() {
            let Some(ty) = types.0[at] else { continue };
            let given_default = matches!((param.default, value), (ParamDefault::Null, Value::Null));
            if given_default {
                continue;
            }
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
                        plugin.name,
                        param.ty
                    );
                    self.type_mismatch(text, cause, param.ty, value, expr)
                })?;
            }
        }
        Ok(())
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
        if ty.starts_with('(') && !matches!(value, Value::List(_)) {
            cause.text = format!("Invalid value '{}', expected None", self.str(value));
        }
        cause.statement = None;
        cause.loc = None;
        self.blame_expr(CompileError::new("PluginTypeException", text).caused_by(cause), expr)
    }

    fn validate_result(&mut self, number: u32, value: Value, expr: ExprId) -> Result<()> {
        let plugin = &self.program.plugins[number as usize];
        let Some(ty) = self.program.plugin_types[number as usize].1 else { return Ok(()) };
        self.validate(ty, value).map_err(|cause| {
            let text = format!(
                "Return value {} of plugin {} has incompatible type. Expected type: {}",
                self.str(value),
                plugin.name,
                plugin.returns
            );
            self.type_mismatch(text, cause, plugin.returns, value, expr)
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

enum CallOutcome {
    Value(Value),
    Unset(Vec<u32>),
}

/// A plugin's annotation as a type; `None` where nothing is checked.
fn plugin_type(program: &Program, text: &str) -> Option<TypeId> {
    let ty = match text {
        "any" | "expression" | "" => return None,
        "string" => Type::String,
        "int" => Type::Int,
        "float" => Type::Float,
        "number" => Type::Number,
        "bool" => Type::Bool,
        "list" => Type::AnyList,
        "dict" | "dict[string, any]" => Type::AnyDict,
        _ if text.starts_with('(') && text.ends_with(")[]") => Type::AnyList,
        _ if text.contains('|') => return None,
        "null" => Type::Null,
        _ => {
            if let Some(inner) = text.strip_suffix('?') {
                Type::Nullable(plugin_type(program, inner)?)
            } else if let Some(inner) = text.strip_suffix("[]") {
                match plugin_type(program, inner) {
                    Some(inner) => Type::ListOf(inner),
                    None => Type::AnyList,
                }
            } else {
                match program.find_definition(text)? {
                    Definition::Entity(entity) => Type::Entity(entity),
                    Definition::Typedef(typedef) => Type::Typedef(typedef),
                    _ => return None,
                }
            }
        }
    };
    program.type_of.get(&ty).copied()
}

/// Makes sure that every type in a plugin's signature has its number.
pub fn intern_plugin_types(program: &mut Program) {
    let plain = [
        Type::Any,
        Type::Null,
        Type::String,
        Type::Int,
        Type::Float,
        Type::Number,
        Type::Bool,
        Type::AnyList,
        Type::AnyDict,
    ];
    for ty in plain {
        program.intern_type(ty);
    }
    program.intern_type(Type::List);
    program.intern_type(Type::Dict);
    for typedef in 0..program.typedefs.len() {
        program.intern_type(Type::Typedef(typedef as u32));
    }
    let mut texts: Vec<&'static str> = Vec::new();
    for plugin in &program.plugins {
        texts.push(plugin.returns);
        texts.extend(plugin.params.iter().map(|param| param.ty));
    }
    for text in texts {
        let mut base = text;
        let mut layers = Vec::new();
        loop {
            if let Some(inner) = base.strip_suffix('?') {
                layers.push('?');
                base = inner;
            } else if let Some(inner) = base.strip_suffix("[]") {
                layers.push('[');
                base = inner;
            } else {
                break;
            }
        }
        match program.find_definition(base) {
            Some(Definition::Entity(entity)) => {
                program.intern_type(Type::Entity(entity));
            }
            Some(Definition::Typedef(typedef)) => {
                program.intern_type(Type::Typedef(typedef));
            }
            _ => {}
        }
        let Some(mut ty) = plugin_type(program, base) else { continue };
        for layer in layers.into_iter().rev() {
            ty = program.intern_type(if layer == '?' {
                Type::Nullable(ty)
            } else {
                Type::ListOf(ty)
            });
        }
    }
    program.plugin_types = program
        .plugins
        .iter()
        .map(|plugin| {
            let params = plugin.params.iter().map(|param| plugin_type(program, param.ty)).collect();
            (params, plugin_type(program, plugin.returns))
        })
        .collect();
}
