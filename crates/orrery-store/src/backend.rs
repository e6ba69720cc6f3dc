//! Operations that each database implements itself.

use std::collections::BTreeMap;

use orrery_model::{Timestamp, VersionNumber};

use crate::sql::Database;
use crate::{
    Action, ActionKey, AgentState, ContentHash, EnvironmentInfo, EnvironmentKey, Holder, Lease,
    LeaseRequest, NewRequest, NewVersion, ParameterEffect, ParameterSource, PoolStatus, PutOutcome,
    RenewalOutcome, RequestRecord, ResourceDiff, ResourceFilter, ResourceOverview, ResourcePage,
    ResourceRow, Result, ResultBatch, StartedAction, StateRecord, StateRow, StoredParameter,
    UndefinedParameter, VersionInfo,
};

/// A database. Callers use [`crate::Store`], which groups these operations by noun.
///
/// Every method that writes is one transaction: when it returns, the change is on disk; when it
/// fails, nothing is changed. Methods block, and may be called from any thread. A visitor must not
/// call the store: the implementation may hold its only connection meanwhile.
pub(crate) trait Backend: Database + Send + Sync {
    /// Connections to a database server; `None` for a store without a server.
    fn connections(&self) -> Option<PoolStatus> {
        None
    }

    /// Name of the database for people, without the password; `None` for a file.
    fn database_name(&self) -> Option<&str> {
        None
    }

    // Environments.

    /// The environment of a store that has only one; created at the first call.
    fn default_environment(&self) -> Result<EnvironmentKey>;
    /// Creates an environment, and its project if it does not exist.
    fn create_environment(&self, project: &str, name: &str) -> Result<EnvironmentInfo>;
    fn settings(&self, environment: EnvironmentKey) -> Result<BTreeMap<String, serde_json::Value>>;
    /// Sets a value; `None` restores the default.
    fn set_setting(
        &self,
        environment: EnvironmentKey,
        name: &str,
        value: Option<&serde_json::Value>,
    ) -> Result<()>;

    // Leases.

    /// Acquires the lease, with a new epoch, unless another process holds it.
    fn acquire_lease(&self, environment: EnvironmentKey, request: &LeaseRequest) -> Result<Lease>;
    /// Renews leases that expire, all in one step; returns those that are not renewed.
    fn renew_leases(&self, leases: &[Lease], expires: Timestamp) -> Result<RenewalOutcome>;
    /// Releases the lease. Later writes under it are refused. A power failure right afterwards may
    /// undo the release, but then the holder has ended, too.
    fn release_lease(&self, lease: &Lease) -> Result<()>;
    /// Current holder of the lease.
    fn lease_holder(&self, environment: EnvironmentKey) -> Result<Option<Holder>>;

    // Versions.

    /// Reserves the next version number. Gaps are normal.
    fn reserve_version(&self, environment: EnvironmentKey) -> Result<VersionNumber>;
    /// Stores a version. Resources that equal those of the newest version are shared with it.
    fn put_version(
        &self,
        environment: EnvironmentKey,
        version: &NewVersion<'_>,
    ) -> Result<PutOutcome>;
    /// Makes a version the desired state.
    fn release_version(
        &self,
        environment: EnvironmentKey,
        number: VersionNumber,
        now: Timestamp,
    ) -> Result<()>;
    /// Releases a version, if it is not released yet, and adds a request to its engine, in one
    /// transaction: a reader sees both or neither.
    fn release_with_request(
        &self,
        environment: EnvironmentKey,
        number: VersionNumber,
        request: &NewRequest<'_>,
        now: Timestamp,
    ) -> Result<RequestRecord>;
    /// Versions by ascending number.
    fn versions(&self, environment: EnvironmentKey) -> Result<Vec<VersionInfo>>;
    /// Visits the resources of a version in the order of their ids.
    fn read_version(
        &self,
        environment: EnvironmentKey,
        number: VersionNumber,
        visit: &mut dyn FnMut(ResourceRow<'_>),
    ) -> Result<VersionInfo>;
    /// Visits the differences in the order of ids. Source locations do not count.
    fn diff_versions(
        &self,
        environment: EnvironmentKey,
        from: VersionNumber,
        to: VersionNumber,
        visit: &mut dyn FnMut(ResourceDiff),
    ) -> Result<()>;
    fn unknowns(
        &self,
        environment: EnvironmentKey,
        number: VersionNumber,
    ) -> Result<Vec<(UndefinedParameter, bool)>>;
    /// Deletes a version and everything that only it refers to. Refuses the processed version and
    /// the newest released one.
    fn delete_version(&self, environment: EnvironmentKey, number: VersionNumber) -> Result<()>;
    /// Deletes the oldest versions until `keep` are left, except those in use. Returns the deleted
    /// ones.
    fn retain_versions(
        &self,
        environment: EnvironmentKey,
        keep: usize,
    ) -> Result<Vec<VersionNumber>>;

    // The engine: its writes carry its lease.

    /// Returns actions that began and never ended, and adds an entry for each to its resource's
    /// log. Until this is called, their resources are read as `deploying`.
    fn recover_actions(&self, lease: &Lease) -> Result<Vec<StartedAction>>;
    /// Records that actions begin, before they have any effect. `recover_actions` finds only these.
    fn begin_actions(&self, lease: &Lease, actions: &[StartedAction]) -> Result<()>;
    /// Stores a batch of results, with their consequences for effects that must not be repeated.
    fn record_batch(&self, lease: &Lease, recording: &ResultBatch<'_>) -> Result<ParameterEffect>;
    /// Records that a version was processed, with all states that this changed.
    fn process_version(
        &self,
        lease: &Lease,
        number: VersionNumber,
        states: &[StateRecord<'_>],
    ) -> Result<()>;
    /// Actions that have begun and have no recorded end.
    fn running_actions(&self, environment: EnvironmentKey) -> Result<Vec<StartedAction>>;
    /// Version from which the engine continues after a restart.
    fn processed_version(&self, environment: EnvironmentKey) -> Result<Option<VersionNumber>>;
    /// Visits the stored states in the order of ids. A resource without one is new:
    /// `ResourceState::new`.
    fn read_states(
        &self,
        environment: EnvironmentKey,
        visit: &mut dyn FnMut(StateRow<'_>),
    ) -> Result<()>;
    /// Deletes actions that finished before `before`. Returns their number.
    fn expire_actions(&self, lease: &Lease, before: Timestamp) -> Result<u64>;

    // Queries.

    /// Lists resources in the order of their ids, after the id `after`.
    fn list_resources(
        &self,
        environment: EnvironmentKey,
        filter: &ResourceFilter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<ResourcePage>;
    fn find_resource(
        &self,
        environment: EnvironmentKey,
        id: &str,
    ) -> Result<Option<ResourceOverview>>;
    /// Desired state of a resource in the newest version that has it.
    fn read_resource(
        &self,
        environment: EnvironmentKey,
        id: &str,
    ) -> Result<Option<orrery_model::Resource>>;
    /// Latest actions on a resource before `before`, latest first.
    fn actions(
        &self,
        environment: EnvironmentKey,
        id: &str,
        before: Option<ActionKey>,
        limit: usize,
    ) -> Result<Vec<Action>>;

    // Agents.

    fn agents(&self, environment: EnvironmentKey) -> Result<Vec<AgentState>>;
    /// Pauses or resumes an agent; `None` stands for every agent.
    fn set_paused(
        &self,
        environment: EnvironmentKey,
        agent: Option<&str>,
        paused: bool,
    ) -> Result<()>;

    // Parameters and facts.

    fn parameters(&self, environment: EnvironmentKey) -> Result<Vec<StoredParameter>>;
    fn facts(&self, environment: EnvironmentKey, id: &str) -> Result<Vec<StoredParameter>>;
    fn set_parameter(
        &self,
        environment: EnvironmentKey,
        name: &str,
        value: &str,
        source: ParameterSource,
        now: Timestamp,
    ) -> Result<ParameterEffect>;

    // Contents of files.

    /// The given hashes without stored content.
    fn missing_files(&self, hashes: &[ContentHash]) -> Result<Vec<ContentHash>>;
    fn put_files(&self, files: &[(ContentHash, &[u8])]) -> Result<()>;
    fn file(&self, hash: &ContentHash) -> Result<Option<Vec<u8>>>;

    /// Checks the consistency of everything stored. Returns the problems found. Slow.
    fn check(&self) -> Result<Vec<String>>;
}
