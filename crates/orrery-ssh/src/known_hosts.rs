//! Files of known hosts: finds the keys of a host and judges the key that a host presents.
//!
//! Pure: texts are arguments. `host_key` reads and appends the files.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

use crate::config::{Pattern, matches_list};

/// Marker of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Marker {
    None,
    Revoked,
    Authority,
}

/// Host names of a line.
#[derive(Clone, Debug)]
enum Names {
    Patterns(Vec<Pattern>),
    Hashed { salt: Vec<u8>, hash: Vec<u8> },
}

#[derive(Clone, Debug)]
struct Line {
    marker: Marker,
    names: Names,
    algorithm: String,
    /// Wire encoding of the key.
    key: Vec<u8>,
    place: LinePlace,
}

/// File and line of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinePlace {
    pub file: String,
    pub line: usize,
}

impl std::fmt::Display for LinePlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Judgement of a presented key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Known(LinePlace),
    /// No line names the host.
    Unknown,
    /// The host has another key, of this or another type.
    Changed(LinePlace),
    Revoked(LinePlace),
}

/// Known hosts of several files.
#[derive(Clone, Debug, Default)]
pub struct KnownHosts {
    lines: Vec<Line>,
}

impl KnownHosts {
    /// Adds the lines of a file. Unreadable lines are skipped, as in OpenSSH.
    pub fn add_file(&mut self, name: &str, text: &str) {
        for (index, line) in text.lines().enumerate() {
            let place = LinePlace { file: name.to_owned(), line: index + 1 };
            self.lines.extend(parse_line(line, place));
        }
    }

    /// Judges the key of a host. `host` is `name` or `[name]:port`, in lower case.
    pub fn check(&self, host: &str, key: &[u8]) -> Verdict {
        if let Some(place) = self.revoked(key) {
            return Verdict::Revoked(place);
        }
        let mut changed = None;
        for line in self.of_host(host, Marker::None) {
            if line.key == key {
                return Verdict::Known(line.place.clone());
            }
            changed.get_or_insert(&line.place);
        }
        changed.map_or(Verdict::Unknown, |place| Verdict::Changed(place.clone()))
    }

    /// Line that revokes a key, whatever host it names.
    pub fn revoked(&self, key: &[u8]) -> Option<LinePlace> {
        let revoked = |line: &&Line| line.marker == Marker::Revoked && line.key == key;
        self.lines.iter().find(revoked).map(|line| line.place.clone())
    }

    /// Line of the authority with this key that may certify the host.
    pub fn authority(&self, host: &str, key: &[u8]) -> Option<LinePlace> {
        let found = self.of_host(host, Marker::Authority).find(|line| line.key == key);
        found.map(|line| line.place.clone())
    }

    /// Returns true if an authority may certify the host.
    pub fn has_authority(&self, host: &str) -> bool {
        self.of_host(host, Marker::Authority).next().is_some()
    }

    /// Algorithms of the host's keys, for negotiation: a host must present a key that is known.
    pub fn algorithms<'k>(&'k self, host: &'k str) -> Vec<&'k str> {
        let mut algorithms = Vec::new();
        for line in self.of_host(host, Marker::None) {
            if !algorithms.contains(&&*line.algorithm) {
                algorithms.push(&*line.algorithm);
            }
        }
        algorithms
    }

    fn of_host<'k>(&'k self, host: &'k str, marker: Marker) -> impl Iterator<Item = &'k Line> {
        self.lines.iter().filter(move |line| line.marker == marker && line.names.include(host))
    }
}

impl Names {
    fn parse(text: &str) -> Option<Self> {
        if let Some(hashed) = text.strip_prefix("|1|") {
            let (salt, hash) = hashed.split_once('|')?;
            let salt = STANDARD.decode(salt).ok()?;
            return Some(Names::Hashed { salt, hash: STANDARD.decode(hash).ok()? });
        }
        if text.starts_with('|') {
            return None;
        }
        Some(Names::Patterns(
            text.split(',').map(|name| Pattern::parse(&name.to_ascii_lowercase())).collect(),
        ))
    }

    fn include(&self, host: &str) -> bool {
        match self {
            Names::Patterns(patterns) => matches_list(patterns, host),
            Names::Hashed { salt, hash } => hmac_sha1(salt, host.as_bytes())[..] == hash[..],
        }
    }
}

fn parse_line(line: &str, place: LinePlace) -> Option<Line> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let mut words = line.split_ascii_whitespace();
    let mut word = words.next()?;
    let marker = match word {
        "@revoked" => Marker::Revoked,
        "@cert-authority" => Marker::Authority,
        _ if word.starts_with('@') => return None,
        _ => Marker::None,
    };
    if marker != Marker::None {
        word = words.next()?;
    }
    let names = Names::parse(word)?;
    let algorithm = words.next()?.to_owned();
    let key = STANDARD.decode(words.next()?).ok()?;
    // The encoding repeats the algorithm; a line that contradicts itself is damaged.
    let length = algorithm.len();
    let repeated = key.get(4..4 + length).is_some_and(|name| name == algorithm.as_bytes());
    let length_fits = key.get(..4) == Some(&u32::try_from(length).ok()?.to_be_bytes()[..]);
    (repeated && length_fits).then_some(Line { marker, names, algorithm, key, place })
}

/// Formats a line for a new host.
pub fn new_line(host: &str, algorithm: &str, key: &[u8]) -> String {
    format!("{host} {algorithm} {}\n", STANDARD.encode(key))
}

fn hmac_sha1(key: &[u8], message: &[u8]) -> [u8; 20] {
    const BLOCK: usize = 64;
    let mut block = [0; BLOCK];
    match key.len() <= BLOCK {
        true => block[..key.len()].copy_from_slice(key),
        false => block[..20].copy_from_slice(&Sha1::digest(key)),
    }
    let padded = |byte: u8| block.map(|part| part ^ byte);
    let inner = Sha1::new().chain_update(padded(0x36)).chain_update(message).finalize();
    Sha1::new().chain_update(padded(0x5c)).chain_update(inner).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wire encoding of a key with this content.
    fn key(algorithm: &str, content: &str) -> Vec<u8> {
        let mut key = u32::try_from(algorithm.len()).unwrap().to_be_bytes().to_vec();
        key.extend_from_slice(algorithm.as_bytes());
        key.extend_from_slice(content.as_bytes());
        key
    }

    fn line(hosts: &str, content: &str) -> String {
        format!("{hosts} ssh-ed25519 {}", STANDARD.encode(key("ssh-ed25519", content)))
    }

    fn hashed(host: &str) -> String {
        let hash = STANDARD.encode(hmac_sha1(b"salt of 20 bytes....", host.as_bytes()));
        format!("|1|{}|{hash}", STANDARD.encode(b"salt of 20 bytes...."))
    }

    #[test]
    fn the_hash_is_that_of_rfc_2202() {
        let hex = |bytes: [u8; 20]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!(
            hex(hmac_sha1(b"Jefe", b"what do ya want for nothing?")),
            "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"
        );
        assert_eq!(
            hex(hmac_sha1(&[0xaa; 80], b"Test Using Larger Than Block-Size Key - Hash Key First")),
            "aa4ae5e15272d00e95705637ce8a3b55ed402112"
        );
    }

    #[test]
    fn a_presented_key_is_judged_by_the_lines_of_its_host() {
        let mut hosts = KnownHosts::default();
        let text = [
            "# comment".to_owned(),
            line("web1,192.0.2.1", "web1"),
            line("[web1]:2222", "other-port"),
            line(&hashed("hidden"), "hidden"),
            line("*.example.org,!bad.example.org", "wild"),
            line("@revoked *", "stolen"),
            line("@cert-authority *.corp", "authority"),
            "damaged ssh-ed25519 not-base64!".to_owned(),
            format!("lying ssh-rsa {}", STANDARD.encode(key("ssh-ed25519", "x"))),
            "@unknown host ssh-ed25519 AAAA".to_owned(),
            "short".to_owned(),
        ];
        hosts.add_file("kh", &text.join("\n"));
        let at = |line| LinePlace { file: "kh".to_owned(), line };
        for (host, content, expected) in [
            ("web1", "web1", Verdict::Known(at(2))),
            ("192.0.2.1", "web1", Verdict::Known(at(2))),
            ("web1", "attacker", Verdict::Changed(at(2))),
            ("[web1]:2222", "other-port", Verdict::Known(at(3))),
            ("[web1]:2222", "web1", Verdict::Changed(at(3))),
            ("[web1]:22222", "web1", Verdict::Unknown),
            ("hidden", "hidden", Verdict::Known(at(4))),
            ("hidden", "x", Verdict::Changed(at(4))),
            ("hidden2", "x", Verdict::Unknown),
            ("a.example.org", "wild", Verdict::Known(at(5))),
            ("bad.example.org", "wild", Verdict::Unknown),
            ("web1", "stolen", Verdict::Revoked(at(6))),
            ("damaged", "x", Verdict::Unknown),
            ("lying", "x", Verdict::Unknown),
        ] {
            assert_eq!(
                hosts.check(host, &key("ssh-ed25519", content)),
                expected,
                "{host} {content}"
            );
        }
        assert_eq!(hosts.authority("a.corp", &key("ssh-ed25519", "authority")), Some(at(7)));
        assert_eq!(hosts.authority("a.org", &key("ssh-ed25519", "authority")), None);
        assert_eq!(hosts.check("a.corp", &key("ssh-ed25519", "authority")), Verdict::Unknown);
    }

    /// A key of another type is no first use: an attacker would offer the type that is missing.
    #[test]
    fn a_key_of_another_type_is_a_changed_key() {
        let mut hosts = KnownHosts::default();
        hosts.add_file("kh", &line("web1", "web1"));
        let other = key("ecdsa-sha2-nistp256", "x");
        assert!(matches!(hosts.check("web1", &other), Verdict::Changed(_)));
        assert_eq!(hosts.algorithms("web1"), ["ssh-ed25519"]);
    }

    #[test]
    fn a_new_line_is_known_afterwards() {
        let mut hosts = KnownHosts::default();
        let (host, key) = ("[192.0.2.1]:2222", key("ssh-ed25519", "k"));
        hosts.add_file("kh", &new_line(host, "ssh-ed25519", &key));
        assert!(matches!(hosts.check(host, &key), Verdict::Known(_)));
    }
}
