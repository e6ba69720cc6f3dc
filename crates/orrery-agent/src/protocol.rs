//! The messages between a gateway and a remote agent: JSON texts over a WebSocket, and the two requests around it.
//!
//! Every message is an object with one entry whose name says what it is: `{"cancel": {"id": "…"}}`. Entries that a receiver does not know are
//! passed over; a message that it does not know ends the session. The types here are for the wire alone and are converted by hand.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use orrery_model::{
    Change, Fact, LogLevel, LogLine, OutcomeStatus, ResourceFlags, ResourceId, SecretText,
    VersionNumber,
};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

/// The number of this protocol. It grows when an older side would misunderstand.
pub const PROTOCOL: u32 = 1;

/// No message is longer, in bytes.
pub const MESSAGE_MAX: usize = 64 * 1024 * 1024;

/// Where an agent asks for its certificate, with a token: `POST`, [`JoinRequest`] to [`JoinAnswer`].
pub const JOIN_PATH: &str = "/agent/v1/join";

/// Where it asks for the next one, with its certificate: `POST`, [`RenewRequest`] to [`RenewAnswer`].
pub const RENEW_PATH: &str = "/agent/v1/renew";

/// Where its session is.
pub const SESSION_PATH: &str = "/agent/v1/session";

/// What a gateway tells an agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToAgent {
    /// The answer to `hello`.
    Welcome(Welcome),
    /// The session ends here, at its beginning or later; the connection is closed after it.
    Refuse(Refusal),
    Command(Box<Command>),
    /// Whoever asked no longer wants it. There is a result nevertheless.
    Cancel {
        id: Uuid,
    },
    /// It is durably noted that the command begins to change something.
    Announced {
        id: Uuid,
    },
    Ping,
}

/// What an agent tells its gateway.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromAgent {
    /// The first message of a session.
    Hello(Hello),
    /// The command waits for its turn, or runs.
    Accepted {
        id: Uuid,
    },
    /// There is no room for it: nothing was done, and nothing will be.
    Busy {
        id: Uuid,
    },
    /// It is about to change something, and waits for `announced`.
    Announce {
        id: Uuid,
    },
    Result(Box<Answer>),
    /// Nothing was done, and nothing will be.
    Rejected {
        id: Uuid,
        code: RejectionCode,
        reason: String,
    },
    Pong,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    pub protocol: u32,
    pub program_version: String,
    /// Differs from one start of the agent's process to the next.
    pub boot: Uuid,
    /// Commands that wait or run.
    pub running: Vec<Uuid>,
    pub machine: Machine,
}

/// What an agent says about the machine that it is on, for people.
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
    /// Of all sessions of an agent, the one with the highest number counts.
    pub session: u64,
    /// The gateway sends a ping so often; after three times without a byte either side ends the session.
    pub heartbeat_seconds: u32,
}

/// Why there is no session, or no certificate. Also the body of every answer of the gateway that is no success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{reason}")]
pub struct Refusal {
    pub code: RefusalCode,
    /// For people: what is wrong, and what to do.
    pub reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCode {
    /// The agent speaks another protocol.
    Protocol,
    /// The agent was revoked, or never enrolled here. It must not come again.
    Revoked,
    /// There is a newer session of the same agent.
    Superseded,
    /// The token is wrong, expired, used by another key, or for other names.
    Token,
    /// The request or message cannot be read.
    Unreadable,
    /// The gateway cannot serve anybody at present, or is about to end: come again.
    Unavailable,
    #[serde(other)]
    Other,
}

/// One run of a handler that is asked for, with all that it needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Command {
    /// The same when it is sent again.
    pub id: Uuid,
    pub environment: Uuid,
    /// The epoch of the lease under which it is asked for. Only dry runs are asked for without.
    pub epoch: Option<u64>,
    /// Grows from one command to the next of whoever asks.
    pub seq: u64,
    pub what: What,
    pub resource: WireResource,
    /// An earlier run ended well.
    pub deployed_before: bool,
    /// Requirements that changed something since then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed_dependencies: Vec<ResourceId>,
    /// Why it is run, for people.
    pub reason: String,
    /// Every content that the resource names, by its digest.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub contents: BTreeMap<String, Content>,
    /// Every secret of the server's store that the resource refers to, by its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, Secret>,
    /// Whether it has to be noted before something is changed.
    pub wants_announcement: bool,
    /// How long it may take, counted from its arrival; without, as long as it wants.
    pub deadline_ms: Option<u64>,
    /// Lines of the log below it are not wanted.
    pub log_level: LogLevel,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Bring it to what is wanted; only report on it if its flags say so.
    Deploy,
    /// Say what would be done.
    DryRun,
    /// Say what is known of it.
    Facts,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WireResource {
    pub id: ResourceId,
    /// The canonical JSON text, with places for secrets and not the secrets themselves.
    pub attributes: String,
    pub version: VersionNumber,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<ResourceId>,
    pub flags: ResourceFlags,
}

/// What a command came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    pub id: Uuid,
    pub outcome: WireOutcome,
    /// A change was announced.
    pub announced: bool,
    /// Something was begun, and nobody knows whether it was done.
    #[serde(default)]
    pub unclear: bool,
    /// A part of the run was lost and repeated: nobody knows what it had changed.
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
    /// Somebody with a higher epoch has asked for something already.
    Fenced,
    /// This agent has no handler for such resources.
    UnknownType,
    /// The command makes no sense to this agent, or is for another environment or name.
    Unreadable,
    /// The agent cannot at present: its disk may be full.
    Unable,
    #[serde(other)]
    Other,
}

/// The first request of an agent: a certificate for a token.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JoinRequest {
    pub token: Secret,
    /// PEM. Its subject is passed over; what counts is the key.
    pub csr: String,
    /// The names that it wants to serve; without, all of the invitation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<Vec<String>>,
    pub machine: Machine,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinAnswer {
    pub agent: Uuid,
    pub environment: Uuid,
    pub names: Vec<String>,
    /// PEM.
    pub certificate: String,
    /// PEM.
    pub ca: String,
    /// How long the certificate is good for, counted from now.
    pub valid_seconds: u64,
}

/// Asks for the next certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewRequest {
    /// PEM, of the same key.
    pub csr: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewAnswer {
    /// PEM.
    pub certificate: String,
    /// PEM.
    pub ca: String,
    /// How long the certificate is good for, counted from now.
    pub valid_seconds: u64,
}

/// The content of a file; base64 on the wire.
#[derive(Clone, PartialEq, Eq)]
pub struct Content(pub Arc<[u8]>);

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Content({} bytes)", self.0.len())
    }
}

impl Serialize for Content {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map(|bytes| Content(bytes.into())).map_err(D::Error::custom)
    }
}

/// A secret on its way: the one place where secrets are serialized.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub SecretText);

impl Serialize for Secret {
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
    fn messages_have_the_form_that_the_other_side_expects() {
        let id: Uuid = ID.parse().unwrap();
        let told = |message: &ToAgent| serde_json::to_value(message).unwrap();
        assert_eq!(told(&ToAgent::Ping), json!("ping"));
        assert_eq!(told(&ToAgent::Cancel { id }), json!({"cancel": {"id": ID}}));
        let said = |message: &FromAgent| serde_json::to_value(message).unwrap();
        let rejected =
            FromAgent::Rejected { id, code: RejectionCode::UnknownType, reason: "none".to_owned() };
        let expected = json!({"rejected": {"id": ID, "code": "unknown-type", "reason": "none"}});
        assert_eq!(said(&rejected), expected);
    }

    #[test]
    fn entries_and_codes_of_a_newer_side_are_passed_over() {
        let text = r#"{"refuse":{"code":"moon_phase","reason":"no","more":[1]}}"#;
        let ToAgent::Refuse(refusal) = serde_json::from_str(text).unwrap() else {
            panic!("{text}")
        };
        assert_eq!(refusal, Refusal { code: RefusalCode::Other, reason: "no".to_owned() });
        assert!(serde_json::from_str::<ToAgent>(r#"{"sing":{}}"#).is_err());
    }

    #[test]
    fn a_command_survives_the_way_and_does_not_print_its_secrets() {
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
