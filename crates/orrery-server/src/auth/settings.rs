//! Settings of authentication.

use orrery_roles::network::Network;

use crate::auth::AllowedHosts;
use crate::auth::jwt::IssuerSettings;

/// Authentication settings.
#[derive(Clone, Debug, Default)]
pub struct AuthSettings {
    /// Proxies trusted to report the client address in `X-Forwarded-For`.
    pub trusted_proxies: Vec<Network>,
    /// Names by which browsers may address the server.
    pub allowed_hosts: AllowedHosts,
    /// Binds cookies to TLS, if browsers reach the server by it.
    pub secure_cookies: bool,
    /// Identity providers.
    pub issuers: Vec<IssuerSettings>,
}
