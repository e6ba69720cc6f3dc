//! Policies for drift: changes of a deployed resource that no run made.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{ResourceId, matches_wildcards};

/// Reaction to drift of a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriftPolicy {
    /// Repairs it.
    #[default]
    Heal,
    /// Reports it; the next deploy or repair that is requested repairs it.
    Report,
    /// Like `Report`, and notifies operators.
    Ask,
}

impl DriftPolicy {
    pub const ALL: [DriftPolicy; 3] = [DriftPolicy::Heal, DriftPolicy::Report, DriftPolicy::Ask];

    /// Name of the policy, as in settings.
    pub fn as_str(self) -> &'static str {
        match self {
            DriftPolicy::Heal => "heal",
            DriftPolicy::Report => "report",
            DriftPolicy::Ask => "ask",
        }
    }
}

/// Policies by pattern of resource ids.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DriftPolicies(pub BTreeMap<String, DriftPolicy>);

impl DriftPolicies {
    /// Policy of a resource: that of the most specific matching pattern, or `Heal`. A pattern is
    /// more specific than another if it has more characters other than wildcards.
    pub fn of(&self, id: &ResourceId) -> DriftPolicy {
        let literals = |pattern: &str| pattern.chars().filter(|c| !matches!(c, '*' | '?')).count();
        let matching = self.0.iter().filter(|(pattern, _)| matches_wildcards(pattern, id.as_str()));
        let most_specific =
            matching.max_by_key(|(pattern, _)| (literals(pattern), std::cmp::Reverse(*pattern)));
        most_specific.map(|(_, policy)| *policy).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_pattern_applies() {
        let policies = DriftPolicies(BTreeMap::from([
            ("*".to_owned(), DriftPolicy::Report),
            ("std::File[web*".to_owned(), DriftPolicy::Heal),
            ("std::File[web?,*".to_owned(), DriftPolicy::Ask),
            ("*path=/etc/motd]".to_owned(), DriftPolicy::Heal),
        ]));
        let policy = |id: &str| policies.of(&id.parse().unwrap());
        assert_eq!(policy("std::Directory[web1,path=/srv]"), DriftPolicy::Report);
        assert_eq!(policy("std::File[web1,path=/srv/x]"), DriftPolicy::Ask);
        assert_eq!(policy("std::File[web1,path=/etc/motd]"), DriftPolicy::Heal);
        let none = DriftPolicies::default();
        assert_eq!(none.of(&"std::File[a,path=/x]".parse().unwrap()), DriftPolicy::Heal);
    }
}
