//! A request: caller, environment, and arguments from the query or the body.

use std::collections::BTreeMap;

use axum::extract::{FromRequest, FromRequestParts as _, Query, RawPathParams, Request};
use axum::http::Method;
use orrery_model::{Timestamp, VersionNumber};
use orrery_server::further_api::Caller;
use orrery_server::{ServerError, ServerState};
use orrery_store::{EnvironmentKey, EnvironmentRecord, Store, StoreError};
use serde_json::{Map, Value};
use uuid::Uuid;

/// Maximum number of values in a body: enough for versions of more than a hundred thousand
/// resources.
const VALUES_MAX: usize = 4_000_000;

/// A request. Arguments are in the query for GET and DELETE, otherwise in the body. Some clients
/// repeat those of the path there.
pub(crate) struct InmantaRequest {
    pub(crate) app: ServerState,
    pub(crate) caller: Caller,
    /// Path of the request.
    pub(crate) path: String,
    environment: Option<EnvironmentRecord>,
    in_path: BTreeMap<String, String>,
    arguments: Map<String, Value>,
}

impl FromRequest<ServerState> for InmantaRequest {
    type Rejection = ServerError;

    async fn from_request(request: Request, app: &ServerState) -> Result<Self, ServerError> {
        let (mut parts, body) = request.into_parts();
        let caller = Caller::from_request_parts(&mut parts, app).await?;
        let environment = parts.extensions.get::<EnvironmentRecord>().cloned();
        let raw = RawPathParams::from_request_parts(&mut parts, app).await;
        let raw = raw.map_err(|error| ServerError::BadRequest(error.body_text()))?;
        let in_path = raw.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let path = parts.uri.path().to_owned();
        let arguments = if [Method::GET, Method::DELETE, Method::HEAD].contains(&parts.method) {
            let pairs = Query::<Vec<(String, String)>>::from_request_parts(&mut parts, app).await;
            let pairs = pairs.map_err(|error| ServerError::BadRequest(error.body_text()))?;
            from_query(pairs.0)
        } else {
            from_body(Request::from_parts(parts, body), app).await?
        };
        Ok(InmantaRequest { app: app.clone(), caller, path, environment, in_path, arguments })
    }
}

/// Converts a query to arguments. A repeated name becomes a list.
fn from_query(pairs: Vec<(String, String)>) -> Map<String, Value> {
    let mut found: Map<String, Value> = Map::new();
    for (name, value) in pairs {
        let value = Value::String(value);
        match found.get_mut(&name) {
            None => drop(found.insert(name, value)),
            Some(Value::Array(values)) => values.push(value),
            Some(first) => *first = Value::Array(vec![first.take(), value]),
        }
    }
    found
}

/// Parses a JSON object, regardless of the content type. An empty body is an empty object.
async fn from_body(request: Request, app: &ServerState) -> Result<Map<String, Value>, ServerError> {
    let bytes = orrery_server::further_api::read_bytes(request, app).await?;
    if bytes.is_empty() {
        return Ok(Map::new());
    }
    orrery_server::further_api::parse_blocking(bytes, parse_object).await
}

fn parse_object(bytes: &[u8]) -> Result<Map<String, Value>, ServerError> {
    if orrery_server::further_api::has_nul(bytes) {
        return Err(bad_request("no text may have a NUL character in it"));
    }
    if has_more_values_than(bytes, VALUES_MAX) {
        let text = format!("at most {VALUES_MAX} values are taken in one body");
        return Err(ServerError::TooLarge(text));
    }
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(bad_request("the body must be a JSON object")),
        Err(error) => Err(bad_request(format!("the body is no JSON: {error}"))),
    }
}

/// True if a JSON text has more values than fit in memory. Each takes about a hundred bytes, even
/// if its text is short.
fn has_more_values_than(text: &[u8], most: usize) -> bool {
    let (mut values, mut in_string, mut at) = (1_usize, false, 0);
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => in_string = !in_string,
            // An escaped quote does not end a string.
            b'\\' if in_string => at += 1,
            b',' | b'[' | b'{' if !in_string => values += 1,
            _ => {}
        }
        at += 1;
    }
    values > most
}

/// Error for an invalid request.
pub(crate) fn bad_request(reason: impl Into<String>) -> ServerError {
    ServerError::BadRequest(reason.into())
}

/// Parses a time with or without a zone; UTC by default.
pub(crate) fn parse_time(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    let moment = text.parse::<jiff::Timestamp>().ok().or_else(|| {
        // A plus sign that was not escaped in a URL has become a space.
        let repaired = text.rsplit_once(' ').map(|(left, right)| format!("{left}+{right}"));
        repaired.and_then(|text| text.parse().ok())
    });
    let moment = moment.or_else(|| {
        let civil = text.parse::<jiff::civil::DateTime>().ok()?;
        civil.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
    });
    moment.map(|moment| Timestamp(moment.as_microsecond()))
}

impl InmantaRequest {
    /// Fails for arguments other than these and those of the path.
    pub(crate) fn allow_only(&self, names: &[&str]) -> Result<(), ServerError> {
        let known = |name: &String| {
            names.contains(&name.as_str()) || self.in_path.contains_key(name) || name == "id"
        };
        let strange: Vec<&str> =
            self.arguments.keys().filter(|name| !known(name)).map(String::as_str).collect();
        match &strange[..] {
            [] => Ok(()),
            names => Err(bad_request(format!(
                "request contains fields {{'{}'}} that are not declared in method",
                names.join("', '")
            ))),
        }
    }

    /// Returns an argument, if it is present and not null.
    pub(crate) fn value(&self, name: &str) -> Option<&Value> {
        self.arguments.get(name).filter(|value| !value.is_null())
    }

    /// Returns arguments with a prefix in their names, without it.
    pub(crate) fn prefixed<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a Value)> {
        self.arguments
            .iter()
            .filter_map(move |(name, value)| Some((name.strip_prefix(prefix)?, value)))
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.arguments.keys().map(String::as_str)
    }

    pub(crate) fn text(&self, name: &str) -> Result<Option<&str>, ServerError> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(bad_request(format!("Field '{name}' must be a string."))),
        }
    }

    pub(crate) fn need_text(&self, name: &str) -> Result<&str, ServerError> {
        self.text(name)?.ok_or_else(|| bad_request(format!("Field '{name}' is required.")))
    }

    pub(crate) fn flag(&self, name: &str) -> Result<Option<bool>, ServerError> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(Value::String(text)) if text.eq_ignore_ascii_case("true") || text == "1" => {
                Ok(Some(true))
            }
            Some(Value::String(text)) if text.eq_ignore_ascii_case("false") || text == "0" => {
                Ok(Some(false))
            }
            Some(_) => Err(bad_request(format!("Field '{name}' must be true or false."))),
        }
    }

    pub(crate) fn number(&self, name: &str) -> Result<Option<i64>, ServerError> {
        let read = |value: &Value| value.as_i64().or_else(|| value.as_str()?.trim().parse().ok());
        match self.value(name) {
            None => Ok(None),
            Some(value) => read(value)
                .map(Some)
                .ok_or_else(|| bad_request(format!("Field '{name}' must be a whole number."))),
        }
    }

    pub(crate) fn uuid(&self, name: &str) -> Result<Option<Uuid>, ServerError> {
        let text = self.text(name)?;
        text.map(|text| parse_uuid(name, text)).transpose()
    }

    pub(crate) fn time(&self, name: &str) -> Result<Option<Timestamp>, ServerError> {
        let text = self.text(name)?;
        let read = |text: &str| {
            parse_time(text)
                .ok_or_else(|| bad_request(format!("Field '{name}' is no time: {text:?}")))
        };
        text.map(read).transpose()
    }

    /// Returns a list of strings; a single string is a list of one.
    pub(crate) fn texts(&self, name: &str) -> Result<Option<Vec<String>>, ServerError> {
        let wrong = || bad_request(format!("Field '{name}' must be a list of strings."));
        match self.value(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(vec![text.clone()])),
            Some(Value::Array(items)) => {
                let read = |item: &Value| item.as_str().map(str::to_owned).ok_or_else(wrong);
                items.iter().map(read).collect::<Result<_, _>>().map(Some)
            }
            Some(_) => Err(wrong()),
        }
    }

    pub(crate) fn object(&self, name: &str) -> Result<Option<&Map<String, Value>>, ServerError> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::Object(object)) => Ok(Some(object)),
            Some(_) => Err(bad_request(format!("Field '{name}' must be an object."))),
        }
    }

    pub(crate) fn path_text(&self, name: &str) -> &str {
        self.in_path.get(name).map(String::as_str).unwrap_or_default()
    }

    pub(crate) fn path_uuid(&self, name: &str) -> Result<Uuid, ServerError> {
        parse_uuid(name, self.path_text(name))
    }

    pub(crate) fn path_version(&self, name: &str) -> Result<VersionNumber, ServerError> {
        let text = self.path_text(name);
        let number = text.parse().map(VersionNumber);
        number.map_err(|_| bad_request(format!("Field '{name}' is no version: {text:?}")))
    }

    /// Environment named by the header or the path.
    pub(crate) fn environment(&self) -> Result<&EnvironmentRecord, ServerError> {
        let missing = || ServerError::Internal("a route without an environment".to_owned());
        self.environment.as_ref().ok_or_else(missing)
    }

    pub(crate) fn key(&self) -> Result<EnvironmentKey, ServerError> {
        self.environment().map(|environment| environment.key)
    }

    /// Like `Services::with_store`, with the key of the environment.
    pub(crate) async fn with_store<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store, EnvironmentKey) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, ServerError> {
        let key = self.key()?;
        Ok(self.app.with_store(move |store| work(store, key)).await?)
    }

    /// Like `Services::try_with_store`, with the key of the environment.
    pub(crate) async fn try_with_store<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store, EnvironmentKey) -> Result<T, ServerError> + Send + 'static,
    ) -> Result<T, ServerError> {
        let key = self.key()?;
        self.app.try_with_store(move |store| work(store, key)).await
    }
}

fn parse_uuid(name: &str, text: &str) -> Result<Uuid, ServerError> {
    text.parse().map_err(|_| bad_request(format!("Field '{name}' must be a valid UUID: {text:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_and_without_a_zone() {
        let noon = parse_time("2026-11-16T12:00:00+00:00").unwrap();
        for text in [
            "2026-11-16T12:00:00Z",
            "2026-11-16T13:00:00.000000+01:00",
            "2026-11-16T12:00:00",
            "2026-11-16 12:00:00",
            "2026-11-16T12:00:00 00:00",
        ] {
            assert_eq!(parse_time(text), Some(noon), "{text}");
        }
        assert_eq!(parse_time("yesterday"), None);
    }

    #[test]
    fn values_are_counted_outside_of_strings() {
        assert!(!has_more_values_than(br#"{"a": "[[[,,,", "b\\\",,": 1}"#, 3));
        assert!(has_more_values_than(br#"{"a": [1, 1, 1, 1]}"#, 5));
        assert!(!has_more_values_than(br#"{"a": [1, 1, 1, 1]}"#, 6));
    }

    #[test]
    fn repeated_query_parameters_are_a_list() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let read = from_query(vec![pair("a", "1"), pair("b", "x"), pair("a", "2")]);
        assert_eq!(Value::Object(read), serde_json::json!({"a": ["1", "2"], "b": "x"}));
    }
}
