//! A private PostgreSQL server for one test run, with a database for each test.
//!
//! The server is created on first use, in a new directory, with the programs of the machine. It
//! ends with the test process, also if that is killed: see `guard.sh`.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use orrery_base::lock::IgnorePoison;
use postgres::{Client, Config, NoTls};

const GUARD: &str = include_str!("guard.sh");

/// Time limit of the start: a new data directory takes seconds on a busy machine.
const START: Duration = Duration::from_secs(120);

/// Attempts to start: another process may take a free port in between.
const ATTEMPTS: u32 = 3;

/// A running server.
#[derive(Debug)]
pub struct Postgres {
    directory: PathBuf,
    port: u16,
    next: AtomicU32,
    /// Held while creating a database: the copied database must be unused meanwhile.
    creating: Mutex<()>,
    /// Guard process; the server ends when its input closes.
    _guard: Child,
}

/// A database of one test; it is dropped with this value.
#[derive(Debug)]
pub struct TestDatabase {
    server: &'static Postgres,
    name: String,
}

/// PEM files for a server with TLS.
#[derive(Clone, Copy, Debug)]
pub struct TlsFiles<'a> {
    pub certificate: &'a str,
    pub key: &'a str,
}

impl Postgres {
    /// Returns the server of this process.
    ///
    /// # Panics
    /// Panics if this machine has no PostgreSQL, or it does not start.
    pub fn shared() -> &'static Postgres {
        static SHARED: OnceLock<Postgres> = OnceLock::new();
        SHARED.get_or_init(|| {
            let programs = find_programs().expect(
                "PostgreSQL's server programs are needed: `.ci/setup tests` installs them, \
                 or ORRERY_POSTGRES_BIN names their directory",
            );
            for attempt in 1..=ATTEMPTS {
                match start(&programs) {
                    Ok(server) => return server,
                    Err(reason) if attempt == ATTEMPTS => {
                        panic!("PostgreSQL did not start: {reason}")
                    }
                    Err(_) => {}
                }
            }
            unreachable!("the last attempt answers")
        })
    }

    /// Creates an empty database.
    pub fn database(&'static self) -> TestDatabase {
        self.create("template0")
    }

    /// Creates a copy of another database, which must be unused.
    pub fn copy_of(&'static self, original: &TestDatabase) -> TestDatabase {
        self.create(&original.name)
    }

    fn create(&'static self, template: &str) -> TestDatabase {
        let name = format!("test_{}", self.next.fetch_add(1, Ordering::Relaxed));
        let _alone = self.creating.lock().ignore_poison();
        self.run(&format!("CREATE DATABASE {name} TEMPLATE {template}"));
        TestDatabase { server: self, name }
    }

    /// Runs a statement as the superuser.
    ///
    /// # Panics
    /// Panics if it fails.
    pub fn run(&self, statement: &str) {
        let done = self.connect("postgres").and_then(|mut client| client.batch_execute(statement));
        if let Err(error) = done {
            panic!("{statement}: {error:?}");
        }
    }

    /// Enables TLS with this certificate.
    ///
    /// # Panics
    /// Panics if the files cannot be written.
    pub fn encrypt(&self, files: TlsFiles<'_>) {
        // Written by the server itself, which may run as another user.
        let write = |name: &str, text: &str| {
            let mut client = self.connect("postgres").expect("a connection");
            let path = self.directory.join(name);
            let copy = format!(
                "COPY (SELECT unnest(string_to_array('{}', E'\\n'))) TO PROGRAM \
                 'umask 077 && cat > {}'",
                text.trim_end(),
                path.display()
            );
            client.batch_execute(&copy).expect("the server writes a file");
            self.run(&format!(
                "ALTER SYSTEM SET ssl_{}_file = '{}'",
                &name[..name.len() - 4],
                path.display()
            ));
        };
        write("cert.pem", files.certificate);
        write("key.pem", files.key);
        self.run("ALTER SYSTEM SET ssl = on");
        self.run("SELECT pg_reload_conf()");
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    fn connect(&self, database: &str) -> Result<Client, postgres::Error> {
        let mut config = Config::new();
        config.host_path(&self.directory).port(self.port).user("postgres").dbname(database);
        config.connect_timeout(Duration::from_secs(10));
        config.connect(NoTls)
    }
}

impl TestDatabase {
    /// URL over the server's socket.
    pub fn url(&self) -> String {
        let directory = self.server.directory.to_string_lossy().replace('/', "%2F");
        format!("postgres://postgres@{directory}:{}/{}", self.server.port, self.name)
    }

    /// URL over the loopback interface.
    pub fn tcp_url(&self, host: &str) -> String {
        format!("postgres://postgres@{host}:{}/{}", self.server.port, self.name)
    }

    /// URL through a local port, such as a proxy's.
    pub fn url_through(&self, port: u16) -> String {
        format!("postgres://postgres@127.0.0.1:{port}/{}", self.name)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn server(&self) -> &'static Postgres {
        self.server
    }

    /// Opens a connection for the test.
    ///
    /// # Panics
    /// Panics if the server refuses the connection.
    pub fn connect(&self) -> Client {
        self.server.connect(&self.name).expect("a connection to the private server")
    }

    /// Ends all connections, as a server restart does.
    pub fn cut_connections(&self) {
        self.server.run(&format!(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '{}'",
            self.name
        ));
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        // A panicking test must not panic again here; the database ends with the server anyway.
        if let Ok(mut client) = self.server.connect("postgres") {
            let _ = client.batch_execute(&format!("DROP DATABASE {} WITH (FORCE)", self.name));
        }
    }
}

/// Finds the newest PostgreSQL of this machine.
fn find_programs() -> Option<PathBuf> {
    let is_complete = |directory: &PathBuf| {
        ["initdb", "postgres"].iter().all(|name| directory.join(name).exists())
    };
    if let Some(given) = std::env::var_os("ORRERY_POSTGRES_BIN") {
        return Some(PathBuf::from(given)).filter(is_complete);
    }
    let installed = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = installed
        .filter_map(|entry| {
            let number: u32 = entry.file_name().to_str()?.parse().ok()?;
            Some((number, entry.path().join("bin")))
        })
        .filter(|(_, directory)| is_complete(directory))
        .max();
    let path = std::env::var_os("PATH").unwrap_or_default();
    newest
        .map(|(_, directory)| directory)
        .or_else(|| std::env::split_paths(&path).find(|directory| is_complete(directory)))
}

/// Returns true for root, which PostgreSQL refuses.
fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let user = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    user.is_some_and(|ids| ids.split_whitespace().nth(1) == Some("0"))
}

fn start(programs: &Path) -> Result<Postgres, String> {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let port = free.map_err(|error| error.to_string())?.port();
    let mut command = if is_root() {
        let mut command = Command::new("runuser");
        command.args(["-u", "postgres", "--", "sh"]);
        command
    } else {
        Command::new("sh")
    };
    command.args(["-c", GUARD, "guard"]).arg(programs).arg(port.to_string());
    // The other user may have no access to the current directory.
    command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut guard = command.spawn().map_err(|error| error.to_string())?;
    let mut line = String::new();
    if let Some(output) = guard.stdout.take() {
        BufReader::new(output).read_line(&mut line).map_err(|error| error.to_string())?;
    }
    if line.trim().is_empty() {
        return Err("initdb failed".to_owned());
    }
    let server = Postgres {
        directory: line.trim().into(),
        port,
        next: AtomicU32::new(1),
        creating: Mutex::default(),
        _guard: guard,
    };
    let began = Instant::now();
    loop {
        match server.connect("postgres") {
            Ok(_) => return Ok(server),
            Err(error) if began.elapsed() > START => return Err(error.to_string()),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
        let log = std::fs::read_to_string(server.directory.join("log")).unwrap_or_default();
        if log.contains("FATAL:  could not") || log.contains("database system is shut down") {
            return Err(log);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_are_separate_and_dropped() {
        let server = Postgres::shared();
        let (one, two) = (server.database(), server.database());
        one.connect().batch_execute("CREATE TABLE t (x int)").unwrap();
        assert!(two.connect().batch_execute("SELECT * FROM t").is_err());
        let copy = server.copy_of(&one);
        copy.connect().batch_execute("SELECT * FROM t").unwrap();
        let name = copy.name().to_owned();
        drop(copy);
        assert!(server.connect(&name).is_err());
        let mut held = one.connect();
        one.cut_connections();
        assert!(held.batch_execute("SELECT 1").is_err());
    }
}
