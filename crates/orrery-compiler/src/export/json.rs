//! Serializes model values as canonical JSON: keys sorted, no spaces. It writes straight into a
//! buffer; there may be a million resources, and a tree for each would dominate the work.

use crate::late_values::CollectedLateValues;
use crate::report::Model;
use crate::value::{InstanceId, StrId, UnknownId, Value};

use super::problem::Unserializable;

/// Maximum nesting depth; readers refuse more.
pub(super) const DEPTH_MAX: usize = 100;

/// Maximum length of a path to a late-bound value.
const PATH_MAX: usize = 4096;

/// Reason for an incompletely written value.
pub(super) enum JsonStop {
    /// The value contains an unknown, so it is unknown as a whole. `None` if it is not an unknown
    /// of the model.
    Unknown(Option<UnknownId>),
    Refused {
        /// Path within the value: `.users[2]`.
        path: String,
        cause: Unserializable,
    },
}

impl JsonStop {
    fn refused(cause: Unserializable) -> Self {
        JsonStop::Refused { path: String::new(), cause }
    }

    /// Prepends a step to the path.
    fn at_step(mut self, step: impl FnOnce() -> String) -> Self {
        if let JsonStop::Refused { path, .. } = &mut self {
            path.insert_str(0, &step());
        }
        self
    }
}

/// Writes a number or a text. Writing to memory does not fail.
fn scalar(value: &impl serde::Serialize, out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("invariant: a buffer takes everything");
}

pub(super) fn write_text(text: &str, out: &mut Vec<u8>) {
    scalar(&text, out);
}

/// An object key with quotes and colon.
pub(super) fn key(name: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(name.len() + 3);
    write_text(name, &mut key);
    key.push(b':');
    key
}

impl Model {
    pub(super) fn write_json(&self, value: Value, out: &mut Vec<u8>) -> Result<(), JsonStop> {
        self.write_at(value, 0, false, out)
    }

    /// The same, with null in place of the collected late-bound values.
    pub(super) fn write_around_late_values(
        &self,
        value: Value,
        out: &mut Vec<u8>,
    ) -> Result<(), JsonStop> {
        self.write_at(value, 0, true, out)
    }

    /// Collects the late-bound values in a value, by path.
    pub(super) fn collect_late_values<'m>(
        &'m self,
        value: Value,
        path: &str,
        collected: &mut CollectedLateValues<'m>,
    ) {
        let heap = &self.graph.heap;
        match value {
            Value::Other(_) => {
                if let Some(written) = heap.late_value(value) {
                    collected.add(path.to_owned(), written);
                }
            }
            // Excessive nesting is refused when the value is written.
            Value::List(_) | Value::Dict(_) if path.len() > PATH_MAX => {}
            Value::List(id) => {
                for (at, &item) in heap.items(id).iter().enumerate() {
                    self.collect_late_values(item, &format!("{path}[{at}]"), collected);
                }
            }
            Value::Dict(id) => {
                for (&key, &item) in heap.entries(id) {
                    let key = heap.text(key).replace('\\', "\\\\").replace('\'', "\\'");
                    self.collect_late_values(item, &format!("{path}.'{key}'"), collected);
                }
            }
            _ => {}
        }
    }

    fn write_at(
        &self,
        value: Value,
        depth: usize,
        around_late_values: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), JsonStop> {
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
                return Err(JsonStop::refused(Unserializable::NotFinite(shown)));
            }
            Value::Str(id) => write_text(heap.text(id), out),
            Value::Unknown(id) => return Err(JsonStop::Unknown(Some(id))),
            Value::Instance(id) => {
                let name = self.entity_name(id).to_owned();
                return Err(JsonStop::refused(Unserializable::Instance(name)));
            }
            Value::Other(_) if around_late_values && heap.late_value(value).is_some() => {
                out.extend_from_slice(b"null");
            }
            Value::Other(_) => {
                let class = heap.class_name(value).to_owned();
                return Err(JsonStop::refused(Unserializable::Foreign(class)));
            }
            Value::List(_) | Value::Dict(_) if depth == DEPTH_MAX => {
                return Err(JsonStop::refused(Unserializable::TooDeep));
            }
            Value::List(id) => {
                out.push(b'[');
                for (at, &item) in heap.items(id).iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    let written = self.write_at(item, depth + 1, around_late_values, out);
                    written.map_err(|stop| stop.at_step(|| format!("[{at}]")))?;
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
                    let written = self.write_at(item, depth + 1, around_late_values, out);
                    written.map_err(|stop| stop.at_step(|| format!(".{key}")))?;
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
