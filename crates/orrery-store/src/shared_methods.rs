//! Methods of `Backend` that both databases share: each is a transaction around a function of the
//! same name.

/// Methods that differ only in how a database runs transactions. A store that uses this has modules
/// with the functions, and the methods `read` (one snapshot, any number of statements), `read_once`
/// (a single statement), `write` (a transaction) and `transact` (a transaction of a request that
/// must be executed at most once).
macro_rules! impl_shared_methods {
    () => {
        fn default_environment(&self) -> Result<EnvironmentKey> {
            match self.read_once(environments::find_default)? {
                Some(key) => Ok(key),
                None => self.write(environments::create_default),
            }
        }

        fn create_environment(&self, project: &str, name: &str) -> Result<EnvironmentInfo> {
            self.transact(|tx| environments::create_environment(tx, project, name))
        }

        fn settings(
            &self,
            environment: EnvironmentKey,
        ) -> Result<BTreeMap<String, serde_json::Value>> {
            self.read_once(|tx| environments::settings(tx, environment))
        }

        fn set_setting(
            &self,
            environment: EnvironmentKey,
            name: &str,
            value: Option<&serde_json::Value>,
        ) -> Result<()> {
            self.transact(|tx| environments::set_setting(tx, environment, name, value))
        }

        fn reserve_version(&self, environment: EnvironmentKey) -> Result<VersionNumber> {
            self.write(|tx| put::reserve_version(tx, environment))
        }

        fn release_version(
            &self,
            environment: EnvironmentKey,
            number: VersionNumber,
            now: Timestamp,
        ) -> Result<()> {
            self.transact(|tx| release::release_version(tx, environment, number, now))
        }

        fn release_with_request(
            &self,
            environment: EnvironmentKey,
            number: VersionNumber,
            request: &NewRequest<'_>,
            now: Timestamp,
        ) -> Result<RequestRecord> {
            self.transact(|tx| release::release_with_request(tx, environment, number, request, now))
        }

        fn versions(&self, environment: EnvironmentKey) -> Result<Vec<VersionInfo>> {
            self.read_once(|tx| read::versions(tx, environment))
        }

        fn read_version(
            &self,
            environment: EnvironmentKey,
            number: VersionNumber,
            visit: &mut dyn FnMut(ResourceRow<'_>),
        ) -> Result<VersionInfo> {
            self.read(|tx| read::read_version(tx, environment, number, visit))
        }

        fn diff_versions(
            &self,
            environment: EnvironmentKey,
            from: VersionNumber,
            to: VersionNumber,
            visit: &mut dyn FnMut(ResourceDiff),
        ) -> Result<()> {
            self.read(|tx| read::diff_versions(tx, environment, from, to, visit))
        }

        fn unknowns(
            &self,
            environment: EnvironmentKey,
            number: VersionNumber,
        ) -> Result<Vec<(UndefinedParameter, bool)>> {
            self.read_once(|tx| parameters::unknowns(tx, environment, number))
        }

        fn delete_version(&self, environment: EnvironmentKey, number: VersionNumber) -> Result<()> {
            self.transact(|tx| retention::delete_version(tx, environment, number))
        }

        fn retain_versions(
            &self,
            environment: EnvironmentKey,
            keep: usize,
        ) -> Result<Vec<VersionNumber>> {
            self.transact(|tx| retention::retain_versions(tx, environment, keep))
        }

        fn recover_actions(&self, lease: &Lease) -> Result<Vec<StartedAction>> {
            self.write(|tx| engine::recover_actions(tx, lease))
        }

        fn begin_actions(&self, lease: &Lease, actions: &[StartedAction]) -> Result<()> {
            self.write(|tx| engine::begin_actions(tx, lease, actions))
        }

        fn record_batch(
            &self,
            lease: &Lease,
            recording: &ResultBatch<'_>,
        ) -> Result<ParameterEffect> {
            self.write(|tx| engine::record_batch(tx, lease, recording))
        }

        fn process_version(
            &self,
            lease: &Lease,
            number: VersionNumber,
            states: &[StateRecord<'_>],
        ) -> Result<()> {
            self.write(|tx| engine::process_version(tx, lease, number, states))
        }

        fn running_actions(&self, environment: EnvironmentKey) -> Result<Vec<StartedAction>> {
            self.read_once(|tx| engine::running_actions(tx, environment))
        }

        fn processed_version(&self, environment: EnvironmentKey) -> Result<Option<VersionNumber>> {
            self.read_once(|tx| engine::processed_version(tx, environment))
        }

        fn read_states(
            &self,
            environment: EnvironmentKey,
            visit: &mut dyn FnMut(StateRow<'_>),
        ) -> Result<()> {
            self.read(|tx| engine::read_states(tx, environment, visit))
        }

        fn expire_actions(&self, lease: &Lease, before: Timestamp) -> Result<u64> {
            self.write(|tx| engine::expire_actions(tx, lease, before))
        }

        fn list_resources(
            &self,
            environment: EnvironmentKey,
            filter: &ResourceFilter,
            after: Option<&str>,
            limit: usize,
        ) -> Result<ResourcePage> {
            self.read(|tx| query::list_resources(tx, environment, filter, after, limit))
        }

        fn find_resource(
            &self,
            environment: EnvironmentKey,
            id: &str,
        ) -> Result<Option<ResourceOverview>> {
            self.read(|tx| query::find_resource(tx, environment, id))
        }

        fn read_resource(
            &self,
            environment: EnvironmentKey,
            id: &str,
        ) -> Result<Option<orrery_model::Resource>> {
            self.read(|tx| read::read_resource(tx, environment, id))
        }

        fn actions(
            &self,
            environment: EnvironmentKey,
            id: &str,
            before: Option<ActionKey>,
            limit: usize,
        ) -> Result<Vec<Action>> {
            self.read_once(|tx| query::actions(tx, environment, id, before, limit))
        }

        fn agents(&self, environment: EnvironmentKey) -> Result<Vec<AgentState>> {
            self.read_once(|tx| environments::agents(tx, environment))
        }

        fn set_paused(
            &self,
            environment: EnvironmentKey,
            agent: Option<&str>,
            paused: bool,
        ) -> Result<()> {
            self.transact(|tx| environments::set_paused(tx, environment, agent, paused))
        }

        fn parameters(&self, environment: EnvironmentKey) -> Result<Vec<StoredParameter>> {
            self.read_once(|tx| parameters::parameters(tx, environment))
        }

        fn facts(&self, environment: EnvironmentKey, id: &str) -> Result<Vec<StoredParameter>> {
            self.read_once(|tx| parameters::facts(tx, environment, id))
        }

        fn set_parameter(
            &self,
            environment: EnvironmentKey,
            name: &str,
            value: &str,
            source: ParameterSource,
            now: Timestamp,
        ) -> Result<ParameterEffect> {
            self.transact(|tx| parameters::set_parameter(tx, environment, name, value, source, now))
        }

        fn missing_files(&self, hashes: &[ContentHash]) -> Result<Vec<ContentHash>> {
            self.read_once(|tx| parameters::missing_files(tx, hashes))
        }

        fn put_files(&self, files: &[(ContentHash, &[u8])]) -> Result<()> {
            self.write(|tx| parameters::put_files(tx, files))
        }

        fn file(&self, hash: &ContentHash) -> Result<Option<Vec<u8>>> {
            self.read_once(|tx| parameters::file(tx, hash))
        }
    };
}
pub(crate) use impl_shared_methods;
