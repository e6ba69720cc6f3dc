//! Everything that can go wrong with a request, and how it is told.

use std::sync::Arc;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use orrery_api::{DocumentProblem, FieldProblem, Problem};
use orrery_store::StoreError;

/// Why a request is not carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    #[error("{0}")]
    BadRequest(String),
    /// Fields of the request and what is wrong with them.
    #[error("the request is not valid")]
    Invalid(Vec<FieldProblem>),
    /// Mistakes in cluster documents, or in how they fit together.
    #[error("the cluster documents are not valid, so nothing is stored")]
    InvalidDocuments(Vec<DocumentProblem>),
    /// A cluster document that others refer to.
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
    #[error("this path does not take this method")]
    MethodNotAllowed,
    #[error("{0}")]
    Conflict(String),
    #[error("{0}")]
    PreconditionFailed(String),
    #[error("the request is too large: {0}")]
    TooLarge(String),
    #[error("the content must be JSON, and say so: Content-Type: application/json")]
    UnsupportedMediaType,
    #[error(
        "the content is packed in a way that is not known: send Content-Encoding: gzip, or none"
    )]
    UnknownEncoding,
    /// A rule of its own, with a code of its own.
    #[error("{detail}")]
    Refused { status: StatusCode, code: &'static str, detail: String },
    #[error("too many tries: try again in {seconds} {}", if *seconds == 1 { "second" } else { "seconds" })]
    TooMany { seconds: u64 },
    #[error("the server is stopping; try again elsewhere or later")]
    Stopping,
    #[error("{0}")]
    Unavailable(String),
    /// The request may be carried out, or may have been.
    #[error(
        "{0}; whether it was carried out is not known: look at what is there before you repeat it, or repeat it with the same \
         Idempotency-Key"
    )]
    OutcomeUnknown(String),
    /// Nothing was done, since there is no room for the request now.
    #[error("{0}; try again in a moment")]
    Overloaded(String),
    /// Nothing was done, since the request did not arrive in time.
    #[error("{0}; nothing was done")]
    TooSlow(String),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What several requests asked for together failed.
    #[error(transparent)]
    SharedStore(Arc<StoreError>),
    #[error("a defect of the server: {0}")]
    Internal(String),
}

impl ServerError {
    /// One field that is not acceptable.
    pub fn field(name: impl Into<String>, reason: impl Into<String>) -> Self {
        ServerError::Invalid(vec![FieldProblem { name: name.into(), reason: reason.into() }])
    }

    /// A request that breaks the rule with this code.
    pub fn rule(code: &'static str, detail: impl Into<String>) -> Self {
        ServerError::Refused { status: StatusCode::BAD_REQUEST, code, detail: detail.into() }
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
                (StatusCode::UNAUTHORIZED, "unauthenticated", "Log in first")
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
                (StatusCode::PRECONDITION_FAILED, "outdated", "Changed meanwhile")
            }
            ServerError::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "too-large", "Too large"),
            ServerError::UnsupportedMediaType => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", "Not JSON")
            }
            ServerError::UnknownEncoding => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", "Unknown encoding")
            }
            ServerError::Refused { status, code, .. } => (*status, *code, "Not possible"),
            ServerError::TooMany { .. } => {
                (StatusCode::TOO_MANY_REQUESTS, "too-many-requests", "Too many requests")
            }
            ServerError::Stopping | ServerError::Unavailable(_) => {
                (StatusCode::SERVICE_UNAVAILABLE, "unavailable", "Not available now")
            }
            ServerError::OutcomeUnknown(_) => {
                (StatusCode::GATEWAY_TIMEOUT, "outcome-unknown", "The outcome is not known")
            }
            ServerError::Overloaded(_) => {
                (StatusCode::SERVICE_UNAVAILABLE, "overloaded", "Too busy now")
            }
            ServerError::TooSlow(_) => (StatusCode::REQUEST_TIMEOUT, "body-too-slow", "Too slow"),
            ServerError::Store(error) => classify_store(error),
            ServerError::SharedStore(error) => classify_store(error),
            ServerError::Internal(_) => {
                (StatusCode::INTERNAL_SERVER_ERROR, "internal", "A defect of the server")
            }
        }
    }

    pub fn status(&self) -> StatusCode {
        self.classify().0
    }

    /// As it is told to clients. Defects of the server tell no details; the log has them.
    pub fn problem(&self) -> Problem {
        let (status, code, title) = self.classify();
        let detail = match self {
            ServerError::Internal(_) => "the server has a defect; its log tells more".to_owned(),
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

fn store_failed(error: &StoreError) -> String {
    tracing::error!(error = error as &dyn std::error::Error, "the store failed");
    if let StoreError::ConnectionLost { .. } = error {
        let text = "the connection to the database was lost".to_owned();
        return ServerError::OutcomeUnknown(text).to_string();
    }
    "the store failed; the server's log tells more".to_owned()
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
        StoreError::AlreadyReleased(_) => {
            (StatusCode::CONFLICT, "already-released", "Released already")
        }
        StoreError::Superseded { .. } => (StatusCode::CONFLICT, "superseded", "Superseded"),
        StoreError::VersionInUse(_) | StoreError::InUse { .. } => {
            (StatusCode::CONFLICT, "in-use", "In use")
        }
        StoreError::BaseChanged { .. } => {
            (StatusCode::CONFLICT, "base-changed", "Changed meanwhile")
        }
        StoreError::OtherProject { .. } => {
            (StatusCode::CONFLICT, "other-project", "Another project")
        }
        StoreError::Deleting(_) => (StatusCode::CONFLICT, "deleting", "On its way out"),
        StoreError::NotNow(_) | StoreError::LastAdministrator(_) => {
            (StatusCode::CONFLICT, "conflict", "Not possible now")
        }
        StoreError::ContentCollision(_) => {
            (StatusCode::CONFLICT, "content-collision", "Another content has this SHA-1")
        }
        StoreError::Protected { .. } => (StatusCode::FORBIDDEN, "protected", "Protected"),
        StoreError::Outdated { .. } => {
            (StatusCode::PRECONDITION_FAILED, "outdated", "Changed meanwhile")
        }
        StoreError::VersionNotReserved(_) => {
            (StatusCode::BAD_REQUEST, "version-not-reserved", "The number is not reserved")
        }
        StoreError::DuplicateResource(_) => {
            (StatusCode::BAD_REQUEST, "duplicate-resource", "A resource is there twice")
        }
        StoreError::DanglingRequires { .. } => {
            (StatusCode::BAD_REQUEST, "dangling-requires", "A requirement leads nowhere")
        }
        StoreError::Unstorable { .. } => {
            (StatusCode::BAD_REQUEST, "unstorable", "The database cannot keep this")
        }
        StoreError::Busy { .. }
        | StoreError::Full { .. }
        | StoreError::Unreachable { .. }
        | StoreError::NoConnection { .. }
        | StoreError::Contended { .. } => {
            (StatusCode::SERVICE_UNAVAILABLE, "unavailable", "Not available now")
        }
        // It may have been lost after the database had committed.
        StoreError::ConnectionLost { .. } => {
            (StatusCode::GATEWAY_TIMEOUT, "outcome-unknown", "The outcome is not known")
        }
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "internal", "A defect of the server"),
    }
}

impl IntoResponse for ServerError {
    fn into_response(self) -> Response {
        if let ServerError::Internal(detail) = &self {
            tracing::error!(detail, "a defect");
        }
        let problem = self.problem();
        let mut response = (self.status(), Json(&problem)).into_response();
        // For those who tell it in another form.
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
