//! Groups the commands in `orrery --help`.

use anstyle::{Effects, Style};
use clap::Command;

const HEADING: Style = Style::new().effects(Effects::BOLD.insert(Effects::UNDERLINE));
const NAME: Style = Style::new().effects(Effects::BOLD);

/// Visible commands by task.
const GROUPS: [(&str, &[&str]); 5] = [
    (
        "Work on a project",
        &[
            "new", "compile", "plan", "deploy", "repair", "watch", "destroy", "docs", "fmt",
            "parse", "explain", "modules", "sdk",
        ],
    ),
    (
        "Inspect a deployment",
        &[
            "status",
            "resources",
            "why",
            "settle",
            "log",
            "versions",
            "diff",
            "facts",
            "hosts",
            "ping",
        ],
    ),
    (
        "Work with a server",
        &[
            "login",
            "logout",
            "context",
            "export",
            "project",
            "environment",
            "version",
            "agent",
            "param",
            "fact",
            "secret",
            "notification",
            "token",
            "user",
            "audit",
        ],
    ),
    (
        "Manage clusters",
        &["cluster", "template", "service", "hardware", "image", "provider", "tenant", "worker"],
    ),
    ("Other", &["server", "completion", "help"]),
];

/// Returns the command line with grouped commands.
pub(crate) fn grouped(command: Command) -> Command {
    let mut command = explained(without_values(command), "");
    // The command `help` exists only after the build.
    command.build();
    let command = without_servers(command);
    let width = command.get_subcommands().map(|one| one.get_name().len()).max().unwrap_or(0);
    let mut text = String::new();
    for (heading, names) in GROUPS {
        text += &format!("{HEADING}{heading}:{HEADING:#}\n");
        for name in names {
            let found = command.find_subcommand(name);
            let about = found.and_then(Command::get_about).map(ToString::to_string);
            let about = about.unwrap_or_default();
            text += &format!("  {NAME}{name:<width$}{NAME:#}  {about}\n");
        }
        text.push('\n');
    }
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{{before-help}}{HEADING}Options:{HEADING:#}\n{{options}}{{after-help}}"
    );
    command.before_help(text.trim_end().to_owned()).help_template(template)
}

/// Shows names of environment variables in help, not their values.
fn without_values(command: Command) -> Command {
    let command = command.mut_args(|arg| arg.hide_env_values(true));
    command.mut_subcommands(without_values)
}

/// Adds help to arguments without one: names, ids and numbers, by the noun of the command group.
fn explained(command: Command, noun: &str) -> Command {
    let noun_within = match command.get_name() {
        "param" => "parameter".to_owned(),
        "hardware" => "hardware type".to_owned(),
        "image" => "image type".to_owned(),
        name => name.to_owned(),
    };
    let is_group = command.has_subcommands();
    let noun = noun.to_owned();
    let command = command.mut_args(|arg| {
        let text = match arg.get_id().as_str() {
            _ if arg.get_help().is_some() => return arg,
            "name" => format!("Name of the {noun}"),
            "names" => format!("Names of the {noun}s"),
            "value" => format!("Value of the {noun}"),
            "version" => "Number of the version".to_owned(),
            "from" => "Number of the older version".to_owned(),
            "to" => "Number of the newer version".to_owned(),
            "resource" => "Id of the resource".to_owned(),
            "id" => format!("Id of the {noun}"),
            "ids" => format!("Ids of the {noun}s"),
            "role" => "Role of the account".to_owned(),
            _ => return arg,
        };
        arg.help(text)
    });
    command.mut_subcommands(|one| explained(one, if is_group { &noun_within } else { &noun }))
}

/// Hides server options from `agent join` and `agent run`, which use no server.
fn without_servers(command: Command) -> Command {
    // All at once: hiding options one by one would change their order in a built command.
    let hide = |command: Command, more: &[&str]| {
        command.mut_args(|arg| {
            let name = arg.get_id().as_str();
            let is_meant = OF_SERVERS.contains(&name) || more.contains(&name);
            if is_meant { arg.hide(true) } else { arg }
        })
    };
    command.mut_subcommand("agent", |agent| {
        let agent = agent.mut_subcommand("join", |join| hide(join, &[]));
        agent.mut_subcommand("run", |run| hide(run, &["json"]))
    })
}

const OF_SERVERS: [&str; 4] = ["server", "context", "ca", "environment"];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory as _;
    use clap::error::ErrorKind;

    use super::*;

    #[test]
    fn remote_agents_have_no_server_options() {
        let mut command = grouped(crate::cli::Cli::command());
        let agent = command.find_subcommand_mut("agent").unwrap();
        for name in ["join", "run"] {
            let help = agent.find_subcommand_mut(name).unwrap().render_long_help().to_string();
            assert!(help.contains("--state") && !help.contains("--server"), "{help}");
        }
        let pause = agent.find_subcommand_mut("pause").unwrap().render_long_help().to_string();
        assert!(pause.contains("--server"), "{pause}");
    }

    /// Collects the words of every command and subcommand.
    fn walk(command: &Command, words: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
        words.push(command.get_name().to_owned());
        found.push(words.clone());
        for one in command.get_subcommands().filter(|one| one.get_name() != "help") {
            walk(one, words, found);
        }
        words.pop();
    }

    #[test]
    fn every_command_has_help_that_does_nothing() {
        let command = grouped(crate::cli::Cli::command());
        let mut found = Vec::new();
        walk(&command, &mut Vec::new(), &mut found);
        assert!(found.len() > 80, "{}", found.len());
        for words in found {
            for flag in ["--help", "-h"] {
                let mut line = words.clone();
                line.push(flag.to_owned());
                let error = command.clone().try_get_matches_from(&line).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::DisplayHelp, "{line:?}: {error}");
            }
        }
    }

    fn without_help(command: &Command, path: &str, found: &mut Vec<String>) {
        let path = format!("{path} {}", command.get_name());
        for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
            if arg.get_help().is_none() {
                found.push(format!("{path} {}", arg.get_id()));
            }
        }
        for one in command.get_subcommands().filter(|one| one.get_name() != "help") {
            without_help(one, &path, found);
        }
    }

    #[test]
    fn every_argument_is_explained_and_shows_no_value_of_a_variable() {
        let mut command = grouped(crate::cli::Cli::command());
        let mut found = Vec::new();
        without_help(&command, "", &mut found);
        assert!(found.is_empty(), "without help: {found:#?}");
        let server = command.find_subcommand_mut("server").unwrap();
        let help = server.render_long_help().to_string();
        assert!(help.contains("[env: ORRERY_LISTEN]"), "{help}");
    }

    #[test]
    fn every_command_stands_in_one_group() {
        let mut command = crate::cli::Cli::command();
        command.build();
        let shown: BTreeSet<&str> = command
            .get_subcommands()
            .filter(|one| !one.is_hide_set())
            .map(clap::Command::get_name)
            .collect();
        let listed: Vec<&str> =
            GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        assert_eq!(listed.iter().copied().collect::<BTreeSet<_>>(), shown);
        assert_eq!(listed.len(), shown.len());
    }
}
