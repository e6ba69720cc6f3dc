//! Macros in configurations: values of a cluster that are known when its layout is.
//!
//! `%ip.service.app[0]%` in a configuration represents an address that is known only when machines
//! exist. [`check`] finds errors early; [`expand`] and [`expand_value`] substitute the values.

mod parse;

use std::collections::BTreeMap;

use serde_json::Value;
use thiserror::Error;

use parse::{Expression, Function, Macro, Part, Selector};

/// A node as macros see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    pub id: String,
    /// Indexes and instance numbers follow this order.
    pub number: u64,
    pub hostname: Option<String>,
    /// By kind of address: `access_v4`, `bind_v4`, …
    pub addresses: BTreeMap<String, String>,
    pub services: Vec<String>,
}

/// The cluster for which a text is expanded.
#[derive(Clone, Copy, Debug)]
pub struct MacroContext<'c> {
    pub owner: &'c str,
    /// Lists without an index keep this order.
    pub nodes: &'c [Node],
    /// The node for which the text is expanded.
    pub this: Option<&'c Node>,
}

/// Failure to expand a text.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MacroError {
    /// A syntax error in the text.
    #[error("{message}")]
    Syntax {
        message: String,
        /// Bytes of the macro in the text, with its `%`.
        start: usize,
        end: usize,
    },
    /// A fact is unknown.
    #[error("node {node} has no {fact} for macro expansion.")]
    UnknownFact { node: String, fact: &'static str },
    /// No node for an index.
    #[error("There are fewer than {wanted} nodes with {service} on the cluster")]
    TooFewNodes { service: String, wanted: u64 },
}

/// Finds errors in the macros of a text.
///
/// # Errors
/// The first error.
pub fn check(text: &str) -> Result<(), MacroError> {
    parse::parse(text).map(|_| ())
}

/// The services that the macros of a text name.
///
/// # Errors
/// The first error.
pub fn services(text: &str) -> Result<Vec<String>, MacroError> {
    let name = |part| match part {
        Part::Macro(Expression {
            inner: Macro { selector: Selector::Service(name), .. }, ..
        }) => Some(name),
        _ => None,
    };
    Ok(parse::parse(text)?.into_iter().filter_map(name).collect())
}

/// What a macro reads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MacroRead {
    Owner,
    /// Host name of the node itself.
    OwnHost,
    /// Address of the node itself.
    OwnAddress,
    /// Host names of the nodes of a service, or of the one with an index.
    Hosts {
        service: String,
        index: Option<u64>,
    },
    /// Addresses of the nodes of a service, or of the one with an index.
    Addresses {
        service: String,
        index: Option<u64>,
    },
    /// Number of nodes of a service.
    Count {
        service: String,
    },
    /// Position of the node itself among the nodes of a service.
    Position {
        service: String,
    },
}

impl MacroRead {
    /// The service whose nodes are read.
    pub fn service(&self) -> Option<&str> {
        match self {
            MacroRead::Owner | MacroRead::OwnHost | MacroRead::OwnAddress => None,
            MacroRead::Hosts { service, .. }
            | MacroRead::Addresses { service, .. }
            | MacroRead::Count { service }
            | MacroRead::Position { service } => Some(service),
        }
    }
}

/// What the macros of a text read.
///
/// # Errors
/// The first error.
pub fn reads(text: &str) -> Result<Vec<MacroRead>, MacroError> {
    let read = |part| match part {
        Part::Text(_) => None,
        Part::Macro(expression) => Some(read_of(expression.inner)),
    };
    Ok(parse::parse(text)?.into_iter().filter_map(read).collect())
}

fn read_of(Macro { function, selector, index }: Macro) -> MacroRead {
    match (selector, function) {
        (Selector::Owner, _) => MacroRead::Owner,
        (Selector::This, Function::Address(_)) => MacroRead::OwnAddress,
        (Selector::This, _) => MacroRead::OwnHost,
        (Selector::Service(service), Function::Address(_)) => {
            MacroRead::Addresses { service, index }
        }
        (Selector::Service(service), Function::Count) => MacroRead::Count { service },
        (Selector::Service(service), Function::Instance) => MacroRead::Position { service },
        (Selector::Service(service), Function::Host | Function::Owner) => {
            MacroRead::Hosts { service, index }
        }
    }
}

/// Substitutes values for macros. `None` if there is nothing to expand, or no macro has a value.
///
/// # Errors
/// A syntax error, an unknown fact, or an index without a node.
pub fn expand(text: &str, context: &MacroContext<'_>) -> Result<Option<String>, MacroError> {
    let mut out = String::with_capacity(text.len());
    let mut is_changed = false;
    for part in parse::parse(text)? {
        match part {
            Part::Text(literal) => out.push_str(literal),
            Part::Macro(expression) => {
                if let Some(value) = evaluate(&expression, context)? {
                    out.push_str(&value);
                    is_changed = true;
                }
            }
        }
    }
    Ok(is_changed.then_some(out))
}

/// Expands all texts inside a value. Keys stay as they are.
///
/// # Errors
/// As for [`expand`].
pub fn expand_value(value: &Value, context: &MacroContext<'_>) -> Result<Value, MacroError> {
    Ok(match value {
        Value::String(text) => match expand(text, context)? {
            Some(expanded) => Value::String(expanded),
            None => value.clone(),
        },
        Value::Array(items) => {
            let items = items.iter().map(|item| expand_value(item, context));
            Value::Array(items.collect::<Result<_, _>>()?)
        }
        Value::Object(entries) => {
            let entries =
                entries.iter().map(|(key, value)| Ok((key.clone(), expand_value(value, context)?)));
            Value::Object(entries.collect::<Result<_, _>>()?)
        }
        other => other.clone(),
    })
}

fn evaluate(
    expression: &Expression,
    context: &MacroContext<'_>,
) -> Result<Option<String>, MacroError> {
    let Some(mut values) = select(&expression.inner, context)? else { return Ok(None) };
    if let Some(template) = &expression.map {
        for value in &mut values {
            *value = fill(template, value);
        }
    }
    Ok(Some(values.join(expression.join.as_deref().unwrap_or(","))))
}

/// `$` represents the element, `$$` a dollar sign.
fn fill(template: &str, element: &str) -> String {
    let mut out = String::new();
    let mut chars = template.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '$' if chars.next_if_eq(&'$').is_some() => out.push('$'),
            '$' => out.push_str(element),
            c => out.push(c),
        }
    }
    out
}

/// The values of a macro; none for a service that is not on the cluster.
fn select(
    Macro { function, selector, index }: &Macro,
    context: &MacroContext<'_>,
) -> Result<Option<Vec<String>>, MacroError> {
    let service = match selector {
        Selector::Owner => return Ok(Some(vec![context.owner.to_owned()])),
        Selector::This => {
            let Some(this) = context.this else { return Ok(None) };
            return Ok(Some(vec![property(function, this)?]));
        }
        Selector::Service(service) => service,
    };
    let has_service = |node: &&Node| node.services.iter().any(|name| name == service);
    let nodes: Vec<&Node> = context.nodes.iter().filter(has_service).collect();
    let mut ordered = nodes.clone();
    ordered.sort_by_key(|node| node.number);
    match function {
        Function::Count => return Ok(Some(vec![nodes.len().to_string()])),
        Function::Instance => {
            let is_this = |node: &&Node| context.this.is_some_and(|this| this.id == node.id);
            let position = ordered.iter().position(is_this);
            return Ok(position.map(|position| vec![(position + 1).to_string()]));
        }
        Function::Host | Function::Address(_) | Function::Owner => {}
    }
    if nodes.is_empty() {
        return Ok(None);
    }
    let Some(index) = index else {
        let values = nodes.iter().map(|node| property(function, node));
        return values.collect::<Result<_, _>>().map(Some);
    };
    let node = usize::try_from(*index).ok().and_then(|index| ordered.get(index));
    match node {
        Some(node) => Ok(Some(vec![property(function, node)?])),
        None => Err(MacroError::TooFewNodes {
            service: service.clone(),
            wanted: index.saturating_add(1),
        }),
    }
}

fn property(function: &Function, node: &Node) -> Result<String, MacroError> {
    let (value, fact) = match function {
        Function::Address(kind) => (node.addresses.get(kind), "ip"),
        _ => (node.hostname.as_ref(), "hostname"),
    };
    value.cloned().ok_or_else(|| MacroError::UnknownFact { node: node.id.clone(), fact })
}
