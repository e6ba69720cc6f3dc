//! Where the agents of one environment are: on this machine, or with remote agents.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, PoisonError, RwLock};

use orrery_executor::{LocalTargets, NoTarget, Place, Targets};
use orrery_handlers::LocalTarget;
use orrery_store::{EnvironmentRecord, ServedName, Store, StoreError};
use uuid::Uuid;

use crate::app::App;
use crate::gateway::RemotePlace;

/// The places of an environment's agents. An agent for which nobody ever enrolled is this machine.
pub(super) struct AgentPlaces {
    app: App,
    environment: Uuid,
    local: LocalTargets,
    served: RwLock<BTreeMap<String, ServedName>>,
    /// Commands that were sent.
    sent: Arc<AtomicU64>,
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
    ) -> Result<Self, StoreError> {
        let places = AgentPlaces {
            app: app.clone(),
            environment: Uuid::from_bytes(environment.uuid),
            local: LocalTargets::new(LocalTarget::default()),
            served: RwLock::default(),
            sent: Arc::default(),
        };
        places.set(store.records().served_names(environment.key)?);
        Ok(places)
    }

    /// Takes in what the store says now.
    pub(super) fn set(&self, served: Vec<ServedName>) -> Moves {
        let served: BTreeMap<String, ServedName> =
            served.into_iter().map(|one| (one.name.clone(), one)).collect();
        let mut known = self.served.write().unwrap_or_else(PoisonError::into_inner);
        let moves = compare(&known, &served);
        *known = served;
        moves
    }
}

fn compare(before: &BTreeMap<String, ServedName>, after: &BTreeMap<String, ServedName>) -> Moves {
    let mut moves = Moves::default();
    // Who is given back to this machine can be reached.
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
        let served = self.served.read().unwrap_or_else(PoisonError::into_inner);
        let Some(served) = served.get(agent) else { return self.local.place(agent) };
        if served.revoked {
            return Err(NoTarget(format!(
                "the remote agent that served {agent} was revoked; invite another one with `orrery agent invite {agent}`"
            )));
        }
        let who = (agent.to_owned(), Uuid::from_bytes(served.agent));
        let place =
            RemotePlace::new(self.app.clone(), self.environment, who, Arc::clone(&self.sent));
        Ok(Place::Remote(Arc::new(place)))
    }

    fn sync(&self) {
        self.local.sync();
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
}
