//! What a host asks while it works, and the answers.

use orrery_compiler::host::{HostContext, Slot, View};
use orrery_compiler::program::{Definition, Type};
use orrery_compiler::value::{InstanceId, Value};
use serde_json::{Value as Json, json};

use crate::session::{Ping, Pong};
use crate::wire::parse;

use super::CompileHost;
use super::values::{decode, encode, encode_blocks, encode_slot, instances_in};

/// Who is there to answer.
pub(super) enum Asked<'a> {
    /// Nobody: code is being loaded.
    Nothing,
    /// A statement that calls a plugin.
    Call(&'a mut dyn HostContext),
    /// The model at its end.
    End(&'a dyn View),
}

impl Asked<'_> {
    fn view(&self) -> Option<&dyn View> {
        match self {
            Asked::Nothing => None,
            Asked::Call(context) => Some(&**context),
            Asked::End(view) => Some(*view),
        }
    }
}

/// The namespace of the file that a compile starts from.
const MAIN_NAMESPACE: &str = "__config__";
const ABSENT: &[u8] = b"{\"k\":\"absent\"}";

impl CompileHost {
    /// Answers a question, or takes notice of what needs no answer.
    pub(super) fn answer(
        &self,
        word: &str,
        line: &[u8],
        asked: &mut Asked<'_>,
    ) -> Result<(), String> {
        let json: Json = parse(line).map_err(|error| error.to_string())?;
        let text = |name: &str| json[name].as_str().unwrap_or_default();
        match word {
            "get" => {
                let ids = json["i"].as_array().map_or(&[][..], Vec::as_slice);
                let ids: Vec<InstanceId> = ids.iter().filter_map(instance).collect();
                let view = asked.view().ok_or_else(|| no_model(word))?;
                self.send(|out| {
                    out.extend_from_slice(b"{\"k\":\"got\",\"x\":");
                    encode_blocks(view, &mut self.shared.borrow_mut(), ids, out);
                    out.push(b'}');
                })
            }
            "lookup" => self.look_up(text("name"), json["ns"].as_str(), asked),
            "plugin" => self.call_another(&json, asked),
            "is_type" => match self.is_type(&json, asked) {
                Some(is) => self.send_json(&json!({"k": "is", "v": is})),
                None => self.send_raw(ABSENT),
            },
            "instances" => {
                let view = asked.view().ok_or_else(|| no_model(word))?;
                let wanted = json["type"].as_str();
                let of = wanted.and_then(|name| view.program().find_definition(name));
                let ids: Vec<u32> = (0..view.instance_count() as u32)
                    .filter(|&id| match (wanted, of) {
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
                let view = asked.view().ok_or_else(|| no_model(word))?;
                let known = instance(&json["i"]).filter(|id| id.index() < view.instance_count());
                let Some(id) = known else { return self.send_raw(ABSENT) };
                let loc = view.constructed_at(id);
                let (line, _) = view.sources().line_col(loc);
                let file = &view.sources().file(loc.file).name;
                let text = view.described(id);
                self.send_json(&json!({"k": "where", "file": file, "line": line, "text": text}))
            }
            "server" => {
                let (code, result) = (self.server)(text("method"), &json["args"]);
                let number = &json["q"];
                self.send_json(&json!({"k": "reply", "q": number, "code": code, "result": result}))
            }
            "print" => {
                match asked {
                    Asked::Call(context) => context.write_output(text("text")),
                    Asked::Nothing | Asked::End(_) => {
                        self.output.borrow_mut().push_str(text("text"));
                    }
                }
                Ok(())
            }
            "warn" => {
                match asked {
                    Asked::Call(context) => context.warn(text("text")),
                    Asked::Nothing | Asked::End(_) => {
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
                self.on_wire(|connection| connection.writer.send(&Pong { k: "pong", n: ping.n }))
            }
            "pong" => Ok(()),
            other => Err(self.give_up(&format!("it sent {other:?}, which nobody waits for"))),
        }
    }

    /// A variable as the caller sees it, or one at the top of a namespace.
    fn look_up(
        &self,
        name: &str,
        namespace: Option<&str>,
        asked: &Asked<'_>,
    ) -> Result<(), String> {
        let Some(view) = asked.view() else { return self.send_raw(ABSENT) };
        let (slot, owner) = match (namespace, asked) {
            (None, Asked::Call(context)) => {
                (context.variable_slot(name), context.variable_owner(name))
            }
            (namespace, _) => (global(view, namespace.unwrap_or(MAIN_NAMESPACE), name), None),
        };
        let Some(slot) = slot else { return self.send_raw(ABSENT) };
        self.send(|out| {
            let shared = &mut *self.shared.borrow_mut();
            out.extend_from_slice(b"{\"k\":\"found\",\"v\":");
            encode_slot(view.values(), shared, slot, out);
            if let (Slot::Empty, Some((instance, _))) = (slot, owner) {
                out.extend_from_slice(b",\"i\":");
                out.extend_from_slice(instance.0.to_string().as_bytes());
            }
            out.extend_from_slice(b",\"x\":");
            let inside = match slot {
                Slot::Value(value) => instances_in(view.values(), &[value]),
                Slot::Pending(_) | Slot::Empty => Vec::new(),
            };
            encode_blocks(view, shared, inside, out);
            out.push(b'}');
        })
    }

    fn send_raw(&self, message: &[u8]) -> Result<(), String> {
        self.send(|out| out.extend_from_slice(message))
    }

    /// Ends a conversation that makes no sense.
    pub(super) fn give_up(&self, reason: &str) -> String {
        let text = format!("the host was ended: {reason}");
        *self.connection.borrow_mut() = None;
        *self.lost.borrow_mut() = Some(text.clone());
        text
    }

    /// A plugin that a plugin calls, wherever it is written.
    fn call_another(&self, json: &Json, asked: &mut Asked<'_>) -> Result<(), String> {
        let Asked::Call(context) = asked else {
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
        outcome: orrery_compiler::plugins::Outcome,
        view: &dyn View,
    ) -> Result<(), String> {
        use orrery_compiler::plugins::Failure;
        let outcome = outcome.map_err(|failure| match failure {
            Failure::NotHere(failure) => failure.plain(),
            other => other.plain(),
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
            Err(Failure::Unknown(_)) => error("runtime", "", "an unknown that is none"),
            Err(Failure::Optional { relation, instance, .. }) => {
                let name = relation.rsplit('.').next().unwrap_or_default();
                json!({"k": "optional", "i": instance.0, "name": name})
            }
            Err(Failure::NotHere(_) | Failure::InFile(_)) => {
                error("runtime", "", "it cannot be done")
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

    /// Whether a value is of a type; `None` if there is no such type.
    fn is_type(&self, json: &Json, asked: &mut Asked<'_>) -> Option<bool> {
        let name = json["type"].as_str()?;
        match asked {
            Asked::Nothing => None,
            Asked::Call(context) => {
                let value =
                    decode(&mut **context, &mut self.shared.borrow_mut(), &json["v"]).ok()?;
                context.is_of_type(value, name).ok()
            }
            // Nothing is evaluated any more: entities and plain types can still be told.
            Asked::End(view) => match view.program().find_definition(name) {
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

/// What a variable at the top of a namespace's file holds.
fn global(view: &dyn View, namespace: &str, name: &str) -> Option<Slot> {
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
    format!("the host asked for {word} before there was a model")
}

fn error(kind: &str, class: &str, message: &str) -> Json {
    json!({"k": "error", "kind": kind, "class": class, "message": message})
}
