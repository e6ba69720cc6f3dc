//! Client of one owner of credentials, with its connections.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use orrery_base::lock::IgnorePoison;
use orrery_handlers::Secrets;
use orrery_model::SshAddress;

use crate::config::ConfigError;
use crate::limits::ConnectionLimits;
use crate::link::ConnectContext;
use crate::route::RouteSource;
use crate::runtime::SshRuntime;
use crate::session::{ConnectionState, Session};
use crate::transport::SshTransport;

type Sessions = Mutex<HashMap<String, Arc<Session>>>;

/// Connections of one owner of credentials: the user of a command, or an environment of a server.
/// Others cannot use them.
pub struct SshClient {
    runtime: SshRuntime,
    routes: RouteSource,
    secrets: Arc<dyn Secrets>,
    sessions: Arc<Sessions>,
}

impl fmt::Debug for SshClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SshClient")
    }
}

impl SshClient {
    pub fn new(runtime: SshRuntime, routes: RouteSource, secrets: Arc<dyn Secrets>) -> Self {
        let sessions = Arc::new(Sessions::default());
        let idle = runtime.limits().idle;
        runtime.handle().spawn(close_idle(Arc::downgrade(&sessions), idle));
        SshClient { runtime, routes, secrets, sessions }
    }

    /// Returns the transport to an address. Connects at its first use, so this does not block.
    ///
    /// # Errors
    /// If the configuration of the SSH client does not resolve the address.
    pub fn transport(&self, address: &SshAddress) -> Result<SshTransport, ConfigError> {
        let mut sessions = self.sessions.lock().ignore_poison();
        let mut reached: Option<Arc<Session>> = None;
        let mut key = String::new();
        for hop in self.routes.route(address)? {
            key.push_str(&format!("{hop:?}\n"));
            let via = reached.take();
            let session = sessions.entry(key.clone()).or_insert_with(|| {
                let context = ConnectContext {
                    local: self.routes.local().clone(),
                    secrets: Arc::clone(&self.secrets),
                    uses_own_keys: self.routes.uses_own_keys(),
                    limits: self.runtime.limits().clone(),
                };
                let admission = self.runtime.admission();
                Arc::new(Session::new(hop, via, context, admission))
            });
            reached = Some(Arc::clone(session));
        }
        let session = reached.expect("invariant: a route has at least one hop");
        Ok(SshTransport::new(self.runtime.clone(), session, &address.options))
    }

    pub(crate) fn limits(&self) -> &ConnectionLimits {
        self.runtime.limits()
    }

    /// States of all connections, sorted by destination.
    pub fn connections(&self) -> Vec<ConnectionState> {
        let sessions: Vec<Arc<Session>> =
            self.sessions.lock().ignore_poison().values().cloned().collect();
        let mut states: Vec<ConnectionState> =
            sessions.iter().map(|session| session.state()).collect();
        states.sort_by(|one, other| one.destination.cmp(&other.destination));
        states
    }
}

/// Closes unused connections, until the client is dropped.
async fn close_idle(sessions: Weak<Sessions>, idle: Duration) {
    loop {
        tokio::time::sleep((idle / 4).max(Duration::from_millis(50))).await;
        let Some(sessions) = sessions.upgrade() else { return };
        let all: Vec<(String, Arc<Session>)> = sessions
            .lock()
            .ignore_poison()
            .iter()
            .map(|(key, session)| (key.clone(), Arc::clone(session)))
            .collect();
        for (key, session) in all {
            // Sessions without a transport are forgotten, together with their failures.
            if session.close_if_idle(idle).await && Arc::strong_count(&session) <= 2 {
                sessions.lock().ignore_poison().remove(&key);
            }
        }
    }
}
