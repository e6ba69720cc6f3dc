//! Typed ids: UUIDs that name one kind of object each.
//!
//! An id of one kind is not accepted where another kind is expected:
//!
//! ```compile_fail
//! use orrery_model::{AccountId, ProjectId};
//!
//! fn delete_account(account: AccountId) {
//!     drop(account);
//! }
//! let project: ProjectId = "6c4c3d0e-8a52-4c3c-9c3b-0d2c1c1b9a10".parse().unwrap();
//! delete_account(project);
//! ```

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

/// Kind of object that an id names.
pub trait IdKind {
    /// Name of the id's type, for `Debug`.
    const NAME: &'static str;
}

/// UUID of an object of one kind. As text, it is hyphenated and in lower case.
pub struct Id<K> {
    uuid: Uuid,
    kind: PhantomData<fn() -> K>,
}

impl<K> Id<K> {
    /// Id with the given UUID. For the edges of the system, where ids arrive without their kind.
    pub const fn new(uuid: Uuid) -> Self {
        Id { uuid, kind: PhantomData }
    }

    pub const fn uuid(self) -> Uuid {
        self.uuid
    }

    /// Id with the given bytes, as the store keeps them.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Id::new(Uuid::from_bytes(bytes))
    }

    /// Bytes of the id, as the store keeps them.
    pub const fn into_bytes(self) -> [u8; 16] {
        self.uuid.into_bytes()
    }
}

/// Declares kinds of ids: a marker type and the id type of each.
macro_rules! id_kinds {
    ($($(#[$doc:meta])* $id:ident of $kind:ident;)+) => {
        /// Marker types of [`Id`], one per kind of object.
        pub mod id_kind {
            $(
                #[doc = concat!("Kind of [`", stringify!($id), "`](super::", stringify!($id), ").")]
                #[derive(Debug)]
                pub enum $kind {}

                impl super::IdKind for $kind {
                    const NAME: &'static str = stringify!($id);
                }
            )+
        }

        $($(#[$doc])* pub type $id = Id<id_kind::$kind>;)+
    };
}

id_kinds! {
    /// Id of an environment.
    EnvironmentId of Environment;
    /// Id of a project, which owns environments.
    ProjectId of Project;
    /// Id of a user's account.
    AccountId of Account;
    /// Id of an access token.
    TokenId of Token;
    /// Id of a compile.
    CompileId of Compile;
    /// Id of a request to an engine; the API calls it an operation.
    RequestId of Request;
    /// Id of a notification.
    NotificationId of Notification;
    /// Id of a dry run.
    DryRunId of DryRun;
    /// Id of an enrolled remote agent.
    RemoteAgentId of RemoteAgent;
    /// Id of an invitation for remote agents.
    InvitationId of Invitation;
    /// Id of a gateway process.
    GatewayId of Gateway;
    /// Id of one start of a remote agent's process.
    BootId of Boot;
    /// Id of the uploader of contents: an account, or a caller without one.
    UploaderId of Uploader;
}

impl<K> Clone for Id<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Id<K> {}

impl<K> PartialEq for Id<K> {
    fn eq(&self, other: &Self) -> bool {
        self.uuid == other.uuid
    }
}

impl<K> Eq for Id<K> {}

impl<K> PartialOrd for Id<K> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<K> Ord for Id<K> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.uuid.cmp(&other.uuid)
    }
}

impl<K> Hash for Id<K> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.uuid.hash(state);
    }
}

impl<K> fmt::Display for Id<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.uuid, f)
    }
}

impl<K: IdKind> fmt::Debug for Id<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", K::NAME, self.uuid)
    }
}

impl<K> FromStr for Id<K> {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, uuid::Error> {
        text.parse().map(Id::new)
    }
}

impl<K> Serialize for Id<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.uuid.serialize(serializer)
    }
}

impl<'de, K> Deserialize<'de> for Id<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Uuid::deserialize(deserializer).map(Id::new)
    }
}

impl<K> From<Uuid> for Id<K> {
    fn from(uuid: Uuid) -> Self {
        Id::new(uuid)
    }
}

impl<K> From<Id<K>> for Uuid {
    fn from(id: Id<K>) -> Self {
        id.uuid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "6c4c3d0e-8a52-4c3c-9c3b-0d2c1c1b9a10";

    #[test]
    fn text_is_hyphenated_and_round_trips() {
        let id: EnvironmentId = TEXT.parse().unwrap();
        assert_eq!(id.to_string(), TEXT);
        assert_eq!(serde_json::to_string(&id).unwrap(), format!("\"{TEXT}\""));
        assert_eq!(serde_json::from_str::<EnvironmentId>(&format!("\"{TEXT}\"")).unwrap(), id);
        assert!("6c4c".parse::<EnvironmentId>().is_err());
    }

    #[test]
    fn bytes_round_trip_and_keep_the_order() {
        let (low, high) = (ProjectId::from_bytes([1; 16]), ProjectId::from_bytes([2; 16]));
        assert!(low < high);
        assert_eq!(ProjectId::from_bytes(low.into_bytes()), low);
    }

    #[test]
    fn debug_names_the_kind() {
        let id: AccountId = TEXT.parse().unwrap();
        assert_eq!(format!("{id:?}"), format!("AccountId({TEXT})"));
    }
}
