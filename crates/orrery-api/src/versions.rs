//! Versions: the desired state of an environment, as clients upload and read it.

use std::collections::BTreeMap;

use orrery_model::Attributes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::string_enum::string_enums;
use crate::{Operation, SourceLocation, Time};

string_enums! {
    /// Status of a version. `candidate`: newer than the deployed version. `skipped_candidate`:
    /// older and never released.
    pub enum VersionStatus {
        Candidate = "candidate",
        Active = "active",
        Retired = "retired",
        SkippedCandidate = "skipped_candidate",
    }

    /// Kind of a difference between two versions.
    pub enum DifferenceKind {
        Added = "added",
        Deleted = "deleted",
        Modified = "modified",
    }
}

/// A version to store. The command line uploads it, or a compile on the server produces it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VersionUpload {
    /// Number from an earlier reservation. Default: the next number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub number: Option<u64>,
    /// Full desired state, or a change of some resource sets.
    #[serde(default)]
    pub scope: UploadScope,
    /// Resource sets to remove. Only for a partial upload.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed_sets: Vec<String>,
    pub resources: Vec<ResourceUpload>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknowns: Vec<UnknownUpload>,
    /// Origin of the version, for display.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub info: Map<String, Value>,
    /// SHA-1 of a [`CodeBundle`] that was uploaded as a file, if handlers need code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// SHA-1 of contents that handlers request by another id, by that id. Upload them as files
    /// first. A partial upload keeps the entries of the previous version.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// For a partial upload: accepts `code` that differs from the previous version's. The other
    /// resources then run with the new code too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_code_update: bool,
    /// Agents that are the machine on which the server runs handlers: names, with `*` and `?` as
    /// wildcards. A partial upload adds them to those of the previous version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub local_agents: Vec<String>,
    /// SHA-1 of an [`InventoryDocument`](crate::InventoryDocument) that was uploaded as a file. A
    /// partial upload without one keeps that of the previous version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inventory: Option<String>,
    /// Releases the version at once. Default: the environment's `auto_deploy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<bool>,
    /// Stores nothing and returns the newest version if it has the same resources.
    #[serde(default)]
    pub only_if_changed: bool,
    /// For a released version: verifies every resource once, also unchanged ones. The response
    /// contains the operation.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub verify: bool,
    /// Name of the project directory of the model. An environment accepts versions of one project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 255)]
    pub project: Option<String>,
    /// Effect of `project` on the binding of the environment.
    #[serde(default, skip_serializing_if = "UploadBinding::is_default")]
    pub binding: UploadBinding,
    /// For a full upload: adds deployed resources that are not in the upload to the version, to be
    /// removed, dependents first. The response lists them. After the removal, the same upload
    /// without `prune` takes them out of the version.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub prune: bool,
    /// With `prune`: also removes resources that existed before their first recorded deploy,
    /// instead of keeping them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub include_adopted: bool,
}

/// Effect of an upload's project on the binding of the environment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum UploadBinding {
    /// Binds the environment to the project. Refused if it is bound to another one.
    #[default]
    Bind,
    /// Refused if the environment is bound to another project; does not bind it.
    Check,
    /// Binds the environment to the project, replacing any other binding.
    Rebind,
    /// Removes the binding.
    Unbind,
}

impl UploadBinding {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
    fn is_default(&self) -> bool {
        *self == UploadBinding::Bind
    }
}

/// Scope of an upload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum UploadScope {
    /// Everything: resources that are not in the upload leave the desired state.
    #[default]
    Full,
    /// The resource sets in the upload, the removed sets, and additions to the shared set.
    Partial,
}

/// One resource of an upload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResourceUpload {
    /// `std::File[web1,path=/etc/motd]`
    pub id: String,
    #[schema(value_type = Map<String, Value>)]
    pub attributes: Attributes,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<String>,
    /// Absent for the shared set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
    /// True if an attribute is unknown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undefined: bool,
    /// Source location of its definition in the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceLocation>,
}

/// A value that was not available during the compile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UnknownUpload {
    pub name: String,
    /// Resource of the fact. Absent for a parameter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Expected source: `fact`, `plugin`, `user`.
    pub source: String,
}

/// Code that the handlers of a version need: a manifest, and files by SHA-1. The manifest is
/// uploaded as a file itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CodeBundle {
    /// Hash under which it is stored.
    pub hash: String,
    /// Modules, handlers and requirements, for the handler host.
    pub set: Value,
    /// SHA-1 of each file, by path.
    pub files: BTreeMap<String, String>,
}

/// A stored version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VersionSummary {
    /// Increasing; gaps are normal.
    pub number: u32,
    /// Creation time.
    pub created: Time,
    pub status: VersionStatus,
    pub released: bool,
    /// Release time. Absent if it is not released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_at: Option<Time>,
    /// Origin of the version.
    pub info: Value,
    /// Number of resources.
    pub total: u64,
    /// Resources that the previous version lacks.
    pub added: u64,
    /// Resources that differ from the previous version.
    pub changed: u64,
    /// Resources that only the previous version has.
    pub removed: u64,
    /// `yes` if it is released and the engine has not accepted it yet.
    pub transitioning: crate::Transitioning,
    /// Current activity.
    pub transitioning_message: String,
    /// Available actions.
    pub actions: crate::Actions,
}

/// Result of storing a version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VersionStored {
    #[serde(flatten)]
    pub version: VersionSummary,
    /// False if the newest version has the same resources, so that nothing was stored.
    pub created_now: bool,
    /// Operation that was created with the version: the verification of all resources, or the
    /// deploy of a roll-back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Operation>,
    /// Resources that were deployed, may still exist, and are not in the version.
    #[serde(default, skip_serializing_if = "UnmanagedResources::is_empty")]
    pub unmanaged: UnmanagedResources,
    /// Removals by the version, if the upload requested them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removal: Option<RemovalPlan>,
    /// Project that the environment was bound to before the upload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebound_from: Option<String>,
}

/// Resources that were deployed and are unmanaged now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnmanagedResources {
    pub total: u64,
    /// Number of those that an upload with `prune` can remove.
    pub removable: u64,
    /// The first ids.
    #[schema(max_items = 100)]
    pub ids: Vec<String>,
}

impl UnmanagedResources {
    /// Maximum number of ids in a response.
    pub const IDS_MAX: usize = 100;

    pub fn is_empty(&self) -> bool {
        self.total == 0
    }
}

/// Removals by a version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RemovalPlan {
    /// Ids of the resources to remove, in a valid order.
    pub removed: Vec<String>,
    /// Unmanaged resources that cannot be removed.
    pub kept: Vec<KeptResource>,
}

/// An unmanaged resource that cannot be removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeptResource {
    pub id: String,
    /// Reason.
    pub reason: String,
    /// Returns an argument, if it is present and not null.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopted: bool,
}

/// Operation to create in one step with a release or a roll-back, so that each resource runs once.
/// The response contains the operation. Without one, the version is released and nothing reports
/// the end of its deploy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseRequest {
    /// Deploys all resources that are not compliant, also those that the version does not change.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deploy: bool,
    /// Verifies every resource, as `verify` in an upload does. Includes `deploy`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub verify: bool,
}

/// Result of releasing a version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VersionReleased {
    #[serde(flatten)]
    pub version: VersionSummary,
    /// Operation that was created with the release, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Operation>,
}

/// Reserved number of a later version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReservedVersion {
    pub number: u32,
}

/// Returns the desired state of a resource in a version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VersionResource {
    pub id: String,
    pub attributes: Map<String, Value>,
    pub requires: Vec<String>,
    /// Absent for the shared set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
    /// True if an attribute is unknown.
    pub undefined: bool,
}

/// Number of differences between two versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DifferenceCounts {
    pub added: u64,
    pub modified: u64,
    pub deleted: u64,
}

/// A resource that differs between two versions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ResourceDifference {
    pub id: String,
    pub status: DifferenceKind,
    /// Differing attributes: `current` is the value in the first version, `desired` that in the
    /// second.
    pub changes: Vec<crate::AttributeChange>,
    /// Requirements of the second version only.
    pub requires_added: Vec<String>,
    /// Requirements of the first version only.
    pub requires_removed: Vec<String>,
    /// Source location in the later version that has the resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceLocation>,
}
