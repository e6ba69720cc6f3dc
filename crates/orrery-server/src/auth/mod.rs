//! Authentication, authorization and the audit log.
//!
//! | module | contents |
//! |---|---|
//! | `caller` | the caller of a request, and its rights |
//! | `authenticate` | authentication of requests |
//! | `cache` | cached callers and environments |
//! | `jwt` | tokens of identity providers |
//! | `random_tokens` | random secrets, stored as hashes |
//! | `passwords`, `login_throttle` | passwords, and limits on guessing them |
//! | `hash_queue` | fair queue for password hashing |
//! | `allowed_hosts` | names of the server in requests of browsers |
//! | `client_ip` | client addresses |
//! | `audit` | audit log |
//! | `bootstrap` | first account |
//! | `settings` | settings of authentication |

mod allowed_hosts;
mod audit;
mod authenticate;
mod bootstrap;
mod cache;
mod caller;
mod client_ip;
mod hash_queue;
mod jwt;
mod login_throttle;
mod passwords;
mod random_tokens;
mod settings;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use orrery_base::lock::IgnorePoison;
use orrery_model::{Duration, Timestamp, TokenId};

use crate::services::Services;

pub use allowed_hosts::AllowedHosts;
pub(crate) use allowed_hosts::check_host;
pub use audit::AuditNote;
pub(crate) use audit::{AuditLog, RequestAudit, WithAuditDetail};
pub use authenticate::SESSION_LENGTH;
pub(crate) use authenticate::{authenticate, cookie_name};
pub use bootstrap::BootstrapState;
pub(crate) use bootstrap::{prepare_first_account, redeem_bootstrap_token};
pub(crate) use cache::AuthCache;
pub use caller::{AuthMethod, Caller, TokenGrants};
pub(crate) use caller::{TokenLimits, granted, scope_of};
pub(crate) use hash_queue::Line;
pub(crate) use jwt::Issuers;
pub use jwt::{InvalidIssuer, IssuerSettings, RoleMapping};
pub(crate) use login_throttle::LoginThrottle;
pub(crate) use passwords::{Passwords, check_password, normalized};
pub(crate) use random_tokens::RandomToken;
pub use settings::AuthSettings;

/// Authentication of one server. All of its state may be lost.
#[derive(Debug)]
pub(crate) struct Auth {
    services: Services,
    settings: AuthSettings,
    pub(crate) passwords: Passwords,
    pub(crate) throttle: LoginThrottle,
    pub(crate) audit: Arc<AuditLog>,
    issuers: Issuers,
    pub(crate) cache: Arc<AuthCache>,
    touched: TokenUseTracker,
}

impl Auth {
    pub(crate) fn settings(&self) -> &AuthSettings {
        &self.settings
    }

    pub(crate) fn new(services: Services, settings: AuthSettings) -> Self {
        Auth {
            services,
            settings,
            passwords: Passwords::default(),
            throttle: LoginThrottle::default(),
            audit: Arc::default(),
            issuers: Issuers::default(),
            cache: Arc::default(),
            touched: TokenUseTracker::default(),
        }
    }
}

/// Tokens with a use recorded within the last minute.
#[derive(Debug, Default)]
struct TokenUseTracker(Mutex<HashMap<TokenId, Timestamp>>);

impl TokenUseTracker {
    const MAX: usize = 10_000;
    const EVERY: Duration = Duration::from_secs(60);

    /// Claims the recording of a token's use, if it is due.
    fn is_due(&self, token: TokenId, last_used: Option<Timestamp>, now: Timestamp) -> bool {
        if last_used.is_some_and(|at| now < at + Self::EVERY) {
            return false;
        }
        let mut noted = self.0.lock().ignore_poison();
        if noted.get(&token).is_some_and(|at| now < *at + Self::EVERY) {
            return false;
        }
        if noted.len() >= Self::MAX {
            noted.clear();
        }
        noted.insert(token, now);
        true
    }
}
