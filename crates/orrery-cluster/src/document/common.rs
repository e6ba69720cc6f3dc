//! Fields that all documents share, and scalars with more than one notation.

use std::fmt;

use indexmap::IndexMap;
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// Name and description of a document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentInfo {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icon: Option<String>,
    /// Assigned by the store on every write; the store ignores the value of a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
}

/// A page about a cluster or a service; its URL may contain macros.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    pub url: String,
}

/// Maximum length of a document name, in characters.
const NAME_CHARS_MAX: usize = 255;

/// True for letters, digits, `_`, `.` and `-`, at least one and at most 255.
pub fn is_name(text: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    !text.is_empty() && text.len() <= NAME_CHARS_MAX && text.chars().all(is_allowed)
}

/// A span of time in milliseconds, written as a number or as a number with a unit (`90s`, `2h`,
/// `7d`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseTime(pub u64);

impl LeaseTime {
    /// Parses `7d`, `24h`, `90m`, `30s` or milliseconds without a unit.
    ///
    /// # Errors
    /// A sentence that describes the error.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let (digits, factor) = match text.char_indices().next_back() {
            Some((at, 's')) => (&text[..at], 1_000),
            Some((at, 'm')) => (&text[..at], 60_000),
            Some((at, 'h')) => (&text[..at], 3_600_000),
            Some((at, 'd')) => (&text[..at], 86_400_000),
            _ => (text, 1),
        };
        let wrong = || {
            format!(
                "`{text}` is not a duration: expected milliseconds, or a number with s, m, h or d"
            )
        };
        let value: u64 = digits.parse().map_err(|_| wrong())?;
        value.checked_mul(factor).map(LeaseTime).ok_or_else(|| format!("`{text}` is too long"))
    }

    pub fn is_zero(&self) -> bool {
        self.0 == 0
    }
}

impl Serialize for LeaseTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for LeaseTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Duration;
        impl Visitor<'_> for Duration {
            type Value = LeaseTime;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("milliseconds, or a number with s, m, h or d")
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<LeaseTime, E> {
                Ok(LeaseTime(value))
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<LeaseTime, E> {
                let value = u64::try_from(value).map_err(|_| E::custom("a negative duration"))?;
                Ok(LeaseTime(value))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<LeaseTime, E> {
                LeaseTime::parse(text).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Duration)
    }
}

/// Deserializes a map of strings; numbers and booleans are converted to text.
pub(super) fn texts<'de, D>(deserializer: D) -> Result<IndexMap<String, String>, D::Error>
where
    D: Deserializer<'de>,
{
    let values = IndexMap::<String, serde_json::Value>::deserialize(deserializer)?;
    let text = |(key, value)| match value {
        serde_json::Value::String(text) => Ok((key, text)),
        serde_json::Value::Number(number) => Ok((key, number.to_string())),
        serde_json::Value::Bool(flag) => Ok((key, flag.to_string())),
        _ => Err(de::Error::custom(format!("{key} is not a text"))),
    };
    values.into_iter().map(text).collect()
}

pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
