//! Compile requests, and merging several of them into one run that satisfies each.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Options of a requested compile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CompileRequest {
    /// Stores a version; otherwise the model is only checked.
    pub export: bool,
    /// Fetches the newest sources and modules first.
    pub update: bool,
    /// Starts from an empty directory.
    pub reinstall: bool,
    /// Environment variables of the run. Requests with different variables are not merged.
    pub variables: BTreeMap<String, String>,
    /// Environment variables that are joined with those of merged requests.
    pub joined_variables: BTreeMap<String, String>,
    /// Replaces only the resource sets that the model contains.
    pub partial: bool,
    /// Sets to be removed; only for a partial compile.
    pub removed_sets: BTreeSet<String>,
    /// Keeps a set that is both removed and exported instead of failing.
    pub soft_delete: bool,
    /// Exporters of modules to run afterwards.
    pub exporters: BTreeSet<String>,
    /// Requester and reason: `type`, `message`, …
    pub metadata: Map<String, Value>,
    /// Creates a notification about a failure; by default, only for compiles that store a version.
    pub notify_failure: Option<bool>,
    /// Text of the notification, instead of the default.
    pub failure_message: Option<String>,
    /// Related objects elsewhere, by kind.
    pub links: BTreeMap<String, BTreeSet<String>>,
}

impl Default for CompileRequest {
    fn default() -> Self {
        CompileRequest {
            export: true,
            update: false,
            reinstall: false,
            variables: BTreeMap::new(),
            joined_variables: BTreeMap::new(),
            partial: false,
            removed_sets: BTreeSet::new(),
            soft_delete: false,
            exporters: BTreeSet::new(),
            metadata: Map::new(),
            notify_failure: None,
            failure_message: None,
            links: BTreeMap::new(),
        }
    }
}

impl CompileRequest {
    /// A request with a reason: `api`, `param`, `fact`, `schedule`, `recovery`, …
    pub fn with_reason(r#type: &str, message: &str) -> Self {
        let mut metadata = Map::new();
        metadata.insert("type".to_owned(), r#type.into());
        metadata.insert("message".to_owned(), message.into());
        CompileRequest { metadata, ..Self::default() }
    }

    /// True if one run can serve both requests.
    pub fn is_mergeable_with(&self, other: &Self) -> bool {
        let key = |of: &Self| (of.export, of.partial, of.soft_delete);
        key(self) == key(other) && self.variables == other.variables
    }

    /// All variables that a run sets.
    pub fn all_variables(&self) -> BTreeMap<String, String> {
        let mut all = self.variables.clone();
        all.extend(self.joined_variables.clone());
        all
    }
}

/// Merges requests, led by the first, into one whose run satisfies all. All must be mergeable with
/// each other.
pub fn merge_compiles<'a>(
    leader: &CompileRequest,
    others: impl IntoIterator<Item = &'a CompileRequest>,
) -> CompileRequest {
    let mut merged = leader.clone();
    let mut further = Vec::new();
    for other in others {
        merged.update |= other.update;
        merged.reinstall |= other.reinstall;
        for (name, value) in &other.joined_variables {
            let joined = merged.joined_variables.entry(name.clone()).or_default();
            if !joined.is_empty() && !value.is_empty() {
                joined.push(' ');
            }
            joined.push_str(value);
        }
        merged.removed_sets.extend(other.removed_sets.iter().cloned());
        merged.exporters.extend(other.exporters.iter().cloned());
        merged.notify_failure = merge_notify_failure(merged.notify_failure, other.notify_failure);
        if let Some(message) = &other.failure_message {
            match &mut merged.failure_message {
                None => merged.failure_message = Some(message.clone()),
                Some(merged_message) if merged_message.lines().any(|line| line == message) => {}
                Some(merged_message) => {
                    merged_message.push('\n');
                    merged_message.push_str(message);
                }
            }
        }
        for (kind, links) in &other.links {
            merged.links.entry(kind.clone()).or_default().extend(links.iter().cloned());
        }
        if other.metadata != leader.metadata && !other.metadata.is_empty() {
            further.push(Value::Object(other.metadata.clone()));
        }
    }
    if !further.is_empty() {
        let merged = merged.metadata.entry("merged").or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(all) = merged {
            all.extend(further);
        }
    }
    merged
}

/// Merged setting: a notification is created if one of the requests asks for it.
fn merge_notify_failure(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    match (one, other) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (None, _) | (_, None) => None,
        (Some(false), Some(false)) => Some(false),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts() -> impl Strategy<Value = BTreeMap<String, String>> {
        prop::collection::btree_map("[AB]", "[a-c]{0,2}", 0..3)
    }

    fn sets() -> impl Strategy<Value = BTreeSet<String>> {
        prop::collection::btree_set("[a-d]", 0..3)
    }

    prop_compose! {
        fn request()(
            flags in prop::array::uniform5(any::<bool>()),
            variables in texts(),
            joined in texts(),
            removed_sets in sets(),
            exporters in sets(),
            message in prop::option::of("[a-c]"),
            notify_failure in prop::option::of(any::<bool>()),
            kind in "[a-c]",
        ) -> CompileRequest {
            let [export, update, reinstall, partial, soft_delete] = flags;
            CompileRequest {
                export, update, reinstall, partial, soft_delete, variables,
                joined_variables: joined.into_iter().map(|(k, v)| (format!("J{k}"), v)).collect(),
                removed_sets: if partial { removed_sets.clone() } else { BTreeSet::new() },
                exporters,
                notify_failure,
                failure_message: message,
                links: [(kind.clone(), removed_sets)].into(),
                ..CompileRequest::with_reason(&kind, "why")
            }
        }
    }

    proptest! {
        #[test]
        fn a_merged_run_satisfies_each_request(all in prop::collection::vec(request(), 1..6)) {
            let (leader, rest) = all.split_first().unwrap();
            let merging: Vec<_> = rest.iter().filter(|one| leader.is_mergeable_with(one)).collect();
            let merged = merge_compiles(leader, merging.iter().copied());
            let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
            for one in std::iter::once(leader).chain(merging.iter().copied()) {
                prop_assert!(merged.is_mergeable_with(one));
                prop_assert!(merged.update >= one.update && merged.reinstall >= one.reinstall);
                prop_assert!(merged.removed_sets.is_superset(&one.removed_sets));
                prop_assert!(merged.exporters.is_superset(&one.exporters));
                for (kind, links) in &one.links {
                    prop_assert!(merged.links[kind].is_superset(links));
                }
                for (name, value) in &one.joined_variables {
                    let joined = words(&merged.joined_variables[name]);
                    prop_assert!(value.is_empty() || joined.contains(value));
                }
                if let Some(message) = &one.failure_message {
                    prop_assert!(merged.failure_message.as_ref().unwrap().contains(message));
                }
                prop_assert!(one.notify_failure != Some(true) || merged.notify_failure == Some(true));
                prop_assert!(one.notify_failure.is_some() || merged.notify_failure != Some(false));
                let text = serde_json::to_string(&merged.metadata).unwrap();
                prop_assert!(text.contains(one.metadata["type"].as_str().unwrap()));
            }
            // Nothing that no request asked for.
            let any = |holds: fn(&CompileRequest) -> bool| all.iter().any(holds);
            prop_assert!(!merged.update || any(|one| one.update));
            prop_assert!(!merged.reinstall || any(|one| one.reinstall));
        }
    }

    #[test]
    fn joined_variables_merge_and_others_separate_requests() {
        let with = |joined: &str, own: &str| CompileRequest {
            joined_variables: [("IDS".to_owned(), joined.to_owned())].into(),
            variables: [("WHERE".to_owned(), own.to_owned())].into(),
            ..CompileRequest::default()
        };
        let (one, two, elsewhere) = (with("1", "here"), with("2", "here"), with("3", "there"));
        assert!(one.is_mergeable_with(&two) && !one.is_mergeable_with(&elsewhere));
        let merged = merge_compiles(&one, [&two]);
        assert_eq!(merged.joined_variables["IDS"], "1 2");
        assert_eq!(merged.all_variables()["WHERE"], "here");
    }

    #[test]
    fn requests_of_older_programs_are_read_with_defaults() {
        let read: CompileRequest = serde_json::from_str(r#"{"update": true}"#).unwrap();
        assert_eq!(read, CompileRequest { update: true, ..CompileRequest::default() });
    }
}
