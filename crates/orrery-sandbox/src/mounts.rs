//! File system view of a sandbox: everything read-only, some paths covered, some below covered ones
//! bound back.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use rustix::fs::{Mode, OFlags, StatVfsMountFlags};

use crate::policy::SandboxPolicy;
use crate::setup_error::{SetupError, Step};

/// Hidden from every sandbox: user files, system sockets, data of databases and containers.
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
/// Readable in every sandbox: host name resolution, and programs of systems that store them there.
const READABLE: [&str; 5] = [
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager/resolv.conf",
    "/run/current-system",
    "/run/booted-system",
];
/// Directories for temporary files, which share one tmpfs.
pub(crate) const SCRATCH: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
const DEVICE_LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];
/// Options of a file system that holds only mount points.
const COVER: &str = "mode=0755,size=4m,nr_inodes=8k";

/// Visibility of a path inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Visibility {
    Hidden,
    Readable,
    Writable,
}

/// A path with a different view inside, and the source of its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountItem {
    pub(crate) path: PathBuf,
    pub(crate) look: Visibility,
    pub(crate) source: PathBuf,
}

/// Returns all paths with a different view, in mount order. Missing paths are omitted.
pub(crate) fn items(policy: &SandboxPolicy) -> Vec<MountItem> {
    let home = nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten();
    let home = home.map(|user| user.dir).filter(|dir| dir.parent().is_some());
    let scratch = SCRATCH.iter().map(Path::new);
    let hidden: Vec<PathBuf> = (HIDDEN.iter().map(Path::new))
        .chain(home.as_deref())
        .chain(policy.hidden.iter().map(PathBuf::as_path))
        .filter_map(|path| fs::canonicalize(path).ok())
        .collect();
    let covered: Vec<PathBuf> = hidden.iter().cloned().chain(scratch.map(Path::to_owned)).collect();
    let mut items: Vec<MountItem> = Vec::new();
    let mut add = |path: &Path, look: Visibility, source: &Path| {
        items.push(MountItem { path: path.to_owned(), look, source: source.to_owned() });
    };
    hidden.iter().for_each(|path| add(path, Visibility::Hidden, path));
    let readable = READABLE.iter().map(Path::new);
    let readable = readable.chain(policy.readable.iter().map(PathBuf::as_path));
    let readable = readable.map(|path| (path, Visibility::Readable));
    let writable = policy.writable.iter().chain(&policy.shared);
    let writable = writable.map(|path| (path.as_path(), Visibility::Writable));
    for (given, look) in readable.chain(writable) {
        let Ok(source) = fs::canonicalize(given) else { continue };
        add(&source, look, &source);
        // A covered link needs a target as well.
        if given != source && covered.iter().any(|above| given.starts_with(above)) {
            add(given, look, &source);
            for inner in hidden.iter().filter_map(|path| path.strip_prefix(&source).ok()) {
                add(&given.join(inner), Visibility::Hidden, &source.join(inner));
            }
        }
    }
    items.sort_by(|one, other| {
        let key = |item: &MountItem| (item.path.components().count(), item.path.clone(), item.look);
        key(one).cmp(&key(other))
    });
    items.dedup();
    items
}

impl SandboxPolicy {
    /// Returns paths with a file system of the sandbox, also missing ones: writes there do not
    /// reach the machine.
    pub fn covered(&self) -> Vec<PathBuf> {
        let items = items(self);
        let is_bound = |path: &Path| {
            items.iter().any(|item| item.look != Visibility::Hidden && item.path == path)
        };
        let scratch = SCRATCH.iter().map(PathBuf::from).filter(|path| !is_bound(path));
        let hidden = items.iter().filter(|item| item.look == Visibility::Hidden);
        scratch.chain(hidden.map(|item| item.path.clone())).collect()
    }
}

/// An item with its source, opened before any path is covered.
struct OpenedItem {
    item: MountItem,
    source: OwnedFd,
    is_dir: bool,
}

impl OpenedItem {
    fn new(item: MountItem) -> Option<Self> {
        // A path that this user cannot reach is unreachable inside, too.
        let source = open(&item.source).ok()?;
        let is_dir = fs::metadata(&item.source).ok()?.is_dir();
        Some(OpenedItem { item, source, is_dir })
    }
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

/// Returns a path to an open file, independent of covers.
fn descriptor_path(descriptor: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))
}

const NOTHING: Option<&str> = None;

fn mount_tmpfs(path: &Path, options: &str) -> Result<(), SetupError> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), path, Some("tmpfs"), flags, Some(options))
        .step(format!("covering {}", path.display()))
}

fn bind(source: &Path, path: &Path) -> Result<(), SetupError> {
    // Covers of temporary directories would be bound along, and cover them again.
    let is_covered = SCRATCH.iter().any(|scratch| path == Path::new(scratch));
    let all = if is_covered { MsFlags::empty() } else { MsFlags::MS_REC };
    let flags = MsFlags::MS_BIND | all;
    mount(Some(source), path, NOTHING, flags, NOTHING).step(format!("binding {}", path.display()))
}

fn remount(path: &Path, flags: MsFlags) -> nix::Result<()> {
    mount(NOTHING, path, NOTHING, MsFlags::MS_BIND | MsFlags::MS_REMOUNT | flags, NOTHING)
}

/// Applies the policy's view to this process only.
pub(crate) fn prepare(policy: &SandboxPolicy) -> Result<(), SetupError> {
    unshare(CloneFlags::CLONE_NEWNS).step("a mount namespace (unshare)")?;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(NOTHING, "/", NOTHING, private, NOTHING).step("a mount namespace")?;
    let opened: Vec<OpenedItem> = items(policy).into_iter().filter_map(OpenedItem::new).collect();
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

/// Makes every mount read-only, except writable ones, and disables devices and setuid.
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
            // Unreachable by its path: covered, or closed to this user and so to the program.
            Ok(()) | Err(nix::Error::EINVAL | nix::Error::EACCES | nix::Error::ENOENT) => {}
            Err(error) => return Err(error).step(format!("making {} read-only", path.display())),
        }
    }
    Ok(())
}

/// Mount flags that a user namespace must not clear.
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

/// Decodes escapes: `\040` is a blank.
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

/// File systems of the sandbox. Mount points can be created in them until `finish`.
#[derive(Default)]
struct Covers(Vec<PathBuf>);

impl Covers {
    /// Mounts a `/dev` without access to hardware.
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
            bind(&descriptor_path(&device), &path)?;
        }
        for (name, target) in DEVICE_LINKS {
            std::os::unix::fs::symlink(target, dev.join(name)).step("/dev")?;
        }
        for name in ["pts", "shm"] {
            fs::create_dir(dev.join(name)).step("/dev")?;
        }
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
        let options = "newinstance,ptmxmode=0666,mode=0620";
        // Terminals are rarely needed, and some kernels do not allow them here.
        let _ = mount(Some("devpts"), &dev.join("pts"), Some("devpts"), flags, Some(options));
        Ok(())
    }

    /// Mounts directories for temporary files with one common limit. Returns an empty file.
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
        // The first one covers the directory in which they were created.
        for (path, own) in made.iter().rev().filter(|(path, _)| path.is_dir()) {
            bind(&descriptor_path(own), path)?;
        }
        Ok(empty)
    }

    fn apply(&mut self, one: &OpenedItem, empty: &OwnedFd) -> Result<(), SetupError> {
        let MountItem { path, look, .. } = &one.item;
        if *look == Visibility::Hidden {
            if one.is_dir && SCRATCH.iter().any(|above| path.starts_with(above)) {
                // Temporary directories are world-writable, but nothing can be created in hidden
                // ones.
                self.make_mount_point(path, true)
                    .step(format!("a mount point for {}", path.display()))?;
            }
            return match (path.symlink_metadata().is_ok(), one.is_dir) {
                // It is below a covered path already.
                (false, _) => Ok(()),
                (true, true) => {
                    self.0.push(path.clone());
                    mount_tmpfs(path, COVER)
                }
                (true, false) => bind(&descriptor_path(empty), path),
            };
        }
        self.make_mount_point(path, one.is_dir)
            .step(format!("a mount point for {}", path.display()))?;
        bind(&descriptor_path(&one.source), path)?;
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        if *look == Visibility::Writable {
            remount(path, flags).step(format!("making {} writable", path.display()))?;
        } else {
            // Its source stays writable for programs that manage the machine.
            let flags = flags | MsFlags::MS_RDONLY | locked_flags(path);
            remount(path, flags).step(format!("making {} read-only", path.display()))?;
        }
        Ok(())
    }

    /// Creates a mount point in a file system of the sandbox. Elsewhere it exists.
    fn make_mount_point(&self, path: &Path, is_dir: bool) -> io::Result<()> {
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

    /// Makes them read-only.
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
    fn deeper_paths_come_later_and_links_are_followed() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir_all(root.join("data/own/project")).unwrap();
        fs::write(root.join("data/own/project/key"), "").unwrap();
        std::os::unix::fs::symlink(root.join("data/own"), root.join("link")).unwrap();
        let policy = SandboxPolicy {
            hidden: vec![root.join("data"), root.join("data/own/project/key"), "/nowhere".into()],
            readable: vec![root.join("link/project")],
            writable: vec![root.join("data/own")],
            ..SandboxPolicy::default()
        };
        let seen: Vec<(PathBuf, Visibility)> = items(&policy)
            .into_iter()
            .filter_map(|item| Some((item.path.strip_prefix(&root).ok()?.to_owned(), item.look)))
            .collect();
        let wanted = [
            ("data", Visibility::Hidden),
            ("data/own", Visibility::Writable),
            ("link/project", Visibility::Readable),
            ("data/own/project", Visibility::Readable),
            ("link/project/key", Visibility::Hidden),
            ("data/own/project/key", Visibility::Hidden),
        ];
        assert_eq!(seen, wanted.map(|(path, look)| (PathBuf::from(path), look)));
    }
}
