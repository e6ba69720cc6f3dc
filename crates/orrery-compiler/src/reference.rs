//! References as they are written down with a resource: what says where a value comes from, never the value.
//!
//! A resource with references has two more fields. `references` lists them, each with an id that follows from its kind and its
//! arguments; `mutators` says at which places of the resource their values belong. The form is that of the code of modules.

use md5::{Digest as _, Md5};
use serde_json::{Value as Json, json};
use uuid::Uuid;

/// A reference that needs no code of a module to be resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenReference {
    id: String,
    /// Itself, as canonical JSON.
    text: String,
    /// Others whose values it needs, each before those that need it.
    needs: Vec<(String, String)>,
}

/// One argument of a reference.
#[derive(Clone, Debug)]
pub enum Argument<'a> {
    /// A scalar.
    Literal(Json),
    /// A list or an object.
    Structure(Json),
    Reference(&'a WrittenReference),
}

impl WrittenReference {
    pub fn new(kind: &str, arguments: &[(&str, Argument<'_>)]) -> Self {
        let mut needs: Vec<(String, String)> = Vec::new();
        let mut written = Vec::with_capacity(arguments.len());
        for (name, argument) in arguments {
            written.push(match argument {
                Argument::Literal(value) => {
                    json!({"name": name, "type": "literal", "value": value})
                }
                Argument::Structure(value) => json!({"name": name, "type": "json", "value": value}),
                Argument::Reference(other) => {
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
        WrittenReference { id, text: own.to_string(), needs }
    }

    /// Itself and all that it needs: ids and texts.
    fn with_needs(&self) -> impl Iterator<Item = (String, String)> + '_ {
        let own = (self.id.clone(), self.text.clone());
        self.needs.iter().cloned().chain(std::iter::once(own))
    }
}

/// The id that follows from what is written down, the same in every process: a UUID of a digest of the text that Python's `json.dumps`
/// makes of it.
fn id_of(written: &Json) -> String {
    let mut text = String::new();
    dump(written, &mut text);
    let digest = Md5::digest(text.as_bytes());
    let name = Md5::new().chain_update(Uuid::NAMESPACE_OID.as_bytes()).chain_update(digest);
    uuid::Builder::from_md5_bytes(name.finalize().into()).into_uuid().to_string()
}

/// As `json.dumps(…, sort_keys=True)`: a space after each comma and colon, nothing but ASCII.
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

/// The references of one resource, and where their values belong.
#[derive(Debug, Default)]
pub(crate) struct Collected<'m> {
    found: Vec<(String, &'m WrittenReference)>,
}

impl<'m> Collected<'m> {
    pub(crate) fn add(&mut self, path: String, reference: &'m WrittenReference) {
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
    fn ids_are_those_that_python_computes() {
        let home = WrittenReference::new(
            "std::Environment",
            &[("name", Argument::Literal("HOME".into()))],
        );
        assert_eq!(home.id, "1db97cff-304a-3f5c-990a-f38282edb126");
        let accent =
            WrittenReference::new("std::Environment", &[("name", Argument::Literal("é\n".into()))]);
        assert_eq!(accent.id, "c37812ea-1668-39ac-ac52-2634c50d12e1");
        let number =
            WrittenReference::new("std::IntReference", &[("value", Argument::Reference(&home))]);
        assert_eq!(number.id, "52e44118-39f2-3521-ad89-23812a042181");
        assert_eq!(number.needs.len(), 1);
    }
}
