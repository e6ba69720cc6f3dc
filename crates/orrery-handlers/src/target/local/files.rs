//! Reads files and directories, and changes them without replacement.

use std::fs::File;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::{self as sys, AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::atomic_write::{EntryLocation, apply_by_path, open_entry};
use super::pending_sync::Change;
use super::walk;
use super::{LocalTarget, failed};
use crate::error::{Cause, TargetError, TargetVerb};
use crate::target::{
    Algorithm, ContentDigest, ExpectedContent, FileComparison, FileKind, Ownership, RemovalMode,
    Result, Stat,
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

/// Returns true if an error means that the path does not exist.
fn is_absent(error: Errno) -> bool {
    error == Errno::NOENT || error == Errno::NOTDIR
}

/// Attributes of a path, without following a link.
pub(super) fn stat(path: &str) -> Result<Option<Stat>> {
    if let Some(opened) = walk::open_without_links(path, OFlags::PATH | OFlags::NOFOLLOW) {
        let stat_result = opened.and_then(|found| Ok(to_stat(&sys::fstat(&found)?)));
        return absent_to_none(stat_result).map_err(|error| failed(TargetVerb::Stat, path, error));
    }
    let Some(entry) = open_existing_entry(TargetVerb::Stat, path)? else { return Ok(None) };
    entry.stat().map_err(|error| failed(TargetVerb::Stat, path, error))
}

/// Attributes of a path, following links of any user: nothing is read or changed there.
pub(super) fn stat_following(path: &str) -> Result<Option<Stat>> {
    let stat_result = sys::statat(CWD, path, AtFlags::empty()).map(|stat| to_stat(&stat));
    absent_to_none(stat_result).map_err(|error| failed(TargetVerb::Stat, path, error))
}

fn absent_to_none<T>(stat_result: std::result::Result<T, Errno>) -> io::Result<Option<T>> {
    match stat_result {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_absent(error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Result of opening a path for reading.
enum OpenedPath {
    Absent,
    /// A regular file.
    File(OwnedFd, Stat),
    /// A file without readable content.
    Other(Stat),
}

fn open(path: &str) -> Result<OpenedPath> {
    let error = |error: io::Error| failed(TargetVerb::Read, path, error);
    // Non-blocking, for a pipe without a writer.
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = match walk::open_without_links(path, flags) {
        Some(opened) => opened,
        // A link in the path.
        None => match open_existing_entry(TargetVerb::Read, path)? {
            Some(entry) => sys::openat(&entry.directory, entry.name, flags, Mode::empty()),
            None => return Ok(OpenedPath::Absent),
        },
    };
    match opened {
        Ok(file) => {
            let stat = to_stat(&sys::fstat(&file).map_err(|found| error(found.into()))?);
            Ok(match stat.kind {
                FileKind::File => OpenedPath::File(file, stat),
                _ => OpenedPath::Other(stat),
            })
        }
        Err(found) if is_absent(found) => Ok(OpenedPath::Absent),
        // Symbolic links, sockets and unreadable directories cannot be opened, but have attributes.
        Err(found) => match stat(path)? {
            Some(stat) if stat.kind != FileKind::File => Ok(OpenedPath::Other(stat)),
            _ => Err(error(found.into())),
        },
    }
}

fn not_a_file(path: &str, stat: Stat) -> TargetError {
    let cause = match stat.kind {
        FileKind::Directory => Cause::IsADirectory,
        _ => Cause::NotARegularFile,
    };
    TargetError::new(TargetVerb::Read, path, cause)
}

pub(super) fn read(path: &str, limit: u64) -> Result<Option<Vec<u8>>> {
    let error = |error| failed(TargetVerb::Read, path, error);
    match open(path)? {
        OpenedPath::Absent => Ok(None),
        OpenedPath::Other(stat) => Err(not_a_file(path, stat)),
        OpenedPath::File(file, stat) => {
            let too_large = || TargetError::new(TargetVerb::Read, path, Cause::TooLarge { limit });
            if stat.size > limit {
                return Err(too_large());
            }
            let mut content = Vec::with_capacity(usize::try_from(stat.size).unwrap_or(0) + 1);
            // It may grow meanwhile, and files in /proc have no size.
            File::from(file)
                .take(limit.saturating_add(1))
                .read_to_end(&mut content)
                .map_err(error)?;
            if content.len() as u64 > limit { Err(too_large()) } else { Ok(Some(content)) }
        }
    }
}

pub(super) fn digest(path: &str, algorithm: Algorithm) -> Result<Option<ContentDigest>> {
    let error = |error| failed(TargetVerb::Read, path, error);
    match open(path)? {
        OpenedPath::Absent => Ok(None),
        OpenedPath::Other(stat) => Err(not_a_file(path, stat)),
        OpenedPath::File(file, _) => {
            algorithm.digest_stream(&mut File::from(file)).map(Some).map_err(error)
        }
    }
}

pub(super) fn compare(path: &str, expected: ExpectedContent<'_>) -> Result<Option<FileComparison>> {
    let error = |error| failed(TargetVerb::Read, path, error);
    Ok(match open(path)? {
        OpenedPath::Absent => None,
        OpenedPath::Other(stat) => Some(FileComparison { stat, same: false }),
        OpenedPath::File(file, stat) => {
            let same = match expected {
                ExpectedContent::Bytes(bytes) if stat.size != bytes.len() as u64 => false,
                ExpectedContent::Bytes(bytes) => content_equals(&file, bytes).map_err(error)?,
                ExpectedContent::Digest(digest) => {
                    let found = digest.algorithm.digest_stream(&mut File::from(file));
                    found.map_err(error)? == *digest
                }
            };
            Some(FileComparison { stat, same })
        }
    })
}

/// Compares a file of the right size with these bytes, with a minimum of reads, into an
/// uninitialized buffer: clearing it would double the cost of small files.
#[expect(clippy::large_stack_arrays, reason = "a buffer on the heap costs an allocation per file")]
fn content_equals(file: &OwnedFd, mut expected: &[u8]) -> io::Result<bool> {
    let mut buffer = [const { MaybeUninit::<u8>::uninit() }; 64 * 1024];
    while !expected.is_empty() {
        let length = expected.len().min(buffer.len());
        match rustix::io::read(file, &mut buffer[..length]) {
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
    let Some(entry) = open_existing_entry(TargetVerb::ReadLink, path)? else { return Ok(None) };
    match sys::readlinkat(&entry.directory, entry.name, Vec::new()) {
        Ok(leads_to) => Ok(Some(leads_to.to_string_lossy().into_owned())),
        Err(error) if is_absent(error) => Ok(None),
        Err(Errno::INVAL) => Err(TargetError::new(TargetVerb::ReadLink, path, Cause::NotASymlink)),
        Err(error) => Err(failed(TargetVerb::ReadLink, path, error)),
    }
}

pub(super) fn list(path: &str) -> Result<Vec<String>> {
    let error = |error: Errno| failed(TargetVerb::List, path, error);
    let entry = open_entry(TargetVerb::List, path)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = sys::openat(&entry.directory, entry.name, flags, Mode::empty());
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
    let entry = open_entry(TargetVerb::SetAttributes, path)?;
    let error = |error: io::Error| failed(TargetVerb::SetAttributes, path, error);
    let handle = apply_by_path(target, &entry, ownership)
        .map_err(error)?
        .ok_or_else(|| TargetError::new(TargetVerb::SetAttributes, path, Cause::NotARegularFile))?;
    target.record_change(&entry, Change::File(handle)).map_err(error)
}

pub(super) fn make_directory(target: &LocalTarget, path: &str, ownership: Ownership) -> Result<()> {
    let entry = open_entry(TargetVerb::MakeDirectory, path)?;
    let make = || -> io::Result<()> {
        target.step()?;
        // Private until it has its owner.
        let mode = if ownership.mode.is_some() { 0o700 } else { 0o777 };
        sys::mkdirat(&entry.directory, entry.name, Mode::from_raw_mode(mode))?;
        let done = apply_by_path(target, &entry, ownership);
        if done.is_err() && !target.is_dead() {
            // It is empty, since no other user could enter: better none than one with wrong
            // attributes.
            let _ = sys::unlinkat(&entry.directory, entry.name, AtFlags::REMOVEDIR);
        }
        target.record_change(&entry, done?.map_or(Change::Name, Change::NameAndFile))
    };
    make().map_err(|error| failed(TargetVerb::MakeDirectory, path, error))
}

pub(super) fn remove_file(target: &LocalTarget, path: &str) -> Result<bool> {
    let error = |error: io::Error| failed(TargetVerb::Remove, path, error);
    let Some(entry) = open_existing_entry(TargetVerb::Remove, path)? else {
        return Ok(false);
    };
    target.step().map_err(error)?;
    match sys::unlinkat(&entry.directory, entry.name, AtFlags::empty()) {
        Ok(()) => target.record_change(&entry, Change::Name).map_err(error).map(|()| true),
        Err(found) if is_absent(found) => Ok(false),
        Err(found) => Err(error(found.into())),
    }
}

pub(super) fn remove_directory(
    target: &LocalTarget,
    path: &str,
    tree: RemovalMode,
) -> Result<bool> {
    let error = |error: io::Error| failed(TargetVerb::Remove, path, error);
    let Some(entry) = open_existing_entry(TargetVerb::Remove, path)? else {
        return Ok(false);
    };
    match entry.stat().map_err(error)?.map(|stat| stat.kind) {
        None => return Ok(false),
        Some(FileKind::Directory) => {}
        Some(_) => return Err(TargetError::new(TargetVerb::Remove, path, Cause::NotADirectory)),
    }
    target.step().map_err(error)?;
    match tree {
        RemovalMode::WithContent => {
            walk::remove_tree(&entry.directory, entry.name).map_err(error)?;
        }
        RemovalMode::OnlyIfEmpty => sys::unlinkat(&entry.directory, entry.name, AtFlags::REMOVEDIR)
            .map_err(|found| error(found.into()))?,
    }
    target.record_change(&entry, Change::Name).map_err(error)?;
    Ok(true)
}

/// Returns `None` if the parent directory does not exist.
fn open_existing_entry(operation: TargetVerb, path: &str) -> Result<Option<EntryLocation<'_>>> {
    match open_entry(operation, path) {
        Ok(entry) => Ok(Some(entry)),
        Err(TargetError { cause: Cause::ParentMissing | Cause::NotADirectory, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
