//! Versions: what a model, a template or a person wants, as it is sent to a server.

use std::collections::BTreeMap;

use orrery_model::Attributes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::Operation;

/// A version to be stored. The command line sends it, and a compile on the server makes it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VersionUpload {
    /// A number that was reserved before; the server takes the next one if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub number: Option<u64>,
    /// All that is wanted, or a change of some sets.
    #[serde(default)]
    pub scope: UploadScope,
    /// Sets that are to go; only for a change of some sets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed_sets: Vec<String>,
    pub resources: Vec<ResourceUpload>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknowns: Vec<UnknownUpload>,
    /// Who or what made it, for people.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub info: Map<String, Value>,
    /// The SHA-1 of a [`CodeBundle`] that was uploaded as a file, if handlers are in code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Contents that handlers ask for by other ids than their SHA-1: the SHA-1 of each, by id. They were uploaded as files. For a
    /// change of some sets, those of the version before stay.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// Only for a change of some sets: take `code` although it is not that of the version before, whose other resources then
    /// run with it too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_code_update: bool,
    /// Agents that are the machine on which the server runs handlers, as the project declares them: names, with `*` and `?` as wildcards.
    /// A change of some sets adds them to those of the version before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub local_agents: Vec<String>,
    /// Whether it is released at once; as the environment's `auto_deploy` says if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<bool>,
    /// Store nothing and answer with the newest version if that has the same resources.
    #[serde(default)]
    pub only_if_changed: bool,
    /// Only for what is released: every resource is looked at, also those that the version does not change, and each of them once.
    /// The answer names the operation.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub verify: bool,
    /// The name of the project that the model belongs to. An environment takes versions of one project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 255)]
    pub project: Option<String>,
    /// What that means to the environment.
    #[serde(default, skip_serializing_if = "UploadBinding::is_usual")]
    pub binding: UploadBinding,
    /// Only for all that is wanted: what was deployed and is not in the upload is added to the version so that it is removed,
    /// dependents first. The answer says what. When it is removed, the same upload without this takes it out of the version.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub prune: bool,
    /// With `prune`: what existed before its first recorded deploy is removed as well, instead of being left in place.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub include_adopted: bool,
}

/// What the project of an upload means to the environment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum UploadBinding {
    /// The environment is bound to the project, unless it is bound to another one: then nothing is stored.
    #[default]
    Bind,
    /// Nothing is stored if the environment is bound to another project; it is not bound.
    Check,
    /// The environment is bound to the project, whatever it was bound to.
    Rebind,
    /// The environment is bound to no project afterwards.
    Unbind,
}

impl UploadBinding {
    fn is_usual(&self) -> bool {
        *self == UploadBinding::Bind
    }
}

/// What an upload says something about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum UploadScope {
    /// Everything: what is not in it is not wanted any more.
    #[default]
    Full,
    /// The sets that occur in it, the removed sets, and additions to the shared set.
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
    /// An attribute is not known yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undefined: bool,
    /// Where the model defines it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourcePlace>,
}

/// A place in a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SourcePlace {
    pub file: String,
    pub line: u32,
    pub column: u32,
}

/// Something that a compile could not know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UnknownUpload {
    pub name: String,
    /// The resource whose fact it is; absent for a parameter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// What would tell: `fact`, `plugin`, `user`.
    pub source: String,
}

/// The code that handlers of a version need: a description, and files by their SHA-1. It is uploaded as a file itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CodeBundle {
    /// The name under which it is kept.
    pub hash: String,
    /// Modules, handlers and requirements, as the host of the code knows them.
    pub set: Value,
    /// SHA-1 of each file, by its path.
    pub files: BTreeMap<String, String>,
}

/// A stored version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VersionSummary {
    /// Numbers grow; gaps are normal.
    pub number: u32,
    /// When it was made.
    pub created: String,
    /// `candidate` (newer than what is being deployed), `active`, `retired`, or `skipped_candidate` (older, and never
    /// released).
    pub status: String,
    pub released: bool,
    /// When it was released; absent if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_at: Option<String>,
    /// Who or what made it.
    pub info: Value,
    /// Resources in it.
    pub total: u64,
    /// Resources that the version stored before it did not have.
    pub added: u64,
    /// Resources that differ from the version stored before it.
    pub changed: u64,
    /// Resources that only the version stored before it had.
    pub removed: u64,
    /// Whether it is released and not yet taken in by the engine.
    pub transitioning: crate::Transitioning,
    /// What is happening to it.
    pub transitioning_message: String,
    /// What can be done with it now.
    pub actions: crate::Actions,
}

/// What storing a version came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VersionStored {
    #[serde(flatten)]
    pub version: VersionSummary,
    /// False if the newest version had the same resources, and nothing was stored.
    pub created_now: bool,
    /// What was asked for along with it: what ends when every resource was looked at, if the upload wanted that, or what a roll-back
    /// asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Operation>,
    /// What was deployed, may still exist, and is in no version any more.
    #[serde(default, skip_serializing_if = "UnmanagedResources::is_empty")]
    pub unmanaged: UnmanagedResources,
    /// What the version removes, if the upload asked for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removal: Option<RemovalPlan>,
    /// The project that the environment was bound to until the upload took it over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebound_from: Option<String>,
}

/// Resources that were deployed and that nothing manages any more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnmanagedResources {
    pub total: u64,
    /// Those of them that an upload with `prune` can remove.
    pub removable: u64,
    /// The first of their ids.
    #[schema(max_items = 100)]
    pub ids: Vec<String>,
}

impl UnmanagedResources {
    /// Ids that are told at most.
    pub const IDS_MAX: usize = 100;

    pub fn is_empty(&self) -> bool {
        self.total == 0
    }
}

/// What a version removes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RemovalPlan {
    /// Ids of the resources that are removed, in an order in which that is possible.
    pub removed: Vec<String>,
    /// Resources that are not wanted, and cannot be removed.
    pub kept: Vec<KeptResource>,
}

/// A resource that is not wanted, and cannot be removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeptResource {
    pub id: String,
    /// Why.
    pub reason: String,
    /// Whether the reason is that it existed before its first recorded deploy: `include_adopted` in the upload removes it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopted: bool,
}

/// What is wanted along with the release of a version, or a roll-back: it is asked for in one step with that, so that each resource is run
/// once. The answer names the operation. If nothing is, the version is released, and nothing tells when it is deployed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseRequest {
    /// What is not as wanted is deployed, also what the version does not change.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deploy: bool,
    /// Every resource is looked at, as with `verify` in an upload. This is more than `deploy`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub verify: bool,
}

/// What releasing a version came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VersionReleased {
    #[serde(flatten)]
    pub version: VersionSummary,
    /// What was asked for along with it, if anything was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Operation>,
}

/// A number for a version that is stored later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReservedVersion {
    pub number: u32,
}

/// One resource as a version wants it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VersionResource {
    pub id: String,
    pub attributes: Map<String, Value>,
    pub requires: Vec<String>,
    /// Absent for the shared set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
    /// An attribute is not known yet.
    pub undefined: bool,
}

/// A resource that differs between two versions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ResourceDifference {
    pub id: String,
    /// `added`, `deleted`, `modified`
    pub status: String,
    /// Attributes that differ; `current` is the value in the first version, `desired` that in the second.
    pub changes: Vec<crate::AttributeChange>,
    /// Requirements that only the second version has.
    pub requires_added: Vec<String>,
    /// Requirements that only the first version has.
    pub requires_removed: Vec<String>,
    /// Where the model of the later version that has it defines it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourcePlace>,
}
