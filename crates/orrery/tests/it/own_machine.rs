//! The server's own machine: what a tenant can do to it, and through it to the server and other
//! tenants.
//!
//! `mallory` develops one environment and deploys everything that a developer can: commands, files,
//! links, references. Results are written to a world-writable directory. The same attack first runs
//! with the server's rights, to prove that it works.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::server_kills::{Server, World};

const PATIENCE: Duration = Duration::from_secs(90);
const PASSWORD: &str = "correct horse battery staple 1";
const MALLORY: &str = "mallory's own password 1";

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, run: fn() -> Result<()>| {
        Trial::test(format!("own_machine/{name}"), move || {
            Ok(run().map_err(|error| format!("{error:#}"))?)
        })
    };
    vec![
        trial(
            "a_developer_reaches_neither_the_server_nor_others",
            a_developer_reaches_neither_the_server_nor_others,
        ),
        trial(
            "a_server_of_administrators_acts_with_its_own_rights",
            a_server_of_administrators_acts_with_its_own_rights,
        ),
        trial(
            "the_first_developer_changes_the_rights_at_once",
            the_first_developer_changes_the_rights_at_once,
        ),
        trial("the_own_machine_can_be_forbidden", the_own_machine_can_be_forbidden),
        trial(
            "what_a_sandbox_covers_is_not_taken_for_the_machine",
            what_a_sandbox_covers_is_not_taken_for_the_machine,
        ),
        trial(
            "references_never_reach_what_is_the_servers_own",
            references_never_reach_what_is_the_servers_own,
        ),
    ]
}

fn until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    while !holds()? {
        ensure!(begun.elapsed() < PATIENCE, "this never came: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn run(command: &str) -> Value {
    json!({
        "id": format!("exec::Run[localhost,command={command}]"),
        "attributes": {
            "command": command, "creates": "", "cwd": "", "environment": {}, "onlyif": "", "path": "",
            "reload": "", "reload_only": false, "returns": [0], "timeout": 60, "unless": "", "skip_on_fail": false,
            "send_event": false, "receive_events": true,
        },
    })
}

fn file(path: &Path, content: &str) -> Value {
    json!({
        "id": format!("std::File[localhost,path={}]", path.display()),
        "attributes": {
            "path": path, "content": content, "mode": 644, "owner": null, "group": null, "purged": false,
            "prefix_content": [], "suffix_content": [], "content_seperator": "\n",
            "send_event": false, "receive_events": true,
        },
    })
}

/// A machine with a server.
struct Site {
    world: World,
    /// World-writable directory.
    loot: PathBuf,
}

impl Site {
    fn new() -> Result<Self> {
        let world = World::new(false)?;
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(world.path(""), open)?;
        let loot = world.path("loot");
        fs::create_dir(&loot)?;
        fs::set_permissions(&loot, fs::Permissions::from_mode(0o777))?;
        Ok(Site { world, loot })
    }

    fn found(&self, name: &str) -> String {
        fs::read(self.loot.join(name))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    fn environment(&self, server: &Server, name: &str) -> Result<String> {
        let world = &self.world;
        let project = world.create(server, "/api/v1/projects", &json!({"name": name}))?;
        let body = json!({"project": project["id"], "name": name});
        let made = world.create(server, "/api/v1/environments", &body)?;
        Ok(format!("/api/v1/environments/{}", made["id"].as_str().context("no id")?))
    }

    /// Deploys, and waits until everything has run.
    fn deploy(&self, server: &Server, at: &str, resources: &[Value]) -> Result<Value> {
        let body = json!({"resources": resources, "release": true});
        self.world.create(server, &format!("{at}/versions"), &body)?;
        let mut all = Value::Null;
        let done = until("everything was tried", || {
            all = self.get(server, &format!("{at}/resources?limit=100"))?;
            let items = all["items"].as_array().context("no items")?;
            Ok(resources.iter().all(|one| {
                let found = items.iter().find(|item| item["id"] == one["id"]);
                found.is_some_and(|item| !item["last_outcome"].is_null())
            }))
        });
        done.with_context(|| all.to_string())?;
        Ok(all)
    }

    fn get(&self, server: &Server, path: &str) -> Result<Value> {
        let (status, answer) = self.world.call(server, "GET", path, None)?;
        ensure!(status == 200, "{path}: {status} {answer}");
        Ok(answer)
    }

    /// All logs of the resources of an environment.
    fn logs(&self, server: &Server, at: &str) -> Result<String> {
        let all = self.get(server, &format!("{at}/resources?limit=100"))?;
        let ids = all["items"].as_array().context("no items")?.iter();
        let encoded =
            |id: &str| -> String { id.bytes().map(|byte| format!("%{byte:02x}")).collect() };
        let mut logs = String::new();
        for id in ids.filter_map(|item| item["id"].as_str()) {
            let path = format!("{at}/resources/{}/logs", encoded(id));
            logs.push_str(&self.get(server, &path)?.to_string());
        }
        Ok(logs)
    }

    /// Gives mallory the developer role in an environment, and a token.
    fn mallory(&self, server: &Server, at: &str) -> Result<String> {
        let new = json!({"name": "mallory", "password": MALLORY});
        self.world.create(server, "/api/v1/users", &new)?;
        let role = json!({"user": "mallory", "role": "developer"});
        self.world.create(server, &format!("{at}/role-assignments"), &role)?;
        let login = json!({"name": "mallory", "password": MALLORY});
        let session = self.world.create(server, "/api/v1/login", &login)?;
        Ok(session["token"].as_str().context("no token")?.to_owned())
    }

    /// Commands of the attack. Even with careless file permissions, namespaces hide the server's
    /// files.
    fn script(&self, other: &Path) -> Result<Value> {
        let (data, loot) = (self.world.path("data"), &self.loot);
        let script = format!(
            r#"cd {loot}
id -u > id
env > env
cat {data}/secret.key > key
cat {data}/server.db > db
ls -a {data} > listing
cat {other} > other
cat /proc/[0-9]*/environ > environs
cat /proc/[0-9]*/cmdline > commands
find /root /home/* -maxdepth 1 -type f > homes
ls /run/docker.sock /var/run/docker.sock > sockets
python3 -c 'import sqlite3; c = sqlite3.connect("{data}/server.db"); c.execute("UPDATE account SET admin = 1"); c.commit()' && touch promoted
echo planted > {data}/planted
ln -s {data} link
grep Cap /proc/self/status > capabilities
for pid in $(ls /proc | grep '^[0-9]*$'); do kill -0 $pid && echo $pid; done > killable
env -i setsid sh -c 'while :; do date +%s%N >> {loot}/alive; sleep 0.1; done' > /dev/null 2>&1 &
setsid nohup sh -c 'trap "" TERM HUP; while :; do date +%s%N >> {loot}/alive2; sleep 0.1; done' > /dev/null 2>&1 &
touch done
exit 0
"#,
            data = data.display(),
            loot = loot.display(),
            other = other.display()
        );
        let path = self.world.path("attack.sh");
        fs::write(&path, script)?;
        Ok(run(&format!("sh {}", path.display())))
    }
}

fn is_still(path: &Path) -> Result<bool> {
    let before = fs::read(path).unwrap_or_default();
    std::thread::sleep(Duration::from_millis(600));
    Ok(!before.is_empty() && before == fs::read(path).unwrap_or_default())
}

/// Opens the data directory as a careless administrator could.
fn open_to_all(data: &Path) -> Result<()> {
    let done = Command::new("chmod").arg("-R").arg("a+rwX").arg(data).status()?;
    ensure!(done.success(), "chmod");
    Ok(())
}

fn attack(options: &[&str]) -> Result<(Site, Server, String)> {
    let site = Site::new()?;
    let mut server = site.world.start_with(options)?;
    let data = site.world.path("data");
    let (own, others) = (site.environment(&server, "own")?, site.environment(&server, "others")?);
    let other = data.join("environments").join("secret-of-others");
    fs::create_dir_all(other.parent().context("no parent")?)?;
    fs::write(&other, "what others keep")?;
    let secret = json!({"value": "hunter2"});
    let (status, answer) =
        site.world.call(&server, "PUT", &format!("{others}/secrets/s"), Some(&secret))?;
    ensure!(status < 300, "{status} {answer}");
    let token = site.mallory(&server, &own)?;
    let admin = std::mem::replace(&mut server.token, token);
    open_to_all(&data)?;
    site.deploy(&server, &own, &[site.script(&other)?])?;
    let files = [
        file(&data.join("file"), "planted"),
        file(&site.loot.join("link/through-a-link"), "planted"),
        file(&site.loot.join("fine"), "fine"),
    ];
    let tried = site.deploy(&server, &own, &files)?;
    let fine = tried["items"].as_array().context("no items")?.iter().any(|item| {
        item["status"] == "deployed" && item["id"].as_str().is_some_and(|id| id.ends_with("fine]"))
    });
    ensure!(
        fine,
        "an environment manages what its user may: {tried} {}",
        site.logs(&server, &own)?
    );
    ensure!(site.found("fine") == "fine", "the file is where it was asked for");
    server.token = admin;
    Ok((site, server, own))
}

/// The attack succeeds with the server's rights: otherwise the other tests would prove nothing.
fn a_server_of_administrators_acts_with_its_own_rights() -> Result<()> {
    let (site, server, _) = attack(&["--own-machine", "allow"])?;
    let data = site.world.path("data");
    let uid = rustix::process::geteuid().as_raw();
    ensure!(site.found("id").trim() == uid.to_string(), "{}", site.found("id"));
    ensure!(
        site.found("key").len() > 20 && site.found("db").starts_with("SQLite"),
        "key {:?}, database {:?}, {:?}",
        site.found("key"),
        site.found("db").len(),
        site.found("listing")
    );
    ensure!(site.found("other") == "what others keep", "others");
    ensure!(site.loot.join("promoted").exists(), "promoted");
    ensure!(data.join("planted").exists() && data.join("file").exists(), "planted");
    ensure!(data.join("through-a-link").exists(), "links");
    // Even there, variables of the server are private.
    let env = site.found("env");
    ensure!(env.contains("PATH=") && !env.contains("ORRERY_"), "{env}");
    drop(server);
    for name in ["alive", "alive2"] {
        let survivor = site.loot.join(name);
        ensure!(!is_still(&survivor)?, "{name}: a daemon that a command starts is left alone");
    }
    end_survivors(&site.loot)
}

/// Ends daemons of a successful attack.
fn end_survivors(loot: &Path) -> Result<()> {
    let mark = format!("{}/alive", loot.display());
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        let arguments = fs::read(path.join("cmdline")).unwrap_or_default();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if String::from_utf8_lossy(&arguments).contains(&mark) && name.parse::<u32>().is_ok() {
            let done = Command::new("kill").args(["-9", name]).status()?;
            ensure!(done.success(), "{name} goes on");
        }
    }
    Ok(())
}

fn a_developer_reaches_neither_the_server_nor_others() -> Result<()> {
    let (site, mut server, own) = attack(&[])?;
    let data = site.world.path("data");
    ensure!(site.found("done").is_empty() && site.loot.join("done").exists(), "the attack ran");
    let is_root = rustix::process::geteuid().is_root();
    let uid: u32 = site.found("id").trim().parse()?;
    ensure!(!is_root || uid >= 1_879_048_192, "it ran as {uid}");
    ensure!(
        !is_root || fs::metadata(site.loot.join("fine"))?.uid() == uid,
        "its files are its own"
    );
    for name in ["key", "db", "other", "homes", "sockets"] {
        ensure!(site.found(name).is_empty(), "{name}: {}", site.found(name));
    }
    let listing = site.found("listing");
    ensure!(!listing.contains("server.db") && !listing.contains("secret.key"), "{listing}");
    for name in ["env", "environs"] {
        let text = site.found(name);
        ensure!(text.contains("PATH="), "{name}: it has some variables");
        ensure!(!text.contains("ORRERY_") && !text.contains(PASSWORD), "{name}: {text}");
    }
    ensure!(!site.found("commands").contains("orrery\0server"), "{}", site.found("commands"));
    for path in [data.join("planted"), data.join("file"), data.join("through-a-link")] {
        ensure!(!path.exists(), "{} was written", path.display());
    }
    let capabilities = site.found("capabilities");
    let mut sets = capabilities.lines().filter_map(|line| line.split_whitespace().last());
    ensure!(sets.all(|set| set.chars().all(|digit| digit == '0')), "{capabilities}");
    ensure!(capabilities.lines().count() == 5, "{capabilities}");
    // Only its own processes are visible.
    let server_pid = server.child.id().to_string();
    ensure!(
        !site.found("killable").lines().any(|pid| pid == server_pid),
        "the server can be signalled"
    );
    ensure!(!site.loot.join("promoted").exists(), "the database was written");
    let login = json!({"name": "mallory", "password": MALLORY});
    let session = site.world.create(&server, "/api/v1/login", &login)?;
    let admin = std::mem::replace(
        &mut server.token,
        session["token"].as_str().unwrap_or_default().to_owned(),
    );
    let (status, answer) = site.world.call(&server, "GET", "/api/v1/users", None)?;
    ensure!(status == 403, "{status} {answer}");
    server.token = admin;
    let logs = site.logs(&server, &own)?;
    ensure!(!logs.contains(PASSWORD), "{logs}");
    // Its background processes end with the server, even if that is killed.
    ensure!(
        !is_still(&site.loot.join("alive"))?,
        "a background process runs while its sandbox does"
    );
    server.child.kill()?;
    server.child.wait()?;
    for name in ["alive", "alive2"] {
        until("background processes end", || is_still(&site.loot.join(name)))?;
    }
    Ok(())
}

/// The first account that is not an administrator takes effect before its first version is
/// deployed.
fn the_first_developer_changes_the_rights_at_once() -> Result<()> {
    let site = Site::new()?;
    let mut server = site.world.start()?;
    let own = site.environment(&server, "own")?;
    let who = |name: &str| run(&format!("sh -c 'id -u > {}/{name}'", site.loot.display()));
    site.deploy(&server, &own, &[who("before")])?;
    let uid = rustix::process::geteuid().as_raw().to_string();
    ensure!(site.found("before").trim() == uid, "administrators act with the server's rights");
    let token = site.mallory(&server, &own)?;
    let admin = std::mem::replace(&mut server.token, token);
    site.deploy(&server, &own, &[who("after")])?;
    let is_root = rustix::process::geteuid().is_root();
    let after: u32 = site.found("after").trim().parse()?;
    ensure!(!is_root || after >= 1_879_048_192, "a developer acts as {after}");
    let told = site.get(&server, &format!("{own}/notifications"))?.to_string();
    ensure!(told.contains("sandbox") && told.contains("orrery agent invite"), "{told}");
    // Also when there are only administrators again: versions of others are still deployed.
    server.token = admin;
    let users = site.get(&server, "/api/v1/users")?;
    let mallory =
        users["items"].as_array().and_then(|all| all.iter().find(|one| one["name"] == "mallory"));
    let id = mallory.and_then(|one| one["id"].as_str()).context("no mallory")?;
    let (status, answer) =
        site.world.call(&server, "DELETE", &format!("/api/v1/users/{id}"), None)?;
    ensure!(status < 300, "{status} {answer}");
    site.deploy(&server, &own, &[who("again")])?;
    let again: u32 = site.found("again").trim().parse()?;
    ensure!(again == after, "{again} after {after}");
    Ok(())
}

fn the_own_machine_can_be_forbidden() -> Result<()> {
    let site = Site::new()?;
    let server = site.world.start_with(&["--own-machine", "forbid"])?;
    let own = site.environment(&server, "own")?;
    let path = site.loot.join("file");
    let all =
        site.deploy(&server, &own, &[file(&path, "x"), run(&format!("touch {}", path.display()))])?;
    for item in all["items"].as_array().context("no items")? {
        ensure!(item["status"] == "unavailable", "{item}");
    }
    ensure!(!path.exists(), "it was deployed");
    let logs = site.logs(&server, &own)?;
    ensure!(
        logs.contains("--own-machine forbid") && logs.contains("orrery agent invite"),
        "{logs}"
    );
    Ok(())
}

/// Directories that a sandbox covers are neither written nor reported as empty.
fn what_a_sandbox_covers_is_not_taken_for_the_machine() -> Result<()> {
    let site = Site::new()?;
    let server = site.world.start_with(&["--own-machine", "sandbox"])?;
    let own = site.environment(&server, "own")?;
    // Root shares temporary directories with its sandboxes; other users do not.
    let covered = match rustix::process::geteuid().is_root() {
        true => tempfile::tempdir_in("/run")?,
        false => tempfile::tempdir_in(&site.loot)?,
    };
    fs::set_permissions(covered.path(), fs::Permissions::from_mode(0o777))?;
    let [old, new] = ["old", "new"].map(|name| covered.path().join(name));
    fs::write(&old, "there")?;
    let mut removed = file(&old, "");
    removed["attributes"]["purged"] = json!(true);
    let all = site.deploy(&server, &own, &[removed, file(&new, "x")])?;
    for item in all["items"].as_array().context("no items")? {
        ensure!(item["status"] == "failed", "{item}");
    }
    ensure!(old.exists() && !new.exists(), "it was done");
    let logs = site.logs(&server, &own)?;
    for said in ["has its own directory at this path", "orrery agent invite"] {
        ensure!(logs.contains(said), "{said}: {logs}");
    }
    Ok(())
}

/// A file with a late-bound content.
fn referring(path: &Path, kind: &str, argument: &str, value: &Value) -> Value {
    let mut resource = file(path, "");
    let reference = "7b1c1a2e-0000-4000-8000-000000000001";
    let id = resource["id"].clone();
    resource["attributes"]["references"] = json!([{
        "args": [{"name": argument, "type": "literal", "value": value}], "id": reference, "type": kind,
    }]);
    resource["attributes"]["mutators"] = json!([{"args": [
        {"id": id, "name": "resource", "type": "resource"},
        {"id": reference, "name": "value", "type": "reference"},
        {"name": "destination", "type": "literal", "value": "content"},
    ], "type": "core::Replace"}]);
    resource
}

fn references_never_reach_what_is_the_servers_own() -> Result<()> {
    for options in [&[][..], &["--own-machine", "sandbox"]] {
        let site = Site::new()?;
        let server = site.world.start_with(options)?;
        let data = site.world.path("data");
        let own = site.environment(&server, "own")?;
        fs::write(site.loot.join("allowed"), "value")?;
        std::os::unix::fs::symlink(data.join("server.db"), site.loot.join("link"))?;
        open_to_all(&data)?;
        let link = site.loot.join("link");
        let resources = [
            ("variable", "std::Environment", "name", json!("ORRERY_ADMIN_PASSWORD")),
            ("key", "std::SecretFile", "path", json!(data.join("secret.key"))),
            ("linked", "std::SecretFile", "path", json!(link)),
            ("process", "std::SecretFile", "path", json!("/proc/self/environ")),
            ("allowed-copy", "std::SecretFile", "path", json!(site.loot.join("allowed"))),
        ]
        .map(|(name, kind, argument, value)| {
            referring(&site.loot.join(name), kind, argument, &value)
        });
        fs::write(data.join("secret.key"), "the key of the server")?;
        site.deploy(&server, &own, &resources)?;
        ensure!(
            site.found("allowed-copy") == "value",
            "{options:?}: {}",
            site.logs(&server, &own)?
        );
        for name in ["variable", "key", "linked"] {
            ensure!(!site.loot.join(name).exists(), "{options:?} {name}: {}", site.found(name));
        }
        ensure!(
            !site.found("process").contains("ORRERY_"),
            "{options:?}: {}",
            site.found("process")
        );
        let logs = site.logs(&server, &own)?;
        ensure!(logs.contains("belongs to the server itself"), "{options:?}: {logs}");
        ensure!(!logs.contains(PASSWORD) && !logs.contains("the key of the server"), "{logs}");
    }
    Ok(())
}
