//! Control groups: limits for all processes of a sandbox together, where this user may make groups.
//!
//! The launcher makes a group for itself below the one that it is in, and removes it in the end. Groups of launchers that were killed
//! are empty, and removed by the next one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::policy::Limits;

const PREFIX: &str = "orrery-sandbox-";
const PROCESSES: &str = "cgroup.procs";
/// Making a group is tried so often: another launcher may take an empty group for one that was left.
const ATTEMPTS: u32 = 3;

/// The control groups of a sandbox, as far as there are some.
#[derive(Debug, Default)]
pub(crate) struct Group {
    memory: Option<Member>,
    processes: Option<Member>,
}

/// A group that this process is in.
#[derive(Debug)]
struct Member {
    path: PathBuf,
    parent: PathBuf,
    kind: Kind,
}

/// Which files a group has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A hierarchy for each controller.
    One,
    /// One hierarchy for all.
    Two,
}

/// A controller, and the group of this process in its hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    parent: PathBuf,
    kind: Kind,
}

impl Group {
    /// Moves this process into a group with these limits. Where that is not possible, other limits have to do.
    pub(crate) fn enter(limits: &Limits) -> Self {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let find = |controller: &str| hierarchy(controller, &groups, &mounts);
        let processes = find("pids").and_then(|place| {
            let limit = limits.processes.to_string();
            Member::enter(&place, "pids", &[("pids.max", limit)]).ok()
        });
        let memory = limits.memory.and_then(|bytes| {
            let place = find("memory")?;
            // Temporary files are in memory too.
            let bytes = bytes.saturating_add(limits.scratch).to_string();
            let files: Vec<(&str, String)> = match place.kind {
                Kind::One => vec![("memory.limit_in_bytes", bytes)],
                Kind::Two => vec![("memory.max", bytes), ("memory.swap.max", "0".to_owned())],
            };
            if let (Kind::Two, Some(same)) = (place.kind, &processes) {
                // There is one group for all controllers.
                let written = files.iter().try_for_each(|(name, value)| same.write(name, value));
                return written.is_ok().then(|| Member {
                    path: same.path.clone(),
                    parent: same.parent.clone(),
                    kind: same.kind,
                });
            }
            Member::enter(&place, "memory", &files).ok()
        });
        Group { memory, processes }
    }

    pub(crate) fn limits_memory(&self) -> bool {
        self.memory.is_some()
    }

    pub(crate) fn limits_processes(&self) -> bool {
        self.processes.is_some()
    }

    /// The limits that were reached, for people.
    pub(crate) fn exceeded(&self, limits: &Limits) -> Vec<String> {
        let mut told = Vec::new();
        let memory = self.memory.as_ref().map_or(0, |member| {
            let file =
                if member.kind == Kind::One { "memory.oom_control" } else { "memory.events" };
            member.counter(file, "oom_kill")
        });
        if let Some(bytes) = limits.memory.filter(|_| memory > 0) {
            told.push(memory_exceeded(bytes));
        }
        let processes =
            self.processes.as_ref().map_or(0, |member| member.counter("pids.events", "max"));
        if processes > 0 {
            told.push(format!(
                "it reached the limit of {} processes and threads",
                limits.processes
            ));
        }
        told
    }

    /// Removes the groups, as far as nothing is in them any more.
    pub(crate) fn leave(self) {
        for member in [self.memory, self.processes].into_iter().flatten() {
            let _ = fs::write(member.parent.join(PROCESSES), std::process::id().to_string());
            let _ = fs::remove_dir(&member.path);
            remove_left(&member.parent);
        }
    }
}

/// What is told of a sandbox whose processes needed too much memory together.
pub(crate) fn memory_exceeded(bytes: u64) -> String {
    let mebibytes = bytes >> 20;
    format!(
        "Out of memory: its processes needed more than the {mebibytes} MiB that they may have together"
    )
}

impl Member {
    fn enter(place: &Hierarchy, what: &str, files: &[(&str, String)]) -> io::Result<Self> {
        let name = format!("{PREFIX}{what}-{}", std::process::id());
        let path = place.parent.join(name);
        let member = Member { path, parent: place.parent.clone(), kind: place.kind };
        let mut entered = Ok(());
        for _ in 0..ATTEMPTS {
            entered = member.make(files);
            if !matches!(&entered, Err(error) if error.kind() == io::ErrorKind::NotFound) {
                break;
            }
        }
        match entered {
            Ok(()) => Ok(member),
            Err(error) => {
                let _ = fs::remove_dir(&member.path);
                Err(error)
            }
        }
    }

    fn make(&self, files: &[(&str, String)]) -> io::Result<()> {
        match fs::create_dir(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        for (name, value) in files {
            self.write(name, value)?;
        }
        self.write(PROCESSES, &std::process::id().to_string())
    }

    fn write(&self, name: &str, value: &str) -> io::Result<()> {
        // Opened without O_CREAT: a file that the kernel does not offer is an error.
        let mut file = fs::OpenOptions::new().write(true).open(self.path.join(name))?;
        io::Write::write_all(&mut file, value.as_bytes())
    }

    fn counter(&self, file: &str, name: &str) -> u64 {
        let text = fs::read_to_string(self.path.join(file)).unwrap_or_default();
        let mut values = text.lines().filter_map(|line| line.split_once(' '));
        let found = values.find(|(key, _)| *key == name);
        found.and_then(|(_, value)| value.trim().parse().ok()).unwrap_or(0)
    }
}

/// Removes groups of launchers that were killed. Those with processes cannot be removed.
fn remove_left(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX)) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Where groups with a controller can be made: below the one of this process. `None` if the controller is not there, or not usable.
fn hierarchy(controller: &str, groups: &str, mounts: &str) -> Option<Hierarchy> {
    let mut lines = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        Some((parts.next()?, parts.next()?))
    });
    if let Some((_, own)) =
        lines.clone().find(|(all, _)| all.split(',').any(|one| one == controller))
    {
        let root = mounted(mounts, "cgroup", Some(controller))?;
        return Some(Hierarchy { parent: root.join(own.trim_start_matches('/')), kind: Kind::One });
    }
    let (_, own) = lines.find(|(all, _)| all.is_empty())?;
    let root = mounted(mounts, "cgroup2", None)?;
    let parent = root.join(own.trim_start_matches('/'));
    // A group has a controller if the one above it passes it on, which it cannot while it has processes itself.
    let passed_on = fs::read_to_string(parent.join("cgroup.subtree_control")).ok()?;
    let usable = passed_on.split_whitespace().any(|one| one == controller);
    usable.then_some(Hierarchy { parent, kind: Kind::Two })
}

/// Where a hierarchy is mounted as a whole.
fn mounted(mounts: &str, kind: &str, option: Option<&str>) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let (root, point) = (before.next()?, before.next()?);
        let mut after = after.split(' ');
        let found = after.next()? == kind;
        let options = after.nth(1).unwrap_or_default();
        let has = option.is_none_or(|option| options.split(',').any(|one| one == option));
        (found && has && root == "/").then(|| PathBuf::from(point))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_are_found() {
        let mounts = "30 20 0:26 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids\n\
                      31 20 0:27 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n";
        let groups = "9:pids:/a/b\n3:cpu,cpuacct:/\n0::/\n";
        let of = |name: &str| hierarchy(name, groups, mounts).map(|found| found.parent);
        assert_eq!(of("pids"), Some("/sys/fs/cgroup/pids/a/b".into()));
        assert_eq!(of("cpuacct"), Some("/sys/fs/cgroup/cpu/".into()));
        assert_eq!(of("memory"), None);
    }

    #[test]
    fn a_shared_hierarchy_is_used_if_it_passes_controllers_on() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("own");
        fs::create_dir(&own).unwrap();
        let mounts = format!("30 20 0:26 / {} rw - cgroup2 cgroup2 rw\n", dir.path().display());
        let of = |name: &str| hierarchy(name, "0::/own\n", &mounts);
        assert_eq!(of("pids"), None);
        fs::write(own.join("cgroup.subtree_control"), "memory pids\n").unwrap();
        assert_eq!(of("pids"), Some(Hierarchy { parent: own, kind: Kind::Two }));
        assert_eq!(of("cpu"), None);
    }
}
