//! Plugins that calculate with IP addresses.
//!
//! Addresses arrive validated by their refinement types; the errors for other texts are those of
//! Python's `ipaddress`.

use orrery_python::{Int, repr_str};

use super::address::{Address, Interface, any_address, any_interface, any_network, v4_interface};
use super::args::{integer, optional, plugin, required, text, truth};
use super::{Failure, NativePlugin, ParamDefault, PluginContext, PluginResult};
use crate::value::Value;

pub(super) const PLUGINS: &[NativePlugin] = &[
    plugin!("std::add_to_ip", [required("addr", "std::ipv_any_address"), required("n", "int")]
        => "std::ipv_any_address", add_to_ip),
    plugin!("std::ip_address_from_interface", [required("ip_interface", "std::ipv_any_interface")]
        => "std::ipv_any_address", ip_address_from_interface),
    plugin!("std::ipindex",
        [required("addr", "std::ipv_any_network"), required("position", "int"),
         optional("keep_prefix", "bool", ParamDefault::Bool(false))] => "string", ipindex),
    plugin!("std::netmask", [required("addr", "std::ipv_any_interface")] => "std::ipv_any_address", netmask),
    plugin!("std::network_address", [required("addr", "std::ipv_any_interface")]
        => "std::ipv_any_address", network_address),
    plugin!("std::prefixlen", [required("addr", "std::ipv_any_interface")] => "int", prefixlen),
    plugin!("std::prefixlength_to_netmask", [required("prefixlen", "int")] => "std::ipv4_address",
        prefixlength_to_netmask),
];

fn not_an(what: &str, text: &str) -> Failure {
    let message = format!("{} does not appear to be an IPv4 or IPv6 {what}", repr_str(text));
    Failure::python("ValueError", message)
}

fn interface_arg(ctx: &dyn PluginContext, value: Value) -> Result<Interface, Failure> {
    let text = text(ctx, value)?;
    any_interface(text).ok_or_else(|| not_an("interface", text))
}

fn display(ctx: &mut dyn PluginContext, shown: impl std::fmt::Display) -> PluginResult {
    Ok(ctx.heap_mut().str(&shown.to_string()))
}

fn prefixlen(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    Ok(Value::Int(i64::from(interface_arg(ctx, args[0])?.prefix)))
}

fn network_address(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let network = interface_arg(ctx, args[0])?.network();
    display(ctx, network)
}

fn netmask(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let mask = interface_arg(ctx, args[0])?.netmask();
    display(ctx, mask)
}

fn ip_address_from_interface(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let address = interface_arg(ctx, args[0])?.address;
    display(ctx, address)
}

fn prefixlength_to_netmask(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let source = format!("255.255.255.255/{}", ctx.proxy_str(args[0]));
    let interface = v4_interface(&source).ok_or_else(|| not_an("interface", &source))?;
    display(ctx, interface.netmask())
}

/// The address at a position of a network; negative positions count from the end.
fn ipindex(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let source = text(ctx, args[0])?;
    let network = any_network(source).ok_or_else(|| not_an("network", source))?;
    let position = integer(ctx, args[1])?;
    let address = network
        .at(&position)
        .ok_or_else(|| Failure::python("IndexError", "address out of range"))?;
    if truth(ctx, args[2]) {
        display(ctx, format_args!("{address}/{}", network.prefix))
    } else {
        display(ctx, address)
    }
}

fn add_to_ip(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let source = text(ctx, args[0])?;
    let address = any_address(source).ok_or_else(|| not_an("address", source))?;
    let added = integer(ctx, args[1])?;
    let sum = add(address, &added)?;
    display(ctx, sum)
}

/// `address + number`, with Python's error if it leaves the address space.
pub(super) fn add(address: Address, added: &Int) -> Result<Address, Failure> {
    let sum = num_bigint::BigInt::from(address.bits()) + &*added.to_big();
    let (width, version) = (address.width(), address.version());
    let result = u128::try_from(&sum).ok().and_then(|bits| address.with_bits(bits));
    result.ok_or_else(|| {
        let problem = if sum < num_bigint::BigInt::ZERO {
            "(< 0)".to_owned()
        } else {
            format!("(>= 2**{width})")
        };
        let message = format!("{sum} {problem} is not permitted as an IPv{version} address");
        Failure::python("ipaddress.AddressValueError", message)
    })
}
