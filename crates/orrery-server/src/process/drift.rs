//! Drift that this process sees itself: on its own machine, and on machines over SSH. Remote agents
//! report theirs through a gateway, as requests in the store.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

use orrery_base::lock::IgnorePoison;
use orrery_handlers::drift::DriftSink;
use orrery_model::{ResourceId, SshAddress};
use orrery_scheduler::{Event, Filter};
use orrery_ssh::{Drift, MachineDrift};
use orrery_store::EnvironmentKey;

use super::Message;
use super::agent_routing::AgentRouter;

/// Resources that wait for the next step; beyond, reports are dropped and repeated by their source.
const WAITING_MAX: usize = 100_000;

/// Drift of one environment that waits for the next step of its runner.
pub(super) struct DriftInbox {
    environment: EnvironmentKey,
    messages: Mutex<Sender<Message>>,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    /// Resources on the server's own machine.
    here: BTreeSet<ResourceId>,
    /// Reports of machines, by address.
    machines: BTreeMap<String, Drift>,
}

impl fmt::Debug for DriftInbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriftInbox").field("environment", &self.environment).finish_non_exhaustive()
    }
}

impl DriftInbox {
    pub(super) fn new(environment: EnvironmentKey, messages: Sender<Message>) -> Arc<Self> {
        Arc::new(DriftInbox {
            environment,
            messages: Mutex::new(messages),
            waiting: Mutex::default(),
        })
    }

    /// Receiver of drift on the server's own machine.
    pub(super) fn own_machine(self: &Arc<Self>) -> DriftSink {
        let inbox = Arc::clone(self);
        Box::new(move |resources| {
            let mut waiting = inbox.waiting.lock().ignore_poison();
            if waiting.here.len() >= WAITING_MAX {
                return false;
            }
            waiting.here.extend(resources.iter().cloned());
            drop(waiting);
            inbox.wake()
        })
    }

    /// Receiver of drift on machines over SSH.
    pub(super) fn machines(self: &Arc<Self>) -> MachineDrift {
        let inbox = Arc::clone(self);
        Arc::new(move |address: &SshAddress, drift: Drift| {
            let mut waiting = inbox.waiting.lock().ignore_poison();
            let known = waiting.machines.entry(address.to_string()).or_default();
            known.unwatched |= drift.unwatched;
            if known.resources.len() < WAITING_MAX {
                known.resources.extend(drift.resources);
            }
            drop(waiting);
            inbox.wake();
        })
    }

    fn wake(&self) -> bool {
        let messages = self.messages.lock().ignore_poison();
        messages.send(Message::Attention(self.environment)).is_ok()
    }

    /// Takes what waits, as events for the engine. A machine speaks for its own agents only.
    pub(super) fn take(&self, router: &AgentRouter) -> Vec<Event> {
        let Waiting { here, machines } = std::mem::take(&mut *self.waiting.lock().ignore_poison());
        let mut events = Vec::new();
        if !here.is_empty() {
            events.push(Event::Drift(Filter::ids(here)));
        }
        if machines.is_empty() {
            return events;
        }
        let mut agents: BTreeMap<String, Vec<Arc<str>>> = BTreeMap::new();
        for (agent, address) in router.agents_over_ssh() {
            agents.entry(address.to_string()).or_default().push(agent.into());
        }
        for (address, Drift { resources, unwatched }) in machines {
            let Some(agents) = agents.get(&address).cloned() else { continue };
            let ids = (!unwatched).then_some(resources);
            events.push(Event::Drift(Filter { agents: Some(agents), ids }));
        }
        events
    }
}
