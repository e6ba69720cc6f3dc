//! The remote agent: it dials in to a gateway, gets self-contained commands, runs native handlers on its machine, and answers. It never
//! initiates anything.
//!
//! Start from [`protocol`], which the gateway uses too, then [`Agent`] (the life of an agent), [`join`] (how it gets its certificate) and
//! [`running::Runner`] (what becomes of a command). It knows nothing of stores, environments or models. Tests: at the end of the files, and in `tests/it`
//! against a small gateway.

mod address;
mod agent;
mod asking;
mod clock;
mod enrolment;
mod errors;
pub mod journal;
mod machine;
pub mod protocol;
pub mod running;
mod session;
mod state;
mod tls;
pub mod token;
pub mod watched;
mod wire;

pub use address::{DEFAULT_PORT, GatewayAddress, InvalidAddress};
pub use agent::{Agent, AgentError, Pace};
pub use asking::AskError;
pub use enrolment::{EnrolmentError, join, join_instead};
pub use session::SessionError;
pub use state::{Identity, StateDirectory, StateError};
pub use tls::TlsError;
