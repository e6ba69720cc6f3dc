//! Checks of query parameters and `If-Match` against the OpenAPI document.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{Method, header};
use axum::middleware::Next;
use axum::response::Response;

use crate::error::ServerError;

/// Parameters of all operations, by method and path.
#[derive(Clone, Debug)]
pub(crate) struct RouteParameters(Arc<HashMap<(String, String), OperationParameters>>);

#[derive(Clone, Debug)]
struct OperationParameters {
    /// Query parameters.
    query: HashSet<String>,
    /// True if the object has a revision.
    if_match: bool,
}

impl RouteParameters {
    /// Reads the parameters from the OpenAPI document.
    pub(crate) fn from_openapi(document: &serde_json::Value) -> Self {
        let mut table = HashMap::new();
        for (path, item) in document["paths"].as_object().into_iter().flatten() {
            for (method, operation) in item.as_object().into_iter().flatten() {
                let names = |place: &str| -> HashSet<String> {
                    let all = operation["parameters"].as_array().into_iter().flatten();
                    let there = all.filter(|parameter| parameter["in"] == place);
                    there.filter_map(|one| one["name"].as_str().map(str::to_owned)).collect()
                };
                let known = OperationParameters {
                    query: names("query"),
                    if_match: names("header").contains("If-Match"),
                };
                table.insert((method.to_ascii_uppercase(), path.clone()), known);
            }
        }
        RouteParameters(Arc::new(table))
    }

    fn check(&self, method: &Method, path: &str, query: &str) -> Result<(), ServerError> {
        let method = if method == Method::HEAD { "GET" } else { method.as_str() };
        // Undocumented routes, such as HTML pages, check their own parameters.
        let Some(known) = self.0.get(&(method.to_owned(), path.to_owned())) else {
            return Ok(());
        };
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let name = part.split('=').next().unwrap_or_default();
            if !known.query.contains(name) {
                let mut known: Vec<&str> = known.query.iter().map(String::as_str).collect();
                known.sort_unstable();
                let known = match &known[..] {
                    [] => "this path takes none".to_owned(),
                    names => format!("expected one of {}", names.join(", ")),
                };
                return Err(ServerError::rule(
                    "unknown-parameter",
                    format!("unknown parameter {name:?}: {known}"),
                ));
            }
        }
        Ok(())
    }

    /// Rejects `If-Match` on routes without revisions, instead of ignoring it.
    fn check_if_match(&self, request: &Request, path: &str) -> Result<(), ServerError> {
        if request.method().is_safe() || !request.headers().contains_key(header::IF_MATCH) {
            return Ok(());
        }
        match self.0.get(&(request.method().as_str().to_owned(), path.to_owned())) {
            Some(OperationParameters { if_match: false, .. }) => Err(
                ServerError::PreconditionFailed("this has no revision: omit If-Match".to_owned()),
            ),
            _ => Ok(()),
        }
    }
}

/// Refuses unknown parameters, and NUL characters, which databases cannot store.
pub(crate) async fn check_parameters(
    State(parameters): State<RouteParameters>,
    request: Request,
    next: Next,
) -> Result<Response, ServerError> {
    let uri = request.uri();
    let query = uri.query().unwrap_or_default();
    if uri.path().contains("%00") || query.contains("%00") {
        return Err(ServerError::BadRequest("the URL contains a NUL character".to_owned()));
    }
    if let Some(matched) = request.extensions().get::<MatchedPath>() {
        parameters.check(request.method(), matched.as_str(), query)?;
        parameters.check_if_match(&request, matched.as_str())?;
    }
    Ok(next.run(request).await)
}
