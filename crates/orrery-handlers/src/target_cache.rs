//! Cache of data about an agent's target that many resources use: results of slow queries, ids of
//! users and groups.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use orrery_base::lock::IgnorePoison;

use crate::error::{Cause, TargetError, TargetVerb};
use crate::target::{AccountName, Result, Target};

/// Valid for one deploy of an agent's resources. A new deploy clears it or starts with a new one,
/// since the data may be outdated.
#[derive(Default)]
pub struct TargetCache {
    cached: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
    accounts: Mutex<Accounts>,
}

#[derive(Default)]
struct Accounts {
    users: HashMap<Box<str>, u32>,
    groups: HashMap<Box<str>, u32>,
}

impl fmt::Debug for TargetCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TargetCache").finish_non_exhaustive()
    }
}

impl TargetCache {
    pub fn new() -> Self {
        TargetCache::default()
    }

    /// Returns the cached result of type `T`, or runs the query. Every query has its own result
    /// type.
    pub fn get_or_query<T: Send + Sync + 'static, E>(
        &self,
        ask: impl FnOnce() -> std::result::Result<T, E>,
    ) -> std::result::Result<Arc<T>, E> {
        if let Some(found) = self.get::<T>() {
            return Ok(found);
        }
        // Without the lock: a query may use the cache itself.
        let answer = Arc::new(ask()?);
        self.cached.lock().ignore_poison().insert(TypeId::of::<T>(), Arc::clone(&answer) as _);
        Ok(answer)
    }

    /// Returns the cached result of type `T`.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let found = self.cached.lock().ignore_poison().get(&TypeId::of::<T>()).cloned()?;
        found.downcast().ok()
    }

    /// Drops a result that is outdated.
    pub fn invalidate<T: Send + Sync + 'static>(&self) {
        self.cached.lock().ignore_poison().remove(&TypeId::of::<T>());
    }

    /// Drops the ids of users and groups.
    pub fn invalidate_accounts(&self) {
        *self.accounts.lock().ignore_poison() = Accounts::default();
    }

    /// Drops everything.
    pub fn clear(&self) {
        self.cached.lock().ignore_poison().clear();
        self.invalidate_accounts();
    }

    /// Returns the uid of a user, given by name or number. A missing user is not cached: it may be
    /// created.
    pub fn uid(&self, target: &dyn Target, name: &str) -> Result<u32> {
        if let Some(uid) = self.accounts.lock().ignore_poison().users.get(name) {
            return Ok(*uid);
        }
        let found = target.user(AccountName::Name(name))?.map(|user| user.uid);
        let uid = found.or_else(|| name.parse().ok()).ok_or_else(|| {
            TargetError::new(TargetVerb::LookUp, format!("user {name}"), Cause::UnknownUser)
        })?;
        self.accounts.lock().ignore_poison().users.insert(name.into(), uid);
        Ok(uid)
    }

    /// Returns the gid of a group, given by name or number.
    pub fn gid(&self, target: &dyn Target, name: &str) -> Result<u32> {
        if let Some(gid) = self.accounts.lock().ignore_poison().groups.get(name) {
            return Ok(*gid);
        }
        let found = target.group(AccountName::Name(name))?.map(|group| group.gid);
        let gid = found.or_else(|| name.parse().ok()).ok_or_else(|| {
            TargetError::new(TargetVerb::LookUp, format!("group {name}"), Cause::UnknownGroup)
        })?;
        self.accounts.lock().ignore_poison().groups.insert(name.into(), gid);
        Ok(gid)
    }
}
