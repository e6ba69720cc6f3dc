//! Client addresses. Only trusted proxies can forward another one.

use std::net::{IpAddr, SocketAddr};

use axum::extract::ConnectInfo;
use axum::http::request::Parts;

use super::settings::AuthSettings;

/// Returns the client address as text, for logs and rate limits.
pub(crate) fn client_address(settings: &AuthSettings, parts: &Parts) -> String {
    let Some(ConnectInfo(peer)) = parts.extensions.get::<ConnectInfo<SocketAddr>>() else {
        return "unknown".to_owned();
    };
    let peer = peer.ip().to_canonical();
    behind_proxies(settings, peer, parts).to_string()
}

/// True if a trusted proxy passed the request on.
pub(crate) fn comes_from_proxy(settings: &AuthSettings, parts: &Parts) -> bool {
    let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
    let peer = peer.map(|ConnectInfo(peer)| peer.ip().to_canonical());
    peer.is_some_and(|peer| settings.trusted_proxies.iter().any(|network| network.contains(peer)))
}

fn behind_proxies(settings: &AuthSettings, peer: IpAddr, parts: &Parts) -> IpAddr {
    let trusted =
        |address| settings.trusted_proxies.iter().any(|network| network.contains(address));
    if !trusted(peer) {
        return peer;
    }
    // Each proxy appends its peer. Entries before the last untrusted one can be forged.
    let values = parts.headers.get_all("x-forwarded-for").iter();
    let told: Vec<&str> =
        values.filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(',')).collect();
    let mut client = peer;
    for text in told.into_iter().rev() {
        let Ok(address) = text.trim().parse::<IpAddr>() else { break };
        client = address.to_canonical();
        if !trusted(client) {
            break;
        }
    }
    client
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn seen_from(peer: &str, forwarded: &[&str]) -> String {
        let proxies = vec!["10.0.0.0/8".parse().unwrap()];
        let settings = AuthSettings { trusted_proxies: proxies, ..AuthSettings::default() };
        let mut request = Request::builder();
        for value in forwarded {
            request = request.header("x-forwarded-for", *value);
        }
        let peer = SocketAddr::new(peer.parse().unwrap(), 1);
        let request = request.extension(ConnectInfo(peer)).body(()).unwrap();
        client_address(&settings, &request.into_parts().0)
    }

    #[test]
    fn only_trusted_proxies_are_believed() {
        assert_eq!(seen_from("192.0.2.1", &["203.0.113.9"]), "192.0.2.1");
        assert_eq!(seen_from("10.0.0.1", &["203.0.113.9"]), "203.0.113.9");
        assert_eq!(seen_from("10.0.0.1", &["1.2.3.4, 203.0.113.9", "10.0.0.2"]), "203.0.113.9");
        assert_eq!(seen_from("10.0.0.1", &["1.2.3.4, nonsense"]), "10.0.0.1");
        assert_eq!(seen_from("10.0.0.1", &[]), "10.0.0.1");
    }
}
