//! Times on the wire: RFC 3339 in UTC.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use orrery_model::{InvalidTimestamp, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, SchemaFormat, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// A time of a request or response: `2026-11-16T09:30:00.000000Z` on the wire.
///
/// A text that is no such time fails to deserialize; there is no default for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Time(pub Timestamp);

impl From<Timestamp> for Time {
    fn from(at: Timestamp) -> Self {
        Time(at)
    }
}

impl From<Time> for Timestamp {
    fn from(Time(at): Time) -> Self {
        at
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for Time {
    type Err = InvalidTimestamp;

    fn from_str(text: &str) -> Result<Self, InvalidTimestamp> {
        text.parse().map(Time)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl PartialSchema for Time {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
            .into()
    }
}

impl ToSchema for Time {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_texts_on_the_wire() {
        let at = Time(Timestamp(1_794_821_400_123_456));
        let text = serde_json::to_string(&at).unwrap();
        assert_eq!(text, r#""2026-11-16T09:30:00.123456Z""#);
        assert_eq!(serde_json::from_str::<Time>(&text).unwrap(), at);
    }

    #[test]
    fn an_unreadable_time_is_refused() {
        for text in [r#""""#, r#""yesterday""#, "0", "null"] {
            assert!(serde_json::from_str::<Time>(text).is_err(), "{text}");
        }
        let error = serde_json::from_str::<Time>(r#""soon""#).unwrap_err().to_string();
        assert!(error.contains(r#""soon" is not a time such as"#), "{error}");
    }
}
