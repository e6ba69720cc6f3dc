//! What a sandbox sees of the file system: everything read-only, some of it covered, some of what is covered bound back.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use rustix::fs::{Mode, OFlags, StatVfsMountFlags};

use crate::launcher::{SetupError, Step};
use crate::policy::Policy;

/// Hidden from every sandbox: people's files, sockets of the system, data of databases and containers.
const HIDDEN: [&str; 9] = [
    "/root",
    "/home",
    "/run",
    "/var/run",
    "/var/spool/cron",
    "/var/lib/docker",
    "/var/lib/containerd",
    "/var/lib/postgresql",
    "/var/lib/mysql",
];
/// Readable in every sandbox: how names of hosts are resolved, and programs of systems that keep them there.
const READABLE: [&str; 5] = [
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager/resolv.conf",
    "/run/current-system",
    "/run/booted-system",
];
/// Directories for temporary files, which share one file system in memory.
pub(crate) const SCRATCH: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
const DEVICE_LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];
/// A file system that only holds places to mount something at.
const COVER: &str = "mode=0755,size=4m,nr_inodes=8k";

/// How a path looks inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Look {
    Hidden,
    Readable,
    Writable,
}

/// A path that looks different inside, and where its content comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) path: PathBuf,
    pub(crate) look: Look,
    pub(crate) source: PathBuf,
}

/// All paths that look different, in the order in which they have to be mounted. Paths that do not exist are left out.
pub(crate) fn items(policy: &Policy) -> Vec<Item> {
    let home = nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten();
    let home = home.map(|user| user.dir).filter(|dir| dir.parent().is_some());
    let scratch = SCRATCH.iter().map(Path::new);
    let hidden: Vec<PathBuf> = (HIDDEN.iter().map(Path::new))
        .chain(home.as_deref())
        .chain(policy.hidden.iter().map(PathBuf::as_path))
        .filter_map(|path| fs::canonicalize(path).ok())
        .collect();
    let covered: Vec<PathBuf> = hidden.iter().cloned().chain(scratch.map(Path::to_owned)).collect();
    let mut items: Vec<Item> = Vec::new();
    let mut add = |path: &Path, look: Look, source: &Path| {
        items.push(Item { path: path.to_owned(), look, source: source.to_owned() });
    };
    hidden.iter().for_each(|path| add(path, Look::Hidden, path));
    let readable = READABLE.iter().map(Path::new);
    let readable = readable.chain(policy.readable.iter().map(PathBuf::as_path));
    let readable = readable.map(|path| (path, Look::Readable));
    let writable = policy.writable.iter().chain(&policy.shared);
    let writable = writable.map(|path| (path.as_path(), Look::Writable));
    for (given, look) in readable.chain(writable) {
        let Ok(source) = fs::canonicalize(given) else { continue };
        add(&source, look, &source);
        // A link that is covered has to lead somewhere, too.
        if given != source && covered.iter().any(|above| given.starts_with(above)) {
            add(given, look, &source);
            for inner in hidden.iter().filter_map(|path| path.strip_prefix(&source).ok()) {
                add(&given.join(inner), Look::Hidden, &source.join(inner));
            }
        }
    }
    items.sort_by(|one, other| {
        let key = |item: &Item| (item.path.components().count(), item.path.clone(), item.look);
        key(one).cmp(&key(other))
    });
    items.dedup();
    items
}

/// All paths that are a file system of the sandbox's own inside, or would be if they existed.
pub(crate) fn covered(policy: &Policy) -> Vec<PathBuf> {
    let items = items(policy);
    let is_bound =
        |path: &Path| items.iter().any(|item| item.look != Look::Hidden && item.path == path);
    let scratch = SCRATCH.iter().map(PathBuf::from).filter(|path| !is_bound(path));
    let hidden = items.iter().filter(|item| item.look == Look::Hidden);
    scratch.chain(hidden.map(|item| item.path.clone())).collect()
}

/// An item with its source, opened before anything was covered.
struct Opened {
    item: Item,
    source: OwnedFd,
    is_dir: bool,
}

impl Opened {
    fn new(item: Item) -> Option<Self> {
        // What this user cannot reach is not reachable inside either.
        let source = open(&item.source).ok()?;
        let is_dir = fs::metadata(&item.source).ok()?.is_dir();
        Some(Opened { item, source, is_dir })
    }
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

/// A path that leads to what is open, whatever covers it.
fn path_of(descriptor: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))
}

const NOTHING: Option<&str> = None;

fn mount_tmpfs(path: &Path, options: &str) -> Result<(), SetupError> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), path, Some("tmpfs"), flags, Some(options))
        .step(format!("covering {}", path.display()))
}

fn bind(source: &Path, path: &Path) -> Result<(), SetupError> {
    // What covers directories for temporary files would come along, and cover them again.
    let is_covered = SCRATCH.iter().any(|scratch| path == Path::new(scratch));
    let all = if is_covered { MsFlags::empty() } else { MsFlags::MS_REC };
    let flags = MsFlags::MS_BIND | all;
    mount(Some(source), path, NOTHING, flags, NOTHING).step(format!("binding {}", path.display()))
}

fn remount(path: &Path, flags: MsFlags) -> nix::Result<()> {
    mount(NOTHING, path, NOTHING, MsFlags::MS_BIND | MsFlags::MS_REMOUNT | flags, NOTHING)
}

/// Makes this process see what the policy shows. Nothing outside of it changes.
pub(crate) fn prepare(policy: &Policy) -> Result<(), SetupError> {
    unshare(CloneFlags::CLONE_NEWNS).step("a mount namespace (unshare)")?;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(NOTHING, "/", NOTHING, private, NOTHING).step("a mount namespace")?;
    let opened: Vec<Opened> = items(policy).into_iter().filter_map(Opened::new).collect();
    let closed = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), closed, NOTHING).step("a new /proc")?;
    protect_all(policy.manages_machine)?;
    let mut covers = Covers::default();
    covers.cover_devices()?;
    let empty = covers.cover_scratch(policy.limits.scratch)?;
    for one in &opened {
        covers.apply(one, &empty)?;
    }
    covers.finish()
}

/// Makes every mount read-only, unless it stays writable, and takes devices and changes of identity away.
fn protect_all(stays_writable: bool) -> Result<(), SetupError> {
    let text = fs::read_to_string("/proc/self/mountinfo").step("/proc/self/mountinfo")?;
    for (path, flags) in text.lines().filter_map(mount_point) {
        if path.starts_with("/proc") {
            continue;
        }
        let mut flags = flags | MsFlags::MS_NOSUID;
        if !stays_writable || path.starts_with("/sys") {
            flags |= MsFlags::MS_RDONLY;
        }
        if !path.starts_with("/dev") {
            flags |= MsFlags::MS_NODEV;
        }
        match remount(&path, flags) {
            // Not reachable by its path: covered by another one, or closed to this user, and so to the program.
            Ok(()) | Err(nix::Error::EINVAL | nix::Error::EACCES | nix::Error::ENOENT) => {}
            Err(error) => return Err(error).step(format!("making {} read-only", path.display())),
        }
    }
    Ok(())
}

/// Flags of a mount that a user namespace must not take away.
fn locked_flags(path: &Path) -> MsFlags {
    let Ok(found) = rustix::fs::statvfs(path) else { return MsFlags::empty() };
    let flags = [
        (StatVfsMountFlags::NOEXEC, MsFlags::MS_NOEXEC),
        (StatVfsMountFlags::NOATIME, MsFlags::MS_NOATIME),
        (StatVfsMountFlags::NODIRATIME, MsFlags::MS_NODIRATIME),
        (StatVfsMountFlags::RELATIME, MsFlags::MS_RELATIME),
    ];
    let set = flags.into_iter().filter(|(flag, _)| found.f_flag.contains(*flag));
    set.fold(MsFlags::empty(), |all, (_, flag)| all | flag)
}

/// Path and flags of a line of `mountinfo`.
fn mount_point(line: &str) -> Option<(PathBuf, MsFlags)> {
    let mut fields = line.split(' ').skip(4);
    let (path, options) = (fields.next()?, fields.next()?);
    let flag = |name: &str| match name {
        "ro" => MsFlags::MS_RDONLY,
        "nosuid" => MsFlags::MS_NOSUID,
        "nodev" => MsFlags::MS_NODEV,
        "noexec" => MsFlags::MS_NOEXEC,
        "noatime" => MsFlags::MS_NOATIME,
        "nodiratime" => MsFlags::MS_NODIRATIME,
        "relatime" => MsFlags::MS_RELATIME,
        _ => MsFlags::empty(),
    };
    let flags = options.split(',').map(flag).fold(MsFlags::empty(), |all, one| all | one);
    Some((PathBuf::from(unescape(path)), flags))
}

/// `\040` is a blank, and so on.
fn unescape(text: &str) -> std::ffi::OsString {
    use std::os::unix::ffi::OsStringExt as _;
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digits = bytes.get(at + 1..at + 4).filter(|_| bytes[at] == b'\\');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            plain.push(byte);
            at += 4;
        } else {
            plain.push(bytes[at]);
            at += 1;
        }
    }
    std::ffi::OsString::from_vec(plain)
}

/// File systems of our own. Places to mount at can be made in them until the end.
#[derive(Default)]
struct Covers(Vec<PathBuf>);

impl Covers {
    /// A `/dev` with nothing in it that leads to hardware.
    fn cover_devices(&mut self) -> Result<(), SetupError> {
        let dev = Path::new("/dev");
        let devices: Vec<(&str, OwnedFd)> = (DEVICES.iter())
            .filter_map(|name| Some((*name, open(&dev.join(name)).ok()?)))
            .collect();
        mount_tmpfs(dev, COVER)?;
        self.0.push(dev.to_owned());
        for (name, device) in devices {
            let path = dev.join(name);
            fs::File::create(&path).step("/dev")?;
            bind(&path_of(&device), &path)?;
        }
        for (name, target) in DEVICE_LINKS {
            std::os::unix::fs::symlink(target, dev.join(name)).step("/dev")?;
        }
        for name in ["pts", "shm"] {
            fs::create_dir(dev.join(name)).step("/dev")?;
        }
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
        let options = "newinstance,ptmxmode=0666,mode=0620";
        // Terminals are seldom needed, and some kernels do not give them here.
        let _ = mount(Some("devpts"), &dev.join("pts"), Some("devpts"), flags, Some(options));
        Ok(())
    }

    /// Directories for temporary files, with one limit for all of them. Answers an empty file.
    fn cover_scratch(&mut self, bytes: u64) -> Result<OwnedFd, SetupError> {
        let stage = Path::new(SCRATCH[0]);
        let inodes = (bytes >> 12).clamp(1 << 10, 1 << 20);
        mount_tmpfs(stage, &format!("mode=0755,size={bytes},nr_inodes={inodes}"))?;
        let empty = stage.join("empty");
        fs::File::create(&empty).step("temporary files")?;
        fs::set_permissions(&empty, fs::Permissions::from_mode(0o444)).step("temporary files")?;
        let empty = open(&empty).step("temporary files")?;
        let mut made = Vec::new();
        for (number, path) in SCRATCH.iter().enumerate() {
            let own = stage.join(number.to_string());
            fs::create_dir(&own).step("temporary files")?;
            fs::set_permissions(&own, fs::Permissions::from_mode(0o1777))
                .step("temporary files")?;
            made.push((Path::new(path), open(&own).step("temporary files")?));
        }
        // The first one covers the place where they were made.
        for (path, own) in made.iter().rev().filter(|(path, _)| path.is_dir()) {
            bind(&path_of(own), path)?;
        }
        Ok(empty)
    }

    fn apply(&mut self, one: &Opened, empty: &OwnedFd) -> Result<(), SetupError> {
        let Item { path, look, .. } = &one.item;
        if *look == Look::Hidden {
            if one.is_dir && SCRATCH.iter().any(|above| path.starts_with(above)) {
                // Temporary files are for everybody, but nothing is made where something is hidden.
                self.make_place(path, true).step(format!("a place for {}", path.display()))?;
            }
            return match (path.symlink_metadata().is_ok(), one.is_dir) {
                // It lies in something that is covered already.
                (false, _) => Ok(()),
                (true, true) => {
                    self.0.push(path.clone());
                    mount_tmpfs(path, COVER)
                }
                (true, false) => bind(&path_of(empty), path),
            };
        }
        self.make_place(path, one.is_dir).step(format!("a place for {}", path.display()))?;
        bind(&path_of(&one.source), path)?;
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        if *look == Look::Writable {
            remount(path, flags).step(format!("making {} writable", path.display()))?;
        } else {
            // What it is bound from stays writable for programs that manage the machine.
            let flags = flags | MsFlags::MS_RDONLY | locked_flags(path);
            remount(path, flags).step(format!("making {} read-only", path.display()))?;
        }
        Ok(())
    }

    /// Makes what something is mounted at, if that is in a file system of our own. Elsewhere it is there.
    fn make_place(&self, path: &Path, is_dir: bool) -> io::Result<()> {
        if path.exists() {
            return Ok(());
        }
        let Some(parent) = path.parent() else { return Ok(()) };
        if is_dir {
            return fs::create_dir_all(path);
        }
        fs::create_dir_all(parent)?;
        fs::File::create(path).map(drop)
    }

    /// From now on nothing can be made in them.
    fn finish(&self) -> Result<(), SetupError> {
        let flags = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        for path in &self.0 {
            remount(path, flags).step(format!("making {} read-only", path.display()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_mounts_are_read() {
        let line = r"36 35 98:0 /mnt1 /mnt\0402 rw,nosuid,noatime master:1 - ext3 /dev/root rw";
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOATIME;
        assert_eq!(mount_point(line), Some(("/mnt 2".into(), flags)));
        assert_eq!(mount_point("short"), None);
    }

    #[test]
    fn what_lies_deeper_comes_later_and_links_are_followed() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir_all(root.join("data/own/project")).unwrap();
        fs::write(root.join("data/own/project/key"), "").unwrap();
        std::os::unix::fs::symlink(root.join("data/own"), root.join("link")).unwrap();
        let policy = Policy {
            hidden: vec![root.join("data"), root.join("data/own/project/key"), "/nowhere".into()],
            readable: vec![root.join("link/project")],
            writable: vec![root.join("data/own")],
            ..Policy::default()
        };
        let seen: Vec<(PathBuf, Look)> = items(&policy)
            .into_iter()
            .filter_map(|item| Some((item.path.strip_prefix(&root).ok()?.to_owned(), item.look)))
            .collect();
        let wanted = [
            ("data", Look::Hidden),
            ("data/own", Look::Writable),
            ("link/project", Look::Readable),
            ("data/own/project", Look::Readable),
            ("link/project/key", Look::Hidden),
            ("data/own/project/key", Look::Hidden),
        ];
        assert_eq!(seen, wanted.map(|(path, look)| (PathBuf::from(path), look)));
    }
}
