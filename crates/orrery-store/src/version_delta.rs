//! Difference between a given version and the stored one, independent of the database.

use md5::{Digest, Md5};
use orrery_model::Resource;
use rustc_hash::FxHashMap;

use crate::encoding::flags_code;
use crate::sql::{Row, RowExt as _};
use crate::{PutScope, Result, StoreError};

/// Digest of everything that makes a resource equal between two versions. It covers more than the
/// intent, but not the source location. For most resources it is the hash of the intent.
pub(crate) fn digest(resource: &Resource) -> [u8; 16] {
    let flags = flags_code(resource.flags);
    if flags == 0 && resource.set.is_none() && resource.requires.is_empty() {
        return resource.hash.0;
    }
    let mut digest = Md5::new();
    digest.update(resource.hash.0);
    digest.update(flags.to_le_bytes());
    let mut text = |text: &str| {
        digest.update((text.len() as u64).to_le_bytes());
        digest.update(text.as_bytes());
    };
    // An empty set name differs from no set.
    text(resource.set.as_deref().map_or("shared", |_| "named"));
    text(resource.set.as_deref().unwrap_or_default());
    resource.requires.iter().for_each(|required| text(required.as_str()));
    digest.finalize().into()
}

/// The given resources in the order of their ids.
pub(crate) struct SortedInput<'a> {
    pub(crate) resources: &'a [Resource],
    /// Indexes in sorted order, if the resources themselves are not sorted.
    order: Option<Vec<u32>>,
}

impl<'a> SortedInput<'a> {
    pub(crate) fn new(resources: &'a [Resource]) -> Result<Self> {
        let count = u32::try_from(resources.len())
            .map_err(|_| StoreError::Unreadable("too many resources in one version".to_owned()))?;
        let given = if resources.is_sorted_by(|a, b| a.id <= b.id) {
            SortedInput { resources, order: None }
        } else {
            let mut order: Vec<u32> = (0..count).collect();
            order
                .sort_unstable_by(|a, b| resources[*a as usize].id.cmp(&resources[*b as usize].id));
            SortedInput { resources, order: Some(order) }
        };
        for position in 1..given.resources.len() {
            if given.at(position - 1).id == given.at(position).id {
                return Err(StoreError::DuplicateResource(given.at(position).id.to_string()));
            }
        }
        Ok(given)
    }

    pub(crate) fn index(&self, position: usize) -> usize {
        self.order.as_ref().map_or(position, |order| order[position] as usize)
    }

    pub(crate) fn at(&self, position: usize) -> &'a Resource {
        &self.resources[self.index(position)]
    }

    /// Index of an id among the given resources.
    pub(crate) fn find(&self, id: &str) -> Option<usize> {
        let (mut low, mut high) = (0, self.resources.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.at(middle).id.as_str().cmp(id) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Some(self.index(middle)),
            }
        }
        None
    }
}

/// Rows that a put has to write. Indexes are those of the given resources.
#[derive(Default)]
pub(crate) struct VersionDelta {
    /// Keys of the given resources; 0 where there is none yet.
    pub(crate) keys: Vec<i64>,
    /// Resources without a row, in the order of ids.
    pub(crate) created: Vec<usize>,
    /// Resources of earlier versions that are not in the newest.
    pub(crate) readded: Vec<usize>,
    /// Resources that differ from the newest version, with the revision that they replace.
    pub(crate) changed: Vec<(usize, i64)>,
    /// Resources of the newest version that are not in this one: key and revision.
    pub(crate) removed: Vec<(i64, i64)>,
    /// Unchanged resources with another source location.
    pub(crate) relocated: Vec<usize>,
}

/// A row of the table `resource`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredResource<'a> {
    pub(crate) key: i64,
    pub(crate) head: Option<i64>,
    pub(crate) digest: Option<&'a [u8]>,
    /// File, line and column.
    pub(crate) source: (Option<i64>, Option<i64>, Option<i64>),
}

impl<'a> StoredResource<'a> {
    /// Reads the columns `id`, `head`, `digest`, `source_file`, `source_line` and `source_column`
    /// from `at` on.
    pub(crate) fn from_row(row: &'a impl Row, at: usize) -> Result<Self> {
        Ok(StoredResource {
            key: row.int(at)?,
            head: row.integer(at + 1)?,
            digest: row.blob(at + 2)?,
            source: (row.integer(at + 3)?, row.integer(at + 4)?, row.integer(at + 5)?),
        })
    }
}

impl VersionDelta {
    /// Compares a given resource with the stored row of the same name.
    pub(crate) fn compare(
        &mut self,
        index: usize,
        resource: &Resource,
        stored: &StoredResource<'_>,
        files: &FxHashMap<String, i64>,
    ) {
        self.keys[index] = stored.key;
        let Some(head) = stored.head else {
            self.readded.push(index);
            return;
        };
        if stored.digest != Some(&digest(resource)[..]) {
            self.changed.push((index, head));
            return;
        }
        let source = resource.source.as_ref();
        let given = (
            source.and_then(|source| files.get(&*source.file).copied()),
            source.map(|source| i64::from(source.line)),
            source.map(|source| i64::from(source.column)),
        );
        if stored.source != given {
            self.relocated.push(index);
        }
    }

    /// Indexes of the resources that get a new revision, resources without a row first.
    pub(crate) fn with_new_revision(&self) -> impl Iterator<Item = usize> {
        let changed = self.changed.iter().map(|(index, _)| *index);
        self.created.iter().chain(&self.readded).copied().chain(changed)
    }

    /// Asserts, in debug builds, that every given resource is in at most one list, and that exactly
    /// those to be created have no key yet.
    pub(crate) fn assert_disjoint(&self, given: &SortedInput<'_>) {
        if !cfg!(debug_assertions) {
            return;
        }
        debug_assert_eq!(self.keys.len(), given.resources.len());
        let mut listed = vec![false; self.keys.len()];
        let relocated = self.relocated.iter().copied();
        for index in self.with_new_revision().chain(relocated) {
            debug_assert!(!listed[index], "{} is listed twice", given.resources[index].id);
            listed[index] = true;
        }
        for index in &self.created {
            debug_assert_eq!(self.keys[*index], 0, "{}", given.resources[*index].id);
        }
        let unnamed = self.keys.iter().filter(|key| **key == 0).count();
        debug_assert_eq!(unnamed, self.created.len(), "a resource without a row is not created");
        let ids = |pair: &[usize]| given.resources[pair[0]].id < given.resources[pair[1]].id;
        debug_assert!(self.created.windows(2).all(ids), "keys follow the order of ids");
    }

    /// Asserts, in debug builds, that every given resource has a key, and that a version which was
    /// given completely has as many resources as were given.
    pub(crate) fn assert_complete(&self, scope: PutScope<'_>, total: i64) {
        debug_assert!(self.keys.iter().all(|key| *key > 0), "a resource has no key");
        debug_assert!(total >= 0, "a version has {total} resources");
        if matches!(scope, PutScope::All) {
            debug_assert_eq!(i64::try_from(self.keys.len()).ok(), Some(total));
        }
    }

    pub(crate) fn is_same_version(&self) -> bool {
        self.created.is_empty()
            && self.readded.is_empty()
            && self.changed.is_empty()
            && self.removed.is_empty()
    }
}

/// Fails if the base of a version is not the newest version.
pub(crate) fn check_base(
    base: Option<orrery_model::VersionNumber>,
    newest: Option<orrery_model::VersionNumber>,
) -> Result<()> {
    match base {
        Some(base) if newest != Some(base) => Err(StoreError::BaseChanged { base, newest }),
        _ => Ok(()),
    }
}
