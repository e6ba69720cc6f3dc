//! Rules for values that the type of an attribute cannot express. The compiler checks models
//! against them, and handlers parse values by them.

/// A rule for the values of one field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldRule {
    /// Permission bits in octal notation: up to four octal digits, 644 for `rw-r--r--`.
    Permissions,
}

/// Fields of built-in resources with a rule: entity, field, rule.
const RULES: [(&str, &str, FieldRule); 2] = [
    ("std::Directory", "mode", FieldRule::Permissions),
    ("std::File", "mode", FieldRule::Permissions),
];

/// Returns the rules for the fields of an entity, by its full name.
pub fn field_rules(entity: &str) -> impl Iterator<Item = (&'static str, FieldRule)> {
    RULES.iter().filter(move |(of, ..)| *of == entity).map(|(_, field, rule)| (*field, *rule))
}

/// Parses permissions: the digits of the number 644 or of the text "0644" are octal.
pub fn parse_permissions(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("0o").unwrap_or(text);
    let is_octal = !digits.is_empty() && digits.bytes().all(|digit| (b'0'..b'8').contains(&digit));
    let bits = is_octal.then(|| u32::from_str_radix(digits, 8).ok()).flatten()?;
    (bits <= 0o7777).then_some(bits)
}

impl FieldRule {
    /// Returns true if a number satisfies the rule.
    pub fn accepts(self, number: i64) -> bool {
        match self {
            FieldRule::Permissions => parse_permissions(&number.to_string()).is_some(),
        }
    }

    /// Description of the rule for messages.
    pub fn description(self) -> &'static str {
        match self {
            FieldRule::Permissions => "permissions have at most four octal digits, such as 644",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_have_octal_digits() {
        assert_eq!(parse_permissions("0644"), Some(0o644));
        assert_eq!(parse_permissions("0o1777"), Some(0o1777));
        for wrong in ["", "999", "648", "-644", "17777", "rw"] {
            assert_eq!(parse_permissions(wrong), None, "{wrong}");
        }
        assert!(FieldRule::Permissions.accepts(755) && !FieldRule::Permissions.accepts(-1));
    }

    #[test]
    fn rules_are_found_by_entity() {
        assert_eq!(field_rules("std::File").count(), 1);
        assert_eq!(field_rules("std::Host").count(), 0);
    }
}
