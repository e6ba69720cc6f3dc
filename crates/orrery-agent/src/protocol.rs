//! Messages between a gateway and a remote agent: JSON over a WebSocket, and the two requests
//! around it.
//!
//! Every message is an object with one entry, its name is the type: `{"cancel": {"id": "…"}}`.
//! Receivers ignore unknown fields; an unknown message ends the session. The types here serve the
//! wire only and are converted by hand.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use orrery_model::{
    Change, Fact, LogLevel, LogLine, OfferedType, OutcomeStatus, ResourceFlags, ResourceId,
    SecretText, VersionNumber,
};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use uuid::Uuid;

/// Protocol version. It grows when an older peer would misunderstand.
pub const PROTOCOL: u32 = 1;

/// Maximum size of a message, in bytes.
pub const MESSAGE_MAX: usize = 64 * 1024 * 1024;

/// Path of the enrolment with a token: `POST`, [`JoinRequest`] to [`JoinResponse`].
pub const JOIN_PATH: &str = "/agent/v1/join";

/// Path of the renewal with the certificate: `POST`, [`RenewRequest`] to [`RenewResponse`].
pub const RENEW_PATH: &str = "/agent/v1/renew";

/// Path of the agent's program: `GET`, without credentials.
pub const PROGRAM_PATH: &str = "/agent/v1/program";

/// Path of its description: `GET`, without credentials; [`ProgramInfo`].
pub const PROGRAM_INFO_PATH: &str = "/agent/v1/program/info";

/// Path of the session.
pub const SESSION_PATH: &str = "/agent/v1/session";

/// Messages of the gateway to an agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToAgent {
    /// Response to `hello`.
    Welcome(Welcome),
    /// Ends the session, at its start or later; the connection closes after it.
    Refuse(Refusal),
    Command(Box<Command>),
    /// Cancels a command. A result follows nevertheless.
    Cancel {
        id: Uuid,
    },
    /// The start of the command's change is recorded durably.
    Announced {
        id: Uuid,
    },
    /// Response to `call`.
    Reply(Box<CallReply>),
    Ping,
}

/// Messages of an agent to its gateway.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromAgent {
    /// First message of a session.
    Hello(Hello),
    /// The command is queued or running.
    Accepted {
        id: Uuid,
    },
    /// No capacity: nothing was or will be done.
    Busy {
        id: Uuid,
    },
    /// The command is about to change something, and waits for `announced`.
    Announce {
        id: Uuid,
    },
    /// A running command needs something of the server, and waits for `reply`.
    Call(Box<HandlerCall>),
    Result(Box<CommandResult>),
    /// Nothing was or will be done.
    Rejected {
        id: Uuid,
        code: RejectionCode,
        reason: String,
    },
    /// Files of resources changed, and no command did that. Sent only after a `welcome` with
    /// `drift`.
    Drift(Drift),
    Pong,
}

/// Resources to verify.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drift {
    /// Resources whose files changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<ResourceId>,
    /// True if the agent has seen no changes so far: all resources that it could watch must be
    /// verified, and are watched from then on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unwatched: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    pub protocol: u32,
    pub program_version: String,
    /// Differs between processes of the agent.
    pub boot: Uuid,
    /// Commands that are queued or running.
    pub running: Vec<Uuid>,
    pub machine: Machine,
    /// Resource types of its own, beside those that the server declares.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<OfferedType>,
    /// The agent runs Python handlers, whose code it fetches.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub python: bool,
}

/// Description of the agent's machine, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    pub host_name: String,
    /// `linux`
    pub system: String,
    /// `Debian GNU/Linux 13 (trixie)`, if it says so.
    pub distribution: String,
    /// `x86_64`
    pub architecture: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    pub agent: Uuid,
    /// Number of the session; the highest one of an agent is valid.
    pub session: u64,
    /// Ping interval of the gateway. After three intervals without a byte, either side ends the
    /// session.
    pub heartbeat_seconds: u32,
    /// Addresses of all gateways of the server, for failover.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<String>,
    /// True if the server wants to know of drift.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drift: bool,
}

/// Reason for a refused session or certificate. Also the body of every error response of the
/// gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{reason}")]
pub struct Refusal {
    pub code: RefusalCode,
    /// Problem and remedy, for people.
    pub reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCode {
    /// The agent uses another protocol version.
    Protocol,
    /// The agent was revoked, or never enrolled here. It must not reconnect.
    Revoked,
    /// A newer session of the same agent exists.
    Superseded,
    /// The token is wrong, expired, used by another key, or for other names.
    Token,
    /// The request or message cannot be parsed.
    Unreadable,
    /// The gateway is unavailable or shutting down: reconnect later.
    Unavailable,
    #[serde(other)]
    Other,
}

/// Command to run one handler, with all its inputs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Command {
    /// Unchanged when the command is repeated.
    pub id: Uuid,
    pub environment: Uuid,
    /// Epoch of the lease. Only dry runs have none.
    pub epoch: Option<u64>,
    /// Grows with each command of a sender.
    pub seq: u64,
    pub what: CommandKind,
    pub resource: WireResource,
    /// An earlier run succeeded.
    pub deployed_before: bool,
    /// Requirements that changed since then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed_dependencies: Vec<ResourceId>,
    /// Reason of the run, for people.
    pub reason: String,
    /// Contents that the resource names, by digest.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub contents: BTreeMap<String, WireContent>,
    /// Vault secrets that the resource refers to, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, WireSecret>,
    /// Code of a Python handler; absent for handlers that are part of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<CodeReference>,
    /// An earlier run began an effect that must not be repeated, and its result was lost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unknown_effect: bool,
    /// True if the agent must announce a change and wait for the confirmation.
    pub wants_announcement: bool,
    /// Time limit from its arrival; none if absent.
    pub deadline_ms: Option<u64>,
    /// Log lines below this level are dropped.
    pub log_level: LogLevel,
}

/// Code of a Python handler. The agent fetches it by calls.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CodeReference {
    /// SHA-256 of the description of the code, in hexadecimal digits.
    pub manifest: String,
    /// Environment of the code: a UUID.
    pub environment: String,
}

/// A call of a running command to the server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HandlerCall {
    /// The command.
    pub id: Uuid,
    /// Number of the call. A repeated call has the same one.
    pub call: u64,
    pub method: String,
    pub arguments: Map<String, Value>,
}

/// Response to a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallReply {
    /// The command.
    pub id: Uuid,
    pub call: u64,
    /// Status as in HTTP.
    pub status: u16,
    pub result: Value,
}

/// Kind of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandKind {
    /// Deploy; only report if the flags say so.
    Deploy,
    /// Report the changes that a deploy would make.
    DryRun,
    /// Read its facts.
    Facts,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WireResource {
    pub id: ResourceId,
    /// Canonical JSON, with references to secrets instead of their values.
    pub attributes: String,
    pub version: VersionNumber,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<ResourceId>,
    pub flags: ResourceFlags,
}

/// Result of a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommandResult {
    pub id: Uuid,
    pub outcome: WireOutcome,
    /// A change was announced.
    pub announced: bool,
    /// An effect started, and its outcome is unknown.
    #[serde(default)]
    pub unclear: bool,
    /// A part of the run was lost and repeated; changes of the lost part are unknown.
    pub repeated: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WireOutcome {
    pub status: OutcomeStatus,
    pub change: Change,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<Fact>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<LogLine>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RejectionCode {
    /// A sender with a higher epoch sent a command before.
    Fenced,
    /// This agent has no handler for the resource type.
    UnknownType,
    /// The command is malformed, or for another environment or name.
    Unreadable,
    /// The policy of the machine forbids it.
    Policy,
    /// The agent cannot execute it now, for example with a full disk.
    Unable,
    #[serde(other)]
    Other,
}

/// First request of an agent: a certificate for a token.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JoinRequest {
    pub token: WireSecret,
    /// PEM. The subject is ignored; only the key matters.
    pub csr: String,
    /// Names to serve; all of the invitation if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<Vec<String>>,
    pub machine: Machine,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinResponse {
    pub agent: Uuid,
    pub environment: Uuid,
    pub names: Vec<String>,
    /// PEM.
    pub certificate: String,
    /// PEM.
    pub ca: String,
    /// Validity of the certificate from now.
    pub valid_seconds: u64,
}

/// Requests the next certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewRequest {
    /// PEM, with the same key.
    pub csr: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewResponse {
    /// PEM.
    pub certificate: String,
    /// PEM.
    pub ca: String,
    /// Validity of the certificate from now.
    pub valid_seconds: u64,
}

/// Description of the agent's program that a gateway offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramInfo {
    /// Digest in hexadecimal digits.
    pub sha256: String,
    /// Size in bytes.
    pub size: u64,
    /// `x86_64`
    pub architecture: String,
}

/// Content of a file; base64 on the wire.
#[derive(Clone, PartialEq, Eq)]
pub struct WireContent(pub Arc<[u8]>);

impl fmt::Debug for WireContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WireContent({} bytes)", self.0.len())
    }
}

impl Serialize for WireContent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for WireContent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map(|bytes| WireContent(bytes.into())).map_err(D::Error::custom)
    }
}

/// A secret on the wire: the only type that serializes secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct WireSecret(pub SecretText);

impl Serialize for WireSecret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.expose())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ID: &str = "00000000-0000-0000-0000-000000000007";

    #[test]
    fn messages_have_a_stable_encoding() {
        let id: Uuid = ID.parse().unwrap();
        let encode = |message: &ToAgent| serde_json::to_value(message).unwrap();
        assert_eq!(encode(&ToAgent::Ping), json!("ping"));
        assert_eq!(encode(&ToAgent::Cancel { id }), json!({"cancel": {"id": ID}}));
        let encode_reply = |message: &FromAgent| serde_json::to_value(message).unwrap();
        let rejected =
            FromAgent::Rejected { id, code: RejectionCode::UnknownType, reason: "none".to_owned() };
        let expected = json!({"rejected": {"id": ID, "code": "unknown-type", "reason": "none"}});
        assert_eq!(encode_reply(&rejected), expected);
    }

    #[test]
    fn unknown_fields_and_codes_are_ignored() {
        let text = r#"{"refuse":{"code":"moon_phase","reason":"no","more":[1]}}"#;
        let ToAgent::Refuse(refusal) = serde_json::from_str(text).unwrap() else {
            panic!("{text}")
        };
        assert_eq!(refusal, Refusal { code: RefusalCode::Other, reason: "no".to_owned() });
        assert!(serde_json::from_str::<ToAgent>(r#"{"sing":{}}"#).is_err());
    }

    #[test]
    fn a_command_round_trips_and_does_not_print_its_secrets() {
        let text = json!({"command": {
            "id": ID, "environment": ID, "epoch": 3, "seq": 1, "what": "deploy",
            "resource": {
                "id": "std::File[a,path=/x]", "attributes": r#"{"path":"/x"}"#, "version": 4,
                "flags": {"undefined": false, "send_event": true, "receive_events": true, "report_only": false},
            },
            "deployed_before": false, "reason": "new", "contents": {"d": "AAEC"},
            "secrets": {"db": "hunter2"}, "wants_announcement": true, "deadline_ms": null,
            "log_level": "info",
        }});
        let message: ToAgent = serde_json::from_value(text.clone()).unwrap();
        assert!(!format!("{message:?}").contains("hunter2"));
        assert_eq!(serde_json::to_value(&message).unwrap(), text);
        let ToAgent::Command(command) = message else { panic!("it is a command") };
        assert_eq!(&*command.contents["d"].0, &[0, 1, 2]);
    }
}
