//! Forges, the services that host repositories: what they tell a server by webhooks, and what they are told about commits.

mod status;
mod webhook;

pub(crate) use status::{Forge, Report, ReportError, Reporter, api_base, may_be_told, path_of};
pub(crate) use webhook::{Event, Signature, read_event};
