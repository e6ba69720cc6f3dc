//! The compile service: from a git repository to a version, one compile at a time per environment.
//!
//! ```text
//!   change feed ─┐
//!   wake-ups ────┼──► service ──► run ──► git, then `orrery compile-job` as child processes
//!   timers ──────┘                 │        (code of tenants in a sandbox)
//!                                  └──► stages and output, a version or structured errors, in the store
//! ```
//!
//! The queue consists of request rows in the store only. A run belongs to the process that claimed
//! it last; when its heartbeat stops, another process repeats it. `backoff`, `schedule` and the
//! merging of requests (in the store) are pure.
//!
//! The service knows no API and no rule for versions: it hands them to the server that it gets as a
//! [`CompileContext`]. Start with [`CompileService`]. Tests are beside the code, and in
//! `crates/orrery/tests/it/compile_service`, with real repositories and processes.

mod backoff;
mod child;
mod commit_status;
mod confinement;
mod context;
mod credentials;
mod follower;
pub mod forge;
mod job;
mod memory_limit;
mod output_filter;
mod poll_schedule;
mod private_files;
mod recorder;
mod repository;
mod run;
mod schedule;
mod service;
mod ssh;
mod symlinks;
mod triggers;
mod untrusted_file;
mod workdir;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use orrery_roles::isolation::Isolation;
use orrery_roles::tls::Tls;

pub use context::{CompileContext, CompileMetrics, VersionError, VersionStorage};
pub use credentials::{CredentialChange, apply_credential_change, credential_change};
pub use follower::poll_now;
pub use job::{CompileJob, CompileStep, JOB_COMMAND, JobParameter, JobResult, JobServer};
pub use output_filter::redact_values;
pub use repository::{RepositoryError, check_repository, mask_password};
pub use service::CompileService;
pub use triggers::{Trigger, request_for_facts};

/// Address of this server, as passed to models.
#[derive(Clone, Debug)]
pub struct ServerAddress {
    pub host: String,
    pub port: u16,
    /// True if connections are encrypted.
    pub secure: bool,
    /// Certificate, if this process terminates TLS.
    pub tls: Option<Tls>,
}

impl ServerAddress {
    /// Derives the address from a listen address; wildcard and loopback addresses become
    /// `localhost`.
    pub fn from_listen(address: SocketAddr, tls: Option<Tls>) -> Self {
        let ip = address.ip();
        let host = match ip.is_unspecified() || ip.is_loopback() {
            true => "localhost".to_owned(),
            false => ip.to_string(),
        };
        ServerAddress { host, port: address.port(), secure: tls.is_some(), tls }
    }

    fn to_job_server(&self) -> JobServer {
        JobServer {
            host: self.host.clone(),
            port: self.port,
            tls: self.secure,
            ca: self.tls.as_ref().map_or_else(String::new, Tls::certificates),
        }
    }
}

/// Options of the compile service.
#[derive(Clone, Debug)]
pub struct CompileOptions {
    /// Directory for checkouts and virtualenvs. All of it can be recreated.
    pub data: PathBuf,
    /// Program that compiles: the running executable.
    pub program: PathBuf,
    /// Concurrent compiles over all environments.
    pub parallel: usize,
    /// Time limit of one compile.
    pub time_max: Duration,
    /// Private memory limit of each of its processes, in bytes.
    pub memory_max: Option<u64>,
    /// Disk quota of its code, in bytes.
    pub disk_max: u64,
    /// Nice value of compiles: 0 to 19.
    pub nice: u8,
    /// Variables for git, pip and the compiler, besides those inherited from the server.
    pub variables: BTreeMap<String, String>,
    pub server: ServerAddress,
    /// Isolation of tenant code.
    pub isolation: Isolation,
}

impl CompileOptions {
    /// Creates options with default limits.
    pub fn new(
        data: PathBuf,
        program: PathBuf,
        server: ServerAddress,
        isolation: Isolation,
    ) -> Self {
        let parallel = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        CompileOptions {
            data,
            program,
            parallel,
            time_max: Duration::from_secs(3600),
            memory_max: Some(4 << 30),
            disk_max: 4 << 30,
            nice: 5,
            variables: BTreeMap::new(),
            server,
            isolation,
        }
    }
}
