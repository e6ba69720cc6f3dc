//! Provider `netns`: a node has namespaces of its own for network, mounts, processes and host name,
//! an overlay over a directory tree as its root, and its own sshd. Needs root.
//!
//! All that belongs to a node is named by its machine, and is found and removed by that name, also
//! after a crash in the middle of its creation. The kernel and the accounts are those of this
//! machine: it is for demonstrations and tests, and isolates nothing from root on a node.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use orrery_base::clock::monotonic;
use orrery_model::SecretText;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::netns_network::{NodeNetwork, disconnect, run};
use super::process_end::{MARK, end_processes, start_time};
use super::slot_files::SlotFiles;
use crate::facts::NodeFacts;
use crate::machine_name::MachineName;
use crate::plugin::{
    FieldFormat, FieldSchema, MachineCall, MachineProvider, NodeAccess, PluginError, PluginKind,
    PluginManifest, SshLogin,
};
use crate::ssh_access::SshMachineAccess;
use crate::task::MachineRecord;

/// First process of a node.
const INIT: &str = include_str!("netns-init.sh");
/// File of a complete node.
const MACHINE_FILE: &str = "machine.json";
/// Time for the namespaces of a node to be ready.
const START_TIME: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(5);

/// Namespaces on this machine.
#[derive(Debug)]
pub struct NetnsProvider {
    manifest: PluginManifest,
    default_directory: PathBuf,
    ssh: SshMachineAccess,
}

/// Properties of a node, written when it is complete.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct MachineFile {
    slot: u16,
    address: String,
    pid: i32,
    started: u64,
}

/// Fields of one provider.
struct Settings {
    root: PathBuf,
    network: NodeNetwork,
    lower: String,
}

impl NetnsProvider {
    /// Creates the provider. Nodes are below `default_directory` unless a field says otherwise.
    pub fn new(default_directory: impl Into<PathBuf>, ssh: SshMachineAccess) -> Self {
        let text = FieldFormat::Text;
        let manifest = PluginManifest::new(
            PluginKind::Provider,
            "netns",
            "Namespaces",
            "Network namespaces on this machine, each with an address and an SSH server. Needs root.",
        )
        .field("directory", FieldSchema::new("Directory", text, "Directory of the nodes."))
        .field(
            "network",
            FieldSchema::new("Network", text, "Private network of the nodes.").or("10.77.0.0/16"),
        )
        .field("bridge", FieldSchema::new("Bridge", text, "Name of the bridge.").or("orr0"))
        .field(
            "images",
            FieldSchema::new(
                "Images",
                FieldFormat::Json,
                "Directory trees by the name of the image; others have that of this machine.",
            ),
        );
        NetnsProvider { manifest, default_directory: default_directory.into(), ssh }
    }

    fn settings(&self, call: &MachineCall<'_>) -> Result<Settings, PluginError> {
        let directory = call.fields.text("directory");
        let directory = directory.map_or_else(|| self.default_directory.clone(), PathBuf::from);
        let failed =
            |error| PluginError::io(format!("use the directory {}", directory.display()), &error);
        fs::create_dir_all(&directory).map_err(failed)?;
        let root = directory.canonicalize().map_err(failed)?;
        let text = |name| call.fields.text(name).unwrap_or_default();
        let network = NodeNetwork::parse(&text("bridge"), &text("network"))?;
        let images = call.fields.get("images").and_then(|images| images.as_object());
        let lower = images.and_then(|images| images.get(&call.description().image)?.as_str());
        Ok(Settings { root, network, lower: lower.unwrap_or("/").to_owned() })
    }

    fn login(
        settings: &Settings,
        call: &MachineCall<'_>,
        address: &str,
    ) -> Result<SshLogin, PluginError> {
        let path = settings.root.join("identity");
        let identity = fs::read_to_string(&path)
            .map_err(|error| PluginError::io(format!("read {}", path.display()), &error))?;
        Ok(SshLogin {
            host: address.to_owned(),
            port: 22,
            user: "root".to_owned(),
            identity: SecretText::new(identity),
            host_key: call.facts().ssh_host_key.clone(),
        })
    }
}

impl Settings {
    fn machine_directory(&self, name: &MachineName) -> PathBuf {
        self.root.join("machines").join(name.to_string())
    }

    fn slots(&self) -> SlotFiles {
        SlotFiles::new(&self.root, self.network.nodes_max())
    }

    /// Lock on the directory, for changes of the bridge and the key. Ends with the file.
    fn lock(&self) -> io::Result<File> {
        let file = File::create(self.root.join("lock"))?;
        flock(&file, FlockOperation::LockExclusive)?;
        Ok(file)
    }

    /// Creates the key for logins and the bridge, unless they exist.
    fn prepare(&self) -> io::Result<()> {
        let _lock = self.lock()?;
        let identity = self.root.join("identity");
        if !identity.exists() {
            let new = self.root.join("identity.new");
            let _ = fs::remove_file(&new);
            keygen(&new)?;
            fs::rename(self.root.join("identity.new.pub"), self.root.join("identity.pub"))?;
            fs::rename(new, identity)?;
        }
        self.network.create_bridge()
    }

    fn create(&self, name: &MachineName, hostname: &str) -> io::Result<MachineFile> {
        let directory = self.machine_directory(name);
        if let Some(machine) = running_machine(&directory)? {
            return Ok(machine);
        }
        // An incomplete or dead one.
        if directory.exists() {
            end_processes(&directory)?;
        }
        self.prepare()?;
        for part in ["upper", "work", "root", "ssh"] {
            fs::create_dir_all(directory.join(part))?;
        }
        self.write_ssh_files(&directory.join("ssh"))?;
        let slot = self.slots().claim(name)?;
        let pid = self.start(&directory, hostname)?;
        self.network.connect(name, slot, pid)?;
        let pid = i32::try_from(pid).map_err(io::Error::other)?;
        let started =
            start_time(pid).ok_or_else(|| io::Error::other("its first process has ended"))?;
        let address = self.network.address(slot).to_string();
        let machine = MachineFile { slot, address, pid, started };
        let mut file = tempfile::NamedTempFile::new_in(&directory)?;
        file.write_all(&serde_json::to_vec(&machine)?)?;
        file.persist(directory.join(MACHINE_FILE))?;
        Ok(machine)
    }

    fn write_ssh_files(&self, ssh: &Path) -> io::Result<()> {
        if !ssh.join("host_key").exists() {
            keygen(&ssh.join("host_key"))?;
        }
        fs::set_permissions(ssh, fs::Permissions::from_mode(0o700))?;
        fs::copy(self.root.join("identity.pub"), ssh.join("authorized_keys"))?;
        let own = "/run/orrery-ssh";
        let config = format!(
            "Port 22\nHostKey {own}/host_key\nAuthorizedKeysFile {own}/authorized_keys\n\
             PidFile none\nUsePAM no\nUseDNS no\nPasswordAuthentication no\n\
             KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\nPrintMotd no\n\
             StrictModes no\nMaxStartups 100\nSubsystem sftp internal-sftp\n"
        );
        fs::write(ssh.join("sshd_config"), config)
    }

    /// Starts the first process of a node, and waits until its files are mounted. Returns a process
    /// in its network.
    fn start(&self, directory: &Path, hostname: &str) -> io::Result<u32> {
        for file in ["ready", MACHINE_FILE] {
            match fs::remove_file(directory.join(file)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let log = File::create(directory.join("log"))?;
        let short_name = hostname.split('.').next().unwrap_or(hostname);
        // Of this process and its session only: the node outlives it.
        let mut child = Command::new("setsid")
            .args(["unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork"])
            .args(["--kill-child", "sh", "-c", INIT, "node"])
            .arg(directory)
            .args([&self.lower, short_name])
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", "/root")
            .env(MARK, directory)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let deadline = monotonic() + START_TIME;
        while !directory.join("ready").exists() {
            let is_over = child.try_wait()?.is_some() || monotonic() >= deadline;
            if is_over {
                let _ = child.kill();
                let _ = child.wait();
                let log = fs::read_to_string(directory.join("log")).unwrap_or_default();
                return Err(io::Error::other(format!("it did not start: {}", log.trim())));
            }
            std::thread::sleep(POLL);
        }
        let pid = child.id();
        // Reaps it when it ends, so that a dead node is seen as dead.
        orrery_base::thread::spawn_named("netns-wait", move || {
            let _ = child.wait();
        })?;
        Ok(pid)
    }

    fn delete(&self, name: &MachineName) -> io::Result<()> {
        let directory = self.machine_directory(name);
        if directory.exists() {
            end_processes(&directory)?;
            disconnect(name)?;
            self.slots().free(name)?;
            fs::remove_dir_all(&directory)?;
        }
        let _lock = self.lock()?;
        let machines = self.root.join("machines");
        if fs::read_dir(&machines).map_or(true, |mut entries| entries.next().is_none()) {
            self.network.remove_bridge()?;
        }
        Ok(())
    }
}

fn keygen(path: &Path) -> io::Result<()> {
    let path = path.display().to_string();
    run("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-C", "orrery", "-f", &path])
}

fn read_machine(directory: &Path) -> io::Result<Option<MachineFile>> {
    match fs::read(directory.join(MACHINE_FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        text => serde_json::from_slice(&text?).map(Some).map_err(io::Error::other),
    }
}

/// A complete node whose first process runs.
fn running_machine(directory: &Path) -> io::Result<Option<MachineFile>> {
    let machine = read_machine(directory)?;
    Ok(machine.filter(|machine| start_time(machine.pid) == Some(machine.started)))
}

fn facts(name: &MachineName, machine: &MachineFile) -> NodeFacts {
    let addresses = ["access_v4", "bind_v4"].map(|kind| (kind.to_owned(), machine.address.clone()));
    NodeFacts {
        incarnation: Some(name.incarnation),
        provider_id: Some(name.to_string()),
        addresses: addresses.into(),
        ssh_port: Some(22),
        ssh_user: Some("root".to_owned()),
        ..NodeFacts::default()
    }
}

impl MachineProvider for NetnsProvider {
    fn manifest(&self) -> &PluginManifest {
        &self.manifest
    }

    fn create(&self, call: &MachineCall<'_>) -> Result<NodeFacts, PluginError> {
        if !rustix::process::geteuid().is_root() {
            return Err(PluginError::new("the provider netns needs the rights of root")
                .with_hint("run the server as root, or use the provider `process`"));
        }
        let settings = self.settings(call)?;
        let machine = settings.create(call.name, &call.description().hostname);
        let machine = machine
            .map_err(|error| PluginError::io(format!("create the node {}", call.name), &error))?;
        Ok(facts(call.name, &machine))
    }

    fn confirm(&self, call: &MachineCall<'_>, wait: Duration) -> Result<NodeFacts, PluginError> {
        let settings = self.settings(call)?;
        let machine = running_machine(&settings.machine_directory(call.name))
            .map_err(|error| PluginError::io(format!("read the node {}", call.name), &error))?;
        let machine = machine
            .ok_or_else(|| PluginError::new(format!("the node {} does not run", call.name)))?;
        let login = NetnsProvider::login(&settings, call, &machine.address)?;
        let host_key = self.ssh.confirm(&call.task.machine, &login, wait, call.stop)?;
        Ok(NodeFacts { ssh_host_key: Some(host_key), ..facts(call.name, &machine) })
    }

    fn delete(&self, call: &MachineCall<'_>, machine: &MachineName) -> Result<(), PluginError> {
        let settings = self.settings(call)?;
        self.ssh.disconnect(&machine.to_string());
        settings
            .delete(machine)
            .map_err(|error| PluginError::io(format!("delete the node {machine}"), &error))
    }

    fn list(&self, call: &MachineCall<'_>) -> Result<Vec<MachineRecord>, PluginError> {
        let machines = self.settings(call)?.root.join("machines");
        let failed =
            |error: io::Error| PluginError::io(format!("list {}", machines.display()), &error);
        let entries = match fs::read_dir(&machines) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.parse::<MachineName>().is_ok_and(|name| name.is_same_node(call.name)) {
                let is_running = running_machine(&entry.path()).map_err(failed)?.is_some();
                found.push(MachineRecord { provider_id: Some(name.clone()), name, is_running });
            }
        }
        found.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(found)
    }

    fn access(&self, call: &MachineCall<'_>) -> Result<NodeAccess, PluginError> {
        let settings = self.settings(call)?;
        let address = call.facts().access_address().unwrap_or_default();
        let login = NetnsProvider::login(&settings, call, address)?;
        self.ssh.access(&call.task.machine, login)
    }
}
