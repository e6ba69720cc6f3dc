//! What a put has to write, whichever database keeps it: the given resources, and how each compares with its stored row.

use md5::{Digest, Md5};
use orrery_model::Resource;
use rustc_hash::FxHashMap;

use crate::codes::flags_code;
use crate::sql::{Row, RowExt as _};
use crate::{Result, StoreError};

/// Digest of all that makes a resource of one version equal to that of another: more than the intent, less
/// than the place in the source. Almost every resource has nothing but its intent.
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
    // An empty name is a name, and differs from none.
    text(resource.set.as_deref().map_or("shared", |_| "named"));
    text(resource.set.as_deref().unwrap_or_default());
    resource.requires.iter().for_each(|required| text(required.as_str()));
    digest.finalize().into()
}

/// The given resources in the order of their ids.
pub(crate) struct Given<'a> {
    pub(crate) resources: &'a [Resource],
    /// Indexes in order, if the resources themselves are not.
    order: Option<Vec<u32>>,
}

impl<'a> Given<'a> {
    pub(crate) fn new(resources: &'a [Resource]) -> Result<Self> {
        let count = u32::try_from(resources.len())
            .map_err(|_| StoreError::Unreadable("too many resources in one version".to_owned()))?;
        let given = if resources.is_sorted_by(|a, b| a.id <= b.id) {
            Given { resources, order: None }
        } else {
            let mut order: Vec<u32> = (0..count).collect();
            order
                .sort_unstable_by(|a, b| resources[*a as usize].id.cmp(&resources[*b as usize].id));
            Given { resources, order: Some(order) }
        };
        for place in 1..given.resources.len() {
            if given.at(place - 1).id == given.at(place).id {
                return Err(StoreError::DuplicateResource(given.at(place).id.to_string()));
            }
        }
        Ok(given)
    }

    pub(crate) fn index(&self, place: usize) -> usize {
        self.order.as_ref().map_or(place, |order| order[place] as usize)
    }

    pub(crate) fn at(&self, place: usize) -> &'a Resource {
        &self.resources[self.index(place)]
    }

    /// Index among the given resources.
    pub(crate) fn find(&self, id: &str) -> Option<usize> {
        let (mut low, mut high) = (0, self.resources.len());
        while low < high {
            let middle = (low + high) / 2;
            match self.at(middle).id.as_str().cmp(id) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Some(self.index(middle)),
            }
        }
        None
    }
}

/// What has to be written. Indexes are those of the given resources.
#[derive(Default)]
pub(crate) struct Plan {
    /// Keys of the given resources; 0 where there is none yet.
    pub(crate) keys: Vec<i64>,
    /// Not known at all, in the order of ids.
    pub(crate) fresh: Vec<usize>,
    /// Known from earlier versions, but not in the newest.
    pub(crate) back: Vec<usize>,
    /// Different from the newest version, with the revision that they replace.
    pub(crate) changed: Vec<(usize, i64)>,
    /// In the newest version and not in this one: key and revision.
    pub(crate) removed: Vec<(i64, i64)>,
    /// The same, but from another place in the source.
    pub(crate) moved: Vec<usize>,
}

/// A row of the table `resource`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored<'a> {
    pub(crate) key: i64,
    pub(crate) head: Option<i64>,
    pub(crate) digest: Option<&'a [u8]>,
    /// File, line and column.
    pub(crate) place: (Option<i64>, Option<i64>, Option<i64>),
}

impl<'a> Stored<'a> {
    /// Reads the columns `id`, `head`, `digest`, `source_file`, `source_line` and `source_column` from `at` on.
    pub(crate) fn from_row(row: &'a impl Row, at: usize) -> Result<Self> {
        Ok(Stored {
            key: row.int(at)?,
            head: row.integer(at + 1)?,
            digest: row.blob(at + 2)?,
            place: (row.integer(at + 3)?, row.integer(at + 4)?, row.integer(at + 5)?),
        })
    }
}

impl Plan {
    /// Compares a given resource with the stored row of the same name.
    pub(crate) fn compare(
        &mut self,
        index: usize,
        resource: &Resource,
        stored: &Stored<'_>,
        files: &FxHashMap<String, i64>,
    ) {
        self.keys[index] = stored.key;
        let Some(head) = stored.head else {
            self.back.push(index);
            return;
        };
        if stored.digest != Some(&digest(resource)[..]) {
            self.changed.push((index, head));
            return;
        }
        let place = resource.source.as_ref();
        let given = (
            place.and_then(|place| files.get(&*place.file).copied()),
            place.map(|place| i64::from(place.line)),
            place.map(|place| i64::from(place.column)),
        );
        if stored.place != given {
            self.moved.push(index);
        }
    }

    /// Indexes of the resources that get a new revision: first those that are not known.
    pub(crate) fn written(&self) -> impl Iterator<Item = usize> {
        let changed = self.changed.iter().map(|(index, _)| *index);
        self.fresh.iter().chain(&self.back).copied().chain(changed)
    }

    pub(crate) fn is_same_version(&self) -> bool {
        self.fresh.is_empty()
            && self.back.is_empty()
            && self.changed.is_empty()
            && self.removed.is_empty()
    }
}

/// Fails if a version was worked out from another one than the newest.
pub(crate) fn check_base(
    base: Option<orrery_model::VersionNumber>,
    newest: Option<orrery_model::VersionNumber>,
) -> Result<()> {
    match base {
        Some(base) if newest != Some(base) => Err(StoreError::BaseChanged { base, newest }),
        _ => Ok(()),
    }
}
