//! State of the engine of an environment: its writes carry its lease.

use orrery_model::{Timestamp, VersionNumber};

use crate::records::{Engine, Transactions as _};
use crate::{
    EnvironmentKey, Lease, ParameterEffect, Result, ResultBatch, ResultRecord, StartedAction,
    StateRecord, StateRow,
};

impl Engine<'_> {
    /// Returns actions that began and never ended, and adds an entry for each to its resource's
    /// log. Until this is called, their resources are read as `deploying`.
    ///
    /// # Errors
    /// `StaleEpoch` if the lease is not the current one.
    pub fn recover_actions(&self, lease: &Lease) -> Result<Vec<StartedAction>> {
        self.backend().recover_actions(lease)
    }

    /// Records that actions begin, before they have any effect. `recover_actions` finds only these.
    ///
    /// # Errors
    /// `StaleEpoch` if the lease is not the current one.
    pub fn begin_actions(&self, lease: &Lease, actions: &[StartedAction]) -> Result<()> {
        self.backend().begin_actions(lease, actions)
    }

    /// Stores a batch of results. Deletes facts of resources that were purged.
    ///
    /// # Errors
    /// As `record_batch`.
    pub fn record_results(
        &self,
        lease: &Lease,
        results: &[ResultRecord<'_>],
    ) -> Result<ParameterEffect> {
        self.record_batch(lease, &ResultBatch { results, ..ResultBatch::default() })
    }

    /// Stores a batch of results, with their consequences for effects that must not be repeated.
    ///
    /// # Errors
    /// `StaleEpoch` if the lease is not the current one.
    pub fn record_batch(&self, lease: &Lease, batch: &ResultBatch<'_>) -> Result<ParameterEffect> {
        self.backend().record_batch(lease, batch)
    }

    /// Records that a version was processed, with all states that this changed.
    ///
    /// # Errors
    /// `StaleEpoch` if the lease is not the current one; `NoVersion`.
    pub fn process_version(
        &self,
        lease: &Lease,
        number: VersionNumber,
        states: &[StateRecord<'_>],
    ) -> Result<()> {
        self.backend().process_version(lease, number, states)
    }

    /// Actions that have begun and have no recorded end.
    ///
    /// # Errors
    /// Database errors.
    pub fn running_actions(&self, environment: EnvironmentKey) -> Result<Vec<StartedAction>> {
        self.backend().running_actions(environment)
    }

    /// Version from which the engine continues after a restart.
    ///
    /// # Errors
    /// Database errors.
    pub fn processed_version(&self, environment: EnvironmentKey) -> Result<Option<VersionNumber>> {
        self.backend().processed_version(environment)
    }

    /// Visits the stored states in the order of ids. A resource without one is new:
    /// `ResourceState::new`. The visitor must not call the store.
    ///
    /// # Errors
    /// Database errors.
    pub fn read_states(
        &self,
        environment: EnvironmentKey,
        visit: &mut dyn FnMut(StateRow<'_>),
    ) -> Result<()> {
        self.backend().read_states(environment, visit)
    }

    /// Deletes actions that finished before `before`. Returns their number.
    ///
    /// # Errors
    /// `StaleEpoch` if the lease is not the current one.
    pub fn expire_actions(&self, lease: &Lease, before: Timestamp) -> Result<u64> {
        self.backend().expire_actions(lease, before)
    }
}
