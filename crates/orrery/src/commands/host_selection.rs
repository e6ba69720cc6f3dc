//! Selection of hosts of an inventory: by name or group, with wildcards.

use orrery_model::{Pattern, similar_names};

use super::inspect::text::some_of;
use crate::error::CliError;

/// Returns the hosts that a pattern names, by their names or those of their groups.
///
/// # Errors
/// If there is none; the help names similar ones.
pub(super) fn select<T>(
    pattern: Option<&str>,
    hosts: Vec<T>,
    names: impl Fn(&T) -> (&str, &[String]),
) -> Result<Vec<T>, CliError> {
    let Some(asked) = pattern else { return Ok(hosts) };
    let pattern = Pattern::new(asked);
    let is_selected = |host: &T| {
        let (name, groups) = names(host);
        pattern.matches_name(name) || groups.iter().any(|group| pattern.matches_name(group))
    };
    if hosts.iter().any(is_selected) {
        return Ok(hosts.into_iter().filter(is_selected).collect());
    }
    let mut known: Vec<&str> = Vec::new();
    for host in &hosts {
        let (name, groups) = names(host);
        known.push(name);
        known.extend(groups.iter().map(String::as_str));
    }
    known.sort_unstable();
    known.dedup();
    let error = CliError::new(format!("no host and no group matches {asked:?}"));
    Err(error.help(help(asked, &pattern, &known)))
}

fn help(asked: &str, pattern: &Pattern, known: &[&str]) -> String {
    let parts: Vec<&str> =
        known.iter().copied().filter(|name| pattern.matches_text(name)).collect();
    if known.is_empty() {
        "the inventory has no hosts".to_owned()
    } else if !parts.is_empty() {
        format!("'*{asked}*' selects {}", some_of(&parts))
    } else if let Some(near) = similar_names::closest(asked, known.iter().copied()) {
        format!("did you mean {near}? `orrery hosts` shows all")
    } else {
        format!("`orrery hosts` shows all: {}", some_of(known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(pattern: &str) -> Result<Vec<&'static str>, String> {
        let hosts = [
            ("web1", vec!["web".to_owned()]),
            ("web2", vec!["web".to_owned()]),
            ("webmail", Vec::new()),
            ("Db1.example.org", Vec::new()),
        ];
        let found = select(Some(pattern), hosts.to_vec(), |(name, groups)| (name, groups));
        match found {
            Ok(found) => Ok(found.into_iter().map(|(name, _)| name).collect()),
            Err(CliError::Message { message, help }) => {
                Err(format!("{message}: {}", help.unwrap_or_default()))
            }
            Err(other) => Err(other.to_string()),
        }
    }

    #[test]
    fn names_and_groups_match_as_a_whole() {
        assert_eq!(selected("web1").unwrap(), ["web1"]);
        assert_eq!(selected("web").unwrap(), ["web1", "web2"], "the group");
        assert_eq!(selected("web*").unwrap(), ["web1", "web2", "webmail"]);
        assert_eq!(selected("db1.example.ORG").unwrap(), ["Db1.example.org"]);
        assert_eq!(selected("???2").unwrap(), ["web2"]);
    }

    #[test]
    fn a_pattern_without_a_match_names_similar_ones() {
        for (pattern, help) in [
            ("mail", "'*mail*' selects webmail"),
            ("wbe1", "did you mean web1?"),
            ("nothing", "`orrery hosts` shows all: Db1.example.org, web"),
            ("x*", "`orrery hosts` shows all"),
        ] {
            let error = selected(pattern).unwrap_err();
            assert!(
                error.starts_with(&format!("no host and no group matches {pattern:?}")),
                "{error}"
            );
            assert!(error.contains(help), "{error}");
        }
    }
}
