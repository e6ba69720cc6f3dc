//! Detects misspelt environment variables: a typo must not change the rights of a server.

use std::collections::BTreeSet;

use orrery_model::similar_names::closest_within;

const PREFIX: &str = "ORRERY_";
/// Maximum edit distance of a misspelt name.
const TYPOS: usize = 2;
/// Variables that are read elsewhere.
const FURTHER: [&str; 12] = [
    "ORRERY_ADMIN_PASSWORD",
    "ORRERY_CA",
    "ORRERY_CONTEXT",
    "ORRERY_CONTEXTS",
    "ORRERY_ENVIRONMENT",
    "ORRERY_MODULES_DIR",
    "ORRERY_RECONNECT_SECONDS",
    "ORRERY_SCRATCH",
    "ORRERY_SDK",
    "ORRERY_SERVER",
    "ORRERY_TOKEN",
    "ORRERY_UV",
];

/// A set variable and the name that was probably meant.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Misspelt {
    pub(crate) name: String,
    pub(crate) meant: String,
}

/// Set variables that belong to no option but resemble one that does.
pub(crate) fn misspelt(
    command: &clap::Command,
    set: impl Iterator<Item = String>,
) -> Vec<Misspelt> {
    let mut known: BTreeSet<String> = FURTHER.iter().map(|name| (*name).to_owned()).collect();
    collect(command, &mut known);
    let unknown = set.filter(|name| name.starts_with(PREFIX) && !known.contains(name));
    let known_endings = || known.iter().filter_map(|name| name.strip_prefix(PREFIX));
    unknown
        .filter_map(|name| {
            let meant = closest_within(name.strip_prefix(PREFIX)?, known_endings(), TYPOS)?;
            let meant = format!("{PREFIX}{meant}");
            Some(Misspelt { name, meant })
        })
        .collect()
}

fn collect(command: &clap::Command, known: &mut BTreeSet<String>) {
    let names = command.get_arguments().filter_map(clap::Arg::get_env);
    known.extend(names.filter_map(|name| name.to_str()).map(str::to_owned));
    for inner in command.get_subcommands() {
        collect(inner, known);
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn found(names: &[&str]) -> Vec<(String, String)> {
        let set = names.iter().map(|name| (*name).to_owned());
        let found = misspelt(&crate::cli::Cli::command(), set);
        found.into_iter().map(|one| (one.name, one.meant)).collect()
    }

    #[test]
    fn typos_of_options_are_found() {
        let typos = ["ORRERY_OWN_MACHIN", "ORRERY_ADMIN_PASWORD", "ORRERY_ENVIROMENT"];
        let meant = ["ORRERY_OWN_MACHINE", "ORRERY_ADMIN_PASSWORD", "ORRERY_ENVIRONMENT"];
        let expected: Vec<(String, String)> = typos
            .iter()
            .zip(meant)
            .map(|(one, other)| (one.to_string(), other.to_owned()))
            .collect();
        assert_eq!(found(&typos), expected);
    }

    #[test]
    fn unrelated_variables_are_ignored() {
        assert_eq!(found(&["ORRERY_OWN_MACHINE", "ORRERY_TOKEN", "ORRERY_MY_SECRET", "PATH"]), []);
    }
}
