//! The remote agent: connects to a gateway, receives self-contained commands, runs handlers on its
//! machine, and returns results. It never initiates anything: the calls of a running command belong
//! to that command.
//!
//! Start from [`protocol`], which the gateway shares, then [`AgentProcess`] (the process), [`join`]
//! (enrolment) and [`runner::Runner`] (execution of commands). A machine without an agent runs
//! [`once`], which [`helper`] uploads and starts. It knows nothing of stores,
//! environments or models. Tests: at the end of the files, and in `tests/it` against a small
//! gateway.

mod address;
mod agent;
mod agent_command;
pub mod calls;
#[cfg(feature = "cli")]
pub mod cli;
mod code_runner;
mod convert;
mod enrolment;
mod gateway_client;
pub mod helper;
pub mod idle_timeout;
pub mod journal;
mod machine;
pub mod once;
mod policy;
mod policy_target;
pub mod protocol;
pub mod runner;
mod session;
mod state;
mod tls;
pub mod token;

pub use address::{DEFAULT_PORT, GatewayAddress, InvalidAddress};
pub use agent::{AgentError, AgentProcess, REVOKED_EXIT_CODE, ReconnectBackoff};
pub use agent_command::AgentCommand;
pub use code_runner::CodeRunner;
pub use enrolment::{EnrolmentError, join, join_and_replace, offered_program};
pub use gateway_client::GatewayRequestError;
pub use policy::{Policy, PolicyError};
pub use session::SessionError;
pub use state::{AgentIdentity, StateDirectory, StateError};
pub use tls::AgentTlsError;
