//! Export with a compile host: computed fields and added requirements.

use orrery_compiler::export::{
    ComputeOutcome, ComputeRequest, ComputedFields, ModuleCodeError, RequirementView,
    ResourceClass, ResourceCode,
};
use orrery_compiler::host::InstanceView;
use serde_json::{Value as Json, json};

use orrery_host::framing::parse;

use super::CompileHost;
use super::callbacks::CallbackContext;
use super::load::unknown_of;
use super::values::{canonical, encode_blocks};

/// Resources by position, with the ids that each requires.
type Requirements = Vec<(usize, Vec<String>)>;

/// Maximum size of the resources in one message.
const PART_BYTES: usize = 4 << 20;

fn lost(message: String) -> ModuleCodeError {
    ModuleCodeError { class: String::new(), message, field: None, explicit: true }
}

impl ResourceCode for CompileHost {
    fn classes(&self) -> &[ResourceClass] {
        &self.classes
    }

    fn serialize(
        &mut self,
        view: &dyn InstanceView,
        items: &[ComputeRequest<'_>],
    ) -> Result<Vec<ComputeOutcome>, ModuleCodeError> {
        self.try_serialize(view, items).map_err(lost)
    }

    fn adds_requirements(&self) -> bool {
        self.managers > 0
    }

    fn require(
        &mut self,
        view: &dyn InstanceView,
        resources: &[RequirementView<'_>],
    ) -> Result<Vec<(usize, Vec<String>)>, ModuleCodeError> {
        self.try_require(view, resources).map_err(lost)?
    }
}

impl CompileHost {
    fn try_serialize(
        &self,
        view: &dyn InstanceView,
        items: &[ComputeRequest<'_>],
    ) -> Result<Vec<ComputeOutcome>, String> {
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
        let line = self.wait_for("serialized", &mut CallbackContext::End(view))?;
        let json: Json = parse(&line).map_err(|error| error.to_string())?;
        let answers = json["r"].as_array().map_or(&[][..], Vec::as_slice);
        if answers.len() != items.len() {
            let (found, wanted) = (answers.len(), items.len());
            return Err(self.abort(&format!("it answered {found} of {wanted} resources")));
        }
        Ok(answers.iter().map(|json| answer(view, json)).collect())
    }

    fn try_require(
        &self,
        view: &dyn InstanceView,
        resources: &[RequirementView<'_>],
    ) -> Result<Result<Requirements, ModuleCodeError>, String> {
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
        let line = self.wait_for("required", &mut CallbackContext::End(view))?;
        let json: Json = parse(&line).map_err(|error| error.to_string())?;
        if !json["error"].is_null() {
            return Ok(Err(code_error(&json["error"])));
        }
        let mut changed = Vec::new();
        for item in json["r"].as_array().map_or(&[][..], Vec::as_slice) {
            let at = item[0].as_u64().and_then(|at| usize::try_from(at).ok());
            let Some(at) = at.filter(|&at| at < resources.len()) else {
                return Err(self.abort("it changed a resource that does not exist"));
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
    /// Fails if an exporter is unknown or fails.
    pub fn run_exporters(
        &self,
        view: &dyn InstanceView,
        names: &[String],
    ) -> Result<(), ModuleCodeError> {
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
        let line = self.wait_for("exported", &mut CallbackContext::End(view)).map_err(lost)?;
        let json: Json = parse(&line).map_err(|error| lost(error.to_string()))?;
        if json["error"].is_null() { Ok(()) } else { Err(code_error(&json["error"])) }
    }
}

fn code_error(json: &Json) -> ModuleCodeError {
    let text = |name: &str| json[name].as_str().unwrap_or_default().to_owned();
    if let Json::String(message) = json {
        return lost(message.clone());
    }
    ModuleCodeError {
        class: text("class"),
        message: text("message"),
        field: json["field"].as_str().map(str::to_owned),
        explicit: json["kind"].as_str() == Some("plugin"),
    }
}

fn answer(view: &dyn InstanceView, json: &Json) -> ComputeOutcome {
    if !json["error"].is_null() {
        return ComputeOutcome::Failed(code_error(&json["error"]));
    }
    if !json["ignored"].is_null() {
        return ComputeOutcome::Ignored;
    }
    if !json["dropped"].is_null() {
        return ComputeOutcome::Unidentified;
    }
    let members = |name: &str| json[name].as_object().into_iter().flatten();
    // An unknown that the code created has no known origin.
    let known = |unknown: &Json| unknown_of(unknown).filter(|&id| view.values().has_unknown(id));
    let unknown = members("unknown").map(|(field, unknown)| (field.clone(), known(unknown)));
    let part = |name: &str| json.get(name).filter(|part| part.is_array()).map(canonical);
    ComputeOutcome::Fields(Box::new(ComputedFields {
        fields: members("fields").map(|(field, value)| (field.clone(), canonical(value))).collect(),
        unknown: unknown.collect(),
        id: json["id"].as_str().map(str::to_owned),
        references: part("references"),
        mutators: part("mutators"),
    }))
}
