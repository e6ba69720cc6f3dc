//! E-mail addresses, with or without a name before them. Only the form is checked; nothing is
//! looked up.
//!
//! The local part must be a dot-atom of printable characters, followed by `@` and a host name with
//! a plausible top-level domain. Domains in other scripts must be valid after IDNA mapping.

use std::borrow::Cow;
use std::sync::LazyLock;

use orrery_python::{is_printable, is_space};
use regex::Regex;

const LENGTH_MAX: usize = 2048;
const ADDRESS_BYTES_MAX: usize = 254;
const DOMAIN_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// Names that no public mail server can have.
const RESERVED_DOMAINS: [&str; 6] = ["arpa", "invalid", "local", "localhost", "onion", "test"];

/// `\w` of Python beyond ASCII.
static WORD: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^[\p{L}\p{N}]$").ok());
static MARK: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^\p{M}").ok());
/// Characters of internationalised labels after mapping.
static LABEL: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^[\p{Ll}\p{Lo}\p{Lm}\p{Mn}\p{Mc}\p{Nd}-]+$").ok());

/// `jo@example.org`, `Jo Doe <jo@example.org>` or `"Doe, Jo" <jo@example.org>`.
pub(super) fn is_address(text: &str) -> bool {
    if text.chars().count() > LENGTH_MAX || text.contains(['\n', '\r']) {
        return false;
    }
    is_bare_address(strip(without_name(text)))
}

/// Accepts the same texts as `is_address`, which tolerates a name.
pub(super) fn is_name_and_address(text: &str) -> bool {
    is_address(text)
}

fn strip(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// The text between `<` and `>` of a name and address, otherwise the whole text.
fn without_name(text: &str) -> &str {
    let trimmed = strip(text);
    let Some(inner) = trimmed.strip_suffix('>') else {
        return text;
    };
    if let Some(quoted) = trimmed.strip_prefix('"') {
        // The closing quote is the last one that only blanks separate from a `<`.
        let closing = quoted
            .rmatch_indices('"')
            .map(|(at, _)| at)
            .find(|&at| at > 0 && strip(&quoted[at + 1..]).starts_with('<'));
        if let Some(at) = closing
            && let Some(address) = strip(&quoted[at + 1..]).strip_prefix('<')
            && let Some(address) = address.strip_suffix('>')
            && !address.is_empty()
        {
            return address;
        }
        return text;
    }
    let Some((name, address)) = inner.split_once('<') else {
        return text;
    };
    let is_name = name.chars().all(|c| is_space(c) || is_name_character(c));
    if is_name && !address.is_empty() { address } else { text }
}

fn is_name_character(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_alphanumeric() || "!#$%&'*+-./=?^_`{|}~".contains(c);
    }
    WORD.as_ref().is_some_and(|word| word.is_match(c.encode_utf8(&mut [0; 4])))
}

fn is_bare_address(text: &str) -> bool {
    let Some((local, domain)) = text.split_once('@') else {
        return false;
    };
    if !is_local_part(local) {
        return false;
    }
    let Some(domain) = ascii_domain(domain) else {
        return false;
    };
    local.len() + 1 + domain.len() <= ADDRESS_BYTES_MAX && is_domain(&domain)
}

fn is_local_part(local: &str) -> bool {
    let is_atom_character = |c: char| {
        if c.is_ascii() {
            c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c)
        } else {
            is_printable(c)
        }
    };
    let starts_with_mark =
        !local.is_ascii() && MARK.as_ref().is_some_and(|mark| mark.is_match(local));
    !starts_with_mark
        && local.split('.').all(|atom| !atom.is_empty() && atom.chars().all(is_atom_character))
}

fn ascii_domain(domain: &str) -> Option<Cow<'_, str>> {
    let is_plain = domain.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte));
    let has_encoded = domain
        .split('.')
        .any(|label| label.get(..4).is_some_and(|prefix| prefix.eq_ignore_ascii_case("xn--")));
    if is_plain && !has_encoded {
        return Some(Cow::Borrowed(domain));
    }
    if domain.is_ascii() && !is_plain {
        return None;
    }
    if domain.contains('\u{ad}') || !domain.chars().all(is_printable) {
        return None;
    }
    let ascii = idna::domain_to_ascii_strict(domain).ok()?;
    let (unicode, outcome) = idna::domain_to_unicode(&ascii);
    outcome.ok()?;
    let labels = LABEL.as_ref()?;
    unicode.split('.').all(|label| labels.is_match(label)).then_some(Cow::Owned(ascii))
}

/// Letters, digits and hyphens in labels of the right form, the last one with a letter at its end.
fn is_domain(domain: &str) -> bool {
    let mut labels = 0;
    for label in domain.split('.') {
        labels += 1;
        let bytes = label.as_bytes();
        // The third and fourth character mark encodings, of which only one exists.
        let is_encoded = bytes.get(2..4) == Some(b"--");
        if bytes.is_empty()
            || bytes.len() > LABEL_BYTES_MAX
            || bytes[0] == b'-'
            || bytes[bytes.len() - 1] == b'-'
            || (is_encoded && !bytes[..2].eq_ignore_ascii_case(b"xn"))
        {
            return false;
        }
    }
    let ends_with_letter = domain.bytes().next_back().is_some_and(|b| b.is_ascii_alphabetic());
    let is_reserved = domain.rsplit('.').next().is_some_and(|top| {
        RESERVED_DOMAINS.iter().any(|reserved| top.eq_ignore_ascii_case(reserved))
    });
    labels > 1 && domain.len() <= DOMAIN_BYTES_MAX && ends_with_letter && !is_reserved
}
