//! The way to a directory, without being led astray by links of other users.
//!
//! A process that runs as root must not follow a link that an ordinary user put into a path: the user would choose what root reads, writes,
//! removes or gives away. A link counts as *trusted* if root or this process's user owns both it and the directory it is in. Another link is
//! followed only to a directory that the user who controls the link owns as well: whatever is done there, that user could have done.
//!
//! Most paths have no links in them. `openat2` says so in one call; only where there is a link, or no `openat2`, the path is walked part by part.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{self as sys, AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// As many links as the kernel follows in one path.
const LINKS_MAX: usize = 40;

const PASSING: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Reason why the way to a directory is not taken.
#[derive(Debug)]
pub(super) enum Astray {
    /// The link at this path is controlled by a user who does not own what it leads to.
    Link {
        link: String,
        uid: u32,
    },
    Io(io::Error),
}

impl From<Errno> for Astray {
    fn from(error: Errno) -> Self {
        Astray::Io(error.into())
    }
}

/// Opens something by its path in one call, if no part of the path is a link. `None` if that cannot be told without a walk.
pub(super) fn open_without_links(path: &str, flags: OFlags) -> Option<Result<OwnedFd, Errno>> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match sys::openat2(CWD, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
        // A link; a kernel that does not know this; a filter that does not allow it.
        Err(Errno::LOOP | Errno::NOSYS | Errno::PERM | Errno::AGAIN) => None,
        done => Some(done),
    }
}

/// Opens a directory by its absolute path, as a place from which names are looked up.
pub(super) fn open_directory(path: &str) -> Result<OwnedFd, Astray> {
    match open_without_links(path, OFlags::PATH | OFlags::DIRECTORY) {
        Some(opened) => Ok(opened?),
        None => walk(path),
    }
}

fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// A directory on the way, and where it is.
struct Step {
    directory: OwnedFd,
    path: String,
    uid: u32,
}

impl Step {
    fn root() -> Result<Self, Errno> {
        Step::to(sys::open("/", PASSING | OFlags::DIRECTORY, Mode::empty())?, String::new())
    }

    fn to(directory: OwnedFd, path: String) -> Result<Self, Errno> {
        let uid = sys::fstat(&directory)?.st_uid;
        Ok(Step { directory, path, uid })
    }
}

fn walk(path: &str) -> Result<OwnedFd, Astray> {
    let mut left: VecDeque<String> = parts(path).collect();
    // From the root to where the walk is, so that `..` of a link leads back the same way.
    let mut way = vec![Step::root()?];
    let mut links = 0;
    // The users whose links were followed, with the last link of each.
    let mut followed: Vec<(u32, String)> = Vec::new();
    while let Some(name) = left.pop_front() {
        let Some(here) = way.last() else { return Err(Errno::NOENT.into()) };
        if name == ".." {
            if way.len() > 1 {
                way.pop();
            }
            continue;
        }
        let next = sys::openat(&here.directory, &*name, PASSING, Mode::empty())?;
        let stat = sys::fstat(&next)?;
        let at = format!("{}/{name}", here.path);
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => way.push(Step { directory: next, path: at, uid: stat.st_uid }),
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
                    way.truncate(1);
                }
                for part in parts(&leads_to).collect::<Vec<_>>().into_iter().rev() {
                    left.push_front(part);
                }
            }
            _ => return Err(Errno::NOTDIR.into()),
        }
    }
    let Some(end) = way.pop() else { return Err(Errno::NOENT.into()) };
    match followed.into_iter().find(|(uid, _)| *uid != end.uid) {
        Some((uid, link)) => Err(Astray::Link { link, uid }),
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

/// Removes a directory with all that is in it. Links are removed, and not followed.
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
            // A directory, as Linux and as POSIX say it.
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
