//! Who is calling, what they may do, and what is remembered of it.
//!
//! | module | what |
//! |---|---|
//! | `caller` | somebody who is known, and their rights |
//! | `authenticate` | from what a request shows to a caller |
//! | `remembered` | what was read a moment ago for another request |
//! | `issuers` | tokens of external issuers |
//! | `secrets` | random secrets, of which only hashes are kept |
//! | `passwords`, `throttle` | passwords, and how fast they can be guessed |
//! | `turns` | fair queue for hashing passwords |
//! | `address` | where a request comes from |
//! | `audit` | who did what |
//! | `setup` | the first account |
//! | `settings` | what an administrator chooses |

mod address;
mod audit;
mod authenticate;
mod caller;
mod issuers;
mod passwords;
mod remembered;
mod secrets;
mod settings;
mod setup;
mod throttle;
mod turns;

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use orrery_model::{Duration, Timestamp};

pub(crate) use address::network_of;
pub(crate) use audit::{AuditLog, AuditNote, Noted, Trail};
pub(crate) use authenticate::{SESSION_LENGTH, authenticate, cookie_name};
pub(crate) use caller::{Caller, How, Limit, TokenGrants, granted, role_right, scope_of};
pub(crate) use issuers::Issuers;
pub use issuers::{InvalidIssuer, IssuerSettings, RoleMapping};
pub(crate) use passwords::{Passwords, check_password, normalized};
pub(crate) use remembered::Remembered;
pub(crate) use secrets::{Minted, hash_of};
pub use settings::{AuthSettings, InvalidNetwork, Network};
pub(crate) use setup::use_ticket;
pub use setup::{FirstStart, first_start};
pub(crate) use throttle::Throttle;
pub(crate) use turns::Line;

/// What authentication keeps in memory. All of it may be lost.
#[derive(Debug, Default)]
pub(crate) struct Auth {
    pub(crate) passwords: Passwords,
    pub(crate) throttle: Throttle,
    pub(crate) audit: AuditLog,
    pub(crate) issuers: Issuers,
    pub(crate) remembered: Remembered,
    touched: Touched,
}

/// Tokens whose use was noted within the last minute.
#[derive(Debug, Default)]
struct Touched(Mutex<HashMap<[u8; 16], Timestamp>>);

impl Touched {
    const MAX: usize = 10_000;
    const EVERY: Duration = Duration::from_secs(60);

    /// Whether the use of a token is worth noting; whoever is told so notes it.
    fn is_due(&self, token: &[u8; 16], last_used: Option<Timestamp>, now: Timestamp) -> bool {
        if last_used.is_some_and(|at| now < at + Self::EVERY) {
            return false;
        }
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.get(token).is_some_and(|at| now < *at + Self::EVERY) {
            return false;
        }
        if noted.len() >= Self::MAX {
            noted.clear();
        }
        noted.insert(*token, now);
        true
    }
}
