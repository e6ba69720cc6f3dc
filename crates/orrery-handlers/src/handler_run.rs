//! Inputs of a handler run: the run itself, and the services that it may use.

use std::fmt;
use std::sync::Arc;

use orrery_model::{LogLevel, Resource, ResourceId, Timestamp, VersionNumber};
use serde_json::{Map, Value};

use crate::error::HandlerError;
use crate::secrets::Secrets;
use crate::target::{CancelToken, ContentDigest};
use crate::target_cache::TargetCache;

/// Purpose of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Make the resource compliant, or report on it if its flags say so.
    Deploy,
    /// Report the changes that a deploy would make.
    DryRun,
    /// Read its facts.
    Facts,
}

/// Mode of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    #[default]
    Deploy,
    /// Report planned changes; change nothing.
    DryRun,
    /// Report compliance; never change anything.
    ReportOnly,
}

/// The handler run to execute.
#[derive(Clone, Copy)]
pub struct HandlerRun<'a> {
    pub purpose: Purpose,
    /// The caller ensures that its requirements are deployed, unless it is report-only.
    pub resource: &'a Resource,
    pub version: VersionNumber,
    /// Epoch of the lease under which it runs; `None` for dry runs.
    pub epoch: Option<u64>,
    /// True if an earlier run succeeded, with any attributes: one-time work is done then.
    pub deployed_before: bool,
    /// Requirements that send events and changed since the last success of this resource, or ever
    /// if it never succeeded; in a dry run also those that would change.
    pub changed_dependencies: &'a [ResourceId],
    /// Reason of the run, for people.
    pub reason: &'a dyn fmt::Display,
    /// Deadline and cancellation.
    pub stop: &'a CancelToken,
    /// Callback before the first change. Nothing may change if it fails.
    pub before_change: Option<BeforeChange<'a>>,
    /// Gate for effects that the handler itself declares as not to be repeated.
    pub effects: Option<EffectGate<'a>>,
}

impl HandlerRun<'_> {
    pub fn mode(&self) -> Mode {
        match self.purpose {
            Purpose::DryRun => Mode::DryRun,
            Purpose::Deploy | Purpose::Facts if self.resource.flags.report_only => Mode::ReportOnly,
            Purpose::Deploy | Purpose::Facts => Mode::Deploy,
        }
    }
}

impl fmt::Debug for HandlerRun<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HandlerRun({:?}, {}, {})", self.purpose, self.resource.id, self.reason)
    }
}

/// Services for a run, wherever its handler runs.
#[derive(Clone, Copy)]
pub struct RunContext<'a> {
    /// Cached data about the target.
    pub cache: &'a TargetCache,
    pub contents: &'a dyn Contents,
    /// Source of late-bound values.
    pub secrets: &'a dyn Secrets,
    /// Time source for log lines.
    pub clock: &'a (dyn Fn() -> Timestamp + Sync),
    /// Log lines below this level are dropped.
    pub log_level: LogLevel,
    /// Server of a run that happens on another machine; `None` where the engine is.
    pub server: Option<&'a dyn ServerCalls>,
}

impl fmt::Debug for RunContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunContext").field("log_level", &self.log_level).finish_non_exhaustive()
    }
}

/// File contents that resources name by digest.
pub trait Contents: Send + Sync {
    fn content(&self, digest: &ContentDigest) -> Result<Option<Arc<[u8]>>, HandlerError>;
}

/// No contents: resources contain theirs inline.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoContents;

impl Contents for NoContents {
    fn content(&self, _: &ContentDigest) -> Result<Option<Arc<[u8]>>, HandlerError> {
        Ok(None)
    }
}

/// Callback before the first change of a run: the last moment at which nothing has happened.
#[derive(Clone, Copy)]
pub struct BeforeChange<'a>(pub &'a dyn Fn() -> Result<(), HandlerError>);

impl fmt::Debug for BeforeChange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BeforeChange")
    }
}

/// Gate before effects that a handler declares, while it runs, as not to be repeated.
#[derive(Clone, Copy)]
pub struct EffectGate<'a> {
    /// An earlier run started such an effect, and its result was lost.
    pub is_unknown: bool,
    /// Records durably that an effect starts.
    pub begin: &'a dyn Fn() -> Result<(), HandlerError>,
}

impl fmt::Debug for EffectGate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EffectGate").field("is_unknown", &self.is_unknown).finish_non_exhaustive()
    }
}

/// Reply to a call: a status as in HTTP, and a result.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerReply {
    pub status: u16,
    pub result: Value,
}

/// Calls of a handler on another machine to the server of its run.
pub trait ServerCalls: Send + Sync {
    /// Makes a call, and waits for the reply.
    ///
    /// # Errors
    /// If the run ends before the reply, or there is none in time.
    fn call(
        &self,
        method: &str,
        arguments: Map<String, Value>,
    ) -> Result<ServerReply, HandlerError>;
}

/// A part of a file of code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodePart {
    /// Size of the whole file.
    pub size: u64,
    pub content: Vec<u8>,
}

/// Code of a handler that can run on another machine, and the services it expects there.
pub trait PortableCode: Send + Sync {
    /// Returns the SHA-256 of the description of the code, in hexadecimal digits.
    ///
    /// # Errors
    /// If the code cannot be read.
    fn digest(&self) -> Result<String, HandlerError>;

    /// Environment that the code belongs to: a UUID.
    fn environment(&self) -> &str;

    /// Returns a part of the description or of a file of the code, by SHA-256; `None` for all
    /// other digests.
    ///
    /// # Errors
    /// If the code cannot be read.
    fn read(
        &self,
        digest: &str,
        offset: u64,
        bytes_max: usize,
    ) -> Result<Option<CodePart>, HandlerError>;

    /// Answers a call of the handler. `changed` is true if a requirement has changed.
    fn answer(&self, method: &str, arguments: &Map<String, Value>, changed: bool) -> ServerReply;
}
