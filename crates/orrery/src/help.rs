//! The list of commands that `orrery --help` shows, in groups: there are too many of them for one list.

use anstyle::{Effects, Style};
use clap::Command;

const HEADING: Style = Style::new().effects(Effects::BOLD.insert(Effects::UNDERLINE));
const NAME: Style = Style::new().effects(Effects::BOLD);

/// Every command that is shown, by what somebody wants to do.
const GROUPS: [(&str, &[&str]); 4] = [
    (
        "Work on a project",
        &["new", "compile", "plan", "deploy", "repair", "watch", "fmt", "parse", "modules", "sdk"],
    ),
    ("Look at a deployment", &["status", "resources", "why", "log", "versions", "diff", "facts"]),
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
    ("And", &["server", "completion", "help"]),
];

/// The command line with its commands in groups.
pub(crate) fn grouped(command: Command) -> Command {
    let mut command = command;
    // Only then does it know the command `help`.
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

/// Hides what says which server is meant where none is: on the machine of a remote agent.
fn without_servers(command: Command) -> Command {
    let hide = |command: Command, names: &[&str]| {
        names.iter().fold(command, |command, name| command.mut_arg(name, |arg| arg.hide(true)))
    };
    command.mut_subcommand("agent", |agent| {
        let agent = agent.mut_subcommand("join", |join| hide(join, &OF_SERVERS));
        agent.mut_subcommand("run", |run| hide(hide(run, &OF_SERVERS), &["json"]))
    })
}

const OF_SERVERS: [&str; 4] = ["server", "context", "ca", "environment"];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn remote_agents_are_not_asked_for_servers() {
        let mut command = grouped(crate::cli::Cli::command());
        let agent = command.find_subcommand_mut("agent").unwrap();
        for name in ["join", "run"] {
            let help = agent.find_subcommand_mut(name).unwrap().render_long_help().to_string();
            assert!(help.contains("--state") && !help.contains("--server"), "{help}");
        }
        let pause = agent.find_subcommand_mut("pause").unwrap().render_long_help().to_string();
        assert!(pause.contains("--server"), "{pause}");
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
