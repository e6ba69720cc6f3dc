//! Scopes of a template: a chain that closures may retain.

use std::cell::RefCell;
use std::rc::Rc;

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

use super::value::Val;

#[derive(Default)]
pub(super) struct Scope {
    names: RefCell<HashMap<Rc<str>, Val, FxBuildHasher>>,
    parent: Option<Rc<Scope>>,
}

impl Scope {
    pub(super) fn root() -> Rc<Scope> {
        Rc::new(Scope::default())
    }

    pub(super) fn inner(parent: &Rc<Scope>) -> Rc<Scope> {
        Rc::new(Scope { names: RefCell::default(), parent: Some(parent.clone()) })
    }

    pub(super) fn set(&self, name: Rc<str>, value: Val) {
        self.names.borrow_mut().insert(name, value);
    }

    pub(super) fn get(&self, name: &str) -> Option<Val> {
        let mut scope = self;
        loop {
            if let Some(found) = scope.names.borrow().get(name) {
                return Some(found.clone());
            }
            scope = scope.parent.as_deref()?;
        }
    }

    /// A copy of all visible names in one scope, for an included template.
    pub(super) fn flattened(&self) -> Rc<Scope> {
        let flat = Scope::default();
        let mut chain = vec![self];
        while let Some(parent) = chain.last().and_then(|scope| scope.parent.as_deref()) {
            chain.push(parent);
        }
        for scope in chain.into_iter().rev() {
            for (name, value) in scope.names.borrow().iter() {
                flat.set(name.clone(), value.clone());
            }
        }
        Rc::new(flat)
    }

    /// Names of this scope alone that do not begin with an underscore, sorted.
    pub(super) fn exports(&self) -> Vec<(Rc<str>, Val)> {
        let names = self.names.borrow();
        let mut exports: Vec<_> = names
            .iter()
            .filter(|(name, _)| !name.starts_with('_'))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        exports.sort_by(|(left, _), (right, _)| left.cmp(right));
        exports
    }
}
