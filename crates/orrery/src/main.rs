//! The `orrery` binary: the command line and its commands.
//!
//! `cli` defines the arguments, `commands` implements them, `render` formats diagnostics, `output`
//! writes to terminals and pipes, and `panic_guard` reports panics. The language itself is in other
//! crates. Tests: `tests/it`, mainly the transcripts in `tests/it/sessions`.

#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests and measurements run in real time")
)]

mod cli;
mod commands;
mod console_files;
mod descriptors;
mod error;
mod excerpt;
mod help;
mod natural_order;
mod output;
mod pages;
mod panic_guard;
mod remote;
mod render;
mod signals;
mod ssh;
mod state;
mod style;
mod target_host;
mod variables;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};

use crate::cli::agent::AgentAction;
use crate::cli::{Cli, Command};

/// Models and versions consist of millions of small strings, often freed on another thread than the
/// one that allocated them. mimalloc handles that pattern well.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Exit code of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exit {
    Done = 0,
    Error = 1,
    /// Changes are pending, or some resources failed.
    Pending = 2,
    /// The server revoked this remote agent.
    Revoked = orrery_agent::REVOKED_EXIT_CODE as isize,
}

fn main() -> ExitCode {
    if let Some(ended) = orrery_sandbox::run_if_launcher() {
        return ended;
    }
    if let Some(ended) = target_host::serve_if_requested() {
        return ended;
    }
    let read = without_empty_variables(help::grouped(Cli::command())).try_get_matches();
    let cli = match read.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => return answered_by_clap(error),
    };
    output::choose_colour(cli.global.color.into());
    descriptors::raise_limit();
    // Long-running processes configure their own log.
    let stays = match &cli.command {
        Command::Server(_) => true,
        Command::Agent(group) => matches!(group.action, AgentAction::Run(_)),
        _ => false,
    };
    if let Some(refused) = refuse_misspelt(stays) {
        return refused;
    }
    if !stays {
        log(cli.global.verbose);
    }
    let as_json = match &cli.command {
        Command::Compile(options) => options.report.json,
        Command::Parse(options) => options.report.json,
        Command::Deploy(options) => options.deploy_options.json,
        Command::Plan(options) => options.deploy_options.json,
        Command::Repair(options) => options.json,
        Command::Destroy(options) => options.json,
        Command::Export(options) => options.json,
        Command::Cluster(options) => options.json(),
        _ => false,
    };
    let exit = panic_guard::run(move || commands::run(cli)).unwrap_or_else(|crash| {
        output::internal_error(&crash, as_json);
        Exit::Error
    });
    ExitCode::from(exit as u8)
}

/// Reports variables that resemble an option's variable. Servers and agents refuse to start with
/// one.
fn refuse_misspelt(stays: bool) -> Option<ExitCode> {
    let set = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let misspelt = variables::misspelt(&Cli::command(), set);
    for one in &misspelt {
        let level = if stays { "error" } else { "warning" };
        output::print_status(&format!("{level}: unknown variable {}", one.name));
        output::print_status(&format!("help: unset it, or set {} instead", one.meant));
    }
    (stays && !misspelt.is_empty()).then_some(ExitCode::FAILURE)
}

/// Ignores empty variables: environment files often list unused variables without a value.
fn without_empty_variables(command: clap::Command) -> clap::Command {
    let is_empty =
        |name: &std::ffi::OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    let command = command.mut_args(|argument| match argument.get_env() {
        Some(name) if is_empty(name) => argument.env(None::<&str>),
        _ => argument,
    });
    command.mut_subcommands(without_empty_variables)
}

/// Prints help, version or an argument error. Argument errors exit with 1: clap's exit code 2 means
/// pending changes here.
fn answered_by_clap(error: clap::Error) -> ExitCode {
    let error = without_destroy(without_opposites(error));
    let printed = error.print();
    if error.use_stderr() || !output::is_written(printed) {
        return ExitCode::from(Exit::Error as u8);
    }
    ExitCode::SUCCESS
}

/// Commands that resemble another command with the opposite meaning.
const OPPOSITES: [(&str, &str); 3] =
    [("import", "export"), ("undeploy", "deploy"), ("unrepair", "repair")];

/// Drops clap's suggestion of a command that does the opposite.
fn without_opposites(mut error: clap::Error) -> clap::Error {
    use clap::error::{ContextKind, ContextValue};
    let asked = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(asked)) => asked.clone(),
        _ => return error,
    };
    let Some((_, opposite)) = OPPOSITES.iter().find(|(word, _)| *word == asked) else {
        return error;
    };
    let is_opposite = match error.get(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::String(one)) => one == opposite,
        Some(ContextValue::Strings(all)) => all.iter().any(|one| one == opposite),
        _ => false,
    };
    if is_opposite {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::None);
    }
    error
}

/// Drops clap's suggestion of `destroy`: a typo must not lead there.
fn without_destroy(mut error: clap::Error) -> clap::Error {
    use clap::error::{ContextKind, ContextValue};
    let Some(ContextValue::Strings(all)) = error.get(ContextKind::SuggestedSubcommand) else {
        return error;
    };
    let mut rest: Vec<String> = all.iter().filter(|one| *one != "destroy").cloned().collect();
    rest.sort_by_key(|one| one == "help");
    error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(rest));
    error
}

fn log(verbose: u8) {
    let level = match verbose {
        0 => return,
        1 => tracing::Level::DEBUG,
        _ => tracing::Level::TRACE,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_timer(tracing_subscriber::fmt::time::uptime())
        .with_ansi(output::stderr_has_colour())
        .with_target(false)
        .with_writer(std::io::stderr)
        .init();
}
