//! Opens directories without following untrusted links.
//!
//! A root process must not follow a link that an ordinary user put into a path: the user would
//! choose what root reads, writes, removes or gives away. A link is *trusted* if root or this
//! process's user owns both it and its directory. Another link is followed only to a directory that
//! the user in control of the link owns as well: that user could have done the same.
//!
//! Most paths have no links. `openat2` verifies that in one call; only with a link, or without
//! `openat2`, the path is walked part by part.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{self as sys, AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// Maximum of links in a path, as in the kernel.
const LINKS_MAX: usize = 40;

const WALK_FLAGS: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Reason why a directory cannot be opened.
#[derive(Debug)]
pub(super) enum WalkError {
    /// The link at this path is controlled by a user that does not own its destination.
    Link {
        link: String,
        uid: u32,
    },
    Io(io::Error),
}

impl From<Errno> for WalkError {
    fn from(error: Errno) -> Self {
        WalkError::Io(error.into())
    }
}

/// Opens a path without links in one call. `None` if that needs a walk.
pub(super) fn open_without_links(path: &str, flags: OFlags) -> Option<Result<OwnedFd, Errno>> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match sys::openat2(CWD, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
        // A link, an old kernel, or a seccomp filter.
        Err(Errno::LOOP | Errno::NOSYS | Errno::PERM | Errno::AGAIN) => None,
        done => Some(done),
    }
}

/// Opens a directory by its absolute path, for lookups in it.
pub(super) fn open_directory(path: &str) -> Result<OwnedFd, WalkError> {
    match open_without_links(path, OFlags::PATH | OFlags::DIRECTORY) {
        Some(opened) => Ok(opened?),
        None => walk(path),
    }
}

fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// A directory of the walk with its path.
struct WalkStep {
    directory: OwnedFd,
    path: String,
    uid: u32,
}

impl WalkStep {
    fn root() -> Result<Self, Errno> {
        WalkStep::to(sys::open("/", WALK_FLAGS | OFlags::DIRECTORY, Mode::empty())?, String::new())
    }

    fn to(directory: OwnedFd, path: String) -> Result<Self, Errno> {
        let uid = sys::fstat(&directory)?.st_uid;
        Ok(WalkStep { directory, path, uid })
    }
}

fn walk(path: &str) -> Result<OwnedFd, WalkError> {
    let mut pending: VecDeque<String> = parts(path).collect();
    // From the root to the current directory, so `..` of a link goes back the same way.
    let mut ancestors = vec![WalkStep::root()?];
    let mut links = 0;
    // Untrusted users of followed links, with the last link of each.
    let mut followed: Vec<(u32, String)> = Vec::new();
    while let Some(name) = pending.pop_front() {
        let Some(here) = ancestors.last() else { return Err(Errno::NOENT.into()) };
        if name == ".." {
            if ancestors.len() > 1 {
                ancestors.pop();
            }
            continue;
        }
        let next = sys::openat(&here.directory, &*name, WALK_FLAGS, Mode::empty())?;
        let stat = sys::fstat(&next)?;
        let at = format!("{}/{name}", here.path);
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                ancestors.push(WalkStep { directory: next, path: at, uid: stat.st_uid });
            }
            FileType::Symlink => {
                links += 1;
                if links > LINKS_MAX {
                    return Err(Errno::LOOP.into());
                }
                let controller = [here.uid, stat.st_uid].into_iter().find(|&uid| !is_trusted(uid));
                if let Some(uid) = controller {
                    followed.push((uid, at));
                }
                let leads_to = sys::readlinkat(&next, "", Vec::new())?;
                let leads_to = leads_to.into_string().map_err(|_| Errno::ILSEQ)?;
                if leads_to.starts_with('/') {
                    ancestors.truncate(1);
                }
                for part in parts(&leads_to).collect::<Vec<_>>().into_iter().rev() {
                    pending.push_front(part);
                }
            }
            _ => return Err(Errno::NOTDIR.into()),
        }
    }
    let Some(end) = ancestors.pop() else { return Err(Errno::NOENT.into()) };
    match followed.into_iter().find(|(uid, _)| *uid != end.uid) {
        Some((uid, link)) => Err(WalkError::Link { link, uid }),
        None => Ok(end.directory),
    }
}

fn parts(path: &str) -> impl Iterator<Item = String> + use<> {
    let parts: Vec<String> = path
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .map(str::to_owned)
        .collect();
    parts.into_iter()
}

/// Removes a directory tree. Links are removed, not followed.
pub(super) fn remove_tree(parent: &OwnedFd, name: &str) -> io::Result<()> {
    struct Level {
        directory: OwnedFd,
        name: std::ffi::CString,
        entries: Vec<std::ffi::CString>,
    }
    let enter = |parent: &OwnedFd, name: std::ffi::CString| -> io::Result<Level> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = sys::openat(parent, &*name, flags, Mode::empty())?;
        let mut entries = Vec::new();
        for entry in sys::Dir::read_from(&directory)? {
            let entry = entry?.file_name().to_owned();
            if entry.as_bytes() != b"." && entry.as_bytes() != b".." {
                entries.push(entry);
            }
        }
        Ok(Level { directory, name, entries })
    };
    let name = std::ffi::CString::new(name)?;
    let mut levels = vec![enter(parent, name)?];
    while let Some(level) = levels.last_mut() {
        let Some(entry) = level.entries.pop() else {
            let done = levels.pop();
            let holder = levels.last().map_or(parent, |level| &level.directory);
            if let Some(done) = done {
                sys::unlinkat(holder, &*done.name, AtFlags::REMOVEDIR)?;
            }
            continue;
        };
        match sys::unlinkat(&level.directory, &*entry, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            // A directory, as reported by Linux and by POSIX.
            Err(error @ (Errno::ISDIR | Errno::PERM)) => {
                let inner = enter(&level.directory, entry);
                let inner = inner.map_err(|found| match found.kind() {
                    io::ErrorKind::NotADirectory => error.into(),
                    _ => found,
                })?;
                levels.push(inner);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
