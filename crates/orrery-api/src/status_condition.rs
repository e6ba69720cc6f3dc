//! Conditions on the status of a resource.

use std::borrow::Cow;
use std::str::FromStr;

use orrery_model::Status;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::UnknownVariant;

/// A status to include, `failed`; or to exclude, `!failed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusCondition {
    Is(Status),
    IsNot(Status),
}

impl StatusCondition {
    fn all() -> impl Iterator<Item = StatusCondition> {
        let conditions = [StatusCondition::Is, StatusCondition::IsNot];
        conditions.into_iter().flat_map(|condition| Status::ALL.map(condition))
    }
}

impl std::fmt::Display for StatusCondition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StatusCondition::Is(status) => f.write_str(status.as_str()),
            StatusCondition::IsNot(status) => write!(f, "!{}", status.as_str()),
        }
    }
}

impl FromStr for StatusCondition {
    type Err = UnknownVariant;

    fn from_str(text: &str) -> Result<Self, UnknownVariant> {
        let name = text.strip_prefix('!');
        let status = Status::ALL.into_iter().find(|status| status.as_str() == name.unwrap_or(text));
        let status = status.ok_or_else(|| {
            UnknownVariant::new(text, Status::ALL.into_iter().map(Status::as_str))
        })?;
        Ok(match name {
            Some(_) => StatusCondition::IsNot(status),
            None => StatusCondition::Is(status),
        })
    }
}

impl Serialize for StatusCondition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for StatusCondition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl PartialSchema for StatusCondition {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some("A status to include, `failed`; or to exclude, `!failed`."))
            .enum_values(Some(StatusCondition::all().map(|condition| condition.to_string())))
            .into()
    }
}

impl ToSchema for StatusCondition {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_have_one_spelling() {
        for condition in StatusCondition::all() {
            assert_eq!(condition.to_string().parse(), Ok(condition));
        }
        let error = "broken".parse::<StatusCondition>().unwrap_err().to_string();
        assert!(error.starts_with(r#""broken" is none of deployed, available"#), "{error}");
    }
}
