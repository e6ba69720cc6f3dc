//! Enums with fixed spellings on the wire.
//!
//! A value that a program does not know is refused, with the list of known ones: a default would
//! hide it. A client that meets a value of a newer server therefore reports an unexpected response,
//! and the remedy is a client of the server's version.

use std::fmt;

/// Error of a text that is none of the values of an enum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownVariant {
    given: String,
    known: Vec<&'static str>,
}

impl UnknownVariant {
    pub(crate) fn new(given: &str, known: impl Iterator<Item = &'static str>) -> Self {
        UnknownVariant { given: given.to_owned(), known: known.collect() }
    }
}

impl fmt::Display for UnknownVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is none of {}", self.given, self.known.join(", "))
    }
}

impl std::error::Error for UnknownVariant {}

/// Defines enums of the API with their spellings on the wire.
macro_rules! string_enums {
    ($(
        $(#[doc = $doc:literal])+
        pub enum $name:ident {
            $($(#[doc = $of_variant:literal])* $variant:ident = $text:literal,)+
        }
    )+) => {$(
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[doc = $of_variant])* $variant,)+
        }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];

            pub fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => $text,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::UnknownVariant;

            fn from_str(text: &str) -> Result<Self, $crate::UnknownVariant> {
                let known = || $name::ALL.iter().copied();
                known().find(|value| value.as_str() == text).ok_or_else(|| {
                    $crate::UnknownVariant::new(text, known().map($name::as_str))
                })
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                let description = [$($doc),+].map(str::trim).join("\n");
                utoipa::openapi::ObjectBuilder::new()
                    .schema_type(utoipa::openapi::Type::String)
                    .description(Some(description))
                    .enum_values(Some($name::ALL.iter().copied().map($name::as_str)))
                    .into()
            }
        }

        impl utoipa::ToSchema for $name {}

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )+};
}

pub(crate) use string_enums;

#[cfg(test)]
mod tests {
    use crate::RoleName;

    #[test]
    fn values_have_one_spelling() {
        for role in RoleName::ALL {
            let text = serde_json::to_string(role).unwrap();
            assert_eq!(text, format!("{:?}", role.as_str()));
            assert_eq!(serde_json::from_str::<RoleName>(&text).unwrap(), *role);
        }
    }

    #[test]
    fn an_unknown_value_is_refused_with_the_known_ones() {
        let error = serde_json::from_str::<RoleName>(r#""boss""#).unwrap_err().to_string();
        let expected = r#""boss" is none of viewer, operator, developer, admin"#;
        assert!(error.starts_with(expected), "{error}");
    }
}
