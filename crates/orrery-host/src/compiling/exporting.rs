//! The export with a host: fields that only code can compute, and requirements that it adds.

use orrery_compiler::export::{Answer, Code, CodeError, Computed, Item, Required, ResourceClass};
use orrery_compiler::host::View;
use serde_json::{Value as Json, json};

use crate::wire::parse;

use super::CompileHost;
use super::answers::Asked;
use super::loading::unknown_of;
use super::values::{canonical, encode_blocks};

/// Resources by position, and the ids that each of them requires.
type Requirements = Vec<(usize, Vec<String>)>;

/// How much of the resources is sent in one message.
const PART_BYTES: usize = 4 << 20;

fn lost(message: String) -> CodeError {
    CodeError { class: String::new(), message, field: None, explicit: true }
}

impl Code for CompileHost {
    fn classes(&self) -> &[ResourceClass] {
        &self.classes
    }

    fn serialize(&mut self, view: &dyn View, items: &[Item<'_>]) -> Result<Vec<Answer>, CodeError> {
        self.try_serialize(view, items).map_err(lost)
    }

    fn adds_requirements(&self) -> bool {
        self.managers > 0
    }

    fn require(
        &mut self,
        view: &dyn View,
        resources: &[Required<'_>],
    ) -> Result<Vec<(usize, Vec<String>)>, CodeError> {
        self.try_require(view, resources).map_err(lost)?
    }
}

impl CompileHost {
    fn try_serialize(&self, view: &dyn View, items: &[Item<'_>]) -> Result<Vec<Answer>, String> {
        self.send_types(view)?;
        self.send(|out| {
            out.extend_from_slice(b"{\"k\":\"serialize\",\"r\":[");
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                let item = json!([item.class, item.instance.0, item.fields, item.id]);
                out.extend_from_slice(item.to_string().as_bytes());
            }
            out.extend_from_slice(b"],\"x\":");
            let instances = items.iter().map(|item| item.instance);
            encode_blocks(view, &mut self.shared.borrow_mut(), instances, out);
            out.push(b'}');
        })?;
        let line = self.until("serialized", &mut Asked::End(view))?;
        let json: Json = parse(&line).map_err(|error| error.to_string())?;
        let answers = json["r"].as_array().map_or(&[][..], Vec::as_slice);
        if answers.len() != items.len() {
            let (found, wanted) = (answers.len(), items.len());
            return Err(self.give_up(&format!("it answered {found} of {wanted} resources")));
        }
        Ok(answers.iter().map(|json| answer(view, json)).collect())
    }

    fn try_require(
        &self,
        view: &dyn View,
        resources: &[Required<'_>],
    ) -> Result<Result<Requirements, CodeError>, String> {
        self.send_types(view)?;
        let mut rest = resources;
        loop {
            let mut sent = 0;
            self.send(|out| {
                out.extend_from_slice(b"{\"k\":\"requires\",\"r\":[");
                for of in rest {
                    if out.len() > PART_BYTES {
                        break;
                    }
                    if sent > 0 {
                        out.push(b',');
                    }
                    sent += 1;
                    let head = json!([of.class, of.instance.0]).to_string();
                    out.extend_from_slice(&head.as_bytes()[..head.len() - 1]);
                    out.extend_from_slice(b",{\"id\":");
                    out.extend_from_slice(json!(of.id).to_string().as_bytes());
                    if of.attributes.len() > "{}".len() {
                        out.push(b',');
                    }
                    out.extend_from_slice(&of.attributes.as_bytes()[1..]);
                    out.push(b',');
                    out.extend_from_slice(json!(of.requires).to_string().as_bytes());
                    out.push(b']');
                }
                let more = sent < rest.len();
                out.extend_from_slice(if more {
                    b"],\"more\":true}"
                } else {
                    b"],\"more\":false}"
                });
            })?;
            rest = &rest[sent..];
            if rest.is_empty() {
                break;
            }
        }
        let line = self.until("required", &mut Asked::End(view))?;
        let json: Json = parse(&line).map_err(|error| error.to_string())?;
        if !json["error"].is_null() {
            return Ok(Err(code_error(&json["error"])));
        }
        let mut changed = Vec::new();
        for item in json["r"].as_array().map_or(&[][..], Vec::as_slice) {
            let at = item[0].as_u64().and_then(|at| usize::try_from(at).ok());
            let Some(at) = at.filter(|&at| at < resources.len()) else {
                return Err(self.give_up("it changed a resource that there is not"));
            };
            let ids = item[1].as_array().map_or(&[][..], Vec::as_slice);
            let ids = ids.iter().filter_map(Json::as_str).map(str::to_owned).collect();
            changed.push((at, ids));
        }
        Ok(Ok(changed))
    }

    /// Runs exporters of modules.
    ///
    /// # Errors
    /// If there is none of a name, or one fails.
    pub fn run_exporters(&self, view: &dyn View, names: &[String]) -> Result<(), CodeError> {
        for name in names {
            if !self.exporters.contains(name) {
                let known = self.exporters.join(", ");
                return Err(lost(format!("there is no exporter {name}; there are: {known}")));
            }
        }
        if names.is_empty() {
            return Ok(());
        }
        self.send_types(view).map_err(lost)?;
        self.send_json(&json!({"k": "exporters", "names": names})).map_err(lost)?;
        let line = self.until("exported", &mut Asked::End(view)).map_err(lost)?;
        let json: Json = parse(&line).map_err(|error| lost(error.to_string()))?;
        if json["error"].is_null() { Ok(()) } else { Err(code_error(&json["error"])) }
    }
}

fn code_error(json: &Json) -> CodeError {
    let text = |name: &str| json[name].as_str().unwrap_or_default().to_owned();
    if let Json::String(message) = json {
        return lost(message.clone());
    }
    CodeError {
        class: text("class"),
        message: text("message"),
        field: json["field"].as_str().map(str::to_owned),
        explicit: json["kind"].as_str() == Some("plugin"),
    }
}

fn answer(view: &dyn View, json: &Json) -> Answer {
    if !json["error"].is_null() {
        return Answer::Failed(code_error(&json["error"]));
    }
    if !json["ignored"].is_null() {
        return Answer::Ignored;
    }
    if !json["dropped"].is_null() {
        return Answer::Unidentified;
    }
    let members = |name: &str| json[name].as_object().into_iter().flatten();
    // Of an unknown that the code made itself nothing more is known.
    let known = |unknown: &Json| unknown_of(unknown).filter(|&id| view.values().has_unknown(id));
    let unknown = members("unknown").map(|(field, unknown)| (field.clone(), known(unknown)));
    let part = |name: &str| json.get(name).filter(|part| part.is_array()).map(canonical);
    Answer::Fields(Box::new(Computed {
        fields: members("fields").map(|(field, value)| (field.clone(), canonical(value))).collect(),
        unknown: unknown.collect(),
        id: json["id"].as_str().map(str::to_owned),
        references: part("references"),
        mutators: part("mutators"),
    }))
}
