//! What was changed since the last sync, and the cheapest way to have it on the disk.
//!
//! A few changes are synced one by one: the file system may hold much that others wrote, and waiting for
//! that can take longer than all the rest. For many it is the other way round, since each sync waits for
//! the disk.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{self as sys, Mode, OFlags};
use rustix::io::Errno;

use super::replace::Place;
use super::{Durability, LocalTarget};

/// So many files and directories of one file system are synced one by one; for more, all of it is.
pub(super) const FEW: usize = 16;

/// What happened at a place.
#[derive(Debug)]
pub(super) enum Change {
    /// A name came, went, or stands for something else now.
    Name,
    /// The same, and this is what the name stands for.
    NameAndFile(Handle),
    /// Only what the name stands for is different.
    File(Handle),
}

/// A file or directory that was changed.
#[derive(Debug)]
pub(super) struct Handle {
    device: u64,
    node: Node,
    /// Open for reading. `None` if it may not be read, or if its whole file system is synced anyway.
    file: Option<OwnedFd>,
}

/// A file or directory on its device. Files come first: a name should not outlive what it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Node {
    pub(super) is_directory: bool,
    pub(super) inode: u64,
}

impl Node {
    fn of(stat: &sys::Stat) -> Self {
        let kind = sys::FileType::from_raw_mode(stat.st_mode);
        Node { is_directory: kind == sys::FileType::Directory, inode: stat.st_ino }
    }
}

/// How the changes on one file system reach the disk.
#[derive(Debug)]
pub(super) enum Duty {
    /// By syncing these, in this order. As long as they are open, no other gets their number.
    Few(BTreeMap<Node, OwnedFd>),
    /// By syncing the file system that this is on.
    FileSystem(OwnedFd),
    /// By syncing all there is: nothing on this one may be read.
    Everything,
}

impl Duty {
    pub(super) fn carry_out(&self) -> io::Result<()> {
        match self {
            Duty::Few(nodes) => match nodes.values().try_for_each(sys::fsync) {
                Ok(()) => Ok(()),
                // Not every file system can do that for directories.
                Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                    nodes.values().next().map_or(Ok(()), |file| Ok(sys::syncfs(file)?))
                }
                Err(error) => Err(error.into()),
            },
            Duty::FileSystem(file) => Ok(sys::syncfs(file)?),
            Duty::Everything => {
                sys::sync();
                Ok(())
            }
        }
    }

    fn add(&mut self, node: Node, open: impl FnOnce() -> Option<OwnedFd>) {
        match self {
            Duty::Few(nodes) if nodes.contains_key(&node) => {}
            Duty::Few(nodes) => {
                let is_full = nodes.len() >= FEW;
                match open() {
                    Some(file) if !is_full => {
                        nodes.insert(node, file);
                    }
                    other => self.widen(other),
                }
            }
            Duty::FileSystem(_) => {}
            Duty::Everything => self.widen(open()),
        }
    }

    /// From now on the whole file system counts. `file` is something on it.
    fn widen(&mut self, file: Option<OwnedFd>) {
        let known = match std::mem::replace(self, Duty::Everything) {
            Duty::Few(nodes) => nodes.into_values().next(),
            Duty::FileSystem(file) => Some(file),
            Duty::Everything => None,
        };
        if let Some(file) = known.or(file) {
            *self = Duty::FileSystem(file);
        }
    }
}

/// The changes since the last sync.
#[derive(Debug, Default)]
pub(super) struct Written(Mutex<Changes>);

#[derive(Debug, Default)]
struct Changes {
    /// By device number.
    duties: HashMap<u64, Duty>,
    /// A command was run, and nobody knows what it wrote.
    command_ran: bool,
}

impl Changes {
    fn add(&mut self, place: &Place<'_>, change: Change) -> io::Result<()> {
        let (has_name, handle) = match change {
            Change::Name => (true, None),
            Change::NameAndFile(handle) => (true, Some(handle)),
            Change::File(handle) => (false, Some(handle)),
        };
        if has_name {
            let stat = sys::fstat(&place.directory)?;
            self.duty(stat.st_dev).add(Node::of(&stat), || open_for_reading(&place.directory));
        }
        if let Some(Handle { device, node, file }) = handle {
            self.duty(device).add(node, || file);
        }
        Ok(())
    }

    fn duty(&mut self, device: u64) -> &mut Duty {
        self.duties.entry(device).or_insert_with(|| Duty::Few(BTreeMap::new()))
    }

    /// In the order of devices.
    fn into_duties(self) -> Vec<Duty> {
        let mut duties: Vec<(u64, Duty)> = self.duties.into_iter().collect();
        duties.sort_unstable_by_key(|(device, _)| *device);
        if self.command_ran {
            duties.iter_mut().for_each(|(_, duty)| duty.widen(None));
        }
        duties.into_iter().map(|(_, duty)| duty).collect()
    }
}

impl Written {
    fn lock(&self) -> MutexGuard<'_, Changes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note_command(&self) {
        self.lock().command_ran = true;
    }

    /// What is to be done; from now on as if it was done.
    pub(super) fn take(&self) -> Vec<Duty> {
        std::mem::take(&mut *self.lock()).into_duties()
    }

    fn covers(&self, device: u64) -> bool {
        matches!(self.lock().duties.get(&device), Some(Duty::FileSystem(_)))
    }
}

/// Opens something open once more, for reading only: a program that is open for writing cannot be run. Its
/// name in /proc leads to just that file, whatever happens to its path.
fn open_for_reading(file: &impl AsRawFd) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    sys::open(&*link, flags, Mode::empty()).ok()
}

impl LocalTarget {
    /// What `note` needs of a file that is being changed. Asked for while the file may still be read.
    pub(super) fn handle<F: AsFd + AsRawFd>(&self, file: &F, stat: &sys::Stat) -> Handle {
        let needed = match self.durability {
            Durability::Each => true,
            Durability::Batched => !self.written.covers(stat.st_dev),
            Durability::None => false,
        };
        let file = if needed { open_for_reading(file) } else { None };
        Handle { device: stat.st_dev, node: Node::of(stat), file }
    }

    /// Sees to it that a change reaches the disk when the policy says so.
    pub(super) fn note(&self, place: &Place<'_>, change: Change) -> io::Result<()> {
        match self.durability {
            Durability::Each => {
                let mut changes = Changes::default();
                changes.add(place, change)?;
                changes.into_duties().iter().try_for_each(Duty::carry_out)
            }
            Durability::Batched => self.written.lock().add(place, change),
            Durability::None => Ok(()),
        }
    }
}
