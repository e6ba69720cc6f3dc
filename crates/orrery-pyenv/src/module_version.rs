//! Module versions by the rules of Python packages (PEP 440): order, and matching of requirements.

use std::cmp::Ordering;
use std::sync::LazyLock;

use regex::Regex;

/// A version of a module, as named by a tag.
#[derive(Clone, Debug)]
pub struct ModuleVersion {
    epoch: u64,
    numbers: Vec<u64>,
    /// Alpha, beta or candidate, with its number.
    pre: Option<(u8, u64)>,
    post: Option<u64>,
    dev: Option<u64>,
    /// The local part behind `+`, normalized. The order of versions ignores it.
    local: Option<String>,
    text: String,
}

/// Sort key: absent parts are ordered as PEP 440 defines.
type Key<'a> = (u64, &'a [u64], (u8, u8, u64), Option<u64>, (bool, u64));

impl ModuleVersion {
    /// Parses a version.
    pub fn parse(text: &str) -> Option<Self> {
        static FORM: LazyLock<Regex> = LazyLock::new(|| {
            Regex::new(
                r"(?i)^\s*v?(?:([0-9]+)!)?([0-9]+(?:\.[0-9]+)*)(?:[-_.]?(alpha|a|beta|b|preview|pre|c|rc)[-_.]?([0-9]*))?(?:-([0-9]+)|[-_.]?(post|rev|r)[-_.]?([0-9]*))?(?:[-_.]?(dev)[-_.]?([0-9]*))?(?:\+([a-z0-9]+(?:[-_.][a-z0-9]+)*))?\s*$",
            )
            .expect("invariant: the pattern is valid")
        });
        let found = FORM.captures(text)?;
        let part = |at: usize| found.get(at).map(|part| part.as_str());
        let number = |at: usize| part(at).and_then(|digits| digits.parse().ok());
        let numbers: Option<Vec<u64>> = part(2)?.split('.').map(|one| one.parse().ok()).collect();
        let pre = part(3).map(|kind| match &*kind.to_ascii_lowercase() {
            "a" | "alpha" => 0,
            "b" | "beta" => 1,
            _ => 2,
        });
        let local = part(10).map(|local| local.to_ascii_lowercase().replace(['-', '_'], "."));
        Some(ModuleVersion {
            epoch: number(1).unwrap_or(0),
            numbers: numbers?,
            pre: pre.map(|kind| (kind, number(4).unwrap_or(0))),
            post: number(5).or_else(|| part(6).map(|_| number(7).unwrap_or(0))),
            dev: part(8).map(|_| number(9).unwrap_or(0)),
            local,
            text: text.trim().to_owned(),
        })
    }

    /// The original text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// True for an alpha, a beta, a candidate or a development version.
    pub fn is_prerelease(&self) -> bool {
        self.pre.is_some() || self.dev.is_some()
    }

    fn key(&self) -> Key<'_> {
        let zeros = self.numbers.iter().rev().take_while(|number| **number == 0).count();
        let numbers = &self.numbers[..self.numbers.len() - zeros];
        let pre = match (self.pre, self.post, self.dev) {
            (Some((kind, number)), ..) => (1, kind, number),
            (None, None, Some(_)) => (0, 0, 0),
            (None, ..) => (2, 0, 0),
        };
        (self.epoch, numbers, pre, self.post, (self.dev.is_none(), self.dev.unwrap_or(0)))
    }

    /// True if the first `count` numbers equal those of another version.
    fn has_prefix_of(&self, other: &ModuleVersion, count: usize) -> bool {
        let at = |of: &ModuleVersion, at: usize| of.numbers.get(at).copied().unwrap_or(0);
        self.epoch == other.epoch && (0..count).all(|place| at(self, place) == at(other, place))
    }

    fn has_base_of(&self, other: &ModuleVersion) -> bool {
        self.has_prefix_of(other, self.numbers.len().max(other.numbers.len()))
    }
}

impl PartialEq for ModuleVersion {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for ModuleVersion {}

impl PartialOrd for ModuleVersion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ModuleVersion {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// True if a version satisfies the specifiers of a requirement: `>=1.2, <2`. Invalid specifiers
/// match nothing.
pub fn satisfies(release: &ModuleVersion, specifiers: &str) -> bool {
    let specifiers = specifiers.split(';').next().unwrap_or_default().trim();
    // Extras do not restrict versions.
    let specifiers = match specifiers.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or("", |(_, after)| after).trim(),
        None => specifiers,
    };
    let specifiers = specifiers.trim_start_matches('(').trim_end_matches(')');
    specifiers
        .split(',')
        .map(str::trim)
        .filter(|one| !one.is_empty())
        .all(|one| satisfies_one(release, one))
}

fn satisfies_one(release: &ModuleVersion, specifier: &str) -> bool {
    let operators = ["===", "~=", "==", "!=", "<=", ">=", "<", ">"];
    let found = operators.into_iter().find_map(|name| Some((name, specifier.strip_prefix(name)?)));
    let Some((operator, wanted)) = found else { return false };
    let wanted = wanted.trim();
    if operator == "===" {
        return release.text.eq_ignore_ascii_case(wanted);
    }
    let (prefix, text) = match wanted.strip_suffix(".*") {
        Some(prefix) => (true, prefix),
        None => (false, wanted),
    };
    let Some(wanted) = ModuleVersion::parse(text) else { return false };
    let begins = |count: usize| release.has_prefix_of(&wanted, count);
    let order = release.key().cmp(&wanted.key());
    let same = if prefix {
        begins(wanted.numbers.len())
    } else {
        order.is_eq() && (wanted.local.is_none() || release.local == wanted.local)
    };
    match operator {
        "==" => same,
        "!=" => !same,
        "~=" => order.is_ge() && begins(wanted.numbers.len().saturating_sub(1)),
        "<=" => order.is_le(),
        ">=" => order.is_ge(),
        // Pre-releases and post-releases of the excluded version do not match.
        "<" => {
            let near = release.is_prerelease()
                && release.has_base_of(&wanted)
                && (wanted.post.is_none() || release.post == wanted.post);
            order.is_lt() && (wanted.is_prerelease() || !near)
        }
        _ => {
            let near =
                release.post.is_some() && release.has_base_of(&wanted) && release.pre == wanted.pre;
            order.is_gt() && (wanted.post.is_some() || !near)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release(text: &str) -> ModuleVersion {
        ModuleVersion::parse(text).unwrap_or_else(|| panic!("{text}"))
    }

    #[test]
    fn versions_have_the_order_of_pep_440() {
        let order = [
            "0.9",
            "1.0.dev1",
            "1.0a1",
            "1.0a2.dev1",
            "1.0a2",
            "1.0b1",
            "1.0rc1",
            "1.0",
            "1.0.post1",
            "1.0.1",
            "1.2",
            "1.10",
            "2!0.1",
        ];
        for pair in order.windows(2) {
            assert!(release(pair[0]) < release(pair[1]), "{pair:?}");
        }
        assert_eq!(release("v1.0.0"), release("1"));
        assert_eq!(release("1.0-1"), release("1.0.post1"));
        assert_eq!(release("1.0+local"), release("1.0"));
        for bad in ["", "main", "release-1", "1.x"] {
            assert!(ModuleVersion::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn requirements_choose_versions() {
        for (version, specifiers, is) in [
            ("1.2", "", true),
            ("1.2", " >= 1.2, < 2", true),
            ("2.0", ">=1.2,<2", false),
            ("2.0rc1", "<2.0", false),
            ("1.2.9", "~=1.2.0", true),
            ("1.3", "~=1.2.0", false),
            ("1.9", "~=1.2", true),
            ("1.2.5", "==1.2.*", true),
            ("1.20", "==1.2.*", false),
            ("1.2", "!=1.2", false),
            ("1.2.post1", ">1.2", false),
            ("1.2+local", "==1.2", true),
            ("1.2+local", "!=1.2", false),
            ("1.2", "==1.2+local", false),
            ("1.2+local_1", "==1.2+LOCAL.1", true),
            ("1.2+local", "<=1.2", true),
            ("1.2+local", ">1.2", false),
            ("1.2.dev1", "<1.2.post1", true),
            ("1.2.post1", ">1.2a1", true),
            ("1.2a1.post1", ">1.2a1", false),
            ("1.3", "[extra]>1.2 ; python_version > '3'", true),
            ("1.2", "(>=1)", true),
            ("1.2", "@ https://x", false),
        ] {
            assert_eq!(satisfies(&release(version), specifiers), is, "{version} {specifiers}");
        }
    }
}
