//! `std::template`: Jinja templates over the model.
//!
//! The engine is our own, because a template sees the model lazily: reading an attribute that has no
//! value yet must end the render, an unknown must become the result, and plugins of the model are
//! filters. All of that goes through `&mut dyn Context`, which an engine that owns its values cannot
//! carry. What it prints and complains about is what Jinja2 3.1 does over Python's values; what it
//! cannot do exactly, it refuses by name.
//!
//! `lexer` → `parser` with `imports` and `expressions` → `loads` and `check` → `render` and `evaluate`,
//! which stand on `operators`, `printing`, `sequences`, `attributes`, `methods`, `filters` and `tests`.

mod ast;
mod attributes;
mod calls;
mod check;
mod encoding;
mod evaluate;
mod expressions;
mod filters;
mod imports;
mod items;
mod lexer;
mod loads;
mod methods;
mod operators;
mod parser;
mod printing;
mod render;
mod scope;
mod sequences;
mod tests;
mod texts;
mod value;

use std::cell::RefCell;
use std::rc::Rc;

use hashbrown::HashMap;

use super::args::{keywords, plugin, required, text};
use super::files::resolve;
use super::{Context, Failure, FileKind, NativePlugin, Outcome};
use crate::value::Value;
use ast::Template;
use render::Renderer;

pub(super) const PLUGINS: &[NativePlugin] = &[plugin!("std::template",
    [required("path", "string"), keywords("kwargs", "any")] => "string", template)];

/// What is wrong with a template's text.
#[derive(Debug)]
struct SyntaxError {
    kind: &'static str,
    message: String,
}

impl SyntaxError {
    fn syntax(message: impl Into<String>) -> Self {
        SyntaxError { kind: "jinja2.exceptions.TemplateSyntaxError", message: message.into() }
    }

    fn assertion(message: impl Into<String>) -> Self {
        SyntaxError { kind: "jinja2.exceptions.TemplateAssertionError", message: message.into() }
    }
}

impl From<SyntaxError> for Failure {
    fn from(error: SyntaxError) -> Self {
        Failure::python(error.kind, error.message)
    }
}

fn template(ctx: &mut dyn Context, args: &[Value]) -> Outcome {
    let path = text(ctx, args[0])?.to_owned();
    let given = match args[1] {
        Value::Dict(id) if !ctx.heap().entries(id).is_empty() => Some(id),
        _ => None,
    };
    let template = load(ctx, &path)?;
    let rendered = Renderer::new(ctx, given, &path).render(&template)?;
    Ok(ctx.heap_mut().str(&rendered))
}

/// Reads and parses a template; one that was read before is not parsed again.
fn load(ctx: &dyn Context, path: &str) -> Result<Rc<Template>, Failure> {
    thread_local! {
        static PARSED: RefCell<HashMap<String, (String, Rc<Template>)>> = RefCell::default();
    }
    let not_found = || Failure::python("jinja2.exceptions.TemplateNotFound", path);
    let file = match resolve(ctx, path, "templates") {
        Ok(file) => file,
        Err(failure) if path.starts_with("./") => return Err(failure),
        Err(_) => return Err(not_found()),
    };
    if ctx.file_kind(&file) != FileKind::File {
        return Err(not_found());
    }
    let source = ctx.read_text(&file).map_err(super::files::exception)?;
    let known = PARSED.with_borrow(|parsed| {
        let (text, template) = parsed.get(&file)?;
        (*text == source).then(|| template.clone())
    });
    if let Some(template) = known {
        check::check(&template, ctx)?;
        return Ok(template);
    }
    let template = Rc::new(parser::parse(&source)?);
    check::check(&template, ctx)?;
    PARSED.with_borrow_mut(|parsed| parsed.insert(file, (source, template.clone())));
    Ok(template)
}
