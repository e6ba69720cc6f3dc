//! Resources as lists show them, and the names that they refer to by number.

use std::sync::Arc;

use orrery_model::{ResourceState, Source};
use rustc_hash::FxHashMap;

use crate::names::{NameCache, NameRef};
use crate::records::pending_release::RemovalStage;
use crate::records::{Resources, Transactions as _};
use crate::resource_loader::parse_id;
use crate::sql::{RowExt as _, SqlExt as _};
use crate::{EnvironmentKey, ResourceKey, ResourceOverview, Result, StoreError, values};

/// A resource with its state, as in lists.
#[derive(Clone, Debug)]
pub struct ResourceLine {
    pub summary: ResourceOverview,
    /// `None` for the shared set.
    pub set: Option<String>,
    /// `None` if it is not removed.
    pub removal: Option<RemovalStage>,
}

/// A line of the list before its names are resolved.
#[derive(Clone)]
pub(super) struct UnresolvedLine {
    pub(super) key: i64,
    pub(super) name: String,
    pub(super) state: ResourceState,
    /// File, line and column.
    pub(super) source: Option<(i64, i64, i64)>,
    /// 0 for the shared set.
    pub(super) set: i64,
    pub(super) removal: Option<RemovalStage>,
}

impl UnresolvedLine {
    fn file_ref(&self) -> Option<NameRef> {
        self.source.map(|(file, _, _)| NameRef::SourceFile(file))
    }

    fn set_ref(&self, environment: EnvironmentKey) -> Option<NameRef> {
        (self.set != 0).then_some(NameRef::ResourceSet(environment, self.set))
    }

    /// Names that the line needs.
    pub(super) fn name_refs(
        &self,
        environment: EnvironmentKey,
    ) -> impl Iterator<Item = NameRef> + use<> {
        self.file_ref().into_iter().chain(self.set_ref(environment))
    }

    pub(super) fn resolve(
        self,
        environment: EnvironmentKey,
        names: &ResolvedNames,
    ) -> Result<ResourceLine> {
        let source = match (self.file_ref(), self.source) {
            (Some(file), Some((_, line, column))) => Some(Source {
                file: names.get(file)?,
                line: u32::try_from(line).unwrap_or(0),
                column: u32::try_from(column).unwrap_or(0),
            }),
            _ => None,
        };
        let set = self.set_ref(environment).map(|set| names.get(set)).transpose()?;
        let UnresolvedLine { key, name, state, removal, .. } = self;
        let (key, id, status) = (ResourceKey(key), parse_id(&name)?, state.status());
        Ok(ResourceLine {
            summary: ResourceOverview { key, id, status, state, source },
            set: set.map(|set| set.to_string()),
            removal,
        })
    }
}

/// Names of some lines.
#[derive(Default)]
pub(super) struct ResolvedNames(FxHashMap<NameRef, Arc<str>>);

impl ResolvedNames {
    /// Takes names from the cache. Returns the references to the others.
    pub(super) fn cached(
        cache: &NameCache,
        refs: impl Iterator<Item = NameRef>,
    ) -> (Self, Vec<NameRef>) {
        let (mut names, mut missing) = (ResolvedNames::default(), Vec::new());
        for name in refs {
            if names.0.contains_key(&name) || missing.contains(&name) {
                continue;
            }
            match cache.get(name) {
                Some(text) => {
                    names.0.insert(name, text);
                }
                None => missing.push(name),
            }
        }
        (names, missing)
    }

    /// Adds a name that was read from the database, here and in the cache.
    pub(super) fn add(&mut self, cache: &NameCache, name: NameRef, text: &str) {
        let text: Arc<str> = text.into();
        cache.insert(name, Arc::clone(&text));
        self.0.insert(name, text);
    }

    fn get(&self, name: NameRef) -> Result<Arc<str>> {
        let found = self.0.get(&name).cloned();
        found.ok_or_else(|| StoreError::Unreadable(format!("no name for {name:?}")))
    }
}

impl Resources<'_> {
    /// Names, from the cache or else from the database. Read outside of the transaction of the
    /// lines, which then is mostly a single statement: names do not change.
    pub(super) fn resolve_names(
        &self,
        refs: impl Iterator<Item = NameRef>,
    ) -> Result<ResolvedNames> {
        let cache = self.backend().names();
        let (mut names, missing) = ResolvedNames::cached(cache, refs);
        for name in missing {
            let (select, id) = name.lookup();
            let found = self.query(|sql| sql.first(select, values![id], |row| row.string(0)))?;
            if let Some(text) = found {
                names.add(cache, name, &text);
            }
        }
        Ok(names)
    }

    /// Resolves the names of lines.
    pub(super) fn resolve_lines(
        &self,
        environment: EnvironmentKey,
        lines: Vec<UnresolvedLine>,
    ) -> Result<Vec<ResourceLine>> {
        let refs = lines.iter().flat_map(|line| line.name_refs(environment));
        let names = self.resolve_names(refs)?;
        lines.into_iter().map(|line| line.resolve(environment, &names)).collect()
    }
}
