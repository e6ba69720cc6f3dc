//! What goes into the store and comes out of it. The words themselves are those of `orrery_model`; here are
//! the keys, the records and the rows.

use orrery_model::{
    AttributeHash, Change, Fact, LogLevel, LogLine, OutcomeStatus, Resource, ResourceFlags,
    ResourceId, ResourceState, SetName, Source, Status, Timestamp, VersionNumber,
};

use crate::Holder;

/// An environment within one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EnvironmentKey(pub(crate) i64);

impl EnvironmentKey {
    /// The place of what belongs to the installation itself: no environment ever has this number.
    pub const NONE: EnvironmentKey = EnvironmentKey(-1);

    /// The number of its row. It is never given to another environment while there is something of this one.
    pub fn number(self) -> i64 {
        self.0
    }
}

/// A resource within one store: the same for all versions as long as one of them has it. Keys are given in
/// the order of ids when a version brings many new resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceKey(pub(crate) i64);

/// An action within one store; a later one is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ActionKey(pub i64);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    pub key: EnvironmentKey,
    pub uuid: [u8; 16],
    pub project: String,
    pub name: String,
}

/// The right to act for an environment. Every write of an engine carries it; one with an older epoch is refused.
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

/// Which resources a put says everything about.
#[derive(Clone, Copy, Debug)]
pub enum Scope<'a> {
    /// All: what is not given is removed.
    All,
    /// These sets: their resources that are not given are removed. Resources given for other sets are added, or
    /// replace their namesakes; everything else stays as in the newest version.
    Sets(&'a [SetName]),
}

/// A version to be stored.
#[derive(Clone, Copy, Debug)]
pub struct NewVersion<'a> {
    /// A reserved number; `None` takes the next one.
    pub number: Option<VersionNumber>,
    pub made_at: Timestamp,
    /// Who or what made it, for people.
    pub info: &'a serde_json::Value,
    pub scope: Scope<'a>,
    /// The version that was the newest when this one was worked out; if another one is by now, nothing is stored. `None` if
    /// that does not matter.
    pub base: Option<VersionNumber>,
    /// Fastest in the order of their ids.
    pub resources: &'a [Resource],
    pub unknowns: &'a [Unknown],
    pub released: bool,
    /// Store nothing and answer with the newest version if that has the same resources.
    pub only_if_changed: bool,
    /// The lease of the engine that writes it; `None` for intent that comes from outside.
    pub lease: Option<&'a Lease>,
    /// The project that it belongs to; `None` if its sender does not say.
    pub project: Option<ProjectBinding<'a>>,
}

/// The project of a version, and what that means to an environment that is bound to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProjectBinding<'a> {
    /// Binds an environment that is not bound; one that is bound to another project is refused.
    Bind(&'a str),
    /// Refuses an environment that is bound to another project, and binds none.
    Check(&'a str),
    /// Takes the environment over, whatever it is bound to.
    Rebind(&'a str),
    /// Leaves the environment bound to none.
    Unbind,
}

/// Connections of one process to a database server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connections {
    /// Those that exist or are being made.
    pub open: usize,
    /// Those of them that nobody uses.
    pub idle: usize,
    pub max: usize,
}

/// What a put did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutVersion {
    pub number: VersionNumber,
    /// False if nothing had to be stored, and `number` is the newest version from before.
    pub created: bool,
    /// Keys of the given resources, in their order.
    pub keys: Vec<ResourceKey>,
    pub added: u64,
    pub changed: u64,
    pub removed: u64,
    /// Resources of the version.
    pub total: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct VersionInfo {
    pub number: VersionNumber,
    pub made_at: Timestamp,
    pub released: bool,
    /// When that was; there if it is released.
    pub released_at: Option<Timestamp>,
    pub info: serde_json::Value,
    pub total: u64,
    /// Against the version that was the newest when this one was stored.
    pub added: u64,
    pub changed: u64,
    pub removed: u64,
}

/// In the information on a version: patterns of agents that are the deploying machine, as the project declares them.
pub const LOCAL_AGENTS: &str = "local_agents";

/// The patterns in the information on a version.
pub fn local_agents(info: &serde_json::Value) -> Vec<String> {
    let patterns = info.get(LOCAL_AGENTS).and_then(serde_json::Value::as_array);
    let texts = patterns.into_iter().flatten().filter_map(serde_json::Value::as_str);
    texts.map(str::to_owned).collect()
}

/// In the information on a version: the number of resources that it removes. A version without them follows when they are gone.
pub const REMOVES: &str = "removes";

/// The number of resources that a version removes.
pub fn removes(info: &serde_json::Value) -> u64 {
    info.get(REMOVES).and_then(serde_json::Value::as_u64).unwrap_or(0)
}

/// One resource of a version, borrowed from the database for the time of a visit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResourceRow<'a> {
    pub key: ResourceKey,
    /// The text of its `ResourceId`.
    pub id: &'a str,
    pub hash: AttributeHash,
    pub flags: ResourceFlags,
    /// `None` is the shared set.
    pub set: Option<&'a str>,
    /// Canonical text.
    pub attributes: &'a str,
    /// In the order of ids. After a put of some sets, a key here may belong to a resource that another set no
    /// longer has; such a requirement counts as gone.
    pub requires: &'a [ResourceKey],
    /// Where a model last defined it, which may be a later version than the one that is read.
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
pub struct ResourceDifference {
    pub key: ResourceKey,
    pub id: ResourceId,
    /// At least one of the two is there.
    pub before: Option<Resource>,
    pub after: Option<Resource>,
}

/// The kept state of one resource, borrowed for the time of a visit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StateRow<'a> {
    pub key: ResourceKey,
    pub id: &'a str,
    pub state: &'a ResourceState,
}

/// A state to be kept.
#[derive(Clone, Copy, Debug)]
pub struct StateRecord<'a> {
    pub resource: ResourceKey,
    pub state: &'a ResourceState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ActionKind {
    Deploy,
    DryRun,
    /// The resource was asked for facts only.
    GetFacts,
    Other,
}

/// An action that is about to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Started {
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
    /// Whether the resource was meant not to exist.
    pub wants_absence: bool,
    pub log: &'a [LogLine],
}

/// All that is to be kept of one result. What is `None` or empty stays as it was. An action, or a state that is not
/// `deploying`, ends what `Store::begin` noted.
#[derive(Clone, Copy, Debug)]
pub struct ResultRecord<'a> {
    pub resource: ResourceKey,
    pub state: Option<&'a ResourceState>,
    pub action: Option<ActionRecord<'a>>,
    /// They are as old as the action; without one, they are new now.
    pub facts: &'a [Fact],
}

/// Results that are kept together, with what they mean for effects that must not be repeated.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recording<'a> {
    pub results: &'a [ResultRecord<'a>],
    /// Resources whose effect has ended, with the time at which the run began that says so.
    pub ended: &'a [(ResourceKey, Timestamp)],
    /// Resources of whose effect nobody knows whether it happened.
    pub unknown: &'a [ResourceKey],
    /// Nobody knows whether this was kept before: actions that are there already are not added again.
    pub again: bool,
}

/// One entry in the log of a resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Action {
    pub key: ActionKey,
    pub kind: ActionKind,
    pub version: VersionNumber,
    pub started: Timestamp,
    /// `None`, and no outcome: the engine ended before the action did.
    pub finished: Option<Timestamp>,
    pub outcome: Option<OutcomeStatus>,
    pub change: Change,
    pub log: Vec<LogLine>,
}

impl Action {
    /// The line that says why the run did not end well: its last complaint, or its last line.
    pub fn complaint(&self) -> Option<&LogLine> {
        let complaint = self.log.iter().rfind(|line| line.level >= LogLevel::Warning);
        complaint
            .or_else(|| self.log.last().filter(|_| self.outcome != Some(OutcomeStatus::Deployed)))
    }

    /// What a line suggests to do, if one does.
    pub fn hint(&self) -> Option<&str> {
        self.log.iter().rev().find_map(|line| line.values.get("hint")?.as_str())
    }

    /// The requirements that a skipped resource waits for.
    pub fn blocked_by(&self) -> Vec<&str> {
        let is_skipped = self.outcome == Some(OutcomeStatus::SkippedForDependency);
        let line = self.complaint().filter(|_| is_skipped);
        let resources = line.and_then(|line| line.values.get("resources")?.as_array());
        resources.into_iter().flatten().filter_map(serde_json::Value::as_str).collect()
    }
}

/// Which resources to list. Everything that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceFilter {
    pub agent: Option<String>,
    /// The entity: `std::File`.
    pub entity: Option<String>,
    /// A pattern for the value of the identifying attribute: `*` is any text, `?` any one character.
    pub value: Option<String>,
    /// Any of these; empty for all but orphans.
    pub statuses: Vec<Status>,
}

/// One line of a list of resources.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceSummary {
    pub key: ResourceKey,
    pub id: ResourceId,
    pub status: Status,
    pub state: ResourceState,
    pub source: Option<Source>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ResourcePage {
    pub resources: Vec<ResourceSummary>,
    /// Where the next page continues; `None` if this was the last.
    pub next: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
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
pub struct Parameter {
    pub name: String,
    pub value: String,
    /// `None` for a parameter.
    pub resource: Option<ResourceId>,
    pub source: ParameterSource,
    pub updated: Timestamp,
    pub expires: bool,
    /// What whoever set it says about it.
    pub metadata: serde_json::Map<String, serde_json::Value>,
}

/// Something that a compile could not know.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unknown {
    pub name: String,
    /// The resource whose fact it is; `None` for a parameter.
    pub resource: Option<ResourceId>,
    /// What would tell: `fact`, `plugin`, `user`.
    pub source: String,
}

/// What a new value did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParameterEffect {
    /// Values that are new or differ from before.
    pub changed: usize,
    /// Unknowns that are known now: reasons to compile again.
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
    /// Reads 40 hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        let is_hash = text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let mut hash = [0; 20];
        for (at, byte) in hash.iter_mut().enumerate().filter(|_| is_hash) {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
        }
        is_hash.then_some(ContentHash(hash))
    }

    /// As hexadecimal digits.
    pub fn to_hex(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// A wish to act for an environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRequest {
    pub holder: Holder,
    pub now: Timestamp,
    /// When others may take it if it was not renewed; `None` for when its holder is gone. Where nobody can know that, because
    /// several machines share the store, it lasts a minute.
    pub expires: Option<Timestamp>,
}

/// Leases that are not renewed, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Renewal {
    /// Somebody else has the right now, or nobody.
    pub lost: Vec<Lease>,
    /// The store is busy with what is written under them. They are to be renewed soon.
    pub busy: Vec<Lease>,
}
