//! `std::template`: Jinja templates over the model.
//!
//! The engine is our own, because a template reads the model lazily: reading an attribute without a
//! value must end the render, an unknown must become the result, and plugins of the model are
//! filters. All of that goes through `&mut dyn PluginContext`, which an engine that owns its values
//! cannot carry. Output and errors are those of Jinja2 3.1 over Python's values; features that it
//! cannot reproduce exactly are refused by name.
//!
//! `lexer` → `parser` with `imports` and `expressions` → `free_names` and `check` → `render` and
//! `evaluate`, which use `operators`, `to_text`, `sequences`, `attributes`, `methods`, `filters`
//! and `tests`.

mod ast;
mod attributes;
mod calls;
mod check;
mod encoding;
mod errors;
mod evaluate;
mod expressions;
mod filters;
mod free_names;
mod imports;
mod lexer;
mod methods;
mod operators;
mod parser;
mod render;
mod scope;
mod sequence_filters;
mod sequences;
mod str_methods;
mod tests;
mod to_text;
mod value;

use std::cell::RefCell;
use std::rc::Rc;

use hashbrown::HashMap;

use super::args::{keywords, plugin, required, text};
use super::files::resolve;
use super::{Failure, NativePlugin, PathKind, PluginContext, PluginResult};
use crate::value::Value;
use ast::Template;
use errors::Source;
use render::Renderer;

pub(super) const PLUGINS: &[NativePlugin] = &[plugin!("std::template",
    [required("path", "string"), keywords("kwargs", "any")] => "string", template)];

/// Error class of a template that does not exist.
const NOT_FOUND: &str = "jinja2.exceptions.TemplateNotFound";

/// A syntax error in a template.
#[derive(Debug)]
struct SyntaxError {
    kind: &'static str,
    message: String,
    /// Line, as far as it is known.
    line: Option<usize>,
    /// The innermost tag that is not closed, and its line.
    open: Option<(usize, String)>,
}

impl SyntaxError {
    fn syntax(message: impl Into<String>) -> Self {
        Self::new("jinja2.exceptions.TemplateSyntaxError", message.into())
    }

    fn assertion(message: impl Into<String>) -> Self {
        Self::new("jinja2.exceptions.TemplateAssertionError", message.into())
    }

    fn new(kind: &'static str, message: String) -> Self {
        SyntaxError { kind, message, line: None, open: None }
    }

    fn at(mut self, line: usize) -> Self {
        self.line.get_or_insert(line);
        self
    }
}

fn template(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let path = text(ctx, args[0])?.to_owned();
    let given = match args[1] {
        Value::Dict(id) if !ctx.heap().entries(id).is_empty() => Some(id),
        _ => None,
    };
    let template = match load(ctx, &path) {
        Ok(template) => template,
        Err(failure) => return Err(errors::rendering(ctx, failure, None, None, given)),
    };
    let mut renderer = Renderer::new(ctx, given, &path);
    match renderer.render(&template) {
        Ok(rendered) => Ok(ctx.heap_mut().str(&rendered)),
        Err(failure) => {
            let (location, undefined) = (renderer.failed.take(), renderer.blamed.take());
            Err(errors::rendering(ctx, failure, location, undefined, given))
        }
    }
}

/// Reads and parses a template; a template is parsed only once.
fn load(ctx: &dyn PluginContext, path: &str) -> Result<Rc<Template>, Failure> {
    thread_local! {
        static PARSED: RefCell<HashMap<String, Rc<Template>>> = RefCell::default();
    }
    let not_found = || Failure::python(NOT_FOUND, path);
    let file = match resolve(ctx, path, "templates") {
        Ok(file) => file,
        Err(failure) if path.starts_with("./") => return Err(failure),
        Err(_) => return Err(not_found()),
    };
    if ctx.file_kind(&file) != PathKind::File {
        return Err(not_found());
    }
    let source = ctx.read_text(&file).map_err(super::files::exception)?;
    let known = PARSED.with_borrow(|parsed| {
        let template = parsed.get(&file)?;
        (template.source.text == source).then(|| template.clone())
    });
    if let Some(template) = known {
        check::check(&template, ctx)?;
        return Ok(template);
    }
    let source = Rc::new(Source { path: file.clone(), text: source });
    let parsed = parser::parse(&source);
    let template = Rc::new(parsed.map_err(|error| errors::syntax(error, &source))?);
    check::check(&template, ctx)?;
    PARSED.with_borrow_mut(|parsed| parsed.insert(file, template.clone()));
    Ok(template)
}
