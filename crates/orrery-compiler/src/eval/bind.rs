//! Binds arguments to parameters with Python's rules and messages, and checks their types.

use orrery_syntax::ast::Loc;

use crate::error::{CompileError, Result};
use crate::host::{DefaultValue, PluginParameter, Signature};
use crate::ir::{ExprId, ExprKind};
use crate::plugins::ParamKind;
use crate::program::Plugin;
use crate::value::{Dict, Value};

use super::Evaluator;

/// Arguments as a plugin receives them.
pub(super) struct BoundArguments {
    pub(super) args: Vec<Value>,
    /// Positions of defaulted parameters.
    pub(super) omitted: Vec<usize>,
    /// The name of an argument without a parameter.
    pub(super) unexpected: Option<String>,
}

impl Evaluator<'_> {
    /// Assigns arguments to parameters with Python's rules and messages.
    pub(super) fn bind(
        &mut self,
        plugin: &Signature,
        positional: &[Value],
        keyword: &[(String, Value)],
    ) -> Result<BoundArguments> {
        let name = &plugin.name;
        let params = &plugin.params;
        let plain = params.iter().all(|param| param.kind == ParamKind::Normal);
        if plain && keyword.is_empty() && positional.len() == params.len() {
            return Ok(BoundArguments {
                args: positional.to_vec(),
                omitted: Vec::new(),
                unexpected: None,
            });
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
        Ok(BoundArguments { args, omitted, unexpected: unexpected.cloned() })
    }

    fn default_value(&mut self, default: &DefaultValue) -> Value {
        match default {
            DefaultValue::Required | DefaultValue::Null | DefaultValue::HostOwned => Value::Null,
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

    /// Checks the types of arguments. Defaults are not checked.
    pub(super) fn validate_arguments(
        &mut self,
        number: u32,
        args: &[Value],
        omitted: &[usize],
        expr: ExprId,
    ) -> Result<()> {
        let plugin = &self.program.plugins[number as usize];
        for (at, (param, &value)) in plugin.signature.params.iter().zip(args).enumerate() {
            self.refuse_late_bound_argument(&plugin.signature.name, param, value, expr)?;
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
                    let mut explanation = cause.explanation.clone();
                    let error = self.type_mismatch(text, cause, &param.ty, value, expr);
                    if let Some(explanation) = &mut explanation {
                        explanation.headline = format!(
                            "wrong argument for `{}`: {}",
                            plugin.signature.name, explanation.headline
                        );
                        let place = self.plugin_argument(expr, at, &param.name);
                        let label = format!("this is `{}`", param.name);
                        explanation.primary = Some((place, label));
                    }
                    Box::new(CompileError { explanation, ..*error })
                })?;
            }
        }
        Ok(())
    }

    /// Location of the argument for a parameter.
    fn plugin_argument(&self, expr: ExprId, position: usize, name: &str) -> Loc {
        let ExprKind::Call(call) = &self.program.expr(expr).kind else {
            return self.program.expr(expr).loc;
        };
        let by_name = call.keyword.iter().find(|(of, _)| self.text(*of) == name);
        let value = call.positional.get(position).copied().or(by_name.map(|(_, value)| *value));
        self.program.expr(value.unwrap_or(expr)).loc
    }

    /// Rejects late-bound values unless the parameter's type accepts them.
    fn refuse_late_bound_argument(
        &self,
        plugin: &str,
        param: &PluginParameter,
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

    /// The error for a value that a plugin does not accept or may not return; the cause is
    /// attributed to the call.
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

    pub(super) fn validate_result(
        &mut self,
        number: u32,
        value: Value,
        expr: ExprId,
    ) -> Result<()> {
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
}
