//! Callbacks of a compile host, and the answers.

use orrery_compiler::host::{HostContext, InstanceView, SlotState};
use orrery_compiler::program::{Definition, Type};
use orrery_compiler::value::{InstanceId, Value};
use serde_json::{Value as Json, json};

use orrery_host::framing::parse;
use orrery_host::handshake::{Ping, Pong};

use super::CompileHost;
use super::values::{decode, encode, encode_blocks, encode_slot, instances_in};

/// Source of the answers.
pub(super) enum CallbackContext<'a> {
    /// None: code is being loaded.
    Nothing,
    /// The statement that calls a plugin.
    Call(&'a mut dyn HostContext),
    /// The finished model.
    End(&'a dyn InstanceView),
}

impl CallbackContext<'_> {
    fn view(&self) -> Option<&dyn InstanceView> {
        match self {
            CallbackContext::Nothing => None,
            CallbackContext::Call(context) => Some(&**context),
            CallbackContext::End(view) => Some(*view),
        }
    }
}

/// Namespace of the main file of a compile.
const MAIN_NAMESPACE: &str = "__config__";
const ABSENT: &[u8] = b"{\"k\":\"absent\"}";

impl CompileHost {
    /// Answers a callback, or processes a notification.
    pub(super) fn answer(
        &self,
        word: &str,
        line: &[u8],
        callback_context: &mut CallbackContext<'_>,
    ) -> Result<(), String> {
        let json: Json = parse(line).map_err(|error| error.to_string())?;
        let text = |name: &str| json[name].as_str().unwrap_or_default();
        match word {
            "get" => {
                let ids = json["i"].as_array().map_or(&[][..], Vec::as_slice);
                let ids: Vec<InstanceId> = ids.iter().filter_map(instance).collect();
                let view = callback_context.view().ok_or_else(|| no_model(word))?;
                self.send(|out| {
                    out.extend_from_slice(b"{\"k\":\"got\",\"x\":");
                    encode_blocks(view, &mut self.shared.borrow_mut(), ids, out);
                    out.push(b'}');
                })
            }
            "lookup" => self.look_up(text("name"), json["ns"].as_str(), callback_context),
            "plugin" => self.call_plugin(&json, callback_context),
            "is_type" => match self.is_type(&json, callback_context) {
                Some(is) => self.send_json(&json!({"k": "is", "v": is})),
                None => self.send_raw(ABSENT),
            },
            "instances" => {
                let view = callback_context.view().ok_or_else(|| no_model(word))?;
                let expected_type = json["type"].as_str();
                let of = expected_type.and_then(|name| view.program().find_definition(name));
                let ids: Vec<u32> = (0..view.instance_count() as u32)
                    .filter(|&id| match (expected_type, of) {
                        (None, _) => true,
                        (_, Some(Definition::Entity(entity))) => {
                            view.program().is_subtype(view.entity_of(InstanceId(id)), entity)
                        }
                        _ => false,
                    })
                    .collect();
                self.send_json(&json!({"k": "instances", "i": ids}))
            }
            "where" => {
                let view = callback_context.view().ok_or_else(|| no_model(word))?;
                let known = instance(&json["i"]).filter(|id| id.index() < view.instance_count());
                let Some(id) = known else { return self.send_raw(ABSENT) };
                let loc = view.constructed_at(id);
                let (line, _) = view.sources().line_col(loc);
                let file = &view.sources().file(loc.file).name;
                let text = view.description(id);
                self.send_json(&json!({"k": "where", "file": file, "line": line, "text": text}))
            }
            "server" => {
                let (code, result) = (self.server)(text("method"), &json["args"]);
                let number = &json["q"];
                self.send_json(&json!({"k": "reply", "q": number, "code": code, "result": result}))
            }
            "print" => {
                match callback_context {
                    CallbackContext::Call(context) => context.write_output(text("text")),
                    CallbackContext::Nothing | CallbackContext::End(_) => {
                        self.output.borrow_mut().push_str(text("text"));
                    }
                }
                Ok(())
            }
            "warn" => {
                match callback_context {
                    CallbackContext::Call(context) => context.warn(text("text")),
                    CallbackContext::Nothing | CallbackContext::End(_) => {
                        self.warnings.borrow_mut().push(text("text").to_owned());
                    }
                }
                Ok(())
            }
            "release" => {
                let handles = json["h"].as_array().map_or(&[][..], Vec::as_slice);
                let handles: Vec<u32> =
                    handles.iter().filter_map(|of| u32::try_from(of.as_u64()?).ok()).collect();
                self.shared.borrow_mut().release(&handles);
                Ok(())
            }
            "ping" => {
                let ping: Ping = parse(line).map_err(|error| error.to_string())?;
                self.with_connection(|connection| {
                    connection.writer.send(&Pong { k: "pong", n: ping.n })
                })
            }
            "pong" => Ok(()),
            other => Err(self.abort(&format!("it sent an unexpected message {other:?}"))),
        }
    }

    /// Looks up a variable in the caller's scope, or at the top of a namespace.
    fn look_up(
        &self,
        name: &str,
        namespace: Option<&str>,
        callback_context: &CallbackContext<'_>,
    ) -> Result<(), String> {
        let Some(view) = callback_context.view() else { return self.send_raw(ABSENT) };
        let (slot, owner) = match (namespace, callback_context) {
            (None, CallbackContext::Call(context)) => {
                (context.variable_slot(name), context.variable_owner(name))
            }
            (namespace, _) => (global(view, namespace.unwrap_or(MAIN_NAMESPACE), name), None),
        };
        let Some(slot) = slot else { return self.send_raw(ABSENT) };
        self.send(|out| {
            let shared = &mut *self.shared.borrow_mut();
            out.extend_from_slice(b"{\"k\":\"found\",\"v\":");
            encode_slot(view.values(), shared, slot, out);
            if let (SlotState::Empty, Some((instance, _))) = (slot, owner) {
                out.extend_from_slice(b",\"i\":");
                out.extend_from_slice(instance.0.to_string().as_bytes());
            }
            out.extend_from_slice(b",\"x\":");
            let inside = match slot {
                SlotState::Value(value) => instances_in(view.values(), &[value]),
                SlotState::Pending(_) | SlotState::Empty => Vec::new(),
            };
            encode_blocks(view, shared, inside, out);
            out.push(b'}');
        })
    }

    fn send_raw(&self, message: &[u8]) -> Result<(), String> {
        self.send(|out| out.extend_from_slice(message))
    }

    /// Ends the conversation after a protocol violation.
    pub(super) fn abort(&self, reason: &str) -> String {
        let text = format!("the host was ended: {reason}");
        *self.connection.borrow_mut() = None;
        *self.lost.borrow_mut() = Some(text.clone());
        text
    }

    /// Calls a plugin, native or Python, for another plugin.
    fn call_plugin(
        &self,
        json: &Json,
        callback_context: &mut CallbackContext<'_>,
    ) -> Result<(), String> {
        let CallbackContext::Call(context) = callback_context else {
            let message = "plugins can only be called while the model is compiled";
            return self.send_json(&error("runtime", "", message));
        };
        let name = json["name"].as_str().unwrap_or_default().to_owned();
        let mut args = Vec::new();
        for argument in json["a"].as_array().map_or(&[][..], Vec::as_slice) {
            let decoded = decode(&mut **context, &mut self.shared.borrow_mut(), argument);
            match decoded {
                Ok(value) => args.push(value),
                Err(failure) => {
                    return self.send_json(&error("runtime", "", &format!("{failure:?}")));
                }
            }
        }
        let outcome = context.call(&name, &args);
        self.send_outcome(outcome, &**context)
    }

    fn send_outcome(
        &self,
        outcome: orrery_compiler::plugins::PluginResult,
        view: &dyn InstanceView,
    ) -> Result<(), String> {
        use orrery_compiler::plugins::Failure;
        let outcome = outcome.map_err(|failure| match failure {
            Failure::NeedsOtherHost(failure) => failure.without_location(),
            other => other.without_location(),
        });
        let message = match outcome {
            Ok(value) => {
                return self.send(|out| {
                    let shared = &mut *self.shared.borrow_mut();
                    out.extend_from_slice(b"{\"k\":\"result\",\"v\":");
                    encode(view.values(), shared, value, out);
                    out.extend_from_slice(b",\"x\":");
                    encode_blocks(view, shared, instances_in(view.values(), &[value]), out);
                    out.push(b'}');
                });
            }
            Err(Failure::Unset(cells)) => {
                let cells: Vec<u32> = cells.iter().map(|cell| cell.0).collect();
                json!({"k": "unset", "cells": cells})
            }
            Err(Failure::Unknown(Value::Unknown(id))) => {
                json!({"k": "unknown", "u": {"$": ["u", id.0]}})
            }
            Err(Failure::Unknown(_)) => error("runtime", "", "an invalid unknown"),
            Err(Failure::Optional { relation, instance, .. }) => {
                let name = relation.rsplit('.').next().unwrap_or_default();
                json!({"k": "optional", "i": instance.0, "name": name})
            }
            Err(Failure::NeedsOtherHost(_) | Failure::InFile(_)) => {
                error("runtime", "", "unsupported operation")
            }
            Err(Failure::Plugin(text)) => error("plugin", "inmanta.ast.PluginException", &text),
            Err(Failure::Argument { reason, .. }) => error("runtime", "", &reason),
            Err(Failure::Runtime(text)) => error("runtime", "", &text),
            Err(Failure::Python(of)) => error("other", of.kind, &of.message),
            Err(Failure::Exception { class, message, explicit }) => {
                error(if explicit { "plugin" } else { "other" }, &class, &message)
            }
        };
        self.send_json(&message)
    }

    /// Returns true if a value has a type; `None` if the type does not exist.
    fn is_type(&self, json: &Json, callback_context: &mut CallbackContext<'_>) -> Option<bool> {
        let name = json["type"].as_str()?;
        match callback_context {
            CallbackContext::Nothing => None,
            CallbackContext::Call(context) => {
                let value =
                    decode(&mut **context, &mut self.shared.borrow_mut(), &json["v"]).ok()?;
                context.is_of_type(value, name).ok()
            }
            // Evaluation has ended: only entities and primitive types can be checked.
            CallbackContext::End(view) => match view.program().find_definition(name) {
                Some(Definition::Entity(entity)) => {
                    let id = json["v"].get("$").and_then(|tag| instance(tag.get(1)?))?;
                    let known = id.index() < view.instance_count();
                    Some(known && view.program().is_subtype(view.entity_of(id), entity))
                }
                _ => match Type::primitive(name)? {
                    Type::String => Some(json["v"].is_string()),
                    Type::Int => Some(json["v"].is_i64() || json["v"].is_u64()),
                    Type::Float => Some(json["v"].is_f64()),
                    Type::Number => Some(json["v"].is_number()),
                    Type::Bool => Some(json["v"].is_boolean()),
                    Type::List => Some(json["v"].is_array()),
                    _ => Some(json["v"].is_object()),
                },
            },
        }
    }
}

/// Returns the value of a variable at the top of a namespace.
fn global(view: &dyn InstanceView, namespace: &str, name: &str) -> Option<SlotState> {
    let program = view.program();
    let symbol = |text: &str| program.interner.get(text);
    let namespace = program.namespace_of.get(&symbol(namespace)?)?;
    let cell = program.namespaces[namespace.index()].variables.get(&symbol(name)?)?;
    Some(view.global(*cell))
}

fn instance(json: &Json) -> Option<InstanceId> {
    json.as_u64().and_then(|id| u32::try_from(id).ok()).map(InstanceId)
}

fn no_model(word: &str) -> String {
    format!("the host requested {word} before the model was evaluated")
}

fn error(kind: &str, class: &str, message: &str) -> Json {
    json!({"k": "error", "kind": kind, "class": class, "message": message})
}
