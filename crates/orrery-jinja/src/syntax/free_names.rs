//! Free names that every frame of a template loads when it begins.
//!
//! Jinja looks up all free names of a frame (the template, a loop's body, a macro, a block…) before
//! it runs it, including those in branches that are never taken. A name of the model that has no
//! value yet, or that is unknown, therefore counts as soon as the frame is entered.

use std::rc::Rc;

use indexmap::{IndexMap, IndexSet};

use super::ast::{Args, Expr, Kind, MacroDef, Stmt, Target, Template};

/// Names in the order in which they are looked up.
pub(crate) type FreeNames = Vec<Rc<str>>;

#[derive(Clone, Default)]
struct Symbols<'p> {
    /// All names with a meaning in the frame; true if the name has to be looked up.
    refs: IndexMap<Rc<str>, bool>,
    stores: IndexSet<Rc<str>>,
    parent: Option<&'p Symbols<'p>>,
}

/// Computes the free names of all frames of a template.
pub(crate) fn analyse(template: &Template) {
    let mut root = Symbols::default();
    root.statements(&template.body);
    // A frame's names are complete before those of the frames inside it are decided.
    let _ = template.loads.set(root.loads());
    root.inner_frames(&template.body);
    for block in &template.blocks {
        let mut frame = Symbols::default();
        frame.parameter("super");
        frame.statements(&block.body);
        let _ = block.loads.set(frame.loads());
        frame.inner_frames(&block.body);
    }
}

impl<'p> Symbols<'p> {
    fn inner(&'p self) -> Symbols<'p> {
        Symbols { parent: Some(self), ..Symbols::default() }
    }

    fn loads(&self) -> FreeNames {
        let looked_up = self.refs.iter().filter(|(_, looked_up)| **looked_up);
        looked_up.map(|(name, _)| name.clone()).collect()
    }

    fn has(&self, name: &str) -> bool {
        self.refs.contains_key(name) || self.parent.is_some_and(|parent| parent.has(name))
    }

    fn load(&mut self, name: &Rc<str>) {
        if &**name != "self" && !self.has(name) {
            self.refs.insert(name.clone(), true);
        }
    }

    fn store(&mut self, name: &Rc<str>) {
        self.stores.insert(name.clone());
        self.refs.entry(name.clone()).or_insert(false);
    }

    fn parameter(&mut self, name: &str) {
        self.refs.insert(name.into(), false);
    }

    fn target(&mut self, target: &Target, is_parameter: bool) {
        match target {
            Target::Name(name) if is_parameter => self.parameter(name),
            Target::Name(name) => self.store(name),
            Target::Tuple(targets) => {
                targets.iter().for_each(|target| self.target(target, is_parameter));
            }
            Target::Attribute(namespace, _) => self.load(namespace),
        }
    }

    fn statements(&mut self, statements: &[Stmt]) {
        statements.iter().for_each(|statement| self.statement(statement));
    }

    /// Adds the names that a statement needs from its frame.
    fn statement(&mut self, statement: &Stmt) {
        match statement {
            Stmt::Data(_) | Stmt::Block(_) => {}
            Stmt::Output(values) => self.exprs(values),
            Stmt::For(each) => self.expr(&each.iterable),
            Stmt::If { branches, otherwise } => self.branches(branches, otherwise),
            Stmt::Macro(name, _) => self.store(name),
            Stmt::Call { call, .. } => self.expr(call),
            Stmt::Filter { filter, .. } => self.expr(filter),
            Stmt::Set { target, value } => {
                self.expr(value);
                self.target(target, false);
            }
            Stmt::SetBlock { target, .. } => self.target(target, false),
            Stmt::With { values, .. } => values.iter().for_each(|(_, value)| self.expr(value)),
            Stmt::Extends { template } | Stmt::Include { template, .. } => self.expr(template),
            Stmt::Import { template, target, .. } => {
                self.expr(template);
                self.store(target);
            }
            Stmt::FromImport { template, names, .. } => {
                self.expr(template);
                names.iter().for_each(|(_, alias)| self.store(alias));
            }
            Stmt::Autoescape { enabled, .. } => self.expr(enabled),
        }
    }

    /// Analyses a condition, which has three branches: the body, the further conditions, and the
    /// rest.
    fn branches(&mut self, branches: &[(Expr, Vec<Stmt>)], otherwise: &[Stmt]) {
        let Some(((test, body), further)) = branches.split_first() else {
            return;
        };
        self.expr(test);
        let mut taken = self.clone();
        taken.statements(body);
        let mut else_if = self.clone();
        for branch in further {
            else_if.branches(std::slice::from_ref(branch), &[]);
        }
        let mut rest = self.clone();
        rest.statements(otherwise);
        self.merge([taken, else_if, rest]);
    }

    /// Merges branches: a name that only some branches set is looked up, in case another branch is
    /// taken.
    fn merge(&mut self, branches: [Symbols<'p>; 3]) {
        let mut set_by: IndexMap<Rc<str>, usize> = IndexMap::new();
        for branch in &branches {
            for name in branch.stores.iter().filter(|name| !self.stores.contains(*name)) {
                *set_by.entry(name.clone()).or_default() += 1;
            }
        }
        for branch in branches {
            self.refs.extend(branch.refs);
            self.stores.extend(branch.stores);
        }
        for (name, count) in set_by {
            let is_outside = self.parent.is_some_and(|parent| parent.has(&name));
            if count < 3 && !is_outside {
                self.refs.insert(name, true);
            }
        }
    }

    fn exprs<'e>(&mut self, exprs: impl IntoIterator<Item = &'e Expr>) {
        exprs.into_iter().for_each(|expr| self.expr(expr));
    }

    fn args(&mut self, args: &Args) {
        self.exprs(&args.positional);
        args.named.iter().for_each(|(_, value)| self.expr(value));
        self.exprs(args.rest.as_deref());
        self.exprs(args.rest_named.as_deref());
    }

    fn expr(&mut self, expr: &Expr) {
        match &expr.kind {
            Kind::None | Kind::Bool(_) | Kind::Int(_) | Kind::Float(_) | Kind::Str(_) => {}
            Kind::Name(name) => self.load(name),
            Kind::Tuple(parts) | Kind::List(parts) | Kind::Concat(parts) => self.exprs(parts),
            Kind::Dict(entries) => entries.iter().for_each(|(key, value)| {
                self.expr(key);
                self.expr(value);
            }),
            Kind::Attribute(value, _)
            | Kind::Not(value)
            | Kind::Negative(value)
            | Kind::Positive(value) => self.expr(value),
            Kind::Item(left, right)
            | Kind::Binary(_, left, right)
            | Kind::And(left, right)
            | Kind::Or(left, right) => {
                self.expr(left);
                self.expr(right);
            }
            Kind::Slice(parts) => self.exprs(parts.iter().flatten()),
            Kind::Call(function, args) => {
                self.expr(function);
                self.args(args);
            }
            Kind::Filter { value, args, .. } => {
                self.exprs(value.as_deref());
                self.args(args);
            }
            Kind::Test { value, args, .. } => {
                self.expr(value);
                self.args(args);
            }
            Kind::Compare(first, rest) => {
                self.expr(first);
                rest.iter().for_each(|(_, operand)| self.expr(operand));
            }
            Kind::Conditional { test, then, otherwise } => {
                self.expr(test);
                self.expr(then);
                self.exprs(otherwise.as_deref());
            }
        }
    }

    /// The frames inside this one.
    fn inner_frames(&self, statements: &[Stmt]) {
        for statement in statements {
            match statement {
                Stmt::If { branches, otherwise } => {
                    branches.iter().for_each(|(_, body)| self.inner_frames(body));
                    self.inner_frames(otherwise);
                }
                Stmt::For(each) => {
                    let mut test = self.inner();
                    test.target(&each.target, true);
                    test.exprs(&each.test);
                    let _ = each.test_loads.set(test.loads());
                    let mut body = self.inner();
                    body.target(&each.target, true);
                    body.parameter("loop");
                    body.statements(&each.body);
                    let _ = each.loads.set(body.loads());
                    body.inner_frames(&each.body);
                    let mut otherwise = self.inner();
                    otherwise.statements(&each.otherwise);
                    let _ = each.otherwise_loads.set(otherwise.loads());
                    otherwise.inner_frames(&each.otherwise);
                }
                Stmt::Macro(_, definition) | Stmt::Call { body: definition, .. } => {
                    self.definition(definition);
                }
                Stmt::Filter { filter, body, loads } => {
                    let mut frame = self.inner();
                    frame.statements(body);
                    frame.expr(filter);
                    let _ = loads.set(frame.loads());
                    frame.inner_frames(body);
                }
                Stmt::SetBlock { body, loads, .. } | Stmt::Autoescape { body, loads, .. } => {
                    let mut frame = self.inner();
                    frame.statements(body);
                    let _ = loads.set(frame.loads());
                    frame.inner_frames(body);
                }
                Stmt::With { values, body, loads } => {
                    let mut frame = self.inner();
                    values.iter().for_each(|(target, _)| frame.target(target, true));
                    frame.statements(body);
                    let _ = loads.set(frame.loads());
                    frame.inner_frames(body);
                }
                _ => {}
            }
        }
    }

    fn definition(&self, definition: &MacroDef) {
        let mut frame = self.inner();
        for param in &definition.params {
            frame.parameter(param);
        }
        for special in ["caller", "kwargs", "varargs"] {
            frame.parameter(special);
        }
        frame.exprs(&definition.defaults);
        frame.statements(&definition.body);
        let _ = definition.loads.set(frame.loads());
        frame.inner_frames(&definition.body);
    }
}
