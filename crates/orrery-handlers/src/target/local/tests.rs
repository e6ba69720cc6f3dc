//! Faults between system calls: nothing is half-written. `tests/it/this_machine.rs` has the rest.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tempfile::TempDir;

use super::pending_sync::{INDIVIDUAL_SYNC_MAX, SyncAction};
use super::*;

/// Fails one step between system calls, or simulates a kill there.
#[derive(Debug)]
pub(super) struct Faults {
    fails_at: usize,
    kills: bool,
    count: AtomicUsize,
    dead: AtomicBool,
}

impl Default for Faults {
    fn default() -> Self {
        Faults {
            fails_at: usize::MAX,
            kills: false,
            count: AtomicUsize::new(0),
            dead: AtomicBool::new(false),
        }
    }
}

impl Faults {
    pub(super) fn step(&self) -> io::Result<()> {
        if self.count.fetch_add(1, Ordering::Relaxed) != self.fails_at {
            return Ok(());
        }
        self.dead.store(self.kills, Ordering::Relaxed);
        Err(io::Error::other("injected"))
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    fn happened(&self) -> bool {
        self.count.load(Ordering::Relaxed) > self.fails_at
    }
}

fn faulty(fails_at: usize, kills: bool) -> LocalTarget {
    LocalTarget {
        faults: Faults { fails_at, kills, ..Faults::default() },
        ..LocalTarget::default()
    }
}

/// A process without file descriptors waits for some; such an operation is retried and never fails
/// for good.
#[test]
fn exhausted_descriptors_are_waited_for() {
    let exhausted = |errno: rustix::io::Errno| failed(TargetVerb::Read, "/a", errno);
    let mut tries = 0;
    let done = retry_on_descriptor_exhaustion(None, || {
        tries += 1;
        if tries < 4 { Err(exhausted(rustix::io::Errno::MFILE)) } else { Ok(tries) }
    });
    assert_eq!(done.unwrap(), 4);
    let stop = CancelToken::never();
    stop.cancel();
    let given_up = retry_on_descriptor_exhaustion(Some(&stop), || {
        Err::<(), _>(exhausted(rustix::io::Errno::NFILE))
    });
    let error = crate::error::HandlerError::from(given_up.unwrap_err());
    assert!(matches!(error, crate::error::HandlerError::Skipped(_)), "{error:?}");
    let other = crate::error::HandlerError::from(exhausted(rustix::io::Errno::IO));
    assert!(matches!(other, crate::error::HandlerError::Target(_)), "{other:?}");
}

struct Scratch(TempDir);

impl Scratch {
    fn new() -> Self {
        Scratch(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn names(&self) -> Vec<String> {
        let target = LocalTarget::default();
        target.list_directory(self.0.path().to_str().unwrap()).unwrap()
    }
}

fn mode(mode: u32) -> Ownership {
    Ownership { mode: Some(mode), ..Ownership::default() }
}

#[test]
fn a_failed_write_leaves_only_the_old_file() {
    let scratch = Scratch::new();
    let path = scratch.path("a");
    let mut steps = 0;
    loop {
        fs::write(&path, "old").unwrap();
        let target = faulty(steps, false);
        let written = target.write_file(&path, b"new", mode(0o640));
        assert_eq!(scratch.names(), ["a"], "step {steps}");
        let found = fs::read_to_string(&path).unwrap();
        if !target.faults.happened() {
            written.unwrap();
            assert_eq!(found, "new");
            break;
        }
        written.unwrap_err();
        assert!(found == "old" || found == "new", "step {steps}: {found}");
        steps += 1;
    }
    assert!(steps >= 6, "only {steps} steps were tried");
}

#[test]
fn the_next_write_removes_leftovers_of_a_killed_one() {
    let scratch = Scratch::new();
    let path = scratch.path("a");
    let mut leftovers = 0;
    for step in 0.. {
        fs::write(&path, "old").unwrap();
        let target = faulty(step, true);
        let _ = target.write_file(&path, b"new", mode(0o640));
        if !target.faults.happened() {
            break;
        }
        let found = fs::read_to_string(&path).unwrap();
        assert!(found == "old" || found == "new", "step {step}: {found}");
        leftovers += scratch.names().len() - 1;
        drop(target);
        LocalTarget::default().write_file(&path, b"newer", mode(0o640)).unwrap();
        assert_eq!(scratch.names(), ["a"], "step {step}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "newer");
    }
    assert!(leftovers > 0, "no kill left anything behind");
}

#[test]
fn a_link_is_redirected_atomically() {
    let scratch = Scratch::new();
    let path = scratch.path("link");
    for kills in [false, true] {
        for step in 0.. {
            let _ = fs::remove_file(&path);
            symlink("/old", &path).unwrap();
            let target = faulty(step, kills);
            let result = target.make_symlink(&path, "/new");
            let found = target.read_link(&path).unwrap().unwrap();
            assert!(found == "/old" || found == "/new", "step {step}: {found}");
            if !target.faults.happened() {
                result.unwrap();
                assert_eq!((&*found, scratch.names()), ("/new", vec!["link".to_owned()]));
                break;
            }
            LocalTarget::default().make_symlink(&path, "/new").unwrap();
            assert_eq!(scratch.names(), ["link"], "step {step}");
        }
    }
}

#[test]
fn a_directory_without_its_attributes_is_not_created() {
    let scratch = Scratch::new();
    let path = scratch.path("d");
    for step in 0.. {
        let target = faulty(step, false);
        let result = target.make_directory(&path, mode(0o750));
        if !target.faults.happened() {
            result.unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o750);
            break;
        }
        result.unwrap_err();
        assert!(scratch.names().is_empty(), "step {step}");
    }
}

#[test]
fn every_durability_writes_the_same() {
    let scratch = Scratch::new();
    for durability in [Durability::Each, Durability::Batched, Durability::None] {
        let target = LocalTarget::new(durability);
        let path = scratch.path("a");
        target.write_file(&path, b"x", mode(0o604)).unwrap();
        target.sync().unwrap();
        assert_eq!(target.read_file(&path, 10).unwrap().unwrap(), b"x");
        assert!(target.remove_file(&path).unwrap());
        assert!(!target.remove_file(&path).unwrap());
    }
}

/// Inodes that the next sync covers one by one, files first; `None` if it covers the whole file
/// system.
fn synced_alone(target: &LocalTarget) -> Option<Vec<u64>> {
    let actions = target.pending_sync.drain();
    actions.iter().for_each(|action| action.execute().unwrap());
    match &actions[..] {
        [] => Some(Vec::new()),
        [SyncAction::Individual(nodes)] => Some(nodes.keys().map(|node| node.inode).collect()),
        [SyncAction::FileSystem(_)] => None,
        other => panic!("everything is on one file system: {other:?}"),
    }
}

#[test]
fn a_few_changes_are_synced_one_by_one() {
    let scratch = Scratch::new();
    let target = LocalTarget::default();
    let inode = |path: &str| fs::symlink_metadata(path).unwrap().ino();
    let top = inode(scratch.0.path().to_str().unwrap());
    let (file, directory, link) = (scratch.path("f"), scratch.path("d"), scratch.path("l"));

    target.write_file(&file, b"x", mode(0o000)).unwrap();
    assert_eq!(synced_alone(&target), Some(vec![inode(&file), top]), "a new file");
    target.write_file(&file, b"y", mode(0o644)).unwrap();
    assert_eq!(synced_alone(&target), Some(vec![inode(&file), top]), "another content");
    target.set_attributes(&file, mode(0o600)).unwrap();
    assert_eq!(synced_alone(&target), Some(vec![inode(&file)]), "other permissions");

    target.make_directory(&directory, mode(0o755)).unwrap();
    let mut both = vec![inode(&directory), top];
    both.sort_unstable();
    assert_eq!(synced_alone(&target), Some(both.clone()), "a new directory");
    target.set_attributes(&directory, mode(0o700)).unwrap();
    assert_eq!(synced_alone(&target), Some(vec![inode(&directory)]), "its permissions");

    target.make_symlink(&link, "/old").unwrap();
    assert_eq!(synced_alone(&target), Some(vec![top]), "a new link");
    target.make_symlink(&link, "/new").unwrap();
    assert_eq!(synced_alone(&target), Some(vec![top]), "a turned link");

    assert!(target.remove_file(&link).unwrap());
    assert_eq!(synced_alone(&target), Some(vec![top]), "a link that went");
    assert!(target.remove_directory(&directory, RemovalMode::OnlyIfEmpty).unwrap());
    assert_eq!(synced_alone(&target), Some(vec![top]), "a directory that went");
    assert!(!target.remove_file(&link).unwrap());
    assert_eq!(synced_alone(&target), Some(vec![]), "nothing was done");
}

#[test]
fn many_changes_are_synced_with_their_file_system() {
    let scratch = Scratch::new();
    let target = LocalTarget::default();
    let write = |count: usize| {
        for number in 0..count {
            target.write_file(&scratch.path(&number.to_string()), b"x", mode(0o644)).unwrap();
        }
    };
    // The directory counts, too.
    write(INDIVIDUAL_SYNC_MAX - 1);
    assert_eq!(synced_alone(&target).map(|nodes| nodes.len()), Some(INDIVIDUAL_SYNC_MAX));
    write(INDIVIDUAL_SYNC_MAX);
    assert_eq!(synced_alone(&target), None);
    write(3 * INDIVIDUAL_SYNC_MAX);
    assert_eq!(synced_alone(&target), None);
    // The count restarts after a sync.
    write(1);
    assert_eq!(synced_alone(&target).map(|nodes| nodes.len()), Some(2));
}

#[test]
fn changes_beside_a_command_are_synced_with_their_file_system() {
    let scratch = Scratch::new();
    let target = LocalTarget::default();
    for command_is_first in [true, false] {
        let run = || target.run(&CommandLine::new(["true"]), &CancelToken::never()).unwrap();
        if command_is_first {
            run();
        }
        target.write_file(&scratch.path("a"), b"x", mode(0o644)).unwrap();
        if !command_is_first {
            run();
        }
        assert_eq!(synced_alone(&target), None);
    }
}

#[test]
fn pending_files_are_not_open_for_writing() {
    // Otherwise a new program could not be executed.
    let scratch = Scratch::new();
    let target = LocalTarget::default();
    target.write_file(&scratch.path("program"), b"x", mode(0o755)).unwrap();
    let actions = target.pending_sync.drain();
    let [SyncAction::Individual(nodes)] = &actions[..] else {
        panic!("one file was written: {actions:?}")
    };
    assert_eq!(nodes.len(), 2);
    for file in nodes.values() {
        let flags = rustix::fs::fcntl_getfl(file).unwrap();
        assert_eq!(flags & rustix::fs::OFlags::ACCMODE, rustix::fs::OFlags::RDONLY);
    }
}
