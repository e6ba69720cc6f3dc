//! The result of a compile as JSON: the outcome, and the variables of the main file with all
//! instances. It is streamed: a report may be many times larger than the model.

use std::io::{self, Write};
use std::slice;

use serde_json::{Value as Json, json};

use crate::Compilation;
use crate::CompileWarning;
use crate::error::CompileError;
use crate::eval::Graph;
use crate::export::ExportResult;
use crate::program::Program;
use crate::source::Sources;
use crate::value::{InstanceId, StrId, Value};

/// An evaluated model: the program and its values.
#[derive(Debug)]
pub struct Model {
    pub(crate) program: Program,
    pub(crate) graph: Graph,
}

/// Writes the complete result of a compile as one JSON object. `out` should be buffered.
///
/// # Errors
/// Errors of `out`.
pub fn write(compiled: &Compilation, out: &mut dyn Write) -> io::Result<()> {
    write_with(compiled, None, out)
}

/// The same with the export.
///
/// # Errors
/// Errors of `out`.
pub fn write_with(
    compiled: &Compilation,
    exported: Option<&ExportResult>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let error = compiled.outcome.as_ref().err().map(|error| error_json(&compiled.sources, error));
    write_head(out, &compiled.output, error.as_ref(), &compiled.warnings)?;
    if let Some(model) = &compiled.model {
        out.write_all(b",\"model\":")?;
        model.write(out)?;
    }
    if let Some(exported) = exported {
        write_resources(exported, out)?;
    }
    out.write_all(b"}\n")
}

fn write_resources(exported: &ExportResult, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(b",\"resources\":[")?;
    for (number, resource) in exported.resources.iter().enumerate() {
        separate(out, number)?;
        let set = resource.set.as_deref();
        let about = json!({"id": resource.id.as_str(), "requires": resource.requires, "set": set});
        let about = about.to_string();
        out.write_all(&about.as_bytes()[..about.len() - 1])?;
        let attributes = resource.attributes.as_str();
        if attributes.len() > "{}".len() {
            out.write_all(b",")?;
        }
        out.write_all(&attributes.as_bytes()[1..])?;
    }
    out.write_all(b"],\"problems\":[")?;
    for (number, problem) in exported.problems.iter().enumerate() {
        separate(out, number)?;
        text(out, &problem.to_string())?;
    }
    out.write_all(b"],\"notes\":[")?;
    for (number, note) in exported.warnings.iter().enumerate() {
        separate(out, number)?;
        text(out, &note.to_string())?;
    }
    out.write_all(b"]")
}

/// Writes everything but the model and the closing brace.
fn write_head(
    out: &mut dyn Write,
    output: &str,
    error: Option<&Json>,
    warnings: &[CompileWarning],
) -> io::Result<()> {
    let status = if error.is_none() { "ok" } else { "error" };
    write!(out, "{{\"status\":\"{status}\",\"stdout\":")?;
    text(out, output)?;
    if let Some(error) = error {
        write!(out, ",\"error\":{error}")?;
    }
    out.write_all(b",\"warnings\":[")?;
    for (number, warning) in warnings.iter().enumerate() {
        separate(out, number)?;
        out.write_all(b"{\"message\":")?;
        text(out, &warning.to_text())?;
        out.write_all(b"}")?;
    }
    out.write_all(b"]")
}

/// An error in the report's form: the complete text, and its parts for programs.
pub fn error_json(sources: &Sources, error: &CompileError) -> Json {
    let (mut file, mut line, mut column) = (Json::Null, Json::Null, Json::Null);
    if let Some(loc) = error.loc
        && !error.bare
        && !error.hide_location
    {
        let (at_line, at_column) = sources.line_col(loc);
        file = sources.file(loc.file).name.as_str().into();
        line = at_line.into();
        if loc.column {
            column = at_column.into();
        }
    }
    json!({
        "message": error.message(&|loc| sources.location(loc)),
        "file": file,
        "line": line,
        "column": column,
        "class": error.class,
        "text": if error.parts.is_empty() { error.text.as_str() } else { "" },
    })
}

/// Writes a report on an operation other than a compile, such as the parse of one file: `errors`
/// are all errors, and the first is *the* error.
///
/// # Errors
/// Errors of `out`.
pub fn write_errors(
    sources: &Sources,
    errors: &[CompileError],
    warnings: &[CompileWarning],
    out: &mut dyn Write,
) -> io::Result<()> {
    let errors: Vec<Json> = errors.iter().map(|error| error_json(sources, error)).collect();
    write_head(out, "", errors.first(), warnings)?;
    if !errors.is_empty() {
        write!(out, ",\"errors\":{}", Json::Array(errors))?;
    }
    out.write_all(b"}\n")
}

fn text(out: &mut dyn Write, text: &str) -> io::Result<()> {
    Ok(serde_json::to_writer(out, text)?)
}

/// The comma before every element but the first.
fn separate(out: &mut dyn Write, number: usize) -> io::Result<()> {
    if number > 0 { out.write_all(b",") } else { Ok(()) }
}

/// A list or dict that is being written, with its remaining elements.
enum OpenContainer<'m> {
    List(slice::Iter<'m, Value>),
    Dict(indexmap::map::Iter<'m, StrId, Value>),
}

impl Model {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(b"{\"variables\":{")?;
        for (count, (name, value)) in self.variables().enumerate() {
            separate(out, count)?;
            text(out, name)?;
            out.write_all(b":")?;
            self.write_value(value, out)?;
        }
        out.write_all(b"},\"instances\":[")?;
        for number in 0..self.graph.instances.len() {
            separate(out, number)?;
            self.write_instance(InstanceId(number as u32), out)?;
        }
        out.write_all(b"]}")
    }

    /// The variables at the top level of the main file that have a value, in the order of the text.
    fn variables(&self) -> impl Iterator<Item = (&str, Value)> {
        let mut named: Vec<(&str, u32)> = Vec::new();
        if let Some(main) = self.program.namespaces.first() {
            named.extend(
                main.variables.iter().map(|(&name, &cell)| (self.program.text(name), cell)),
            );
        }
        named.sort_by_key(|&(_, cell)| cell);
        named.into_iter().filter_map(|(name, cell)| Some((name, self.graph.cell_value(cell)?)))
    }

    fn write_instance(&self, id: InstanceId, out: &mut dyn Write) -> io::Result<()> {
        let entity = self.program.entity(self.graph.instances[id.index()].entity);
        write!(out, "{{\"id\":\"i{}\",\"type\":", id.0)?;
        text(out, self.program.text(entity.name))?;
        out.write_all(b",\"attributes\":{")?;
        let mut count = 0;
        for (name, value, _) in self.slots(id).filter(|(_, _, is_relation)| !is_relation) {
            separate(out, count)?;
            count += 1;
            text(out, name)?;
            out.write_all(b":")?;
            self.write_value(value, out)?;
        }
        out.write_all(b"},\"relations\":{")?;
        count = 0;
        for (name, value, _) in self.slots(id).filter(|(_, _, is_relation)| *is_relation) {
            let members = match &value {
                Value::List(list) => self.graph.heap.items(*list),
                other => slice::from_ref(other),
            };
            if members.is_empty() {
                continue;
            }
            separate(out, count)?;
            count += 1;
            text(out, name)?;
            out.write_all(b":[")?;
            for (number, &member) in members.iter().enumerate() {
                separate(out, number)?;
                match member {
                    Value::Instance(id) => write!(out, "\"i{}\"", id.0)?,
                    other => self.write_value(other, out)?,
                }
            }
            out.write_all(b"]")?;
        }
        out.write_all(b"}}")
    }

    /// Name, value and whether it is a relation, for everything on an instance that has a value.
    fn slots(&self, id: InstanceId) -> impl Iterator<Item = (&str, Value, bool)> {
        let instance = &self.graph.instances[id.index()];
        let slots = self.program.entity(instance.entity).slots.iter();
        slots.zip(instance.cells..).filter_map(|(&attribute, cell)| {
            let attribute = self.program.attribute(attribute);
            let value = self.graph.cell_value(cell)?;
            Some((self.program.text(attribute.name), value, attribute.relation.is_some()))
        })
    }

    /// Writes a value with an explicit stack: a model can nest dicts as deeply as it is long.
    fn write_value(&self, value: Value, out: &mut dyn Write) -> io::Result<()> {
        let heap = &self.graph.heap;
        let mut open: Vec<(OpenContainer<'_>, usize)> = Vec::new();
        let mut next = Some(value);
        loop {
            match next.take() {
                Some(Value::List(list)) => {
                    out.write_all(b"[")?;
                    open.push((OpenContainer::List(heap.items(list).iter()), 0));
                }
                Some(Value::Dict(dict)) => {
                    out.write_all(b"{")?;
                    open.push((OpenContainer::Dict(heap.entries(dict).iter()), 0));
                }
                Some(scalar) => self.write_scalar(scalar, out)?,
                None => {}
            }
            let Some((innermost, count)) = open.last_mut() else { return Ok(()) };
            next = match innermost {
                OpenContainer::List(items) => items.next().copied(),
                OpenContainer::Dict(entries) => match entries.next() {
                    Some((&key, &value)) => {
                        separate(out, *count)?;
                        write_key(heap.text(key), out)?;
                        Some(value)
                    }
                    None => None,
                },
            };
            match (innermost, next) {
                (OpenContainer::List(_), Some(_)) => separate(out, *count)?,
                (OpenContainer::Dict(_), Some(_)) => {}
                (OpenContainer::List(_), None) => out.write_all(b"]")?,
                (OpenContainer::Dict(_), None) => out.write_all(b"}")?,
            }
            *count += 1;
            if next.is_none() {
                open.pop();
            }
        }
    }

    fn write_scalar(&self, value: Value, out: &mut dyn Write) -> io::Result<()> {
        match value {
            Value::Null => out.write_all(b"null"),
            Value::Bool(bool) => write!(out, "{bool}"),
            Value::Int(int) => write!(out, "{int}"),
            Value::Big(id) => write!(out, "{}", self.graph.heap.big(id)),
            Value::Float(float) if float.is_finite() => Ok(serde_json::to_writer(out, &float)?),
            Value::Float(float) => {
                write!(out, "{{\"$float\":\"{}\"}}", orrery_python::repr_float(float))
            }
            Value::Str(id) => text(out, self.graph.heap.text(id)),
            Value::Instance(id) => write!(out, "{{\"$instance\":\"i{}\"}}", id.0),
            Value::Unknown(_) => out.write_all(b"{\"$unknown\":true}"),
            Value::Other(id) => {
                out.write_all(b"{\"$other\":")?;
                text(out, &self.graph.heap.get_other(id).repr)?;
                out.write_all(b"}")
            }
            Value::List(_) | Value::Dict(_) => self.write_value(value, out),
        }
    }
}

/// Writes a key and its colon. A leading `$` is doubled, because this format uses it as a marker.
fn write_key(key: &str, out: &mut dyn Write) -> io::Result<()> {
    if key.starts_with('$') {
        text(out, &format!("${key}"))?;
    } else {
        text(out, key)?;
    }
    out.write_all(b":")
}
