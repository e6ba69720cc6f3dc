//! The store as everybody else sees it.

use std::collections::BTreeMap;

use orrery_model::{ResourceId, Status, Timestamp, Version, VersionNumber};

use crate::{
    Action, ActionKey, Agent, Connections, ContentHash, Environment, EnvironmentKey, Holder, Lease,
    LeaseRequest, NewRequest, NewVersion, Parameter, ParameterEffect, ParameterSource, PutVersion,
    Recording, Renewal, RequestRecord, ResourceDifference, ResourceFilter, ResourceKey,
    ResourcePage, ResourceRow, ResourceSummary, Result, ResultRecord, Started, StateRecord,
    StateRow, StoreError, Unknown, VersionInfo,
};

/// Where all state lives.
///
/// Every method that writes is one transaction: when it answers, the change is on disk; when it fails,
/// nothing of it is. Methods block, and may be called from any thread. A visitor must not call the store:
/// the implementation may hold its only connection meanwhile.
pub trait Store: Send + Sync {
    /// How many connections to a database server there are; `None` if there is none.
    fn connections(&self) -> Option<Connections> {
        None
    }

    // Environments.

    /// The environment of a store that has only one; made when it is first asked for.
    fn default_environment(&self) -> Result<EnvironmentKey>;
    /// Makes an environment, and its project if there is none.
    fn create_environment(&self, project: &str, name: &str) -> Result<Environment>;
    fn environments(&self) -> Result<Vec<Environment>>;
    fn settings(&self, environment: EnvironmentKey) -> Result<BTreeMap<String, serde_json::Value>>;
    /// `None` goes back to the default.
    fn set_setting(
        &self,
        environment: EnvironmentKey,
        name: &str,
        value: Option<&serde_json::Value>,
    ) -> Result<()>;

    // Leases.

    /// Takes the right to act, with a new epoch, unless somebody has it.
    fn acquire_lease(&self, environment: EnvironmentKey, request: &LeaseRequest) -> Result<Lease>;
    /// Renews leases that have an end, all in one step; says which are not renewed.
    fn renew_leases(&self, leases: &[Lease], expires: Timestamp) -> Result<Renewal>;
    /// Gives the right back. Later writes under this lease are refused. A loss of power right after it may undo it:
    /// the holder is gone then, too.
    fn release_lease(&self, lease: &Lease) -> Result<()>;
    /// Who has the right now.
    fn lease_holder(&self, environment: EnvironmentKey) -> Result<Option<Holder>>;

    // Versions.

    /// Hands out the next number. Gaps are normal.
    fn reserve_version(&self, environment: EnvironmentKey) -> Result<VersionNumber>;
    /// Stores a version. What is the same as in the newest version is shared with it.
    fn put_version(
        &self,
        environment: EnvironmentKey,
        version: &NewVersion<'_>,
    ) -> Result<PutVersion>;
    /// Makes a version the one that is wanted.
    fn release_version(
        &self,
        environment: EnvironmentKey,
        number: VersionNumber,
        now: Timestamp,
    ) -> Result<()>;
    /// Makes a version the one that is wanted, if it is not yet, and asks its engine for something, in one transaction: whoever
    /// reads both finds both or neither.
    fn release_and_ask(
        &self,
        environment: EnvironmentKey,
        number: VersionNumber,
        request: &NewRequest<'_>,
        now: Timestamp,
    ) -> Result<RequestRecord>;
    /// By ascending number.
    fn versions(&self, environment: EnvironmentKey) -> Result<Vec<VersionInfo>>;
    /// Visits the resources of a version in the order of their ids.
    fn read_version(
        &self,
        environment: EnvironmentKey,
        number: VersionNumber,
        visit: &mut dyn FnMut(ResourceRow<'_>),
    ) -> Result<VersionInfo>;
    /// Visits what differs, in the order of ids. Places in the source do not count.
    fn diff_versions(
        &self,
        environment: EnvironmentKey,
        from: VersionNumber,
        to: VersionNumber,
        visit: &mut dyn FnMut(ResourceDifference),
    ) -> Result<()>;
    fn unknowns(
        &self,
        environment: EnvironmentKey,
        number: VersionNumber,
    ) -> Result<Vec<(Unknown, bool)>>;
    /// Deletes a version and what only it had. The processed and the newest released one are refused.
    fn delete_version(&self, environment: EnvironmentKey, number: VersionNumber) -> Result<()>;
    /// Deletes the oldest versions until `keep` are left, but none that is in use. Answers which.
    fn keep_versions(&self, environment: EnvironmentKey, keep: usize)
    -> Result<Vec<VersionNumber>>;

    // The engine: what it writes carries its lease.

    /// Actions that began and never ended, each of which now has an entry in its resource's log. Until this is called,
    /// their resources are read as `deploying`.
    fn recover(&self, lease: &Lease) -> Result<Vec<Started>>;
    /// Notes that actions begin, before they have any effect. Only these are found by `recover`.
    fn begin(&self, lease: &Lease, actions: &[Started]) -> Result<()>;
    /// Keeps a batch of results. Facts of resources that were purged are forgotten.
    fn record_results(
        &self,
        lease: &Lease,
        results: &[ResultRecord<'_>],
    ) -> Result<ParameterEffect> {
        self.record(lease, &Recording { results, ..Recording::default() })
    }
    /// The same, with what the results mean for effects that must not be repeated.
    fn record(&self, lease: &Lease, recording: &Recording<'_>) -> Result<ParameterEffect>;
    /// Notes that a version was processed, with all states that this changed.
    fn process_version(
        &self,
        lease: &Lease,
        number: VersionNumber,
        states: &[StateRecord<'_>],
    ) -> Result<()>;
    /// What has begun and whose end is not recorded.
    fn running(&self, environment: EnvironmentKey) -> Result<Vec<Started>>;
    /// Where the engine continues after a restart.
    fn processed_version(&self, environment: EnvironmentKey) -> Result<Option<VersionNumber>>;
    /// Visits the kept states in the order of ids. A resource without one is new: `ResourceState::new`.
    fn read_states(
        &self,
        environment: EnvironmentKey,
        visit: &mut dyn FnMut(StateRow<'_>),
    ) -> Result<()>;
    /// Forgets actions that finished before `before`. Answers how many.
    fn forget_actions(&self, lease: &Lease, before: Timestamp) -> Result<u64>;

    // What people ask.

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
    ) -> Result<Option<ResourceSummary>>;
    /// What the newest version that has it wants of a resource.
    fn read_resource(
        &self,
        environment: EnvironmentKey,
        id: &str,
    ) -> Result<Option<orrery_model::Resource>>;
    fn count_statuses(&self, environment: EnvironmentKey) -> Result<BTreeMap<Status, u64>> {
        let mut counts = BTreeMap::new();
        for count in self.records().count_resources(environment)? {
            *counts.entry(count.status).or_default() += count.count;
        }
        Ok(counts)
    }
    /// The latest actions on a resource, latest first, before `before`.
    fn actions(
        &self,
        environment: EnvironmentKey,
        id: &str,
        before: Option<ActionKey>,
        limit: usize,
    ) -> Result<Vec<Action>>;

    // Agents.

    fn agents(&self, environment: EnvironmentKey) -> Result<Vec<Agent>>;
    /// `None` stands for every agent.
    fn set_paused(
        &self,
        environment: EnvironmentKey,
        agent: Option<&str>,
        paused: bool,
    ) -> Result<()>;

    // Parameters and facts.

    fn parameters(&self, environment: EnvironmentKey) -> Result<Vec<Parameter>>;
    fn facts(&self, environment: EnvironmentKey, id: &str) -> Result<Vec<Parameter>>;
    fn set_parameter(
        &self,
        environment: EnvironmentKey,
        name: &str,
        value: &str,
        source: ParameterSource,
        now: Timestamp,
    ) -> Result<ParameterEffect>;

    // Contents of files.

    /// Those of the hashes whose content is not there.
    fn missing_files(&self, hashes: &[ContentHash]) -> Result<Vec<ContentHash>>;
    fn put_files(&self, files: &[(ContentHash, &[u8])]) -> Result<()>;
    fn file(&self, hash: &ContentHash) -> Result<Option<Vec<u8>>>;

    /// What a server keeps beside the state of deploys.
    fn records(&self) -> crate::Records<'_>;

    /// Reads everything and compares it with itself: problems found, none if all is well. Slow.
    fn check(&self) -> Result<Vec<String>>;
}

/// Reads a whole version into memory.
///
/// # Errors
/// As `Store::read_version`.
pub fn load_version(
    store: &dyn Store,
    environment: EnvironmentKey,
    number: VersionNumber,
) -> Result<Version> {
    let mut loader = crate::load::Loader::default();
    let info = store.read_version(environment, number, &mut |row| loader.add(row))?;
    Ok(Version { number, made_at: info.made_at, info: info.info, resources: loader.finish()? })
}

/// Keys of resources by their ids, for callers that did not put or read the version themselves.
///
/// # Errors
/// As `Store::find_resource`; `StoreError::NoResource` if one is not there.
pub fn keys_of<'a>(
    store: &dyn Store,
    environment: EnvironmentKey,
    ids: impl IntoIterator<Item = &'a ResourceId>,
) -> Result<BTreeMap<ResourceId, ResourceKey>> {
    let mut keys = BTreeMap::new();
    for id in ids {
        let found = store.find_resource(environment, id.as_str())?;
        let found = found.ok_or_else(|| StoreError::NoResource(id.to_string()))?;
        keys.insert(id.clone(), found.key);
    }
    Ok(keys)
}
