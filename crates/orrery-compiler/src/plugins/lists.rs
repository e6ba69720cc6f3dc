//! Plugins on lists and dicts.

use std::cmp::Ordering;

use hashbrown::HashSet;
use orrery_python::{Int, num_cmp, parse_int};

use super::args::{
    ANY, ANY_LIST, attribute, class_seen, integer, items, optional, plugin, position, python_len,
    require_known, required, text,
};
use super::{Failure, NativePlugin, ParamDefault, PluginContext, PluginResult};
use crate::value::{MEMBERS_MAX, Value};

pub(super) const PLUGINS: &[NativePlugin] = &[
    plugin!("std::at", [required("objects", ANY_LIST), required("index", "int")] => ANY, at),
    plugin!("std::contains", [required("dct", "dict[string, any]"), required("key", "string")] => "bool", contains,
        deprecated: Some("the `<key> in <dict>` construct")),
    plugin!("std::count", [required("item_list", ANY_LIST)] => "int", count),
    plugin!("std::dict_get", [required("dct", "dict[string, any]"), required("key", "string")] => "string", dict_get,
        deprecated: Some("using the `<dict>[<key>]` construct")),
    plugin!("std::dict_keys", [required("dct", "dict[string, any]")] => "string[]", dict_keys),
    plugin!("std::filter", [required("values", "list"), required("not_item", "std::Entity")] => "list", filter,
        deprecated: Some("using a list comprehension")),
    plugin!("std::flatten", [required("item_list", "list")] => "list", flatten),
    plugin!("std::item", [required("objects", "list"), required("index", "int")] => "list", item),
    plugin!("std::key_sort", [required("items", "list"), required("key", "any")] => "list", key_sort),
    plugin!("std::len", [required("item_list", ANY_LIST)] => "int", len),
    plugin!("std::select", [required("objects", "list"), required("attr", "string")] => "list", select,
        deprecated: Some("using a list comprehension")),
    plugin!("std::sequence",
        [required("i", "int"), optional("start", "int", ParamDefault::Int(0))] => "list", sequence),
    plugin!("std::unique", [required("item_list", "list")] => "bool", unique),
];

fn at(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    match args[0] {
        Value::List(_) => {
            let found = position(ctx, args[1], items(ctx, args[0])?.len(), "list")?;
            require_known(items(ctx, args[0])?[found])
        }
        Value::Str(_) => {
            let chars: Vec<char> = text(ctx, args[0])?.chars().collect();
            let found = position(ctx, args[1], chars.len(), "string")?;
            Ok(ctx.heap_mut().str(chars[found].encode_utf8(&mut [0; 4])))
        }
        other => {
            let message = format!("'{}' object is not subscriptable", class_seen(ctx, other));
            Err(Failure::python("TypeError", message))
        }
    }
}

fn count(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    Ok(Value::Int(python_len(ctx, args[0])? as i64))
}

/// Like `count`, but a list with an unknown member has no known length.
fn len(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    if !matches!(args[0], Value::List(_)) {
        return count(ctx, args);
    }
    let items = items(ctx, args[0])?;
    match items.iter().find(|item| item.is_unknown()) {
        Some(&unknown) => Ok(unknown),
        None => Ok(Value::Int(items.len() as i64)),
    }
}

fn contains(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    Ok(Value::Bool(entry(ctx, args)?.is_some()))
}

fn dict_get(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    match entry(ctx, args)? {
        Some(value) => Ok(value),
        None => Err(Failure::python("KeyError", ctx.repr(args[1]))),
    }
}

fn entry(ctx: &dyn PluginContext, args: &[Value]) -> Result<Option<Value>, Failure> {
    let (Value::Dict(dict), Value::Str(key)) = (args[0], args[1]) else {
        return Ok(None);
    };
    ctx.heap().entries(dict).get(&key).map(|&value| require_known(value)).transpose()
}

fn dict_keys(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let Value::Dict(dict) = args[0] else {
        let message = format!("'{}' object has no attribute 'keys'", class_seen(ctx, args[0]));
        return Err(Failure::python("AttributeError", message));
    };
    let keys = ctx.heap().entries(dict).keys().map(|&key| Value::Str(key)).collect();
    Ok(ctx.heap_mut().list(keys))
}

fn filter(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let mut kept = Vec::new();
    for item in iterate(ctx, args[0])? {
        if !ctx.heap().equal(require_known(item)?, args[1]) {
            kept.push(item);
        }
    }
    Ok(ctx.heap_mut().list(kept))
}

/// The elements of an iterable. Models pass only lists; templates may pass anything.
fn iterate(ctx: &mut dyn PluginContext, value: Value) -> Result<Vec<Value>, Failure> {
    match value {
        Value::List(list) => Ok(ctx.heap().items(list).to_vec()),
        Value::Dict(dict) => {
            Ok(ctx.heap().entries(dict).keys().map(|&key| Value::Str(key)).collect())
        }
        Value::Str(id) => {
            let text = ctx.heap().text(id).to_owned();
            let heap = ctx.heap_mut();
            Ok(text.chars().map(|c| heap.str(c.encode_utf8(&mut [0; 4]))).collect())
        }
        other => {
            let message = format!("'{}' object is not iterable", class_seen(ctx, other));
            Err(Failure::python("TypeError", message))
        }
    }
}

/// Flattens one level: everything that Python can iterate, including texts and dicts.
fn flatten(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let mut flat = Vec::new();
    for outer in iterate(ctx, args[0])? {
        for inner in iterate(ctx, require_known(outer)?)? {
            flat.push(require_known(inner)?);
        }
    }
    Ok(ctx.heap_mut().list(flat))
}

/// The `index`-th part of every member.
fn item(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let mut parts = Vec::new();
    for object in iterate(ctx, args[0])? {
        parts.push(match require_known(object)? {
            Value::List(list) => {
                let found = position(ctx, args[1], ctx.heap().items(list).len(), "list")?;
                require_known(ctx.heap().items(list)[found])?
            }
            Value::Str(id) => {
                let chars: Vec<char> = ctx.heap().text(id).chars().collect();
                let found = position(ctx, args[1], chars.len(), "string")?;
                ctx.heap_mut().str(chars[found].encode_utf8(&mut [0; 4]))
            }
            Value::Dict(_) => {
                let message = "'dict' object has no attribute 'get_attribute'";
                return Err(Failure::python("AttributeError", message));
            }
            other => {
                let message = format!("'{}' object is not subscriptable", class_seen(ctx, other));
                return Err(Failure::python("TypeError", message));
            }
        });
    }
    Ok(ctx.heap_mut().list(parts))
}

fn select(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let name = text(ctx, args[1])?.to_owned();
    let mut selected = Vec::new();
    for object in iterate(ctx, args[0])? {
        selected.push(attribute(ctx, require_known(object)?, &name)?);
    }
    Ok(ctx.heap_mut().list(selected))
}

fn sequence(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let count = match args[0] {
        Value::Str(id) => parse_int(ctx.heap().text(id))?,
        Value::Float(float) => Int::from_f64_trunc(float)?,
        number @ (Value::Int(_) | Value::Bool(_) | Value::Big(_)) => integer(ctx, number)?,
        other => {
            let message = format!(
                "int() argument must be a string, a bytes-like object or a real number, not '{}'",
                class_seen(ctx, other)
            );
            return Err(Failure::python("TypeError", message));
        }
    };
    let start = integer(ctx, args[1])?;
    let count = match count {
        Int::Small(count) => count.max(0),
        big @ Int::Big(_) if big.is_negative() => 0,
        Int::Big(_) => i64::MAX,
    };
    if count > MEMBERS_MAX as i64 {
        return Err(Failure::python("MemoryError", ""));
    }
    let numbers = match start {
        Int::Small(start) if start.checked_add(count).is_some() => {
            (start..start + count).map(Value::Int).collect()
        }
        start => {
            let heap = ctx.heap_mut();
            (0..count).map(|i| heap.int(start.add(&Int::Small(i)))).collect()
        }
    };
    Ok(ctx.heap_mut().list(numbers))
}

/// True if no two members are equal, by Python's hashes: `1`, `1.0` and `true` are equal.
fn unique(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    #[derive(PartialEq, Eq, Hash)]
    enum Key {
        Null,
        Text(u32),
        Instance(u32),
        Int(i64),
        Float(u64),
        Big(Int),
        Other(String),
    }
    let items = iterate(ctx, args[0])?;
    let heap = ctx.heap();
    let mut seen = HashSet::new();
    for item in items {
        let key = match require_known(item)? {
            Value::Null => Key::Null,
            Value::Str(id) => Key::Text(id.0),
            Value::Instance(id) => Key::Instance(id.0),
            Value::Float(f) if f.fract() == 0.0 && f.abs() < 9.0e18 => Key::Int(f as i64),
            Value::Float(f) => Key::Float(f.to_bits()),
            Value::Int(i) => Key::Int(i),
            Value::Bool(b) => Key::Int(i64::from(b)),
            Value::Big(id) => Key::Big(heap.big(id).clone()),
            Value::Other(id) if !heap.get_other(id).class.ends_with("Reference") => {
                Key::Other(heap.get_other(id).repr.clone())
            }
            Value::List(_) | Value::Dict(_) | Value::Other(_) | Value::Unknown(_) => {
                let class = match item {
                    Value::List(_) => "list".to_owned(),
                    Value::Dict(_) => "dict".to_owned(),
                    _ => class_seen(ctx, item),
                };
                return Err(Failure::python("TypeError", format!("unhashable type: '{class}'")));
            }
        };
        if !seen.insert(key) {
            return Ok(Value::Bool(false));
        }
    }
    Ok(Value::Bool(true))
}

/// Sorts by an attribute, or a dotted path of them; stable.
fn key_sort(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let Value::Str(path) = args[1] else {
        return Err(Failure::python("TypeError", "attribute name must be a string"));
    };
    let path = ctx.heap().text(path).to_owned();
    let mut keyed = Vec::new();
    for object in iterate(ctx, args[0])? {
        let mut key = require_known(object)?;
        for name in path.split('.') {
            key = attribute(ctx, key, name)?;
        }
        keyed.push((key, object));
    }
    // Python compares neighbours first: this finds the pair of its error message.
    for pair in keyed.windows(2) {
        less(ctx, pair[1].0, pair[0].0)?;
    }
    let mut failure = None;
    keyed.sort_by(|left, right| match (less(ctx, left.0, right.0), less(ctx, right.0, left.0)) {
        (Ok(true), _) => Ordering::Less,
        (_, Ok(true)) => Ordering::Greater,
        (Ok(_), Ok(_)) => Ordering::Equal,
        (Err(error), _) | (_, Err(error)) => {
            failure.get_or_insert(error);
            Ordering::Equal
        }
    });
    if let Some(failure) = failure {
        return Err(failure);
    }
    let sorted = keyed.into_iter().map(|(_, object)| object).collect();
    Ok(ctx.heap_mut().list(sorted))
}

/// Python's `left < right`.
fn less(ctx: &dyn PluginContext, left: Value, right: Value) -> Result<bool, Failure> {
    let heap = ctx.heap();
    match (left, right) {
        (Value::Int(a), Value::Int(b)) => return Ok(a < b),
        (Value::Str(a), Value::Str(b)) => return Ok(heap.text(a) < heap.text(b)),
        (Value::List(a), Value::List(b)) => {
            let (a, b) = (heap.items(a), heap.items(b));
            let first = a.iter().zip(b).find(|&(&a, &b)| !heap.equal(a, b));
            return match first {
                Some((&a, &b)) => less(ctx, a, b),
                None => Ok(a.len() < b.len()),
            };
        }
        _ => {}
    }
    if let (Some(a), Some(b)) = (heap.number(left), heap.number(right)) {
        return Ok(num_cmp(&a, &b) == Some(Ordering::Less));
    }
    let class = |value| match value {
        Value::Instance(_) => "Instance".to_owned(),
        Value::List(_) => "list".to_owned(),
        Value::Dict(_) => "dict".to_owned(),
        other => class_seen(ctx, other),
    };
    let message =
        format!("'<' not supported between instances of '{}' and '{}'", class(left), class(right));
    Err(Failure::python("TypeError", message))
}
