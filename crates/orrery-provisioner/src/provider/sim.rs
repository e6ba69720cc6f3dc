//! Provider `sim`: machines that are journals, with latency and failures from a seed.

use std::path::PathBuf;
use std::time::Duration;

use orrery_handlers::CancelCause;
use sha2::{Digest as _, Sha256};

use crate::facts::NodeFacts;
use crate::machine_name::MachineName;
use crate::node_state::ServiceRecord;
use crate::plugin::{
    FieldFormat, FieldSchema, MachineCall, MachineProvider, NodeAccess, NodeSimulation,
    PluginError, PluginKind, PluginManifest,
};
use crate::sim_journal::{SimEntry, SimEvent, SimJournals, SimState};
use crate::task::{MachineRecord, ServiceWork};

/// Simulated machines. Any action of any automator succeeds on them, but for injected failures.
#[derive(Debug)]
pub struct SimProvider {
    manifest: PluginManifest,
    default_directory: PathBuf,
}

/// Fields of one provider.
struct Settings {
    journals: SimJournals,
    latency: Duration,
    failure_rate: f64,
    seed: u64,
}

impl SimProvider {
    /// Creates the provider. Journals are below `default_directory` unless a field says otherwise.
    pub fn new(default_directory: impl Into<PathBuf>) -> Self {
        let text = FieldFormat::Text;
        let manifest = PluginManifest::new(
            PluginKind::Provider,
            "sim",
            "Simulation",
            "Simulated machines, for tests of templates and of scale.",
        )
        .field(
            "directory",
            FieldSchema::new("Directory", text, "Directory of the journals of the machines."),
        )
        .field(
            "latency_ms",
            FieldSchema::new("Latency", FieldFormat::Number, "Mean time of an action in ms.").or(0),
        )
        .field(
            "failure_rate",
            FieldSchema::new(
                "Failure rate",
                FieldFormat::Number,
                "Share of actions that fail, from 0 to 1.",
            )
            .or(0),
        )
        .field(
            "seed",
            FieldSchema::new("Seed", FieldFormat::Number, "Determines latency and failures.").or(0),
        );
        SimProvider { manifest, default_directory: default_directory.into() }
    }

    fn settings(&self, call: &MachineCall<'_>) -> Result<Settings, PluginError> {
        let number = |name| call.fields.number(name).unwrap_or(0.0);
        let (latency_ms, failure_rate) = (number("latency_ms"), number("failure_rate"));
        if !(0.0..=3_600_000.0).contains(&latency_ms) {
            return Err(PluginError::new("the field latency_ms of sim is from 0 to 3600000"));
        }
        if !(0.0..=1.0).contains(&failure_rate) {
            return Err(PluginError::new("the field failure_rate of sim is from 0 to 1"));
        }
        let directory = call.fields.text("directory");
        let directory = directory.map_or_else(|| self.default_directory.clone(), PathBuf::from);
        Ok(Settings {
            journals: SimJournals::new(directory),
            latency: Duration::from_secs_f64(latency_ms / 1000.0),
            failure_rate,
            seed: number("seed") as u64,
        })
    }
}

impl Settings {
    fn state(&self, name: &MachineName) -> Result<SimState, PluginError> {
        self.journals.state(name).map_err(|error| journal_error(name, &error))
    }

    /// Two numbers below 1 that depend on nothing but the arguments.
    fn chances(&self, name: &MachineName, key: &str, attempt: u32) -> (f64, f64) {
        let hash = Sha256::digest(format!("{}\n{name}\n{key}\n{attempt}", self.seed));
        let part = |from: usize| {
            let bytes = hash[from..from + 4].iter();
            bytes.fold(0.0, |sum, byte| (sum + f64::from(*byte)) / 256.0)
        };
        (part(0), part(4))
    }

    /// Takes its time, and then appends the event, or its failure.
    fn carry_out(
        &self,
        call: &MachineCall<'_>,
        name: &MachineName,
        state: &SimState,
        event: SimEvent,
    ) -> Result<(), PluginError> {
        let key = event.key();
        let attempt = state.attempts.get(&key).copied().unwrap_or(0);
        let (time, failure) = self.chances(name, &key, attempt);
        match call.stop.sleep(self.latency.mul_f64(2.0 * time)) {
            None => {}
            Some(CancelCause::Cancelled) => {
                return Err(PluginError::new(format!("{key}: cancelled before its effect")));
            }
            Some(CancelCause::DeadlinePassed) => {
                return Err(PluginError::new(format!("{key}: the time limit has passed")));
            }
        }
        let ok = failure >= self.failure_rate;
        let entry = SimEntry { task: call.task.id.clone(), event, ok };
        self.journals.append(name, &entry).map_err(|error| journal_error(name, &error))?;
        if ok {
            return Ok(());
        }
        Err(PluginError::new(format!("simulated failure of {key} on {name}")))
    }
}

fn journal_error(name: &MachineName, error: &std::io::Error) -> PluginError {
    PluginError::io(format!("use the journal of the simulated machine {name}"), error)
}

fn no_machine(name: &MachineName) -> PluginError {
    PluginError::new(format!("the simulated machine {name} does not exist"))
}

/// Facts of a machine: an address that depends on its name only.
fn facts(name: &MachineName) -> NodeFacts {
    let number = name.number.wrapping_sub(1000).wrapping_add(u64::from(name.incarnation - 1) << 20);
    let byte = |shift: u32| (number >> shift) & 255;
    let address = format!("10.{}.{}.{}", byte(16), byte(8), byte(0));
    let addresses = ["access_v4", "bind_v4"].map(|kind| (kind.to_owned(), address.clone()));
    NodeFacts {
        incarnation: Some(name.incarnation),
        provider_id: Some(name.to_string()),
        addresses: addresses.into(),
        ..NodeFacts::default()
    }
}

impl MachineProvider for SimProvider {
    fn manifest(&self) -> &PluginManifest {
        &self.manifest
    }

    fn create(&self, call: &MachineCall<'_>) -> Result<NodeFacts, PluginError> {
        let settings = self.settings(call)?;
        let state = settings.state(call.name)?;
        if !state.exists {
            settings.carry_out(call, call.name, &state, SimEvent::Create)?;
        }
        Ok(facts(call.name))
    }

    fn confirm(&self, call: &MachineCall<'_>, _: Duration) -> Result<NodeFacts, PluginError> {
        let settings = self.settings(call)?;
        let state = settings.state(call.name)?;
        if !state.exists {
            return Err(no_machine(call.name));
        }
        settings.carry_out(call, call.name, &state, SimEvent::Confirm)?;
        Ok(facts(call.name))
    }

    fn delete(&self, call: &MachineCall<'_>, machine: &MachineName) -> Result<(), PluginError> {
        let settings = self.settings(call)?;
        let state = settings.state(machine)?;
        if !state.exists {
            return Ok(());
        }
        settings.carry_out(call, machine, &state, SimEvent::Delete)
    }

    fn list(&self, call: &MachineCall<'_>) -> Result<Vec<MachineRecord>, PluginError> {
        let settings = self.settings(call)?;
        let names = settings.journals.machines_of_node(call.name);
        let names = names.map_err(|error| journal_error(call.name, &error))?;
        let mut found = Vec::new();
        for name in names {
            if settings.state(&name)?.exists {
                let name = name.to_string();
                found.push(MachineRecord {
                    provider_id: Some(name.clone()),
                    name,
                    is_running: true,
                });
            }
        }
        Ok(found)
    }

    fn access(&self, call: &MachineCall<'_>) -> Result<NodeAccess, PluginError> {
        Err(PluginError::new(format!("the simulated machine {} has no files", call.name)))
    }

    fn simulation(&self) -> Option<&dyn NodeSimulation> {
        Some(self)
    }
}

impl NodeSimulation for SimProvider {
    fn inspect(
        &self,
        call: &MachineCall<'_>,
        service: Option<&str>,
    ) -> Result<ServiceRecord, PluginError> {
        let state = self.settings(call)?.state(call.name)?;
        if !state.exists {
            return Err(no_machine(call.name));
        }
        Ok(state.services.get(service.unwrap_or_default()).cloned().unwrap_or_default())
    }

    fn run_action(&self, call: &MachineCall<'_>, work: &ServiceWork) -> Result<(), PluginError> {
        let settings = self.settings(call)?;
        let state = settings.state(call.name)?;
        if !state.exists {
            return Err(no_machine(call.name));
        }
        let event = SimEvent::Act {
            service: work.service.clone(),
            action: work.call.as_ref().map(|call| call.action),
            record: work.record.clone(),
        };
        settings.carry_out(call, call.name, &state, event)
    }
}
