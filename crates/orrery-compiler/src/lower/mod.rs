//! Lowers the typed tree to the evaluator's program: resolves variables to frames and cells, types
//! and plugins to numbers, folds constants. Everything is resolved, used or not: a wrong name in
//! dead code is an error, while an undefined variable is one only when it is executed.

pub(crate) mod expr;
mod implements;

use std::rc::Rc;

use orrery_syntax::Symbol;
use orrery_syntax::ast::{self, Item, Loc};
use rustc_hash::FxHashMap;

use crate::define::Builder;
use crate::error::{CompileError, Result};
use crate::ir::{
    Annotation, Block, BlockId, Expr, ExprId, ExprKind, Promise, Stmt, StmtId, StmtKind, Var,
};
use crate::load::LoadedFile;
use crate::lower::expr::Owner;
use crate::program::{AttributeId, Definition, EntityId, NamespaceId};
use crate::render::{NoInstances, Renderer};
use crate::value::Value;

/// One level of names around a statement, innermost last.
pub(crate) enum Level {
    /// Variables with their slots and the location of their first assignment.
    Block(FxHashMap<Symbol, (u16, Loc)>),
    /// The variable of a comprehension.
    Member(Symbol),
    Instance(EntityId),
    SelfValue,
}

/// Shared by everything in the file: there may be very many of both.
pub(crate) type Globals = Rc<FxHashMap<Symbol, Loc>>;

pub(crate) struct Lowering<'b> {
    pub b: &'b mut Builder,
    pub(crate) levels: Vec<Level>,
    pub namespace: NamespaceId,
    /// Top-level variables of the file with the location of their first assignment.
    pub(crate) globals: Globals,
    /// The first error inside the current statement.
    pub error: Option<Box<CompileError>>,
}

impl Builder {
    /// Lowers all code. The first error in statement order is reported.
    pub(crate) fn lower(&mut self, files: &[LoadedFile]) -> Result<()> {
        self.program.exprs.push(Expr {
            kind: ExprKind::Const(Value::Null),
            loc: Loc { file: files[0].file, start: 0, end: 0, column: false },
            temps: 0,
            emits: false,
            reads: false,
        });
        let empty = self.add_block(Vec::new(), &[]);
        debug_assert_eq!(empty, BlockId(0));
        let globals = self.global_variables(files);
        self.lower_implements(files, &globals)?;
        let (mut typedefs, mut implementations) = (0usize, 0usize);
        for (at, file) in files.iter().enumerate() {
            for item in &file.ast.items {
                let namespace = NamespaceId(at as u32);
                let mut lowering = Lowering {
                    b: self,
                    levels: Vec::new(),
                    namespace,
                    globals: globals[at].clone(),
                    error: None,
                };
                match item {
                    Item::Typedef(typedef) => {
                        let constraint = lowering.typedef(typedef)?;
                        self.program.typedefs[typedefs].constraint = constraint;
                        typedefs += 1;
                    }
                    Item::Implementation(implementation) => {
                        let entity = lowering.b.program.implementations[implementations].entity;
                        lowering.levels.push(Level::Instance(entity));
                        let body = lowering.block(&implementation.body, None)?;
                        self.program.implementations[implementations].body = body;
                        implementations += 1;
                    }
                    Item::Relation(relation) => {
                        lowering.annotations(relation)?;
                    }
                    _ => {}
                }
            }
        }
        for (at, file) in files.iter().enumerate() {
            let mut lowering = Lowering {
                b: self,
                levels: Vec::new(),
                namespace: NamespaceId(at as u32),
                globals: globals[at].clone(),
                error: None,
            };
            let mut stmts = Vec::new();
            for item in &file.ast.items {
                if let Item::Stmt(stmt) = item {
                    stmts.push(lowering.stmt(stmt)?);
                }
            }
            let block = self.add_block(stmts, &[]);
            self.program.toplevel.push((NamespaceId(at as u32), block));
        }
        Ok(())
    }

    pub(crate) fn add_block(&mut self, stmts: Vec<StmtId>, variables: &[Symbol]) -> BlockId {
        let id = BlockId(self.program.blocks.len() as u32);
        let names = self.add_frame_names(variables);
        let locals = variables.len() as u32;
        self.program.blocks.push(Block { stmts: stmts.into_boxed_slice(), locals, names });
        id
    }

    pub(crate) fn add_frame_names(&mut self, variables: &[Symbol]) -> u32 {
        self.program.frame_names.push(variables.into());
        self.program.frame_names.len() as u32 - 1
    }

    fn global_variables(&mut self, files: &[LoadedFile]) -> Vec<Globals> {
        let mut all = Vec::new();
        for (at, file) in files.iter().enumerate() {
            let mut declared: FxHashMap<Symbol, Loc> = FxHashMap::default();
            for item in &file.ast.items {
                let Item::Stmt(ast::Stmt::Assign(assign)) = item else { continue };
                let ast::AssignmentTarget::Variable(path) = &assign.target else { continue };
                if self.text(path.symbol).contains("::") || declared.contains_key(&path.symbol) {
                    continue;
                }
                declared.insert(path.symbol, assign.loc);
                let cell = self.program.globals;
                self.program.globals += 1;
                self.program.namespaces[at].variables.insert(path.symbol, cell);
            }
            all.push(Rc::new(declared));
        }
        all
    }

    /// The value of an expression that is constant.
    pub(crate) fn constant(&mut self, expr: &ast::Expr) -> Option<Value> {
        let id = self.lower_constant(expr);
        match self.program.expr(id).kind {
            ExprKind::Const(value) => Some(value),
            _ => None,
        }
    }

    fn lower_constant(&mut self, expr: &ast::Expr) -> ExprId {
        let mut lowering = Lowering {
            b: self,
            levels: Vec::new(),
            namespace: NamespaceId(0),
            globals: Globals::default(),
            error: None,
        };
        lowering.expr(expr)
    }

    pub(crate) fn renderer(&self) -> Renderer<'_> {
        Renderer { program: &self.program, heap: &self.heap, instances: &NoInstances }
    }

    pub(crate) fn render_ast(&mut self, expr: &ast::Expr) -> String {
        let id = self.lower_constant(expr);
        self.renderer().expr(id)
    }

    /// `type name = default`, as messages show a declaration.
    pub(crate) fn render_attribute(&mut self, attribute: &ast::Attribute) -> String {
        let default = match &attribute.default {
            ast::Default::Value(expr) => match expr.kind {
                ast::ExprKind::List(_) => " = List()".into(),
                ast::ExprKind::Dict(_) => " = Dict()".into(),
                _ => format!(" = {}", self.render_ast(expr)),
            },
            _ => String::new(),
        };
        format!(
            "{}{}{} {}{default}",
            self.text(attribute.ty.path.symbol),
            if attribute.ty.list { "[]" } else { "" },
            if attribute.ty.nullable { "?" } else { "" },
            self.text(attribute.name.symbol),
        )
    }
}

impl Lowering<'_> {
    fn check(&mut self, statement: &str, loc: Loc) -> Result<()> {
        match self.error.take() {
            Some(error) => Err(error.or_in_statement(|| statement.to_owned(), loc)),
            None => Ok(()),
        }
    }

    pub(crate) fn fail(&mut self, error: Box<CompileError>) {
        if self.error.is_none() {
            self.error = Some(error);
        }
    }

    pub(crate) fn add(&mut self, kind: ExprKind, loc: Loc) -> ExprId {
        let mut expr = Expr { kind, loc, temps: 0, emits: false, reads: false };
        let mut add = |id: &ExprId| {
            let part = self.b.program.expr(*id);
            expr.temps += part.temps;
            expr.emits |= part.emits;
            expr.reads |= part.reads;
        };
        match &expr.kind {
            kind if kind.is_temp() => (expr.temps, expr.emits) = (1, true),
            ExprKind::Var { var, .. } => {
                expr.emits = var.may_be_missing();
                expr.reads = true;
            }
            ExprKind::Regex(_) => expr.emits = true,
            ExprKind::Lookup { base, key } => [base, key].into_iter().for_each(add),
            ExprKind::List(items) => items.iter().for_each(add),
            ExprKind::Dict(items) => items.iter().for_each(|(_, item)| add(item)),
            ExprKind::Construct(construct) => {
                construct.direct.iter().for_each(|(_, value)| add(value));
                construct.spread.iter().chain(&construct.owner).for_each(add);
            }
            ExprKind::Not(inner) => add(inner),
            ExprKind::Binary { left, right, .. } => [left, right].into_iter().for_each(add),
            ExprKind::Format(format) | ExprKind::FString(format) => {
                format.parts.iter().for_each(|(_, part)| add(part));
            }
            _ => {}
        }
        let id = ExprId(self.b.program.exprs.len() as u32);
        self.b.program.exprs.push(expr);
        id
    }

    fn typedef(&mut self, typedef: &ast::Typedef) -> Result<ExprId> {
        self.levels.push(Level::SelfValue);
        let constraint = self.expr(&typedef.constraint);
        self.levels.pop();
        match self.error.take() {
            Some(error) => Err(error),
            None => Ok(constraint),
        }
    }

    fn annotations(&mut self, relation: &ast::Relation) -> Result<()> {
        let Some(Definition::Entity(entity)) = self.b.lookup(relation.left.symbol, self.namespace)
        else {
            return Ok(());
        };
        let statement = format!(
            "Relation({}, {})",
            self.b.text(relation.left.symbol),
            self.b.text(relation.right.symbol)
        );
        let own = &self.b.program.entity(entity).own;
        let named = |&&id: &&AttributeId| self.b.program.attribute(id).name == relation.name.symbol;
        let Some(&attribute) = own.iter().find(named) else { return Ok(()) };
        for annotation in &relation.annotations {
            let value = self.expr(annotation);
            self.check(&statement, relation.loc)?;
            self.b.program.annotations.push(Annotation {
                relation: attribute,
                value,
                statement: statement.as_str().into(),
                loc: Loc { column: false, ..relation.loc },
            });
        }
        Ok(())
    }

    pub(crate) fn stmt(&mut self, stmt: &ast::Stmt) -> Result<StmtId> {
        let (kind, loc) = match stmt {
            ast::Stmt::Assign(assign) => {
                let kind = match &assign.target {
                    ast::AssignmentTarget::Variable(path) => {
                        let value = self.expr(&assign.value);
                        let target = match self.variable(path.symbol) {
                            _ if self.b.text(path.symbol).contains("::") => Var::Missing,
                            var => var,
                        };
                        StmtKind::Assign { target, name: path.symbol, value }
                    }
                    ast::AssignmentTarget::Attribute { base, attribute } => {
                        let value =
                            self.value_for(&assign.value, None, Some(Owner::Reference(base)));
                        let base = self.expr(base);
                        StmtKind::SetAttr {
                            base,
                            name: attribute.symbol,
                            append: assign.append,
                            value,
                        }
                    }
                };
                (kind, assign.loc)
            }
            ast::Stmt::For(stmt) => {
                let iterable = self.expr(&stmt.iterable);
                self.check_in_for(stmt)?;
                let promises = self.promises(&[&stmt.body], Some(stmt.variable.symbol));
                let body = self.block(&stmt.body, Some(stmt.variable))?;
                let variable = stmt.variable.symbol;
                (StmtKind::For { variable, iterable, body, promises }, stmt.loc)
            }
            ast::Stmt::If(stmt) => {
                let condition = self.expr(&stmt.condition);
                self.check("If", stmt.loc)?;
                let promises = self.promises(&[&stmt.then, &stmt.otherwise], None);
                let then = self.block(&stmt.then, None)?;
                let otherwise = self.block(&stmt.otherwise, None)?;
                (StmtKind::If { condition, then, otherwise, promises }, stmt.loc)
            }
            ast::Stmt::Expr(expr) => (StmtKind::Expr(self.expr(expr)), expr.loc),
        };
        let id = StmtId(self.b.program.stmts.len() as u32);
        self.b.program.stmts.push(Stmt { kind, loc });
        if self.error.is_some() {
            let shown = self.b.renderer().stmt(id);
            self.check(&shown, loc)?;
        }
        Ok(id)
    }

    fn check_in_for(&mut self, stmt: &ast::For) -> Result<()> {
        let shown = format!("For({})", self.b.text(stmt.variable.symbol));
        self.check(&shown, stmt.loc)
    }

    /// Lowers a block. Its statements run in reverse source order.
    fn block(&mut self, stmts: &[ast::Stmt], variable: Option<ast::Name>) -> Result<BlockId> {
        let mut names: FxHashMap<Symbol, (u16, Loc)> = FxHashMap::default();
        let mut order: Vec<Symbol> = Vec::new();
        if let Some(variable) = variable {
            let loc = Loc { column: false, ..variable.loc };
            names.insert(variable.symbol, (0, loc));
            order.push(variable.symbol);
        }
        for stmt in stmts {
            let ast::Stmt::Assign(assign) = stmt else { continue };
            let ast::AssignmentTarget::Variable(path) = &assign.target else { continue };
            if self.b.text(path.symbol).contains("::") || names.contains_key(&path.symbol) {
                continue;
            }
            names.insert(path.symbol, (order.len() as u16, assign.loc));
            order.push(path.symbol);
        }
        if stmts.is_empty() && variable.is_none() {
            return Ok(BlockId(0));
        }
        for &name in &order {
            self.warn_shadowing(name, names[&name].1);
        }
        let locals = order.len() as u32;
        if locals > 0 {
            self.levels.push(Level::Block(names));
        }
        let mut lowered = Vec::new();
        let mut failed = None;
        for stmt in stmts {
            match self.stmt(stmt) {
                Ok(id) => lowered.push(id),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        if locals > 0 {
            self.levels.pop();
        }
        if let Some(error) = failed {
            return Err(error);
        }
        lowered.reverse();
        Ok(self.b.add_block(lowered, &order))
    }

    fn warn_shadowing(&mut self, name: Symbol, loc: Loc) {
        let outer = self.levels.iter().rev().find_map(|level| match level {
            Level::Block(names) => names.get(&name).map(|(_, loc)| *loc),
            _ => None,
        });
        let Some(first) = outer.or_else(|| self.globals.get(&name).copied()) else { return };
        let sources = &self.b.program.sources;
        let text = format!(
            "Variable `{}` shadowed: originally declared at {}, shadowed at {}",
            self.b.text(name),
            sources.location(first),
            sources.location(loc)
        );
        self.b.warnings.push(("VariableShadowWarning", text, Some(loc)));
    }

    /// Attribute assignments inside blocks to owners that are known outside of them.
    fn promises(&mut self, bodies: &[&Vec<ast::Stmt>], variable: Option<Symbol>) -> Box<[Promise]> {
        let mut found: Vec<(&ast::Expr, Symbol)> = Vec::new();
        for body in bodies {
            let mut inner: Vec<Symbol> = variable.into_iter().collect();
            collect_promises(body, &mut inner, &mut found);
        }
        let mut promises = Vec::new();
        for (base, name) in found {
            let error = self.error.take();
            let base = self.expr(base);
            let failed = self.error.take().is_some();
            self.error = error;
            if !failed {
                promises.push(Promise { base, name });
            }
        }
        promises.into_boxed_slice()
    }

    /// Resolves the storage of a variable.
    pub(crate) fn variable(&self, name: Symbol) -> Var {
        let text = self.b.text(name);
        if let Some((prefix, last)) = text.rsplit_once("::") {
            let Some(namespace) = self.b.visible_namespace(prefix, self.namespace) else {
                return Var::MissingNamespace;
            };
            let last = self.b.program.interner.get(last);
            let variables = &self.b.program.namespaces[namespace.index()].variables;
            return match last.and_then(|last| variables.get(&last)) {
                Some(&cell) => Var::Global(cell),
                None => Var::Missing,
            };
        }
        let global =
            self.b.program.namespaces[self.namespace.index()].variables.get(&name).copied();
        let mut hops = 0;
        for level in self.levels.iter().rev() {
            match level {
                Level::Block(names) => {
                    if let Some(&(slot, _)) = names.get(&name) {
                        return Var::Local { hops, slot };
                    }
                    hops += 1;
                }
                Level::Member(member) => {
                    if *member == name {
                        return Var::Local { hops, slot: 0 };
                    }
                    hops += 1;
                }
                Level::Instance(entity) => {
                    if name == self.b.known.self_ {
                        return Var::SelfInstance { hops };
                    }
                    if self.may_have(*entity, name) {
                        let certain = self.b.program.entity(*entity).slot_of.contains_key(&name);
                        return Var::Instance { hops, certain, name, fallback: global };
                    }
                }
                Level::SelfValue => {
                    return if name == self.b.known.self_ { Var::SelfValue } else { Var::Missing };
                }
            }
        }
        global.map_or(Var::Missing, Var::Global)
    }

    /// True if a name refers to the variable of an enclosing comprehension.
    pub(crate) fn is_member(&self, name: Symbol) -> bool {
        for level in self.levels.iter().rev() {
            match level {
                Level::Member(member) if *member == name => return true,
                Level::Block(names) if names.contains_key(&name) => return false,
                Level::Instance(_) | Level::SelfValue => return false,
                _ => {}
            }
        }
        false
    }

    /// True if an instance of the entity or of a descendant has an attribute of that name.
    fn may_have(&self, entity: EntityId, name: Symbol) -> bool {
        if self.b.program.entity(entity).slot_of.contains_key(&name) {
            return true;
        }
        let mut pending = self.b.program.entity(entity).children.clone();
        let mut seen = pending.clone();
        while let Some(child) = pending.pop() {
            let child = self.b.program.entity(child);
            if child.slot_of.contains_key(&name) {
                return true;
            }
            for &next in &child.children {
                if !seen.contains(&next) {
                    seen.push(next);
                    pending.push(next);
                }
            }
        }
        false
    }

    pub(crate) fn with_variable<T>(
        &mut self,
        variable: ast::Name,
        inside: impl FnOnce(&mut Self) -> T,
    ) -> T {
        self.levels.push(Level::Member(variable.symbol));
        let result = inside(self);
        self.levels.pop();
        result
    }
}

fn collect_promises<'a>(
    body: &'a [ast::Stmt],
    inner: &mut Vec<Symbol>,
    found: &mut Vec<(&'a ast::Expr, Symbol)>,
) {
    let outer = inner.len();
    for stmt in body {
        if let ast::Stmt::Assign(assign) = stmt
            && let ast::AssignmentTarget::Variable(path) = &assign.target
        {
            inner.push(path.symbol);
        }
    }
    // In the order in which the statements of a block start.
    for stmt in body.iter().rev() {
        match stmt {
            ast::Stmt::Assign(assign) => {
                if let ast::AssignmentTarget::Attribute { base, attribute } = &assign.target
                    && root_of(base).is_some_and(|root| !inner.contains(&root))
                {
                    found.push((base, attribute.symbol));
                }
            }
            ast::Stmt::For(stmt) => {
                inner.push(stmt.variable.symbol);
                collect_promises(&stmt.body, inner, found);
                inner.pop();
            }
            ast::Stmt::If(stmt) => {
                collect_promises(&stmt.then, inner, found);
                collect_promises(&stmt.otherwise, inner, found);
            }
            ast::Stmt::Expr(_) => {}
        }
    }
    inner.truncate(outer);
}

fn root_of(expr: &ast::Expr) -> Option<Symbol> {
    match &expr.kind {
        ast::ExprKind::Variable(path) => Some(path.symbol),
        ast::ExprKind::Attribute { base, .. } => root_of(base),
        _ => None,
    }
}
