//! Resolves the hosts of a document: members of groups, values by precedence, addresses.

use std::collections::{BTreeMap, BTreeSet};

use super::document::{Document, Path, Settings, read_address};
use super::problem::{InventoryIssue, InventoryProblem};
use super::ranges::expand;
use super::{HOSTS_MAX, HostValue, HostValueSource, InventoryHost};
use crate::pattern::matches_wildcards;
use crate::similar_names::closest;
use crate::ssh_address::{AddressError, AgentAddress, SshAddress, parse_port};

/// Maximum number of hosts that a connection goes through.
const JUMPS_MAX: usize = 16;
const JUMP: &str = "jump";

/// A host before its values are decided.
#[derive(Default)]
struct Declared<'d> {
    /// Indexes of the groups that list it.
    groups: BTreeSet<usize>,
    settings: Option<&'d Settings>,
    path: Path,
}

/// Value of a host with its source and path.
type Chosen<'d> = (&'d str, HostValueSource, &'d Path);

/// Resolves all hosts. The hosts are complete only without problems.
pub(super) fn hosts(
    document: &Document,
) -> (BTreeMap<String, InventoryHost>, Vec<InventoryProblem>) {
    let mut problems = Vec::new();
    let declared = declare(document, &mut problems);
    let around = surrounding_groups(document, &mut problems);
    if !problems.is_empty() {
        return (BTreeMap::new(), problems);
    }
    let mut hosts = BTreeMap::new();
    let mut jumps = BTreeMap::new();
    for (name, one) in &declared {
        let mut groups = one.groups.clone();
        groups.extend(one.groups.iter().flat_map(|group| &around[*group]));
        let chosen = choose(document, (name, one), (&groups, &around), &mut problems);
        let address = match address(name, &chosen) {
            Ok(address) => address,
            Err((path, error)) => {
                problems.push(problem(path.unwrap_or(&one.path), error.into()));
                continue;
            }
        };
        if !matches!(address, AgentAddress::Ssh(_)) {
            refuse_ineffective(&address, &chosen, &mut problems);
        } else if let Some((text, source, path)) = chosen.get(JUMP) {
            jumps.insert(name.as_str(), (*text, *source == HostValueSource::Host, *path));
        }
        let mut groups: Vec<String> =
            groups.into_iter().map(|group| document.groups[group].name.clone()).collect();
        groups.sort_unstable();
        let value = |(key, (value, source, _)): (&&'static str, &Chosen<'_>)| {
            (*key, HostValue { value: (*value).to_owned(), source: source.clone() })
        };
        let mut values: BTreeMap<&'static str, HostValue> = chosen.iter().map(value).collect();
        values
            .entry("address")
            .or_insert_with(|| HostValue { value: name.clone(), source: HostValueSource::Name });
        hosts.insert(name.clone(), InventoryHost { groups, address, values });
    }
    if problems.is_empty() {
        resolve_jumps(&mut hosts, &jumps, &mut problems);
    }
    (hosts, problems)
}

fn problem(path: &Path, issue: InventoryIssue) -> InventoryProblem {
    InventoryProblem { path: path.clone(), is_key: false, issue }
}

/// Collects the hosts and the groups that list them.
fn declare<'d>(
    document: &'d Document,
    problems: &mut Vec<InventoryProblem>,
) -> BTreeMap<String, Declared<'d>> {
    let mut declared: BTreeMap<String, Declared<'d>> = BTreeMap::new();
    for host in &document.hosts {
        if !is_name(&host.name) {
            let issue = InventoryIssue::HostName(host.name.clone());
            problems.push(InventoryProblem { path: host.path.clone(), is_key: true, issue });
        }
        let one = declared.entry(host.name.clone()).or_default();
        (one.settings, one.path) = (Some(&host.settings), host.path.clone());
    }
    let is_pattern = |text: &str| text.contains(['*', '?']);
    for (index, group) in document.groups.iter().enumerate() {
        for (text, path) in group.hosts.iter().filter(|(text, _)| !is_pattern(text)) {
            let names = match expand(text) {
                Ok(names) => names,
                Err(issue) => {
                    problems.push(problem(path, issue));
                    continue;
                }
            };
            for name in names {
                if !is_name(&name) {
                    problems.push(problem(path, InventoryIssue::HostName(name)));
                    break;
                }
                let one = declared.entry(name).or_default();
                one.groups.insert(index);
                if one.path.is_empty() {
                    one.path.clone_from(path);
                }
            }
            if declared.len() > HOSTS_MAX {
                problems.push(problem(path, InventoryIssue::TooManyHosts));
                return declared;
            }
        }
    }
    for (index, group) in document.groups.iter().enumerate() {
        for (pattern, path) in group.hosts.iter().filter(|(text, _)| is_pattern(text)) {
            let matching = declared.iter_mut().filter(|(name, _)| matches_wildcards(pattern, name));
            let count = matching.map(|(_, one)| one.groups.insert(index)).count();
            if count == 0 {
                problems.push(problem(path, InventoryIssue::NoMatch(pattern.clone())));
            }
        }
    }
    declared
}

/// Returns true for names that an agent can have and that are no addresses.
fn is_name(name: &str) -> bool {
    let is_odd = |c: char| c.is_whitespace() || c.is_control() || "[]{}*?/@,".contains(c);
    !name.is_empty() && name.len() <= 255 && !name.starts_with('-') && !name.contains(is_odd)
}

/// Returns for each group the groups that contain it, directly or through others.
fn surrounding_groups(
    document: &Document,
    problems: &mut Vec<InventoryProblem>,
) -> Vec<BTreeSet<usize>> {
    let index: BTreeMap<&str, usize> =
        document.groups.iter().enumerate().map(|(at, group)| (group.name.as_str(), at)).collect();
    let mut parents: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); document.groups.len()];
    for (at, group) in document.groups.iter().enumerate() {
        for (name, path) in &group.groups {
            match index.get(name.as_str()) {
                Some(&child) => drop(parents[child].insert(at)),
                None => {
                    let similar = closest(name, index.keys().copied()).map(str::to_owned);
                    let name = name.clone();
                    problems.push(problem(path, InventoryIssue::UnknownGroup { name, similar }));
                }
            }
        }
    }
    let mut around = Vec::with_capacity(parents.len());
    for (at, group) in document.groups.iter().enumerate() {
        let mut found = BTreeSet::new();
        let mut next: Vec<usize> = parents[at].iter().copied().collect();
        while let Some(parent) = next.pop() {
            if found.insert(parent) {
                next.extend(&parents[parent]);
            }
        }
        if found.contains(&at) {
            problems.push(problem(&group.path, InventoryIssue::GroupCycle(group.name.clone())));
        }
        around.push(found);
    }
    around
}

/// Decides the values of a host.
fn choose<'d>(
    document: &'d Document,
    (name, host): (&str, &Declared<'d>),
    (groups, around): (&BTreeSet<usize>, &[BTreeSet<usize>]),
    problems: &mut Vec<InventoryProblem>,
) -> BTreeMap<&'static str, Chosen<'d>> {
    let mut chosen = BTreeMap::new();
    for (key, (value, path)) in host.settings.into_iter().flatten() {
        chosen.insert(*key, (value.as_str(), HostValueSource::Host, path));
    }
    let keys: BTreeSet<&'static str> =
        groups.iter().flat_map(|group| document.groups[*group].settings.keys().copied()).collect();
    for key in keys {
        if chosen.contains_key(key) {
            continue;
        }
        let givers = || {
            let all = groups.iter().copied();
            all.filter(|group| document.groups[*group].settings.contains_key(key))
        };
        // An inner group is more specific than the groups around it.
        let is_innermost = |group: &usize| !givers().any(|other| around[other].contains(group));
        let mut innermost = givers().filter(is_innermost).map(|group| &document.groups[group]);
        let Some(first) = innermost.next() else { continue };
        let (value, path) = &first.settings[key];
        if let Some(other) = innermost.find(|other| other.settings[key].0 != *value) {
            let (different, path) = &other.settings[key];
            let issue = InventoryIssue::Conflict {
                host: name.to_owned(),
                key,
                one: Box::new((first.name.clone(), value.clone())),
                other: Box::new((other.name.clone(), different.clone())),
            };
            problems.push(problem(path, issue));
        }
        chosen.insert(key, (value, HostValueSource::Group(first.name.clone()), path));
    }
    for (key, (value, path)) in &document.defaults {
        chosen.entry(key).or_insert((value, HostValueSource::Defaults, path));
    }
    chosen
}

/// Builds the address of a host, without hosts on the way. Parts of the address itself beat values.
fn address<'d>(
    name: &str,
    chosen: &BTreeMap<&'static str, Chosen<'d>>,
) -> Result<AgentAddress, (Option<&'d Path>, AddressError)> {
    let given = chosen.get("address");
    let at = given.map(|(_, _, path)| *path);
    let read = read_address(given.map_or(name, |(text, ..)| text));
    let mut address = match read.map_err(|error| (at, error))? {
        AgentAddress::Ssh(address) => address,
        other => return Ok(other),
    };
    for (key, (value, _, path)) in chosen {
        set_value(&mut address, key, value).map_err(|error| (Some(*path), error))?;
    }
    Ok(AgentAddress::Ssh(address))
}

/// Sets a value of an address, unless it has one.
fn set_value(address: &mut SshAddress, key: &str, value: &str) -> Result<(), AddressError> {
    match key {
        "address" | JUMP => {}
        "port" if address.port.is_none() => address.port = Some(parse_port(value)?),
        "user" if address.user.is_none() => address.set_user(value)?,
        "port" | "user" => {}
        option if address.options.get(option).is_none() => address.options.set(option, value)?,
        _ => {}
    }
    Ok(())
}

/// Refuses values of a host that is not reached over SSH.
fn refuse_ineffective(
    address: &AgentAddress,
    chosen: &BTreeMap<&'static str, Chosen<'_>>,
    problems: &mut Vec<InventoryProblem>,
) {
    for (key, (_, source, path)) in chosen {
        if *source == HostValueSource::Host && *key != "address" {
            let issue = InventoryIssue::NoEffect { address: address.to_string(), key };
            problems.push(problem(path, issue));
        }
    }
}

/// Text, true if the host itself has it, and path of a value `jump`.
type Jumps<'d> = BTreeMap<&'d str, (&'d str, bool, &'d Path)>;

/// Adds the hosts on the way to addresses: hosts of the inventory with their own values, or others.
fn resolve_jumps(
    hosts: &mut BTreeMap<String, InventoryHost>,
    jumps: &Jumps<'_>,
    problems: &mut Vec<InventoryProblem>,
) {
    let direct: BTreeMap<String, SshAddress> = jumps
        .values()
        .flat_map(|(text, ..)| text.split(',').map(str::trim))
        .filter_map(|hop| match &hosts.get(hop)?.address {
            AgentAddress::Ssh(address) => Some((hop.to_owned(), (**address).clone())),
            _ => None,
        })
        .collect();
    for (&name, &(text, is_own, path)) in jumps {
        let hops: Vec<&str> = text.split(',').map(str::trim).collect();
        // A common jump host is reached directly.
        if !is_own && hops.contains(&name) {
            continue;
        }
        match way(&hops, &direct, jumps, &mut vec![name]) {
            Ok(jump) => {
                if let Some(InventoryHost { address: AgentAddress::Ssh(address), .. }) =
                    hosts.get_mut(name)
                    && address.options.jump.is_none()
                {
                    address.options.jump = jump.map(Box::new);
                }
            }
            Err(None) => {
                problems.push(problem(path, InventoryIssue::JumpCycle(name.to_owned())));
            }
            Err(Some(error)) => problems.push(problem(path, error.into())),
        }
    }
}

/// Returns the last hop of a way, with those before it; `Err(None)` for a cycle.
fn way<'d>(
    hops: &[&'d str],
    direct: &BTreeMap<String, SshAddress>,
    jumps: &Jumps<'d>,
    reached: &mut Vec<&'d str>,
) -> Result<Option<SshAddress>, Option<AddressError>> {
    let mut before: Option<SshAddress> = None;
    for &hop in hops {
        if reached.contains(&hop) || reached.len() > JUMPS_MAX {
            return Err(None);
        }
        let mut address = match direct.get(hop) {
            Some(address) => address.clone(),
            None => SshAddress::from_authority(hop).map_err(Some)?,
        };
        let own = jumps.get(hop).map(|(text, is_own, _)| {
            let hops: Vec<&str> = text.split(',').map(str::trim).collect();
            (hops, *is_own)
        });
        // The first hop may itself be behind another host.
        if let Some((own, is_own)) = own.filter(|_| before.is_none())
            && (is_own || !own.contains(&hop))
        {
            reached.push(hop);
            before = way(&own, direct, jumps, reached)?;
            reached.pop();
        }
        if address.options.jump.is_none() {
            address.options.jump = before.map(Box::new);
        }
        before = Some(address);
    }
    debug_assert!(hops.is_empty() || before.is_some(), "a way with hops has a last one");
    Ok(before)
}
