//! The compile service: from a git repository to a version, for each environment one compile at a time.
//!
//! ```text
//!   change feed ─┐
//!   nudges ──────┼──► service ──► run ──► git, then `orrery compile-job` as child processes
//!   timers ──────┘                 │        (code of tenants in a sandbox)
//!                                  └──► stages and output, a version or structured errors, in the store
//! ```
//!
//! Requests are rows of the store, and the queue is nothing else. A run belongs to whoever claimed it last; when that one is not
//! heard of any more, somebody does it again. `backoff`, `schedule` and the merging of requests (in the store) are pure.

mod backoff;
mod child;
mod commit_status;
mod confining;
mod credentials;
mod follower;
mod handover;
mod job;
mod links;
mod memory;
mod outcome;
mod place;
mod polling;
mod recorder;
mod repository;
mod requests;
mod run;
mod schedule;
mod scratch;
mod service;
mod ssh;
mod text;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use credentials::{CredentialChange, credential_change, keep_credential};
pub(crate) use follower::look_now;
pub use job::{JOB_COMMAND, Job, JobParameter, JobResult, JobServer, Task};
pub(crate) use repository::without_password;
pub use repository::{RepositoryError, check_repository};
pub use requests::{Trigger, facts_became_known, request_for_values};
pub use service::CompileService;
pub(crate) use text::without_values;

use crate::isolation::Isolation;
use crate::tls::Tls;

/// Where this server is reached, as models are told.
#[derive(Clone, Debug)]
pub struct ServerAddress {
    pub host: String,
    pub port: u16,
    /// Connections are encrypted.
    pub secure: bool,
    /// With this certificate, if it is this process that is reached.
    pub tls: Option<Tls>,
}

impl ServerAddress {
    /// A server that listens at an address. Who listens everywhere, or on the own machine only, is `localhost`.
    pub fn of(address: SocketAddr, tls: Option<Tls>) -> Self {
        let ip = address.ip();
        let host = match ip.is_unspecified() || ip.is_loopback() {
            true => "localhost".to_owned(),
            false => ip.to_string(),
        };
        ServerAddress { host, port: address.port(), secure: tls.is_some(), tls }
    }

    fn told(&self) -> JobServer {
        JobServer {
            host: self.host.clone(),
            port: self.port,
            tls: self.secure,
            ca: self.tls.as_ref().map_or_else(String::new, Tls::certificates),
        }
    }
}

/// How the compile service works.
#[derive(Clone, Debug)]
pub struct CompileOptions {
    /// Where checkouts and what they need are kept. All of it can be made again.
    pub data: PathBuf,
    /// The program that compiles: this one.
    pub program: PathBuf,
    /// How many compiles may run at once, over all environments.
    pub parallel: usize,
    /// How long one compile may take.
    pub time_max: Duration,
    /// How much private memory each of its processes may have, in bytes.
    pub memory_max: Option<u64>,
    /// How many bytes its code may write to the disk.
    pub disk_max: u64,
    /// How much other programs go before compiles: 0 to 19.
    pub nice: u8,
    /// Set for git, pip and the compiler, besides what they get from the server's own environment.
    pub variables: BTreeMap<String, String>,
    pub server: ServerAddress,
    /// Where code of environments runs.
    pub isolation: Isolation,
}

impl CompileOptions {
    /// The usual limits.
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
