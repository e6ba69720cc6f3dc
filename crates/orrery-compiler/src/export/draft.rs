//! One instance becomes one resource: its identity, then its fields as text. What it requires and the set
//! that it belongs to are found when all are known.

use std::sync::Arc;

use orrery_model::{Attributes, Resource, ResourceFlags, ResourceId, Source};
use orrery_syntax::ast::Loc;

use crate::ir::ExprId;
use crate::reference::Collected;
use crate::report::Model;
use crate::source::Sources;
use crate::value::{InstanceId, UnknownId, Value};

use super::code::{Answer, CodeError, Computed};
use super::json::Stop;
use super::plan::{Field, FieldValue, Flag, Plan};
use super::problem::{AgentNotFound, Problem, Site, Subject, Unserializable};

/// What a field without a known value says; handlers never see it.
const UNDEFINED: &[u8] = b"\"<<undefined>>\"";

pub(super) enum Drafted {
    Resource(Resource),
    /// The model knows it without managing it, or its code does not want it exported.
    Unmanaged,
    /// Its id or agent is not known yet.
    Unidentified,
    /// With the id, if it is known in spite of the problem.
    Broken(Box<Problem>, Option<ResourceId>),
}

/// A field whose value is not known.
pub(super) struct UnknownField {
    pub name: Arc<str>,
    /// `None` if it is none of the model's.
    pub unknown: Option<UnknownId>,
}

/// Why there is no id.
enum NoId {
    Unknown,
    Problem(Box<Problem>),
}

impl From<Problem> for NoId {
    fn from(problem: Problem) -> Self {
        NoId::Problem(problem.into())
    }
}

pub(super) struct Drafter<'m> {
    pub model: &'m Model,
    sources: &'m Sources,
    /// Names of the files, by number, once they are needed.
    files: Vec<Option<Arc<str>>>,
    /// Instances of one constructor follow each other.
    last: Option<(ExprId, Source)>,
    out: Vec<u8>,
    value: String,
    /// Unknown fields of the resource that was drafted last.
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

    /// `answer`: what the code of its module has computed for it.
    pub(super) fn draft(
        &mut self,
        instance: InstanceId,
        plan: &Plan<'_>,
        answer: Option<Answer>,
    ) -> Drafted {
        self.unknown_fields.clear();
        let model = self.model;
        let value = |slot| model.graph.slot_value(instance, slot);
        if let Some(Value::Bool(false)) = plan.managed.and_then(value) {
            return Drafted::Unmanaged;
        }
        let computed = match answer {
            None => Box::default(),
            Some(Answer::Fields(computed)) => computed,
            Some(Answer::Ignored) => return Drafted::Unmanaged,
            Some(Answer::Unidentified) => return Drafted::Unidentified,
            Some(Answer::Failed(cause)) => {
                let resource = self.subject(instance, plan, None);
                return Drafted::Broken(Problem::Code { resource, cause }.into(), None);
            }
        };
        if let Some(problem) = plan.problem {
            let resource = self.subject(instance, plan, None);
            let cause = CodeError {
                class: String::new(),
                message: problem.to_owned(),
                field: None,
                explicit: true,
            };
            return Drafted::Broken(Problem::Code { resource, cause }.into(), None);
        }
        let id = match self.identify(instance, plan, computed.id.as_deref()) {
            Ok(id) => id,
            Err(NoId::Unknown) => return Drafted::Unidentified,
            Err(NoId::Problem(problem)) => return Drafted::Broken(problem, None),
        };
        let mut flags = ResourceFlags::default();
        match self.write_fields(instance, plan, &id, &computed, &mut flags) {
            Ok(()) => {}
            Err((path, cause)) => {
                let resource = self.subject(instance, plan, Some(id.clone()));
                return Drafted::Broken(Problem::Field { resource, path, cause }.into(), Some(id));
            }
        }
        let text = std::str::from_utf8(&self.out).expect("invariant: only texts are written");
        let attributes = Attributes::from_canonical(text);
        let hash = attributes.hash(&id);
        let source = Some(self.source(instance));
        let requires = Vec::new();
        Drafted::Resource(Resource { id, attributes, hash, requires, flags, set: None, source })
    }

    fn identify(
        &mut self,
        instance: InstanceId,
        plan: &Plan<'_>,
        computed: Option<&str>,
    ) -> Result<ResourceId, NoId> {
        if let Some(text) = computed {
            self.value.clear();
            self.value.push_str(text);
            return self.identify_by_value(instance, plan);
        }
        let model = self.model;
        let attribute = &plan.declaration.id_attribute;
        let Some(slot) = plan.id else {
            let resource = self.subject(instance, plan, None);
            return Err(
                Problem::NoIdAttribute { resource, attribute: attribute.to_string() }.into()
            );
        };
        self.value.clear();
        let found = match model.graph.slot_value(instance, slot) {
            Some(Value::Unknown(_)) => return Err(NoId::Unknown),
            Some(Value::Str(text)) => {
                self.value.push_str(model.text(text));
                None
            }
            // As the reference writes them: `str` of Python.
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
            return Err(Problem::IdValue { resource, attribute, found }.into());
        }
        self.identify_by_value(instance, plan)
    }

    /// Makes the id of the identifying text in the buffer.
    fn identify_by_value(
        &mut self,
        instance: InstanceId,
        plan: &Plan<'_>,
    ) -> Result<ResourceId, NoId> {
        let attribute = &plan.declaration.id_attribute;
        let agent = match self.agent(instance, plan) {
            Ok(Some(agent)) => agent,
            Ok(None) => return Err(NoId::Unknown),
            Err(cause) => {
                let resource = self.subject(instance, plan, None);
                let path = plan.declaration.agent.to_string();
                return Err(Problem::Agent { resource, path, cause }.into());
            }
        };
        ResourceId::new(&plan.entity, agent, attribute, &self.value).map_err(|cause| {
            Problem::InvalidId { resource: self.subject(instance, plan, None), cause }.into()
        })
    }

    /// The name of the agent; `None` if it is not known yet.
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
        computed: &Computed,
        flags: &mut ResourceFlags,
    ) -> Result<(), (String, Unserializable)> {
        self.out.clear();
        self.out.push(b'{');
        let references = self.references(instance, plan);
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
                Err(Stop::Unknown(unknown)) => {
                    self.out.truncate(start);
                    self.out.extend_from_slice(UNDEFINED);
                    flags.undefined = true;
                    self.unknown_fields.push(UnknownField { name: field.name.clone(), unknown });
                }
                Err(Stop::Refused { path, cause }) => {
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

    /// The references in the fields of a resource that no code exports; `None` if there are none.
    fn references(&self, instance: InstanceId, plan: &Plan<'_>) -> Option<Collected<'m>> {
        if plan.class.is_some() || !self.model.graph.heap.has_others() {
            return None;
        }
        let mut collected = Collected::default();
        for field in &plan.fields {
            if let FieldValue::Slot(slot) = field.value
                && let Some(value) = self.model.graph.slot_value(instance, slot)
            {
                self.model.collect_references(value, &field.name, &mut collected);
            }
        }
        (!collected.is_empty()).then_some(collected)
    }

    fn write_field(
        &mut self,
        instance: InstanceId,
        field: &Field,
        is_coded: bool,
        computed: &Computed,
        flags: &mut ResourceFlags,
    ) -> Result<(), Stop> {
        let model = self.model;
        let value = |slot| model.graph.slot_value(instance, slot);
        if let Some(unknown) = computed.unknown_of(&field.name) {
            return Err(Stop::Unknown(unknown));
        }
        if let Some(text) = computed.field(&field.name) {
            self.out.extend_from_slice(text.as_bytes());
            return Ok(());
        }
        match &field.value {
            FieldValue::Computed => {
                Err(Stop::Refused { path: String::new(), cause: Unserializable::NotComputed })
            }
            FieldValue::Collected => {
                let text = computed.collected(&field.name).unwrap_or("[]");
                self.out.extend_from_slice(text.as_bytes());
                Ok(())
            }
            FieldValue::Slot(slot) => match value(*slot) {
                // Code takes its references out itself.
                Some(value) if is_coded => model.write_json(value, &mut self.out),
                Some(value) => model.write_around_references(value, &mut self.out),
                None => Err(Stop::Refused { path: String::new(), cause: Unserializable::Empty }),
            },
            FieldValue::Flag(flag, slot) => {
                let place = match flag {
                    Flag::SendEvent => &mut flags.send_event,
                    Flag::ReceiveEvents => &mut flags.receive_events,
                    Flag::ReportOnly => &mut flags.report_only,
                };
                // What is not known counts as not said, as it does in the reference.
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
    ) -> Result<(), Stop> {
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

    /// Where an instance was constructed.
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

    pub(super) fn site_of(&mut self, loc: Loc) -> Site {
        Site { source: self.source_of(loc), loc }
    }

    pub(super) fn site(&mut self, instance: InstanceId) -> Site {
        self.site_of(self.model.graph.constructed_at(&self.model.program, instance))
    }

    pub(super) fn subject(
        &mut self,
        instance: InstanceId,
        plan: &Plan<'_>,
        id: Option<ResourceId>,
    ) -> Subject {
        Subject { entity: plan.entity.clone(), id, site: self.site(instance) }
    }
}
