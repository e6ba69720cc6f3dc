//! Shapes of documents: their fields, and a reader that reports every field that does not fit.

use orrery_model::similar_names::closest;
use serde_json::Value;

use super::about::{LeaseTime, is_name};
use super::problem::{FileId, Place, Places, Problem, ProblemKind, step};
use super::tree::{Content, Entry, Node};

/// What a value has to be.
pub(super) enum Shape {
    Text,
    /// A text that names a document.
    Name,
    Flag,
    /// A whole number of at least this.
    Count(u64),
    /// A whole number from 1 to 65535.
    Port,
    /// A number of at least zero.
    Amount,
    Duration,
    /// Anything.
    Any,
    /// A text, or a number or boolean that stands for its text.
    Scalar,
    List(&'static Shape),
    Map(&'static Shape),
    Object(&'static [Field]),
    /// The name of a service, or an object with a name.
    Service,
}

pub(super) struct Field {
    name: &'static str,
    shape: &'static Shape,
    is_required: bool,
}

const fn may(name: &'static str, shape: &'static Shape) -> Field {
    Field { name, shape, is_required: false }
}

const fn must(name: &'static str, shape: &'static Shape) -> Field {
    Field { name, shape, is_required: true }
}

use Shape::{Amount, Any, Count, Duration, Flag, List, Map, Name, Object, Port, Scalar, Text};

static NAMES: Shape = List(&Name);
static TEXTS: Shape = Map(&Scalar);
static RULES: Shape = List(&List(&Name));
static LINKS: Shape = List(&Object(&[may("label", &Text), must("url", &Text)]));
static PHASE: Shape = Object(&[may("requires", &NAMES), may("uses", &NAMES)]);
static ACTION: Shape = Object(&[must("type", &Name), may("fields", &TEXTS)]);
static RANGE: Shape = Object(&[may("min", &Count(1)), may("max", &Count(1))]);
static REFERENCE: Shape = Object(&[must("name", &Name)]);
static CONFIG: Shape = Map(&Any);
static CONFIGURED: Shape = Object(&[must("name", &Name), may("config", &CONFIG)]);

static QUANTITIES: Shape = Object(&[
    may("min", &Count(0)),
    may("max", &Count(0)),
    may("step", &Count(1)),
    may("ratio", &Map(&Count(1))),
]);
static SERVICE_CONSTRAINT: Shape = Object(&[
    may("hardwaretypes", &NAMES),
    may("imagetypes", &NAMES),
    may("quantities", &QUANTITIES),
    may("optional", &Flag),
]);
static SPREAD: Shape =
    Object(&[must("services", &NAMES), must("label", &Text), may("max", &Count(1))]);
static CONSTRAINTS: Shape = Object(&[
    may("size", &RANGE),
    may(
        "layout",
        &Object(&[
            may("mustcoexist", &RULES),
            may("cantcoexist", &RULES),
            may("spread", &List(&SPREAD)),
        ]),
    ),
    may("services", &Map(&SERVICE_CONSTRAINT)),
]);
static DEFAULTS: Shape = Object(&[
    may("services", &List(&Shape::Service)),
    may("provider", &Name),
    may("hardwaretype", &Name),
    may("imagetype", &Name),
    may("dnsSuffix", &Text),
    may("config", &CONFIG),
]);
static COMPATIBILITY: Shape =
    Object(&[may("hardwaretypes", &NAMES), may("imagetypes", &NAMES), may("services", &NAMES)]);
static ADMINISTRATION: Shape = Object(&[may(
    "leaseduration",
    &Object(&[may("initial", &Duration), may("max", &Duration), may("step", &Duration)]),
)]);
static PREFERENCES: Shape =
    Object(&[may("hardwaretypes", &NAMES), may("imagetypes", &NAMES), may("cost", &Flag)]);

pub(super) static PROVIDER: Shape = Object(&[
    must("name", &Name),
    may("label", &Text),
    may("description", &Text),
    may("icon", &Text),
    may("version", &Count(0)),
    must("providertype", &Name),
    may("provisioner", &CONFIG),
]);
pub(super) static HARDWARE: Shape = Object(&[
    must("name", &Name),
    may("label", &Text),
    may("description", &Text),
    may("icon", &Text),
    may("version", &Count(0)),
    may("providermap", &Map(&TEXTS)),
    may("labels", &TEXTS),
]);
pub(super) static IMAGE: Shape = Object(&[
    must("name", &Name),
    may("label", &Text),
    may("description", &Text),
    may("icon", &Text),
    may("version", &Count(0)),
    may("providermap", &Map(&TEXTS)),
]);
pub(super) static SERVICE: Shape = Object(&[
    must("name", &Name),
    may("label", &Text),
    may("description", &Text),
    may("icon", &Text),
    may("version", &Count(0)),
    may(
        "dependencies",
        &Object(&[
            may("provides", &NAMES),
            may("conflicts", &NAMES),
            may("install", &PHASE),
            may("runtime", &PHASE),
        ]),
    ),
    may(
        "provisioner",
        &Object(&[may(
            "actions",
            &Object(&[
                may("install", &ACTION),
                may("configure", &ACTION),
                may("initialize", &ACTION),
                may("start", &ACTION),
                may("stop", &ACTION),
                may("remove", &ACTION),
            ]),
        )]),
    ),
    may("links", &LINKS),
    may(
        "resources",
        &Object(&[may("vcpu", &Amount), may("ram", &Amount), may("ports", &List(&Port))]),
    ),
]);
pub(super) static TEMPLATE: Shape = Object(&[
    must("name", &Name),
    may("label", &Text),
    may("description", &Text),
    may("icon", &Text),
    may("version", &Count(0)),
    may("defaults", &DEFAULTS),
    may("compatibility", &COMPATIBILITY),
    may("constraints", &CONSTRAINTS),
    may("administration", &ADMINISTRATION),
    may("links", &LINKS),
    may("preferences", &PREFERENCES),
    may("extends", &REFERENCE),
    may("includes", &List(&REFERENCE)),
]);
pub(super) static PARTIAL: Shape = Object(&[
    must("name", &Name),
    may("label", &Text),
    may("description", &Text),
    may("icon", &Text),
    may("version", &Count(0)),
    may("defaults", &DEFAULTS),
    may("compatibility", &COMPATIBILITY),
    may("constraints", &CONSTRAINTS),
    may("administration", &ADMINISTRATION),
    may("links", &LINKS),
    may("immutable", &Flag),
]);
pub(super) static TENANT: Shape = Object(&[
    must("name", &Name),
    may("description", &Text),
    may("workers", &Count(0)),
    may("maxClusters", &Count(0)),
    may("maxNodes", &Count(0)),
]);

/// Reads one document: its value as JSON, without the fields that do not fit.
pub(super) struct Reader<'p> {
    pub(super) file: FileId,
    pub(super) places: Places,
    pub(super) problems: &'p mut Vec<Problem>,
}

impl Reader<'_> {
    pub(super) fn place(&self, node: &Node, path: &str) -> Place {
        Place { file: self.file, span: node.span.clone(), path: path.to_owned() }
    }

    /// The value, or nothing if it does not fit. Empty values count as absent.
    pub(super) fn read(&mut self, node: &Node, shape: &Shape, path: &str) -> Option<Value> {
        // The place of a value with several lines is its key, which is there already.
        self.places.0.entry(path.to_owned()).or_insert_with(|| node.span.clone());
        match (shape, &node.content) {
            (Any, _) => Some(self.any(node, path)),
            (_, Content::Null) => None,
            (Text, Content::Text(text)) => Some(Value::from(text.as_str())),
            (Name, Content::Text(text)) if is_name(text) => Some(Value::from(text.as_str())),
            (Name, Content::Text(text)) => {
                let message = if text.is_empty() {
                    "a name is empty".to_owned()
                } else {
                    format!("`{text}` is no valid name")
                };
                let rule = "names have 1 to 255 letters, digits, `_`, `.` and `-`";
                self.invalid(node, path, message, Some(rule))
            }
            (Name, Content::Number(number)) => Some(Value::from(number.to_string())),
            (Flag, Content::Flag(flag)) => Some(Value::from(*flag)),
            (Count(min), Content::Number(number)) => match number.as_u64() {
                Some(value) if value >= *min && value <= u64::from(u32::MAX) => {
                    Some(Value::from(value))
                }
                _ => {
                    let message = format!("{number} is no whole number of at least {min}");
                    self.invalid(node, path, message, None)
                }
            },
            (Port, Content::Number(number)) => match number.as_u64() {
                Some(value @ 1..=65_535) => Some(Value::from(value)),
                _ => self.invalid(node, path, format!("{number} is no port"), None),
            },
            (Amount, Content::Number(number)) => match number.as_f64() {
                Some(value) if value >= 0.0 => Some(Value::from(value)),
                _ => self.invalid(node, path, format!("{number} is less than zero"), None),
            },
            (Duration, Content::Number(number)) => match number.as_u64() {
                Some(value) => Some(Value::from(value)),
                None => {
                    let message = format!("{number} is no number of milliseconds");
                    self.invalid(node, path, message, None)
                }
            },
            (Duration, Content::Text(text)) => match LeaseTime::parse(text) {
                Ok(time) => Some(Value::from(time.0)),
                Err(message) => self.invalid(node, path, message, None),
            },
            (Scalar, Content::Text(text)) => Some(Value::from(text.as_str())),
            (Scalar, Content::Number(number)) => Some(Value::from(number.to_string())),
            (Scalar, Content::Flag(flag)) => Some(Value::from(flag.to_string())),
            (List(items), Content::List(nodes)) => {
                let mut values = Vec::new();
                for (at, node) in nodes.iter().enumerate() {
                    values.extend(self.read(node, items, &format!("{path}/{at}")));
                }
                Some(Value::from(values))
            }
            (Map(values), Content::Map(entries)) => {
                let mut object = serde_json::Map::new();
                for entry in self.distinct(entries, path) {
                    let path = self.enter(entry, path);
                    if let Some(value) = self.read(&entry.value, values, &path) {
                        object.insert(entry.key.clone(), value);
                    }
                }
                Some(Value::Object(object))
            }
            (Object(fields), Content::Map(entries)) => {
                Some(self.object(node, entries, fields, path))
            }
            (Shape::Service, Content::Map(_)) => self.read(node, &CONFIGURED, path),
            (Shape::Service, _) => self.read(node, &Name, path),
            (shape, _) => {
                let message = format!("expected {}, but this is {}", noun(shape), node.noun());
                self.invalid(node, path, message, None)
            }
        }
    }

    fn object(
        &mut self,
        node: &Node,
        entries: &[Entry],
        fields: &'static [Field],
        path: &str,
    ) -> Value {
        let mut object = serde_json::Map::new();
        for entry in self.distinct(entries, path) {
            let path = self.enter(entry, path);
            let Some(field) = fields.iter().find(|field| field.name == entry.key) else {
                self.unknown(entry, fields, &path);
                continue;
            };
            if let Some(value) = self.read(&entry.value, field.shape, &path) {
                object.insert(entry.key.clone(), value);
            }
        }
        for field in fields.iter().filter(|field| field.is_required) {
            let is_there = node.get(field.name).is_some_and(|value| value.content != Content::Null);
            if !is_there {
                let span = self.places.find(path);
                let place = Place { file: self.file, span, path: path.to_owned() };
                let message = format!("the field `{}` is missing", field.name);
                self.problems.push(Problem::error(ProblemKind::MissingField, place, message));
            }
        }
        Value::Object(object)
    }

    fn unknown(&mut self, entry: &Entry, fields: &'static [Field], path: &str) {
        let names = || fields.iter().map(|field| field.name);
        let help = match closest(&entry.key, names()) {
            Some(name) => format!("did you mean `{name}`?"),
            None => format!("the fields here are {}", names().collect::<Vec<_>>().join(", ")),
        };
        let span = entry.key_span.clone();
        let place = Place { file: self.file, span, path: path.to_owned() };
        let message = format!("there is no field `{}` here", entry.key);
        let problem = Problem::error(ProblemKind::UnknownField, place, message);
        self.problems.push(problem.help(Some(help)));
    }

    /// The entries, of equal keys the last. The others are problems.
    fn distinct<'e>(&mut self, entries: &'e [Entry], path: &str) -> Vec<&'e Entry> {
        let mut distinct: indexmap::IndexMap<&str, &Entry> = indexmap::IndexMap::new();
        for entry in entries {
            if let Some(first) = distinct.insert(&entry.key, entry) {
                let path = step(path, &entry.key);
                let place = |span: &std::ops::Range<usize>| Place {
                    file: self.file,
                    span: span.clone(),
                    path: path.clone(),
                };
                let message = format!("`{}` is given twice", entry.key);
                let problem =
                    Problem::error(ProblemKind::DuplicateField, place(&entry.key_span), message);
                self.problems.push(problem.related(place(&first.key_span), "first given here"));
            }
        }
        distinct.into_values().collect()
    }

    /// The path of an entry, whose place is that of its key if its value has several lines.
    fn enter(&mut self, entry: &Entry, path: &str) -> String {
        let path = step(path, &entry.key);
        if matches!(entry.value.content, Content::List(_) | Content::Map(_) | Content::Null) {
            self.places.0.insert(path.clone(), entry.key_span.clone());
        }
        path
    }

    fn any(&mut self, node: &Node, path: &str) -> Value {
        self.places.0.entry(path.to_owned()).or_insert_with(|| node.span.clone());
        match &node.content {
            Content::Null => Value::Null,
            Content::Flag(flag) => Value::from(*flag),
            Content::Number(number) => Value::Number(number.clone()),
            Content::Text(text) => Value::from(text.as_str()),
            Content::List(items) => {
                let items = items.iter().enumerate();
                items.map(|(at, item)| self.any(item, &format!("{path}/{at}"))).collect()
            }
            Content::Map(entries) => {
                let mut object = serde_json::Map::new();
                for entry in self.distinct(entries, path) {
                    let path = self.enter(entry, path);
                    object.insert(entry.key.clone(), self.any(&entry.value, &path));
                }
                Value::Object(object)
            }
        }
    }

    fn invalid(
        &mut self,
        node: &Node,
        path: &str,
        message: String,
        help: Option<&str>,
    ) -> Option<Value> {
        let place = self.place(node, path);
        let problem = Problem::error(ProblemKind::InvalidField, place, message);
        self.problems.push(problem.help(help.map(str::to_owned)));
        None
    }
}

fn noun(shape: &Shape) -> &'static str {
    match shape {
        Text | Scalar => "a text",
        Name | Shape::Service => "a name",
        Flag => "true or false",
        Count(_) => "a whole number",
        Port => "a port",
        Amount => "a number",
        Duration => "a duration such as 30m, 12h or 7d",
        Any => "anything",
        List(_) => "a list",
        Map(_) | Object(_) => "a mapping",
    }
}
