//! Turns one instance into one resource: its identity, then its fields as text. Requirements and
//! resource set are added when all resources are known.

use std::sync::Arc;

use orrery_model::{Attributes, Resource, ResourceFlags, ResourceId, Source};
use orrery_syntax::ast::Loc;

use crate::ir::ExprId;
use crate::late_values::CollectedLateValues;
use crate::report::Model;
use crate::source::Sources;
use crate::value::{InstanceId, UnknownId, Value};

use super::code::{ComputeOutcome, ComputedFields, ModuleCodeError};
use super::json::JsonStop;
use super::plan::{Field, FieldValue, Flag, Plan};
use super::problem::{AgentNotFound, ExportProblem, ModelLocation, Subject, Unserializable};

/// Placeholder for a field with an unknown value; handlers never see it.
const UNDEFINED: &[u8] = b"\"<<undefined>>\"";

pub(super) enum DraftOutcome {
    Resource(Resource),
    /// Not managed by the model, or excluded by its code.
    Unmanaged,
    /// The id or agent is unknown.
    Unidentified,
    /// With the id, if it is known despite the problem.
    Broken(Box<ExportProblem>, Option<ResourceId>),
}

/// A field with an unknown value.
pub(super) struct UnknownField {
    pub name: Arc<str>,
    /// `None` if it is not an unknown of the model.
    pub unknown: Option<UnknownId>,
}

/// Reason for a missing id.
enum IdFailure {
    Unknown,
    Problem(Box<ExportProblem>),
}

impl From<ExportProblem> for IdFailure {
    fn from(problem: ExportProblem) -> Self {
        IdFailure::Problem(problem.into())
    }
}

pub(super) struct Drafter<'m> {
    pub model: &'m Model,
    sources: &'m Sources,
    /// Names of files by number, filled on demand.
    files: Vec<Option<Arc<str>>>,
    /// Cache: consecutive instances often share a constructor.
    last: Option<(ExprId, Source)>,
    out: Vec<u8>,
    value: String,
    /// Unknown fields of the last drafted resource.
    pub unknown_fields: Vec<UnknownField>,
}

impl<'m> Drafter<'m> {
    pub(super) fn new(model: &'m Model, sources: &'m Sources) -> Self {
        Drafter {
            model,
            sources,
            files: Vec::new(),
            last: None,
            out: Vec::new(),
            value: String::new(),
            unknown_fields: Vec::new(),
        }
    }

    /// Drafts one resource. `answer` is the outcome of its module code.
    pub(super) fn draft(
        &mut self,
        instance: InstanceId,
        plan: &Plan<'_>,
        answer: Option<ComputeOutcome>,
    ) -> DraftOutcome {
        self.unknown_fields.clear();
        let model = self.model;
        let value = |slot| model.graph.slot_value(instance, slot);
        if let Some(Value::Bool(false)) = plan.managed.and_then(value) {
            return DraftOutcome::Unmanaged;
        }
        let computed = match answer {
            None => Box::default(),
            Some(ComputeOutcome::Fields(computed)) => computed,
            Some(ComputeOutcome::Ignored) => return DraftOutcome::Unmanaged,
            Some(ComputeOutcome::Unidentified) => return DraftOutcome::Unidentified,
            Some(ComputeOutcome::Failed(cause)) => {
                let resource = self.subject(instance, plan, None);
                return DraftOutcome::Broken(ExportProblem::Code { resource, cause }.into(), None);
            }
        };
        if let Some(problem) = plan.problem {
            let resource = self.subject(instance, plan, None);
            let cause = ModuleCodeError {
                class: String::new(),
                message: problem.to_owned(),
                field: None,
                explicit: true,
            };
            return DraftOutcome::Broken(ExportProblem::Code { resource, cause }.into(), None);
        }
        let id = match self.identify(instance, plan, computed.id.as_deref()) {
            Ok(id) => id,
            Err(IdFailure::Unknown) => return DraftOutcome::Unidentified,
            Err(IdFailure::Problem(problem)) => return DraftOutcome::Broken(problem, None),
        };
        let mut flags = ResourceFlags::default();
        match self.write_fields(instance, plan, &id, &computed, &mut flags) {
            Ok(()) => {}
            Err((path, cause)) => {
                let resource = self.subject(instance, plan, Some(id.clone()));
                return DraftOutcome::Broken(
                    ExportProblem::Field { resource, path, cause }.into(),
                    Some(id),
                );
            }
        }
        let text = std::str::from_utf8(&self.out).expect("invariant: only texts are written");
        let attributes = Attributes::from_canonical(text);
        let hash = attributes.hash(&id);
        let source = Some(self.source(instance));
        let requires = Vec::new();
        DraftOutcome::Resource(Resource {
            id,
            attributes,
            hash,
            requires,
            flags,
            set: None,
            source,
        })
    }

    fn identify(
        &mut self,
        instance: InstanceId,
        plan: &Plan<'_>,
        computed: Option<&str>,
    ) -> Result<ResourceId, IdFailure> {
        if let Some(text) = computed {
            self.value.clear();
            self.value.push_str(text);
            return self.identify_by_value(instance, plan);
        }
        let model = self.model;
        let attribute = &plan.declaration.id_attribute;
        let Some(slot) = plan.id else {
            let resource = self.subject(instance, plan, None);
            return Err(ExportProblem::NoIdAttribute {
                resource,
                attribute: attribute.to_string(),
            }
            .into());
        };
        self.value.clear();
        let found = match model.graph.slot_value(instance, slot) {
            Some(Value::Unknown(_)) => return Err(IdFailure::Unknown),
            Some(Value::Str(text)) => {
                self.value.push_str(model.text(text));
                None
            }
            // Like `str` of Python, as the reference compiler does.
            Some(Value::Null) => {
                self.value.push_str("None");
                None
            }
            Some(Value::Bool(bool)) => {
                self.value.push_str(if bool { "True" } else { "False" });
                None
            }
            Some(Value::Int(int)) => {
                self.value.push_str(&int.to_string());
                None
            }
            Some(Value::Big(big)) => {
                self.value.push_str(&model.graph.heap.big(big).to_string());
                None
            }
            Some(Value::Float(float)) => {
                self.value.push_str(&orrery_python::repr_float(float));
                None
            }
            Some(Value::Instance(other)) => {
                Some(format!("an instance of {}", model.entity_name(other)))
            }
            Some(value) => Some(format!("of the type {}", model.graph.heap.class_name(value))),
            None => Some("a relation without a value".into()),
        };
        if let Some(found) = found {
            let resource = self.subject(instance, plan, None);
            let attribute = attribute.to_string();
            return Err(ExportProblem::IdValue { resource, attribute, found }.into());
        }
        self.identify_by_value(instance, plan)
    }

    /// Builds the id from the identifying text in the buffer.
    fn identify_by_value(
        &mut self,
        instance: InstanceId,
        plan: &Plan<'_>,
    ) -> Result<ResourceId, IdFailure> {
        let attribute = &plan.declaration.id_attribute;
        let agent = match self.agent(instance, plan) {
            Ok(Some(agent)) => agent,
            Ok(None) => return Err(IdFailure::Unknown),
            Err(cause) => {
                let resource = self.subject(instance, plan, None);
                let path = plan.declaration.agent.to_string();
                return Err(ExportProblem::Agent { resource, path, cause }.into());
            }
        };
        ResourceId::new(&plan.entity, agent, attribute, &self.value).map_err(|cause| {
            ExportProblem::InvalidId { resource: self.subject(instance, plan, None), cause }.into()
        })
    }

    /// The agent name; `None` if it is unknown.
    fn agent(
        &self,
        instance: InstanceId,
        plan: &Plan<'_>,
    ) -> Result<Option<&'m str>, AgentNotFound> {
        let model = self.model;
        let mut value = Value::Instance(instance);
        let mut before = "";
        for &(name, symbol) in &plan.agent {
            let at = match value {
                Value::Instance(at) => at,
                Value::Unknown(_) => return Ok(None),
                Value::List(list) => match model.graph.heap.items(list) {
                    &[Value::Instance(at)] => at,
                    [Value::Unknown(_)] => return Ok(None),
                    items => {
                        let name = before.to_owned();
                        return Err(AgentNotFound::NotOne { name, count: items.len() });
                    }
                },
                _ => return Err(AgentNotFound::NotAnInstance { name: before.to_owned() }),
            };
            let entity = model.program.entity(model.graph.instances[at.index()].entity);
            let here = || (model.entity_name(at).to_owned(), name.to_owned());
            let slot = symbol.and_then(|symbol| entity.slot_of.get(&symbol));
            let Some(&slot) = slot else {
                let (entity, name) = here();
                return Err(AgentNotFound::NoAttribute { entity, name });
            };
            let Some(found) = model.graph.slot_value(at, slot) else {
                let (entity, name) = here();
                return Err(AgentNotFound::NoValue { entity, name });
            };
            value = found;
            before = name;
        }
        match value {
            Value::Str(text) => Ok(Some(model.text(text))),
            Value::Unknown(_) => Ok(None),
            other => {
                let class = model.graph.heap.class_name(other).to_owned();
                Err(AgentNotFound::NotAText { class })
            }
        }
    }

    /// Writes all fields as one object into the buffer.
    fn write_fields(
        &mut self,
        instance: InstanceId,
        plan: &Plan<'_>,
        id: &ResourceId,
        computed: &ComputedFields,
        flags: &mut ResourceFlags,
    ) -> Result<(), (String, Unserializable)> {
        self.out.clear();
        self.out.push(b'{');
        let references = self.late_values(instance, plan);
        let more = references.map(|references| references.fields(id.as_str()));
        let mut more = more.into_iter().flatten().peekable();
        for field in &plan.fields {
            while let Some((name, text)) = more.next_if(|(name, _)| *name < &*field.name) {
                self.write_more(name, &text);
            }
            self.begin_field();
            self.out.extend_from_slice(&field.key);
            let start = self.out.len();
            match self.write_field(instance, field, plan.class.is_some(), computed, flags) {
                Ok(()) => {}
                Err(JsonStop::Unknown(unknown)) => {
                    self.out.truncate(start);
                    self.out.extend_from_slice(UNDEFINED);
                    flags.undefined = true;
                    self.unknown_fields.push(UnknownField { name: field.name.clone(), unknown });
                }
                Err(JsonStop::Refused { path, cause }) => {
                    return Err((format!("{}{path}", field.name), cause));
                }
            }
        }
        for (name, text) in more {
            self.write_more(name, &text);
        }
        self.out.push(b'}');
        Ok(())
    }

    fn begin_field(&mut self) {
        if self.out.len() > 1 {
            self.out.push(b',');
        }
    }

    fn write_more(&mut self, name: &str, text: &str) {
        self.begin_field();
        self.out.extend_from_slice(&super::json::key(name));
        self.out.extend_from_slice(text.as_bytes());
    }

    /// Late-bound values in the fields of a resource that no code exports; `None` if there are
    /// none.
    fn late_values(
        &self,
        instance: InstanceId,
        plan: &Plan<'_>,
    ) -> Option<CollectedLateValues<'m>> {
        if plan.class.is_some() || !self.model.graph.heap.has_others() {
            return None;
        }
        let mut collected = CollectedLateValues::default();
        for field in &plan.fields {
            if let FieldValue::Slot(slot) = field.value
                && let Some(value) = self.model.graph.slot_value(instance, slot)
            {
                self.model.collect_late_values(value, &field.name, &mut collected);
            }
        }
        (!collected.is_empty()).then_some(collected)
    }

    fn write_field(
        &mut self,
        instance: InstanceId,
        field: &Field,
        is_coded: bool,
        computed: &ComputedFields,
        flags: &mut ResourceFlags,
    ) -> Result<(), JsonStop> {
        let model = self.model;
        let value = |slot| model.graph.slot_value(instance, slot);
        if let Some(unknown) = computed.unknown_of(&field.name) {
            return Err(JsonStop::Unknown(unknown));
        }
        if let Some(text) = computed.field(&field.name) {
            self.out.extend_from_slice(text.as_bytes());
            return Ok(());
        }
        match &field.value {
            FieldValue::Computed => {
                Err(JsonStop::Refused { path: String::new(), cause: Unserializable::NotComputed })
            }
            FieldValue::Collected => {
                let text = computed.collected(&field.name).unwrap_or("[]");
                self.out.extend_from_slice(text.as_bytes());
                Ok(())
            }
            FieldValue::Slot(slot) => match value(*slot) {
                // Code extracts its late-bound values itself.
                Some(value) if is_coded => model.write_json(value, &mut self.out),
                Some(value) => model.write_around_late_values(value, &mut self.out),
                None => {
                    Err(JsonStop::Refused { path: String::new(), cause: Unserializable::Empty })
                }
            },
            FieldValue::Flag(flag, slot) => {
                let place = match flag {
                    Flag::SendEvent => &mut flags.send_event,
                    Flag::ReceiveEvents => &mut flags.receive_events,
                    Flag::ReportOnly => &mut flags.report_only,
                };
                // An unknown counts as not set, as in the reference compiler.
                if let Some(Value::Bool(said)) = slot.and_then(value) {
                    *place = said;
                }
                model.write_json(Value::Bool(*place), &mut self.out)
            }
            FieldValue::Part(slot, attributes) => {
                let value = value(*slot);
                let members = match &value {
                    Some(Value::List(list)) => model.graph.heap.items(*list),
                    Some(one) => std::slice::from_ref(one),
                    None => &[],
                };
                self.out.push(b'[');
                for (at, &member) in members.iter().enumerate() {
                    if at > 0 {
                        self.out.push(b',');
                    }
                    match member {
                        Value::Instance(part) => self.write_part(part, attributes)?,
                        other => model.write_json(other, &mut self.out)?,
                    }
                }
                self.out.push(b']');
                Ok(())
            }
        }
    }

    fn write_part(
        &mut self,
        part: InstanceId,
        attributes: &[(orrery_syntax::Symbol, Vec<u8>)],
    ) -> Result<(), JsonStop> {
        let model = self.model;
        let entity = model.program.entity(model.graph.instances[part.index()].entity);
        self.out.push(b'{');
        for (at, (symbol, key)) in attributes.iter().enumerate() {
            if at > 0 {
                self.out.push(b',');
            }
            self.out.extend_from_slice(key);
            let slot = entity.slot_of.get(symbol);
            let value = slot.and_then(|&slot| model.graph.slot_value(part, slot));
            model.write_json(value.unwrap_or(Value::Null), &mut self.out)?;
        }
        self.out.push(b'}');
        Ok(())
    }

    /// Location of an instance's constructor.
    fn source(&mut self, instance: InstanceId) -> Source {
        let constructor = self.model.graph.instances[instance.index()].constructor;
        if let Some((known, source)) = &self.last
            && *known == constructor
        {
            return source.clone();
        }
        let source = self.source_of(self.model.program.expr(constructor).loc);
        self.last = Some((constructor, source.clone()));
        source
    }

    fn source_of(&mut self, loc: Loc) -> Source {
        let (line, column) = self.sources.line_col(loc);
        let number = loc.file.0 as usize;
        if self.files.len() <= number {
            self.files.resize(number + 1, None);
        }
        let sources = self.sources;
        let file = self.files[number].get_or_insert_with(|| {
            let name = &sources.file(loc.file).name;
            name.strip_prefix("./").unwrap_or(name).into()
        });
        Source { file: file.clone(), line, column }
    }

    pub(super) fn location_of(&mut self, loc: Loc) -> ModelLocation {
        ModelLocation { source: self.source_of(loc), loc }
    }

    pub(super) fn location(&mut self, instance: InstanceId) -> ModelLocation {
        self.location_of(self.model.graph.constructed_at(&self.model.program, instance))
    }

    pub(super) fn subject(
        &mut self,
        instance: InstanceId,
        plan: &Plan<'_>,
        id: Option<ResourceId>,
    ) -> Subject {
        Subject { entity: plan.entity.clone(), id, location: self.location(instance) }
    }
}
