//! Values of the model as canonical JSON: keys sorted, no spaces. It is written straight into a buffer;
//! there may be a million resources, and a tree for each would be the larger part of the work.

use crate::reference::Collected;
use crate::report::Model;
use crate::value::{InstanceId, StrId, UnknownId, Value};

use super::problem::Unserializable;

/// Readers refuse what is nested more deeply.
pub(super) const DEPTH_MAX: usize = 100;

/// Paths to references are not longer.
const PATH_MAX: usize = 4096;

/// Why a value was not written to its end.
pub(super) enum Stop {
    /// There is an unknown in it: the whole value is not known. `None` if it is none of the model's.
    Unknown(Option<UnknownId>),
    Refused {
        /// Where in the value: `.users[2]`.
        path: String,
        cause: Unserializable,
    },
}

impl Stop {
    fn refused(cause: Unserializable) -> Self {
        Stop::Refused { path: String::new(), cause }
    }

    /// The same, seen from the value around it.
    fn inside(mut self, step: impl FnOnce() -> String) -> Self {
        if let Stop::Refused { path, .. } = &mut self {
            path.insert_str(0, &step());
        }
        self
    }
}

/// A number or a text. Writing to memory does not fail.
fn scalar(value: &impl serde::Serialize, out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("invariant: a buffer takes everything");
}

pub(super) fn write_text(text: &str, out: &mut Vec<u8>) {
    scalar(&text, out);
}

/// A key as it stands in an object, with quotes and colon.
pub(super) fn key(name: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(name.len() + 3);
    write_text(name, &mut key);
    key.push(b':');
    key
}

impl Model {
    pub(super) fn write_json(&self, value: Value, out: &mut Vec<u8>) -> Result<(), Stop> {
        self.write_at(value, 0, false, out)
    }

    /// The same, with null in the places of references that were collected.
    pub(super) fn write_around_references(
        &self,
        value: Value,
        out: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        self.write_at(value, 0, true, out)
    }

    /// Collects the references in a value, by their paths.
    pub(super) fn collect_references<'m>(
        &'m self,
        value: Value,
        path: &str,
        collected: &mut Collected<'m>,
    ) {
        let heap = &self.graph.heap;
        match value {
            Value::Other(_) => {
                if let Some(written) = heap.written(value) {
                    collected.add(path.to_owned(), written);
                }
            }
            // What is nested too deeply is refused when it is written.
            Value::List(_) | Value::Dict(_) if path.len() > PATH_MAX => {}
            Value::List(id) => {
                for (at, &item) in heap.items(id).iter().enumerate() {
                    self.collect_references(item, &format!("{path}[{at}]"), collected);
                }
            }
            Value::Dict(id) => {
                for (&key, &item) in heap.entries(id) {
                    let key = heap.text(key).replace('\\', "\\\\").replace('\'', "\\'");
                    self.collect_references(item, &format!("{path}.'{key}'"), collected);
                }
            }
            _ => {}
        }
    }

    fn write_at(
        &self,
        value: Value,
        depth: usize,
        around_references: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        let heap = &self.graph.heap;
        match value {
            Value::Null => out.extend_from_slice(b"null"),
            Value::Bool(true) => out.extend_from_slice(b"true"),
            Value::Bool(false) => out.extend_from_slice(b"false"),
            Value::Int(int) => scalar(&int, out),
            Value::Big(id) => out.extend_from_slice(heap.big(id).to_string().as_bytes()),
            Value::Float(float) if float.is_finite() => scalar(&float, out),
            Value::Float(float) => {
                let shown = orrery_python::repr_float(float);
                return Err(Stop::refused(Unserializable::NotFinite(shown)));
            }
            Value::Str(id) => write_text(heap.text(id), out),
            Value::Unknown(id) => return Err(Stop::Unknown(Some(id))),
            Value::Instance(id) => {
                let name = self.entity_name(id).to_owned();
                return Err(Stop::refused(Unserializable::Instance(name)));
            }
            Value::Other(_) if around_references && heap.written(value).is_some() => {
                out.extend_from_slice(b"null");
            }
            Value::Other(_) => {
                let class = heap.class_name(value).to_owned();
                return Err(Stop::refused(Unserializable::Foreign(class)));
            }
            Value::List(_) | Value::Dict(_) if depth == DEPTH_MAX => {
                return Err(Stop::refused(Unserializable::TooDeep));
            }
            Value::List(id) => {
                out.push(b'[');
                for (at, &item) in heap.items(id).iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    let written = self.write_at(item, depth + 1, around_references, out);
                    written.map_err(|stop| stop.inside(|| format!("[{at}]")))?;
                }
                out.push(b']');
            }
            Value::Dict(id) => {
                let mut entries: Vec<(&str, Value)> =
                    heap.entries(id).iter().map(|(&key, &value)| (heap.text(key), value)).collect();
                entries.sort_unstable_by_key(|&(key, _)| key);
                out.push(b'{');
                for (at, &(key, item)) in entries.iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    write_text(key, out);
                    out.push(b':');
                    let written = self.write_at(item, depth + 1, around_references, out);
                    written.map_err(|stop| stop.inside(|| format!(".{key}")))?;
                }
                out.push(b'}');
            }
        }
        Ok(())
    }

    pub(super) fn entity_name(&self, instance: InstanceId) -> &str {
        let entity = self.graph.instances[instance.index()].entity;
        self.program.text(self.program.entity(entity).name)
    }

    pub(super) fn text(&self, id: StrId) -> &str {
        self.graph.heap.text(id)
    }
}
