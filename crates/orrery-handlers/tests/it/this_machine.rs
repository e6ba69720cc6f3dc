//! Files on this machine: nothing half-written, no link followed, errors with hints.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, Instant};

use orrery_handlers::target::{
    Algorithm, CommandLine, ExpectedContent, FileKind, Ownership, RemovalMode, Result, Target,
};
use orrery_handlers::{CancelToken, Cause};
use tempfile::TempDir;

use crate::this_machine;

crate::on_every_machine!(
    links_are_replaced_and_never_followed,
    a_trailing_slash_does_not_follow_a_link,
    a_link_at_the_temporary_name_is_not_followed,
    two_writers_of_one_file_do_not_mix,
    errors_have_hints,
    pipes_neither_block_nor_are_replaced,
    a_replaced_file_keeps_unspecified_attributes,
    long_names_can_be_written,
    large_and_small_contents_are_compared_to_the_last_byte,
    links_of_a_user_are_not_followed_to_foreign_directories,
    trusted_links_are_followed,
    a_tree_is_removed_without_following_its_links,
);

struct Scratch(TempDir);

impl Scratch {
    fn new() -> Self {
        Scratch(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn names(&self) -> Vec<String> {
        this_machine().list_directory(self.0.path().to_str().unwrap()).unwrap()
    }
}

fn mode(mode: u32) -> Ownership {
    Ownership { mode: Some(mode), ..Ownership::default() }
}

fn links_are_replaced_and_never_followed(target: &dyn Target) {
    let scratch = Scratch::new();
    let (path, victim) = (scratch.path("a"), scratch.path("victim"));
    fs::write(&victim, "precious").unwrap();
    fs::set_permissions(&victim, fs::Permissions::from_mode(0o600)).unwrap();
    symlink(&victim, &path).unwrap();

    let compared = target.compare(&path, ExpectedContent::Bytes(b"precious")).unwrap().unwrap();
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

fn a_trailing_slash_does_not_follow_a_link(target: &dyn Target) {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("d")).unwrap();
    symlink(scratch.path("d"), scratch.path("l")).unwrap();
    let kind = |path: String| target.stat(&path).unwrap().unwrap().kind;
    assert_eq!(kind(scratch.path("d") + "/"), FileKind::Directory);
    assert_eq!(kind(scratch.path("l") + "/"), FileKind::Symlink);
    target.write_file(&(scratch.path("f") + "/"), b"x", mode(0o644)).unwrap();
    assert!(
        target
            .compare(&(scratch.path("f") + "/"), ExpectedContent::Bytes(b"x"))
            .unwrap()
            .unwrap()
            .same
    );
}

fn a_link_at_the_temporary_name_is_not_followed(target: &dyn Target) {
    let scratch = Scratch::new();
    let victim = scratch.path("victim");
    fs::write(&victim, "precious").unwrap();
    symlink(&victim, scratch.path(".a.orrery~")).unwrap();
    target.write_file(&scratch.path("a"), b"new", mode(0o644)).unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    assert_eq!(scratch.names(), ["a", "victim"]);
}

fn two_writers_of_one_file_do_not_mix(target: &dyn Target) {
    let scratch = Scratch::new();
    let path = scratch.path("a");
    let contents: Vec<String> =
        (b'a'..b'e').map(|c| char::from(c).to_string().repeat(50_000)).collect();
    std::thread::scope(|scope| {
        for content in &contents {
            let path = &path;
            scope.spawn(move || {
                let begin = Instant::now();
                for round in 0..50 {
                    // Enough for targets that start a process for each write.
                    if round >= 5 && begin.elapsed() > Duration::from_secs(1) {
                        break;
                    }
                    target.write_file(path, content.as_bytes(), mode(0o600)).unwrap();
                }
            });
        }
    });
    assert!(contents.contains(&fs::read_to_string(&path).unwrap()));
    assert_eq!(scratch.names(), ["a"]);
}

fn errors_have_hints(target: &dyn Target) {
    let scratch = Scratch::new();
    let missing = target.write_file(&scratch.path("no/a"), b"", mode(0o644)).unwrap_err();
    assert!(matches!(missing.cause, Cause::ParentMissing));
    assert!(missing.hint().unwrap().contains("std::Directory"), "{missing}");

    fs::create_dir(scratch.path("d")).unwrap();
    let directory = target.write_file(&scratch.path("d"), b"", mode(0o644)).unwrap_err();
    assert!(matches!(directory.cause, Cause::IsADirectory), "{directory}");

    fs::write(scratch.path("d/x"), "").unwrap();
    let full = target.remove_directory(&scratch.path("d"), RemovalMode::OnlyIfEmpty).unwrap_err();
    assert!(matches!(full.cause, Cause::NotEmpty), "{full}");
    assert!(target.remove_directory(&scratch.path("d"), RemovalMode::WithContent).unwrap());

    fs::write(scratch.path("f"), "").unwrap();
    let below = target.write_file(&scratch.path("f/a"), b"", mode(0o644)).unwrap_err();
    assert!(matches!(below.cause, Cause::NotADirectory), "{below}");

    for path in ["relative", "/a/../b", "/a/.", "/a\0b", "/", "//", ""] {
        let error = target.write_file(path, b"", mode(0o644)).unwrap_err();
        assert!(matches!(error.cause, Cause::InvalidPath), "{path:?}");
    }
}

fn pipes_neither_block_nor_are_replaced(target: &dyn Target) {
    let scratch = Scratch::new();
    let path = scratch.path("pipe");
    let made = target.run(&CommandLine::new(["mkfifo", &path]), &CancelToken::never()).unwrap();
    assert!(made.success());
    let compared = target.compare(&path, ExpectedContent::Bytes(b"")).unwrap().unwrap();
    assert_eq!((compared.stat.kind, compared.same), (FileKind::Other, false));
    let error = target.write_file(&path, b"", mode(0o644)).unwrap_err();
    assert!(matches!(error.cause, Cause::NotARegularFile));
}

fn a_replaced_file_keeps_unspecified_attributes(target: &dyn Target) {
    let scratch = Scratch::new();
    let path = scratch.path("a");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o751)).unwrap();
    target.write_file(&path, b"new", Ownership::default()).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o751);
}

fn long_names_can_be_written(target: &dyn Target) {
    let scratch = Scratch::new();
    let name = "n".repeat(255);
    target.write_file(&scratch.path(&name), b"x", mode(0o644)).unwrap();
    assert_eq!(scratch.names(), [name]);
}

fn large_and_small_contents_are_compared_to_the_last_byte(target: &dyn Target) {
    let scratch = Scratch::new();
    let path = scratch.path("a");
    for size in [0, 1, 64 * 1024, 64 * 1024 + 1, 700_000] {
        let content = vec![b'x'; size];
        fs::write(&path, &content).unwrap();
        let same = |content: &[u8]| {
            target.compare(&path, ExpectedContent::Bytes(content)).unwrap().unwrap().same
        };
        assert!(same(&content), "{size}");
        let digest = Algorithm::Sha1.digest(&content);
        let compared = target.compare(&path, ExpectedContent::Digest(&digest)).unwrap().unwrap();
        assert!(compared.same, "{size}");
        if let Some((_, head)) = content.split_last() {
            assert!(!same(head));
            assert!(!same(&[head, b"y"].concat()));
        }
    }
}

const STRANGER: u32 = 65_534;

/// A home directory of an ordinary user, and a root directory as the attacker's goal. `None` if not
/// run as root.
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

/// A link of `STRANGER`.
fn foreign_link(leads_to: &str, at: &str) {
    symlink(leads_to, at).unwrap();
    std::os::unix::fs::lchown(at, Some(STRANGER), Some(STRANGER)).unwrap();
}

/// A link of another user does not redirect any operation of root.
fn links_of_a_user_are_not_followed_to_foreign_directories(target: &dyn Target) {
    let Some((_base, home, other)) = home() else { return };
    let theirs = Ownership { mode: Some(0o755), uid: Some(STRANGER), gid: Some(STRANGER) };
    fs::write(format!("{other}/root.sh"), "root's own").unwrap();
    fs::create_dir(format!("{other}/tree")).unwrap();
    fs::write(format!("{other}/tree/kept"), "").unwrap();
    symlink("x", format!("{other}/link")).unwrap();
    foreign_link(&other, &format!("{home}/.config"));
    // Neither directly nor through another link.
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
            ("tree", target.remove_directory(&path("tree"), RemovalMode::WithContent).map(drop)),
            ("read", target.read_file(&path("root.sh"), 100).map(drop)),
            ("digest", target.digest(&path("root.sh"), Algorithm::Sha256).map(drop)),
            ("compare", target.compare(&path("root.sh"), ExpectedContent::Bytes(b"x")).map(drop)),
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

/// Links of root lead anywhere, and those of a user to that user's own directories.
fn trusted_links_are_followed(target: &dyn Target) {
    let Some((_base, home, other)) = home() else { return };
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

/// The tree is removed, the destinations of its links are not.
fn a_tree_is_removed_without_following_its_links(target: &dyn Target) {
    let base = TempDir::new().unwrap();
    let path = |name: &str| base.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir_all(path("tree/a/b/c")).unwrap();
    fs::create_dir(path("other")).unwrap();
    for name in ["tree/a/file", "tree/a/b/c/file", "other/kept"] {
        fs::write(path(name), "").unwrap();
    }
    symlink(path("other"), path("tree/a/b/link")).unwrap();
    assert!(target.remove_directory(&path("tree"), RemovalMode::WithContent).unwrap());
    assert!(!fs::exists(path("tree")).unwrap() && fs::exists(path("other/kept")).unwrap());
    assert!(!target.remove_directory(&path("tree"), RemovalMode::WithContent).unwrap());
}
