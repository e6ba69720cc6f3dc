//! Conversion of visited rows to owned resources: ids are shared, strings are copied once.

use std::sync::Arc;

use orrery_model::{Attributes, Resource, ResourceId, Source};
use rustc_hash::FxHashMap;

use crate::{ResourceKey, ResourceRow, Result, StoreError};

/// Collects the rows of a version. Requirements can point ahead, so they become ids at the end.
#[derive(Default)]
pub(crate) struct ResourceLoader {
    resources: Vec<Resource>,
    index: FxHashMap<ResourceKey, u32>,
    requires: Vec<(u32, Box<[ResourceKey]>)>,
    names: NameInterner,
    broken: Option<StoreError>,
}

/// Interned names of sets and files: few, and in almost every row.
#[derive(Default)]
pub(crate) struct NameInterner(FxHashMap<Box<str>, Arc<str>>);

impl NameInterner {
    pub(crate) fn intern(&mut self, text: &str) -> Arc<str> {
        if let Some(shared) = self.0.get(text) {
            return Arc::clone(shared);
        }
        let shared: Arc<str> = text.into();
        self.0.insert(text.into(), Arc::clone(&shared));
        shared
    }
}

/// The resource of a row, without its requirements.
pub(crate) fn to_resource(row: &ResourceRow<'_>, names: &mut NameInterner) -> Result<Resource> {
    Ok(Resource {
        id: parse_id(row.id)?,
        attributes: Attributes::from_canonical(row.attributes),
        hash: row.hash,
        requires: Vec::new(),
        flags: row.flags,
        set: row.set.map(|set| names.intern(set)),
        source: row.source.map(|source| Source {
            file: names.intern(source.file),
            line: source.line,
            column: source.column,
        }),
    })
}

pub(crate) fn parse_id(text: &str) -> Result<ResourceId> {
    text.parse().map_err(|error| StoreError::Unreadable(format!("{error}")))
}

impl ResourceLoader {
    pub(crate) fn add(&mut self, row: ResourceRow<'_>) {
        let resource = match to_resource(&row, &mut self.names) {
            Ok(resource) => resource,
            Err(error) => {
                self.broken.get_or_insert(error);
                return;
            }
        };
        let Ok(index) = u32::try_from(self.resources.len()) else {
            self.broken.get_or_insert(StoreError::Unreadable("too many resources".to_owned()));
            return;
        };
        self.index.insert(row.key, index);
        if !row.requires.is_empty() {
            self.requires.push((index, row.requires.into()));
        }
        self.resources.push(resource);
    }

    pub(crate) fn finish(mut self) -> Result<Vec<Resource>> {
        if let Some(error) = self.broken {
            return Err(error);
        }
        for (index, keys) in self.requires {
            let ids: Vec<ResourceId> = keys
                .iter()
                .filter_map(|key| self.index.get(key))
                .map(|required| self.resources[*required as usize].id.clone())
                .collect();
            self.resources[index as usize].requires = ids;
        }
        Ok(self.resources)
    }
}
