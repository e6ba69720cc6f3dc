//! An unattended server: scheduled compiles, unchanged models, and ssh configuration.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use orrery_store::CompileRequest;
use serde_json::json;

use super::{World, git, model, text, update, wait_for};

pub(super) fn a_schedule_fetches_first(world: &mut World) -> Result<()> {
    world.start()?;
    let repository = world.repository("model", &model("\"one\""))?;
    let environment = world.environment(&text(&repository), "main")?;
    world.succeed(&environment, &CompileRequest::default())?;
    world.commit(&repository, &model("\"two\""))?;
    let store = world.store();
    let every_second = json!("* * * * * * *");
    let now = world.app.now();
    store.settings().change(environment.key, "auto_full_compile", Some(&every_second), now)?;
    world.app.wake_up();
    wait_for("the schedule has compiled the new commit", || {
        Ok((world.newest_content(&environment)? == "two").then_some(()))
    })?;
    world.stop_without_drop();
    Ok(())
}

pub(super) fn an_unchanged_result_stores_no_version(world: &mut World) -> Result<()> {
    world.start()?;
    let repository = world.repository("model", &model("\"one\""))?;
    let environment = world.environment(&text(&repository), "main")?;
    let first = world.succeed(&environment, &update())?;
    let again = world.succeed(&environment, &update())?;
    let versions = || world.store().versions().list(environment.key);
    ensure!(versions()?.len() == 1, "{:?}", versions()?);
    ensure!(again.version == first.version, "{again:?}");
    ensure!(again.data == Some(json!({"unchanged": true})), "{again:?}");
    ensure!(first.data.is_none(), "{first:?}");
    // A commit without a change of the desired state creates no version and uses no number.
    world.commit(&repository, &format!("# a comment\n{}", model("\"one\"")))?;
    world.succeed(&environment, &update())?;
    ensure!(versions()?.len() == 1, "{:?}", versions()?);
    world.commit(&repository, &model("\"two\""))?;
    let changed = world.succeed(&environment, &update())?;
    ensure!(changed.version.map(|number| number.0) == Some(2), "{changed:?}");
    // A stored, unreleased version is released if the setting has changed meanwhile.
    let set = |value: bool| {
        let now = world.app.now();
        world.store().settings().change(environment.key, "auto_deploy", Some(&json!(value)), now)
    };
    set(false)?;
    world.commit(&repository, &model("\"three\""))?;
    world.succeed(&environment, &update())?;
    let newest = || -> Result<_> { versions()?.pop().context("a version") };
    ensure!(!newest()?.released);
    set(true)?;
    world.succeed(&environment, &update())?;
    ensure!(newest()?.released && newest()?.number.0 == 3, "{:?}", newest()?);
    Ok(())
}

/// An SSH server for this test.
struct Sshd {
    child: Child,
    port: u16,
    directory: PathBuf,
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text)?;
    Ok(std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?)
}

fn key(path: &Path) -> Result<String> {
    let mut command = Command::new("ssh-keygen");
    let done = command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path).status()?;
    ensure!(done.success());
    Ok(std::fs::read_to_string(path.with_extension("pub"))?)
}

impl Sshd {
    fn start(directory: &Path) -> Result<Self> {
        std::fs::create_dir_all(directory)?;
        let path = |name: &str| directory.join(name);
        let host = key(&path("host"))?;
        let own = key(&path("own"))?;
        write(&path("authorized"), &own)?;
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let settings = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\n\
             StrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\n\
             KbdInteractiveAuthentication no\n",
            path("host").display(),
            path("authorized").display(),
        );
        write(&path("sshd_config"), &settings)?;
        let line = host.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        write(&path("known_hosts"), &format!("[127.0.0.1]:{port} {line}\n"))?;
        let client = format!(
            "Host *\n  IdentityFile {}\n  IdentitiesOnly yes\n  UserKnownHostsFile {}\n  StrictHostKeyChecking yes\n",
            path("own").display(),
            path("known_hosts").display(),
        );
        write(&path("ssh_config"), &client)?;
        // If its privilege separation directory is missing, it gets a private one.
        let script = "if [ \"$(id -u)\" = 0 ] && [ ! -d /run/sshd ]; then mount -t tmpfs tmpfs /run && \
             mkdir /run/sshd; fi; exec \"$0\" -D -e -f \"$1\"";
        let sshd =
            ["/usr/sbin/sshd", "/usr/bin/sshd"].into_iter().find(|at| Path::new(at).exists());
        let sshd = sshd.context("there is no sshd")?;
        let log = std::fs::File::create(path("log"))?;
        let mut command = match Path::new("/run/sshd").is_dir() {
            true => Command::new("sh"),
            false => {
                let mut command = Command::new("unshare");
                command.args(["-m", "sh"]);
                command
            }
        };
        command.args(["-c", script, sshd]).arg(path("sshd_config"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn()?;
        let server = Sshd { child, port, directory: directory.to_owned() };
        wait_for("sshd listens", || {
            Ok(std::net::TcpStream::connect(("127.0.0.1", port)).ok().map(drop))
        })
        .with_context(|| std::fs::read_to_string(path("log")).unwrap_or_default())?;
        Ok(server)
    }

    fn url(&self, repository: &Path) -> Result<String> {
        let user = Command::new("id").arg("-un").output()?;
        let user = String::from_utf8(user.stdout)?;
        Ok(format!("ssh://{}@127.0.0.1:{}{}", user.trim(), self.port, repository.display()))
    }

    /// The ssh command to reach it, as a user would configure it.
    fn command(&self) -> String {
        format!("ssh -F {}", self.directory.join("ssh_config").display())
    }
}

pub(super) fn the_users_configuration_of_ssh_counts(world: &mut World) -> Result<()> {
    let sshd = Sshd::start(&world.path("sshd"))?;
    let repository = world.repository("model", &model("\"over ssh\""))?;
    let url = sshd.url(&repository)?;
    // In the configuration of git.
    let home = world.path("home");
    std::fs::create_dir_all(&home)?;
    let configured = format!("[core]\n\tsshCommand = {}\n", sshd.command());
    std::fs::write(home.join(".gitconfig"), configured)?;
    world.options.variables = BTreeMap::from([("HOME".to_owned(), text(&home))]);
    world.start()?;
    let environment = world.environment(&url, "main")?;
    world.succeed(&environment, &update())?;
    ensure!(world.newest_content(&environment)? == "over ssh");
    world.stop();
    // In a variable.
    let variable = ("GIT_SSH_COMMAND".to_owned(), sshd.command());
    let bare = world.path("bare");
    std::fs::create_dir_all(&bare)?;
    world.options.variables = BTreeMap::from([("HOME".to_owned(), text(&bare)), variable]);
    world.start()?;
    let environment = world.environment(&url, "main")?;
    world.succeed(&environment, &update())?;
    world.stop();
    // Without configuration, an unknown host is rejected, without a prompt.
    world.options.variables = BTreeMap::from([("HOME".to_owned(), text(&bare))]);
    world.start()?;
    let environment = world.environment(&url, "main")?;
    let failed = world.compile(&environment, &update())?;
    let data = failed.data.context("errors")?.to_string();
    ensure!(data.contains("Host key verification failed"), "{data}");
    git(&repository, &["status"])
}
