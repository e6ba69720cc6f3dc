//! Plugins of the module `ip`. Single addresses use the C library's legacy syntax (`1.2` is
//! 1.0.0.2); networks are parsed strictly.

use std::net::{Ipv4Addr, Ipv6Addr};

use orrery_python::{Int, parse_int, repr_float};

use super::address::{Address, Interface, mask_prefix, v4_address};
use super::args::{integer, plugin, required, text};
use super::{Failure, NativePlugin, PluginContext, PluginResult};
use crate::value::Value;

pub(super) const PLUGINS: &[NativePlugin] = &[
    plugin!("ip::add", [required("addr", "ip::ip_v10"), required("n", "number")] => "ip::ip_v10", add),
    plugin!("ip::cidr_to_network", [required("cidr", "string")] => "string", cidr_to_network),
    plugin!("ip::concat", [required("host", "std::hoststring"), required("domain", "std::hoststring")]
        => "std::hoststring", concat),
    plugin!("ip::hostname", [required("fqdn", "string")] => "string", hostname),
    plugin!("ip::ipindex", [required("addr", "ip::cidr_v10"), required("position", "number")] => "string", ipindex),
    plugin!("ip::ipnet", [required("addr", "ip::cidr_v10"), required("what", "string")] => "string", ipnet),
    plugin!("ip::is_valid_cidr", [required("addr", "string")] => "bool", is_valid_cidr),
    plugin!("ip::is_valid_cidr_v10", [required("addr", "string")] => "bool", is_valid_cidr_v10),
    plugin!("ip::is_valid_cidr_v6", [required("addr", "string")] => "bool", is_valid_cidr_v6),
    plugin!("ip::is_valid_ip", [required("addr", "string")] => "bool", is_valid_ip),
    plugin!("ip::is_valid_ip_v10", [required("addr", "string")] => "bool", is_valid_ip_v10),
    plugin!("ip::is_valid_ip_v6", [required("addr", "string")] => "bool", is_valid_ip_v6),
    plugin!("ip::is_valid_netmask", [required("netmask", "string")] => "bool", is_valid_netmask),
    plugin!("ip::net_to_nm", [required("network_addr", "string")] => "string", net_to_nm),
    plugin!("ip::netmask", [required("cidr", "number")] => "ip::ip", netmask),
    plugin!("ip::network", [required("ip", "ip::ip"), required("cidr", "string")] => "string", network),
];

/// Like the C library's `inet_aton`: one to four numbers, decimal, octal or hexadecimal, the last
/// of which fills the remaining bytes. Text after a blank is ignored.
fn inet_aton(text: &str) -> Option<Address> {
    let blank = |c: char| c.is_ascii_whitespace() || c == '\u{b}';
    let end = text.find(blank).unwrap_or(text.len());
    if text.contains('\0') {
        return None;
    }
    let mut parts = [0u32; 4];
    let mut count = 0;
    for part in text[..end].split('.') {
        *parts.get_mut(count)? = number(part)?;
        count += 1;
    }
    let (last, head) = parts[..count].split_last()?;
    let mut bits = *last;
    let head_bits = 8 * u32::try_from(head.len()).ok()?;
    if head_bits > 0 && bits >> (32 - head_bits) != 0 {
        return None;
    }
    for (index, &byte) in head.iter().enumerate() {
        if byte > 255 {
            return None;
        }
        bits |= byte << (24 - 8 * index);
    }
    Some(Address::V4(Ipv4Addr::from(bits)))
}

/// A number in C syntax, up to 32 bits.
fn number(text: &str) -> Option<u32> {
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let (digits, radix) = match (hexadecimal, text.strip_prefix('0')) {
        (Some(digits), _) => (digits, 16),
        (None, Some(digits)) if !digits.is_empty() => (digits, 8),
        _ => (text, 10),
    };
    // Rust's parser would accept a sign.
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    u32::from_str_radix(digits, radix).ok()
}

fn v6(text: &str) -> Option<Address> {
    text.parse().ok().map(Address::V6)
}

fn any_address(text: &str) -> Option<Address> {
    inet_aton(text).or_else(|| v6(text))
}

/// `address`, `address/length`, `address/netmask` or `address/hostmask`, of either version.
fn parse_network(text: &str) -> Result<Interface, Failure> {
    let invalid = || {
        let message = format!("invalid IPNetwork {text}");
        Failure::python("netaddr.core.AddrFormatError", message)
    };
    let (head, mask) = match text.split_once('/') {
        Some((head, mask)) => (head, Some(mask)),
        None => (text, None),
    };
    let address = v4_address(head).or_else(|| v6(head)).ok_or_else(invalid)?;
    let Some(mask) = mask else {
        return Ok(Interface { address, prefix: address.width() });
    };
    if mask.contains('/') {
        let message = "IPAddress() does not support netmasks or subnet prefixes! See documentation for details.";
        return Err(Failure::python("ValueError", message));
    }
    let prefix = match parse_int(mask) {
        Ok(length) => length.to_i64().and_then(|length| u32::try_from(length).ok()),
        Err(_) => match (address, v4_address(mask).or_else(|| v6(mask))) {
            (Address::V4(_), Some(Address::V4(mask))) => mask_prefix(u32::from(mask)),
            (Address::V6(_), Some(Address::V6(mask))) => mask_prefix_v6(mask),
            _ => None,
        },
    };
    let prefix = prefix.filter(|&prefix| prefix <= address.width()).ok_or_else(invalid)?;
    Ok(Interface { address, prefix })
}

fn mask_prefix_v6(mask: Ipv6Addr) -> Option<u32> {
    let mask = u128::from(mask);
    let contiguous = |mask: u128| mask.leading_ones() + mask.trailing_zeros() >= 128;
    if contiguous(mask) {
        Some(mask.leading_ones())
    } else {
        contiguous(!mask).then(|| (!mask).leading_ones())
    }
}

/// The C library's format: addresses that only hold an IPv4 address end like one.
fn inet_text(address: Address) -> String {
    match address {
        Address::V6(v6) => match v6.segments() {
            [0, 0, 0, 0, 0, 0, high, _] if high != 0 => {
                let [.., a, b, c, d] = v6.octets();
                format!("::{}", Ipv4Addr::new(a, b, c, d))
            }
            _ => v6.to_string(),
        },
        v4 @ Address::V4(_) => v4.to_string(),
    }
}

fn text_value(ctx: &mut dyn PluginContext, address: Address) -> PluginResult {
    Ok(ctx.heap_mut().str(&inet_text(address)))
}

/// A number, truncated to an integer.
fn to_int(ctx: &dyn PluginContext, value: Value) -> Result<Int, Failure> {
    match value {
        Value::Float(float) => Ok(Int::from_f64_trunc(float)?),
        other => integer(ctx, other),
    }
}

fn hostname(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let name = text(ctx, args[0])?.split('.').next().unwrap_or_default().to_owned();
    Ok(ctx.heap_mut().str(&name))
}

fn concat(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let name = format!("{}.{}", text(ctx, args[0])?, text(ctx, args[1])?);
    Ok(ctx.heap_mut().str(&name))
}

fn network(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let source = format!("{}/{}", text(ctx, args[0])?, text(ctx, args[1])?);
    let network = parse_network(&source)?.network();
    text_value(ctx, network)
}

fn cidr_to_network(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let network = parse_network(text(ctx, args[0])?)?.network();
    text_value(ctx, network)
}

fn net_to_nm(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let mask = parse_network(text(ctx, args[0])?)?.netmask();
    text_value(ctx, mask)
}

fn netmask(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let source = format!("255.255.255.255/{}", ctx.proxy_str(args[0]));
    let mask = parse_network(&source)?.netmask();
    text_value(ctx, mask)
}

/// One part of a network; null for a part that it does not have.
fn ipnet(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let interface = parse_network(text(ctx, args[0])?)?;
    let part = match text(ctx, args[1])? {
        "ip" => inet_text(interface.address),
        "prefixlen" => interface.prefix.to_string(),
        "netmask" => inet_text(interface.netmask()),
        "network" => inet_text(interface.network()),
        _ => return Ok(Value::Null),
    };
    Ok(ctx.heap_mut().str(&part))
}

fn ipindex(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let interface = parse_network(text(ctx, args[0])?)?;
    if let Value::Float(float) = args[1]
        && !float.is_finite()
    {
        let message = format!("unsupported index type {}!", repr_float(float));
        return Err(Failure::python("TypeError", message));
    }
    let position = to_int(ctx, args[1])?;
    match interface.at(&position) {
        Some(address) => text_value(ctx, address),
        None => Err(Failure::python("IndexError", "index out range for address range size!")),
    }
}

fn add(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let source = text(ctx, args[0])?;
    let address = any_address(source).ok_or_else(|| {
        let shown = orrery_python::repr_str(source);
        let message = format!("failed to detect a valid IP address from {shown}");
        Failure::python("netaddr.core.AddrFormatError", message)
    })?;
    // A float is added as a float; the sum is truncated, not the number.
    let added = match args[1] {
        Value::Float(float) => {
            let bits = num_bigint::BigInt::from(address.bits());
            Int::from_f64_trunc(address.bits() as f64 + float)?.sub(&Int::from(bits))
        }
        other => integer(ctx, other)?,
    };
    let sum = super::network::add(address, &added)
        .map_err(|_| Failure::python("IndexError", "result outside valid IP address boundary!"))?;
    text_value(ctx, sum)
}

fn check(ctx: &dyn PluginContext, value: Value, accepts: impl Fn(&str) -> bool) -> PluginResult {
    Ok(Value::Bool(accepts(text(ctx, value)?)))
}

fn is_valid_ip(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    check(ctx, args[0], |text| inet_aton(text).is_some())
}

fn is_valid_ip_v6(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    check(ctx, args[0], |text| v6(text).is_some())
}

fn is_valid_ip_v10(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    check(ctx, args[0], |text| any_address(text).is_some())
}

/// The IP version of a network with a mask.
fn cidr_version(text: &str) -> Option<u32> {
    let has_mask = text.contains('/');
    parse_network(text).ok().filter(|_| has_mask).map(|network| network.address.version())
}

fn is_valid_cidr(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    check(ctx, args[0], |text| cidr_version(text) == Some(4))
}

fn is_valid_cidr_v6(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    check(ctx, args[0], |text| cidr_version(text) == Some(6))
}

fn is_valid_cidr_v10(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    check(ctx, args[0], |text| cidr_version(text).is_some())
}

fn is_valid_netmask(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    check(ctx, args[0], |text| match any_address(text) {
        Some(Address::V4(mask)) => {
            let mask = u32::from(mask);
            mask.leading_ones() + mask.trailing_zeros() >= 32
        }
        Some(Address::V6(mask)) => {
            let mask = u128::from(mask);
            mask.leading_ones() + mask.trailing_zeros() >= 128
        }
        None => false,
    })
}
