//! Names by which browsers may address the server.
//!
//! A page of another site can point its own name at this server (DNS rebinding). Its requests then
//! come from the user's browser, and their `Host` has that name. Such a page has no credential of
//! the server, so a request that is authenticated by an `Authorization` header is not checked:
//! programs may use any name. Neither are probes of the health, and webhooks, which are signed.

use std::net::IpAddr;

use axum::http::header::{AUTHORIZATION, HOST};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use orrery_model::matches_wildcards;

use crate::access::{Access, WEBHOOK};
use crate::error::ServerError;

use super::client_ip::comes_from_proxy;
use super::settings::AuthSettings;

/// Routes of probes.
const HEALTH: &str = "/health";

/// Host names of a server. Its addresses and `localhost` are always allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedHosts {
    /// Names and patterns in lower case; `None` allows all.
    names: Option<Vec<String>>,
}

impl AllowedHosts {
    /// Allows these names, with `*` and `?` as wildcards.
    pub fn only(names: impl IntoIterator<Item = String>) -> Self {
        let names = names.into_iter().map(|name| name.to_ascii_lowercase()).collect();
        AllowedHosts { names: Some(names) }
    }

    fn allows(&self, host: &str) -> bool {
        let Some(names) = &self.names else { return true };
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        address.unwrap_or(&host).parse::<IpAddr>().is_ok()
            || host == "localhost"
            || host.ends_with(".localhost")
            || names.iter().any(|name| matches_wildcards(name, &host))
    }
}

/// Refuses a request that a page of another site may have sent to a name of its own.
pub(crate) fn check_host(
    settings: &AuthSettings,
    parts: &Parts,
    route: &str,
    access: Access,
) -> Result<(), ServerError> {
    // A public route ignores the header.
    let by_header = access != Access::Public && parts.headers.contains_key(AUTHORIZATION);
    if by_header || route == WEBHOOK || route.starts_with(HEALTH) {
        return Ok(());
    }
    let of_header = || parts.headers.get(HOST)?.to_str().ok()?.parse::<Authority>().ok();
    // Only old programs send none; browsers always do.
    let Some(authority) = parts.uri.authority().cloned().or_else(of_header) else { return Ok(()) };
    let host = authority.host();
    if settings.allowed_hosts.allows(host) || comes_from_proxy(settings, parts) {
        return Ok(());
    }
    let shown: String = host.chars().take(255).collect();
    Err(ServerError::rule(
        "unknown-host",
        format!(
            "this server does not know itself as {shown}: use its address, or start it with --host-names {shown}; behind a proxy, --trusted-proxies with its address also does it"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn check(names: Option<&[&str]>, host: &str, route: &str, access: Access) -> bool {
        let names = names.map(|names| names.iter().map(|name| (*name).to_owned()));
        let allowed_hosts = names.map(AllowedHosts::only).unwrap_or_default();
        let settings = AuthSettings { allowed_hosts, ..AuthSettings::default() };
        let request = Request::builder().uri("/x").header("host", host);
        let request = request.header("authorization", "Bearer x").body(()).unwrap();
        check_host(&settings, &request.into_parts().0, route, access).is_ok()
    }

    #[test]
    fn own_names_and_addresses_are_allowed() {
        let own: &[&str] = &["Box.example.org", "*.apps.example.org"];
        for host in [
            "127.0.0.1:8888",
            "[::1]:8888",
            "192.0.2.1",
            "localhost:1",
            "LOCALHOST.",
            "a.localhost",
            "box.example.org:8888",
            "orrery.apps.example.org",
        ] {
            assert!(check(Some(own), host, "/", Access::Public), "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example:8888", "example.org", "localhost.evil"]
        {
            assert!(!check(Some(own), host, "/api/v1/login", Access::Public), "{host}");
            assert!(check(None, host, "/", Access::Public), "not configured");
        }
    }

    #[test]
    fn programs_and_probes_may_use_any_name() {
        let host = "pod.cluster.example";
        for (route, access) in [
            ("/health/live", Access::Public),
            (WEBHOOK, Access::Public),
            ("/api/v1/projects", Access::Authenticated),
        ] {
            assert!(check(Some(&[]), host, route, access), "{route}");
        }
        assert!(
            !check(Some(&[]), host, "/setup", Access::Public),
            "the header means nothing there"
        );
    }
}
