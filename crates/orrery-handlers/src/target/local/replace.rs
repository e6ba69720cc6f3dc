//! Putting files and links in place at once: made beside the old one under another name, then renamed.
//!
//! The other name follows from the name, so that what a killed process left behind is found and
//! removed by the next write of the same file, and nothing piles up. A lock on it tells a leftover
//! from a write that is still going on in another process.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{self as sys, AtFlags, CWD, FlockOperation, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use super::files::to_stat;
use super::walk::{self, Astray};
use super::written::{Change, Handle};
use super::{Durability, LocalTarget, astray, failed};
use crate::error::{Cause, Operation, TargetError};
use crate::target::{FileKind, Ownership, Result, Stat, split_path};

/// A name in an open directory. What happens to the path meanwhile does not matter.
pub(super) struct Place<'a> {
    pub(super) directory: OwnedFd,
    pub(super) name: &'a str,
}

pub(super) fn open_place(operation: Operation, path: &str) -> Result<Place<'_>> {
    let (directory, name) = split_path(path);
    match walk::open_directory(directory) {
        Ok(directory) => Ok(Place { directory, name }),
        Err(Astray::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
            Err(TargetError::new(operation, path, Cause::ParentMissing))
        }
        Err(error) => Err(astray(operation, path, error)),
    }
}

impl Place<'_> {
    pub(super) fn stat(&self) -> io::Result<Option<Stat>> {
        match sys::statat(&self.directory, self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(to_stat(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The name under which the new one is made. Hidden, and with an end that programs which read
    /// whole directories skip.
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
    let place = open_place(Operation::Write, path)?;
    let error = |error: io::Error| failed(Operation::Write, path, error);
    let old = place.stat().map_err(error)?;
    let cause = match old.map(|old| old.kind) {
        Some(FileKind::Directory) => Some(Cause::IsADirectory),
        Some(FileKind::Other) => Some(Cause::NotARegularFile),
        Some(FileKind::File | FileKind::Symlink) | None => None,
    };
    if let Some(cause) = cause {
        return Err(TargetError::new(Operation::Write, path, cause));
    }
    let old = old.filter(|old| old.kind == FileKind::File);
    let ownership = Ownership {
        mode: ownership.mode.or(Some(old.map_or(0o600, |old| old.mode))),
        uid: ownership.uid.or(old.map(|old| old.uid)),
        gid: ownership.gid.or(old.map(|old| old.gid)),
    };
    replace(target, &place, content, ownership).map_err(error)
}

fn replace(
    target: &LocalTarget,
    place: &Place<'_>,
    content: &[u8],
    ownership: Ownership,
) -> io::Result<()> {
    target.step()?;
    let (mut file, temporary) = create_temporary(place)?;
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
        sys::renameat(&place.directory, &*temporary, &place.directory, place.name)?;
        Ok(handle.map_or(Change::Name, Change::NameAndFile))
    };
    let done = put(&mut file);
    if done.is_err() && !target.is_dead() {
        // If this fails too, the next write of this file removes it.
        let _ = sys::unlinkat(&place.directory, &*temporary, AtFlags::empty());
    }
    let change = done?;
    // Its lock ends here, and it can be run.
    drop(file);
    target.step()?;
    target.note(place, change)
}

/// A new, empty file beside the place that only this user can read, and its name.
fn create_temporary(place: &Place<'_>) -> io::Result<(File, String)> {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    const TRIES_MAX: u32 = 8;
    let create = |name: &str| {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        sys::openat(&place.directory, name, flags, Mode::from_raw_mode(0o600))
    };
    let name = place.temporary_name();
    for _ in 0..TRIES_MAX {
        match create(&name) {
            Ok(file) => match lock(&file) {
                // Another process may have taken it for a leftover before it was locked.
                Ok(true) if sys::fstat(&file)?.st_nlink > 0 => return Ok((file.into(), name)),
                Ok(true) => {}
                Ok(false) => break,
                // No locks on this file system.
                Err(_) => return Ok((file.into(), name)),
            },
            Err(Errno::EXIST) => {
                if !remove_leftover(place, &name)? {
                    break;
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    // Somebody is writing the same file right now: under a name of our own, and the last one wins.
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let digest = crate::target::Algorithm::Md5.digest(place.name.as_bytes());
    let name = format!(".{digest}-{}-{number}.orrery~", std::process::id());
    Ok((create(&name)?.into(), name))
}

/// Whether we have it for ourselves now.
fn lock(file: &impl AsFd) -> io::Result<bool> {
    match sys::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Whether it is worth trying the name again. It is not if somebody holds the lock.
fn remove_leftover(place: &Place<'_>, name: &str) -> io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match sys::openat(&place.directory, name, flags, Mode::empty()) {
        Ok(file) => {
            if !lock(&file)? {
                return Ok(false);
            }
            // Its writer may have put it in place meanwhile, and another one begun: that one's is not ours.
            let same = |named: sys::Stat, locked: sys::Stat| {
                (named.st_dev, named.st_ino) == (locked.st_dev, locked.st_ino)
            };
            match sys::statat(&place.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(named) if same(named, sys::fstat(&file)?) => {
                    return unlink(place, name);
                }
                Ok(_) | Err(Errno::NOENT) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
        Err(Errno::NOENT) => return Ok(true),
        // A link of `symlink` below, or not ours to read: in either case no file that is being written.
        Err(Errno::LOOP | Errno::ACCESS) => {}
        Err(error) => return Err(error.into()),
    }
    unlink(place, name)
}

/// Frees a name; always true.
fn unlink(place: &Place<'_>, name: &str) -> io::Result<bool> {
    match sys::unlinkat(&place.directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn symlink(target: &LocalTarget, path: &str, leads_to: &str) -> Result<()> {
    let place = open_place(Operation::MakeSymlink, path)?;
    let error = |error: io::Error| failed(Operation::MakeSymlink, path, error);
    let old = place.stat().map_err(error)?;
    match old.map(|old| old.kind) {
        None | Some(FileKind::Symlink) => {}
        Some(FileKind::Directory) => {
            return Err(TargetError::new(Operation::MakeSymlink, path, Cause::IsADirectory));
        }
        Some(_) => {
            return Err(TargetError::new(Operation::MakeSymlink, path, Cause::NotASymlink));
        }
    }
    let make = || -> io::Result<()> {
        target.step()?;
        if old.is_none() {
            sys::symlinkat(leads_to, &place.directory, place.name)?;
        } else {
            let temporary = place.temporary_name();
            match sys::unlinkat(&place.directory, &*temporary, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
            sys::symlinkat(leads_to, &place.directory, &*temporary)?;
            let turned = target.step().and_then(|()| {
                Ok(sys::renameat(&place.directory, &*temporary, &place.directory, place.name)?)
            });
            if turned.is_err() && !target.is_dead() {
                let _ = sys::unlinkat(&place.directory, &*temporary, AtFlags::empty());
            }
            turned?;
        }
        target.note(&place, Change::Name)
    };
    make().map_err(error)
}

/// Owner and group as far as they have to be changed: changing to what is there already would need
/// rights that an ordinary user does not have.
fn differing_owner(has: Stat, ownership: Ownership) -> (Option<Uid>, Option<Gid>) {
    (
        ownership.uid.filter(|&uid| uid != has.uid).map(Uid::from_raw),
        ownership.gid.filter(|&gid| gid != has.gid).map(Gid::from_raw),
    )
}

/// Sets owner and permissions of a file or directory, whether or not it may be read, and gives it for the
/// note of it. `None` if it is neither.
pub(super) fn apply_by_path(
    target: &LocalTarget,
    place: &Place<'_>,
    ownership: Ownership,
) -> io::Result<Option<Handle>> {
    target.step()?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = sys::openat(&place.directory, place.name, flags, Mode::empty())?;
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
    // A new owner takes the set-id bits away, so the mode is set after it, and again.
    let mode = ownership.mode.or(owner_changes.then_some(has.mode));
    if let Some(mode) = mode.filter(|&mode| owner_changes || mode != has.mode) {
        set_mode(place, &file, Mode::from_raw_mode(mode))?;
    }
    Ok(Some(handle))
}

/// A handle that was opened as a path cannot change the mode itself, but its name in /proc leads to
/// just that file.
fn set_mode(place: &Place<'_>, file: &OwnedFd, mode: Mode) -> io::Result<()> {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    match sys::chmodat(CWD, &*link, mode, AtFlags::empty()) {
        Err(Errno::NOENT) => {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = sys::openat(&place.directory, place.name, flags, Mode::empty())?;
            Ok(sys::fchmod(&file, mode)?)
        }
        other => Ok(other?),
    }
}
