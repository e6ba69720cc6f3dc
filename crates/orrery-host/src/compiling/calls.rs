//! Calls of plugins in a host.

use orrery_compiler::host::{Call, HostContext, View};
use orrery_compiler::plugins::{CellId, Failure, Outcome};
use orrery_compiler::value::{InstanceId, Value};
use serde::Deserialize;
use serde_json::{Value as Json, json};

use crate::wire::{kind, parse};

use super::values::{Shared, decode, encode, encode_blocks, instances_in};
use super::{CompileHost, answers, types};

impl CompileHost {
    /// Tells the host about the types of the model, if it does not know them yet.
    pub(super) fn send_types(&self, view: &dyn View) -> Result<(), String> {
        if self.types_sent.replace(true) {
            return Ok(());
        }
        self.send_json(&types::message(view))
    }

    pub(super) fn try_call(
        &self,
        call: &Call<'_>,
        context: &mut dyn HostContext,
    ) -> Result<Outcome, String> {
        self.send_types(context)?;
        let place = Caller::of(context);
        self.send(|out| {
            let shared = &mut *self.shared.borrow_mut();
            out.extend_from_slice(b"{\"k\":\"call\",");
            encode_call(context, shared, call, &place, out);
            out.extend_from_slice(b",\"x\":");
            let instances = instances_in(context.values(), call.args);
            encode_blocks(context, shared, instances, out);
            out.push(b'}');
        })?;
        self.outcome(context)
    }

    pub(super) fn try_call_many(
        &self,
        calls: &[Call<'_>],
        context: &mut dyn HostContext,
    ) -> Result<Vec<Outcome>, String> {
        self.send_types(context)?;
        let place = Caller::of(context);
        self.send(|out| {
            let shared = &*self.shared.borrow();
            out.extend_from_slice(b"{\"k\":\"calls\",\"c\":[");
            for (number, call) in calls.iter().enumerate() {
                out.extend_from_slice(if number > 0 { b",{" } else { b"{" });
                encode_call(context, shared, call, &place, out);
                out.push(b'}');
            }
            out.extend_from_slice(b"],\"x\":[]}");
        })?;
        let line = self.until("results", &mut answers::Asked::Call(context))?;
        let json: Json = parse(&line).map_err(|error| error.to_string())?;
        let results = json["r"].as_array().map_or(&[][..], Vec::as_slice);
        if results.len() != calls.len() {
            let (found, wanted) = (results.len(), calls.len());
            return Err(self.give_up(&format!("it answered {found} of {wanted} calls")));
        }
        let outcome = |json: &Json| {
            let word = json["k"].as_str().unwrap_or_default();
            self.outcome_of(word, json, context)
        };
        Ok(results.iter().map(outcome).collect())
    }

    /// Waits for the answer of a call, and answers what is asked before it comes.
    pub(super) fn outcome(&self, context: &mut dyn HostContext) -> Result<Outcome, String> {
        loop {
            let line = self.receive()?;
            let word = kind(&line).map_err(|error| error.to_string())?;
            if let Some(outcome) = self.read_outcome(&word, &line, context)? {
                return Ok(outcome);
            }
            self.answer(&word, &line, &mut answers::Asked::Call(context))?;
        }
    }

    /// The outcome of a call, if the message is one.
    pub(super) fn read_outcome(
        &self,
        word: &str,
        line: &[u8],
        context: &mut dyn HostContext,
    ) -> Result<Option<Outcome>, String> {
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
    ) -> Outcome {
        let shared = &mut *self.shared.borrow_mut();
        match word {
            "result" => decode(context, shared, &json["v"]),
            "unset" => {
                let cells: Vec<u32> = Vec::deserialize(&json["cells"]).unwrap_or_default();
                Err(Failure::Unset(cells.into_iter().map(CellId).collect()))
            }
            "unknown" => match decode(context, shared, &json["u"])? {
                unknown @ Value::Unknown(_) => Err(Failure::Unknown(unknown)),
                _ => Err(Failure::Runtime("the host named an unknown that is none".into())),
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
                    None => Err(Failure::Runtime("the host named an instance that is none".into())),
                }
            }
            _ => Err(failure(json)),
        }
    }
}

/// Where a call is made.
struct Caller {
    file: String,
    line: u32,
    namespace: String,
}

impl Caller {
    fn of(context: &dyn HostContext) -> Self {
        let at = context.called_at();
        let (line, _) = context.sources().line_col(at);
        let file = context.sources().file(at.file).name.clone();
        Caller { file, line, namespace: context.caller_namespace() }
    }
}

/// Writes the members of a call.
fn encode_call(
    context: &dyn HostContext,
    shared: &Shared,
    call: &Call<'_>,
    place: &Caller,
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
    let Caller { file, line, namespace } = place;
    let rest = json!({"o": call.omitted, "ns": namespace, "at": [file, line]}).to_string();
    out.extend_from_slice(b"],");
    out.extend_from_slice(&rest.as_bytes()[1..rest.len() - 1]);
}

/// Whether values of a type are the same wherever and whenever they are made.
pub(super) fn is_plain_type(text: &str) -> bool {
    let inner = text.trim_end_matches(['?', ']', '[']);
    matches!(inner, "string" | "int" | "float" | "number" | "bool")
}

/// An error that a host reports.
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
