//! Changes since the last sync, and the cheapest way to make them durable.
//!
//! A few changes are synced one by one: a file system may hold many unrelated writes, and waiting
//! for those can dominate. For many changes one sync of the file system is cheaper, since each sync
//! waits for the disk.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard};

use orrery_base::lock::IgnorePoison;
use rustix::fs::{self as sys, Mode, OFlags};
use rustix::io::Errno;

use super::atomic_write::EntryLocation;
use super::{Durability, LocalTarget};

/// Maximum of files and directories per file system that are synced one by one.
pub(super) const INDIVIDUAL_SYNC_MAX: usize = 16;

/// Kind of a change at a path.
#[derive(Debug)]
pub(super) enum Change {
    /// A name was created, removed or replaced.
    Name,
    /// A name was created or replaced, and this is its file.
    NameAndFile(Handle),
    /// Only the file changed.
    File(Handle),
}

/// A changed file or directory.
#[derive(Debug)]
pub(super) struct Handle {
    device: u64,
    node: Node,
    /// Open for reading. `None` if unreadable, or if the whole file system is synced anyway.
    file: Option<OwnedFd>,
}

/// A file or directory on its device. Files sort first: a name must not outlive its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Node {
    pub(super) is_directory: bool,
    pub(super) inode: u64,
}

impl Node {
    fn from_stat(stat: &sys::Stat) -> Self {
        let kind = sys::FileType::from_raw_mode(stat.st_mode);
        Node { is_directory: kind == sys::FileType::Directory, inode: stat.st_ino }
    }
}

/// Sync of the changes on one file system.
#[derive(Debug)]
pub(super) enum SyncAction {
    /// Syncs these, in this order. Open descriptors keep their inode numbers from being reused.
    Individual(BTreeMap<Node, OwnedFd>),
    /// Syncs the file system of this file.
    FileSystem(OwnedFd),
    /// Syncs everything: no file on this file system is readable.
    Everything,
}

impl SyncAction {
    pub(super) fn execute(&self) -> io::Result<()> {
        match self {
            SyncAction::Individual(nodes) => match nodes.values().try_for_each(sys::fsync) {
                Ok(()) => Ok(()),
                // Not every file system supports that for directories.
                Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                    nodes.values().next().map_or(Ok(()), |file| Ok(sys::syncfs(file)?))
                }
                Err(error) => Err(error.into()),
            },
            SyncAction::FileSystem(file) => Ok(sys::syncfs(file)?),
            SyncAction::Everything => {
                sys::sync();
                Ok(())
            }
        }
    }

    fn add(&mut self, node: Node, open: impl FnOnce() -> Option<OwnedFd>) {
        match self {
            SyncAction::Individual(nodes) if nodes.contains_key(&node) => {}
            SyncAction::Individual(nodes) => {
                let is_full = nodes.len() >= INDIVIDUAL_SYNC_MAX;
                match open() {
                    Some(file) if !is_full => {
                        nodes.insert(node, file);
                    }
                    other => self.widen(other),
                }
            }
            SyncAction::FileSystem(_) => {}
            SyncAction::Everything => self.widen(open()),
        }
    }

    /// Switches to a sync of the whole file system. `file` is a file on it.
    fn widen(&mut self, file: Option<OwnedFd>) {
        let existing = match std::mem::replace(self, SyncAction::Everything) {
            SyncAction::Individual(nodes) => nodes.into_values().next(),
            SyncAction::FileSystem(file) => Some(file),
            SyncAction::Everything => None,
        };
        if let Some(file) = existing.or(file) {
            *self = SyncAction::FileSystem(file);
        }
    }
}

/// Changes since the last sync.
#[derive(Debug, Default)]
pub(super) struct PendingSync(Mutex<PendingChanges>);

#[derive(Debug, Default)]
struct PendingChanges {
    /// By device number.
    actions: HashMap<u64, SyncAction>,
    /// A command ran; its writes are unknown.
    command_ran: bool,
}

impl PendingChanges {
    fn add(&mut self, entry: &EntryLocation<'_>, change: Change) -> io::Result<()> {
        let (has_name, handle) = match change {
            Change::Name => (true, None),
            Change::NameAndFile(handle) => (true, Some(handle)),
            Change::File(handle) => (false, Some(handle)),
        };
        if has_name {
            let stat = sys::fstat(&entry.directory)?;
            self.action(stat.st_dev)
                .add(Node::from_stat(&stat), || open_for_reading(&entry.directory));
        }
        if let Some(Handle { device, node, file }) = handle {
            self.action(device).add(node, || file);
        }
        Ok(())
    }

    fn action(&mut self, device: u64) -> &mut SyncAction {
        self.actions.entry(device).or_insert_with(|| SyncAction::Individual(BTreeMap::new()))
    }

    /// Sorted by device.
    fn into_actions(self) -> Vec<SyncAction> {
        let mut actions: Vec<(u64, SyncAction)> = self.actions.into_iter().collect();
        actions.sort_unstable_by_key(|(device, _)| *device);
        if self.command_ran {
            actions.iter_mut().for_each(|(_, action)| action.widen(None));
        }
        actions.into_iter().map(|(_, action)| action).collect()
    }
}

impl PendingSync {
    fn lock(&self) -> MutexGuard<'_, PendingChanges> {
        self.0.lock().ignore_poison()
    }

    pub(super) fn record_command(&self) {
        self.lock().command_ran = true;
    }

    /// Takes the pending actions.
    pub(super) fn drain(&self) -> Vec<SyncAction> {
        std::mem::take(&mut *self.lock()).into_actions()
    }

    fn covers(&self, device: u64) -> bool {
        matches!(self.lock().actions.get(&device), Some(SyncAction::FileSystem(_)))
    }
}

/// Reopens a file for reading: a program that is open for writing cannot be executed. The path in
/// /proc leads to this very file.
fn open_for_reading(file: &impl AsRawFd) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    sys::open(&*link, flags, Mode::empty()).ok()
}

impl LocalTarget {
    /// Creates the handle for `record_change`, while the file is still readable.
    pub(super) fn handle<F: AsFd + AsRawFd>(&self, file: &F, stat: &sys::Stat) -> Handle {
        let needed = match self.durability {
            Durability::Each => true,
            Durability::Batched => !self.pending_sync.covers(stat.st_dev),
            Durability::None => false,
        };
        let file = if needed { open_for_reading(file) } else { None };
        Handle { device: stat.st_dev, node: Node::from_stat(stat), file }
    }

    /// Syncs or queues a change, by the durability setting.
    pub(super) fn record_change(
        &self,
        entry: &EntryLocation<'_>,
        change: Change,
    ) -> io::Result<()> {
        match self.durability {
            Durability::Each => {
                let mut changes = PendingChanges::default();
                changes.add(entry, change)?;
                changes.into_actions().iter().try_for_each(SyncAction::execute)
            }
            Durability::Batched => self.pending_sync.lock().add(entry, change),
            Durability::None => Ok(()),
        }
    }
}
