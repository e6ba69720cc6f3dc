//! Canonical text of the model in a report, independent of instance ids and of the order of
//! instances.
//!
//! Instances get names by the way that leads to them: from the variables along attributes and
//! relations (`a`, `a.hosts[0]`), then from the instances that no variable leads to, taken in the
//! order of their colours. A colour is what a few rounds of refinement know of an instance: its
//! type, its values and the colours around it. Relations are ordered, so that the walk itself
//! settles everything that the variables lead to; colours only choose where the next walk begins.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Map, Value};

use crate::compare::normalise;

/// Significance of the order of relation members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RelationOrder {
    Kept,
    Ignored,
}

struct Instance<'report> {
    kind: &'report str,
    attributes: BTreeMap<&'report str, &'report Value>,
    relations: BTreeMap<&'report str, Vec<Value>>,
}

struct Model<'report> {
    variables: BTreeMap<&'report str, &'report Value>,
    instances: BTreeMap<&'report str, Instance<'report>>,
    colours: HashMap<&'report str, u64>,
}

/// The canonical text of a model: a line per variable, then a line per instance.
pub(crate) fn canonical(model: &Value, order: RelationOrder) -> Result<String, String> {
    let mut model = Model::read(model)?;
    model.refine(order);
    if order == RelationOrder::Ignored {
        model.sort_relations();
    }
    Ok(model.render())
}

impl<'report> Model<'report> {
    fn read(model: &'report Value) -> Result<Self, String> {
        let variables = members(model, "variables")?;
        let listed = model.get("instances").and_then(Value::as_array);
        let listed = listed.ok_or("the model has no list of instances")?;
        let mut instances = BTreeMap::new();
        for entry in listed {
            let id = entry.get("id").and_then(Value::as_str).ok_or("an instance without an id")?;
            let kind = entry.get("type").and_then(Value::as_str);
            let kind = kind.ok_or_else(|| format!("instance {id} has no type"))?;
            let mut relations = BTreeMap::new();
            for (name, value) in members(entry, "relations")? {
                let related = value.as_array().cloned();
                let related = related.ok_or_else(|| format!("{id}.{name} is no list"))?;
                if !related.is_empty() {
                    relations.insert(name.as_str(), related.iter().map(as_reference).collect());
                }
            }
            let attributes = members(entry, "attributes")?;
            let attributes =
                attributes.iter().map(|(name, value)| (name.as_str(), value)).collect();
            if instances.insert(id, Instance { kind, attributes, relations }).is_some() {
                return Err(format!("two instances have the id {id}"));
            }
        }
        let variables = variables.iter().map(|(name, value)| (name.as_str(), value)).collect();
        let mut model = Self { variables, instances, colours: HashMap::new() };
        model.check_references()?;
        model.drop_idle_systems();
        Ok(model)
    }

    fn check_references(&self) -> Result<(), String> {
        let mut missing = None;
        let mut check = |id: &str| {
            if !self.instances.contains_key(id) {
                missing = Some(id.to_owned());
            }
        };
        self.variables.values().for_each(|value| each_reference(value, &mut check));
        for instance in self.instances.values() {
            instance.values().for_each(|value| each_reference(value, &mut check));
        }
        missing.map_or(Ok(()), |id| Err(format!("instance {id} is referred to but not listed")))
    }

    /// Drops operating systems that `std` declares in every model, unless the model refers to them.
    fn drop_idle_systems(&mut self) {
        let mut reached: BTreeSet<String> = BTreeSet::new();
        let mut queue: VecDeque<String> = self
            .instances
            .iter()
            .filter(|(_, instance)| instance.kind != "std::OS")
            .map(|(id, _)| (*id).to_owned())
            .collect();
        for value in self.variables.values() {
            each_reference(value, &mut |id| queue.push_back(id.to_owned()));
        }
        while let Some(id) = queue.pop_front() {
            if reached.insert(id.clone()) {
                let values = self.instances[id.as_str()].values();
                values
                    .for_each(|value| each_reference(value, &mut |id| queue.push_back(id.into())));
            }
        }
        self.instances.retain(|id, _| reached.contains(*id));
    }

    /// Refines the colours of instances until they are stable.
    fn refine(&mut self, order: RelationOrder) {
        let mut named: HashMap<&str, Vec<&str>> = HashMap::new();
        for (name, value) in &self.variables {
            each_reference(value, &mut |id| {
                if let Some((id, _)) = self.instances.get_key_value(id) {
                    named.entry(id).or_default().push(name);
                }
            });
        }
        self.colours = self.instances.keys().map(|id| (*id, hash_of(&named.get(id)))).collect();
        let mut distinct = 0;
        loop {
            let next: HashMap<&str, u64> = self
                .instances
                .iter()
                .map(|(id, instance)| (*id, self.next_colour(id, instance, order)))
                .collect();
            let count = next.values().collect::<BTreeSet<_>>().len();
            self.colours = next;
            if count <= distinct {
                return;
            }
            distinct = count;
        }
    }

    fn next_colour(&self, id: &str, instance: &Instance, order: RelationOrder) -> u64 {
        let attributes: Vec<(&str, String)> =
            instance.attributes.iter().map(|(name, value)| (*name, self.coloured(value))).collect();
        let relations: Vec<(&str, Vec<String>)> = instance
            .relations
            .iter()
            .map(|(name, related)| {
                let mut related: Vec<String> =
                    related.iter().map(|value| self.coloured(value)).collect();
                if order == RelationOrder::Ignored {
                    related.sort();
                }
                (*name, related)
            })
            .collect();
        hash_of(&(self.colours[id], instance.kind, attributes, relations))
    }

    fn coloured(&self, value: &Value) -> String {
        render(value, &mut |id| format!("{:x}", self.colours[id]))
    }

    fn sort_relations(&mut self) {
        let keys: HashMap<&str, u64> = self.colours.clone();
        for instance in self.instances.values_mut() {
            for related in instance.relations.values_mut() {
                related.sort_by_key(|value| render(value, &mut |id| format!("{:x}", keys[id])));
            }
        }
    }

    fn render(&self) -> String {
        let mut names = Names { known: HashMap::new(), order: Vec::new() };
        for (variable, value) in &self.variables {
            self.name_from(variable, value, &mut names);
        }
        let mut rest: Vec<&str> = self.instances.keys().copied().collect();
        rest.sort_by_key(|id| (self.instances[id].kind, self.colours[id], *id));
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for id in rest {
            if !names.known.contains_key(id) {
                let count = counts.entry(self.instances[id].kind).or_default();
                let name = format!("{}#{count}", self.instances[id].kind);
                *count += 1;
                let reference = serde_json::json!({ "$instance": id });
                self.name_from(&name, &reference, &mut names);
            }
        }
        let mut named = |id: &str| names.known[id].clone();
        let mut text = String::new();
        for (variable, value) in &self.variables {
            let _ = writeln!(text, "{variable} = {}", render(value, &mut named));
        }
        for id in &names.order {
            let instance = &self.instances[id.as_str()];
            let _ = write!(text, "<{}> is {}", names.known[id], instance.kind);
            for (name, value) in &instance.attributes {
                let _ = write!(text, "\n    {name} = {}", render(value, &mut named));
            }
            for (name, related) in &instance.relations {
                let related: Vec<String> =
                    related.iter().map(|value| render(value, &mut named)).collect();
                let _ = write!(text, "\n    {name} -- {}", related.join(" "));
            }
            text.push('\n');
        }
        text
    }

    /// Names every instance that a value leads to, nearest first.
    fn name_from(&self, path: &str, value: &Value, names: &mut Names) {
        let mut queue = VecDeque::new();
        push_references(path, value, &mut queue);
        while let Some((path, id)) = queue.pop_front() {
            if names.known.contains_key(&id) {
                continue;
            }
            names.known.insert(id.clone(), path.clone());
            names.order.push(id.clone());
            let instance = &self.instances[id.as_str()];
            for (name, value) in &instance.attributes {
                push_references(&format!("{path}.{name}"), value, &mut queue);
            }
            for (name, related) in &instance.relations {
                for (index, value) in related.iter().enumerate() {
                    push_references(&format!("{path}.{name}[{index}]"), value, &mut queue);
                }
            }
        }
    }
}

struct Names {
    known: HashMap<String, String>,
    order: Vec<String>,
}

impl Instance<'_> {
    fn values(&self) -> impl Iterator<Item = &Value> {
        self.attributes.values().copied().chain(self.relations.values().flatten())
    }
}

fn members<'value>(value: &'value Value, name: &str) -> Result<&'value Map<String, Value>, String> {
    value.get(name).and_then(Value::as_object).ok_or_else(|| format!("no object {name}"))
}

/// A relation member is a bare id, or a value that is not an instance.
fn as_reference(member: &Value) -> Value {
    match member {
        Value::String(id) => serde_json::json!({ "$instance": id }),
        other => other.clone(),
    }
}

fn instance_id(value: &Value) -> Option<&str> {
    let object = value.as_object()?;
    if object.len() == 1 { object.get("$instance")?.as_str() } else { None }
}

fn each_reference(value: &Value, visit: &mut impl FnMut(&str)) {
    if let Some(id) = instance_id(value) {
        visit(id);
        return;
    }
    match value {
        Value::Array(items) => items.iter().for_each(|item| each_reference(item, visit)),
        Value::Object(items) => items.values().for_each(|item| each_reference(item, visit)),
        _ => {}
    }
}

fn push_references(path: &str, value: &Value, queue: &mut VecDeque<(String, String)>) {
    if let Some(id) = instance_id(value) {
        queue.push_back((path.to_owned(), id.to_owned()));
        return;
    }
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                push_references(&format!("{path}[{index}]"), item, queue);
            }
        }
        Value::Object(items) => {
            for (key, item) in items {
                push_references(&format!("{path}[{key:?}]"), item, queue);
            }
        }
        _ => {}
    }
}

/// Text of a value. Dicts keep their key order, since a model can print it.
fn render(value: &Value, name_of: &mut impl FnMut(&str) -> String) -> String {
    if let Some(id) = instance_id(value) {
        return format!("<{}>", name_of(id));
    }
    match value {
        Value::String(text) => format!("{:?}", normalise(text)),
        Value::Number(number) => {
            number.as_i64().map_or_else(|| render_number(number), |integer| integer.to_string())
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| render(item, name_of)).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(items) => {
            let items: Vec<String> = items
                .iter()
                .map(|(key, item)| format!("{:?}: {}", normalise(key), render(item, name_of)))
                .collect();
            format!("{{{}}}", items.join(", "))
        }
        Value::Null | Value::Bool(_) => value.to_string(),
    }
}

fn render_number(number: &serde_json::Number) -> String {
    match number.as_u64() {
        Some(integer) => integer.to_string(),
        None => format!("{:?}", number.as_f64().unwrap_or(f64::NAN)),
    }
}

fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
