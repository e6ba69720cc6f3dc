//! IP addresses, interfaces and networks as Python's `ipaddress` reads and prints them.
//!
//! Nothing here allocates: refinement types call it for every attribute that holds an address.

use std::net::{Ipv4Addr, Ipv6Addr};

use orrery_python::Int;

/// An address of either version. Python's scope (`fe80::1%eth0`) is checked and dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Address {
    V4(Ipv4Addr),
    V6(Ipv6Addr),
}

/// An address with the length of its network's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) address: Address,
    pub(super) prefix: u32,
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::V4(v4) => v4.fmt(f),
            Address::V6(v6) => v6.fmt(f),
        }
    }
}

impl Address {
    pub(super) fn bits(self) -> u128 {
        match self {
            Address::V4(v4) => u128::from(u32::from(v4)),
            Address::V6(v6) => u128::from(v6),
        }
    }

    pub(super) fn width(self) -> u32 {
        match self {
            Address::V4(_) => 32,
            Address::V6(_) => 128,
        }
    }

    pub(super) fn version(self) -> u32 {
        match self {
            Address::V4(_) => 4,
            Address::V6(_) => 6,
        }
    }

    /// The address of the same version with these bits; `None` if they do not fit.
    pub(super) fn with_bits(self, bits: u128) -> Option<Address> {
        Some(match self {
            Address::V4(_) => Address::V4(Ipv4Addr::from(u32::try_from(bits).ok()?)),
            Address::V6(_) => Address::V6(Ipv6Addr::from(bits)),
        })
    }
}

impl Interface {
    fn host_mask(self) -> u128 {
        let host_bits = self.address.width() - self.prefix;
        1u128.checked_shl(host_bits).map_or(u128::MAX, |bit| bit - 1)
    }

    /// The address at a position of the network; negative positions count from the end.
    pub(super) fn at(self, position: &Int) -> Option<Address> {
        let last = self.host_mask();
        let distance = if position.is_negative() { position.neg() } else { position.clone() };
        let distance = u128::try_from(&*distance.to_big()).ok()?;
        let offset = if position.is_negative() {
            last.checked_sub(distance - 1)?
        } else {
            Some(distance).filter(|&distance| distance <= last)?
        };
        self.address.with_bits(self.network().bits() + offset)
    }

    pub(super) fn network(self) -> Address {
        let bits = self.address.bits() & !self.host_mask();
        self.address.with_bits(bits).unwrap_or(self.address)
    }

    pub(super) fn netmask(self) -> Address {
        let all = match self.address {
            Address::V4(_) => u128::from(u32::MAX),
            Address::V6(_) => u128::MAX,
        };
        self.address.with_bits(all & !self.host_mask()).unwrap_or(self.address)
    }

    /// True if the address is that of the network itself.
    pub(super) fn is_network(self) -> bool {
        self.address.bits() & self.host_mask() == 0
    }
}

pub(super) fn v4_address(text: &str) -> Option<Address> {
    text.parse().ok().map(Address::V4)
}

pub(super) fn v6_address(text: &str) -> Option<Address> {
    let address = match text.split_once('%') {
        None => text,
        Some((_, scope)) if scope.is_empty() || scope.contains(['%', '/']) => return None,
        Some((address, _)) => address,
    };
    address.parse().ok().map(Address::V6)
}

pub(super) fn any_address(text: &str) -> Option<Address> {
    v4_address(text).or_else(|| v6_address(text))
}

/// Parses `address`, `address/prefix`, and for IPv4 `address/netmask` and `address/hostmask`.
fn interface(text: &str, address: fn(&str) -> Option<Address>) -> Option<Interface> {
    let (head, mask) = match text.split_once('/') {
        None => (text, None),
        Some((_, mask)) if mask.contains('/') => return None,
        Some((head, mask)) => (head, Some(mask)),
    };
    let address = address(head)?;
    let prefix = match mask {
        None => address.width(),
        Some(mask) => prefix(mask, address)?,
    };
    Some(Interface { address, prefix })
}

fn prefix(mask: &str, address: Address) -> Option<u32> {
    if !mask.is_empty() && mask.bytes().all(|byte| byte.is_ascii_digit()) {
        let digits = mask.trim_start_matches('0');
        let length = if digits.is_empty() { 0 } else { digits.parse().ok()? };
        return (length <= address.width()).then_some(length);
    }
    match address {
        Address::V4(_) => mask_prefix(u32::from(mask.parse::<Ipv4Addr>().ok()?)),
        Address::V6(_) => None,
    }
}

/// Prefix length of a netmask, or else of a hostmask.
pub(super) fn mask_prefix(mask: u32) -> Option<u32> {
    let contiguous = |mask: u32| mask.leading_ones() + mask.trailing_zeros() >= 32;
    if contiguous(mask) {
        Some(mask.leading_ones())
    } else if contiguous(!mask) {
        Some((!mask).leading_ones())
    } else {
        None
    }
}

pub(super) fn v4_interface(text: &str) -> Option<Interface> {
    interface(text, v4_address)
}

pub(super) fn v6_interface(text: &str) -> Option<Interface> {
    interface(text, v6_address)
}

pub(super) fn any_interface(text: &str) -> Option<Interface> {
    v4_interface(text).or_else(|| v6_interface(text))
}

pub(super) fn v4_network(text: &str) -> Option<Interface> {
    v4_interface(text).filter(|interface| interface.is_network())
}

pub(super) fn v6_network(text: &str) -> Option<Interface> {
    v6_interface(text).filter(|interface| interface.is_network())
}

pub(super) fn any_network(text: &str) -> Option<Interface> {
    v4_network(text).or_else(|| v6_network(text))
}
