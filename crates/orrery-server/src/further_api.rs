//! Further APIs: given to the server as values when it is built, so that it knows none of them.
//!
//! They call the application layer (`app`), and get caller, body and client of a request from here.

use axum::Router;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use futures_util::future::BoxFuture;

use crate::access::{RouteAccess, RouteRules};
use crate::state::ServerState;

pub use crate::auth::{AuditNote, AuthMethod, Caller, SESSION_LENGTH, TokenGrants};
pub use crate::extract::{ClientAddress, ClientGone, has_nul, parse_blocking, read_bytes};

/// An API beside the server's own.
#[derive(Clone, Copy, Debug)]
pub struct FurtherApi {
    /// Rights of its routes; a route without an entry is not served.
    pub rules: &'static RouteRules,
    pub router: fn() -> Router<ServerState>,
    /// Middleware that gives errors on its paths the form of this API.
    pub convert_errors: fn(Request, Next) -> BoxFuture<'static, Response>,
}

impl FurtherApi {
    /// Returns the access requirements of all its routes.
    pub fn routes(&self) -> impl Iterator<Item = RouteAccess> + use<> {
        self.rules.describe()
    }
}
