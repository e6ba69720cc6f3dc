//! Checks and renders parsed templates.
//!
//! `check` looks at names of filters and tests. `render` runs statements and `evaluate` expressions;
//! they use `operators`, `to_text`, `sequences`, `attributes`, `methods`, `filters` and `tests`.

mod attributes;
mod calls;
mod check;
mod encoding;
mod evaluate;
mod filters;
mod methods;
mod operators;
mod render;
mod scope;
mod sequence_filters;
mod sequences;
mod str_methods;
mod tests;
mod to_text;
mod value;

pub use check::check;
pub use filters::FILTERS;
pub use tests::TESTS;

use crate::error::RenderError;
use crate::model::ModelAccess;
use crate::syntax::Template;
use render::Renderer;

/// Renders a template that `check` has accepted.
///
/// # Errors
/// If the template or the model fails.
pub fn render<M: ModelAccess>(
    model: &mut M,
    template: &Template,
    path: &str,
) -> Result<String, RenderError> {
    let mut renderer = Renderer::new(model, path);
    let outcome = renderer.render(template);
    outcome.map_err(|error| {
        let blamed = renderer.blamed.take();
        let undefined = blamed.and_then(|undefined| undefined.missing.clone());
        RenderError { error, location: renderer.failed.take(), undefined }
    })
}
