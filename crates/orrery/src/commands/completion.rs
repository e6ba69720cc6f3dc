//! `orrery completion`: scripts for shells.

use clap::CommandFactory;

use crate::cli::{Cli, Completion, Shell};
use crate::{Exit, output};

pub(crate) fn run(options: &Completion) -> Exit {
    let shell = match options.shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "orrery", &mut script);
    if output::print(|out| out.write_all(&script)) { Exit::Done } else { Exit::Error }
}
