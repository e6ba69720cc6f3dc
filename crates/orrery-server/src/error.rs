//! Errors of requests, and their form in the API.

use std::sync::Arc;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use orrery_api::{DocumentProblem, FieldProblem, Problem};
use orrery_store::StoreError;

use crate::services::ServiceError;

/// Failure of a request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    #[error("{0}")]
    BadRequest(String),
    /// Invalid fields of the request.
    #[error("the request is not valid")]
    Invalid(Vec<FieldProblem>),
    /// Problems in cluster documents, or between them.
    #[error("the cluster documents are not valid, so nothing is stored")]
    InvalidDocuments(Vec<DocumentProblem>),
    /// A cluster document with references from others.
    #[error("{detail}")]
    DocumentInUse { detail: String, documents: Vec<DocumentProblem> },
    #[error("authentication failed: {0}")]
    Unauthenticated(&'static str),
    #[error("this needs the right to {0}")]
    Forbidden(String),
    #[error("there is nothing at this path")]
    NoRoute,
    #[error("there is no {kind} {name}")]
    NotFound { kind: &'static str, name: String },
    #[error("method not allowed for this path")]
    MethodNotAllowed,
    #[error("{0}")]
    Conflict(String),
    #[error("{0}")]
    PreconditionFailed(String),
    #[error("the request is too large: {0}")]
    TooLarge(String),
    #[error("the content must be JSON, with Content-Type: application/json")]
    UnsupportedMediaType,
    #[error("unsupported Content-Encoding: send gzip, or none")]
    UnknownEncoding,
    /// A violated rule with its own code.
    #[error("{detail}")]
    Refused { code: &'static str, detail: String },
    #[error("too many attempts: try again in {seconds} {}", if *seconds == 1 { "second" } else { "seconds" })]
    TooMany { seconds: u64 },
    #[error("the server is stopping; try again elsewhere or later")]
    Stopping,
    #[error("{0}")]
    Unavailable(String),
    /// The request may be executed, or may have been.
    #[error(
        "{0}; the outcome is unknown: check the current state before repeating it, or repeat it with the same \
         Idempotency-Key"
    )]
    OutcomeUnknown(String),
    /// Nothing was done, because the server is overloaded.
    #[error("{0}; try again in a moment")]
    Overloaded(String),
    /// Nothing was done, because the body was too slow.
    #[error("{0}; nothing was done")]
    TooSlow(String),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Failure of a batch that several requests share.
    #[error(transparent)]
    SharedStore(Arc<StoreError>),
    #[error("internal error: {0}")]
    Internal(String),
}

impl From<ServiceError> for ServerError {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::Store(error) => ServerError::Store(error),
            ServiceError::Stopping => ServerError::Stopping,
        }
    }
}

impl ServerError {
    /// Error for one invalid field.
    pub fn field(name: impl Into<String>, reason: impl Into<String>) -> Self {
        ServerError::Invalid(vec![FieldProblem { name: name.into(), reason: reason.into() }])
    }

    /// Error for a violated rule with this code.
    pub fn rule(code: &'static str, detail: impl Into<String>) -> Self {
        ServerError::Refused { code, detail: detail.into() }
    }

    fn classify(&self) -> (StatusCode, &'static str, &'static str) {
        match self {
            ServerError::BadRequest(_) => {
                (StatusCode::BAD_REQUEST, "bad-request", "The request is not understood")
            }
            ServerError::Invalid(_) => {
                (StatusCode::UNPROCESSABLE_ENTITY, "invalid", "The request is not valid")
            }
            ServerError::InvalidDocuments(_) => {
                (StatusCode::UNPROCESSABLE_ENTITY, "invalid-documents", "Documents are not valid")
            }
            ServerError::DocumentInUse { .. } => (StatusCode::CONFLICT, "in-use", "In use"),
            ServerError::Unauthenticated(_) => {
                (StatusCode::UNAUTHORIZED, "unauthenticated", "Authentication required")
            }
            ServerError::Forbidden(_) => (StatusCode::FORBIDDEN, "forbidden", "Not allowed"),
            ServerError::NoRoute | ServerError::NotFound { .. } => {
                (StatusCode::NOT_FOUND, "not-found", "Not found")
            }
            ServerError::MethodNotAllowed => {
                (StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", "Method not allowed")
            }
            ServerError::Conflict(_) => (StatusCode::CONFLICT, "conflict", "Not possible now"),
            ServerError::PreconditionFailed(_) => {
                (StatusCode::PRECONDITION_FAILED, "outdated", "Changed concurrently")
            }
            ServerError::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "too-large", "Too large"),
            ServerError::UnsupportedMediaType => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", "Not JSON")
            }
            ServerError::UnknownEncoding => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", "Unknown encoding")
            }
            ServerError::Refused { code, .. } => (rule_status(code), *code, "Not possible"),
            ServerError::TooMany { .. } => {
                (StatusCode::TOO_MANY_REQUESTS, "too-many-requests", "Too many requests")
            }
            ServerError::Stopping | ServerError::Unavailable(_) => {
                (StatusCode::SERVICE_UNAVAILABLE, "unavailable", "Unavailable")
            }
            ServerError::OutcomeUnknown(_) => {
                (StatusCode::GATEWAY_TIMEOUT, "outcome-unknown", "Unknown outcome")
            }
            ServerError::Overloaded(_) => {
                (StatusCode::SERVICE_UNAVAILABLE, "overloaded", "Overloaded")
            }
            ServerError::TooSlow(_) => (StatusCode::REQUEST_TIMEOUT, "body-too-slow", "Too slow"),
            ServerError::Store(error) => classify_store(error),
            ServerError::SharedStore(error) => classify_store(error),
            ServerError::Internal(_) => {
                (StatusCode::INTERNAL_SERVER_ERROR, "internal", "Internal error")
            }
        }
    }

    pub fn status(&self) -> StatusCode {
        self.classify().0
    }

    /// Converts to the API form. Internal errors have no details; the log has them.
    pub fn problem(&self) -> Problem {
        let (status, code, title) = self.classify();
        let detail = match self {
            ServerError::Internal(_) => "internal error: see the server's log".to_owned(),
            ServerError::Store(error) if status.is_server_error() => store_failed(error),
            ServerError::SharedStore(error) if status.is_server_error() => store_failed(error),
            other => other.to_string(),
        };
        let fields = match self {
            ServerError::Invalid(fields) => fields.clone(),
            _ => Vec::new(),
        };
        let documents = match self {
            ServerError::InvalidDocuments(documents)
            | ServerError::DocumentInUse { documents, .. } => documents.clone(),
            _ => Vec::new(),
        };
        let r#type = format!("urn:orrery:problem:{code}");
        Problem {
            r#type,
            title: title.to_owned(),
            status: status.as_u16(),
            code: code.to_owned(),
            detail,
            fields,
            documents,
        }
    }
}

/// Status of a violated rule, by its code: a bad request, unless its state or its caller is the
/// reason.
fn rule_status(code: &str) -> StatusCode {
    match code {
        "forbidden" | "protected" | "token-limit" => StatusCode::FORBIDDEN,
        "fact-requested" => StatusCode::NOT_FOUND,
        "unknown-host" => StatusCode::MISDIRECTED_REQUEST,
        "already-carried-out"
        | "belongs-to-cluster"
        | "follows-repository"
        | "no-repository"
        | "request-under-way" => StatusCode::CONFLICT,
        "key-reused" | "unsuitable-request" => StatusCode::UNPROCESSABLE_ENTITY,
        "contents-quota" => StatusCode::INSUFFICIENT_STORAGE,
        "not-written-down" => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::BAD_REQUEST,
    }
}

fn store_failed(error: &StoreError) -> String {
    tracing::error!(error = error as &dyn std::error::Error, "the store failed");
    if let StoreError::ConnectionLost { .. } = error {
        let text = "the connection to the database was lost".to_owned();
        return ServerError::OutcomeUnknown(text).to_string();
    }
    "the store failed: see the server's log".to_owned()
}

fn classify_store(error: &StoreError) -> (StatusCode, &'static str, &'static str) {
    match error {
        StoreError::NoEnvironment(_)
        | StoreError::NoVersion(_)
        | StoreError::NoResource(_)
        | StoreError::NotFound { .. } => (StatusCode::NOT_FOUND, "not-found", "Not found"),
        StoreError::EnvironmentExists { .. }
        | StoreError::Exists { .. }
        | StoreError::VersionExists(_) => (StatusCode::CONFLICT, "exists", "Exists already"),
        StoreError::OperationOpen { .. } => {
            (StatusCode::CONFLICT, "operation-open", "An operation is open")
        }
        StoreError::QuotaExceeded { .. } => {
            (StatusCode::CONFLICT, "quota-exceeded", "The quota is used up")
        }
        StoreError::AlreadyReleased(_) => {
            (StatusCode::CONFLICT, "already-released", "Released already")
        }
        StoreError::Superseded { .. } => (StatusCode::CONFLICT, "superseded", "Superseded"),
        StoreError::VersionInUse(_) | StoreError::InUse { .. } => {
            (StatusCode::CONFLICT, "in-use", "In use")
        }
        StoreError::BaseChanged { .. } => {
            (StatusCode::CONFLICT, "base-changed", "Changed concurrently")
        }
        StoreError::OtherProject { .. } => {
            (StatusCode::CONFLICT, "other-project", "Another project")
        }
        StoreError::Deleting(_) => (StatusCode::CONFLICT, "deleting", "Being deleted"),
        StoreError::Conflict(_) | StoreError::LastAdministrator(_) => {
            (StatusCode::CONFLICT, "conflict", "Not possible now")
        }
        StoreError::ContentCollision(_) => {
            (StatusCode::CONFLICT, "content-collision", "SHA-1 collision")
        }
        StoreError::Protected { .. } => (StatusCode::FORBIDDEN, "protected", "Protected"),
        StoreError::Outdated { .. } => {
            (StatusCode::PRECONDITION_FAILED, "outdated", "Changed concurrently")
        }
        StoreError::VersionNotReserved(_) => {
            (StatusCode::BAD_REQUEST, "version-not-reserved", "The number is not reserved")
        }
        StoreError::DuplicateResource(_) => {
            (StatusCode::BAD_REQUEST, "duplicate-resource", "Duplicate resource")
        }
        StoreError::DanglingRequires { .. } => {
            (StatusCode::BAD_REQUEST, "dangling-requires", "Missing requirement")
        }
        StoreError::Unstorable { .. } => (StatusCode::BAD_REQUEST, "unstorable", "Not storable"),
        StoreError::Busy { .. }
        | StoreError::Full { .. }
        | StoreError::Unreachable { .. }
        | StoreError::NoConnection { .. }
        | StoreError::Contended { .. } => {
            (StatusCode::SERVICE_UNAVAILABLE, "unavailable", "Unavailable")
        }
        // The connection may have been lost after the commit.
        StoreError::ConnectionLost { .. } => {
            (StatusCode::GATEWAY_TIMEOUT, "outcome-unknown", "Unknown outcome")
        }
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "internal", "Internal error"),
    }
}

impl IntoResponse for ServerError {
    fn into_response(self) -> Response {
        if let ServerError::Internal(detail) = &self {
            tracing::error!(detail, "internal error");
        }
        let problem = self.problem();
        let mut response = (self.status(), Json(&problem)).into_response();
        // For middleware that converts it to another form.
        response.extensions_mut().insert(problem);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if matches!(self, ServerError::Unauthenticated(_)) {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let ServerError::TooMany { seconds } = self {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let ServerError::Overloaded(_) = self {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
