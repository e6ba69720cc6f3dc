//! What only this machine's file system can show: nothing half-written, no link followed.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tempfile::TempDir;

use super::written::{Duty, FEW};
use super::*;
use crate::target::FileKind;

/// Lets one step between system calls fail, or pretends that the process was killed there.
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

/// A process without file descriptors waits for some, and what fails for want of them is tried again and never a failure.
#[test]
fn descriptors_that_are_short_are_waited_for() {
    let exhausted = |errno: rustix::io::Errno| failed(Operation::Read, "/a", errno);
    let mut tries = 0;
    let done = patiently(None, || {
        tries += 1;
        if tries < 4 { Err(exhausted(rustix::io::Errno::MFILE)) } else { Ok(tries) }
    });
    assert_eq!(done.unwrap(), 4);
    let stop = Stop::never();
    stop.cancel();
    let given_up = patiently(Some(&stop), || Err::<(), _>(exhausted(rustix::io::Errno::NFILE)));
    let told = crate::error::HandlerError::from(given_up.unwrap_err());
    assert!(matches!(told, crate::error::HandlerError::Skipped(_)), "{told:?}");
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
fn a_failed_write_leaves_the_old_file_and_nothing_else() {
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
fn what_a_killed_write_leaves_is_gone_after_the_next_one() {
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
fn a_turned_link_is_turned_at_once() {
    let scratch = Scratch::new();
    let path = scratch.path("link");
    for kills in [false, true] {
        for step in 0.. {
            let _ = fs::remove_file(&path);
            symlink("/old", &path).unwrap();
            let target = faulty(step, kills);
            let made = target.make_symlink(&path, "/new");
            let found = target.read_link(&path).unwrap().unwrap();
            assert!(found == "/old" || found == "/new", "step {step}: {found}");
            if !target.faults.happened() {
                made.unwrap();
                assert_eq!((&*found, scratch.names()), ("/new", vec!["link".to_owned()]));
                break;
            }
            LocalTarget::default().make_symlink(&path, "/new").unwrap();
            assert_eq!(scratch.names(), ["link"], "step {step}");
        }
    }
}

#[test]
fn a_directory_that_cannot_get_its_attributes_is_not_made() {
    let scratch = Scratch::new();
    let path = scratch.path("d");
    for step in 0.. {
        let target = faulty(step, false);
        let made = target.make_directory(&path, mode(0o750));
        if !target.faults.happened() {
            made.unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o750);
            break;
        }
        made.unwrap_err();
        assert!(scratch.names().is_empty(), "step {step}");
    }
}

#[test]
fn links_are_replaced_and_never_followed() {
    let scratch = Scratch::new();
    let (path, victim) = (scratch.path("a"), scratch.path("victim"));
    fs::write(&victim, "precious").unwrap();
    fs::set_permissions(&victim, fs::Permissions::from_mode(0o600)).unwrap();
    symlink(&victim, &path).unwrap();
    let target = LocalTarget::default();

    let compared = target.compare(&path, Expected::Bytes(b"precious")).unwrap().unwrap();
    assert_eq!((compared.stat.kind, compared.same), (FileKind::Symlink, false));
    assert!(matches!(target.read_file(&path, 100).unwrap_err().cause, Cause::NotARegularFile));
    assert!(matches!(
        target.set_attributes(&path, mode(0o777)).unwrap_err().cause,
        Cause::NotARegularFile
    ));
    target.write_file(&path, b"new", mode(0o644)).unwrap();

    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    assert_eq!(fs::metadata(&victim).unwrap().mode() & 0o7777, 0o600);
    assert!(fs::symlink_metadata(&path).unwrap().is_file());
    assert_eq!(fs::read_to_string(&path).unwrap(), "new");
}

#[test]
fn a_slash_at_the_end_does_not_make_a_link_be_followed() {
    let scratch = Scratch::new();
    let target = LocalTarget::default();
    fs::create_dir(scratch.path("d")).unwrap();
    symlink(scratch.path("d"), scratch.path("l")).unwrap();
    let kind = |path: String| target.stat(&path).unwrap().unwrap().kind;
    assert_eq!(kind(scratch.path("d") + "/"), FileKind::Directory);
    assert_eq!(kind(scratch.path("l") + "/"), FileKind::Symlink);
    target.write_file(&(scratch.path("f") + "/"), b"x", mode(0o644)).unwrap();
    assert!(
        target.compare(&(scratch.path("f") + "/"), Expected::Bytes(b"x")).unwrap().unwrap().same
    );
}

#[test]
fn a_link_where_the_new_file_is_made_is_not_followed() {
    let scratch = Scratch::new();
    let victim = scratch.path("victim");
    fs::write(&victim, "precious").unwrap();
    symlink(&victim, scratch.path(".a.orrery~")).unwrap();
    LocalTarget::default().write_file(&scratch.path("a"), b"new", mode(0o644)).unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    assert_eq!(scratch.names(), ["a", "victim"]);
}

#[test]
fn two_writers_of_one_file_do_not_mix() {
    let scratch = Scratch::new();
    let path = scratch.path("a");
    let contents: Vec<String> =
        (b'a'..b'e').map(|c| char::from(c).to_string().repeat(50_000)).collect();
    std::thread::scope(|scope| {
        for content in &contents {
            let path = &path;
            scope.spawn(move || {
                let target = LocalTarget::default();
                for _ in 0..50 {
                    target.write_file(path, content.as_bytes(), mode(0o600)).unwrap();
                }
            });
        }
    });
    assert!(contents.contains(&fs::read_to_string(&path).unwrap()));
    assert_eq!(scratch.names(), ["a"]);
}

#[test]
fn errors_say_what_to_do() {
    let scratch = Scratch::new();
    let target = LocalTarget::default();
    let missing = target.write_file(&scratch.path("no/a"), b"", mode(0o644)).unwrap_err();
    assert!(matches!(missing.cause, Cause::ParentMissing));
    assert!(missing.hint().unwrap().contains("std::Directory"), "{missing}");

    fs::create_dir(scratch.path("d")).unwrap();
    let directory = target.write_file(&scratch.path("d"), b"", mode(0o644)).unwrap_err();
    assert!(matches!(directory.cause, Cause::IsADirectory), "{directory}");

    fs::write(scratch.path("d/x"), "").unwrap();
    let full = target.remove_directory(&scratch.path("d"), Tree::OnlyIfEmpty).unwrap_err();
    assert!(matches!(full.cause, Cause::NotEmpty), "{full}");
    assert!(target.remove_directory(&scratch.path("d"), Tree::WithContent).unwrap());

    fs::write(scratch.path("f"), "").unwrap();
    let below = target.write_file(&scratch.path("f/a"), b"", mode(0o644)).unwrap_err();
    assert!(matches!(below.cause, Cause::NotADirectory), "{below}");

    for path in ["relative", "/a/../b", "/a/.", "/a\0b", "/", "//", ""] {
        let error = target.write_file(path, b"", mode(0o644)).unwrap_err();
        assert!(matches!(error.cause, Cause::InvalidPath), "{path:?}");
    }
}

#[test]
fn pipes_are_neither_waited_for_nor_replaced() {
    let scratch = Scratch::new();
    let path = scratch.path("pipe");
    let target = LocalTarget::default();
    let made = target.run(&CommandLine::new(["mkfifo", &path]), &Stop::never()).unwrap();
    assert!(made.success());
    let compared = target.compare(&path, Expected::Bytes(b"")).unwrap().unwrap();
    assert_eq!((compared.stat.kind, compared.same), (FileKind::Other, false));
    let error = target.write_file(&path, b"", mode(0o644)).unwrap_err();
    assert!(matches!(error.cause, Cause::NotARegularFile));
}

#[test]
fn a_replaced_file_keeps_what_nobody_asked_to_change() {
    let scratch = Scratch::new();
    let path = scratch.path("a");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o751)).unwrap();
    LocalTarget::default().write_file(&path, b"new", Ownership::default()).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o751);
}

#[test]
fn every_policy_of_durability_writes_the_same() {
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

#[test]
fn long_names_can_be_written() {
    let scratch = Scratch::new();
    let name = "n".repeat(255);
    LocalTarget::default().write_file(&scratch.path(&name), b"x", mode(0o644)).unwrap();
    assert_eq!(scratch.names(), [name]);
}

#[test]
fn large_and_small_contents_are_compared_to_the_last_byte() {
    let scratch = Scratch::new();
    let path = scratch.path("a");
    let target = LocalTarget::default();
    for size in [0, 1, 64 * 1024, 64 * 1024 + 1, 700_000] {
        let content = vec![b'x'; size];
        fs::write(&path, &content).unwrap();
        let same =
            |content: &[u8]| target.compare(&path, Expected::Bytes(content)).unwrap().unwrap().same;
        assert!(same(&content), "{size}");
        let digest = Algorithm::Sha1.digest(&content);
        let compared = target.compare(&path, Expected::Digest(&digest)).unwrap().unwrap();
        assert!(compared.same, "{size}");
        if let Some((_, head)) = content.split_last() {
            assert!(!same(head));
            assert!(!same(&[head, b"y"].concat()));
        }
    }
}

/// The inodes that the next sync would sync one by one, files before directories; `None` if it would sync
/// the whole file system.
fn synced_alone(target: &LocalTarget) -> Option<Vec<u64>> {
    let duties = target.written.take();
    duties.iter().for_each(|duty| duty.carry_out().unwrap());
    match &duties[..] {
        [] => Some(Vec::new()),
        [Duty::Few(nodes)] => Some(nodes.keys().map(|node| node.inode).collect()),
        [Duty::FileSystem(_)] => None,
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
    assert!(target.remove_directory(&directory, Tree::OnlyIfEmpty).unwrap());
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
    write(FEW - 1);
    assert_eq!(synced_alone(&target).map(|nodes| nodes.len()), Some(FEW));
    write(FEW);
    assert_eq!(synced_alone(&target), None);
    write(3 * FEW);
    assert_eq!(synced_alone(&target), None);
    // After a sync it starts over.
    write(1);
    assert_eq!(synced_alone(&target).map(|nodes| nodes.len()), Some(2));
}

#[test]
fn changes_beside_a_command_are_synced_with_their_file_system() {
    let scratch = Scratch::new();
    let target = LocalTarget::default();
    for command_is_first in [true, false] {
        let run = || target.run(&CommandLine::new(["true"]), &Stop::never()).unwrap();
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
fn what_waits_for_a_sync_is_not_open_for_writing() {
    // Otherwise a program that was just put in place could not be run.
    let scratch = Scratch::new();
    let target = LocalTarget::default();
    target.write_file(&scratch.path("program"), b"x", mode(0o755)).unwrap();
    let duties = target.written.take();
    let [Duty::Few(nodes)] = &duties[..] else { panic!("one file was written: {duties:?}") };
    assert_eq!(nodes.len(), 2);
    for file in nodes.values() {
        let flags = rustix::fs::fcntl_getfl(file).unwrap();
        assert_eq!(flags & rustix::fs::OFlags::ACCMODE, rustix::fs::OFlags::RDONLY);
    }
}

const STRANGER: u32 = 65_534;

/// A home directory of an ordinary user, and a directory of root that the user would like to write to. `None` if this is not run by root.
fn home() -> Option<(TempDir, String, String)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let base = TempDir::new().unwrap();
    fs::set_permissions(base.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (home, other) = (base.path().join("home"), base.path().join("profile.d"));
    for path in [&home, &other, &home.join("real")] {
        fs::create_dir(path).unwrap();
    }
    for own in [&home, &home.join("real")] {
        std::os::unix::fs::chown(own, Some(STRANGER), Some(STRANGER)).unwrap();
    }
    let text = |path: std::path::PathBuf| path.to_str().unwrap().to_owned();
    Some((base, text(home), text(other)))
}

/// A link that `STRANGER` made.
fn foreign_link(leads_to: &str, at: &str) {
    symlink(leads_to, at).unwrap();
    std::os::unix::fs::lchown(at, Some(STRANGER), Some(STRANGER)).unwrap();
}

/// Whatever root is to do below a directory of another user, a link of that user does not choose where.
#[test]
fn links_that_a_user_puts_into_a_path_are_not_followed_elsewhere() {
    let Some((_base, home, other)) = home() else { return };
    let target = LocalTarget::default();
    let theirs = Ownership { mode: Some(0o755), uid: Some(STRANGER), gid: Some(STRANGER) };
    fs::write(format!("{other}/root.sh"), "root's own").unwrap();
    fs::create_dir(format!("{other}/tree")).unwrap();
    fs::write(format!("{other}/tree/kept"), "").unwrap();
    symlink("x", format!("{other}/link")).unwrap();
    foreign_link(&other, &format!("{home}/.config"));
    // Not directly, nor in a roundabout way.
    foreign_link(".config", &format!("{home}/second"));
    foreign_link("../profile.d", &format!("{home}/third"));
    for way in [".config", "second", "third"] {
        let path = |name: &str| format!("{home}/{way}/{name}");
        let results: Vec<(&str, Result<()>)> = vec![
            ("write", target.write_file(&path("app.sh"), b"echo", theirs)),
            ("replace", target.write_file(&path("root.sh"), b"echo", theirs)),
            ("own", target.set_attributes(&path("root.sh"), theirs)),
            ("directory", target.make_directory(&path("new"), theirs)),
            ("link", target.make_symlink(&path("new"), "/etc")),
            ("turn", target.make_symlink(&path("link"), "/etc")),
            ("remove", target.remove_file(&path("root.sh")).map(drop)),
            ("tree", target.remove_directory(&path("tree"), Tree::WithContent).map(drop)),
            ("read", target.read_file(&path("root.sh"), 100).map(drop)),
            ("digest", target.digest(&path("root.sh"), Algorithm::Sha256).map(drop)),
            ("compare", target.compare(&path("root.sh"), Expected::Bytes(b"x")).map(drop)),
            ("read link", target.read_link(&path("link")).map(drop)),
            ("list", target.list_directory(&path("tree")).map(drop)),
            ("stat", target.stat(&path("root.sh")).map(drop)),
        ];
        for (what, done) in results {
            let error = done.expect_err(what);
            assert!(
                matches!(&error.cause, Cause::ForeignLink { uid: STRANGER, .. }),
                "{way}, {what}: {error}"
            );
        }
    }
    assert!(target.list_directory(&format!("{home}/.config")).is_err(), "nor at the end");
    let mut left: Vec<_> =
        fs::read_dir(&other).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["link", "root.sh", "tree"]);
    assert_eq!(fs::read_to_string(format!("{other}/root.sh")).unwrap(), "root's own");
    assert_eq!(fs::metadata(format!("{other}/root.sh")).unwrap().uid(), 0);
    assert!(fs::exists(format!("{other}/tree/kept")).unwrap());
}

/// Links of root lead anywhere, and those of a user to what is that user's own.
#[test]
fn links_that_choose_nothing_are_followed() {
    let Some((_base, home, other)) = home() else { return };
    let target = LocalTarget::default();
    foreign_link("real", &format!("{home}/current"));
    target.write_file(&format!("{home}/current/a"), b"a", Ownership::default()).unwrap();
    assert_eq!(fs::read(format!("{home}/real/a")).unwrap(), b"a");
    symlink(&home, format!("{other}/root-made")).unwrap();
    target.write_file(&format!("{other}/root-made/real/b"), b"b", Ownership::default()).unwrap();
    assert_eq!(target.read_file(&format!("{other}/root-made/real/b"), 9).unwrap().unwrap(), b"b");
    assert_eq!(fs::read(format!("{home}/real/b")).unwrap(), b"b");
    foreign_link("around", &format!("{home}/around"));
    let error = target.read_file(&format!("{home}/around/x"), 9).unwrap_err();
    assert!(matches!(error.cause, Cause::TooManyLinks), "{error}");
}

/// What is in a tree is removed, and what its links lead to is not.
#[test]
fn a_tree_is_removed_without_following_its_links() {
    let base = TempDir::new().unwrap();
    let path = |name: &str| base.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir_all(path("tree/a/b/c")).unwrap();
    fs::create_dir(path("other")).unwrap();
    for name in ["tree/a/file", "tree/a/b/c/file", "other/kept"] {
        fs::write(path(name), "").unwrap();
    }
    symlink(path("other"), path("tree/a/b/link")).unwrap();
    let target = LocalTarget::default();
    assert!(target.remove_directory(&path("tree"), Tree::WithContent).unwrap());
    assert!(!fs::exists(path("tree")).unwrap() && fs::exists(path("other/kept")).unwrap());
    assert!(!target.remove_directory(&path("tree"), Tree::WithContent).unwrap());
}
