//! Late-bound values (`std::Reference` in the language), serialized with a resource: they describe
//! the origin of a value, never the value itself.
//!
//! A resource with late-bound values has two more fields. `references` lists them, each with an id
//! derived from its type and arguments; `mutators` assigns their values to paths of the resource.
//! The format is that of module code.

use md5::{Digest as _, Md5};
use serde_json::{Value as Json, json};
use uuid::Uuid;

/// A late-bound value that needs no module code to be resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateValue {
    id: String,
    /// Canonical JSON.
    text: String,
    /// Late-bound values that it depends on, dependencies first.
    needs: Vec<(String, String)>,
}

/// An argument of a late-bound value.
#[derive(Clone, Debug)]
pub enum LateValueArgument<'a> {
    /// A scalar.
    Literal(Json),
    /// A list or an object.
    Structure(Json),
    Reference(&'a LateValue),
}

impl LateValue {
    pub fn new(kind: &str, arguments: &[(&str, LateValueArgument<'_>)]) -> Self {
        let mut needs: Vec<(String, String)> = Vec::new();
        let mut written = Vec::with_capacity(arguments.len());
        for (name, argument) in arguments {
            written.push(match argument {
                LateValueArgument::Literal(value) => {
                    json!({"name": name, "type": "literal", "value": value})
                }
                LateValueArgument::Structure(value) => {
                    json!({"name": name, "type": "json", "value": value})
                }
                LateValueArgument::Reference(other) => {
                    for one in other.with_needs() {
                        if !needs.contains(&one) {
                            needs.push(one);
                        }
                    }
                    json!({"id": other.id, "name": name, "type": "reference"})
                }
            });
        }
        let id = id_of(&json!({"args": written, "type": kind}));
        let mut own = json!({"args": written, "id": id, "type": kind});
        own.sort_all_objects();
        LateValue { id, text: own.to_string(), needs }
    }

    /// The value itself and its dependencies: ids and texts.
    fn with_needs(&self) -> impl Iterator<Item = (String, String)> + '_ {
        let own = (self.id.clone(), self.text.clone());
        self.needs.iter().cloned().chain(std::iter::once(own))
    }
}

/// The id derived from the serialized form, equal in every process: a UUID of a digest of the text
/// that Python's `json.dumps` produces.
fn id_of(written: &Json) -> String {
    let mut text = String::new();
    dump(written, &mut text);
    let digest = Md5::digest(text.as_bytes());
    let name = Md5::new().chain_update(Uuid::NAMESPACE_OID.as_bytes()).chain_update(digest);
    uuid::Builder::from_md5_bytes(name.finalize().into()).into_uuid().to_string()
}

/// Like `json.dumps(…, sort_keys=True)`: a space after each comma and colon, ASCII only.
fn dump(value: &Json, out: &mut String) {
    let each = |at: usize, out: &mut String| {
        if at > 0 {
            out.push_str(", ");
        }
    };
    match value {
        Json::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                each(at, out);
                dump(item, out);
            }
            out.push(']');
        }
        Json::Object(entries) => {
            let mut entries: Vec<_> = entries.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            out.push('{');
            for (at, (key, item)) in entries.into_iter().enumerate() {
                each(at, out);
                dump(&Json::from(key.as_str()), out);
                out.push_str(": ");
                dump(item, out);
            }
            out.push('}');
        }
        scalar => {
            for character in scalar.to_string().chars() {
                if character.is_ascii() {
                    out.push(character);
                } else {
                    for unit in character.encode_utf16(&mut [0; 2]) {
                        out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
            }
        }
    }
}

/// The late-bound values of one resource and the paths at which they are used.
#[derive(Debug, Default)]
pub(crate) struct CollectedLateValues<'m> {
    found: Vec<(String, &'m LateValue)>,
}

impl<'m> CollectedLateValues<'m> {
    pub(crate) fn add(&mut self, path: String, reference: &'m LateValue) {
        self.found.push((path, reference));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// The fields `mutators` and `references`, as canonical JSON.
    pub(crate) fn fields(&self, resource: &str) -> [(&'static str, String); 2] {
        let mut references: Vec<(String, String)> = Vec::new();
        let mut mutators = Vec::with_capacity(self.found.len());
        for (path, reference) in &self.found {
            references.extend(reference.with_needs());
            mutators.push(json!({"args": [
                {"id": resource, "name": "resource", "type": "resource"},
                {"id": reference.id, "name": "value", "type": "reference"},
                {"name": "destination", "type": "literal", "value": path},
            ], "type": "core::Replace"}));
        }
        references.sort_unstable();
        references.dedup();
        let references: Vec<&str> = references.iter().map(|(_, text)| text.as_str()).collect();
        let mut mutators = Json::from(mutators);
        mutators.sort_all_objects();
        [("mutators", mutators.to_string()), ("references", format!("[{}]", references.join(",")))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ids were computed by the code of `inmanta.references`.
    #[test]
    fn ids_equal_those_computed_by_python() {
        let home = LateValue::new(
            "std::Environment",
            &[("name", LateValueArgument::Literal("HOME".into()))],
        );
        assert_eq!(home.id, "1db97cff-304a-3f5c-990a-f38282edb126");
        let accent = LateValue::new(
            "std::Environment",
            &[("name", LateValueArgument::Literal("é\n".into()))],
        );
        assert_eq!(accent.id, "c37812ea-1668-39ac-ac52-2634c50d12e1");
        let number =
            LateValue::new("std::IntReference", &[("value", LateValueArgument::Reference(&home))]);
        assert_eq!(number.id, "52e44118-39f2-3521-ad89-23812a042181");
        assert_eq!(number.needs.len(), 1);
    }
}
