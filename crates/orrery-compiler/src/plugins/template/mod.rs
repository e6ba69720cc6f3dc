//! `std::template`: Jinja templates over the model.
//!
//! The engine is `orrery-jinja`. `model` shows it the values of the compiler, `calls` lets it call
//! plugins as filters, and `errors` explains its failures.

mod calls;
mod errors;
mod model;

use orrery_jinja::render;

use super::args::{keywords, plugin, required, text};
use super::{NativePlugin, PluginContext, PluginResult};
use crate::value::Value;
use model::TemplateModel;

pub(super) const PLUGINS: &[NativePlugin] = &[plugin!("std::template",
    [required("path", "string"), keywords("kwargs", "any")] => "string", template)];

fn template(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let path = text(ctx, args[0])?.to_owned();
    let given = match args[1] {
        Value::Dict(id) if !ctx.heap().entries(id).is_empty() => Some(id),
        _ => None,
    };
    let mut model = TemplateModel::new(ctx, given);
    let template = match model.load(&path) {
        Ok(template) => template,
        Err(failure) => return Err(errors::rendering(ctx, failure, None, None, given)),
    };
    match render(&mut model, &template, &path) {
        Ok(rendered) => Ok(ctx.heap_mut().str(&rendered)),
        Err(failed) => {
            let failure = model.into_failure(failed.error);
            Err(errors::rendering(ctx, failure, failed.location, failed.undefined, given))
        }
    }
}
