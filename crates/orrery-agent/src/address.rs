//! Address of a gateway.

use std::fmt;
use std::str::FromStr;

use rustls_pki_types::ServerName;
use serde::{Deserialize, Serialize};

/// Default port of a gateway.
pub const DEFAULT_PORT: u16 = 8889;

/// A host and a port: `gateway.example.org`, `10.0.0.7:9000`, `[::1]:8889`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GatewayAddress {
    host: String,
    port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid gateway address {0:?}: expected a host name or IP address with an optional port, such as gateway.example.org:{DEFAULT_PORT}"
)]
pub struct InvalidAddress(String);

impl GatewayAddress {
    /// Host and port, as in URLs.
    fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Server name that the certificate must match.
    pub(crate) fn server_name(&self) -> Result<ServerName<'static>, InvalidAddress> {
        ServerName::try_from(self.host.clone()).map_err(|_| InvalidAddress(self.host.clone()))
    }
}

impl fmt::Display for GatewayAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.authority())
    }
}

impl From<GatewayAddress> for String {
    fn from(address: GatewayAddress) -> Self {
        address.authority()
    }
}

impl TryFrom<String> for GatewayAddress {
    type Error = InvalidAddress;

    fn try_from(text: String) -> Result<Self, InvalidAddress> {
        text.parse()
    }
}

impl FromStr for GatewayAddress {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        let invalid = || InvalidAddress(text.to_owned());
        let rest = text.trim();
        let rest =
            rest.strip_prefix("https://").or_else(|| rest.strip_prefix("wss://")).unwrap_or(rest);
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        // With a scheme that has a default port, that port would be indistinguishable from none.
        let url = url::Url::parse(&format!("gateway://{rest}")).map_err(|_| invalid())?;
        let extra = !url.username().is_empty()
            || url.password().is_some()
            || url.query().is_some()
            || url.fragment().is_some()
            || !url.path().is_empty();
        let host = url.host_str().filter(|host| !host.is_empty() && !extra).ok_or_else(invalid)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let address = GatewayAddress { host, port: url.port().unwrap_or(DEFAULT_PORT) };
        address.server_name().map_err(|_| invalid())?;
        Ok(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_ports_and_urls_are_accepted() {
        for (text, expected) in [
            ("localhost", "localhost:8889"),
            ("gateway.example.org:443", "gateway.example.org:443"),
            ("https://10.0.0.7:9000/", "10.0.0.7:9000"),
            ("wss://gateway", "gateway:8889"),
            (" [::1]:7 ", "[::1]:7"),
        ] {
            let address: GatewayAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), expected, "{text}");
            assert_eq!(expected.parse(), Ok(address), "{text}");
        }
    }

    #[test]
    fn invalid_addresses_are_rejected() {
        for text in ["", ":8889", "a b", "host/path", "me@host", "host:99999", "http://x", "host?x"]
        {
            assert!(text.parse::<GatewayAddress>().is_err(), "{text}");
        }
    }
}
