//! The binary: the command line, wired to the crates that do the work.
//!
//! `cli` says what is understood, `commands` does it, `render` shows diagnostics, `output` knows
//! terminals and pipes, and `guard` keeps a crash from being the answer. Nothing here knows the
//! language. Tests: `tests/it`, above all the transcripts in `tests/it/sessions`.

mod cli;
mod cli_agent;
mod cli_cluster;
mod cli_deploy;
mod cli_documents;
mod cli_export;
mod cli_inspect;
mod cli_modules;
mod cli_server;
mod cli_session;
mod cli_things;
mod cli_values;
mod code;
mod commands;
mod descriptors;
mod environment;
mod excerpt;
mod guard;
mod help;
mod known;
mod making;
mod natural;
mod output;
mod pages;
mod projects;
mod remote;
mod render;
mod signals;
mod state;
mod style;
mod target_host;
mod variables;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};

use crate::cli::{Cli, Command};
use crate::cli_things::AgentAction;

/// Models and versions are millions of small texts, made on some threads and dropped on others: this allocator is made for that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How a command ended, as scripts see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exit {
    Done = 0,
    Error = 1,
    /// Changes are pending, or some resources failed.
    Pending = 2,
}

fn main() -> ExitCode {
    if let Some(ended) = orrery_sandbox::launch_if_asked() {
        return ended;
    }
    if let Some(ended) = target_host::serve_if_asked() {
        return ended;
    }
    let read = without_empty_variables(help::grouped(Cli::command())).try_get_matches();
    let cli = match read.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => return answered_by_clap(error),
    };
    output::choose_colour(cli.global.color);
    descriptors::raise_limit();
    // What stays has a log of its own.
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
        Command::Deploy(options) => options.wanted.json,
        Command::Plan(options) => options.wanted.json,
        Command::Repair(options) => options.json,
        Command::Destroy(options) => options.json,
        Command::Export(options) => options.json,
        Command::Cluster(options) => options.json(),
        _ => false,
    };
    let exit = guard::run(move || commands::run(cli)).unwrap_or_else(|crash| {
        output::internal_error(&crash, as_json);
        Exit::Error
    });
    ExitCode::from(exit as u8)
}

/// Tells of variables that were probably meant for options. A process that stays, a server or an agent, does not start with them.
fn refuse_misspelt(stays: bool) -> Option<ExitCode> {
    let set = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let misspelt = variables::misspelt(&Cli::command(), set);
    for one in &misspelt {
        let level = if stays { "error" } else { "warning" };
        output::say(&format!("{level}: there is no variable {}", one.name));
        output::say(&format!("help: unset it, or set {}, if that is meant", one.meant));
    }
    (stays && !misspelt.is_empty()).then_some(ExitCode::FAILURE)
}

/// A variable that is empty says nothing: files that list all variables set those that are not used so.
fn without_empty_variables(command: clap::Command) -> clap::Command {
    let is_empty =
        |name: &std::ffi::OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    let command = command.mut_args(|argument| match argument.get_env() {
        Some(name) if is_empty(name) => argument.env(None::<&str>),
        _ => argument,
    });
    command.mut_subcommands(without_empty_variables)
}

/// Help and version are answers; everything else is a mistake, and no different from others: the
/// exit code 2, which the library would choose, has a meaning of its own here.
fn answered_by_clap(error: clap::Error) -> ExitCode {
    let error = without_destroy(without_opposites(error));
    let printed = error.print();
    if error.use_stderr() || !output::is_written(printed) {
        return ExitCode::from(Exit::Error as u8);
    }
    ExitCode::SUCCESS
}

/// Commands that look like another one, and mean its opposite.
const OPPOSITES: [(&str, &str); 3] =
    [("import", "export"), ("undeploy", "deploy"), ("unrepair", "repair")];

/// Takes back the proposal of a command that does the opposite of what was asked for.
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

/// Takes back the proposal of the command that removes everything: a misspelling must not lead there.
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
