//! Runs on remote agents: builds self-contained commands and maps their results.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use orrery_model::{
    LogLevel, OfferedType, Outcome, OutcomeStatus, Resource, ResourceId, SecretText, Timestamp,
};

use super::secret_refs::{self, Redactor};
use super::{HandlerRun, RunContext, RunOutcome, outcome_without_run};
use crate::error::HandlerError;
use crate::handler::Handler;
use crate::handler_run::{Contents, PortableCode};
use crate::registry::Registry;

/// Limit of the contents of one command, in bytes.
const CONTENTS_MAX: usize = 40 * 1024 * 1024;

/// A remote agent that runs handlers.
pub trait Remote: Send + Sync {
    /// Executes a command and waits for its outcome, no longer than the task's `stop` allows. If
    /// the task has a `before_change` callback, it is called here before the first remote change,
    /// and again if a lost run is repeated.
    ///
    /// # Errors
    /// If it was not executed, or if that is unknown.
    fn run(&self, command: &RemoteCommand<'_>) -> Result<RunOutcome, RemoteError>;

    /// Resource types that the agent offers by itself.
    fn offered_types(&self) -> &[OfferedType] {
        &[]
    }

    /// Number of resources to verify before the run of this one; 0 if it is verified, or single
    /// runs are preferred.
    fn verify_max(&self, _next: &ResourceId) -> usize {
        0
    }

    /// Makes dry runs of resources that are about to run, in one exchange. A result replaces the
    /// run of an unchanged resource, once, within seconds, and only until something is changed
    /// through this remote. The handlers report no facts when nothing changes, and the runs need
    /// neither contents nor secrets.
    fn verify(&self, _runs: &[HandlerRun<'_>], _log_level: LogLevel) {}
}

/// A run with all its inputs, so the remote agent needs no further request.
pub struct RemoteCommand<'a> {
    pub run: HandlerRun<'a>,
    /// Contents that the resource names, by digest, as far as they are stored.
    pub contents: BTreeMap<String, Arc<[u8]>>,
    /// Secrets of the server's vault that the resource refers to, by name.
    pub secrets: BTreeMap<String, SecretText>,
    /// Handler log lines below this level are dropped.
    pub log_level: LogLevel,
    /// Code of a handler that is not built in.
    pub code: Option<RemoteCode<'a>>,
}

/// Code of the handler of a remote run.
#[derive(Clone)]
pub struct RemoteCode<'a> {
    /// SHA-256 of its description, in hexadecimal digits.
    pub digest: String,
    pub portable: &'a dyn PortableCode,
}

impl fmt::Debug for RemoteCode<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteCode({})", self.digest)
    }
}

impl fmt::Debug for RemoteCommand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteCommand({:?})", self.run)
    }
}

/// Reason for a missing remote outcome.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// Nothing was done.
    #[error("{}", not_connected(agent, *last_seen))]
    NotConnected { agent: String, last_seen: Option<Timestamp> },
    /// Nothing was done: no connection to the machine.
    #[error("{reason}")]
    Unreachable { reason: String, help: Option<String> },
    /// Nothing was done; may be retried soon.
    #[error("the remote agent {agent} is busy")]
    Busy { agent: String },
    /// Nothing was done.
    #[error("rejected by the remote agent: another server holds the lease of the environment")]
    Fenced,
    /// Nothing was done.
    #[error("rejected by the remote agent: {reason}")]
    Rejected { reason: String },
    /// The agent has no handler for the resource. Nothing was done.
    #[error("rejected by the remote agent: {reason}")]
    Unsupported { reason: String },
    /// The run was cancelled, and ended without a result.
    #[error("the run was cancelled")]
    Cancelled,
    /// Execution is unknown: none, partial or complete.
    #[error("{reason}: the effect is unknown; the next run starts by reading the current state")]
    Unknown { reason: String },
}

fn not_connected(agent: &str, last_seen: Option<Timestamp>) -> String {
    let seen = match last_seen {
        Some(at) => format!("it was last seen at {at}"),
        None => "it was never connected".to_owned(),
    };
    format!(
        "the remote agent {agent} is not connected; {seen}; start `orrery agent run` on its machine"
    )
}

impl RemoteError {
    fn status(&self) -> OutcomeStatus {
        match self {
            RemoteError::NotConnected { .. }
            | RemoteError::Unreachable { .. }
            | RemoteError::Unsupported { .. } => OutcomeStatus::Unavailable,
            RemoteError::Busy { .. } | RemoteError::Cancelled => OutcomeStatus::Skipped,
            RemoteError::Fenced | RemoteError::Rejected { .. } | RemoteError::Unknown { .. } => {
                OutcomeStatus::Failed
            }
        }
    }

    fn outcome(&self) -> Outcome {
        let status = self.status();
        let level =
            if status == OutcomeStatus::Skipped { LogLevel::Warning } else { LogLevel::Error };
        let mut outcome = outcome_without_run(status, level, self.to_string());
        if let RemoteError::Unreachable { help: Some(help), .. } = self
            && let Some(line) = outcome.log.first_mut()
        {
            line.values.insert("hint".to_owned(), help.as_str().into());
        }
        outcome
    }
}

impl HandlerRun<'_> {
    /// Runs the handler on a remote agent. Always returns an outcome, without secrets of the vault.
    pub fn run_remotely(
        self,
        registry: &Registry,
        remote: &dyn Remote,
        context: &RunContext<'_>,
    ) -> RunOutcome {
        let (command, redactor) = match build_command(self, registry, remote, context) {
            Ok(command) => command,
            Err(outcome) => return outcome.into(),
        };
        match remote.run(&command) {
            Ok(mut run_outcome) => {
                if let Some(redactor) = redactor {
                    run_outcome.outcome = redactor.redact(run_outcome.outcome);
                }
                run_outcome
            }
            Err(error) => {
                let unclear = matches!(error, RemoteError::Unknown { .. });
                RunOutcome { unclear, ..error.outcome().into() }
            }
        }
    }
}

/// Builds the command and the redactor of its result, or the outcome if that is impossible.
fn build_command<'a>(
    run: HandlerRun<'a>,
    registry: &'a Registry,
    remote: &dyn Remote,
    context: &RunContext<'_>,
) -> Result<(RemoteCommand<'a>, Option<Redactor>), Outcome> {
    let resource = run.resource;
    let failed = |text: String| outcome_without_run(OutcomeStatus::Failed, LogLevel::Error, text);
    let handler = find_handler(resource, registry, remote)?;
    let stored = secret_refs::stored_secrets(&resource.attributes, context.secrets)
        .map_err(|error| failed(error.to_string()))?;
    let (secrets, redactor) =
        stored.map_or_else(Default::default, |stored| (stored.secrets, Some(stored.redactor)));
    let contents = match handler {
        RemoteHandler::Native(handler) => contents(resource, handler, context.contents)
            .map_err(|error| failed(error.to_string()))?,
        RemoteHandler::Code(_) | RemoteHandler::Offered => BTreeMap::new(),
    };
    let code = match handler {
        RemoteHandler::Code(portable) => {
            let digest = portable.digest().map_err(|error| failed(error.to_string()))?;
            Some(RemoteCode { digest, portable })
        }
        RemoteHandler::Native(_) | RemoteHandler::Offered => None,
    };
    let size: usize = contents.values().map(|content| content.len()).sum();
    if size > CONTENTS_MAX {
        return Err(failed(format!(
            "content too large: {size} bytes; remote agents accept up to {CONTENTS_MAX}"
        )));
    }
    let log_level = context.log_level;
    Ok((RemoteCommand { run, contents, secrets, log_level, code }, redactor))
}

/// Handler of a run on a remote agent.
#[derive(Clone, Copy)]
enum RemoteHandler<'r> {
    Native(&'r dyn Handler),
    /// In code that the agent fetches.
    Code(&'r dyn PortableCode),
    /// Only its agent has one.
    Offered,
}

/// Returns the handler of a resource. Fails with the outcome of a resource that its agent cannot
/// handle.
fn find_handler<'r>(
    resource: &Resource,
    registry: &'r Registry,
    remote: &dyn Remote,
) -> Result<RemoteHandler<'r>, Outcome> {
    let entity = resource.id.entity();
    let refuse = |status, text: String| Err(outcome_without_run(status, LogLevel::Error, text));
    // Handlers in module code have no declaration here.
    let hosted = registry.handler(entity);
    let native = registry.declaration(entity).and(hosted).map(|handler| &**handler);
    let offered = remote.offered_types();
    if let Some(offered) = offered.iter().find(|offered| offered.entity == entity) {
        return match offered.check_resource(&resource.id, &resource.attributes) {
            Ok(()) => Ok(native.map_or(RemoteHandler::Offered, RemoteHandler::Native)),
            Err(error) => refuse(OutcomeStatus::Failed, error.to_string()),
        };
    }
    if let Some(native) = native {
        return Ok(RemoteHandler::Native(native));
    }
    if let Some(hosted) = hosted {
        if let Some(code) = hosted.portable_code() {
            return Ok(RemoteHandler::Code(code));
        }
        let text = format!(
            "the handler of {entity} runs only where the server runs handlers; assign the resource to an agent that is not remote"
        );
        return refuse(OutcomeStatus::Unavailable, text);
    }
    let agent = resource.id.agent();
    let names: Vec<&str> = offered.iter().map(|offered| &*offered.entity).collect();
    let offers = match &*names {
        [] => "it offers no types of its own".to_owned(),
        names => format!("it offers {}", names.join(", ")),
    };
    let text = format!(
        "there is no handler for {entity}: the remote agent {agent} does not offer it; {offers}"
    );
    refuse(OutcomeStatus::Unavailable, text)
}

/// Collects the contents that a run may need. A missing content is not an error: the run may not
/// need it.
fn contents(
    resource: &Resource,
    handler: &dyn Handler,
    contents: &dyn Contents,
) -> Result<BTreeMap<String, Arc<[u8]>>, HandlerError> {
    let mut found = BTreeMap::new();
    for digest in handler.named_contents(&resource.attributes) {
        if let Some(content) = contents.content(&digest)? {
            found.insert(digest.to_string(), content);
        }
    }
    Ok(found)
}
