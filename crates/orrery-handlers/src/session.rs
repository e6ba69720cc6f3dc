//! What is learned once about an agent's target and used for many resources: answers of slow queries,
//! numbers of users and groups.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Cause, Operation, TargetError};
use crate::target::{AccountName, Result, Target};

/// Lasts for one pass over the resources of one agent. Who starts another pass starts with a new one, or
/// clears it: what it holds may be outdated by then.
#[derive(Default)]
pub struct Session {
    cached: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
    accounts: Mutex<Accounts>,
}

#[derive(Default)]
struct Accounts {
    users: HashMap<Box<str>, u32>,
    groups: HashMap<Box<str>, u32>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    pub fn new() -> Self {
        Session::default()
    }

    /// The answer of type `T`; asks for it if nobody did before. Every query has a type of its own.
    pub fn cached<T: Send + Sync + 'static, E>(
        &self,
        ask: impl FnOnce() -> std::result::Result<T, E>,
    ) -> std::result::Result<Arc<T>, E> {
        if let Some(found) = self.known::<T>() {
            return Ok(found);
        }
        // Without the lock: a query may use the session itself.
        let answer = Arc::new(ask()?);
        lock(&self.cached).insert(TypeId::of::<T>(), Arc::clone(&answer) as _);
        Ok(answer)
    }

    /// The answer of type `T`, if somebody asked for it.
    pub fn known<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let found = lock(&self.cached).get(&TypeId::of::<T>()).cloned()?;
        found.downcast().ok()
    }

    /// Drops an answer that is no longer true.
    pub fn forget<T: Send + Sync + 'static>(&self) {
        lock(&self.cached).remove(&TypeId::of::<T>());
    }

    /// Drops what is known of users and groups.
    pub fn forget_accounts(&self) {
        *lock(&self.accounts) = Accounts::default();
    }

    /// Drops everything.
    pub fn clear(&self) {
        lock(&self.cached).clear();
        self.forget_accounts();
    }

    /// The number of a user, by name or as text. That there is none is not remembered: it may come.
    pub fn uid(&self, target: &dyn Target, name: &str) -> Result<u32> {
        if let Some(uid) = lock(&self.accounts).users.get(name) {
            return Ok(*uid);
        }
        let found = target.user(AccountName::Name(name))?.map(|user| user.uid);
        let uid = found.or_else(|| name.parse().ok()).ok_or_else(|| {
            TargetError::new(Operation::LookUp, format!("user {name}"), Cause::UnknownUser)
        })?;
        lock(&self.accounts).users.insert(name.into(), uid);
        Ok(uid)
    }

    /// The number of a group, by name or as text.
    pub fn gid(&self, target: &dyn Target, name: &str) -> Result<u32> {
        if let Some(gid) = lock(&self.accounts).groups.get(name) {
            return Ok(*gid);
        }
        let found = target.group(AccountName::Name(name))?.map(|group| group.gid);
        let gid = found.or_else(|| name.parse().ok()).ok_or_else(|| {
            TargetError::new(Operation::LookUp, format!("group {name}"), Cause::UnknownGroup)
        })?;
        lock(&self.accounts).groups.insert(name.into(), gid);
        Ok(gid)
    }
}
