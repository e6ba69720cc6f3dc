//! `http::Request`: an object of an HTTP server, read with GET and changed with a request.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use orrery_model::{AttributeDiff, Attributes, LogLevel, ResourceType};
use serde::Deserialize;
use serde_json::Value;

use crate::context::{Context, changed};
use crate::error::{HandlerError, TargetError};
use crate::handler::Crud;
use crate::registry::Registry;
use crate::target::{Request, Response};

pub(crate) fn register(registry: &mut Registry) {
    let fields = [
        "body",
        "check_url",
        "expected_body",
        "expected_status",
        "headers",
        "method",
        "purged",
        "skip_on_fail",
        "success_status",
        "timeout",
        "url",
    ];
    let declaration = ResourceType::new("http::Request", "agent", "name", &fields).outward();
    registry.register(declaration, Arc::new(RequestHandler));
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestHandler;

#[derive(Debug, Deserialize)]
pub(crate) struct DesiredRequest {
    #[serde(default)]
    body: String,
    check_url: Option<String>,
    expected_body: Option<String>,
    expected_status: Vec<u16>,
    #[serde(default)]
    headers: BTreeMap<String, Value>,
    method: String,
    #[serde(default)]
    purged: bool,
    #[serde(default)]
    skip_on_fail: bool,
    success_status: Vec<u16>,
    timeout: u64,
    url: String,
}

const GET: &str = "GET";
const DELETE: &str = "DELETE";
/// Status codes of a missing object.
const ABSENT: [u16; 2] = [404, 410];

impl DesiredRequest {
    fn send(
        &self,
        method: &str,
        url: &str,
        body: Option<&str>,
        context: &Context<'_>,
    ) -> Result<Response, TargetError> {
        let mut request = Request::new(method, url);
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        request.headers =
            self.headers.iter().map(|(name, value)| (name.clone(), text(value))).collect();
        request.body = body.filter(|body| !body.is_empty()).map(|body| body.as_bytes().to_vec());
        request.timeout = Duration::from_secs(self.timeout);
        context.target().request(&request, context.cancel_token())
    }

    /// A server that does not respond may still be starting. A machine that is not reached is
    /// reported as such.
    fn failure(&self, error: HandlerError) -> HandlerError {
        let is_transport =
            matches!(&error, HandlerError::Target(found) if found.cause.is_transport());
        if self.skip_on_fail && !is_transport {
            HandlerError::Skipped(error.to_string())
        } else {
            error
        }
    }

    /// Sends a request that changes something.
    fn change(
        &self,
        method: &str,
        body: Option<&str>,
        also_good: &[u16],
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        let answer = match self.send(method, &self.url, body, context) {
            Ok(answer) => answer,
            Err(error) => {
                if error.cause.is_unclear() {
                    context.mark_unclear();
                }
                return Err(self.failure(error.into()));
            }
        };
        let values = [
            ("method", Value::from(method)),
            ("url", Value::from(&*self.url)),
            ("status", Value::from(answer.status)),
        ];
        context.log(LogLevel::Info, "sent the request", values);
        if self.success_status.contains(&answer.status) || also_good.contains(&answer.status) {
            return Ok(());
        }
        let text = format!(
            "{method} {} returned status {}: {}",
            self.url,
            answer.status,
            excerpt(&answer.body)
        );
        Err(self.failure(HandlerError::failed(text)))
    }

    fn body_matches(&self, body: &[u8]) -> bool {
        let Some(expected) = &self.expected_body else {
            return true;
        };
        let structure = |value: &Value| value.is_object() || value.is_array();
        match serde_json::from_str::<Value>(expected) {
            Ok(expected) if structure(&expected) => {
                serde_json::from_slice(body).is_ok_and(|found| contains(&found, &expected))
            }
            _ => String::from_utf8_lossy(body).contains(&**expected),
        }
    }
}

/// Returns true if a JSON value contains the expected one: objects may have more entries, arrays
/// may not.
fn contains(found: &Value, expected: &Value) -> bool {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => expected
            .iter()
            .all(|(name, expected)| found.get(name).is_some_and(|found| contains(found, expected))),
        (Value::Array(found), Value::Array(expected)) => {
            found.len() == expected.len()
                && found.iter().zip(expected).all(|(found, expected)| contains(found, expected))
        }
        _ => found == expected,
    }
}

/// Excerpt of a response for messages.
fn excerpt(body: &[u8]) -> String {
    const SHOWN_MAX: usize = 1000;
    let text = String::from_utf8_lossy(body);
    let mut displayed: String = text.chars().take(SHOWN_MAX).collect();
    if displayed.len() < text.len() {
        displayed.push('…');
    }
    displayed
}

impl Crud for RequestHandler {
    type Desired = DesiredRequest;
    type Current = Response;

    /// A POST creates an object each time, unless a `check_url` shows if it exists.
    fn must_not_repeat(attributes: &Attributes) -> bool {
        let attributes = attributes.to_object();
        let method = attributes.get("method").and_then(Value::as_str);
        method.is_some_and(|method| method.eq_ignore_ascii_case("POST"))
            && attributes.get("check_url").is_none_or(Value::is_null)
    }

    fn is_purged(desired: &DesiredRequest) -> bool {
        desired.purged
    }

    fn read(
        &self,
        desired: &DesiredRequest,
        context: &mut Context<'_>,
    ) -> Result<Option<Response>, HandlerError> {
        let url = desired.check_url.as_deref().unwrap_or(&desired.url);
        let answer = desired.send(GET, url, None, context);
        let answer = answer.map_err(|error| desired.failure(error.into()))?;
        let right = desired.expected_status.contains(&answer.status);
        Ok((right || !ABSENT.contains(&answer.status)).then_some(answer))
    }

    fn diff(
        &self,
        desired: &DesiredRequest,
        current: &Response,
        _context: &mut Context<'_>,
    ) -> Result<Vec<AttributeDiff>, HandlerError> {
        let mut changes = Vec::new();
        if !desired.expected_status.contains(&current.status) {
            let expected = desired.expected_status.clone();
            changes.push(changed("status", current.status, expected));
        }
        if !desired.body_matches(&current.body) {
            let expected = desired.expected_body.as_deref();
            changes.push(changed("body", excerpt(&current.body), expected));
        }
        Ok(changes)
    }

    fn create(
        &self,
        desired: &DesiredRequest,
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        if desired.method.eq_ignore_ascii_case(GET) {
            let text = format!("{} does not exist, and GET cannot create it", desired.url);
            return Err(desired.failure(HandlerError::failed(text)));
        }
        desired.change(&desired.method, Some(&desired.body), &[], context)
    }

    fn update(
        &self,
        desired: &DesiredRequest,
        current: &Response,
        _changes: &[AttributeDiff],
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        if desired.method.eq_ignore_ascii_case(GET) {
            let text = format!(
                "unexpected response from {}: status {}: {}",
                desired.url,
                current.status,
                excerpt(&current.body)
            );
            return Err(desired.failure(HandlerError::failed(text)));
        }
        desired.change(&desired.method, Some(&desired.body), &[], context)
    }

    fn delete(
        &self,
        desired: &DesiredRequest,
        _current: &Response,
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        desired.change(DELETE, None, &ABSENT, context)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_response_may_have_more_than_expected_but_not_less() {
        let found = json!({"a": 1, "b": {"c": [1, {"d": 2, "e": 3}]}});
        for expected in [json!({}), json!({"a": 1}), json!({"b": {"c": [1, {"d": 2}]}})] {
            assert!(contains(&found, &expected), "{expected}");
        }
        for expected in [json!({"a": 2}), json!({"x": null}), json!({"b": {"c": [1]}}), json!([])] {
            assert!(!contains(&found, &expected), "{expected}");
        }
    }
}
