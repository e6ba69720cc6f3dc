//! Networks of clients, for trust and for rate limits.

use std::net::IpAddr;
use std::str::FromStr;

/// A network prefix: `10.0.0.0/8`, `::1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    length: u32,
}

#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a network: expected one like 10.0.0.0/8, or an address")]
pub struct InvalidNetwork(String);

impl FromStr for Network {
    type Err = InvalidNetwork;

    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        let invalid = || InvalidNetwork(text.to_owned());
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let length = match length {
            Some(length) => length.parse().map_err(|_| invalid())?,
            None => most,
        };
        if length > most { Err(invalid()) } else { Ok(Network { address, length }) }
    }
}

impl Network {
    pub fn contains(&self, address: IpAddr) -> bool {
        let beginning = |bits: u128, width: u32| {
            if self.length == 0 { 0 } else { bits >> (width - self.length) }
        };
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let (own, other) = (own.to_bits().into(), other.to_bits().into());
                beginning(own, 32) == beginning(other, 32)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                beginning(own.to_bits(), 128) == beginning(other.to_bits(), 128)
            }
            _ => false,
        }
    }
}

/// Returns the network of an address for rate limits: an IPv4 address, or the /64 of an IPv6
/// subscriber.
pub fn network_of(address: &str) -> String {
    match address.parse::<IpAddr>().map(|address| address.to_canonical()) {
        Ok(IpAddr::V6(address)) => {
            let prefix = u128::from(address) & !u128::from(u64::MAX);
            format!("{}/64", std::net::Ipv6Addr::from(prefix))
        }
        Ok(address) => address.to_string(),
        Err(_) => address.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks() {
        let holds = |network: &str, address: &str| {
            network.parse::<Network>().unwrap().contains(address.parse().unwrap())
        };
        assert!(holds("10.0.0.0/8", "10.200.0.1"));
        assert!(holds("10.0.0.0/8", "::ffff:10.200.0.1"));
        assert!(!holds("10.0.0.0/8", "11.0.0.1"));
        assert!(holds("192.0.2.7", "192.0.2.7"));
        assert!(!holds("192.0.2.7", "192.0.2.6"));
        assert!(holds("0.0.0.0/0", "203.0.113.9"));
        assert!(!holds("0.0.0.0/0", "2001:db8::1"));
        assert!(holds("2001:db8::/32", "2001:db8:1::1"));
        for wrong in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "a/8", "10.0.0.0/-1"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_subscriber_of_ipv6_is_one_network() {
        assert_eq!(network_of("192.0.2.1"), "192.0.2.1");
        assert_eq!(network_of("::ffff:192.0.2.1"), "192.0.2.1");
        assert_eq!(network_of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
        assert_eq!(network_of("2001:db8:1:2:ffff::"), network_of("2001:db8:1:2::1"));
        assert_ne!(network_of("2001:db8:1:3::1"), network_of("2001:db8:1:2::1"));
        assert_eq!(network_of("unknown"), "unknown");
    }
}
