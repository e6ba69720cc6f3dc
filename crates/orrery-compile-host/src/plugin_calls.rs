//! Calls of plugins in a compile host.

use orrery_compiler::host::{HostContext, InstanceView, PluginCall};
use orrery_compiler::plugins::{CellId, Failure, PluginResult};
use orrery_compiler::value::{InstanceId, Value};
use serde::Deserialize;
use serde_json::{Value as Json, json};

use orrery_host::framing::{kind, parse};

use super::values::{SharedValues, decode, encode, encode_blocks, instances_in};
use super::{CompileHost, callbacks, types};

impl CompileHost {
    /// Sends the types of the model to the host, once.
    pub(super) fn send_types(&self, view: &dyn InstanceView) -> Result<(), String> {
        if self.types_sent.replace(true) {
            return Ok(());
        }
        self.send_json(&types::message(view))
    }

    pub(super) fn try_call(
        &self,
        call: &PluginCall<'_>,
        context: &mut dyn HostContext,
    ) -> Result<PluginResult, String> {
        self.send_types(context)?;
        let caller = Caller::from_context(context);
        self.send(|out| {
            let shared = &mut *self.shared.borrow_mut();
            out.extend_from_slice(b"{\"k\":\"call\",");
            encode_call(context, shared, call, &caller, out);
            out.extend_from_slice(b",\"x\":");
            let instances = instances_in(context.values(), call.args);
            encode_blocks(context, shared, instances, out);
            out.push(b'}');
        })?;
        self.outcome(context)
    }

    pub(super) fn try_call_many(
        &self,
        calls: &[PluginCall<'_>],
        context: &mut dyn HostContext,
    ) -> Result<Vec<PluginResult>, String> {
        self.send_types(context)?;
        let caller = Caller::from_context(context);
        self.send(|out| {
            let shared = &*self.shared.borrow();
            out.extend_from_slice(b"{\"k\":\"calls\",\"c\":[");
            for (number, call) in calls.iter().enumerate() {
                out.extend_from_slice(if number > 0 { b",{" } else { b"{" });
                encode_call(context, shared, call, &caller, out);
                out.push(b'}');
            }
            out.extend_from_slice(b"],\"x\":[]}");
        })?;
        let line = self.wait_for("results", &mut callbacks::CallbackContext::Call(context))?;
        let json: Json = parse(&line).map_err(|error| error.to_string())?;
        let results = json["r"].as_array().map_or(&[][..], Vec::as_slice);
        if results.len() != calls.len() {
            let (found, wanted) = (results.len(), calls.len());
            return Err(self.abort(&format!("it answered {found} of {wanted} calls")));
        }
        let outcome = |json: &Json| {
            let word = json["k"].as_str().unwrap_or_default();
            self.outcome_of(word, json, context)
        };
        Ok(results.iter().map(outcome).collect())
    }

    /// Waits for the result of a call; answers callbacks meanwhile.
    pub(super) fn outcome(&self, context: &mut dyn HostContext) -> Result<PluginResult, String> {
        loop {
            let line = self.receive()?;
            let word = kind(&line).map_err(|error| error.to_string())?;
            if let Some(outcome) = self.read_outcome(&word, &line, context)? {
                return Ok(outcome);
            }
            self.answer(&word, &line, &mut callbacks::CallbackContext::Call(context))?;
        }
    }

    /// Parses the outcome of a call; `None` for other messages.
    pub(super) fn read_outcome(
        &self,
        word: &str,
        line: &[u8],
        context: &mut dyn HostContext,
    ) -> Result<Option<PluginResult>, String> {
        if !matches!(word, "result" | "unset" | "unknown" | "optional" | "error") {
            return Ok(None);
        }
        let json: Json = parse(line).map_err(|error| error.to_string())?;
        Ok(Some(self.outcome_of(word, &json, context)))
    }

    pub(super) fn outcome_of(
        &self,
        word: &str,
        json: &Json,
        context: &mut dyn HostContext,
    ) -> PluginResult {
        let shared = &mut *self.shared.borrow_mut();
        match word {
            "result" => decode(context, shared, &json["v"]),
            "unset" => {
                let cells: Vec<u32> = Vec::deserialize(&json["cells"]).unwrap_or_default();
                Err(Failure::Unset(cells.into_iter().map(CellId).collect()))
            }
            "unknown" => match decode(context, shared, &json["u"])? {
                unknown @ Value::Unknown(_) => Err(Failure::Unknown(unknown)),
                _ => Err(Failure::Runtime("the host named an invalid unknown".into())),
            },
            "optional" => {
                let instance = json["i"].as_u64().and_then(|id| u32::try_from(id).ok());
                let name = json["name"].as_str().unwrap_or_default();
                match instance.map(InstanceId).filter(|id| id.index() < context.instance_count()) {
                    Some(instance) => {
                        let entity = context.program().entity(context.entity_of(instance)).name;
                        let relation = format!("{}.{name}", context.program().text(entity));
                        Err(Failure::Optional { relation, instance, placed: true })
                    }
                    None => Err(Failure::Runtime("the host named an invalid instance".into())),
                }
            }
            _ => Err(failure(json)),
        }
    }
}

/// Source location and namespace of a call.
struct Caller {
    file: String,
    line: u32,
    namespace: String,
}

impl Caller {
    fn from_context(context: &dyn HostContext) -> Self {
        let at = context.called_at();
        let (line, _) = context.sources().line_col(at);
        let file = context.sources().file(at.file).name.clone();
        Caller { file, line, namespace: context.caller_namespace() }
    }
}

/// Writes the members of a call.
fn encode_call(
    context: &dyn HostContext,
    shared: &SharedValues,
    call: &PluginCall<'_>,
    caller: &Caller,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(b"\"p\":");
    out.extend_from_slice(call.plugin.to_string().as_bytes());
    out.extend_from_slice(b",\"a\":[");
    for (number, &argument) in call.args.iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        encode(context.values(), shared, argument, out);
    }
    let Caller { file, line, namespace } = caller;
    let rest = json!({"o": call.omitted, "ns": namespace, "at": [file, line]}).to_string();
    out.extend_from_slice(b"],");
    out.extend_from_slice(&rest.as_bytes()[1..rest.len() - 1]);
}

/// Returns true for types with values that do not depend on where they are created.
pub(super) fn is_plain_type(text: &str) -> bool {
    let inner = text.trim_end_matches(['?', ']', '[']);
    matches!(inner, "string" | "int" | "float" | "number" | "bool")
}

/// Converts an error that a host reports.
fn failure(json: &Json) -> Failure {
    let text = |name: &str| json[name].as_str().unwrap_or_default().to_owned();
    match json["kind"].as_str() {
        Some("runtime") => Failure::Runtime(text("message")),
        Some("argument") => Failure::Argument {
            name: text("argument"),
            value: text("value"),
            reason: text("message"),
        },
        kind => Failure::Exception {
            class: text("class"),
            message: text("message"),
            explicit: kind == Some("plugin"),
        },
    }
}
