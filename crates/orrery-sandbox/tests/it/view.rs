//! View and identity of sandboxed programs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use orrery_sandbox::{Method, SETUP_FAILED, Sandbox, SandboxPolicy};

use crate::support::{User, launcher, uid, users};

#[test]
fn programs_have_their_arguments_streams_variables_and_directory() {
    for user in users() {
        let mut policy = user.policy();
        policy.set("GREETING", "hello");
        let mut command =
            user.command(&policy, "read line; echo $GREETING $line $1 $(pwd); echo no >&2; exit 3");
        command.args(["sh", "there"]).current_dir("/usr").env("OUTSIDE", "x");
        command.stdin(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"you\n").unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "hello you there /usr\n", "{user:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "no\n", "{user:?}");
        assert_eq!(output.status.code(), Some(3), "{user:?}");
        let all = user.print(&policy, "env");
        assert!(!all.contains("ORRERY") && !all.contains("OUTSIDE"), "{user:?}: {all}");
    }
}

#[test]
fn a_signal_that_ends_a_program_is_reported() {
    for user in users() {
        assert_eq!(user.run(&user.policy(), "kill -SEGV $$").code, Some(128 + 11), "{user:?}");
        assert_eq!(user.run(&user.policy(), "exec /nowhere").code, Some(127), "{user:?}");
    }
}

/// A directory with private data, and a visible part.
fn data() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let open = |path: &Path| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    open(dir.path());
    for name in [
        "data",
        "data/own",
        "data/own/project",
        "data/own/project/.git",
        "data/other",
        "data/own/out",
    ] {
        std::fs::create_dir(dir.path().join(name)).unwrap();
        open(&dir.path().join(name));
    }
    for name in [
        "data/secret.key",
        "data/other/model",
        "data/own/project/model",
        "data/own/project/.git/config",
    ] {
        std::fs::write(dir.path().join(name), name).unwrap();
    }
    dir
}

#[test]
fn hidden_paths_are_empty_except_visible_parts() {
    for user in users() {
        let dir = data();
        let at = |name: &str| dir.path().join(name);
        ["data/own/out", "data/own/project", "data/own/project/.git"]
            .iter()
            .for_each(|name| user.own(&at(name)));
        let mut policy = user.policy();
        policy.hidden = vec![at("data")];
        policy.readable = vec![at("data/own/project/.git")];
        policy.writable = vec![at("data/own/project"), at("data/own/out")];
        policy.set("DATA", at("data"));
        let seen = user.print(&policy, "cd $DATA; find . | sort; cat own/project/model");
        let wanted = ".\n./own\n./own/out\n./own/project\n./own/project/.git\n./own/project/.git/config\n./own/project/model\ndata/own/project/model";
        assert_eq!(seen, wanted, "{user:?}");
        for script in [
            "cat $DATA/secret.key",
            "cat $DATA/../data/other/model",
            "echo x > $DATA/new",
            "mkdir $DATA/own/new",
            "echo x > $DATA/own/project/.git/hooks",
            "rm -r $DATA/own/project/.git",
            "mv $DATA/own/project/.git $DATA/own/project/git",
            "umount $DATA",
            "ln -s / $DATA/own/x",
        ] {
            let ended = user.run(&policy, script);
            assert_ne!(ended.code, Some(0), "{user:?}: {script}: {ended:?}");
            assert_ne!(ended.code, Some(i32::from(SETUP_FAILED)), "{user:?}: {script}: {ended:?}");
        }
        user.print(&policy, "echo x > $DATA/own/out/result; echo y > $DATA/own/project/new");
        assert_eq!(std::fs::read_to_string(at("data/own/out/result")).unwrap(), "x\n");
        assert!(at("data/own/project/.git/config").exists() && !at("data/new").exists());
    }
}

#[test]
fn a_hidden_directory_cannot_be_entered() {
    for user in users() {
        let dir = data();
        let mut policy = user.policy();
        policy.hidden = vec![dir.path().join("data")];
        let mut command = user.command(&policy, "cat secret.key");
        let output = command.current_dir(dir.path().join("data")).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success() && !text.contains("secret"), "{user:?}: {output:?}");
    }
}

#[test]
fn nothing_of_the_machine_can_be_written() {
    for user in users() {
        let ended = user.run(
            &user.policy(),
            "for d in / /etc /usr /var /dev /run /root /home /sys /proc/sys/kernel; do touch $d/new 2>/dev/null && echo $d; done; true",
        );
        assert_eq!((ended.code, &*ended.out), (Some(0), ""), "{user:?}");
        let homes = user.print(&user.policy(), "ls -A /root /home 2>/dev/null; ls -A /dev");
        for name in [".bashrc", "vda", "sda", "kmsg", "mem"] {
            assert!(!homes.lines().any(|line| line == name), "{user:?}: {homes}");
        }
        user.print(
            &user.policy(),
            "echo x > /tmp/a && echo x > /var/tmp/b && echo x > /dev/shm/c && echo x > /dev/null",
        );
        assert!(!Path::new("/var/tmp/b").exists() && !Path::new("/dev/shm/c").exists());
    }
}

#[test]
fn other_processes_are_not_seen() {
    let own = std::process::id();
    for user in users() {
        let seen = user.print(
            &user.policy(),
            "cd /proc; ls -d [0-9]* | wc -l; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'",
        );
        let mut lines = seen.lines();
        let count: u32 = lines.next().unwrap().trim().parse().unwrap();
        assert!(count < 8, "{user:?}: {seen}");
        // The launcher and its parent are outside, and init, which has the policy, is not
        // inspectable.
        let told =
            |line: &str| line.starts_with("ORRERY") && !matches!(user, User::WithBubblewrap(_));
        assert!(lines.all(|line| !told(line) && !line.starts_with("CARGO")), "{user:?}: {seen}");
        assert_ne!(user.run(&user.policy(), &format!("kill -0 {own}")).code, Some(0), "{user:?}");
        for script in [
            "cat /proc/1/environ",
            "ls /proc/1/root/",
            "ls /proc/1/fd/",
            "kill -KILL 1; sleep 0.2; false",
        ] {
            let ended = user.run(&user.policy(), script);
            // Bubblewrap's own process knows no more than the program.
            let harmless = matches!(user, User::WithBubblewrap(_)) && script.contains("/proc/1");
            assert!(ended.code != Some(0) || harmless, "{user:?}: {script}: {ended:?}");
        }
    }
}

#[test]
fn programs_have_no_privileges() {
    for user in users() {
        let status = user.print(&user.policy(), "cat /proc/self/status; id -G");
        let value = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().next().unwrap().to_owned()
        };
        for name in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
            assert_eq!(value(name), "0000000000000000", "{user:?}: {name}");
        }
        assert_eq!(value("NoNewPrivs:"), "1", "{user:?}");
        if user == User::Root {
            assert_eq!(value("CapBnd:"), "0000000000000000", "{user:?}");
            assert_eq!((value("Uid:"), value("Gid:")), (uid().to_string(), uid().to_string()));
            assert_eq!(status.lines().last(), Some(&*uid().to_string()));
        }
        // A new namespace uncovers nothing.
        let ended = user.run(&user.policy(), "unshare --user --mount --map-root-user sh -c 'umount /root || umount -l /root; ls -A /root' 2>/dev/null");
        assert_eq!(ended.out, "", "{user:?}: {ended:?}");
    }
}

#[test]
fn descriptors_are_not_inherited() {
    for user in users() {
        let command = user.command(&user.policy(), "ls /proc/self/fd");
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg("exec 7</etc/passwd 8</; exec \"$@\"").arg("sh");
        shell.arg(command.get_program()).args(command.get_args()).env_clear();
        shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = shell.current_dir("/").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).replace('\n', " ");
        // The last one is the listed directory.
        assert_eq!(text, "0 1 2 3 ", "{user:?}: {output:?}");
    }
}

#[test]
fn working_methods_are_detected_and_others_explained() {
    let sandbox = Sandbox::detect(launcher()).unwrap();
    assert_eq!(sandbox.method(), &Method::Namespaces);
    let error = Sandbox::detect("/bin/false".into()).unwrap_err();
    assert!(error.to_string().contains("install bubblewrap"), "{error}");
    let error = Sandbox::detect("/nowhere/at/all".into()).unwrap_err();
    assert!(error.reason.contains("/nowhere/at/all"), "{error}");
    // Without a policy the launcher does nothing.
    let output = Command::new(launcher())
        .args(["__sandbox", "/bin/echo", "hello"])
        .env_clear()
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(i32::from(SETUP_FAILED)));
    assert!(output.stdout.is_empty());
}

/// A program that manages the machine writes where its user may, including the machine's temporary
/// directories; hidden paths stay hidden.
#[test]
fn a_program_that_manages_the_machine_writes_where_its_user_may() {
    for user in users().into_iter().filter(|user| *user == User::Root) {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let (open, closed, hidden) =
            (dir.path().join("open"), dir.path().join("closed"), dir.path().join("hidden"));
        for path in [&open, &closed, &hidden] {
            fs::create_dir(path).unwrap();
        }
        for path in [&open, &hidden] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        }
        fs::write(hidden.join("key"), "secret").unwrap();
        let policy = SandboxPolicy {
            hidden: vec![hidden.clone()],
            shared: vec!["/tmp".into(), "/var/tmp".into()],
            manages_machine: true,
            ..user.policy()
        };
        let path = dir.path().display();
        let script = format!(
            "cd {path}; touch open/a closed/a hidden/a /usr/a /etc/a; cat hidden/key; ls {path}"
        );
        let output = user.command(&policy, &script).output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout).replace('\n', " ");
        assert_eq!(told, "closed hidden open ", "{output:?}");
        assert!(open.join("a").exists(), "{output:?}");
        let written = [closed.join("a"), hidden.join("a"), "/usr/a".into(), "/etc/a".into()];
        assert!(!written.iter().any(|path| path.exists()), "{output:?}");
    }
}

/// Covered paths are reported, so that they are not mistaken for the machine's.
#[test]
fn covered_paths_are_reported() {
    let covers = |policy: &SandboxPolicy, path: &str| {
        policy.covered().iter().any(|one| one == Path::new(path))
    };
    let mut own_user = SandboxPolicy { uid: Some(uid()), ..SandboxPolicy::default() };
    assert!(covers(&own_user, "/tmp") && covers(&own_user, "/run"));
    own_user.manage_machine();
    assert!(own_user.manages_machine && covers(&own_user, "/run"));
    assert!(!covers(&own_user, "/tmp") && !covers(&own_user, "/var/tmp"), "they are shared");
    let mut same_user = SandboxPolicy::default();
    same_user.manage_machine();
    assert!(!same_user.manages_machine, "it could write what belongs to its maker");
    assert!(covers(&same_user, "/tmp") && covers(&same_user, "/var/tmp"));
}
