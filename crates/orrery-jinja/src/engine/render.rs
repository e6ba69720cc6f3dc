//! Runs a template: statements, scopes, blocks and included templates. Expressions are in
//! `evaluate`.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use hashbrown::HashMap;
use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

use super::check::unsupported;
use super::scope::Scope;
use super::value::{Loop, Macro, Module, Undefined, Val};
use crate::error::TemplateError;
use crate::model::ModelAccess;
use crate::source::TemplateSource;
use crate::syntax::ast::{Block, Expr, For, MacroDef, Stmt, Target, Template};
use crate::syntax::free_names::FreeNames;

pub(super) type RenderResult<T> = Result<T, TemplateError>;

/// Maximum stack use of a render: expressions cost one, statements two, and calls and other
/// templates `CALL_COST`. One unit is about five kilobytes in a debug build, so this needs a stack
/// of ten megabytes; macros can recurse about as deep as in Python.
const DEPTH_MAX: usize = 1500;
pub(super) const CALL_COST: usize = 4;
const STATEMENT_COST: usize = 2;

pub(super) struct Renderer<'c, M> {
    pub(super) model: &'c mut M,
    pub(super) template_name: String,
    /// Current line, for error messages.
    pub(super) line: Cell<usize>,
    /// Blocks by name, the most derived template's first.
    pub(super) blocks: HashMap<Rc<str>, Vec<Rc<Block>>>,
    parent: Option<Rc<Template>>,
    /// The scope of the template itself, which its blocks see.
    root: Rc<Scope>,
    /// True if output is dropped once a parent template is known.
    at_root: bool,
    /// True if names of the model are visible: not from imported templates.
    pub(super) sees_model: bool,
    /// Cache of names of the model.
    pub(super) known: HashMap<Rc<str>, Val, FxBuildHasher>,
    /// The template being rendered.
    pub(super) source: Option<Rc<TemplateSource>>,
    /// Location of the first failure.
    pub(super) failed: Option<(Rc<TemplateSource>, usize)>,
    /// The last undefined value that was used.
    pub(super) blamed: RefCell<Option<Rc<Undefined>>>,
    depth: usize,
}

/// The name of a template in messages: its path without the module.
fn short_name(path: &str) -> String {
    let rest = path.split_once('/').map_or(path, |(_, rest)| rest);
    rest.to_owned()
}

impl<'c, M: ModelAccess> Renderer<'c, M> {
    pub(super) fn new(model: &'c mut M, path: &str) -> Self {
        Renderer {
            model,
            template_name: short_name(path),
            line: Cell::new(1),
            blocks: HashMap::new(),
            parent: None,
            root: Scope::root(),
            at_root: true,
            sees_model: true,
            known: HashMap::default(),
            source: None,
            failed: None,
            blamed: RefCell::default(),
            depth: 0,
        }
    }

    pub(super) fn unsupported(&self, what: &str) -> TemplateError {
        unsupported(what, self.line.get())
    }

    /// Renders a template on its own.
    pub(super) fn render(&mut self, template: &Template) -> RenderResult<String> {
        self.run(template, &Scope::root())
    }

    /// Runs a function one level further down the machine's stack.
    pub(super) fn with_deeper_stack<T>(
        &mut self,
        cost: usize,
        work: impl FnOnce(&mut Self) -> RenderResult<T>,
    ) -> RenderResult<T> {
        if self.depth + cost > DEPTH_MAX {
            let message = "maximum recursion depth exceeded";
            return Err(TemplateError::python("RecursionError", message));
        }
        self.depth += cost;
        let outcome = work(self);
        self.depth -= cost;
        outcome
    }

    /// Renders a whole template with its parents.
    fn run(&mut self, template: &Template, scope: &Rc<Scope>) -> RenderResult<String> {
        let before = self.source.replace(template.source.clone());
        let mut out = String::new();
        self.root = scope.clone();
        self.add_blocks(template);
        self.load_free_names(&template.loads, scope)?;
        self.statements(&template.body, scope, &mut out)?;
        while let Some(parent) = self.parent.take() {
            out.clear();
            self.source = Some(parent.source.clone());
            self.load_free_names(&parent.loads, scope)?;
            self.statements(&parent.body, scope, &mut out)?;
        }
        self.source = before;
        Ok(out)
    }

    fn add_blocks(&mut self, template: &Template) {
        for block in &template.blocks {
            self.blocks.entry(block.name.clone()).or_default().push(block.clone());
        }
    }

    /// Renders another template with its own blocks.
    fn run_isolated(
        &mut self,
        template: &Template,
        path: &str,
        scope: &Rc<Scope>,
    ) -> RenderResult<String> {
        let name = std::mem::replace(&mut self.template_name, short_name(path));
        let blocks = std::mem::take(&mut self.blocks);
        let parent = self.parent.take();
        let root = self.root.clone();
        let at_root = std::mem::replace(&mut self.at_root, true);
        let out = self.with_deeper_stack(CALL_COST, |renderer| renderer.run(template, scope));
        self.at_root = at_root;
        self.root = root;
        self.parent = parent;
        self.blocks = blocks;
        self.template_name = name;
        out
    }

    /// Renders into a separate buffer, independent of parent templates.
    pub(super) fn buffered(&mut self, body: &[Stmt], scope: &Rc<Scope>) -> RenderResult<String> {
        let at_root = std::mem::replace(&mut self.at_root, false);
        let mut out = String::new();
        let outcome = self.statements(body, scope, &mut out);
        self.at_root = at_root;
        outcome.map(|()| out)
    }

    fn statements(
        &mut self,
        statements: &[Stmt],
        scope: &Rc<Scope>,
        out: &mut String,
    ) -> RenderResult<()> {
        self.with_deeper_stack(STATEMENT_COST, |renderer| {
            statements.iter().try_for_each(|statement| {
                let outcome = renderer.statement(statement, scope, out);
                renderer.record_failure(outcome)
            })
        })
    }

    /// Records the location of the first failure.
    pub(super) fn record_failure<T>(&mut self, outcome: RenderResult<T>) -> RenderResult<T> {
        if outcome.is_err() && self.failed.is_none() {
            self.failed = self.source.clone().map(|source| (source, self.line.get()));
        }
        outcome
    }

    fn statement(
        &mut self,
        statement: &Stmt,
        scope: &Rc<Scope>,
        out: &mut String,
    ) -> RenderResult<()> {
        let is_dropped = self.at_root && self.parent.is_some();
        match statement {
            Stmt::Data(text) => out.push_str(text),
            Stmt::Output(_) | Stmt::Block(_) if is_dropped => {}
            Stmt::Output(values) => {
                for value in values {
                    let value = self.eval(value, scope)?;
                    out.push_str(&self.text(&value)?);
                }
            }
            Stmt::For(each) => {
                let iterable = self.eval(&each.iterable, scope)?;
                self.run_loop(each, &iterable, 0, scope, out)?;
            }
            Stmt::If { branches, otherwise } => {
                for (test, body) in branches {
                    let test = self.eval(test, scope)?;
                    if self.truth(&test)? {
                        return self.statements(body, scope, out);
                    }
                }
                self.statements(otherwise, scope, out)?;
            }
            Stmt::Macro(name, definition) => {
                scope.set(name.clone(), self.closure(name.clone(), definition, scope));
            }
            Stmt::Call { call, body } => {
                let caller = self.closure("caller".into(), body, scope);
                let value = self.call_with_caller(call, scope, caller)?;
                out.push_str(&self.text(&value)?);
            }
            Stmt::Filter { filter, body, loads } => {
                let inner = Scope::inner(scope);
                self.load_free_names(loads, &inner)?;
                let text = self.buffered(body, &inner)?;
                let value = self.filtered(filter, Val::str(text), scope)?;
                out.push_str(&self.text(&value)?);
            }
            Stmt::Set { target, value } => {
                let value = self.eval(value, scope)?;
                self.assign(target, &value, scope)?;
            }
            Stmt::SetBlock { target, filter, body, loads } => {
                let inner = Scope::inner(scope);
                self.load_free_names(loads, &inner)?;
                let text = Val::str(self.buffered(body, &inner)?);
                let value = match filter {
                    Some(filter) => self.filtered(filter, text, scope)?,
                    None => text,
                };
                self.assign(target, &value, scope)?;
            }
            Stmt::With { values, body, loads } => {
                let inner = Scope::inner(scope);
                for (target, value) in values {
                    let value = self.eval(value, scope)?;
                    self.assign(target, &value, &inner)?;
                }
                self.load_free_names(loads, &inner)?;
                self.statements(body, &inner, out)?;
            }
            Stmt::Block(block) => {
                let text = self.run_block(&block.name, 0, block.scoped.then_some(scope))?;
                out.push_str(&text);
            }
            Stmt::Extends { template } => {
                if self.parent.is_some() {
                    let message = "extended multiple times";
                    return Err(template_error(message));
                }
                let (parent, _) = self.named_template(template, scope)?;
                self.add_blocks(&parent);
                self.parent = Some(parent);
            }
            Stmt::Include { template, ignore_missing, with_context } => {
                self.include(template, *ignore_missing, *with_context, scope, out)?;
            }
            Stmt::Import { template, target, with_context } => {
                let module = self.import(template, *with_context, scope)?;
                scope.set(target.clone(), Val::Module(Rc::new(module)));
            }
            Stmt::FromImport { template, names, with_context, line } => {
                let module = self.import(template, *with_context, scope)?;
                for (name, alias) in names {
                    let value = module.exports.get(name).cloned().unwrap_or_else(|| {
                        Val::undefined(format!(
                            "the template '{}' (imported on line {line} in '{}') does not export \
                             the requested name '{name}'",
                            module.name, self.template_name
                        ))
                    });
                    scope.set(alias.clone(), value);
                }
            }
            Stmt::Autoescape { body, loads, .. } => {
                let inner = Scope::inner(scope);
                self.load_free_names(loads, &inner)?;
                self.statements(body, &inner, out)?;
            }
        }
        Ok(())
    }

    fn closure(&self, name: Rc<str>, definition: &Rc<MacroDef>, scope: &Rc<Scope>) -> Val {
        let (definition, scope) = (definition.clone(), scope.clone());
        let (sees_model, template) = (self.sees_model, self.template_name.clone());
        let source = self.source.clone();
        Val::Macro(Rc::new(Macro { name, definition, scope, sees_model, template, source }))
    }

    pub(super) fn assign(
        &mut self,
        target: &Target,
        value: &Val,
        scope: &Rc<Scope>,
    ) -> RenderResult<()> {
        match target {
            Target::Name(name) => scope.set(name.clone(), value.clone()),
            Target::Tuple(targets) => {
                for (target, item) in targets.iter().zip(self.unpack(value, targets.len())?) {
                    self.assign(target, &item, scope)?;
                }
            }
            Target::Attribute(namespace, attribute) => match self.name(namespace, scope)? {
                Val::Namespace(entries) => {
                    entries.borrow_mut().insert(attribute.clone(), value.clone());
                }
                _ => {
                    return Err(template_error("cannot assign attribute on non-namespace object"));
                }
            },
        }
        Ok(())
    }

    pub(super) fn run_loop(
        &mut self,
        each: &Rc<For>,
        iterable: &Val,
        depth: usize,
        scope: &Rc<Scope>,
        out: &mut String,
    ) -> RenderResult<()> {
        let mut items = self.iterate(iterable)?;
        if let Some(test) = &each.test {
            self.load_free_names(&each.test_loads, scope)?;
            let mut kept = Vec::new();
            for item in items {
                let inner = Scope::inner(scope);
                self.assign(&each.target, &item, &inner)?;
                let verdict = self.eval(test, &inner)?;
                if self.truth(&verdict)? {
                    kept.push(item);
                }
            }
            items = kept;
        }
        if items.is_empty() {
            let inner = Scope::inner(scope);
            self.load_free_names(&each.otherwise_loads, &inner)?;
            return self.statements(&each.otherwise, &inner, out);
        }
        let state = Rc::new(Loop {
            items,
            index: Cell::new(0),
            depth,
            changed: RefCell::new(None),
            recursion: each.recursive.then(|| (each.clone(), scope.clone())),
        });
        let name: Rc<str> = "loop".into();
        for (index, item) in state.items.iter().enumerate() {
            state.index.set(index);
            let inner = Scope::inner(scope);
            inner.set(name.clone(), Val::Loop(state.clone()));
            self.assign(&each.target, item, &inner)?;
            self.load_free_names(&each.loads, &inner)?;
            self.statements(&each.body, &inner, out)?;
        }
        Ok(())
    }

    /// Looks up the free names of a frame when it begins.
    pub(super) fn load_free_names(
        &mut self,
        loads: &OnceCell<FreeNames>,
        scope: &Rc<Scope>,
    ) -> RenderResult<()> {
        for name in loads.get().into_iter().flatten() {
            if scope.get(name).is_none() {
                self.model_or_global(name)?;
            }
        }
        Ok(())
    }

    /// Renders a block, `level` templates up from the most derived one; it sees the surrounding
    /// scope only if that is passed.
    pub(super) fn run_block(
        &mut self,
        name: &Rc<str>,
        level: usize,
        around: Option<&Rc<Scope>>,
    ) -> RenderResult<String> {
        let Some(block) = self.blocks.get(name).and_then(|chain| chain.get(level)).cloned() else {
            return Err(TemplateError::Undefined(format!(
                "there is no parent block called '{name}'."
            )));
        };
        if block.required {
            return Err(template_error(&format!("Required block '{name}' not found")));
        }
        let scope = match around {
            Some(scope) => Scope::inner(scope),
            None => Scope::inner(&self.root),
        };
        scope.set("super".into(), self.super_block(name, level));
        let before = self.source.replace(block.source.clone());
        let text = self.with_deeper_stack(CALL_COST, |renderer| {
            renderer.load_free_names(&block.loads, &scope)?;
            renderer.buffered(&block.body, &scope)
        });
        self.source = before;
        text
    }

    /// The value of `super` inside a block.
    pub(super) fn super_block(&self, name: &Rc<str>, level: usize) -> Val {
        let has_parent = self.blocks.get(name).is_some_and(|chain| chain.len() > level + 1);
        if has_parent {
            Val::Block(name.clone(), level + 1)
        } else {
            Val::undefined(format!("there is no parent block called '{name}'."))
        }
    }

    /// The template that an expression names, and its path.
    fn named_template(
        &mut self,
        template: &Expr,
        scope: &Rc<Scope>,
    ) -> RenderResult<(Rc<Template>, String)> {
        let name = self.eval(template, scope)?;
        self.require_defined(&name)?;
        let Some(path) = name.as_text() else {
            let message = format!("'{}' object has no attribute 'split'", name.class());
            return Err(TemplateError::python("AttributeError", message));
        };
        Ok((self.model.template(path)?, path.to_string()))
    }

    fn include(
        &mut self,
        template: &Expr,
        ignore_missing: bool,
        with_context: bool,
        scope: &Rc<Scope>,
        out: &mut String,
    ) -> RenderResult<()> {
        let name = self.eval(template, scope)?;
        self.require_defined(&name)?;
        let names = match name.as_text() {
            Some(_) => vec![name.clone()],
            None => self.iterate(&name)?,
        };
        let mut found = None;
        for name in &names {
            let Some(path) = name.as_text() else {
                let message = format!("'{}' object has no attribute 'split'", name.class());
                return Err(TemplateError::python("AttributeError", message));
            };
            match self.model.template(path) {
                Ok(template) => {
                    found = Some((template, path.clone()));
                    break;
                }
                Err(failure) if is_not_found(&failure) && (names.len() > 1 || ignore_missing) => {}
                Err(failure) => return Err(failure),
            }
        }
        let Some((template, path)) = found else {
            if ignore_missing {
                return Ok(());
            }
            return Err(none_found(&names, self)?);
        };
        let inner = if with_context { scope.flattened() } else { Scope::root() };
        let saw_model = self.sees_model;
        self.sees_model &= with_context;
        let text = self.run_isolated(&template, &path, &inner);
        self.sees_model = saw_model;
        out.push_str(&text?);
        Ok(())
    }

    fn import(
        &mut self,
        template: &Expr,
        with_context: bool,
        scope: &Rc<Scope>,
    ) -> RenderResult<Module> {
        let (template, path) = self.named_template(template, scope)?;
        let around = if with_context { scope.flattened() } else { Scope::root() };
        let inner = Scope::inner(&around);
        let saw_model = self.sees_model;
        self.sees_model &= with_context;
        let body = self.run_isolated(&template, &path, &inner);
        self.sees_model = saw_model;
        let exports: IndexMap<Rc<str>, Val> = inner.exports().into_iter().collect();
        Ok(Module { name: short_name(&path), body: body?.into(), exports })
    }
}

pub(super) fn template_error(message: &str) -> TemplateError {
    TemplateError::python("jinja2.exceptions.TemplateRuntimeError", message)
}

fn is_not_found(failure: &TemplateError) -> bool {
    matches!(failure, TemplateError::Python(error) if error.kind == crate::NOT_FOUND)
}

fn none_found<M: ModelAccess>(
    names: &[Val],
    renderer: &Renderer<'_, M>,
) -> RenderResult<TemplateError> {
    let shown: Vec<String> = names
        .iter()
        .map(|name| Ok(renderer.text(name)?.to_string()))
        .collect::<RenderResult<_>>()?;
    let message = match shown.as_slice() {
        [] => "Tried to select from an empty list of templates.".to_owned(),
        names => {
            format!("none of the templates given were found: {}", names.join(", "))
        }
    };
    Ok(TemplateError::python("jinja2.exceptions.TemplatesNotFound", message))
}
