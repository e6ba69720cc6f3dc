//! What went wrong, as RFC 9457 has it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::DocumentProblem;

/// Why a request was not carried out. Nothing of it was: a problem never leaves half of a change behind.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// A page that explains this kind of problem.
    pub r#type: String,
    /// The kind of problem, for people.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// The kind of problem, for programs: never changes its meaning.
    pub code: String,
    /// What happened this time, and what to do about it.
    pub detail: String,
    /// Parts of the request that are to blame.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldProblem>,
    /// Mistakes in cluster documents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub documents: Vec<DocumentProblem>,
}

/// A part of a request that is not acceptable.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct FieldProblem {
    /// The field, or the parameter.
    pub name: String,
    pub reason: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.detail)?;
        for FieldProblem { name, reason } in &self.fields {
            write!(f, "; {name}: {reason}")?;
        }
        // That something is in use says by what.
        let documents = self.documents.iter().filter(|_| self.code != "in-use");
        for DocumentProblem { place, message, .. } in documents {
            write!(f, "; {place}: {message}")?;
        }
        Ok(())
    }
}
