//! Encoding of model values: plain JSON, and tagged arrays for values that JSON lacks.

use std::collections::HashMap;

use orrery_compiler::host::{HostContext, InstanceView, SlotState};
use orrery_compiler::plugins::Failure;
use orrery_compiler::program::Definition;
use orrery_compiler::value::{Dict, Heap, InstanceId, Other, Owned, StrId, UnknownId, Value};
use orrery_python::Int;
use serde_json::Value as Json;

/// Cache of values that both sides know.
#[derive(Debug, Default)]
pub(super) struct SharedValues {
    /// Instances of which the host has all final values.
    complete: Vec<u64>,
    /// Texts with additional data in the host.
    marked: HashMap<StrId, u32>,
    /// Host objects of dataclass instances.
    objects: HashMap<InstanceId, u32>,
    /// Values that the host owns.
    owned: HashMap<u32, Value>,
}

impl SharedValues {
    pub(super) fn is_complete(&self, instance: InstanceId) -> bool {
        let at = instance.index();
        self.complete.get(at / 64).is_some_and(|bits| bits & 1 << (at % 64) != 0)
    }

    fn set_complete(&mut self, instance: InstanceId) {
        let at = instance.index();
        if self.complete.len() <= at / 64 {
            self.complete.resize(at / 64 + 1, 0);
        }
        self.complete[at / 64] |= 1 << (at % 64);
    }

    pub(super) fn release(&mut self, handles: &[u32]) {
        for handle in handles {
            self.owned.remove(handle);
        }
    }
}

fn put(out: &mut Vec<u8>, value: &impl serde::Serialize) {
    serde_json::to_writer(out, value).expect("invariant: a buffer takes everything");
}

/// Writes a value.
pub(super) fn encode(heap: &Heap, shared: &SharedValues, value: Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(bool) => put(out, &bool),
        Value::Int(int) => put(out, &int),
        Value::Float(float) if float.is_finite() => put(out, &float),
        Value::Float(float) => {
            let word = if float.is_nan() {
                "nan"
            } else if float > 0.0 {
                "inf"
            } else {
                "-inf"
            };
            put(out, &serde_json::json!({"$": ["f", word]}));
        }
        Value::Big(id) => put(out, &serde_json::json!({"$": ["b", heap.big(id).to_string()]})),
        Value::Str(id) => match shared.marked.get(&id) {
            Some(handle) => put(out, &serde_json::json!({"$": ["s", heap.text(id), handle]})),
            None => put(out, &heap.text(id)),
        },
        Value::List(id) => {
            out.push(b'[');
            for (at, &item) in heap.items(id).iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                encode(heap, shared, item, out);
            }
            out.push(b']');
        }
        Value::Dict(id) => {
            let entries = heap.entries(id);
            let escaped = entries.keys().any(|&key| heap.text(key) == "$");
            if escaped {
                out.extend_from_slice(b"{\"$\":[\"d\",");
            }
            out.push(b'{');
            for (at, (&key, &item)) in entries.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                put(out, &heap.text(key));
                out.push(b':');
                encode(heap, shared, item, out);
            }
            out.push(b'}');
            if escaped {
                out.extend_from_slice(b"]}");
            }
        }
        Value::Instance(id) => match shared.objects.get(&id) {
            Some(handle) => put(out, &serde_json::json!({"$": ["c", id.0, handle]})),
            None => tagged_number(out, "i", id.0),
        },
        Value::Unknown(id) => tagged_number(out, "u", id.0),
        Value::Other(id) => {
            let other = heap.get_other(id);
            match other.owned {
                Some(owned) => tagged_number(out, "o", owned.handle),
                None => {
                    let about = serde_json::json!({
                        "class": other.class, "repr": other.repr, "ref": other.reference,
                    });
                    put(out, &serde_json::json!({"$": ["o", null, about]}));
                }
            }
        }
    }
}

fn tagged_number(out: &mut Vec<u8>, tag: &str, number: u32) {
    out.extend_from_slice(b"{\"$\":[\"");
    out.extend_from_slice(tag.as_bytes());
    out.extend_from_slice(b"\",");
    put(out, &number);
    out.extend_from_slice(b"]}");
}

/// Writes the value of a cell.
pub(super) fn encode_slot(heap: &Heap, shared: &SharedValues, slot: SlotState, out: &mut Vec<u8>) {
    match slot {
        SlotState::Value(value) => encode(heap, shared, value, out),
        SlotState::Pending(cell) => tagged_number(out, "p", cell.0),
        SlotState::Empty => out.extend_from_slice(b"{\"$\":[\"n\"]}"),
    }
}

/// Writes a list of instance blocks, without those the host knows completely.
pub(super) fn encode_blocks(
    view: &dyn InstanceView,
    shared: &mut SharedValues,
    instances: impl IntoIterator<Item = InstanceId>,
    out: &mut Vec<u8>,
) {
    out.push(b'[');
    let mut first = true;
    for instance in instances {
        if shared.is_complete(instance) || instance.index() >= view.instance_count() {
            continue;
        }
        if !first {
            out.push(b',');
        }
        first = false;
        let entity = view.entity_of(instance);
        out.push(b'[');
        put(out, &instance.0);
        out.push(b',');
        put(out, &entity.0);
        out.extend_from_slice(b",[");
        let mut complete = true;
        for slot in 0..view.program().entity(entity).slots.len() {
            if slot > 0 {
                out.push(b',');
            }
            let slot = view.slot(instance, slot as u32);
            complete &= !matches!(slot, SlotState::Pending(_));
            encode_slot(view.values(), shared, slot, out);
        }
        out.extend_from_slice(b"]]");
        if complete {
            shared.set_complete(instance);
        }
    }
    out.push(b']');
}

/// Returns the instances in values, in order of occurrence.
pub(super) fn instances_in(heap: &Heap, values: &[Value]) -> Vec<InstanceId> {
    fn collect(heap: &Heap, value: Value, found: &mut Vec<InstanceId>) {
        match value {
            Value::Instance(id) => found.push(id),
            Value::List(id) => heap.items(id).iter().for_each(|&item| collect(heap, item, found)),
            Value::Dict(id) => {
                heap.entries(id).values().for_each(|&item| collect(heap, item, found));
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    values.iter().for_each(|&value| collect(heap, value, &mut found));
    found
}

/// Error of an invalid value from a host.
#[derive(Debug, thiserror::Error)]
#[error("the host sent an invalid value: {0}")]
pub(super) struct BadValue(String);

impl From<BadValue> for Failure {
    fn from(error: BadValue) -> Self {
        Failure::Runtime(error.to_string())
    }
}

fn bad(json: &Json) -> Failure {
    const SHOWN_MAX: usize = 100;
    BadValue(json.to_string().chars().take(SHOWN_MAX).collect()).into()
}

/// Decodes a value that a host returned.
///
/// # Errors
/// Fails if the value is invalid, or no instance can be created from it.
pub(super) fn decode(
    context: &mut dyn HostContext,
    shared: &mut SharedValues,
    json: &Json,
) -> Result<Value, Failure> {
    Ok(match json {
        Json::Null => Value::Null,
        Json::Bool(bool) => Value::Bool(*bool),
        Json::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(int), ..) => Value::Int(int),
            (None, Some(int), _) => {
                let int = Int::parse_decimal(&int.to_string()).ok_or_else(|| bad(json))?;
                context.heap_mut().int(int)
            }
            (None, None, Some(float)) => Value::Float(float),
            (None, None, None) => return Err(bad(json)),
        },
        Json::String(text) => context.heap_mut().str(text),
        Json::Array(items) => {
            let mut values = Vec::with_capacity(items.len());
            for item in items {
                values.push(decode(context, shared, item)?);
            }
            context.heap_mut().list(values)
        }
        Json::Object(members) => match members.get("$") {
            Some(tagged) => decode_tagged(context, shared, tagged)?,
            None => decode_members(context, shared, members)?,
        },
    })
}

fn decode_members(
    context: &mut dyn HostContext,
    shared: &mut SharedValues,
    members: &serde_json::Map<String, Json>,
) -> Result<Value, Failure> {
    let mut dict = Dict::default();
    for (key, member) in members {
        let value = decode(context, shared, member)?;
        let key = context.heap_mut().intern(key);
        dict.insert(key, value);
    }
    Ok(context.heap_mut().dict(dict))
}

fn number(json: Option<&Json>) -> Option<u32> {
    json?.as_u64().and_then(|number| u32::try_from(number).ok())
}

fn decode_tagged(
    context: &mut dyn HostContext,
    shared: &mut SharedValues,
    tagged: &Json,
) -> Result<Value, Failure> {
    let parts = tagged.as_array().map_or(&[][..], Vec::as_slice);
    let word = parts.first().and_then(Json::as_str).unwrap_or_default();
    let found = match word {
        "i" => number(parts.get(1))
            .filter(|&id| (id as usize) < context.instance_count())
            .map(|id| Value::Instance(InstanceId(id))),
        "c" if parts.get(1).is_some_and(Json::is_u64) => number(parts.get(1))
            .filter(|&id| (id as usize) < context.instance_count())
            .map(|id| Value::Instance(InstanceId(id))),
        "u" => number(parts.get(1))
            .filter(|&id| context.heap().has_unknown(UnknownId(id)))
            .map(|id| Value::Unknown(UnknownId(id))),
        "U" => {
            let source =
                number(parts.get(1)).filter(|&id| (id as usize) < context.instance_count());
            Some(context.heap_mut().unknown(source.map(InstanceId)))
        }
        "b" => {
            let int = parts.get(1).and_then(Json::as_str).and_then(Int::parse_decimal);
            int.map(|int| context.heap_mut().int(int))
        }
        "f" => match parts.get(1).and_then(Json::as_str) {
            Some("nan") => Some(Value::Float(f64::NAN)),
            Some("inf") => Some(Value::Float(f64::INFINITY)),
            Some("-inf") => Some(Value::Float(f64::NEG_INFINITY)),
            _ => None,
        },
        "d" => match parts.get(1).and_then(Json::as_object) {
            Some(members) => Some(decode_members(context, shared, members)?),
            None => None,
        },
        "s" => match (parts.get(1).and_then(Json::as_str), number(parts.get(2))) {
            (Some(text), Some(handle)) => {
                let id = context.heap_mut().intern(text);
                shared.marked.insert(id, handle);
                Some(Value::Str(id))
            }
            _ => None,
        },
        "o" => decode_owned(context, shared, parts),
        "c" => return decode_dataclass(context, shared, parts).ok_or_else(|| bad(tagged))?,
        _ => None,
    };
    found.ok_or_else(|| bad(tagged))
}

fn decode_owned(
    context: &mut dyn HostContext,
    shared: &mut SharedValues,
    parts: &[Json],
) -> Option<Value> {
    let handle = number(parts.get(1))?;
    let Some(about) = parts.get(2).and_then(Json::as_object) else {
        return shared.owned.get(&handle).copied();
    };
    let text = |name: &str| about.get(name).and_then(Json::as_str);
    let equality = number(about.get("eq")).unwrap_or(handle);
    let value = context.heap_mut().other(Other {
        class: text("class")?.to_owned(),
        repr: text("repr")?.to_owned(),
        reference: text("ref").map(Box::from),
        owned: Some(Owned { handle, equality }),
        late_value: None,
    });
    shared.owned.insert(handle, value);
    Some(value)
}

/// Creates an instance from an object. The outer result is `None` if the entity does not exist.
fn decode_dataclass(
    context: &mut dyn HostContext,
    shared: &mut SharedValues,
    parts: &[Json],
) -> Option<Result<Value, Failure>> {
    let name = parts.get(1)?.as_str()?;
    let members = parts.get(2)?.as_object()?;
    let Some(Definition::Entity(entity)) = context.program().find_definition(name) else {
        return None;
    };
    let mut attributes = Vec::with_capacity(members.len());
    for (field, member) in members {
        let symbol = context.program().interner.get(field)?;
        let slot = *context.program().entity(entity).slot_of.get(&symbol)?;
        match decode(context, shared, member) {
            Ok(value) => attributes.push((slot, value)),
            Err(failure) => return Some(Err(failure)),
        }
    }
    Some(context.construct(entity, &attributes).map(|instance| {
        if let Some(handle) = number(parts.get(3)) {
            shared.objects.insert(instance, handle);
        }
        Value::Instance(instance)
    }))
}

/// Returns canonical JSON, as attributes of resources: sorted members.
pub(super) fn canonical(json: &Json) -> String {
    fn sort(json: &mut Json) {
        match json {
            Json::Array(items) => items.iter_mut().for_each(sort),
            Json::Object(members) => {
                members.sort_keys();
                members.values_mut().for_each(sort);
            }
            _ => {}
        }
    }
    let mut json = json.clone();
    sort(&mut json);
    json.to_string()
}
