//! Errors in the form of RFC 9457.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::DocumentProblem;

/// Description of a failed request. A failed request changes nothing.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Page that documents this kind of problem.
    pub r#type: String,
    /// Kind of problem, for display.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// Kind of problem, for programs. Its meaning is stable.
    pub code: String,
    /// Description of this occurrence, with a remedy.
    pub detail: String,
    /// Invalid parts of the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldProblem>,
    /// Problems in cluster documents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub documents: Vec<DocumentProblem>,
}

/// An invalid part of a request.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct FieldProblem {
    /// Name of the field or parameter.
    pub name: String,
    pub reason: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.detail)?;
        for FieldProblem { name, reason } in &self.fields {
            write!(f, "; {name}: {reason}")?;
        }
        // The detail of `in-use` lists the referring documents already.
        let documents = self.documents.iter().filter(|_| self.code != "in-use");
        for DocumentProblem { place, message, .. } in documents {
            write!(f, "; {place}: {message}")?;
        }
        Ok(())
    }
}
