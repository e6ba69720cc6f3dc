//! Control groups: limits for all processes of a sandbox together, where this user may create
//! groups.
//!
//! The launcher creates a group for itself below its current one, and removes it at the end. Groups
//! of killed launchers are empty, and the next launcher removes them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::policy::SandboxLimits;

const PREFIX: &str = "orrery-sandbox-";
const PROCESSES: &str = "cgroup.procs";
/// Attempts to create a group: another launcher may remove an empty group as stale.
const ATTEMPTS: u32 = 3;

/// Control groups of a sandbox, as far as available.
#[derive(Debug, Default)]
pub(crate) struct Group {
    memory: Option<Member>,
    processes: Option<Member>,
}

/// A group with this process as a member.
#[derive(Debug)]
struct Member {
    path: PathBuf,
    parent: PathBuf,
    kind: Kind,
}

/// Version of the cgroup interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// One hierarchy for each controller.
    V1,
    /// One hierarchy for all.
    V2,
}

/// A controller, and this process's group in its hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    parent: PathBuf,
    kind: Kind,
}

impl Group {
    /// Moves this process into a group with these limits, as far as possible; other limits cover
    /// the rest.
    pub(crate) fn join(limits: &SandboxLimits) -> Self {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let find = |controller: &str| hierarchy(controller, &groups, &mounts);
        let processes = find("pids").and_then(|place| {
            let limit = limits.processes.to_string();
            Member::join(&place, "pids", &[("pids.max", limit)]).ok()
        });
        let memory = limits.memory.and_then(|bytes| {
            let place = find("memory")?;
            // Temporary files are in memory too.
            let bytes = bytes.saturating_add(limits.scratch).to_string();
            let files: Vec<(&str, String)> = match place.kind {
                Kind::V1 => vec![("memory.limit_in_bytes", bytes)],
                Kind::V2 => vec![("memory.max", bytes), ("memory.swap.max", "0".to_owned())],
            };
            if let (Kind::V2, Some(same)) = (place.kind, &processes) {
                // In version 2 all controllers share one group.
                let written = files.iter().try_for_each(|(name, value)| same.write(name, value));
                return written.is_ok().then(|| Member {
                    path: same.path.clone(),
                    parent: same.parent.clone(),
                    kind: same.kind,
                });
            }
            Member::join(&place, "memory", &files).ok()
        });
        Group { memory, processes }
    }

    pub(crate) fn limits_memory(&self) -> bool {
        self.memory.is_some()
    }

    pub(crate) fn limits_processes(&self) -> bool {
        self.processes.is_some()
    }

    /// Returns messages about the limits that were reached.
    pub(crate) fn exceeded(&self, limits: &SandboxLimits) -> Vec<String> {
        let mut told = Vec::new();
        let memory = self.memory.as_ref().map_or(0, |member| {
            let file = if member.kind == Kind::V1 { "memory.oom_control" } else { "memory.events" };
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

    /// Removes the groups that are empty.
    pub(crate) fn leave(self) {
        for member in [self.memory, self.processes].into_iter().flatten() {
            let _ = fs::write(member.parent.join(PROCESSES), std::process::id().to_string());
            let _ = fs::remove_dir(&member.path);
            remove_stale(&member.parent);
        }
    }
}

/// Message for a sandbox that exceeded its total memory.
pub(crate) fn memory_exceeded(bytes: u64) -> String {
    let mebibytes = bytes >> 20;
    format!(
        "Out of memory: its processes needed more than the {mebibytes} MiB that they may have together"
    )
}

impl Member {
    fn join(place: &Hierarchy, what: &str, files: &[(&str, String)]) -> io::Result<Self> {
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

/// Removes groups of killed launchers. Groups with processes cannot be removed.
fn remove_stale(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX)) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Returns the hierarchy of a controller in which groups can be created, below this process's
/// group. `None` if the controller is missing or unusable.
fn hierarchy(controller: &str, groups: &str, mounts: &str) -> Option<Hierarchy> {
    let mut lines = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        Some((parts.next()?, parts.next()?))
    });
    if let Some((_, own)) =
        lines.clone().find(|(all, _)| all.split(',').any(|one| one == controller))
    {
        let root = find_mount(mounts, "cgroup", Some(controller))?;
        return Some(Hierarchy { parent: root.join(own.trim_start_matches('/')), kind: Kind::V1 });
    }
    let (_, own) = lines.find(|(all, _)| all.is_empty())?;
    let root = find_mount(mounts, "cgroup2", None)?;
    let parent = root.join(own.trim_start_matches('/'));
    // A group has a controller if its parent delegates it, which requires that the parent has no
    // processes.
    let passed_on = fs::read_to_string(parent.join("cgroup.subtree_control")).ok()?;
    let usable = passed_on.split_whitespace().any(|one| one == controller);
    usable.then_some(Hierarchy { parent, kind: Kind::V2 })
}

/// Returns the mount point of a whole hierarchy.
fn find_mount(mounts: &str, kind: &str, option: Option<&str>) -> Option<PathBuf> {
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
        assert_eq!(of("pids"), Some(Hierarchy { parent: own, kind: Kind::V2 }));
        assert_eq!(of("cpu"), None);
    }
}
