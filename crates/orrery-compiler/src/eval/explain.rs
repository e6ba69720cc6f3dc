//! Explanations of evaluation errors in our own words: expected and actual value, with the value
//! underlined. The compatible texts are produced where the errors are detected.

use orrery_syntax::Explanation;
use orrery_syntax::ast::Loc;

use crate::diagnostic::diagnostic_id;
use crate::error::CompileError;
use crate::ir::{ExprId, ExprKind, StmtKind};
use crate::program::{Attribute, EntityId, Type, TypeId};
use crate::value::{InstanceId, Value};

use super::{Evaluator, Origin, decode};

/// Maximum length of a quoted value in a message.
const VALUE_CHARS_MAX: usize = 40;

impl Evaluator<'_> {
    /// A value in model syntax, shortened.
    pub(super) fn quoted(&self, value: Value) -> String {
        let text = match value {
            Value::Str(id) => format!("{:?}", self.heap.text(id)),
            Value::Bool(bool) => bool.to_string(),
            Value::Instance(id) => {
                let entity = self.instances[id.index()].entity;
                return self.entity_text(entity).to_owned();
            }
            other => self.str(other),
        };
        match text.char_indices().nth(VALUE_CHARS_MAX) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        }
    }

    /// Kind and text of a value: "string `"9001"`".
    pub(super) fn value_phrase(&self, value: Value) -> String {
        let quoted = self.quoted(value);
        match value {
            Value::Null => "`null`".to_owned(),
            Value::Instance(_) => format!("an instance of `{quoted}`"),
            Value::Other(_) => format!("`{quoted}`"),
            other => format!("{} `{quoted}`", type_noun(other)),
        }
    }

    /// Adds the explanation of a type mismatch.
    pub(super) fn explain_mismatch(&self, error: &mut CompileError, ty: TypeId, value: Value) {
        let wanted = self.type_phrase(ty);
        let headline = format!("expected {wanted}, found {}", self.value_phrase(value));
        let mut explanation = Explanation::new(headline);
        explanation.help = self.conversion(ty, value);
        error.explanation = Some(Box::new(explanation));
    }

    /// A type in words.
    fn type_phrase(&self, ty: TypeId) -> String {
        match self.program.ty(ty) {
            Type::Entity(entity) => format!("an instance of `{}`", self.entity_text(*entity)),
            Type::Nullable(inner) => format!("{} or null", self.type_phrase(*inner)),
            Type::ListOf(inner) => format!("a list of {}", self.type_phrase(*inner)),
            Type::Typedef(_) => format!("`{}`", self.type_text(ty)),
            _ => self.type_text(ty),
        }
    }

    /// A type as written in the main file: without `__config__::`.
    pub(super) fn type_text(&self, ty: TypeId) -> String {
        self.program.type_name(ty).replace("__config__::", "")
    }

    /// Suggests how to write the value for this type.
    fn conversion(&self, ty: TypeId, value: Value) -> Option<String> {
        let mut ty = ty;
        loop {
            ty = match self.program.ty(ty) {
                Type::Nullable(inner) => *inner,
                Type::Typedef(typedef) => self.program.typedefs[*typedef as usize].base,
                _ => break,
            };
        }
        let quoted = self.quoted(value);
        match (self.program.ty(ty), value) {
            (Type::Int | Type::Float | Type::Number | Type::Bool, Value::Str(id)) => {
                let text = self.heap.text(id);
                let fits = match self.program.ty(ty) {
                    Type::Int => text.parse::<i64>().is_ok(),
                    Type::Bool => matches!(text, "true" | "false"),
                    _ => text.parse::<f64>().is_ok_and(f64::is_finite),
                };
                fits.then(|| format!("remove the quotes: `{text}`"))
            }
            (Type::String, Value::Int(_) | Value::Float(_) | Value::Bool(_)) => {
                Some(format!("put it in quotes: `\"{quoted}\"`"))
            }
            (Type::String, Value::Null) => {
                Some("leave the attribute out, or declare it as `string?`".to_owned())
            }
            (Type::ListOf(_) | Type::List, Value::List(_)) => None,
            (Type::ListOf(_), _) => Some(format!("a list is written in brackets: `[{quoted}]`")),
            (Type::Entity(entity), Value::Str(_) | Value::Int(_)) => {
                let name = self.entity_text(*entity);
                Some(format!("construct one, `{name}(…)`, or use a variable that holds one"))
            }
            (Type::String | Type::Int, Value::Instance(_)) => {
                Some("read one of its attributes: `VARIABLE.ATTRIBUTE`".to_owned())
            }
            _ => None,
        }
    }

    /// Adds the explanation of a violated type constraint.
    pub(super) fn explain_constraint(&self, error: &mut CompileError, typedef: u32, value: Value) {
        let definition = &self.program.typedefs[typedef as usize];
        let name = self.type_text(self.program.type_of[&Type::Typedef(typedef)]);
        let rule = self.constraint_source(definition.constraint);
        let headline = format!("{} is not a valid `{name}`", self.quoted(value));
        let mut explanation = Explanation::new(headline);
        let rule = match rule {
            Some(rule) => format!("`{name}` requires {rule}"),
            None => format!("`{name}` is defined here"),
        };
        explanation.related.push((definition.loc, rule));
        error.explanation = Some(Box::new(explanation));
    }

    /// Source text of a type's constraint.
    fn constraint_source(&self, constraint: ExprId) -> Option<String> {
        let expr = self.program.expr(constraint);
        if let ExprKind::Regex(at) = &expr.kind {
            return Some(format!("a match of `/{}/`", self.program.regexes[*at as usize].0));
        }
        let text = &self.program.sources.file(expr.loc.file).text;
        let written = text.get(expr.loc.start as usize..expr.loc.end as usize)?;
        (!written.is_empty() && !written.contains('\n')).then(|| format!("`{written}`"))
    }

    /// Merges "could not set attribute" and its cause into one error that underlines the value.
    pub(super) fn explain_refusal(
        &self,
        error: &mut CompileError,
        cause: &CompileError,
        instance: InstanceId,
        slot: u32,
        origin: Option<u32>,
    ) {
        error.id = cause.id.or_else(|| diagnostic_id(cause.class, &cause.text));
        let Some(explanation) = &cause.explanation else {
            let name = self.text(self.slot_attribute(instance, slot).name);
            let entity = self.entity_text(self.instances[instance.index()].entity);
            let reason = cause.text.lines().next().unwrap_or_default();
            let headline = format!("cannot set `{name}` of `{entity}`: {reason}");
            let mut explained = Explanation::new(headline.replace("__config__::", ""));
            let place = origin.and_then(|origin| self.argument_location(origin, slot));
            explained.primary = place.map(|place| (place, String::new()));
            explained.related.clone_from(&cause.related);
            error.explanation = Some(Box::new(explained));
            return;
        };
        if cause.class == "AttributeException" {
            error.explanation = Some(explanation.clone());
            return;
        }
        let (attribute, name, entity) = self.slot_names(instance, slot);
        if cause.class == "DoubleSetException" {
            error.explanation =
                Some(self.conflicting_values(explanation.clone(), instance, slot, origin));
            return;
        }
        if explanation.primary.is_some() {
            error.explanation = Some(explanation.clone());
            return;
        }
        let mut explained = (**explanation).clone();
        let place = origin.and_then(|origin| self.argument_location(origin, slot));
        if explained.primary.is_none()
            && let Some(place) = place
        {
            explained.primary = Some((place, explained.headline.clone()));
        }
        explained.headline = format!("invalid value for `{name}`: {}", explained.headline);
        let declared = match attribute.relation {
            Some(_) => format!("`{name}` of `{entity}` is declared here"),
            None => {
                format!("`{name}` is declared as `{}`", self.type_text(attribute.ty))
            }
        };
        explained.related.push((attribute.loc, declared));
        error.explanation = Some(Box::new(explained));
    }

    /// Explains two values for one attribute; with both constructors, if an index merged them into
    /// one instance.
    fn conflicting_values(
        &self,
        mut explanation: Box<Explanation>,
        instance: InstanceId,
        slot: u32,
        origin: Option<u32>,
    ) -> Box<Explanation> {
        let attribute = self.text(self.slot_attribute(instance, slot).name);
        let entity = self.instances[instance.index()].entity;
        let name = self.entity_text(entity);
        let first = self.instances[instance.index()].constructor;
        let last = self.last_constructor(instance);
        if first == last {
            let values = explanation.headline.split_once(": ").map_or("", |(_, values)| values);
            explanation.headline = format!("`{attribute}` of `{name}` is set twice: {values}");
            return explanation;
        }
        let key = self.identifying_text(instance);
        explanation.headline = format!(
            "duplicate `{name}`{key}: two constructors give `{attribute}` different values"
        );
        let line = |id: ExprId| self.program.expr(id).loc;
        let label = |explanation: &Explanation, word: &str| {
            let labels = explanation.related.iter().map(|(_, label)| label.as_str());
            let own = explanation.primary.iter().map(|(_, label)| label.as_str());
            own.chain(labels).find(|label| label.contains(word)).map(str::to_owned)
        };
        // A default value has no location in the constructor: the constructor is shown instead.
        let inside =
            |loc: Loc, of: Loc| loc.file == of.file && of.start <= loc.start && loc.end <= of.end;
        let (old, new) = (line(first), line(last));
        if let Some((loc, _)) = explanation.related.first().cloned()
            && !inside(loc, old)
        {
            let text = label(&explanation, "first").unwrap_or_default();
            explanation.related = vec![(old, text), (loc, "this is a default".to_owned())];
        }
        if let Some((loc, _)) = explanation.primary.clone()
            && !inside(loc, new)
        {
            explanation.related.push((loc, "this is a default".to_owned()));
        }
        let new_place = origin.and_then(|origin| self.argument_location(origin, slot));
        let new_place = new_place.filter(|&loc| inside(loc, new));
        let text = label(&explanation, "again").unwrap_or_default();
        explanation.primary = Some((new_place.unwrap_or(new), text));
        let keys = self.key_names(entity);
        explanation.help = Some(match keys.is_empty() {
            true => "make them one constructor".to_owned(),
            false => format!(
                "keep one of the two constructors, or give them different values for {}",
                keys.join(" or ")
            ),
        });
        explanation
    }

    /// The scalar values of the first index of an instance: " with path="/etc/motd"".
    pub(super) fn identifying_text(&self, instance: InstanceId) -> String {
        let entity = self.instances[instance.index()].entity;
        let slots = self.program.entity(entity).index_slots.first();
        let shown: Vec<String> = slots
            .into_iter()
            .flatten()
            .filter_map(|&(slot, _)| {
                let value = self.cell_value(self.slot_cell(instance, slot))?;
                let name = self.text(self.program.slot(entity, slot).name);
                let scalar = !matches!(value, Value::Instance(_) | Value::List(_));
                scalar.then(|| format!("{name}={}", self.quoted(value)))
            })
            .collect();
        if shown.is_empty() { String::new() } else { format!(" with {}", shown.join(", ")) }
    }

    /// Explains two constructors of different entities with the same index values.
    pub(super) fn types_in_index(
        &self,
        constructor: ExprId,
        entity: EntityId,
        other: InstanceId,
    ) -> Explanation {
        let new = self.entity_text(entity).to_owned();
        let old = self.entity_text(self.instances[other.index()].entity);
        let key = self.identifying_text(other);
        let headline = format!("two instances{key}: a `{old}` and a `{new}`");
        let first = self.program.expr(self.last_constructor(other)).loc;
        Explanation::new(headline)
            .at(self.constructor_name(self.program.expr(constructor).loc), "the second one")
            .related(self.constructor_name(first), "the first one")
            .help("keep one of the two: the index of their common parent allows one instance")
    }

    /// The names of the attributes of the first index, in backticks.
    fn key_names(&self, entity: EntityId) -> Vec<String> {
        let slots = self.program.entity(entity).index_slots.first().into_iter().flatten();
        slots
            .map(|&(slot, _)| format!("`{}`", self.text(self.program.slot(entity, slot).name)))
            .collect()
    }

    /// An entity as written in the main file: without `__config__::`.
    pub(super) fn entity_text(&self, entity: EntityId) -> &str {
        let name = self.text(self.program.entity(entity).name);
        name.strip_prefix("__config__::").unwrap_or(name)
    }

    /// The expression that sets an attribute: a constructor argument, or the right-hand side of an
    /// assignment.
    pub(super) fn argument_location(&self, origin: u32, slot: u32) -> Option<Loc> {
        let value = match decode(origin) {
            Origin::Expr(id) => match &self.program.expr(id).kind {
                ExprKind::Construct(construct) => {
                    let direct = construct.direct.iter().find(|(of, _)| *of == slot);
                    let indirect = construct.indirect.iter().find(|(of, ..)| *of == slot);
                    match (direct, indirect) {
                        (Some(&(_, value)), _) | (_, Some(&(_, value, _))) => value,
                        _ => return None,
                    }
                }
                _ => id,
            },
            Origin::Stmt(id) => match &self.program.stmt(id).kind {
                StmtKind::Assign { value, .. } | StmtKind::SetAttr { value, .. } => *value,
                _ => return None,
            },
        };
        Some(self.program.expr(value).loc)
    }

    /// An attribute of an instance, with its name and the name of its entity.
    fn slot_names(&self, instance: InstanceId, slot: u32) -> (&Attribute, &str, &str) {
        let attribute = self.slot_attribute(instance, slot);
        let entity = self.entity_text(self.instances[instance.index()].entity);
        (attribute, self.text(attribute.name), entity)
    }

    /// Explains too many instances in a relation.
    pub(super) fn explain_arity(
        &self,
        error: &mut CompileError,
        (instance, slot): (InstanceId, u32),
        origin: u32,
    ) {
        let (attribute, name, entity) = self.slot_names(instance, slot);
        let high = attribute.relation.and_then(|end| end.high).unwrap_or(0);
        let noun = if high == 1 { "instance" } else { "instances" };
        let headline = format!("too many instances: `{name}` of `{entity}` takes at most {high}");
        let place = self.argument_location(origin, slot).unwrap_or_else(|| self.origin_loc(origin));
        let explanation = Explanation::new(headline)
            .at(place, "one too many is added here")
            .related(attribute.loc, format!("declared with at most {high} {noun}"));
        error.explanation = Some(Box::new(explanation));
    }

    /// Explains the read of an optional relation without a value.
    pub(super) fn explain_optional(
        &self,
        error: &mut CompileError,
        instance: InstanceId,
        slot: u32,
    ) {
        let (attribute, name, entity) = self.slot_names(instance, slot);
        let constructor = self.program.expr(self.instances[instance.index()].constructor).loc;
        let explanation = Explanation::new(format!("`{name}` of this `{entity}` has no value"))
            .related(attribute.loc, "it is optional")
            .related(constructor, "this instance has none")
            .help(format!("ask first: `if INSTANCE.{name} is defined:`"));
        error.explanation = Some(Box::new(explanation));
    }

    /// Explains an addition to a list that was already read as a whole.
    pub(super) fn explain_freeze(
        &self,
        error: &mut CompileError,
        (instance, slot): (InstanceId, u32),
        origin: u32,
    ) {
        let (attribute, name, entity) = self.slot_names(instance, slot);
        let headline = format!("`{name}` of `{entity}` grows after its whole content was used");
        let explanation = Explanation::new(headline)
            .at(self.origin_loc(origin), "added here, too late")
            .related(attribute.loc, "declared here")
            .help(
                "something needed all of its values before (a count, a condition, an index); add to \
                 it without asking for its whole content first, or assign it at once",
            );
        error.explanation = Some(Box::new(explanation));
    }

    /// Explains two values for one variable or attribute.
    pub(super) fn explain_set_twice(
        &self,
        error: &mut CompileError,
        (old, old_loc): (Value, Loc),
        (new, origin): (Value, u32),
        cell: u32,
    ) {
        let (old, new) = (self.quoted(old), self.quoted(new));
        let mut variables = self.program.namespaces.iter().flat_map(|of| &of.variables);
        let name = variables.find(|(_, of)| **of == cell).map(|(name, _)| self.text(*name));
        let headline = match name {
            Some(name) => format!("`{name}` is set twice: {old} and {new}"),
            None => format!("a variable is set twice: {old} and {new}"),
        };
        let explanation = Explanation::new(headline)
            .at(self.origin_loc(origin), format!("set again, to {new}"))
            .related(old_loc, format!("first set to {old}"))
            .help(
                "a variable or attribute has one value for good: use another name for the second",
            );
        error.explanation = Some(Box::new(explanation));
    }
}

/// The type of a value in model terms.
fn type_noun(value: Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Int(_) | Value::Big(_) => "int",
        Value::Float(_) => "float",
        Value::Str(_) => "string",
        Value::List(_) => "list",
        Value::Dict(_) => "dict",
        Value::Instance(_) => "instance",
        Value::Unknown(_) | Value::Other(_) => "value",
    }
}
