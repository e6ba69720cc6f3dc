//! Atomic replacement of files and links: created under a temporary name, then renamed.
//!
//! The temporary name derives from the name, so the next write of the same file finds and removes
//! the leftover of a killed process. A lock on it distinguishes a leftover from a write in progress
//! in another process.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{self as sys, AtFlags, CWD, FlockOperation, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use super::files::to_stat;
use super::pending_sync::{Change, Handle};
use super::walk::{self, WalkError};
use super::{Durability, LocalTarget, failed, walk_error};
use crate::error::{Cause, TargetError, TargetVerb};
use crate::target::{FileKind, Ownership, Result, Stat, split_path};

/// A name in an open directory, independent of later changes to the path.
pub(super) struct EntryLocation<'a> {
    pub(super) directory: OwnedFd,
    pub(super) name: &'a str,
}

pub(super) fn open_entry(operation: TargetVerb, path: &str) -> Result<EntryLocation<'_>> {
    let (directory, name) = split_path(path);
    match walk::open_directory(directory) {
        Ok(directory) => Ok(EntryLocation { directory, name }),
        Err(WalkError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
            Err(TargetError::new(operation, path, Cause::ParentMissing))
        }
        Err(error) => Err(walk_error(operation, path, error)),
    }
}

impl EntryLocation<'_> {
    pub(super) fn stat(&self) -> io::Result<Option<Stat>> {
        match sys::statat(&self.directory, self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(to_stat(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Temporary name: hidden, with a suffix that directory readers skip.
    fn temporary_name(&self) -> String {
        const LENGTH_MAX: usize = 255 - ".".len() - ".orrery~".len();
        if self.name.len() <= LENGTH_MAX {
            format!(".{}.orrery~", self.name)
        } else {
            let digest = crate::target::Algorithm::Sha256.digest(self.name.as_bytes());
            format!(".{digest}.orrery~")
        }
    }
}

pub(super) fn write(
    target: &LocalTarget,
    path: &str,
    content: &[u8],
    ownership: Ownership,
) -> Result<()> {
    let entry = open_entry(TargetVerb::Write, path)?;
    let error = |error: io::Error| failed(TargetVerb::Write, path, error);
    let old = entry.stat().map_err(error)?;
    let cause = match old.map(|old| old.kind) {
        Some(FileKind::Directory) => Some(Cause::IsADirectory),
        Some(FileKind::Other) => Some(Cause::NotARegularFile),
        Some(FileKind::File | FileKind::Symlink) | None => None,
    };
    if let Some(cause) = cause {
        return Err(TargetError::new(TargetVerb::Write, path, cause));
    }
    let old = old.filter(|old| old.kind == FileKind::File);
    let ownership = Ownership {
        mode: ownership.mode.or(Some(old.map_or(0o600, |old| old.mode))),
        uid: ownership.uid.or(old.map(|old| old.uid)),
        gid: ownership.gid.or(old.map(|old| old.gid)),
    };
    replace(target, &entry, content, ownership).map_err(error)
}

fn replace(
    target: &LocalTarget,
    entry: &EntryLocation<'_>,
    content: &[u8],
    ownership: Ownership,
) -> io::Result<()> {
    target.step()?;
    let (mut file, temporary) = create_temporary(entry)?;
    let put = |file: &mut File| -> io::Result<Change> {
        target.step()?;
        file.write_all(content)?;
        target.step()?;
        let stat = sys::fstat(&*file)?;
        let synced_with_others = target.durability != Durability::Each;
        let handle = synced_with_others.then(|| target.handle(file, &stat));
        let (uid, gid) = differing_owner(to_stat(&stat), ownership);
        if uid.is_some() || gid.is_some() {
            sys::fchown(&*file, uid, gid)?;
        }
        target.step()?;
        if let Some(mode) = ownership.mode {
            sys::fchmod(&*file, Mode::from_raw_mode(mode))?;
        }
        if handle.is_none() {
            file.sync_all()?;
        }
        target.step()?;
        sys::renameat(&entry.directory, &*temporary, &entry.directory, entry.name)?;
        Ok(handle.map_or(Change::Name, Change::NameAndFile))
    };
    let done = put(&mut file);
    if done.is_err() && !target.is_dead() {
        // If this fails, too, the next write removes it.
        let _ = sys::unlinkat(&entry.directory, &*temporary, AtFlags::empty());
    }
    let change = done?;
    // Closing releases the lock, and allows execution.
    drop(file);
    target.step()?;
    target.record_change(entry, change)
}

/// Creates a private, empty temporary file; returns it with its name.
fn create_temporary(entry: &EntryLocation<'_>) -> io::Result<(File, String)> {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    const TRIES_MAX: u32 = 8;
    let create = |name: &str| {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        sys::openat(&entry.directory, name, flags, Mode::from_raw_mode(0o600))
    };
    let name = entry.temporary_name();
    for _ in 0..TRIES_MAX {
        match create(&name) {
            Ok(file) => match lock(&file) {
                // Another process may have removed it as a leftover before it was locked.
                Ok(true) if sys::fstat(&file)?.st_nlink > 0 => return Ok((file.into(), name)),
                Ok(true) => {}
                Ok(false) => break,
                // The file system has no locks.
                Err(_) => return Ok((file.into(), name)),
            },
            Err(Errno::EXIST) => {
                if !remove_leftover(entry, &name)? {
                    break;
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    // Another process writes the same file now: use a unique name; the last write wins.
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let digest = crate::target::Algorithm::Md5.digest(entry.name.as_bytes());
    let name = format!(".{digest}-{}-{number}.orrery~", std::process::id());
    Ok((create(&name)?.into(), name))
}

/// Takes the lock; returns false if another process holds it.
fn lock(file: &impl AsFd) -> io::Result<bool> {
    match sys::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Removes a leftover; returns false if another process holds its lock.
fn remove_leftover(entry: &EntryLocation<'_>, name: &str) -> io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match sys::openat(&entry.directory, name, flags, Mode::empty()) {
        Ok(file) => {
            if !lock(&file)? {
                return Ok(false);
            }
            // Its writer may have renamed it meanwhile, and another one created a new file: leave
            // that one.
            let same = |named: sys::Stat, locked: sys::Stat| {
                (named.st_dev, named.st_ino) == (locked.st_dev, locked.st_ino)
            };
            match sys::statat(&entry.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(named) if same(named, sys::fstat(&file)?) => {
                    return unlink(entry, name);
                }
                Ok(_) | Err(Errno::NOENT) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
        Err(Errno::NOENT) => return Ok(true),
        // A temporary link, or an unreadable file: in either case not a write in progress.
        Err(Errno::LOOP | Errno::ACCESS) => {}
        Err(error) => return Err(error.into()),
    }
    unlink(entry, name)
}

/// Removes a name; always returns true.
fn unlink(entry: &EntryLocation<'_>, name: &str) -> io::Result<bool> {
    match sys::unlinkat(&entry.directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn symlink(target: &LocalTarget, path: &str, leads_to: &str) -> Result<()> {
    let entry = open_entry(TargetVerb::MakeSymlink, path)?;
    let error = |error: io::Error| failed(TargetVerb::MakeSymlink, path, error);
    let old = entry.stat().map_err(error)?;
    match old.map(|old| old.kind) {
        None | Some(FileKind::Symlink) => {}
        Some(FileKind::Directory) => {
            return Err(TargetError::new(TargetVerb::MakeSymlink, path, Cause::IsADirectory));
        }
        Some(_) => {
            return Err(TargetError::new(TargetVerb::MakeSymlink, path, Cause::NotASymlink));
        }
    }
    let make = || -> io::Result<()> {
        target.step()?;
        if old.is_none() {
            sys::symlinkat(leads_to, &entry.directory, entry.name)?;
        } else {
            let temporary = entry.temporary_name();
            match sys::unlinkat(&entry.directory, &*temporary, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
            sys::symlinkat(leads_to, &entry.directory, &*temporary)?;
            let turned = target.step().and_then(|()| {
                Ok(sys::renameat(&entry.directory, &*temporary, &entry.directory, entry.name)?)
            });
            if turned.is_err() && !target.is_dead() {
                let _ = sys::unlinkat(&entry.directory, &*temporary, AtFlags::empty());
            }
            turned?;
        }
        target.record_change(&entry, Change::Name)
    };
    make().map_err(error)
}

/// Owner and group that differ: setting an equal one would need privileges.
fn differing_owner(has: Stat, ownership: Ownership) -> (Option<Uid>, Option<Gid>) {
    (
        ownership.uid.filter(|&uid| uid != has.uid).map(Uid::from_raw),
        ownership.gid.filter(|&gid| gid != has.gid).map(Gid::from_raw),
    )
}

/// Sets owner and mode of a file or directory, readable or not; returns its handle, or `None` for
/// another kind.
pub(super) fn apply_by_path(
    target: &LocalTarget,
    entry: &EntryLocation<'_>,
    ownership: Ownership,
) -> io::Result<Option<Handle>> {
    target.step()?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = sys::openat(&entry.directory, entry.name, flags, Mode::empty())?;
    let stat = sys::fstat(&file)?;
    let has = to_stat(&stat);
    if !matches!(has.kind, FileKind::File | FileKind::Directory) {
        return Ok(None);
    }
    let handle = target.handle(&file, &stat);
    let (uid, gid) = differing_owner(has, ownership);
    let owner_changes = uid.is_some() || gid.is_some();
    if owner_changes {
        sys::chownat(&file, "", uid, gid, AtFlags::EMPTY_PATH)?;
    }
    target.step()?;
    // Changing the owner clears the set-id bits, so the mode is set after it.
    let mode = ownership.mode.or(owner_changes.then_some(has.mode));
    if let Some(mode) = mode.filter(|&mode| owner_changes || mode != has.mode) {
        set_mode(entry, &file, Mode::from_raw_mode(mode))?;
    }
    Ok(Some(handle))
}

/// Sets the mode through /proc, since an `O_PATH` descriptor does not support it.
fn set_mode(entry: &EntryLocation<'_>, file: &OwnedFd, mode: Mode) -> io::Result<()> {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    match sys::chmodat(CWD, &*link, mode, AtFlags::empty()) {
        Err(Errno::NOENT) => {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = sys::openat(&entry.directory, entry.name, flags, Mode::empty())?;
            Ok(sys::fchmod(&file, mode)?)
        }
        other => Ok(other?),
    }
}
