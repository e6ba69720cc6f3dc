//! Addresses of agents: this machine, a machine that SSH reaches, or none.
//!
//! Texts have the form `local:`, `none:` or `ssh://user@host:port?option=value`. Options have the
//! same names in addresses and in the inventory; [`SshOptions::set`] alone reads their values.

use std::fmt;
use std::str::FromStr;

use crate::similar_names::closest;

/// Maximum length of an address in bytes.
const ADDRESS_BYTES_MAX: usize = 4096;

/// Address of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentAddress {
    /// The machine on which handlers run.
    Local,
    /// No machine.
    Nowhere,
    Ssh(Box<SshAddress>),
}

/// A machine that SSH reaches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SshAddress {
    /// Name or IP address, without brackets.
    pub host: String,
    pub port: Option<u16>,
    pub user: Option<String>,
    pub options: SshOptions,
}

/// Options of a connection. `None` leaves the choice to the configuration of the SSH client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SshOptions {
    /// Path of the private key.
    pub identity: Option<String>,
    /// Name of the secret with the private key itself.
    pub identity_secret: Option<String>,
    /// Name of the secret with the passphrase of the private key.
    pub passphrase_secret: Option<String>,
    /// Host through which the connection goes.
    pub jump: Option<Box<SshAddress>>,
    pub sudo: Option<Privilege>,
    /// Name of the secret with the password for `sudo` or `doas`.
    pub sudo_secret: Option<String>,
    /// Name of the secret with the password of the user.
    pub password_secret: Option<String>,
    pub strict_host_key: Option<HostKeyChecking>,
    /// Time limit for a connection, in seconds.
    pub connect_timeout_s: Option<u32>,
    /// Python interpreter on the machine.
    pub python: Option<String>,
    /// Attempts to connect.
    pub retries: Option<u32>,
    /// Time between attempts, in seconds.
    pub retry_wait_s: Option<u32>,
}

/// Program through which changes get the rights of root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// The rights of the user.
    User,
    Sudo,
    Doas,
}

/// Treatment of host keys that are not in `known_hosts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostKeyChecking {
    /// Refused.
    Strict,
    /// Accepted and recorded at the first connection; a changed key is refused.
    AcceptNew,
}

/// Reason for refusing an address or an option of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error("expected local:, none: or ssh://user@host:port")]
    Form,
    #[error("it is longer than {ADDRESS_BYTES_MAX} bytes")]
    Length,
    #[error("there is no host after ssh://")]
    NoHost,
    #[error("{0:?} is no name or address of a host")]
    Host(String),
    #[error("{0:?} is no port: expected a number from 1 to 65535")]
    Port(String),
    #[error("{0:?} is no name of a user")]
    User(String),
    #[error("a password does not belong in an address: use the option password_secret")]
    Password,
    #[error("a path follows the host, and SSH has none")]
    Path,
    #[error("% is not followed by two hexadecimal digits of UTF-8 text")]
    Encoding,
    #[error("there is no option {name:?}{}", suggestion(.similar.as_ref()))]
    UnknownOption { name: String, similar: Option<&'static str> },
    #[error("the option {0} occurs twice")]
    RepeatedOption(&'static str),
    #[error("{name} must be {expected}: {given:?}")]
    OptionValue { name: &'static str, expected: &'static str, given: String },
}

fn suggestion(similar: Option<&&'static str>) -> String {
    similar.map(|name| format!("; did you mean {name}?")).unwrap_or_default()
}

impl FromStr for AgentAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        match text {
            // Existing models write these for the deploying machine.
            "" | "localhost" | "ssh://localhost" => Ok(AgentAddress::Local),
            "none:" => Ok(AgentAddress::Nowhere),
            _ if text.starts_with("local:") => Ok(AgentAddress::Local),
            // Existing models also write the name of a host alone.
            _ if !text.contains([':', '/', '?', '@']) && text.len() <= ADDRESS_BYTES_MAX => {
                let address = SshAddress::new(text).map_err(|_| AddressError::Form)?;
                Ok(AgentAddress::Ssh(Box::new(address)))
            }
            _ => Ok(AgentAddress::Ssh(Box::new(text.parse()?))),
        }
    }
}

impl fmt::Display for AgentAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AgentAddress::Local => f.write_str("local:"),
            AgentAddress::Nowhere => f.write_str("none:"),
            AgentAddress::Ssh(address) => address.fmt(f),
        }
    }
}

impl FromStr for SshAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if text.len() > ADDRESS_BYTES_MAX {
            return Err(AddressError::Length);
        }
        let rest = text.strip_prefix("ssh://").ok_or(AddressError::Form)?;
        let (authority, query) = rest.split_once('?').unwrap_or((rest, ""));
        let authority = authority.strip_suffix('/').unwrap_or(authority);
        if authority.contains('/') {
            return Err(AddressError::Path);
        }
        let mut address = SshAddress::from_authority(authority)?;
        let mut seen = Vec::new();
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let name = SshOptions::name(name)?;
            if seen.contains(&name) {
                return Err(AddressError::RepeatedOption(name));
            }
            seen.push(name);
            address.options.set(name, &decode(value)?)?;
        }
        Ok(address)
    }
}

impl SshAddress {
    /// Address of a host, with the defaults of the SSH client.
    pub fn new(host: &str) -> Result<Self, AddressError> {
        check_host(host)?;
        Ok(SshAddress { host: host.to_owned(), ..SshAddress::default() })
    }

    /// Parses `user@host:port`, of which only the host is required.
    pub fn from_authority(text: &str) -> Result<Self, AddressError> {
        let (user, place) = match text.rsplit_once('@') {
            Some((user, place)) => (Some(decode(user)?), place),
            None => (None, text),
        };
        let (host, port) = match place.strip_prefix('[') {
            Some(rest) => {
                let wrong = || AddressError::Host(place.to_owned());
                let (host, port) = rest.split_once(']').ok_or_else(wrong)?;
                let port = match port {
                    "" => None,
                    port => Some(port.strip_prefix(':').ok_or_else(wrong)?),
                };
                (host, port)
            }
            // Several colons are an IPv6 address without brackets.
            None if place.matches(':').count() > 1 => (place, None),
            None => match place.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (place, None),
            },
        };
        let mut address = SshAddress::new(host)?;
        address.port = port.map(parse_port).transpose()?;
        if let Some(user) = user {
            address.set_user(&user)?;
        }
        Ok(address)
    }

    /// Sets the name of the user.
    pub fn set_user(&mut self, user: &str) -> Result<(), AddressError> {
        if user.contains(':') {
            return Err(AddressError::Password);
        }
        let is_odd = |c: char| c.is_whitespace() || c.is_control() || "@/\\'\"`$;&|<>".contains(c);
        if user.is_empty() || user.starts_with('-') || user.contains(is_odd) {
            return Err(AddressError::User(user.to_owned()));
        }
        self.user = Some(user.to_owned());
        Ok(())
    }

    /// Address for handlers in Python, which connect on their own. `None` if it has options that
    /// they do not know: without these, a connection may reach another machine.
    pub fn for_python_handlers(&self) -> Option<String> {
        let SshOptions { python, retries, retry_wait_s, .. } = self.options.clone();
        let known = SshOptions { python, retries, retry_wait_s, ..SshOptions::default() };
        (known == self.options).then(|| self.to_string())
    }

    /// Address without options, for messages.
    pub fn location(&self) -> String {
        format!("ssh://{}", self.authority())
    }

    fn authority(&self) -> String {
        let user = self.user.as_ref().map(|user| format!("{}@", encode(user)));
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        let port = self.port.map(|port| format!(":{port}"));
        format!("{}{host}{}", user.unwrap_or_default(), port.unwrap_or_default())
    }
}

impl fmt::Display for SshAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.location())?;
        for (at, name) in SshOptions::NAMES
            .into_iter()
            .filter_map(|name| Some((name, self.options.get(name)?)))
            .enumerate()
        {
            let separator = if at == 0 { '?' } else { '&' };
            write!(f, "{separator}{}={}", name.0, encode(&name.1))?;
        }
        Ok(())
    }
}

impl SshOptions {
    /// Names of all options.
    pub const NAMES: [&'static str; 12] = [
        "connect_timeout",
        "identity",
        "identity_secret",
        "jump",
        "passphrase_secret",
        "password_secret",
        "python",
        "retries",
        "retry_wait",
        "strict_host_key",
        "sudo",
        "sudo_secret",
    ];

    fn name(name: &str) -> Result<&'static str, AddressError> {
        let found = Self::NAMES.into_iter().find(|known| *known == name);
        found.ok_or_else(|| AddressError::UnknownOption {
            name: name.to_owned(),
            similar: closest(name, Self::NAMES.into_iter()),
        })
    }

    /// Sets an option from its text.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), AddressError> {
        let name = Self::name(name)?;
        let wrong =
            |expected| AddressError::OptionValue { name, expected, given: value.to_owned() };
        let number = || value.parse().ok().filter(|number| *number <= 86_400);
        let text = || {
            let fits = !value.is_empty() && !value.contains(char::is_control);
            fits.then(|| value.to_owned())
        };
        match name {
            "connect_timeout" => {
                let given: Option<u32> = number().filter(|seconds| *seconds > 0);
                self.connect_timeout_s = Some(given.ok_or_else(|| wrong("1 to 86400 seconds"))?);
            }
            "identity" => {
                self.identity = Some(text().ok_or_else(|| wrong("the path of a private key"))?);
            }
            "identity_secret" => {
                self.identity_secret = Some(text().ok_or_else(|| wrong("the name of a secret"))?);
            }
            "jump" => self.jump = Some(Box::new(parse_jump(value)?)),
            "passphrase_secret" => {
                self.passphrase_secret = Some(text().ok_or_else(|| wrong("the name of a secret"))?);
            }
            "password_secret" => {
                self.password_secret = Some(text().ok_or_else(|| wrong("the name of a secret"))?);
            }
            "python" => {
                self.python = Some(text().ok_or_else(|| wrong("a Python interpreter"))?);
            }
            "retries" => {
                self.retries = Some(number().ok_or_else(|| wrong("a number from 0 to 86400"))?);
            }
            "retry_wait" => {
                self.retry_wait_s = Some(number().ok_or_else(|| wrong("0 to 86400 seconds"))?);
            }
            "strict_host_key" => {
                self.strict_host_key = Some(match value {
                    "yes" | "true" => HostKeyChecking::Strict,
                    "accept-new" => HostKeyChecking::AcceptNew,
                    _ => return Err(wrong("yes or accept-new")),
                });
            }
            "sudo" => {
                self.sudo = Some(match value {
                    "yes" | "true" | "sudo" => Privilege::Sudo,
                    "no" | "false" => Privilege::User,
                    "doas" => Privilege::Doas,
                    _ => return Err(wrong("true, false or doas")),
                });
            }
            _ => {
                self.sudo_secret = Some(text().ok_or_else(|| wrong("the name of a secret"))?);
            }
        }
        Ok(())
    }

    /// Returns an option as text, if it is set.
    pub fn get(&self, name: &str) -> Option<String> {
        let number = |given: Option<u32>| given.map(|number| number.to_string());
        match name {
            "connect_timeout" => number(self.connect_timeout_s),
            "identity" => self.identity.clone(),
            "identity_secret" => self.identity_secret.clone(),
            "jump" => self.jump.as_deref().map(jump_text),
            "passphrase_secret" => self.passphrase_secret.clone(),
            "password_secret" => self.password_secret.clone(),
            "python" => self.python.clone(),
            "retries" => number(self.retries),
            "retry_wait" => number(self.retry_wait_s),
            "strict_host_key" => self.strict_host_key.map(|policy| policy.to_string()),
            "sudo" => self.sudo.map(|privilege| privilege.to_string()),
            "sudo_secret" => self.sudo_secret.clone(),
            _ => None,
        }
    }
}

impl fmt::Display for Privilege {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Privilege::User => "false",
            Privilege::Sudo => "true",
            Privilege::Doas => "doas",
        })
    }
}

impl fmt::Display for HostKeyChecking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HostKeyChecking::Strict => "yes",
            HostKeyChecking::AcceptNew => "accept-new",
        })
    }
}

/// Parses hosts in the order of the connection, separated by commas; each may have user and port.
fn parse_jump(text: &str) -> Result<SshAddress, AddressError> {
    let mut reached: Option<SshAddress> = None;
    for hop in text.split(',') {
        let mut address = SshAddress::from_authority(hop.trim())?;
        address.options.jump = reached.map(Box::new);
        reached = Some(address);
    }
    reached.ok_or(AddressError::NoHost)
}

fn jump_text(address: &SshAddress) -> String {
    match &address.options.jump {
        Some(before) => format!("{},{}", jump_text(before), address.authority()),
        None => address.authority(),
    }
}

/// Parses a port.
pub(crate) fn parse_port(text: &str) -> Result<u16, AddressError> {
    let port = text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    port.filter(|port| *port > 0).ok_or_else(|| AddressError::Port(text.to_owned()))
}

/// Checks a host: the SSH client and logs must take it for nothing else.
fn check_host(host: &str) -> Result<(), AddressError> {
    if host.is_empty() {
        return Err(AddressError::NoHost);
    }
    let fits = |c: char| c.is_alphanumeric() || ".-_:%".contains(c);
    let is_host = host.len() <= 255 && !host.starts_with(['-', '.', ':', '%']) || host == "::1";
    if !is_host || !host.chars().all(fits) || (host.contains('%') && !host.contains(':')) {
        return Err(AddressError::Host(host.to_owned()));
    }
    Ok(())
}

/// Decodes `%2f`.
fn decode(text: &str) -> Result<String, AddressError> {
    if !text.contains('%') {
        return Ok(text.to_owned());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes().iter();
    while let Some(&byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(*rest.next()?).to_digit(16);
        let (high, low) = (digit(), digit());
        let (Some(high), Some(low)) = (high, low) else { return Err(AddressError::Encoding) };
        bytes.push((high * 16 + low) as u8);
    }
    String::from_utf8(bytes).map_err(|_| AddressError::Encoding)
}

/// Encodes all but the characters that addresses often have.
fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' => encoded.push(char::from(byte)),
            b'-' | b'.' | b'_' | b'~' | b'/' | b',' | b':' | b'[' | b']' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<SshAddress, AddressError> {
        text.parse()
    }

    #[test]
    fn addresses_have_user_host_port_and_options() {
        let address = parse("ssh://deploy@192.0.2.1:2222?python=python3&sudo=doas").unwrap();
        assert_eq!((address.host.as_str(), address.port), ("192.0.2.1", Some(2222)));
        assert_eq!(address.user.as_deref(), Some("deploy"));
        assert_eq!(address.options.python.as_deref(), Some("python3"));
        assert_eq!(address.options.sudo, Some(Privilege::Doas));
        assert_eq!(address.location(), "ssh://deploy@192.0.2.1:2222");
        assert_eq!(parse("ssh://web1/").unwrap().to_string(), "ssh://web1");
        let v6 = parse("ssh://root@[2001:db8::1]:22").unwrap();
        assert_eq!((v6.host.as_str(), v6.port), ("2001:db8::1", Some(22)));
        assert_eq!(v6.to_string(), "ssh://root@[2001:db8::1]:22");
        let far = parse("ssh://web1?jump=ops@gate:2222,inner").unwrap();
        let inner = far.options.jump.as_deref().unwrap();
        assert_eq!(inner.host, "inner");
        assert_eq!(inner.options.jump.as_deref().unwrap().location(), "ssh://ops@gate:2222");
        assert_eq!(far.to_string(), "ssh://web1?jump=ops%40gate:2222,inner");
    }

    #[test]
    fn handlers_in_python_get_only_addresses_that_they_understand() {
        let address = "ssh://root@web1:22?python=python3&retries=2&retry_wait=1";
        assert_eq!(parse(address).unwrap().for_python_handlers().as_deref(), Some(address));
        assert_eq!(parse("ssh://web1?jump=gate").unwrap().for_python_handlers(), None);
        assert_eq!(parse("ssh://web1?sudo=true").unwrap().for_python_handlers(), None);
    }

    #[test]
    fn wrong_addresses_have_their_reason() {
        for (text, part) in [
            ("web1", "expected local:"),
            ("http://web1", "expected local:"),
            ("ssh://", "no host"),
            ("ssh://root@", "no host"),
            ("ssh://a b", "no name or address"),
            ("ssh://-oProxyCommand=x", "no name or address"),
            ("ssh://[::1", "no name or address"),
            ("ssh://web1:0", "1 to 65535"),
            ("ssh://web1:+22", "1 to 65535"),
            ("ssh://web1:99999", "1 to 65535"),
            ("ssh://web1:", "1 to 65535"),
            ("ssh://root:pw@web1", "password_secret"),
            ("ssh://-x@web1", "name of a user"),
            ("ssh://web1/etc", "a path"),
            ("ssh://web1?pyhton=x", "did you mean python?"),
            ("ssh://web1?sudo=maybe", "true, false or doas"),
            ("ssh://web1?strict_host_key=no", "yes or accept-new"),
            ("ssh://web1?retries=x", "a number"),
            ("ssh://web1?python=a&python=b", "twice"),
            ("ssh://web1?python=%zz", "hexadecimal"),
            ("ssh://web1?identity=", "private key"),
            ("ssh://web1?jump=-x", "no name or address"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert_eq!(parse(&format!("ssh://{}", "a".repeat(5000))), Err(AddressError::Length));
    }

    #[test]
    fn addresses_of_this_machine_and_of_none_are_known() {
        for local in ["", "local:", "local:x", "localhost", "ssh://localhost"] {
            assert_eq!(local.parse(), Ok(AgentAddress::Local), "{local}");
        }
        assert_eq!("none:".parse(), Ok(AgentAddress::Nowhere));
        for wrong in ["none", "lokal:", "root@web1", "web1:22", "ftp://web1", "-x", "a b"] {
            let is_host = wrong == "none";
            assert_eq!(wrong.parse::<AgentAddress>().is_ok(), is_host, "{wrong}");
        }
        for other in ["ssh://localhost:2222", "ssh://root@localhost", "web1", "ssh://web1"] {
            assert!(matches!(other.parse(), Ok(AgentAddress::Ssh(_))), "{other}");
        }
    }

    prop_compose! {
        fn hop()(host in "[a-z][a-z0-9.-]{0,6}[a-z]", port in proptest::option::of(1..=u16::MAX),
            user in proptest::option::of("[a-zé%+][a-z%é]{0,4}")) -> SshAddress {
            SshAddress { host, port, user, options: SshOptions::default() }
        }
    }

    proptest! {
        /// The text of an address is the address.
        #[test]
        fn display_and_parse_agree(mut address in hop(), jump in proptest::option::of(hop()),
            python in proptest::option::of("[ -~é]{1,8}"), retries in proptest::option::of(0..86_400u32),
            strict in any::<bool>()) {
            address.options.jump = jump.map(Box::new);
            address.options.python = python;
            address.options.retries = retries;
            address.options.strict_host_key = strict.then_some(HostKeyChecking::AcceptNew);
            prop_assert_eq!(address.to_string().parse(), Ok(address));
        }

        /// No text makes the parser panic, and only listed texts mean this machine.
        #[test]
        fn any_text_is_parsed(text in "(ssh://)?[ -~é]{0,24}") {
            if let Ok(AgentAddress::Local) = text.parse() {
                prop_assert!(text.starts_with("local") || text.is_empty() || text == "ssh://localhost");
            }
        }
    }
}
