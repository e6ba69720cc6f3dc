//! Where the agents of one environment are: on this machine, with remote agents, or nowhere.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, PoisonError, RwLock};

use orrery_executor::{NoTarget, Place, Targets, place_outward};
use orrery_handlers::target::host_name;
use orrery_model::{Deployer, Inventory, Placement};
use orrery_store::{EnvironmentRecord, ServedName, Store, StoreError};
use uuid::Uuid;

use crate::app::App;
use crate::gateway::RemotePlace;
use crate::placement::{self, Declared};
use crate::settings::EnvironmentSettings;

use super::own_machine::OwnMachine;

/// The places of an environment's agents.
pub(super) struct AgentPlaces {
    app: App,
    environment: Uuid,
    own_machine: Arc<OwnMachine>,
    known: RwLock<Known>,
    /// Commands that were sent.
    sent: Arc<AtomicU64>,
}

#[derive(Default)]
struct Known {
    served: BTreeMap<String, ServedName>,
    inventory: Inventory,
}

/// What is different from before.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Moves {
    /// Where some agents are has to be asked anew.
    pub(super) changed: bool,
    /// Agents that are on another machine now: what runs for them runs in the wrong place.
    pub(super) moved: BTreeSet<String>,
    /// Agents that can be reached now, and could not before.
    pub(super) reachable: BTreeSet<String>,
}

impl AgentPlaces {
    pub(super) fn read(
        app: &App,
        store: &dyn Store,
        environment: &EnvironmentRecord,
        settings: &EnvironmentSettings,
        declared: Declared,
        own_machine: Arc<OwnMachine>,
    ) -> Result<Self, StoreError> {
        let served = store.records().served_names(environment.key)?;
        let enrolled = placement::enrolled(&served);
        let known = Known {
            inventory: placement::inventory(&host_name(), settings, declared, enrolled),
            served: served.into_iter().map(|one| (one.name.clone(), one)).collect(),
        };
        Ok(AgentPlaces {
            app: app.clone(),
            environment: Uuid::from_bytes(environment.uuid),
            own_machine,
            known: RwLock::new(known),
            sent: Arc::default(),
        })
    }

    /// The machine of this process.
    pub(super) fn own_machine(&self) -> &Arc<OwnMachine> {
        &self.own_machine
    }

    /// Agents whose machines are connected, one for each machine.
    pub(super) fn connected(&self) -> Vec<String> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let machines: BTreeMap<[u8; 16], &String> = known
            .served
            .values()
            .filter(|served| served.gateway.is_some() && !served.revoked)
            .map(|served| (served.agent, &served.name))
            .collect();
        machines.into_values().cloned().collect()
    }

    /// Takes in what the store says now.
    pub(super) fn set(&self, served: Vec<ServedName>) -> Moves {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.inventory.enrolled = placement::enrolled(&served);
        let served: BTreeMap<String, ServedName> =
            served.into_iter().map(|one| (one.name.clone(), one)).collect();
        let moves = compare(&known.served, &served);
        known.served = served;
        moves
    }

    /// Takes in what is declared about agents now; the answer is about those in `agents`.
    pub(super) fn declare(
        &self,
        agents: impl IntoIterator<Item = String>,
        change: impl FnOnce(&mut Inventory),
    ) -> Moves {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let mut now = known.inventory.clone();
        change(&mut now);
        if now == known.inventory {
            return Moves::default();
        }
        let moves = compare_inventories(&known.inventory, &now, agents);
        known.inventory = now;
        moves
    }
}

fn compare_inventories(
    before: &Inventory,
    after: &Inventory,
    agents: impl IntoIterator<Item = String>,
) -> Moves {
    let mut moves = Moves { changed: true, ..Moves::default() };
    for agent in agents {
        let (then, now) = (before.place(&agent), after.place(&agent));
        if then.as_str() == now.as_str() {
            continue;
        }
        if now.has_machine() {
            moves.reachable.insert(agent.clone());
        }
        moves.moved.insert(agent);
    }
    moves
}

fn compare(before: &BTreeMap<String, ServedName>, after: &BTreeMap<String, ServedName>) -> Moves {
    let mut moves = Moves::default();
    // A name that no remote agent has any more may be declared as this machine: it is looked at again.
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        moves.moved.insert(name.clone());
        moves.reachable.insert(name.clone());
    }
    for (name, now) in after {
        let then = before.get(name);
        if then.is_none_or(|then| then.agent != now.agent) {
            moves.moved.insert(name.clone());
        }
        moves.changed |= then.is_some_and(|then| then.revoked != now.revoked);
        let is_new = then.is_none_or(|then| then.session != now.session || then.gateway.is_none());
        if now.gateway.is_some() && is_new {
            moves.reachable.insert(name.clone());
        }
    }
    moves.changed |= !moves.moved.is_empty();
    moves
}

impl Targets for AgentPlaces {
    fn place(&self, agent: &str) -> Result<Place, NoTarget> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let placement = known.inventory.place(agent);
        match (&placement, known.served.get(agent)) {
            (Placement::Local(_), _) => Ok(self.own_machine.place()),
            (Placement::Remote, Some(served)) => {
                let who = (agent.to_owned(), Uuid::from_bytes(served.agent));
                let sent = Arc::clone(&self.sent);
                let place = RemotePlace::new(self.app.clone(), self.environment, who, sent);
                Ok(Place::Remote(Arc::new(place)))
            }
            (Placement::Revoked, _) => {
                let help = placement.help(agent, Deployer::Server).unwrap_or_default();
                Err(NoTarget(format!("{}; {help}", placement.reason(agent))))
            }
            _ => Ok(place_outward(agent, &placement, Deployer::Server)),
        }
    }

    fn sync(&self) {
        self.own_machine.sync();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(name: &str, agent: u8, session: i64, connected: bool) -> (String, ServedName) {
        let one = ServedName {
            name: name.to_owned(),
            agent: [agent; 16],
            revoked: false,
            session,
            gateway: connected.then_some([9; 16]),
            seen: None,
        };
        (name.to_owned(), one)
    }

    /// Who is on another machine, and who became reachable.
    fn moves(
        before: &[(String, ServedName)],
        after: &[(String, ServedName)],
    ) -> (Vec<String>, Vec<String>) {
        let map = |of: &[(String, ServedName)]| of.iter().cloned().collect::<BTreeMap<_, _>>();
        let moves = compare(&map(before), &map(after));
        assert!(moves.changed || moves.moved.is_empty());
        (moves.moved.into_iter().collect(), moves.reachable.into_iter().collect())
    }

    #[test]
    fn what_became_reachable_is_known() {
        let away = [served("a", 1, 1, false)];
        let here = [served("a", 1, 2, true)];
        assert_eq!(moves(&away, &away), (vec![], vec![]));
        assert_eq!(moves(&away, &here), (vec![], vec!["a".to_owned()]));
        assert_eq!(moves(&here, &here), (vec![], vec![]));
        let again = [served("a", 1, 3, true)];
        assert_eq!(moves(&here, &again), (vec![], vec!["a".to_owned()]), "it was away in between");
        assert_eq!(moves(&here, &away), (vec![], vec![]));
    }

    #[test]
    fn who_moved_is_known() {
        let one = [served("a", 1, 1, false)];
        let a = || vec!["a".to_owned()];
        assert_eq!(moves(&[], &one), (a(), vec![]));
        assert_eq!(moves(&one, &[]), (a(), a()), "it is this machine again");
        assert_eq!(moves(&one, &[served("a", 2, 1, true)]), (a(), a()));
        let mut revoked = one.clone();
        revoked[0].1.revoked = true;
        assert_eq!(moves(&one, &revoked), (vec![], vec![]), "the machine is the same");
        let map = |of: &[(String, ServedName)]| of.iter().cloned().collect::<BTreeMap<_, _>>();
        assert!(compare(&map(&one), &map(&revoked)).changed);
    }

    #[test]
    fn what_is_declared_moves_agents() {
        let names = || ["localhost", "web1", "web2"].map(str::to_owned);
        let before = Inventory::default();
        let declared =
            Inventory { environment_patterns: vec!["web1".to_owned()], ..Inventory::default() };
        let web1 = || BTreeSet::from(["web1".to_owned()]);
        let there = compare_inventories(&before, &declared, names());
        assert_eq!((there.changed, there.moved, there.reachable), (true, web1(), web1()));
        let back = compare_inventories(&declared, &before, names());
        assert_eq!((back.moved, back.reachable), (web1(), BTreeSet::new()));
    }
}
