//! The gateway, through its listener: enrolment, sessions and commands, with a scripted agent.

mod agent_reassignment;
mod commands;
mod enrolment;
mod sessions;
mod slow_targets;
mod test_client;

use std::time::{Duration, Instant};

use orrery_model::Timestamp;
use orrery_server::{GatewayOptions, GatewayRole, MasterKey, ServerSettings, start_gateway};
use orrery_store::{Holder, Store};
use orrery_testing::{Postgres, TestDatabase};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::support::Served;
use test_client::Identity;

const PATIENCE: Duration = Duration::from_secs(60);

/// A server with a gateway, and one environment.
struct World {
    served: Served,
    settings: ServerSettings,
    gateway: Option<GatewayRole>,
    runtime: Runtime,
    address: String,
    /// API path of the environment.
    environment: String,
    _data: tempfile::TempDir,
    database: Option<TestDatabase>,
}

impl World {
    fn new() -> Self {
        Self::with(Store::in_memory().unwrap(), None)
    }

    fn on_postgres() -> Self {
        Self::on_postgres_after("")
    }

    /// Runs these statements on the database first.
    fn on_postgres_after(statements: &str) -> Self {
        let database = Postgres::shared().database();
        let holder = Holder::this_process("test", Timestamp(0));
        let store = Store::connect(&database.url(), &holder).unwrap();
        database.connect().batch_execute(statements).unwrap();
        Self::with(store, Some(database))
    }

    fn with(store: Store, database: Option<TestDatabase>) -> Self {
        let data = tempfile::tempdir().unwrap();
        let master_key = MasterKey::Generated(data.path().join("secret.key"));
        let settings = ServerSettings { master_key, ..ServerSettings::default() };
        let served = Served::with(store, settings.clone());
        let project = served.admin.post("/api/v1/projects", &json!({"name": "p"})).good();
        let new = json!({"name": "e", "project": project["id"]});
        let environment = served.admin.post("/api/v1/environments", &new).good();
        let environment = format!("/api/v1/environments/{}", environment["id"].as_str().unwrap());
        let runtime = Runtime::new().unwrap();
        let mut world = World {
            served,
            settings,
            gateway: None,
            runtime,
            address: String::new(),
            environment,
            _data: data,
            database,
        };
        world.start_gateway();
        world
    }

    fn start_gateway(&mut self) {
        let options = GatewayOptions {
            listen: ([127, 0, 0, 1], 0).into(),
            address: None,
            peer_address: None,
            names: Vec::new(),
            program: None,
        };
        let started = self.runtime.block_on(start_gateway(&self.served.app, options));
        let gateway = started.unwrap();
        self.address = gateway.address().to_owned();
        self.gateway = Some(gateway);
        let address = &self.address;
        let is_known = |world: &World| {
            let known = world.served.app.store().gateways().list(PATIENCE).unwrap();
            known.iter().any(|known| known.address == *address)
        };
        self.until("the store knows the gateway", is_known);
    }

    fn stop_gateway(&mut self) {
        if let Some(gateway) = self.gateway.take() {
            self.runtime.block_on(gateway.stop());
        }
    }

    fn path(&self, rest: &str) -> String {
        format!("{}{rest}", self.environment)
    }

    fn invite(&self, names: &[&str]) -> String {
        let path = self.path("/remote-agents/invitations");
        let created = self.served.admin.post(&path, &json!({"names": names})).good();
        assert_eq!(created["gateway"], self.address.as_str());
        created["token"].as_str().unwrap().to_owned()
    }

    /// Enrols a machine.
    fn enrolled(&self, names: &[&str]) -> Identity {
        let mut identity = Identity::new();
        identity.join(&self.address, &self.invite(names));
        identity
    }

    fn remote_agents(&self) -> Vec<Value> {
        let list = self.served.admin.get(&self.path("/remote-agents")).good();
        list["items"].as_array().unwrap().clone()
    }

    #[track_caller]
    fn until(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !holds(self) {
            assert!(Instant::now() < until, "this never came: {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop_gateway();
    }
}
