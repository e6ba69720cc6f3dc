//! A private OpenSSH server for a test: free port on the loopback interface, throw-away keys, the
//! account that runs the test.
//!
//! It ends with the test process, also if that is killed: a shell holds it only as long as its own
//! input is open.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Holds the server while its input is open. Arguments: program, configuration, log.
const GUARD: &str = r#"
trap '' INT TERM HUP
"$1" -D -e -f "$2" >>"$3" 2>&1 </dev/null &
server=$!
echo "$server"
while read -r _; do :; done
kill -KILL "$server" 2>/dev/null || true
"#;

const START_TIME: Duration = Duration::from_secs(20);

/// A running server. Dropping it ends it with all of its sessions.
#[derive(Debug)]
pub struct TestSshd {
    directory: tempfile::TempDir,
    port: u16,
    user: String,
    running: Option<(Child, u32)>,
}

impl TestSshd {
    /// Starts a server that accepts the key of [`TestSshd::identity`].
    ///
    /// # Panics
    /// If OpenSSH's server is not installed or does not start.
    pub fn start() -> Self {
        TestSshd::with_config("")
    }

    /// Starts a server with more lines of configuration, which win over the default ones.
    ///
    /// # Panics
    /// As [`TestSshd::start`].
    pub fn with_config(lines: &str) -> Self {
        let directory = tempfile::Builder::new().prefix("orrery-sshd.").tempdir().unwrap();
        let mut sshd = TestSshd { directory, port: 0, user: account(), running: None };
        keygen(&["-t", "ed25519", "-f", &sshd.path("host_key")]);
        keygen(&["-t", "ed25519", "-f", &sshd.path("identity")]);
        fs::copy(sshd.path("identity.pub"), sshd.path("authorized_keys")).unwrap();
        // Another process may take the port first.
        for _ in 0..5 {
            sshd.port = free_port();
            sshd.write_config(lines);
            if sshd.try_run() {
                return sshd;
            }
        }
        panic!("sshd did not start: {}", fs::read_to_string(sshd.path("log")).unwrap_or_default());
    }

    fn write_config(&self, lines: &str) {
        let own = self.directory.path().display();
        let port = self.port;
        let config = format!(
            "{lines}\nPort {port}\nListenAddress 127.0.0.1\nHostKey {own}/host_key\n\
             AuthorizedKeysFile {own}/authorized_keys\nPidFile none\nUsePAM no\nStrictModes no\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\n\
             PrintMotd no\nSubsystem sftp internal-sftp\n"
        );
        fs::write(self.path("config"), config).unwrap();
    }

    fn try_run(&mut self) -> bool {
        if self.user == "root" {
            // Its place for unprivileged processes; the package's service creates it.
            let _ = fs::create_dir_all("/run/sshd");
        }
        let mut child = Command::new("sh")
            .args(["-c", GUARD, "guard"])
            .arg(program())
            .arg(self.path("config"))
            .arg(self.path("log"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = child.stdout.take().unwrap();
        let mut byte = [0];
        while output.read(&mut byte).unwrap_or(0) == 1 && byte[0] != b'\n' {
            line.push(char::from(byte[0]));
        }
        let pid: u32 = line.trim().parse().unwrap();
        self.running = Some((child, pid));
        let deadline = Instant::now() + START_TIME;
        while Instant::now() < deadline {
            if self.answers() {
                return true;
            }
            if !Path::new(&format!("/proc/{pid}/exe")).exists() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.kill();
        false
    }

    fn answers(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)) else {
            return false;
        };
        let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
        let mut banner = [0; 4];
        let answers = stream.read_exact(&mut banner).is_ok() && &banner == b"SSH-";
        let _ = stream.write_all(b"SSH-2.0-probe\r\n");
        answers
    }

    /// Ends the server and all of its sessions at once, as a crash of the machine would.
    pub fn kill(&mut self) {
        let Some((mut child, pid)) = self.running.take() else { return };
        for process in with_descendants(pid) {
            let _ = Command::new("kill").args(["-KILL", &process.to_string()]).output();
        }
        drop(child.stdin.take());
        let _ = child.wait();
    }

    /// Starts the server again, on the same port and with the same keys.
    ///
    /// # Panics
    /// If it runs, or does not start.
    pub fn restart(&mut self) {
        assert!(self.running.is_none(), "sshd runs");
        assert!(self.try_run(), "sshd did not start again");
    }

    /// Replaces the host key; effective after a restart.
    pub fn replace_host_key(&self) {
        fs::remove_file(self.path("host_key")).unwrap();
        fs::remove_file(self.path("host_key.pub")).unwrap();
        keygen(&["-t", "ed25519", "-f", &self.path("host_key")]);
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Name of the account that runs the test.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Path of a file of the server.
    pub fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    /// Path of a private key that the server accepts.
    pub fn identity(&self) -> String {
        self.path("identity")
    }

    /// Line of `known_hosts` for the current host key.
    pub fn known_hosts_line(&self) -> String {
        let key = fs::read_to_string(self.path("host_key.pub")).unwrap();
        let words: Vec<&str> = key.split_whitespace().take(2).collect();
        format!("[127.0.0.1]:{} {}\n", self.port, words.join(" "))
    }

    /// Creates a file with the known host, and returns its path.
    pub fn known_hosts(&self) -> PathBuf {
        let path = PathBuf::from(self.path("known_hosts"));
        fs::write(&path, self.known_hosts_line()).unwrap();
        path
    }

    /// Address with the accepted key.
    pub fn address(&self) -> String {
        format!("ssh://{}@127.0.0.1:{}?identity={}", self.user, self.port, self.identity())
    }

    /// Messages of the server.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }
}

impl Drop for TestSshd {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs `ssh-keygen` without a passphrase.
pub fn keygen(arguments: &[&str]) {
    let output = Command::new("ssh-keygen")
        .args(["-q", "-N", ""])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("ssh-keygen is installed with openssh-client");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn program() -> &'static str {
    let places = ["/usr/sbin/sshd", "/usr/local/sbin/sshd", "/usr/bin/sshd"];
    let found = places.into_iter().find(|place| Path::new(place).exists());
    found.expect("tests over SSH need OpenSSH's server: install openssh-server")
}

fn account() -> String {
    let output = Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// Returns a process and all processes below it.
fn with_descendants(root: u32) -> Vec<u32> {
    let mut found = vec![root];
    let mut at = 0;
    let parents = parents();
    while at < found.len() {
        let parent = found[at];
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    found
}

/// Processes with their parents.
fn parents() -> Vec<(u32, u32)> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse() else { continue };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        // The name in parentheses may have spaces.
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
        if let Some(parent) = parent.and_then(|text| text.parse().ok()) {
            parents.push((pid, parent));
        }
    }
    parents
}
