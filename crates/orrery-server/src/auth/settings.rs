//! Settings of authentication.

use orrery_roles::network::Network;

use crate::auth::jwt::IssuerSettings;

/// Authentication settings.
#[derive(Clone, Debug, Default)]
pub struct AuthSettings {
    /// Proxies trusted to report the client address in `X-Forwarded-For`.
    pub trusted_proxies: Vec<Network>,
    /// Binds cookies to TLS, if browsers reach the server by it.
    pub secure_cookies: bool,
    /// Identity providers.
    pub issuers: Vec<IssuerSettings>,
}
