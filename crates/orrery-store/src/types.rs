//! Keys, records and rows that go into and come out of the store. The domain types are those of
//! `orrery_model`.

use orrery_model::{
    AttributeHash, Change, Fact, LogLevel, LogLine, OutcomeStatus, Pattern, Resource,
    ResourceFlags, ResourceId, ResourceState, SetName, Source, Status, Timestamp, VersionNumber,
};

use crate::Holder;

/// Key of an environment within one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EnvironmentKey(pub(crate) i64);

impl EnvironmentKey {
    /// Key of records that belong to the installation itself. No environment ever has this number.
    pub const INSTALLATION: EnvironmentKey = EnvironmentKey(-1);

    /// Number of the environment's row. It is not reused while any row refers to this environment.
    pub fn number(self) -> i64 {
        self.0
    }
}

/// Key of a resource within one store: the same for all versions as long as one of them has it.
/// When a version adds many resources, keys are assigned in the order of ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceKey(pub(crate) i64);

impl ResourceKey {
    /// Parses the subject of a change of resources; `None` if it names none one by one.
    pub fn parse_list(subject: &str) -> Option<Vec<ResourceKey>> {
        let keys = subject.split(',').filter(|key| !key.is_empty());
        keys.map(|key| key.parse().ok().map(ResourceKey)).collect()
    }
}

/// Key of an action within one store; a later action has a greater key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ActionKey(pub i64);

/// Exclusive right to act for an environment. Every write of an engine carries it; a write with an
/// older epoch is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    pub(crate) environment: EnvironmentKey,
    pub(crate) epoch: u64,
}

impl Lease {
    pub fn environment(&self) -> EnvironmentKey {
        self.environment
    }

    pub fn epoch(&self) -> u64 {
        self.epoch
    }
}

/// Resources that a put replaces completely.
#[derive(Clone, Copy, Debug)]
pub enum PutScope<'a> {
    /// All resources: those not given are removed.
    All,
    /// These sets: their resources that are not given are removed. Resources given for other sets
    /// are added, or replace resources of the same id. Everything else stays as in the newest
    /// version.
    Sets(&'a [SetName]),
}

/// State of the connection to a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionPhase {
    Connected,
    /// The connection exists, and the machine does not answer.
    Unresponsive,
    /// No connection, and none is needed.
    Idle,
    /// The last attempt failed.
    BackingOff,
    /// Several attempts in a row failed.
    CircuitOpen,
}

/// A version to be stored.
#[derive(Clone, Copy, Debug)]
pub struct NewVersion<'a> {
    /// A reserved number; `None` uses the next one.
    pub number: Option<VersionNumber>,
    pub made_at: Timestamp,
    /// Origin of the version, for people.
    pub info: &'a serde_json::Value,
    pub scope: PutScope<'a>,
    /// The newest version when this one was computed. If another version is the newest by now,
    /// nothing is stored. `None` skips the check.
    pub base: Option<VersionNumber>,
    /// Resources of the version. Fastest if sorted by id.
    pub resources: &'a [Resource],
    pub unknowns: &'a [UndefinedParameter],
    pub released: bool,
    /// Stores nothing and returns the newest version if that has the same resources.
    pub only_if_changed: bool,
    /// The lease of the writing engine; `None` for intent from outside.
    pub lease: Option<&'a Lease>,
    /// The project of the version; `None` if the sender does not name one.
    pub project: Option<ProjectBinding<'a>>,
}

/// Project of a version, and the effect on an environment that is bound to another project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProjectBinding<'a> {
    /// Binds an unbound environment; refuses an environment that is bound to another project.
    Bind(&'a str),
    /// Refuses an environment that is bound to another project, and binds none.
    Check(&'a str),
    /// Binds the environment, even if it is bound to another project.
    Rebind(&'a str),
    /// Removes the environment's binding.
    Unbind,
}

/// Connections of one process to a database server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolStatus {
    /// Connections that exist or are being opened.
    pub open: usize,
    /// Open connections that are not in use.
    pub idle: usize,
    pub max: usize,
}

/// Result of a put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutOutcome {
    pub number: VersionNumber,
    /// False if nothing had to be stored; `number` is then the newest version from before.
    pub created: bool,
    /// Keys of the given resources, in their order.
    pub keys: Vec<ResourceKey>,
    pub added: u64,
    pub changed: u64,
    pub removed: u64,
    /// Number of resources of the version.
    pub total: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct VersionInfo {
    pub number: VersionNumber,
    pub made_at: Timestamp,
    pub released: bool,
    /// Time of the release; `None` if the version is not released.
    pub released_at: Option<Timestamp>,
    pub info: serde_json::Value,
    pub total: u64,
    /// Difference from the version that was the newest when this one was stored.
    pub added: u64,
    pub changed: u64,
    pub removed: u64,
}

/// Key in the information on a version: patterns of agents that are the deploying machine, as the
/// project declares them.
pub const LOCAL_AGENTS: &str = "local_agents";

/// Patterns of local agents in the information on a version.
pub fn local_agents(info: &serde_json::Value) -> Vec<String> {
    let patterns = info.get(LOCAL_AGENTS).and_then(serde_json::Value::as_array);
    let texts = patterns.into_iter().flatten().filter_map(serde_json::Value::as_str);
    texts.map(str::to_owned).collect()
}

/// Key in the information on a version: the SHA-1 of its inventory document, which is a content.
pub const INVENTORY: &str = "inventory";

/// Hash of the inventory in the information on a version.
pub fn inventory_hash(info: &serde_json::Value) -> Option<&str> {
    info.get(INVENTORY).and_then(serde_json::Value::as_str)
}

/// Key in the information on a version: the number of resources that it removes. A version without
/// them follows when they are removed.
pub const REMOVAL_COUNT: &str = "removes";

/// Number of resources that a version removes.
pub fn removal_count(info: &serde_json::Value) -> u64 {
    info.get(REMOVAL_COUNT).and_then(serde_json::Value::as_u64).unwrap_or(0)
}

/// One resource of a version, borrowed from the database during a visit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResourceRow<'a> {
    pub key: ResourceKey,
    /// Text of its `ResourceId`.
    pub id: &'a str,
    pub hash: AttributeHash,
    pub flags: ResourceFlags,
    /// `None` is the shared set.
    pub set: Option<&'a str>,
    /// Canonical text.
    pub attributes: &'a str,
    /// In the order of ids. After a put of some sets, a key may belong to a resource that another
    /// set no longer has; such a requirement counts as removed.
    pub requires: &'a [ResourceKey],
    /// Source location of the latest definition, which may belong to a later version than the one
    /// that is read.
    pub source: Option<SourceRow<'a>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceRow<'a> {
    pub file: &'a str,
    pub line: u32,
    pub column: u32,
}

/// A resource that differs between two versions.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceDiff {
    pub key: ResourceKey,
    pub id: ResourceId,
    /// At least one of `before` and `after` is `Some`.
    pub before: Option<Resource>,
    pub after: Option<Resource>,
}

/// Stored state of one resource, borrowed during a visit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StateRow<'a> {
    pub key: ResourceKey,
    pub id: &'a str,
    pub state: &'a ResourceState,
}

/// A state to be stored.
#[derive(Clone, Copy, Debug)]
pub struct StateRecord<'a> {
    pub resource: ResourceKey,
    pub state: &'a ResourceState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ActionKind {
    Deploy,
    DryRun,
    /// A run that only collected facts.
    GetFacts,
    Other,
}

/// An action that is about to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartedAction {
    pub resource: ResourceKey,
    pub kind: ActionKind,
    pub version: VersionNumber,
    pub at: Timestamp,
}

/// An action that has ended.
#[derive(Clone, Copy, Debug)]
pub struct ActionRecord<'a> {
    pub kind: ActionKind,
    pub version: VersionNumber,
    pub started: Timestamp,
    pub finished: Timestamp,
    pub outcome: OutcomeStatus,
    pub change: &'a Change,
    /// True if the intent was that the resource does not exist.
    pub wants_absence: bool,
    pub log: &'a [LogLine],
}

/// One result to be stored. Fields that are `None` or empty leave the stored value unchanged. An
/// action, or a state that is not `deploying`, ends what `Store::begin_actions` recorded.
#[derive(Clone, Copy, Debug)]
pub struct ResultRecord<'a> {
    pub resource: ResourceKey,
    pub state: Option<&'a ResourceState>,
    pub action: Option<ActionRecord<'a>>,
    /// Facts, dated by the action; without an action, by the current time.
    pub facts: &'a [Fact],
}

/// Results that are stored together, with their consequences for effects that must not be repeated.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResultBatch<'a> {
    pub results: &'a [ResultRecord<'a>],
    /// Resources with an ended effect, each with the start time of the reporting run.
    pub ended: &'a [(ResourceKey, Timestamp)],
    /// Resources with an unknown effect.
    pub unknown: &'a [ResourceKey],
    /// True if an earlier attempt may have stored this batch: actions that exist already are not
    /// added again.
    pub is_retry: bool,
}

/// One entry in the log of a resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Action {
    pub key: ActionKey,
    pub kind: ActionKind,
    pub version: VersionNumber,
    pub started: Timestamp,
    /// `None`, without an outcome, if the engine ended before the action did.
    pub finished: Option<Timestamp>,
    pub outcome: Option<OutcomeStatus>,
    pub change: Change,
    pub log: Vec<LogLine>,
}

impl Action {
    /// Log line that explains a failure: the last warning or error, or else the last line.
    pub fn failure_line(&self) -> Option<&LogLine> {
        let warning = self.log.iter().rfind(|line| line.level >= LogLevel::Warning);
        warning
            .or_else(|| self.log.last().filter(|_| self.outcome != Some(OutcomeStatus::Deployed)))
    }

    /// Remedy that a log line suggests, if any.
    pub fn hint(&self) -> Option<&str> {
        self.log.iter().rev().find_map(|line| line.values.get("hint")?.as_str())
    }

    /// Requirements that a skipped resource waits for.
    pub fn blocked_by(&self) -> Vec<&str> {
        let is_skipped = self.outcome == Some(OutcomeStatus::SkippedForDependency);
        let line = self.failure_line().filter(|_| is_skipped);
        let resources = line.and_then(|line| line.values.get("resources")?.as_array());
        resources.into_iter().flatten().filter_map(serde_json::Value::as_str).collect()
    }
}

/// Filter for resources. All given conditions must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceFilter {
    pub agent: Option<String>,
    /// The entity: `std::File`.
    pub entity: Option<String>,
    /// Pattern for the identifying value.
    pub value: Option<Pattern>,
    /// Any of these statuses; empty for all but orphans.
    pub statuses: Vec<Status>,
}

/// One line of a list of resources.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceOverview {
    pub key: ResourceKey,
    pub id: ResourceId,
    pub status: Status,
    pub state: ResourceState,
    pub source: Option<Source>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentState {
    pub name: String,
    pub paused: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParameterSource {
    Fact,
    Plugin,
    User,
    Report,
}

/// A parameter of an environment, or a fact of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredParameter {
    pub name: String,
    pub value: String,
    /// `None` for a parameter.
    pub resource: Option<ResourceId>,
    pub source: ParameterSource,
    pub updated: Timestamp,
    pub expires: bool,
    /// Metadata given by the writer of the value.
    pub metadata: serde_json::Map<String, serde_json::Value>,
}

/// A value that a compile could not resolve.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UndefinedParameter {
    pub name: String,
    /// The resource of a fact; `None` for a parameter.
    pub resource: Option<ResourceId>,
    /// Kind of source that would supply the value: `fact`, `plugin`, `user`.
    pub source: String,
}

/// Effect of storing values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParameterEffect {
    /// Values that are new or differ from before.
    pub changed: usize,
    /// Unknowns that are resolved now: reasons to recompile.
    pub resolved: usize,
}

impl std::ops::AddAssign for ParameterEffect {
    fn add_assign(&mut self, other: Self) {
        self.changed += other.changed;
        self.resolved += other.resolved;
    }
}

/// SHA-1 of a file's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentHash(pub [u8; 20]);

impl ContentHash {
    /// Parses 40 hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        let is_hash = text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let mut hash = [0; 20];
        for (at, byte) in hash.iter_mut().enumerate().filter(|_| is_hash) {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
        }
        is_hash.then_some(ContentHash(hash))
    }

    /// Hexadecimal digits of the hash.
    pub fn to_hex(self) -> String {
        orrery_base::hex::to_hex(&self.0)
    }
}

/// A hint to be added to the feed.
#[derive(Clone, Copy, Debug)]
pub struct NewChange<'a> {
    pub environment: Option<EnvironmentKey>,
    pub kind: &'a str,
    pub subject: &'a str,
    /// `None` for the database's current time.
    pub at: Option<Timestamp>,
}

/// Request for a lease of an environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRequest {
    pub holder: Holder,
    pub now: Timestamp,
    /// Time at which the lease expires unless it is renewed; `None` if it lasts as long as its
    /// holder. In a store that several machines share, the end of a holder cannot be detected, and
    /// `None` means one minute.
    pub expires: Option<Timestamp>,
}

/// Leases that were not renewed, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RenewalOutcome {
    /// Another process holds the lease now, or it was released.
    pub lost: Vec<Lease>,
    /// A transaction is writing under these leases. Renew them again soon.
    pub busy: Vec<Lease>,
}
