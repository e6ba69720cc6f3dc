//! Owner, group and permissions in models; shared by files and directories.

use std::fmt;

use orrery_model::AttributeDiff;
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde_json::Value;

use crate::context::{Context, changed};
use crate::error::TargetError;
use crate::target::{AccountName, Ownership, Stat};

/// Permission bits. Models write them in octal digits: the number 644 and the text "0644" mean
/// `rw-r--r--`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Permissions(pub(crate) u32);

impl Permissions {
    /// Reads octal digits.
    fn parse(text: &str) -> Option<Self> {
        orrery_model::parse_permissions(text).map(Permissions)
    }
}

impl fmt::Display for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

impl<'de> Deserialize<'de> for Permissions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Octal;

        impl Visitor<'_> for Octal {
            type Value = Permissions;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("permissions of at most four octal digits, such as 644")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Permissions, E> {
                let invalid = || E::invalid_value(de::Unexpected::Unsigned(number), &self);
                Permissions::parse(&number.to_string()).ok_or_else(invalid)
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Permissions, E> {
                let positive = u64::try_from(number)
                    .map_err(|_| E::invalid_value(de::Unexpected::Signed(number), &self))?;
                self.visit_u64(positive)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Permissions, E> {
                let invalid = || E::invalid_value(de::Unexpected::Str(text), &self);
                Permissions::parse(text).ok_or_else(invalid)
            }
        }

        deserializer.deserialize_any(Octal)
    }
}

/// Desired ownership; `None` leaves a part unchanged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DesiredOwnership<'d> {
    pub(crate) mode: Option<Permissions>,
    pub(crate) owner: Option<&'d str>,
    pub(crate) group: Option<&'d str>,
}

impl<'d> DesiredOwnership<'d> {
    /// Desired ownership of a resource; a null or empty owner or group leaves that part unchanged.
    pub(crate) fn new(
        mode: Option<Permissions>,
        owner: Option<&'d str>,
        group: Option<&'d str>,
    ) -> Self {
        let named = |name: &&str| !name.is_empty();
        DesiredOwnership { mode, owner: owner.filter(named), group: group.filter(named) }
    }

    /// Resolves names to ids.
    pub(crate) fn resolve(self, context: &Context<'_>) -> Result<Ownership, TargetError> {
        Ok(Ownership {
            mode: self.mode.map(|mode| mode.0),
            uid: self.owner.map(|owner| context.uid(owner)).transpose()?.flatten(),
            gid: self.group.map(|group| context.gid(group)).transpose()?.flatten(),
        })
    }

    /// Appends the differences from the current ownership.
    pub(crate) fn diff(
        self,
        stat: Stat,
        context: &Context<'_>,
        changes: &mut Vec<AttributeDiff>,
    ) -> Result<(), TargetError> {
        if let Some(mode) = self.mode
            && mode.0 != stat.mode
        {
            let current = Permissions(stat.mode).to_string();
            changes.push(changed("mode", current, mode.to_string()));
        }
        // In a dry run, a user without an id does not exist yet and owns nothing.
        if let Some(owner) = self.owner
            && context.uid(owner)? != Some(stat.uid)
        {
            let found = context.target().user(AccountName::Id(stat.uid))?;
            changes.push(changed("owner", name(found.map(|user| user.name), stat.uid), owner));
        }
        if let Some(group) = self.group
            && context.gid(group)? != Some(stat.gid)
        {
            let found = context.target().group(AccountName::Id(stat.gid))?;
            changes.push(changed("group", name(found.map(|group| group.name), stat.gid), group));
        }
        Ok(())
    }
}

fn name(name: Option<String>, id: u32) -> Value {
    Value::from(name.unwrap_or_else(|| id.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_parsed_as_octal_digits() {
        let read = |text: &str| serde_json::from_str::<Permissions>(text);
        for (text, bits) in [
            ("644", 0o644),
            ("4755", 0o4755),
            ("0", 0),
            (r#""0644""#, 0o644),
            (r#""755""#, 0o755),
            (r#""0o600""#, 0o600),
        ] {
            assert_eq!(read(text).unwrap(), Permissions(bits), "{text}");
        }
        for text in ["648", "-644", "77777", r#""rw""#, r#""""#, "6.44", "null"] {
            assert!(read(text).is_err(), "{text}");
        }
        assert_eq!(Permissions(0o644).to_string(), "0644");
    }
}
