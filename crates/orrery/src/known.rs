//! What is known about an environment on a server while its model is compiled: parameters, and facts of deployed resources.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use orrery_api::UnknownUpload;
use orrery_compiler::plugins::Facts;
use serde_json::{Value as Json, json};

/// Values by resource, which is empty for parameters, and name.
type Key = (String, String);

/// Answers what a model asks for, and remembers what it could not answer.
#[derive(Debug, Default)]
pub(crate) struct Known {
    values: BTreeMap<Key, String>,
    missed: Mutex<BTreeSet<Key>>,
}

impl Known {
    pub(crate) fn new(values: impl IntoIterator<Item = (Option<String>, String, String)>) -> Self {
        let keyed = |(resource, name, value): (Option<String>, String, String)| {
            ((resource.unwrap_or_default(), name), value)
        };
        Known { values: values.into_iter().map(keyed).collect(), missed: Mutex::default() }
    }

    fn value(&self, resource: &str, name: &str) -> Option<&str> {
        let key = (resource.to_owned(), name.to_owned());
        let found = self.values.get(&key);
        if found.is_none() {
            self.missed.lock().unwrap_or_else(PoisonError::into_inner).insert(key);
        }
        found.map(String::as_str)
    }

    /// What the server is asked by code of modules.
    pub(crate) fn answer(&self, method: &str, arguments: &Json) -> Option<(u16, Json)> {
        let text = |name: &str| arguments[name].as_str().unwrap_or_default();
        match method {
            "get_param" => {
                let (resource, name) = (text("resource_id"), text("id"));
                Some(match self.value(resource, name) {
                    Some(value) => (200, json!({ "parameter": shown(resource, name, value) })),
                    None => (404, json!({"message": format!("{name} is not known")})),
                })
            }
            "list_params" => {
                let all = self.values.iter();
                let all: Vec<Json> =
                    all.map(|((resource, name), value)| shown(resource, name, value)).collect();
                Some((200, json!({ "parameters": all })))
            }
            _ => None,
        }
    }

    /// What was asked for and is not known: when it is, the model has to be compiled again.
    pub(crate) fn unknowns(&self) -> Vec<UnknownUpload> {
        let missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner);
        let unknown = |(resource, name): &Key| UnknownUpload {
            name: name.clone(),
            resource: Some(resource.clone()).filter(|resource| !resource.is_empty()),
            source: if resource.is_empty() { "plugin" } else { "fact" }.to_owned(),
        };
        missed.iter().map(unknown).collect()
    }
}

fn shown(resource: &str, name: &str, value: &str) -> Json {
    json!({"name": name, "value": value, "resource_id": resource})
}

impl Facts for Known {
    fn fact(&self, id: &str, name: &str) -> Option<String> {
        self.value(id, name).map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_answered_is_unknown() {
        let fact = (Some("t::R[a,name=b]".to_owned()), "ip".to_owned(), "::1".to_owned());
        let known = Known::new([fact, (None, "zone".to_owned(), "eu".to_owned())]);
        assert_eq!(known.fact("t::R[a,name=b]", "ip").as_deref(), Some("::1"));
        assert_eq!(known.answer("get_param", &json!({"id": "zone"})).unwrap().0, 200);
        assert!(known.unknowns().is_empty());
        assert_eq!(known.fact("t::R[a,name=b]", "mac"), None);
        assert_eq!(known.answer("get_param", &json!({"id": "size"})).unwrap().0, 404);
        assert!(known.answer("set_param", &json!({})).is_none());
        let unknowns = known.unknowns();
        assert_eq!((&*unknowns[0].name, &*unknowns[0].source), ("size", "plugin"));
        assert_eq!((&*unknowns[1].name, &*unknowns[1].source), ("mac", "fact"));
    }
}
