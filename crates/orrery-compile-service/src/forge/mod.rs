//! Forges (services that host repositories): their webhooks, and commit statuses for them.

mod status;
mod webhook;

pub(crate) use status::{
    CommitReport, Forge, ReportError, Reporter, api_base, may_send_token, repository_path,
};
pub use webhook::{WebhookEvent, WebhookSignature, parse_event};
