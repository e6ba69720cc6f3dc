//! Parameters and facts of an environment on a server, for a compile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use orrery_base::lock::IgnorePoison;
use orrery_compiler::plugins::Facts;
use serde_json::{Value as Json, json};

/// Resource (empty for parameters) and name.
type Key = (String, String);

/// A lookup without a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownLookup {
    pub name: String,
    /// Resource of a fact; `None` for a parameter.
    pub resource: Option<String>,
}

/// Answers fact and parameter lookups of a model, and records those that have no value.
#[derive(Debug, Default)]
pub struct FactSnapshot {
    values: BTreeMap<Key, String>,
    missed: Mutex<BTreeSet<Key>>,
}

impl FactSnapshot {
    pub fn new(values: impl IntoIterator<Item = (Option<String>, String, String)>) -> Self {
        let keyed = |(resource, name, value): (Option<String>, String, String)| {
            ((resource.unwrap_or_default(), name), value)
        };
        FactSnapshot { values: values.into_iter().map(keyed).collect(), missed: Mutex::default() }
    }

    fn value(&self, resource: &str, name: &str) -> Option<&str> {
        let key = (resource.to_owned(), name.to_owned());
        let found = self.values.get(&key);
        if found.is_none() {
            self.missed.lock().ignore_poison().insert(key);
        }
        found.map(String::as_str)
    }

    /// Response to an API call of module code.
    pub fn answer(&self, method: &str, arguments: &Json) -> Option<(u16, Json)> {
        let text = |name: &str| arguments[name].as_str().unwrap_or_default();
        match method {
            "get_param" => {
                let (resource, name) = (text("resource_id"), text("id"));
                Some(match self.value(resource, name) {
                    Some(value) => {
                        (200, json!({ "parameter": parameter_json(resource, name, value) }))
                    }
                    None => (404, json!({"message": format!("{name} is unknown")})),
                })
            }
            "list_params" => {
                let all = self.values.iter();
                let all: Vec<Json> = all
                    .map(|((resource, name), value)| parameter_json(resource, name, value))
                    .collect();
                Some((200, json!({ "parameters": all })))
            }
            _ => None,
        }
    }

    /// Lookups without a value. The model must be compiled again when they have one.
    pub fn unknowns(&self) -> Vec<UnknownLookup> {
        let missed = self.missed.lock().ignore_poison();
        let unknown = |(resource, name): &Key| UnknownLookup {
            name: name.clone(),
            resource: Some(resource.clone()).filter(|resource| !resource.is_empty()),
        };
        missed.iter().map(unknown).collect()
    }
}

fn parameter_json(resource: &str, name: &str, value: &str) -> Json {
    json!({"name": name, "value": value, "resource_id": resource})
}

impl Facts for FactSnapshot {
    fn fact(&self, id: &str, name: &str) -> Option<String> {
        self.value(id, name).map(str::to_owned)
    }

    fn facts_with(&self, id: &str, probe: &str) -> Option<BTreeMap<String, String>> {
        self.value(id, probe)?;
        let of_resource = (id.to_owned(), String::new())..;
        let all = self.values.range(of_resource).take_while(|((resource, _), _)| resource == id);
        Some(all.map(|((_, name), value)| (name.clone(), value.clone())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_of_a_machine_are_unknown_together() {
        let id = "std::MachineFacts[a,name=a]";
        let fact = |resource: &str, name: &str| {
            (Some(resource.to_owned()), name.to_owned(), "x".to_owned())
        };
        let known = FactSnapshot::new([
            fact(id, "kernel"),
            fact(id, "os"),
            fact("std::MachineFacts[b,name=b]", "os"),
            (None, "zone".to_owned(), "eu".to_owned()),
        ]);
        let names: Vec<String> =
            known.facts_with(id, "kernel").unwrap_or_default().into_keys().collect();
        assert_eq!(names, ["kernel", "os"]);
        assert!(known.unknowns().is_empty(), "facts that a machine does not tell are not awaited");
        assert_eq!(known.facts_with("std::MachineFacts[b,name=b]", "kernel"), None);
        let unknowns = known.unknowns();
        assert_eq!((unknowns.len(), &*unknowns[0].name), (1, "kernel"));
    }

    #[test]
    fn lookups_without_a_value_are_unknown() {
        let fact = (Some("t::R[a,name=b]".to_owned()), "ip".to_owned(), "::1".to_owned());
        let known = FactSnapshot::new([fact, (None, "zone".to_owned(), "eu".to_owned())]);
        assert_eq!(known.fact("t::R[a,name=b]", "ip").as_deref(), Some("::1"));
        assert_eq!(known.answer("get_param", &json!({"id": "zone"})).unwrap().0, 200);
        assert!(known.unknowns().is_empty());
        assert_eq!(known.fact("t::R[a,name=b]", "mac"), None);
        assert_eq!(known.answer("get_param", &json!({"id": "size"})).unwrap().0, 404);
        assert!(known.answer("set_param", &json!({})).is_none());
        let unknowns = known.unknowns();
        assert_eq!((&*unknowns[0].name, &unknowns[0].resource), ("size", &None));
        assert_eq!((&*unknowns[1].name, unknowns[1].resource.is_some()), ("mac", true));
    }
}
