//! Errors that show in one file once names and values are known.

use rustc_hash::{FxHashMap, FxHashSet};

use super::Lowering;
use crate::ast::{Arg, Expr, ExprKind, ImplementationRef, Loc, Name, Path};
use crate::interner::Symbol;
use crate::render;
use crate::tree::NodeId;

impl Lowering<'_, '_> {
    /// Reports a hyphen in a name that `node` declares.
    pub(super) fn check_hyphen(&mut self, name: Name, node: NodeId) {
        let text = self.interner.text(name.symbol);
        if !text.contains('-') {
            return;
        }
        let text = text.to_owned();
        let message =
            format!("The use of '-' in identifiers is not allowed. please rename {text}.");
        self.push_error("HyphenException", message, name.loc, self.after(node));
        self.reported_in(text);
    }

    fn reported_in(&mut self, statement: String) {
        if let Some(error) = self.errors.last_mut() {
            error.reported_in = Some(statement);
        }
    }

    /// Reports keys that occur twice, and retains the first of each. Both locations are those of
    /// the values.
    pub(super) fn check_duplicate_keys(
        &mut self,
        dict: NodeId,
        entries: &mut Vec<(Box<str>, Loc, Expr)>,
    ) {
        let mut seen: FxHashMap<&str, Loc> = FxHashMap::default();
        let mut duplicates = Vec::new();
        for (index, (key, _, value)) in entries.iter().enumerate() {
            match seen.get(&**key) {
                Some(first) => duplicates.push((index, *first, value.loc)),
                None => drop(seen.insert(key, value.loc)),
            }
        }
        if duplicates.is_empty() {
            return;
        }
        let moment = self.after_expression(dict);
        for (index, first, again) in &duplicates {
            let message = format!("duplicate key in dict {}", entries[*index].0);
            self.push_error("DuplicateException", message, *again, moment);
            if let Some(error) = self.errors.last_mut() {
                error.duplicate_of = Some(*first);
            }
        }
        let mut duplicates = duplicates.into_iter().peekable();
        let mut index = 0;
        entries.retain(|_| {
            let drop = duplicates.next_if(|(duplicate, ..)| *duplicate == index).is_some();
            index += 1;
            !drop
        });
    }

    /// Returns the first repeated keyword argument: its position and name.
    fn repeated(&self, args: &[Arg]) -> Option<(usize, Symbol)> {
        // Most calls have a handful of arguments, so that looking back is the fastest way; the
        // table is for those that a program wrote.
        let mut seen: FxHashSet<Symbol> = FxHashSet::default();
        for (index, arg) in args.iter().enumerate() {
            let Some(name) = keyword(arg) else {
                continue;
            };
            let again = match args.len() {
                0..16 => args[..index].iter().any(|before| keyword(before) == Some(name)),
                _ => !seen.insert(name),
            };
            if again {
                return Some((index, name));
            }
        }
        None
    }

    pub(super) fn check_call(&mut self, function: Path, args: &[Arg], node: NodeId) {
        let Some((repeated, name)) = self.repeated(args) else {
            return;
        };
        let message = format!(
            "Keyword argument {} repeated in function call {}()",
            self.interner.text(name),
            self.interner.text(function.symbol)
        );
        // The call is shown without this keyword argument and those after it.
        let shown = args
            .iter()
            .enumerate()
            .filter(|(index, arg)| *index < repeated || keyword(arg).is_none())
            .map(|(_, arg)| arg);
        let statement = render::call(function, shown, self.interner);
        self.push_error("RuntimeException", message, function.loc, self.after_expression(node));
        self.reported_in(statement);
    }

    pub(super) fn check_constructor(&mut self, class: Path, args: &[Arg], loc: Loc, node: NodeId) {
        let Some((_, name)) = self.repeated(args) else {
            return;
        };
        let class = self.interner.text(class.symbol);
        let attribute = self.interner.text(name);
        let message =
            format!("The attribute {attribute} in the constructor call of {class} is already set.");
        let statement = format!("Construct({class})");
        self.push_error("RuntimeException", message, loc, self.after_expression(node));
        self.reported_in(statement);
    }

    /// Reports `parents` with a condition: the parents' implementations have their own conditions.
    pub(super) fn check_parents(
        &mut self,
        entity: Path,
        using: &[ImplementationRef],
        when: Option<&Expr>,
        node: NodeId,
    ) {
        let conditional = when.is_some_and(|when| !matches!(when.kind, ExprKind::Bool(true)));
        if conditional && using.iter().any(|used| matches!(used, ImplementationRef::Parents(_))) {
            let message = "Conditional implementation with parents not allowed".to_owned();
            self.push_error("RuntimeException", message, entity.loc, self.after(node));
            self.reported_in(format!("Implement({})", self.interner.text(entity.symbol)));
        }
    }

    /// Reports a typedef with a condition that does not depend on the value. The name of the
    /// typedef may stand for the value here, although it will not be found later.
    pub(super) fn check_constraint(&mut self, name: Name, constraint: &Expr, node: NodeId) {
        let this = self.intern("self");
        if references(constraint, this) || references(constraint, name.symbol) {
            return;
        }
        let message = "typedef expressions should reference the self variable".to_owned();
        self.push_error("TypingException", message, name.loc, self.after(node));
        self.reported_in(format!("Type({})", self.interner.text(name.symbol)));
    }
}

fn keyword(arg: &Arg) -> Option<Symbol> {
    match arg {
        Arg::Keyword(name, _) => Some(name.symbol),
        _ => None,
    }
}

/// Returns true if the expression needs the value of the variable. By the language's rules, `x is
/// defined` does not count, nor do the guards of comprehensions.
fn references(expr: &Expr, variable: Symbol) -> bool {
    let any = |exprs: &[&Expr]| exprs.iter().any(|expr| references(expr, variable));
    let in_args = |args: &[Arg]| {
        args.iter().any(|arg| match arg {
            Arg::Positional(value) | Arg::Keyword(_, value) | Arg::Spread(value) => {
                references(value, variable)
            }
        })
    };
    match &expr.kind {
        ExprKind::Null
        | ExprKind::Bool(_)
        | ExprKind::Int(_)
        | ExprKind::Float(_)
        | ExprKind::String(_) => false,
        // A pattern is matched against `self`.
        ExprKind::Regex(_) => true,
        ExprKind::Interpolation { parts, .. } | ExprKind::FString { parts, .. } => {
            parts.iter().any(|part| references(&part.reference, variable))
        }
        ExprKind::Variable(path) => path.symbol == variable,
        ExprKind::Attribute { base, .. } => references(base, variable),
        ExprKind::Call { args, .. }
        | ExprKind::Construct { args, .. }
        | ExprKind::IndexLookup { args, .. } => in_args(args),
        ExprKind::ShortIndexLookup { base, args, .. } => {
            references(base, variable) || in_args(args)
        }
        ExprKind::Lookup { base, key } => any(&[base, key]),
        ExprKind::List(items) => items.iter().any(|item| references(item, variable)),
        ExprKind::Dict(entries) => entries.iter().any(|(_, _, value)| references(value, variable)),
        ExprKind::Comprehension { value, variable: bound, iterable, .. } => {
            references(iterable, variable)
                || (bound.symbol != variable && references(value, variable))
        }
        ExprKind::Not(inner) => references(inner, variable),
        ExprKind::Binary { left, right, .. } => any(&[left, right]),
        ExprKind::Conditional { condition, then, otherwise } => any(&[condition, then, otherwise]),
        ExprKind::IsDefined { base, .. } => {
            base.as_ref().is_some_and(|base| references(base, variable))
        }
    }
}
