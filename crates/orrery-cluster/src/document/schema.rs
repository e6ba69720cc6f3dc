//! Shapes of documents: their fields, and a reader that reports every invalid field.

use orrery_model::similar_names::closest;
use serde_json::Value;

use super::common::{LeaseTime, is_name};
use super::problem::{
    CatalogProblem, DocumentFileId, DocumentLocation, ProblemKind, ValueSpans, step,
};
use super::tree::{Content, Entry, Node};

/// Expected type of a value.
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
    /// A text; numbers and booleans are converted.
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

const fn optional(name: &'static str, shape: &'static Shape) -> Field {
    Field { name, shape, is_required: false }
}

const fn required(name: &'static str, shape: &'static Shape) -> Field {
    Field { name, shape, is_required: true }
}

use Shape::{Amount, Any, Count, Duration, Flag, List, Map, Name, Object, Port, Scalar, Text};

static NAMES: Shape = List(&Name);
static TEXTS: Shape = Map(&Scalar);
static RULES: Shape = List(&List(&Name));
static LINKS: Shape = List(&Object(&[optional("label", &Text), required("url", &Text)]));
static PHASE: Shape = Object(&[optional("requires", &NAMES), optional("uses", &NAMES)]);
static ACTION: Shape = Object(&[required("type", &Name), optional("fields", &TEXTS)]);
static RANGE: Shape = Object(&[optional("min", &Count(1)), optional("max", &Count(1))]);
static REFERENCE: Shape = Object(&[required("name", &Name)]);
static CONFIG: Shape = Map(&Any);
static CONFIGURED: Shape = Object(&[required("name", &Name), optional("config", &CONFIG)]);

static QUANTITIES: Shape = Object(&[
    optional("min", &Count(0)),
    optional("max", &Count(0)),
    optional("step", &Count(1)),
    optional("ratio", &Map(&Count(1))),
]);
static SERVICE_CONSTRAINT: Shape = Object(&[
    optional("hardwaretypes", &NAMES),
    optional("imagetypes", &NAMES),
    optional("quantities", &QUANTITIES),
    optional("optional", &Flag),
]);
static SPREAD: Shape =
    Object(&[required("services", &NAMES), required("label", &Text), optional("max", &Count(1))]);
static CONSTRAINTS: Shape = Object(&[
    optional("size", &RANGE),
    optional(
        "layout",
        &Object(&[
            optional("mustcoexist", &RULES),
            optional("cantcoexist", &RULES),
            optional("spread", &List(&SPREAD)),
        ]),
    ),
    optional("services", &Map(&SERVICE_CONSTRAINT)),
]);
static DEFAULTS: Shape = Object(&[
    optional("services", &List(&Shape::Service)),
    optional("provider", &Name),
    optional("hardwaretype", &Name),
    optional("imagetype", &Name),
    optional("dnsSuffix", &Text),
    optional("config", &CONFIG),
]);
static COMPATIBILITY: Shape = Object(&[
    optional("hardwaretypes", &NAMES),
    optional("imagetypes", &NAMES),
    optional("services", &NAMES),
]);
static ADMINISTRATION: Shape = Object(&[optional(
    "leaseduration",
    &Object(&[
        optional("initial", &Duration),
        optional("max", &Duration),
        optional("step", &Duration),
    ]),
)]);
static PREFERENCES: Shape = Object(&[
    optional("hardwaretypes", &NAMES),
    optional("imagetypes", &NAMES),
    optional("cost", &Flag),
]);

pub(super) static PROVIDER: Shape = Object(&[
    required("name", &Name),
    optional("label", &Text),
    optional("description", &Text),
    optional("icon", &Text),
    optional("version", &Count(0)),
    required("providertype", &Name),
    optional("provisioner", &CONFIG),
]);
pub(super) static HARDWARE: Shape = Object(&[
    required("name", &Name),
    optional("label", &Text),
    optional("description", &Text),
    optional("icon", &Text),
    optional("version", &Count(0)),
    optional("providermap", &Map(&TEXTS)),
    optional("labels", &TEXTS),
]);
pub(super) static IMAGE: Shape = Object(&[
    required("name", &Name),
    optional("label", &Text),
    optional("description", &Text),
    optional("icon", &Text),
    optional("version", &Count(0)),
    optional("providermap", &Map(&TEXTS)),
]);
pub(super) static SERVICE: Shape = Object(&[
    required("name", &Name),
    optional("label", &Text),
    optional("description", &Text),
    optional("icon", &Text),
    optional("version", &Count(0)),
    optional(
        "dependencies",
        &Object(&[
            optional("provides", &NAMES),
            optional("conflicts", &NAMES),
            optional("install", &PHASE),
            optional("runtime", &PHASE),
        ]),
    ),
    optional(
        "provisioner",
        &Object(&[optional(
            "actions",
            &Object(&[
                optional("install", &ACTION),
                optional("configure", &ACTION),
                optional("initialize", &ACTION),
                optional("start", &ACTION),
                optional("stop", &ACTION),
                optional("remove", &ACTION),
                optional("probe", &ACTION),
            ]),
        )]),
    ),
    optional("links", &LINKS),
    optional(
        "resources",
        &Object(&[
            optional("vcpu", &Amount),
            optional("ram", &Amount),
            optional("ports", &List(&Port)),
        ]),
    ),
]);
pub(super) static TEMPLATE: Shape = Object(&[
    required("name", &Name),
    optional("label", &Text),
    optional("description", &Text),
    optional("icon", &Text),
    optional("version", &Count(0)),
    optional("defaults", &DEFAULTS),
    optional("compatibility", &COMPATIBILITY),
    optional("constraints", &CONSTRAINTS),
    optional("administration", &ADMINISTRATION),
    optional("links", &LINKS),
    optional("preferences", &PREFERENCES),
    optional("extends", &REFERENCE),
    optional("includes", &List(&REFERENCE)),
]);
pub(super) static PARTIAL: Shape = Object(&[
    required("name", &Name),
    optional("label", &Text),
    optional("description", &Text),
    optional("icon", &Text),
    optional("version", &Count(0)),
    optional("defaults", &DEFAULTS),
    optional("compatibility", &COMPATIBILITY),
    optional("constraints", &CONSTRAINTS),
    optional("administration", &ADMINISTRATION),
    optional("links", &LINKS),
    optional("immutable", &Flag),
]);
pub(super) static TENANT: Shape = Object(&[
    required("name", &Name),
    optional("description", &Text),
    optional("workers", &Count(0)),
    optional("maxClusters", &Count(0)),
    optional("maxNodes", &Count(0)),
]);

/// Reads one document: its value as JSON, without invalid fields.
pub(super) struct Reader<'p> {
    pub(super) file: DocumentFileId,
    pub(super) locations: ValueSpans,
    pub(super) problems: &'p mut Vec<CatalogProblem>,
}

impl Reader<'_> {
    pub(super) fn location(&self, node: &Node, path: &str) -> DocumentLocation {
        DocumentLocation { file: self.file, span: node.span.clone(), path: path.to_owned() }
    }

    /// The value, or `None` if it is invalid. Empty values count as absent.
    pub(super) fn read(&mut self, node: &Node, shape: &Shape, path: &str) -> Option<Value> {
        // The location of a multi-line value is its key, which is already recorded.
        self.locations.0.entry(path.to_owned()).or_insert_with(|| node.span.clone());
        match (shape, &node.content) {
            (Any, _) => Some(self.any_value(node, path)),
            (_, Content::Null) => None,
            (Text, Content::Text(text)) => Some(Value::from(text.as_str())),
            (Name, Content::Text(text)) if is_name(text) => Some(Value::from(text.as_str())),
            (Name, Content::Text(text)) => {
                let message = if text.is_empty() {
                    "a name is empty".to_owned()
                } else {
                    format!("`{text}` is not a valid name")
                };
                let rule = "names have 1 to 255 letters, digits, `_`, `.` and `-`";
                self.invalid(node, path, message, Some(rule))
            }
            (Name, Content::Number(number)) => Some(Value::from(number.to_string())),
            (Flag, Content::Flag(flag)) => Some(Value::from(*flag)),
            (Count(min), Content::Number(number)) => match number.as_u64() {
                Some(value) if value >= *min && u32::try_from(value).is_ok() => {
                    Some(Value::from(value))
                }
                _ => {
                    let message = format!("{number} is not a whole number of at least {min}");
                    self.invalid(node, path, message, None)
                }
            },
            (Port, Content::Number(number)) => match number.as_u64() {
                Some(value @ 1..=65_535) => Some(Value::from(value)),
                _ => self.invalid(node, path, format!("{number} is not a port"), None),
            },
            (Amount, Content::Number(number)) => match number.as_f64() {
                Some(value) if value >= 0.0 => Some(Value::from(value)),
                _ => self.invalid(node, path, format!("{number} is less than zero"), None),
            },
            (Duration, Content::Number(number)) => match number.as_u64() {
                Some(value) => Some(Value::from(value)),
                None => {
                    let message = format!("{number} is not a number of milliseconds");
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
                    let path = self.entry_path(entry, path);
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
            let path = self.entry_path(entry, path);
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
                let span = self.locations.find(path);
                let location = DocumentLocation { file: self.file, span, path: path.to_owned() };
                let message = format!("the field `{}` is missing", field.name);
                self.problems.push(CatalogProblem::error(
                    ProblemKind::MissingField,
                    location,
                    message,
                ));
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
        let location = DocumentLocation { file: self.file, span, path: path.to_owned() };
        let message = format!("there is no field `{}` here", entry.key);
        let problem = CatalogProblem::error(ProblemKind::UnknownField, location, message);
        self.problems.push(problem.help(Some(help)));
    }

    /// The entries; of equal keys, only the last. The others are reported.
    fn distinct<'e>(&mut self, entries: &'e [Entry], path: &str) -> Vec<&'e Entry> {
        let mut distinct: indexmap::IndexMap<&str, &Entry> = indexmap::IndexMap::new();
        for entry in entries {
            if let Some(first) = distinct.insert(&entry.key, entry) {
                let path = step(path, &entry.key);
                let location = |span: &std::ops::Range<usize>| DocumentLocation {
                    file: self.file,
                    span: span.clone(),
                    path: path.clone(),
                };
                let message = format!("`{}` is given twice", entry.key);
                let problem = CatalogProblem::error(
                    ProblemKind::DuplicateField,
                    location(&entry.key_span),
                    message,
                );
                self.problems.push(problem.related(location(&first.key_span), "first given here"));
            }
        }
        distinct.into_values().collect()
    }

    /// The path of an entry. Its location is that of its key if its value has several lines.
    fn entry_path(&mut self, entry: &Entry, path: &str) -> String {
        let path = step(path, &entry.key);
        if matches!(entry.value.content, Content::List(_) | Content::Map(_) | Content::Null) {
            self.locations.0.insert(path.clone(), entry.key_span.clone());
        }
        path
    }

    fn any_value(&mut self, node: &Node, path: &str) -> Value {
        self.locations.0.entry(path.to_owned()).or_insert_with(|| node.span.clone());
        match &node.content {
            Content::Null => Value::Null,
            Content::Flag(flag) => Value::from(*flag),
            Content::Number(number) => Value::Number(number.clone()),
            Content::Text(text) => Value::from(text.as_str()),
            Content::List(items) => {
                let items = items.iter().enumerate();
                items.map(|(at, item)| self.any_value(item, &format!("{path}/{at}"))).collect()
            }
            Content::Map(entries) => {
                let mut object = serde_json::Map::new();
                for entry in self.distinct(entries, path) {
                    let path = self.entry_path(entry, path);
                    object.insert(entry.key.clone(), self.any_value(&entry.value, &path));
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
        let location = self.location(node, path);
        let problem = CatalogProblem::error(ProblemKind::InvalidField, location, message);
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
