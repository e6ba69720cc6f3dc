//! Looking at files and directories, and the changes that need no replacement.

use std::fs::File;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::{self as sys, AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::replace::{Place, apply_by_path, open_place};
use super::walk;
use super::written::Change;
use super::{LocalTarget, failed};
use crate::error::{Cause, Operation, TargetError};
use crate::target::{
    Algorithm, Compared, ContentDigest, Expected, FileKind, Ownership, Result, Stat, Tree,
};

pub(super) fn to_stat(stat: &sys::Stat) -> Stat {
    let kind = match sys::FileType::from_raw_mode(stat.st_mode) {
        sys::FileType::RegularFile => FileKind::File,
        sys::FileType::Directory => FileKind::Directory,
        sys::FileType::Symlink => FileKind::Symlink,
        _ => FileKind::Other,
    };
    Stat {
        kind,
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        size: u64::try_from(stat.st_size).unwrap_or(0),
    }
}

/// Whether an error means that there is nothing at a path.
fn is_absent(error: Errno) -> bool {
    error == Errno::NOENT || error == Errno::NOTDIR
}

/// Attributes of what is at a path, itself.
pub(super) fn stat(path: &str) -> Result<Option<Stat>> {
    if let Some(opened) = walk::open_without_links(path, OFlags::PATH | OFlags::NOFOLLOW) {
        let looked = opened.and_then(|found| Ok(to_stat(&sys::fstat(&found)?)));
        return present(looked).map_err(|error| failed(Operation::Stat, path, error));
    }
    let Some(place) = open_existing_place(Operation::Stat, path)? else { return Ok(None) };
    place.stat().map_err(|error| failed(Operation::Stat, path, error))
}

/// Attributes of what a path leads to, whoever made the links on the way: nothing is read or changed there.
pub(super) fn stat_following(path: &str) -> Result<Option<Stat>> {
    let looked = sys::statat(CWD, path, AtFlags::empty()).map(|stat| to_stat(&stat));
    present(looked).map_err(|error| failed(Operation::Stat, path, error))
}

fn present<T>(looked: std::result::Result<T, Errno>) -> io::Result<Option<T>> {
    match looked {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_absent(error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// What opening a path for reading gave.
enum Opened {
    Absent,
    /// A regular file.
    File(OwnedFd, Stat),
    /// Something that has no content to read.
    Other(Stat),
}

fn open(path: &str) -> Result<Opened> {
    let error = |error: io::Error| failed(Operation::Read, path, error);
    // Without blocking, since there may be a pipe in its place that nobody writes to.
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = match walk::open_without_links(path, flags) {
        Some(opened) => opened,
        // A link at the end, or on the way.
        None => match open_existing_place(Operation::Read, path)? {
            Some(place) => sys::openat(&place.directory, place.name, flags, Mode::empty()),
            None => return Ok(Opened::Absent),
        },
    };
    match opened {
        Ok(file) => {
            let stat = to_stat(&sys::fstat(&file).map_err(|found| error(found.into()))?);
            Ok(match stat.kind {
                FileKind::File => Opened::File(file, stat),
                _ => Opened::Other(stat),
            })
        }
        Err(found) if is_absent(found) => Ok(Opened::Absent),
        // Symbolic links, sockets and directories without permission cannot be opened but looked at.
        Err(found) => match stat(path)? {
            Some(stat) if stat.kind != FileKind::File => Ok(Opened::Other(stat)),
            _ => Err(error(found.into())),
        },
    }
}

fn not_a_file(path: &str, stat: Stat) -> TargetError {
    let cause = match stat.kind {
        FileKind::Directory => Cause::IsADirectory,
        _ => Cause::NotARegularFile,
    };
    TargetError::new(Operation::Read, path, cause)
}

pub(super) fn read(path: &str, limit: u64) -> Result<Option<Vec<u8>>> {
    let error = |error| failed(Operation::Read, path, error);
    match open(path)? {
        Opened::Absent => Ok(None),
        Opened::Other(stat) => Err(not_a_file(path, stat)),
        Opened::File(file, stat) => {
            let too_large = || TargetError::new(Operation::Read, path, Cause::TooLarge { limit });
            if stat.size > limit {
                return Err(too_large());
            }
            let mut content = Vec::with_capacity(usize::try_from(stat.size).unwrap_or(0) + 1);
            // It may grow meanwhile, and files of /proc have no size at all.
            File::from(file)
                .take(limit.saturating_add(1))
                .read_to_end(&mut content)
                .map_err(error)?;
            if content.len() as u64 > limit { Err(too_large()) } else { Ok(Some(content)) }
        }
    }
}

pub(super) fn digest(path: &str, algorithm: Algorithm) -> Result<Option<ContentDigest>> {
    let error = |error| failed(Operation::Read, path, error);
    match open(path)? {
        Opened::Absent => Ok(None),
        Opened::Other(stat) => Err(not_a_file(path, stat)),
        Opened::File(file, _) => {
            algorithm.digest_stream(&mut File::from(file)).map(Some).map_err(error)
        }
    }
}

pub(super) fn compare(path: &str, expected: Expected<'_>) -> Result<Option<Compared>> {
    let error = |error| failed(Operation::Read, path, error);
    Ok(match open(path)? {
        Opened::Absent => None,
        Opened::Other(stat) => Some(Compared { stat, same: false }),
        Opened::File(file, stat) => {
            let same = match expected {
                Expected::Bytes(bytes) if stat.size != bytes.len() as u64 => false,
                Expected::Bytes(bytes) => holds(&file, bytes).map_err(error)?,
                Expected::Digest(digest) => {
                    let found = digest.algorithm.digest_stream(&mut File::from(file));
                    found.map_err(error)? == *digest
                }
            };
            Some(Compared { stat, same })
        }
    })
}

/// Whether a file, whose size is right, holds these bytes. Reads as often as needed and no more, into a
/// buffer that nobody has to clear first: for small files that would cost as much as the rest.
fn holds(file: &OwnedFd, mut expected: &[u8]) -> io::Result<bool> {
    let mut buffer = [const { MaybeUninit::<u8>::uninit() }; 64 * 1024];
    while !expected.is_empty() {
        let wanted = expected.len().min(buffer.len());
        match rustix::io::read(file, &mut buffer[..wanted]) {
            Ok((found, _)) if !found.is_empty() && expected.starts_with(found) => {
                expected = &expected[found.len()..];
            }
            Ok(_) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

pub(super) fn read_link(path: &str) -> Result<Option<String>> {
    let Some(place) = open_existing_place(Operation::ReadLink, path)? else { return Ok(None) };
    match sys::readlinkat(&place.directory, place.name, Vec::new()) {
        Ok(leads_to) => Ok(Some(leads_to.to_string_lossy().into_owned())),
        Err(error) if is_absent(error) => Ok(None),
        Err(Errno::INVAL) => Err(TargetError::new(Operation::ReadLink, path, Cause::NotASymlink)),
        Err(error) => Err(failed(Operation::ReadLink, path, error)),
    }
}

pub(super) fn list(path: &str) -> Result<Vec<String>> {
    let error = |error: Errno| failed(Operation::List, path, error);
    let place = open_place(Operation::List, path)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = sys::openat(&place.directory, place.name, flags, Mode::empty());
    let mut names = Vec::new();
    for entry in sys::Dir::new(directory.map_err(error)?).map_err(error)? {
        let name = entry.map_err(error)?.file_name().to_string_lossy().into_owned();
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

pub(super) fn set_attributes(target: &LocalTarget, path: &str, ownership: Ownership) -> Result<()> {
    let place = open_place(Operation::SetAttributes, path)?;
    let error = |error: io::Error| failed(Operation::SetAttributes, path, error);
    let handle = apply_by_path(target, &place, ownership)
        .map_err(error)?
        .ok_or_else(|| TargetError::new(Operation::SetAttributes, path, Cause::NotARegularFile))?;
    target.note(&place, Change::File(handle)).map_err(error)
}

pub(super) fn make_directory(target: &LocalTarget, path: &str, ownership: Ownership) -> Result<()> {
    let place = open_place(Operation::MakeDirectory, path)?;
    let make = || -> io::Result<()> {
        target.step()?;
        // Closed to others until it has its owner.
        let mode = if ownership.mode.is_some() { 0o700 } else { 0o777 };
        sys::mkdirat(&place.directory, place.name, Mode::from_raw_mode(mode))?;
        let done = apply_by_path(target, &place, ownership);
        if done.is_err() && !target.is_dead() {
            // It is empty, since nobody else could enter: better none than one that is not as wanted.
            let _ = sys::unlinkat(&place.directory, place.name, AtFlags::REMOVEDIR);
        }
        target.note(&place, done?.map_or(Change::Name, Change::NameAndFile))
    };
    make().map_err(|error| failed(Operation::MakeDirectory, path, error))
}

pub(super) fn remove_file(target: &LocalTarget, path: &str) -> Result<bool> {
    let error = |error: io::Error| failed(Operation::Remove, path, error);
    let Some(place) = open_existing_place(Operation::Remove, path)? else {
        return Ok(false);
    };
    target.step().map_err(error)?;
    match sys::unlinkat(&place.directory, place.name, AtFlags::empty()) {
        Ok(()) => target.note(&place, Change::Name).map_err(error).map(|()| true),
        Err(found) if is_absent(found) => Ok(false),
        Err(found) => Err(error(found.into())),
    }
}

pub(super) fn remove_directory(target: &LocalTarget, path: &str, tree: Tree) -> Result<bool> {
    let error = |error: io::Error| failed(Operation::Remove, path, error);
    let Some(place) = open_existing_place(Operation::Remove, path)? else {
        return Ok(false);
    };
    match place.stat().map_err(error)?.map(|stat| stat.kind) {
        None => return Ok(false),
        Some(FileKind::Directory) => {}
        Some(_) => return Err(TargetError::new(Operation::Remove, path, Cause::NotADirectory)),
    }
    target.step().map_err(error)?;
    match tree {
        Tree::WithContent => walk::remove_tree(&place.directory, place.name).map_err(error)?,
        Tree::OnlyIfEmpty => sys::unlinkat(&place.directory, place.name, AtFlags::REMOVEDIR)
            .map_err(|found| error(found.into()))?,
    }
    target.note(&place, Change::Name).map_err(error)?;
    Ok(true)
}

/// `None` if not even the directory is there.
fn open_existing_place(operation: Operation, path: &str) -> Result<Option<Place<'_>>> {
    match open_place(operation, path) {
        Ok(place) => Ok(Some(place)),
        Err(TargetError { cause: Cause::ParentMissing | Cause::NotADirectory, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
