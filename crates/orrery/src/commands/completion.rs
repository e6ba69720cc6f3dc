//! `orrery completion`: shell completion scripts.

use clap::{CommandFactory, ValueHint};

use crate::cli::{Cli, Completion, Shell};
use crate::{Exit, output};

pub(crate) fn run(options: &Completion) -> Exit {
    let shell = match options.shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut offered(&Cli::command()), "orrery", &mut script);
    if output::print(|out| out.write_all(&script)) { Exit::Done } else { Exit::Error }
}

/// Removes hidden commands, and file completion where no file is expected.
fn offered(command: &clap::Command) -> clap::Command {
    // Leaked: the process ends soon.
    let name: &'static str = command.get_name().to_owned().leak();
    let mut offered = clap::Command::new(name);
    if let Some(about) = command.get_about() {
        offered = offered.about(about.clone());
    }
    if let Some(version) = command.get_version() {
        let version: &'static str = version.to_owned().leak();
        offered = offered.version(version);
    }
    for alias in command.get_visible_aliases() {
        let alias: &'static str = alias.to_owned().leak();
        offered = offered.visible_alias(alias);
    }
    for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
        let argument = match argument.get_value_hint() {
            // Arguments with paths have a hint; all others are names, numbers and texts.
            ValueHint::Unknown if argument.get_action().takes_values() => {
                argument.clone().value_hint(ValueHint::Other)
            }
            _ => argument.clone(),
        };
        offered = offered.arg(argument);
    }
    let shown = command.get_subcommands().filter(|one| !one.is_hide_set());
    offered.subcommands(shown.map(self::offered))
}
