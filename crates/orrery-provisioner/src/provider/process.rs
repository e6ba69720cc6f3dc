//! Provider `process`: a node is a directory, and the processes that run in it. Needs no rights.
//!
//! Each node has its own loopback address, so that the services of all nodes can have the usual
//! ports, and a range of ports for services that listen on all addresses.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use orrery_handlers::target::Variables;
use orrery_handlers::{Durability, LocalTarget};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::process_end::{MARK, end_processes};
use super::slot_files::SlotFiles;
use crate::facts::NodeFacts;
use crate::machine_name::MachineName;
use crate::plugin::{
    FieldFormat, FieldSchema, MachineCall, MachineProvider, NodeAccess, PluginError, PluginKind,
    PluginManifest,
};
use crate::task::MachineRecord;

/// Ports of each node.
const PORTS_PER_NODE: u16 = 20;
/// First port of the first node.
const PORT_BASE: u16 = 20_000;
/// Nodes of one directory.
const NODES_MAX: u16 = 2000;
/// File of a complete node.
const MACHINE_FILE: &str = "machine.json";
/// Directories of a node. `home` is the home directory of its processes.
const DIRECTORIES: [&str; 7] = ["home", "state", "bin", "run", "log", "tasks", "tmp"];

/// Directories with processes.
#[derive(Debug)]
pub struct ProcessProvider {
    manifest: PluginManifest,
    default_directory: PathBuf,
}

/// Properties of a node, written when it is complete.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct MachineFile {
    slot: u16,
    address: String,
    port_base: u16,
}

impl ProcessProvider {
    /// Creates the provider. Nodes are below `default_directory` unless a field says otherwise.
    pub fn new(default_directory: impl Into<PathBuf>) -> Self {
        let manifest = PluginManifest::new(
            PluginKind::Provider,
            "process",
            "Processes",
            "Directories and processes on this machine, without root.",
        )
        .field(
            "directory",
            FieldSchema::new("Directory", FieldFormat::Text, "Directory of the nodes."),
        );
        ProcessProvider { manifest, default_directory: default_directory.into() }
    }

    fn root(&self, call: &MachineCall<'_>) -> Result<PathBuf, PluginError> {
        let directory = call.fields.text("directory");
        let directory = directory.map_or_else(|| self.default_directory.clone(), PathBuf::from);
        let failed =
            |error| PluginError::io(format!("use the directory {}", directory.display()), &error);
        fs::create_dir_all(&directory).map_err(failed)?;
        directory.canonicalize().map_err(failed)
    }
}

fn machine_directory(root: &Path, name: &MachineName) -> PathBuf {
    root.join("machines").join(name.to_string())
}

fn read_machine(directory: &Path) -> io::Result<Option<MachineFile>> {
    match fs::read(directory.join(MACHINE_FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        text => serde_json::from_slice(&text?).map(Some).map_err(io::Error::other),
    }
}

/// Creates the directories, and then the file that says that they are complete.
fn create_machine(root: &Path, name: &MachineName) -> io::Result<MachineFile> {
    let directory = machine_directory(root, name);
    if let Some(machine) = read_machine(&directory)? {
        return Ok(machine);
    }
    for part in DIRECTORIES {
        fs::create_dir_all(directory.join(part))?;
    }
    let slot = SlotFiles::new(root, NODES_MAX).claim(name)?;
    let machine = MachineFile {
        slot,
        address: address(root, slot),
        port_base: PORT_BASE + slot * PORTS_PER_NODE,
    };
    let mut file = tempfile::NamedTempFile::new_in(&directory)?;
    file.write_all(&serde_json::to_vec(&machine)?)?;
    file.persist(directory.join(MACHINE_FILE))?;
    Ok(machine)
}

/// Loopback address of a slot. Other directories have others.
fn address(root: &Path, slot: u16) -> String {
    let hash = Sha256::digest(root.as_os_str().as_encoded_bytes());
    let second = 64 + hash[0] % 128;
    let third = hash[1].wrapping_add((slot / 254) as u8);
    format!("127.{second}.{third}.{}", slot % 254 + 1)
}

fn delete_machine(root: &Path, name: &MachineName) -> io::Result<()> {
    let directory = machine_directory(root, name);
    if directory.exists() {
        end_processes(&directory)?;
        // Without the file, an interrupted removal is an incomplete machine.
        match fs::remove_file(directory.join(MACHINE_FILE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        SlotFiles::new(root, NODES_MAX).free(name)?;
        fs::remove_dir_all(&directory)?;
    }
    Ok(())
}

fn facts(name: &MachineName, machine: &MachineFile) -> NodeFacts {
    let addresses = ["access_v4", "bind_v4"].map(|kind| (kind.to_owned(), machine.address.clone()));
    NodeFacts {
        incarnation: Some(name.incarnation),
        provider_id: Some(name.to_string()),
        addresses: addresses.into(),
        port_base: Some(machine.port_base),
        ..NodeFacts::default()
    }
}

impl MachineProvider for ProcessProvider {
    fn manifest(&self) -> &PluginManifest {
        &self.manifest
    }

    fn create(&self, call: &MachineCall<'_>) -> Result<NodeFacts, PluginError> {
        let machine = create_machine(&self.root(call)?, call.name)
            .map_err(|error| PluginError::io(format!("create the node {}", call.name), &error))?;
        Ok(facts(call.name, &machine))
    }

    fn confirm(&self, call: &MachineCall<'_>, _: Duration) -> Result<NodeFacts, PluginError> {
        let directory = machine_directory(&self.root(call)?, call.name);
        let machine = read_machine(&directory)
            .map_err(|error| PluginError::io(format!("read the node {}", call.name), &error))?;
        let machine = machine.ok_or_else(|| {
            PluginError::new(format!("the node {} does not exist", directory.display()))
        })?;
        Ok(facts(call.name, &machine))
    }

    fn delete(&self, call: &MachineCall<'_>, machine: &MachineName) -> Result<(), PluginError> {
        delete_machine(&self.root(call)?, machine)
            .map_err(|error| PluginError::io(format!("delete the node {machine}"), &error))
    }

    fn list(&self, call: &MachineCall<'_>) -> Result<Vec<MachineRecord>, PluginError> {
        let machines = self.root(call)?.join("machines");
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
                let is_running = read_machine(&entry.path()).map_err(failed)?.is_some();
                found.push(MachineRecord { provider_id: Some(name.clone()), name, is_running });
            }
        }
        found.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(found)
    }

    fn access(&self, call: &MachineCall<'_>) -> Result<NodeAccess, PluginError> {
        let directory = machine_directory(&self.root(call)?, call.name);
        if !directory.join(MACHINE_FILE).exists() {
            return Err(PluginError::new(format!("the node {} does not exist", call.name)));
        }
        let home = directory.display().to_string();
        let environment = vec![
            ("HOME".to_owned(), format!("{home}/home")),
            ("TMPDIR".to_owned(), format!("{home}/tmp")),
            (MARK.to_owned(), home.clone()),
        ];
        let target = LocalTarget::new(Durability::None).with_variables(Variables::Standard);
        Ok(NodeAccess { target: Arc::new(target), home, environment, ssh: None })
    }
}
