//! Machines of a test: Linux namespaces with their own network, processes, host name, accounts and
//! directories for files.
//!
//! The namespaces have no names, so nothing is left behind: they end with the first process of the
//! machine, which ends with the test, also if that is killed.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// First process of a machine. Arguments: host name, programs.
const FIRST_PROCESS: &str = include_str!("machine.sh");
/// Kinds of namespaces with the option of `nsenter` and the name below `/proc/PID/ns`.
const NAMESPACES: [(&str, &str); 4] =
    [("net", "net"), ("mount", "mnt"), ("uts", "uts"), ("pid", "pid_for_children")];

/// A machine. Dropping it ends its processes and removes its network and files.
#[derive(Debug)]
pub struct TestMachine {
    name: String,
    /// `unshare`, which is in all namespaces of the machine but that of processes.
    guard: Child,
}

impl TestMachine {
    /// Returns why this process cannot create machines.
    pub fn obstacle() -> Option<String> {
        let probe = ["--net", "--mount", "--pid", "--uts", "--fork", "mount", "-t", "tmpfs"];
        let mut command = Command::new("unshare");
        command.args(probe).args(["tmpfs", "/mnt"]).stdin(Stdio::null());
        match command.output() {
            Ok(output) if output.status.success() => match Command::new("ip").arg("-V").output() {
                Ok(_) => None,
                Err(error) => Some(format!("ip: {error}; install iproute2")),
            },
            Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Err(error) => Some(format!("unshare: {error}")),
        }
    }

    /// Starts a machine with these programs in `/run/programs`.
    ///
    /// # Panics
    /// If this process may not create namespaces.
    pub fn start(name: &str, programs: &[&str]) -> Self {
        let mut guard = Command::new("unshare")
            .args(["--net", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc"])
            .args(["sh", "-c", FIRST_PROCESS, "machine", name])
            .args(programs)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(guard.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "the machine {name} did not start");
        TestMachine { name: name.to_owned(), guard }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// A command on the machine, with the variables `PATH` and `HOME` only.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        for (option, name) in NAMESPACES {
            command.arg(format!("--{option}=/proc/{}/ns/{name}", self.guard.id()));
        }
        command.arg("--").arg(program).env_clear().stdin(Stdio::null());
        command.env(
            "PATH",
            "/run/programs:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        );
        command.env("HOME", "/root");
        command
    }

    /// Runs a shell script on the machine; returns its standard output.
    ///
    /// # Panics
    /// If it fails.
    pub fn run(&self, script: &str) -> String {
        let output = self.command("sh").args(["-euc", script]).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {script}: {errors}", self.name);
        String::from_utf8(output.stdout).unwrap()
    }

    /// Path of a file of the machine as the test sees it.
    pub fn path(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.guard.id()))
    }

    /// Content of a file of the machine; empty if there is none.
    pub fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.path(path)).unwrap_or_default()
    }

    /// Moves the calling thread, and what it starts from now on, into the network of the machine.
    ///
    /// # Panics
    /// If this process may not do that.
    pub fn enter_network(&self) {
        let network = File::open(format!("/proc/{}/ns/net", self.guard.id())).unwrap();
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
    }

    /// Starts OpenSSH's server on port 22; `lines` of configuration win over the default ones.
    /// Accounts accept the key of this line in `authorized_keys`.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_sshd(&self, authorized: &str, lines: &str) {
        std::fs::write(self.path("/run/authorized_keys"), authorized).unwrap();
        let config = format!(
            "{lines}\nPort 22\nHostKey /run/host_key\nAuthorizedKeysFile /run/authorized_keys\n\
             PidFile /run/sshd.pid\nUsePAM no\nUseDNS no\nPasswordAuthentication no\n\
             KbdInteractiveAuthentication no\nPermitRootLogin yes\nPrintMotd no\n"
        );
        std::fs::write(self.path("/run/sshd_config"), config).unwrap();
        self.run(
            "ssh-keygen -q -N '' -t ed25519 -f /run/host_key\n\
             /usr/sbin/sshd -f /run/sshd_config -E /run/sshd.log",
        );
    }

    /// Ends the machine at once, as a loss of power does. Its files are lost.
    pub fn kill(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.kill();
        let _ = self.guard.wait();
    }

    fn namespace(&self) -> String {
        self.guard.id().to_string()
    }
}

impl Drop for TestMachine {
    fn drop(&mut self) {
        self.kill();
    }
}

/// One end of a link.
#[derive(Clone, Debug)]
struct LinkEnd {
    /// Process in the network namespace.
    namespace: String,
    device: String,
    address: String,
}

/// A cable between two machines. It ends with them.
#[derive(Clone, Debug)]
pub struct TestLink {
    ends: [LinkEnd; 2],
}

impl TestLink {
    /// Connects two machines that have these addresses on the link. The network has 24 bits.
    ///
    /// # Panics
    /// If one of them has ended.
    pub fn connect(first: (&TestMachine, &str), second: (&TestMachine, &str)) -> Self {
        let end = |(machine, address): (&TestMachine, &str), other: &TestMachine| LinkEnd {
            namespace: machine.namespace(),
            device: format!("to-{}", other.name()),
            address: address.to_owned(),
        };
        let ends = [end(first, second.0), end(second, first.0)];
        let [one, two] = &ends;
        ip(&["link", "add", &one.device, "netns", &one.namespace, "type", "veth", "peer"]
            .into_iter()
            .chain(["name", &*two.device, "netns", &two.namespace])
            .collect::<Vec<_>>());
        for end in &ends {
            end.ip(&["address", "add", &format!("{}/24", end.address), "dev", &end.device]);
            end.ip(&["link", "set", &end.device, "up"]);
        }
        TestLink { ends }
    }

    /// Makes the second machine reach all other networks over this link.
    ///
    /// # Panics
    /// If one of the machines has ended.
    pub fn make_default_route(&self) {
        let [gateway, machine] = &self.ends;
        machine.ip(&["route", "add", "default", "via", &gateway.address, "dev", &machine.device]);
    }

    /// Takes the link down: the first machine gets an error for each packet that it sends.
    ///
    /// # Panics
    /// If one of the machines has ended.
    pub fn take_down(&self) {
        self.ends[0].ip(&["link", "set", &self.ends[0].device, "down"]);
    }

    /// Loses all packets of both directions: no machine gets an error.
    ///
    /// # Panics
    /// If one of the machines has ended.
    pub fn lose_packets(&self) {
        let [one, two] = &self.ends;
        for (end, other) in [(one, two), (two, one)] {
            // Frames to the address of no device are dropped where they arrive.
            let lost = ["lladdr", "02:00:00:00:00:00", "nud", "permanent", "dev", &end.device];
            end.ip(&[&["neigh", "replace", &other.address][..], &lost].concat());
        }
    }

    /// Repairs the link.
    ///
    /// # Panics
    /// If one of the machines has ended.
    pub fn restore(&self) {
        let [one, two] = &self.ends;
        one.ip(&["link", "set", &one.device, "up"]);
        for (end, other) in [(one, two), (two, one)] {
            let mut flush = end.command();
            flush.args(["neigh", "del", &other.address, "dev", &end.device]);
            // There is no entry if the link was down.
            let _ = flush.output();
        }
    }
}

impl LinkEnd {
    fn command(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.namespace)).arg("ip");
        command
    }

    fn ip(&self, arguments: &[&str]) {
        let output = self.command().args(arguments).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "ip {arguments:?}: {errors}");
    }
}

fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments:?}: {errors}");
}
