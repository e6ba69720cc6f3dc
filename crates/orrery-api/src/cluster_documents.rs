//! Cluster documents, and previews of clusters.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

/// One revision of a cluster document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClusterDocument {
    /// `provider`, `hardware`, `image`, `service`, `partial`, `template` or `tenant`.
    pub kind: String,
    pub name: String,
    /// The project that it belongs to; absent for documents of the installation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<Uuid>,
    /// Counts up from 1, also beyond a deletion.
    pub revision: i64,
    /// The document; absent if this revision is a deletion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub content: Option<Value>,
    /// Time of the first revision since the document exists.
    pub created: String,
    /// Time of this revision.
    pub changed: String,
    /// Author of this revision, as in the audit log.
    pub changed_by: String,
}

/// Documents to be stored, all or none of them.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DocumentChanges {
    pub documents: Vec<NewClusterDocument>,
    /// Validates the documents and tells what would change, and stores nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// A document to be stored in the place of an older one.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewClusterDocument {
    /// `provider`, `hardware`, `image`, `service`, `partial`, `template` or `tenant`.
    pub kind: String,
    /// The document, with its name.
    #[schema(value_type = Object)]
    pub content: Box<RawValue>,
    /// The revision that the change is based on: it is made only to that one. 0 if the document must not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
}

/// Changes of documents, made or only worked out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DocumentsApplied {
    /// False for a dry run.
    pub applied: bool,
    /// In the order of the request.
    pub documents: Vec<DocumentChange>,
    /// What is allowed, and worth a look.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<DocumentProblem>,
}

/// Change of one document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DocumentChange {
    pub kind: String,
    pub name: String,
    pub change: DocumentChangeKind,
    /// The newest revision: after the change, or before a change that is only worked out. 0 if there is none.
    pub revision: i64,
    /// The content before, if the document existed and is changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub before: Option<Value>,
    /// The content after, unless it is the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub after: Option<Value>,
}

/// Kind of a change of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DocumentChangeKind {
    Created,
    Updated,
    Unchanged,
}

/// A mistake in a document, or in how documents fit together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DocumentProblem {
    /// Kind of the problem; `orrery explain ID` shows its page.
    pub id: String,
    /// `error` or `warning`.
    pub severity: String,
    pub message: String,
    pub place: DocumentPlace,
    /// Other places that matter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub related: Vec<DocumentPlace>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

/// A place in a document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DocumentPlace {
    pub kind: String,
    /// Absent if the document has no name that can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The project of a document that is stored there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<Uuid>,
    /// JSON pointer of the value.
    pub path: String,
    /// Number of the document in the request, from 0; absent for documents that are stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
    /// Line in the document as it was sent, from 1; absent for documents that are stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<usize>,
    /// What there is to say about the place.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
}

/// `service nginx at /dependencies/runtime/requires/0`
impl std::fmt::Display for DocumentPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.kind)?;
        match (&self.name, self.index) {
            (Some(name), _) => write!(f, " {name}")?,
            (None, Some(index)) => write!(f, " number {index} of the request")?,
            (None, None) => {}
        }
        if let Some(project) = self.project {
            write!(f, " of the project {project}")?;
        }
        if !self.path.is_empty() {
            write!(f, " at {}", self.path)?;
        }
        Ok(())
    }
}

/// A cluster to be previewed.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SolveRequest {
    /// Name of the template.
    pub template: String,
    /// Number of nodes.
    #[schema(minimum = 1, maximum = 10000)]
    pub size: u32,
    #[serde(default)]
    pub settings: SolveSettings,
    /// The nodes of a cluster that exists. They stay what they are: a larger size adds nodes, a smaller one removes some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<ExistingLayout>,
    /// Services without a minimum may be left out.
    #[serde(default)]
    pub compatible: bool,
    /// Seconds after which the search is given up, 10 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 30)]
    pub timeout: Option<u64>,
}

/// Nodes of a cluster that exists, as an earlier preview told them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExistingLayout {
    pub nodes: Vec<PreviewedNode>,
    /// The number of the next node; by default, that after the greatest one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// What replaces defaults of a template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SolveSettings {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The only hardware type of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardwaretype: Option<String>,
    /// The only image type of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imagetype: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub services: Option<Vec<String>>,
}

/// Answer to a request for a preview.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum SolveAnswer {
    Solved(ClusterPreview),
    Unsolvable(ClusterConflict),
    /// The search took too long.
    Interrupted {
        message: String,
    },
}

/// The nodes that a request would get, and the plan that would create them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClusterPreview {
    pub template: String,
    /// Number of nodes.
    pub size: usize,
    /// In the unit of the documents; absent if a hardware type has no cost.
    pub cost: Option<f64>,
    pub layout: Vec<LayoutGroup>,
    /// Services that are on no node, which a compatible request allows.
    pub unplaced: Vec<String>,
    /// Services of the cluster that each service needs to run.
    pub dependencies: BTreeMap<String, BTreeSet<String>>,
    pub nodes: Vec<PreviewedNode>,
    pub plan: PreviewedPlan,
    /// Number of the next node. Numbers are never used again.
    pub next: u64,
    /// Names of existing nodes that go, if the request has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<Vec<String>>,
    /// Names of new nodes, if the request has existing ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added: Option<Vec<String>>,
}

/// Nodes that are alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LayoutGroup {
    pub count: u32,
    pub hardwaretype: String,
    pub imagetype: String,
    pub services: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PreviewedNode {
    pub name: String,
    pub number: u64,
    pub hardwaretype: String,
    pub imagetype: String,
    pub services: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PreviewedPlan {
    /// Number of steps.
    pub steps: usize,
    /// Steps of a stage can be carried out side by side.
    pub stages: Vec<Vec<PreviewedStep>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PreviewedStep {
    pub node: String,
    pub action: String,
    /// Absent for steps of the machine.
    pub service: Option<String>,
}

/// Reasons why there is no layout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterConflict {
    pub size: u32,
    /// A minimal set of rules that contradict each other.
    pub conflict: Vec<ConflictingRule>,
    pub nearest: NearestSizes,
    /// Changes that would help.
    pub advice: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConflictingRule {
    pub rule: String,
    /// The document that has the rule.
    pub document: String,
    /// JSON pointer of the rule there.
    pub path: String,
}

/// Sizes with a layout that are closest to the one that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NearestSizes {
    pub smaller: Option<u32>,
    pub larger: Option<u32>,
}
