//! Model plugins as filters.

use super::evaluate::CallArgs;
use super::operators::type_error;
use super::render::{RenderResult, Renderer};
use super::value::Val;
use crate::model::ModelAccess;
use crate::objects::Argument;

impl<M: ModelAccess> Renderer<'_, M> {
    /// Calls a plugin as a filter. Its arguments are not type-checked, as in the reference
    /// compiler.
    pub(super) fn call_plugin(
        &mut self,
        filter: &str,
        value: Val,
        given: CallArgs,
    ) -> RenderResult<Val> {
        if let Some((name, _)) = given.named.first() {
            return type_error(format!(
                "_get_template_engine.<locals>.curywrapper.<locals>.safewrapper() got an unexpected \
                 keyword argument '{name}'"
            ));
        }
        let mut args = vec![self.argument(&value)?];
        for value in &given.positional {
            args.push(self.argument(value)?);
        }
        let result = Val::from_item(self.model.call_filter(filter, args)?);
        self.known_value(result)
    }

    /// Converts a value to an argument of the model.
    pub(super) fn argument(&self, value: &Val) -> RenderResult<Argument> {
        self.require_defined(value)?;
        Ok(match value {
            Val::None => Argument::None,
            Val::Bool(bool) => Argument::Bool(*bool),
            Val::Int(int) => Argument::Int(int.clone()),
            Val::Float(float) => Argument::Float(*float),
            Val::Str(text) | Val::Markup(text) => Argument::Str(text.clone()),
            Val::Model(object) => Argument::Proxy(*object),
            Val::Bare(object) => Argument::Bare(*object),
            Val::List(_) | Val::Tuple(_) | Val::Range(..) | Val::OwnView(..) | Val::View(..) => {
                let items = self.iterate(value)?;
                let items = items.iter().map(|item| self.argument(item));
                Argument::List(items.collect::<RenderResult<_>>()?)
            }
            Val::Dict(entries) => {
                let mut dict = Vec::new();
                for (key, item) in &*entries.borrow() {
                    let Some(name) = key.value.as_text() else {
                        return Err(self.unsupported("a dict whose keys are no texts for a plugin"));
                    };
                    dict.push((name.clone(), self.argument(item)?));
                }
                Argument::Dict(dict)
            }
            other => {
                let class = other.class();
                return Err(self.unsupported(&format!("a {class} as the argument of a plugin")));
            }
        })
    }
}
