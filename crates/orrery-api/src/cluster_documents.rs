//! Cluster documents, and previews of clusters.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::Time;
use crate::string_enum::string_enums;

string_enums! {
    /// Kind of a cluster document.
    pub enum ClusterDocumentKind {
        Provider = "provider",
        Hardware = "hardware",
        Image = "image",
        Service = "service",
        Partial = "partial",
        Template = "template",
        Tenant = "tenant",
    }

    /// Severity of a problem in a document.
    pub enum DocumentSeverity {
        Error = "error",
        Warning = "warning",
    }
}

#[expect(clippy::derivable_impls, reason = "the macro of these enums derives no default")]
impl Default for DocumentSeverity {
    fn default() -> Self {
        DocumentSeverity::Error
    }
}

/// One revision of a cluster document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClusterDocument {
    pub kind: ClusterDocumentKind,
    pub name: String,
    /// Project of the document. Absent for documents of the installation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<Uuid>,
    /// Counts up from 1 and continues after a deletion.
    pub revision: i64,
    /// The document; absent if this revision is a deletion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub content: Option<Value>,
    /// Time of the first revision since the document was last created.
    pub created: Time,
    /// Time of this revision.
    pub changed: Time,
    /// Author of this revision, as in the audit log.
    pub changed_by: String,
}

/// Documents to store, all or none of them.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DocumentChanges {
    pub documents: Vec<NewClusterDocument>,
    /// Validates the documents and reports the changes without storing them.
    #[serde(default)]
    pub dry_run: bool,
}

/// A document to store, in place of an older revision if there is one.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewClusterDocument {
    pub kind: ClusterDocumentKind,
    /// The document, including its name.
    #[schema(value_type = Object)]
    pub content: Box<RawValue>,
    /// Revision that the change is based on; another current revision is a conflict. 0 if the
    /// document must not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
}

/// Changes of documents, applied or computed by a dry run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DocumentsApplied {
    /// False for a dry run.
    pub applied: bool,
    /// In the order of the request.
    pub documents: Vec<DocumentChange>,
    /// Problems that do not prevent the change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<DocumentProblem>,
}

/// Change of one document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DocumentChange {
    pub kind: ClusterDocumentKind,
    pub name: String,
    pub change: DocumentChangeKind,
    /// Newest revision: after the change, or before it in a dry run. 0 if there is none.
    pub revision: i64,
    /// Previous content, if the document existed and changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub before: Option<Value>,
    /// New content, unless it is unchanged.
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

/// A problem in a document, or between documents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DocumentProblem {
    /// Id of the diagnostic; `orrery explain ID` shows its page.
    pub id: String,
    pub severity: DocumentSeverity,
    pub message: String,
    pub place: DocumentPlace,
    /// Related locations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub related: Vec<DocumentPlace>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

/// A location in a document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DocumentPlace {
    pub kind: String,
    /// Absent if the name of the document cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Project of a stored document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<Uuid>,
    /// JSON pointer of the value.
    pub path: String,
    /// Index of the document in the request, from 0. Absent for stored documents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
    /// Line in the document as sent, from 1. Absent for stored documents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<usize>,
    /// Remark on the location.
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

/// A cluster to preview.
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
    /// Nodes of an existing cluster. They are not changed: a larger size adds nodes, a smaller one
    /// removes some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<ExistingLayout>,
    /// Allows to omit services without a minimum.
    #[serde(default)]
    pub compatible: bool,
    /// Timeout of the search in seconds; 10 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 30)]
    pub timeout: Option<u64>,
}

/// Nodes of an existing cluster, as an earlier preview returned them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExistingLayout {
    pub nodes: Vec<PreviewedNode>,
    /// Number of the next node. Default: the greatest number plus one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// Overrides of the defaults of a template.
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

/// Result of a preview.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum SolveAnswer {
    Solved(ClusterPreview),
    Unsolvable(ClusterConflict),
    /// The search timed out.
    Interrupted {
        message: String,
    },
}

/// Nodes of the requested cluster, and the plan that would create them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClusterPreview {
    pub template: String,
    /// Number of nodes.
    pub size: usize,
    /// In the unit of the documents; absent if a hardware type has no cost.
    pub cost: Option<f64>,
    pub layout: Vec<LayoutGroup>,
    /// Services without a node. Only for `compatible` requests.
    pub unplaced: Vec<String>,
    /// For each service, the services of the cluster that it needs to run.
    pub dependencies: BTreeMap<String, BTreeSet<String>>,
    pub nodes: Vec<PreviewedNode>,
    pub plan: PreviewedPlan,
    /// Number of the next node. Numbers are never reused.
    pub next: u64,
    /// Names of existing nodes that are removed. Only if the request has existing nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<Vec<String>>,
    /// Names of new nodes. Only if the request has existing nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added: Option<Vec<String>>,
}

/// A group of identical nodes.
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
    /// Stages in order. The steps of a stage can run in parallel.
    pub stages: Vec<Vec<PreviewedStep>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PreviewedStep {
    pub node: String,
    pub action: String,
    /// Absent for steps of the machine.
    pub service: Option<String>,
}

/// Explanation of an unsatisfiable request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterConflict {
    pub size: u32,
    /// A minimal set of contradicting rules.
    pub conflict: Vec<ConflictingRule>,
    pub nearest: NearestSizes,
    /// Suggested changes.
    pub advice: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConflictingRule {
    pub rule: String,
    /// Document that contains the rule.
    pub document: String,
    /// JSON pointer of the rule in the document.
    pub path: String,
}

/// Feasible sizes closest to the requested one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NearestSizes {
    pub smaller: Option<u32>,
    pub larger: Option<u32>,
}
