//! One destination with all of its settings.

use std::path::PathBuf;
use std::time::Duration;

use super::ConfigError;
use super::parse::Statement;

pub const PORT_DEFAULT: u16 = 22;

/// User and machine that connections start from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalUser {
    pub name: String,
    pub uid: u32,
    pub home: PathBuf,
    pub host_name: String,
    /// Value of `SSH_AUTH_SOCK`.
    pub agent_socket: Option<PathBuf>,
}

/// A host to resolve, with values that win over the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostRequest {
    /// Alias or host name, as configured or typed.
    pub host: String,
    /// Address instead of the configured `HostName`.
    pub address: Option<String>,
    pub user: Option<String>,
    pub port: Option<u16>,
    /// Identity files before those of the configuration.
    pub identities: Vec<String>,
    pub jumps: Option<Vec<JumpHost>>,
    pub host_keys: Option<HostKeyPolicy>,
    pub known_hosts: Option<Vec<String>>,
    pub connect_timeout: Option<Duration>,
}

/// Policy for hosts without a known key. A changed key is always rejected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostKeyPolicy {
    /// Rejects unknown hosts.
    #[default]
    Known,
    /// Trusts a host on first use and records its key.
    AcceptNew,
}

/// Socket of the authentication agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AgentSocket {
    /// That of `SSH_AUTH_SOCK`.
    #[default]
    Environment,
    Path(PathBuf),
    None,
}

/// A jump host, as `ProxyJump` names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JumpHost {
    pub host: String,
    pub user: Option<String>,
    pub port: Option<u16>,
}

impl JumpHost {
    /// Parses `[user@]host[:port]` or `ssh://[user@]host[:port]`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix("ssh://").unwrap_or(text).trim_end_matches('/');
        let (user, rest) = match text.rsplit_once('@') {
            Some((user, rest)) => (Some(user.to_owned()), rest),
            None => (None, text),
        };
        let (host, port) = match rest.strip_prefix('[') {
            Some(rest) => {
                let (host, after) = rest.split_once(']')?;
                let port = if after.is_empty() { None } else { Some(after.strip_prefix(':')?) };
                (host, port)
            }
            None if rest.matches(':').count() > 1 => (rest, None),
            None => match rest.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (rest, None),
            },
        };
        let port = port.map(|port| parse_port(port).ok_or(())).transpose().ok()?;
        let named = !host.is_empty() && user.as_ref().is_none_or(|user| !user.is_empty());
        named.then(|| JumpHost { host: host.to_owned(), user, port })
    }

    pub(super) fn to_request(&self) -> HostRequest {
        HostRequest {
            host: self.host.clone(),
            user: self.user.clone(),
            port: self.port,
            ..HostRequest::default()
        }
    }
}

/// A resolved destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Name that was asked for.
    pub alias: String,
    /// Name or address to connect to.
    pub host: String,
    pub port: u16,
    pub user: String,
    /// Identity files, expanded. Empty means the default files.
    pub identities: Vec<PathBuf>,
    pub certificates: Vec<PathBuf>,
    /// Offers only the configured identities, not all of the agent.
    pub identities_only: bool,
    pub agent: AgentSocket,
    pub jumps: Vec<JumpHost>,
    pub host_keys: HostKeyPolicy,
    /// Files of known hosts: the user's, where new keys go, and those of the machine.
    pub user_known_hosts: Vec<PathBuf>,
    pub global_known_hosts: Vec<PathBuf>,
    pub host_key_alias: Option<String>,
    pub connect_timeout: Option<Duration>,
}

impl Destination {
    /// Name of the host in files of known hosts.
    pub fn host_key_name(&self) -> String {
        match &self.host_key_alias {
            Some(alias) => alias.to_ascii_lowercase(),
            None => host_key_name(&self.host, self.port),
        }
    }

    /// `user@host:port`, for messages.
    pub fn address(&self) -> String {
        if self.host.contains(':') {
            format!("{}@[{}]:{}", self.user, self.host, self.port)
        } else {
            format!("{}@{}:{}", self.user, self.host, self.port)
        }
    }
}

/// Name of a host in files of known hosts.
pub(crate) fn host_key_name(host: &str, port: u16) -> String {
    let host = host.to_ascii_lowercase();
    if port == PORT_DEFAULT { host } else { format!("[{host}]:{port}") }
}

fn parse_port(text: &str) -> Option<u16> {
    text.parse().ok().filter(|&port| port != 0)
}

/// Value of `ConnectTimeout`.
#[derive(Clone, Copy)]
enum Timeout {
    None,
    After(Duration),
}

/// First values of the keywords.
#[derive(Default)]
struct FirstValues<'s> {
    host_name: Option<&'s str>,
    user: Option<&'s str>,
    port: Option<u16>,
    identities: Vec<&'s str>,
    certificates: Vec<&'s str>,
    identities_only: Option<bool>,
    agent: Option<&'s str>,
    jumps: Option<Vec<JumpHost>>,
    host_keys: Option<HostKeyPolicy>,
    user_known_hosts: Option<&'s [String]>,
    global_known_hosts: Option<&'s [String]>,
    host_key_alias: Option<&'s str>,
    connect_timeout: Option<Timeout>,
}

impl<'s> FirstValues<'s> {
    fn read(&mut self, statement: &'s Statement) -> Result<(), ConfigError> {
        match statement.keyword.as_str() {
            "hostname" => first(&mut self.host_name, statement.value()?),
            "user" => first(&mut self.user, statement.value()?),
            "port" => {
                let port = parse_port(statement.value()?)
                    .ok_or_else(|| statement.error("Port is not a number from 1 to 65535"))?;
                first(&mut self.port, port);
            }
            "identityfile" => add(&mut self.identities, statement.value()?),
            "certificatefile" => add(&mut self.certificates, statement.value()?),
            "identitiesonly" => first(&mut self.identities_only, flag(statement)?),
            "identityagent" => first(&mut self.agent, statement.value()?),
            "proxyjump" => first(&mut self.jumps, parse_jumps(statement)?),
            "proxycommand" => {
                let none = matches!(&statement.arguments[..], [value] if value.eq_ignore_ascii_case("none"));
                if self.jumps.is_none() && !none {
                    let reason = "ProxyCommand is not supported: use ProxyJump";
                    return Err(statement.error(reason));
                }
                first(&mut self.jumps, Vec::new());
            }
            "stricthostkeychecking" => {
                let policy = match &*statement.value()?.to_ascii_lowercase() {
                    "yes" | "true" | "ask" => HostKeyPolicy::Known,
                    "accept-new" | "no" | "false" | "off" => HostKeyPolicy::AcceptNew,
                    other => {
                        let reason = format!(
                            "StrictHostKeyChecking is {other:?}: expected yes, ask, accept-new or no"
                        );
                        return Err(statement.error(reason));
                    }
                };
                first(&mut self.host_keys, policy);
            }
            "userknownhostsfile" => {
                first(&mut self.user_known_hosts, some_values(statement)?);
            }
            "globalknownhostsfile" => {
                first(&mut self.global_known_hosts, some_values(statement)?);
            }
            "hostkeyalias" => first(&mut self.host_key_alias, statement.value()?),
            "connecttimeout" => {
                let value = statement.value()?;
                let timeout = match value.eq_ignore_ascii_case("none") {
                    true => Timeout::None,
                    false => Timeout::After(parse_duration(value).ok_or_else(|| {
                        statement.error("ConnectTimeout is neither a duration nor `none`")
                    })?),
                };
                first(&mut self.connect_timeout, timeout);
            }
            _ => {}
        }
        Ok(())
    }
}

fn first<T>(slot: &mut Option<T>, value: T) {
    slot.get_or_insert(value);
}

fn add<'s>(list: &mut Vec<&'s str>, value: &'s str) {
    if !list.contains(&value) {
        list.push(value);
    }
}

fn some_values(statement: &Statement) -> Result<&[String], ConfigError> {
    match statement.arguments.is_empty() {
        true => Err(statement.error(format!("{} has no value", statement.keyword))),
        false => Ok(&statement.arguments),
    }
}

fn flag(statement: &Statement) -> Result<bool, ConfigError> {
    match &*statement.value()?.to_ascii_lowercase() {
        "yes" | "true" => Ok(true),
        "no" | "false" => Ok(false),
        _ => Err(statement.error(format!("{} is neither yes nor no", statement.keyword))),
    }
}

fn parse_jumps(statement: &Statement) -> Result<Vec<JumpHost>, ConfigError> {
    let value = statement.value()?;
    if value.eq_ignore_ascii_case("none") {
        return Ok(Vec::new());
    }
    let parse = |text: &str| {
        JumpHost::parse(text).ok_or_else(|| {
            statement.error(format!("ProxyJump: {text:?} is not [user@]host[:port]"))
        })
    };
    value.split(',').map(parse).collect()
}

/// Parses seconds, or a sum of numbers with the units s, m, h, d and w.
fn parse_duration(text: &str) -> Option<Duration> {
    let mut seconds: u64 = 0;
    let mut number: Option<u64> = None;
    for character in text.chars() {
        if let Some(digit) = character.to_digit(10) {
            let so_far = number.unwrap_or(0).checked_mul(10)?;
            number = Some(so_far.checked_add(u64::from(digit))?);
            continue;
        }
        let unit = match character.to_ascii_lowercase() {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            'w' => 604_800,
            _ => return None,
        };
        seconds = seconds.checked_add(number.take()?.checked_mul(unit)?)?;
    }
    if text.is_empty() {
        return None;
    }
    // OpenSSH keeps it in an int.
    let seconds = seconds.checked_add(number.unwrap_or(0))?;
    i32::try_from(seconds).ok()?;
    Some(Duration::from_secs(seconds))
}

pub(super) fn resolve<'s>(
    statements: impl Iterator<Item = &'s Statement>,
    request: &HostRequest,
    local: &LocalUser,
) -> Result<Destination, ConfigError> {
    let mut values = FirstValues::default();
    for statement in statements {
        values.read(statement)?;
    }
    let refuse = |reason: String| ConfigError { file: request.host.clone(), line: 0, reason };
    let host = match (&request.address, values.host_name) {
        (Some(address), _) => address.clone(),
        (None, Some(pattern)) => expand_host_name(pattern, &request.host).map_err(refuse)?,
        (None, None) => request.host.clone(),
    };
    // Names are compared in lower case, as in OpenSSH.
    let host = host.to_ascii_lowercase();
    check_name("host name", &host).map_err(refuse)?;
    let user = request.user.as_deref().or(values.user).unwrap_or(&local.name).to_owned();
    check_name("user name", &user).map_err(refuse)?;
    let port = request.port.or(values.port).unwrap_or(PORT_DEFAULT);
    let alias = values.host_key_alias.map(str::to_owned);
    let tokens = Tokens {
        local,
        host: &host,
        alias: &request.host,
        port,
        user: &user,
        key_alias: alias.as_deref(),
    };
    let paths = |texts: Vec<&str>| -> Result<Vec<PathBuf>, ConfigError> {
        let files = texts.into_iter().filter(|text| !text.eq_ignore_ascii_case("none"));
        files.map(|text| tokens.path(text).map_err(refuse)).collect()
    };
    let wanted = request.identities.iter().map(String::as_str);
    let identities = paths(wanted.chain(values.identities).collect())?;
    let certificates = paths(values.certificates)?;
    let agent = match values.agent {
        None => AgentSocket::Environment,
        Some(text) if text.eq_ignore_ascii_case("none") => AgentSocket::None,
        Some("SSH_AUTH_SOCK") => AgentSocket::Environment,
        Some(text) => AgentSocket::Path(tokens.path(text).map_err(refuse)?),
    };
    let known = |set: Option<&[String]>, defaults: [&str; 2]| match set {
        Some(set) => paths(set.iter().map(String::as_str).collect()),
        None => paths(defaults.to_vec()),
    };
    let user_known = request.known_hosts.as_deref().or(values.user_known_hosts);
    Ok(Destination {
        alias: request.host.clone(),
        port,
        identities,
        certificates,
        identities_only: values.identities_only.unwrap_or(false),
        agent,
        jumps: request.jumps.clone().or(values.jumps).unwrap_or_default(),
        host_keys: request.host_keys.or(values.host_keys).unwrap_or_default(),
        user_known_hosts: known(user_known, ["~/.ssh/known_hosts", "~/.ssh/known_hosts2"])?,
        global_known_hosts: known(
            values.global_known_hosts,
            ["/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"],
        )?,
        connect_timeout: request.connect_timeout.or(match values.connect_timeout {
            Some(Timeout::After(limit)) => Some(limit),
            Some(Timeout::None) | None => None,
        }),
        host_key_alias: alias.clone(),
        host: host.clone(),
        user: user.clone(),
    })
}

/// Rejects names that could be read as options or commands somewhere.
fn check_name(what: &str, name: &str) -> Result<(), String> {
    let bad = |c: char| c.is_control() || c.is_whitespace() || "'`\"$\\;&<>|(){}".contains(c);
    match name.is_empty() || name.starts_with('-') || name.contains(bad) {
        true => Err(format!("the {what} {name:?} is not valid")),
        false => Ok(()),
    }
}

fn expand_host_name(pattern: &str, host: &str) -> Result<String, String> {
    expand(pattern, |token| match token {
        'h' => Some(host.to_owned()),
        _ => None,
    })
}

/// Replaces `%%` and the tokens that `value` knows.
fn expand(text: &str, value: impl Fn(char) -> Option<String>) -> Result<String, String> {
    let mut expanded = String::new();
    let mut rest = text.chars();
    while let Some(character) = rest.next() {
        match character {
            '%' => match rest.next() {
                Some('%') => expanded.push('%'),
                Some(token) => match value(token) {
                    Some(value) => expanded.push_str(&value),
                    None => return Err(format!("{text:?} has the unknown token %{token}")),
                },
                None => return Err(format!("{text:?} ends with a single %")),
            },
            other => expanded.push(other),
        }
    }
    Ok(expanded)
}

/// Values of the tokens in paths.
struct Tokens<'a> {
    local: &'a LocalUser,
    host: &'a str,
    alias: &'a str,
    port: u16,
    user: &'a str,
    key_alias: Option<&'a str>,
}

impl Tokens<'_> {
    /// Expands the home directory and tokens.
    fn path(&self, text: &str) -> Result<PathBuf, String> {
        let text = match text.strip_prefix("~/") {
            Some(rest) => format!("{}/{rest}", self.local.home.display()),
            None if text == "~" => self.local.home.display().to_string(),
            None if text.starts_with('~') => {
                return Err(format!("{text:?}: home directories of other users are not supported"));
            }
            None => text.to_owned(),
        };
        let short_name = || self.local.host_name.split('.').next().unwrap_or_default().to_owned();
        let expanded = expand(&text, |token| {
            Some(match token {
                'd' => self.local.home.display().to_string(),
                'h' => self.host.to_owned(),
                'i' => self.local.uid.to_string(),
                'k' => self.key_alias.unwrap_or(self.alias).to_owned(),
                'L' => short_name(),
                'l' => self.local.host_name.clone(),
                'n' => self.alias.to_owned(),
                'p' => self.port.to_string(),
                'r' => self.user.to_owned(),
                'u' => self.local.name.clone(),
                _ => return None,
            })
        })?;
        let path = PathBuf::from(expanded);
        // Relative paths would depend on the directory of the process.
        Ok(if path.is_absolute() { path } else { self.local.home.join(".ssh").join(path) })
    }
}
