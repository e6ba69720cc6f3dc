//! Types shared by all crates: resource ids, resources, versions, states, changes, handler results
//! and plans.
//!
//! It does no I/O and knows nothing of models, databases or handlers. Start from `ResourceId`,
//! `Resource` and `ResourceState`. Tests are at the end of each file.

mod canonical;
mod change;
mod drift;
mod handler_support;
mod host_inventory;
mod id;
mod install_script;
mod machine_facts;
mod offered_type;
mod outcome;
mod paths;
mod pattern;
mod pip;
mod placement;
mod removal;
mod resource;
mod resource_type;
mod rule;
mod secret;
mod shell;
pub mod similar_names;
mod ssh_address;
mod state;
mod time;
mod typed_id;
mod version;
mod version_number;

pub use change::{AttributeDiff, Change, ChangeKind};
pub use drift::{DriftPolicies, DriftPolicy};
pub use handler_support::HandlerSupport;
pub use host_inventory::{
    HOSTS_MAX, HostInventory, HostValue, HostValueSource, InventoryHost, InventoryIssue,
    InventoryProblem, PathStep,
};
pub use id::{InvalidId, ResourceId, VersionedId};
pub use install_script::{AGENT_UNIT, InstallScript, InstallScriptError, ProgramSource};
pub use machine_facts::{
    MACHINE_FACTS_ENTITY, MACHINE_FACTS_PROBE, MACHINE_FACTS_SCRIPT, MachineFacts, MountFact,
    machine_facts_object,
};
pub use offered_type::{OfferError, OfferedType};
pub use outcome::{Fact, LogLevel, LogLine, Outcome, OutcomeStatus};
pub use paths::{PathCollision, PathIndex, flatten_path, normalize_path, path_collisions};
pub use pattern::{Pattern, matches_wildcards};
pub use pip::PipSettings;
pub use placement::{AddressSource, Deployer, Enrolment, Inventory, Locality, Placement};
pub use removal::{
    DeployedResource, Removal, RetainReason, RetainedResource, plan_removal, purged, wants_absence,
};
pub use resource::{
    AttributeHash, Attributes, InvalidAttributes, Resource, ResourceFlags, SetName, Source,
};
pub use resource_type::{Part, Reach, ResourceType};
pub use rule::{FieldRule, field_rules, parse_permissions};
pub use secret::SecretText;
pub use shell::shell_word;
pub use ssh_address::{
    AddressError, AgentAddress, HostKeyChecking, Privilege, SshAddress, SshOptions,
};
pub use state::{Blocked, Compliance, LastRunStatus, ResourceState, Status};
pub use time::{Duration, InvalidTimestamp, Timestamp};
pub use typed_id::{
    AccountId, BootId, CompileId, DryRunId, EnvironmentId, GatewayId, Id, IdKind, InvitationId,
    NotificationId, ProjectId, RemoteAgentId, RequestId, TokenId, UploaderId, id_kind,
};
pub use version::Version;
pub use version_number::VersionNumber;
