//! Translation of library errors about inputs: clients do not know Rust types.

/// Describes an error in query parameters.
pub(crate) fn query_error(message: &str) -> String {
    let text = message.strip_prefix("Failed to deserialize query string: ").unwrap_or(message);
    match text.split_once(": ") {
        Some((name, reason)) if is_name(name) => format!("{name} {}", describe_constraint(reason)),
        _ => format!("the parameters are not understood: {text}"),
    }
}

/// Describes an error in a path.
pub(crate) fn path_error(message: &str) -> String {
    let text = message.strip_prefix("Invalid URL: ").unwrap_or(message);
    // "Cannot parse `number` with value `x` to a `u32`", or with an index, or ": " and a reason.
    let value = text.split_once("with value `").and_then(|(_, rest)| rest.split_once('`'));
    let (value, reason) = match value {
        Some((value, rest)) => (Some(value), rest),
        None => (None, text),
    };
    let reason = reason.trim_start_matches(": ").trim_start_matches(" to a ");
    match (value, parse_unknown_variant(reason)) {
        (_, Some((given, known))) => {
            format!("{given} in the path is unknown: expected one of {known}")
        }
        (Some(value), None) => format!("{value:?} in the path {}", describe_constraint(reason)),
        (None, None) => format!("a part of the path {}", describe_constraint(reason)),
    }
}

/// Finds the field of a JSON body with a value outside of its closed set, or an unreadable time.
///
/// Parses again with a record of the path, which a valid body does not pay for.
pub(crate) fn invalid_value<T: serde::de::DeserializeOwned>(
    body: &[u8],
) -> Option<(String, String)> {
    let error = axum::Json::<T>::from_bytes(body).err()?.body_text();
    let text = error
        .strip_prefix("Failed to deserialize the JSON body into the target type: ")
        .unwrap_or(&error);
    let (field, reason) = text.split_once(": ")?;
    let is_path = |c: char| c.is_ascii_alphanumeric() || "_.[]".contains(c);
    if !field.chars().all(is_path) {
        return None;
    }
    let reason = match reason.rsplit_once(" at line ") {
        Some((reason, place)) if place.contains(" column ") => reason,
        _ => reason,
    };
    let has = |sign: &str| reason.contains(sign);
    if parse_unknown_variant(reason).is_some() {
        Some((field.to_owned(), describe_constraint(reason)))
    } else if has(" is none of ") || has(" is not a time such as ") {
        Some((field.to_owned(), reason.to_owned()))
    } else {
        None
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c == '_')
}

/// "unknown variant `x`, expected one of `a`, `b`".
fn parse_unknown_variant(reason: &str) -> Option<(&str, String)> {
    let rest = reason.strip_prefix("unknown variant `")?;
    let (given, rest) = rest.split_once('`')?;
    let known = rest.trim_start_matches(", expected ").trim_start_matches("one of ");
    Some((given, known.replace('`', "").replace(" or ", ", ")))
}

fn describe_constraint(reason: &str) -> String {
    if let Some((given, known)) = parse_unknown_variant(reason) {
        return format!("must be one of {known}, and is {given}");
    }
    let has = |signs: &[&str]| signs.iter().any(|sign| reason.contains(sign));
    if has(&["`true` or `false`", "`bool`"]) {
        "must be true or false".to_owned()
    } else if has(&["UUID", "Uuid"]) {
        "must be an id: a UUID".to_owned()
    } else if has(&["too large", "too small"]) {
        "is out of range".to_owned()
    } else if has(&["invalid digit", "empty string", "`u", "`i"]) {
        "must be a whole number".to_owned()
    } else if has(&["duplicate field"]) {
        "must not be given twice".to_owned()
    } else {
        format!("is not understood: {reason}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_outside_of_a_closed_set_name_their_field() {
        let invalid = |body: &str| invalid_value::<orrery_api::NewToken>(body.as_bytes());
        let role = invalid(r#"{"name": "ci", "role": "boss"}"#);
        let known = r#""boss" is none of viewer, operator, developer, admin"#;
        assert_eq!(role, Some(("role".to_owned(), known.to_owned())));
        let verb = invalid(r#"{"name": "ci", "role": "admin", "verbs": ["GET", "get"]}"#);
        let known = r#""get" is none of GET, POST, PUT, PATCH, DELETE"#;
        assert_eq!(verb, Some(("verbs[1]".to_owned(), known.to_owned())));
        assert_eq!(invalid(r#"{"name": 1, "role": "admin"}"#), None);
        let choice = r#"{"resource": "a", "choice": "maybe"}"#.as_bytes();
        let known = "must be one of done, again, and is maybe";
        let choice = invalid_value::<orrery_api::SettleRequest>(choice);
        assert_eq!(choice, Some(("choice".to_owned(), known.to_owned())));
    }

    #[test]
    fn library_errors_are_translated() {
        let query =
            |text: &str| query_error(&format!("Failed to deserialize query string: {text}"));
        let bool = "released: provided string was not `true` or `false`";
        assert_eq!(query(bool), "released must be true or false");
        assert_eq!(query("limit: invalid digit found in string"), "limit must be a whole number");
        let large = "limit: number too large to fit in target type";
        assert_eq!(query(large), "limit is out of range");
        let id = "project: UUID parsing failed: invalid length";
        assert_eq!(query(id), "project must be an id: a UUID");
        let path = |text: &str| path_error(&format!("Invalid URL: {text}"));
        let action = "unknown variant `explode`, expected one of `pause`, `unpause`";
        assert_eq!(path(action), "explode in the path is unknown: expected one of pause, unpause");
        let number = "Cannot parse value at index 1 with value `x` to a `u32`";
        assert_eq!(path(number), "\"x\" in the path must be a whole number");
        let id = "Cannot parse `id` with value `x`: UUID parsing failed: invalid length";
        assert_eq!(path(id), "\"x\" in the path must be an id: a UUID");
    }
}
