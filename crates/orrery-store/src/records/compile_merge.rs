//! What a compile is asked for, and how several requests become one run that gives each of them what it asked for.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What somebody wants of a compile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CompileRequest {
    /// Whether a version is stored; otherwise the model is only checked.
    pub export: bool,
    /// Fetch the newest sources and modules first.
    pub update: bool,
    /// Start from an empty directory.
    pub reinstall: bool,
    /// Environment variables for the run. Requests that differ in them are different compiles.
    pub variables: BTreeMap<String, String>,
    /// Environment variables that may be joined with those of other requests.
    pub joined_variables: BTreeMap<String, String>,
    /// Only the resource sets that the model has now are replaced.
    pub partial: bool,
    /// Sets that are to go; only for a partial one.
    pub removed_sets: BTreeSet<String>,
    /// A set that is both removed and exported is kept instead of being an error.
    pub soft_delete: bool,
    /// Exporters of modules to run afterwards.
    pub exporters: BTreeSet<String>,
    /// Who or what asked, and why: `type`, `message`, …
    pub metadata: Map<String, Value>,
    /// Whether people are told of a failure; if nobody says, only of compiles that store a version.
    pub notify_failure: Option<bool>,
    /// What they are told instead of the usual words.
    pub failure_message: Option<String>,
    /// What belongs to it elsewhere, by kind.
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
    /// One that is made for a reason: `api`, `param`, `fact`, `schedule`, `recovery`, …
    pub fn because(r#type: &str, message: &str) -> Self {
        let mut metadata = Map::new();
        metadata.insert("type".to_owned(), r#type.into());
        metadata.insert("message".to_owned(), message.into());
        CompileRequest { metadata, ..Self::default() }
    }

    /// Whether one run can serve both.
    pub fn merges_with(&self, other: &Self) -> bool {
        let key = |of: &Self| (of.export, of.partial, of.soft_delete);
        key(self) == key(other) && self.variables == other.variables
    }

    /// The variables that a run sets.
    pub fn all_variables(&self) -> BTreeMap<String, String> {
        let mut all = self.variables.clone();
        all.extend(self.joined_variables.clone());
        all
    }
}

/// The request whose run gives all of these, the first of which leads, what they ask for. They all merge with each other.
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
        merged.notify_failure = loudest(merged.notify_failure, other.notify_failure);
        if let Some(message) = &other.failure_message {
            match &mut merged.failure_message {
                None => merged.failure_message = Some(message.clone()),
                Some(told) if told.lines().any(|line| line == message) => {}
                Some(told) => {
                    told.push('\n');
                    told.push_str(message);
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

/// If one of them wants people to be told, they are.
fn loudest(one: Option<bool>, other: Option<bool>) -> Option<bool> {
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
                ..CompileRequest::because(&kind, "why")
            }
        }
    }

    proptest! {
        #[test]
        fn a_merged_run_gives_each_request_what_it_asked_for(all in prop::collection::vec(request(), 1..6)) {
            let (leader, rest) = all.split_first().unwrap();
            let merging: Vec<_> = rest.iter().filter(|one| leader.merges_with(one)).collect();
            let merged = merge_compiles(leader, merging.iter().copied());
            let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
            for one in std::iter::once(leader).chain(merging.iter().copied()) {
                prop_assert!(merged.merges_with(one));
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
                let told = serde_json::to_string(&merged.metadata).unwrap();
                prop_assert!(told.contains(one.metadata["type"].as_str().unwrap()));
            }
            // Nothing that nobody asked for.
            let any = |holds: fn(&CompileRequest) -> bool| all.iter().any(holds);
            prop_assert!(!merged.update || any(|one| one.update));
            prop_assert!(!merged.reinstall || any(|one| one.reinstall));
        }
    }

    #[test]
    fn variables_that_may_be_joined_are_and_others_tell_requests_apart() {
        let with = |joined: &str, own: &str| CompileRequest {
            joined_variables: [("IDS".to_owned(), joined.to_owned())].into(),
            variables: [("WHERE".to_owned(), own.to_owned())].into(),
            ..CompileRequest::default()
        };
        let (one, two, elsewhere) = (with("1", "here"), with("2", "here"), with("3", "there"));
        assert!(one.merges_with(&two) && !one.merges_with(&elsewhere));
        let merged = merge_compiles(&one, [&two]);
        assert_eq!(merged.joined_variables["IDS"], "1 2");
        assert_eq!(merged.all_variables()["WHERE"], "here");
    }

    #[test]
    fn what_is_stored_of_an_older_program_is_read_with_defaults() {
        let read: CompileRequest = serde_json::from_str(r#"{"update": true}"#).unwrap();
        assert_eq!(read, CompileRequest { update: true, ..CompileRequest::default() });
    }
}
