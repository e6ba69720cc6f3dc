//! The protocol page and its schema agree with the types of the protocol, both ways: every message
//! has a schema and an example, every example fits its schema and its type, and what the types
//! serialize fits the schema.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use orrery_agent::protocol::{
    Command, CommandKind, FromAgent, JoinRequest, JoinResponse, PROTOCOL, ProgramInfo, Refusal,
    RefusalCode, RejectionCode, RenewRequest, RenewResponse, ToAgent,
};
use orrery_model::{ChangeKind, LogLevel, OutcomeStatus};
use orrery_testing::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::commands::pause;

const PAGE: &str = include_str!("../../../../docs/reference/agent-protocol.md");
const SCHEMA: &str = include_str!("../../../../docs/reference/agent-protocol.schema.json");

static PARSED: LazyLock<JsonSchema> =
    LazyLock::new(|| JsonSchema::parse(SCHEMA).unwrap_or_else(|error| panic!("{error}")));

/// Panics if a message of the gateway does not fit the schema exactly.
pub(crate) fn check_to_agent(message: &Value) {
    check("to_agent", message);
}

/// Panics if a message of an agent does not fit the schema exactly.
pub(crate) fn check_from_agent(message: &Value) {
    check("from_agent", message);
}

pub(crate) fn check(definition: &str, value: &Value) {
    let checked = PARSED.validate_exactly(definition, value, &mut BTreeSet::new());
    checked.unwrap_or_else(|error| panic!("{definition}: {error}\n{value}"));
}

/// Examples of the page: the definition that each one names, and its value.
fn examples() -> Vec<(&'static str, Value)> {
    let marked = PAGE.split("<!-- example: ").skip(1);
    let example = |text: &'static str| {
        let (name, rest) = text.split_once(" -->").unwrap();
        let fence = rest.trim_start().strip_prefix("```json\n").unwrap_or_else(|| panic!("{name}"));
        let (body, _) = fence.split_once("\n```").unwrap();
        (name, serde_json::from_str(body).unwrap_or_else(|error| panic!("{name}: {error}")))
    };
    marked.map(example).collect()
}

/// Names of all variants, from the error about an unknown one.
fn variants<T: DeserializeOwned>() -> Vec<String> {
    let error = serde_json::from_value::<T>(json!("no such message")).err().unwrap().to_string();
    let names: Vec<String> = error.split('`').skip(3).step_by(2).map(str::to_owned).collect();
    assert!(names.len() > 3, "{error}");
    names
}

/// Reads a value as a type and returns what that type serializes.
fn round_trip<T: DeserializeOwned + Serialize>(value: &Value) -> Value {
    let read: T = serde_json::from_value(value.clone()).unwrap_or_else(|error| {
        panic!("{} does not accept {value}: {error}", std::any::type_name::<T>())
    });
    serde_json::to_value(read).unwrap()
}

#[test]
fn every_message_has_a_schema_and_an_example() {
    let named: BTreeSet<&str> = examples().into_iter().map(|(name, _)| name).collect();
    let defined: BTreeSet<&str> = PARSED.definitions().collect();
    let bodies = [
        "join_request",
        "join_response",
        "renew_request",
        "renew_response",
        "program_info",
        "refusal",
    ];
    let messages = variants::<ToAgent>().into_iter().chain(variants::<FromAgent>());
    for name in messages.chain(bodies.map(str::to_owned)) {
        assert!(defined.contains(&*name), "{name} has no schema");
        assert!(named.contains(&*name), "{name} has no example on the page");
    }
    for (direction, count) in
        [("to_agent", variants::<ToAgent>().len()), ("from_agent", variants::<FromAgent>().len())]
    {
        let root: Value = serde_json::from_str(SCHEMA).unwrap();
        assert_eq!(root["$defs"][direction]["oneOf"].as_array().unwrap().len(), count);
    }
}

#[test]
fn every_example_fits_its_schema_and_its_type() {
    for (name, value) in examples() {
        check(name, &value);
        let read = match name {
            "join_request" => round_trip::<JoinRequest>(&value),
            "join_response" => round_trip::<JoinResponse>(&value),
            "renew_request" => round_trip::<RenewRequest>(&value),
            "renew_response" => round_trip::<RenewResponse>(&value),
            "refusal" => round_trip::<Refusal>(&value),
            "program_info" => round_trip::<ProgramInfo>(&value),
            name if variants::<ToAgent>().iter().any(|known| known == name) => {
                check_to_agent(&value);
                round_trip::<ToAgent>(&value)
            }
            _ => {
                check_from_agent(&value);
                round_trip::<FromAgent>(&value)
            }
        };
        // A member that the type does not know would be lost here.
        assert_eq!(read, value, "{name}");
    }
}

#[test]
fn the_examples_use_every_member_of_the_schema() {
    let mut seen = BTreeSet::new();
    for (name, value) in examples() {
        PARSED.validate_exactly(name, &value, &mut seen).unwrap();
    }
    let unused: Vec<String> = PARSED.members().difference(&seen).cloned().collect();
    assert_eq!(unused, Vec::<String>::new());
}

#[test]
fn every_code_and_status_of_the_types_is_in_the_schema() {
    let (_, result) = examples().into_iter().find(|(name, _)| *name == "result").unwrap();
    for status in OutcomeStatus::ALL {
        let mut result = result.clone();
        result["result"]["outcome"]["status"] = json!(status);
        check_from_agent(&result);
    }
    for kind in ChangeKind::ALL {
        let mut result = result.clone();
        result["result"]["outcome"]["change"]["kind"] = json!(kind);
        check_from_agent(&result);
    }
    for level in LogLevel::ALL {
        check("log_level", &json!(level));
    }
    for code in refusal_codes() {
        check("refusal", &json!(Refusal { code, reason: String::new() }));
    }
    for code in rejection_codes() {
        let id = uuid::Uuid::nil();
        check_from_agent(&json!(FromAgent::Rejected { id, code, reason: String::new() }));
    }
    for what in [CommandKind::Deploy, CommandKind::DryRun, CommandKind::Facts] {
        check_to_agent(&json!(ToAgent::Command(Box::new(Command { what, ..pause("a", 0) }))));
    }
    let (_, hello) = examples().into_iter().find(|(name, _)| *name == "hello").unwrap();
    assert_eq!(hello["hello"]["protocol"], PROTOCOL);
}

/// All codes of a refusal. The match fails to compile when one is added.
fn refusal_codes() -> [RefusalCode; 7] {
    use RefusalCode::{Other, Protocol, Revoked, Superseded, Token, Unavailable, Unreadable};
    match Other {
        Protocol | Revoked | Superseded | Token | Unreadable | Unavailable | Other => {
            [Protocol, Revoked, Superseded, Token, Unreadable, Unavailable, Other]
        }
    }
}

/// All codes of a rejection. The match fails to compile when one is added.
fn rejection_codes() -> [RejectionCode; 6] {
    use RejectionCode::{Fenced, Other, Policy, Unable, UnknownType, Unreadable};
    match Other {
        Fenced | UnknownType | Unreadable | Policy | Unable | Other => {
            [Fenced, UnknownType, Unreadable, Policy, Unable, Other]
        }
    }
}
