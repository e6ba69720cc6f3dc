//! `orrery-agent`: a remote agent as a small binary of its own.
//!
//! It is `orrery agent join` and `orrery agent run` without the rest of Orrery: no compiler, no
//! database, no server. On machines without an agent, it is the helper that is uploaded over SSH. Everything but the command line is in `orrery-agent`. Tests: `tests/it`.

use std::error::Error;
use std::io::{BufReader, IsTerminal as _, Read as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Parser, Subcommand, ValueEnum};
use orrery_agent::cli::{JoinOptions, ServeOptions, StateOptions};
use orrery_agent::once::IDLE_TIMEOUT;
use orrery_agent::runner::Limits;
use orrery_agent::token::JoinToken;
use orrery_agent::{
    AgentCommand, AgentError, AgentProcess, Policy, ReconnectBackoff, StateDirectory,
};
use orrery_agent_python::{PythonRunner, cache_directory};
use orrery_base::byte_size;
use orrery_base::error_chain::error_chain;
use tracing_subscriber::EnvFilter;

/// This program, in commands to paste.
const PROGRAM: &str = "orrery-agent";

/// Maximum length of a token on standard input.
const TOKEN_MAX: u64 = 4096;

/// A remote agent of an Orrery server
///
/// Runs the handlers that the server requests on this machine. `orrery agent invite` creates
/// a token on the server.
#[derive(Debug, Parser)]
#[command(name = "orrery-agent", version)]
struct Cli {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Join(Join),
    Run(Run),
    /// Run commands from standard input until it ends
    ///
    /// Speaks the messages of the agent protocol, one per line. Orrery starts it over SSH on
    /// machines without an agent.
    #[command(
        after_help = "Exit codes: 0 the input ended, or nothing happened for 15 minutes, 1 error."
    )]
    Once,
}

/// Join this machine as a remote agent
///
/// This machine obtains its own certificate, which is stored with its key in the state directory.
/// The token identifies the gateway: no certificate needs to be copied. Then start `orrery-agent
/// run`.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 joined, 1 error.")]
struct Join {
    #[command(flatten)]
    join: JoinOptions,
    /// Token of the invitation [default: standard input]
    #[arg(value_name = "TOKEN", env = "ORRERY_AGENT_TOKEN", hide_env_values = true)]
    token: Option<String>,
}

/// Serve as a remote agent
///
/// Connects to the gateway and runs the handlers that the server requests on this machine, as the
/// current user. Reconnects after a lost connection, renews its certificate, and keeps a journal so
/// that nothing is done twice. SIGTERM waits for running handlers.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 stopped, 1 error, 3 the server revoked the agent.")]
struct Run {
    #[command(flatten)]
    serve: ServeOptions,
    /// Format of log lines
    #[arg(long, value_name = "FORMAT", env = "ORRERY_LOG_FORMAT", value_enum)]
    #[arg(default_value = "text")]
    log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

/// Error of a command, with its remedy.
#[derive(Debug)]
struct Failure {
    error: Box<dyn Error>,
    help: Option<String>,
    code: ExitCode,
}

impl<E: Into<Box<dyn Error>>> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure { error: error.into(), help: None, code: ExitCode::FAILURE }
    }
}

fn main() -> ExitCode {
    let ended = match Cli::parse().action {
        Action::Join(options) => join(options),
        Action::Run(options) => run(options),
        Action::Once => once(),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { error, help, code }) => {
            let mut text = format!("error: {}", error_chain(&*error));
            if let Some(help) = help {
                text.push_str(&format!("\n  help: {help}"));
            }
            let _ = writeln!(std::io::stderr(), "{text}");
            code
        }
    }
}

fn open_state(options: StateOptions) -> Result<StateDirectory, Failure> {
    let path = options.state.or_else(StateDirectory::default_path).ok_or_else(|| Failure {
        error: "no home directory for the agent's state".into(),
        help: Some("set a directory with --state".to_owned()),
        code: ExitCode::FAILURE,
    })?;
    Ok(StateDirectory::open(&path)?)
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    // One thread for messages, so that a heartbeat wakes up one: commands have threads of their own.
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

fn join(options: Join) -> Result<(), Failure> {
    let Join { join: JoinOptions { gateway, names, replace, state }, token } = options;
    let token = match token {
        Some(token) => token,
        None => {
            let mut text = String::new();
            std::io::stdin().take(TOKEN_MAX).read_to_string(&mut text)?;
            text
        }
    };
    let token = JoinToken::parse(token.trim())?;
    let command = AgentCommand::new(PROGRAM, state.state.as_deref());
    let state = open_state(state)?;
    let names = (!names.is_empty()).then_some(names);
    let joined = runtime()?.block_on(async {
        if replace {
            orrery_agent::join_and_replace(&state, &gateway, &token, names).await
        } else {
            orrery_agent::join(&state, &gateway, &token, names).await
        }
    });
    let identity = joined.map_err(|error| {
        let help = error.help();
        Failure { error: error.into(), help, code: ExitCode::FAILURE }
    })?;
    let names = identity.names.join(", ");
    let text = format!("joined: this machine serves {names}\nnext: {}", command.line("run"));
    Ok(writeln!(std::io::stderr(), "{text}")?)
}

fn once() -> Result<(), Failure> {
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new("warn"))
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    let input = BufReader::new(std::io::stdin());
    let python = cache_directory().map(|cache| Arc::new(PythonRunner::new(&cache)) as _);
    Ok(orrery_agent::once::serve(input, std::io::stdout(), IDLE_TIMEOUT, python)?)
}

fn run(options: Run) -> Result<(), Failure> {
    let Run { serve: ServeOptions { state, workers, policy, host_memory, log }, log_format } =
        options;
    let filter = EnvFilter::try_new(&log)?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    match log_format {
        LogFormat::Text => lines.init(),
        LogFormat::Json => lines.json().init(),
    }
    let limits = Limits { running_max: workers.into(), ..Limits::default() };
    let policy = Policy::load(policy.as_deref())?;
    let backoff = ReconnectBackoff::default();
    let command = AgentCommand::new(PROGRAM, state.state.as_deref());
    let state = open_state(state)?;
    let memory_max = (host_memory > 0).then(|| byte_size::from_mib(host_memory));
    let python = PythonRunner::new(&state.path().join("python")).with_memory_max(memory_max);
    let failed = |error: AgentError| {
        let (help, code) = (error.help(&command), ExitCode::from(error.exit_code()));
        Failure { error: error.into(), help, code }
    };
    let agent = AgentProcess::start(state, limits, backoff, policy, Some(Arc::new(python)));
    let agent = agent.map_err(failed)?;
    let runtime = runtime()?;
    let served = runtime.block_on(agent.run_until_signalled(|identity| {
        // The only line on standard output: scripts wait for it.
        let text = format!("orrery agent {} serves {}", identity.agent, identity.names.join(", "));
        let _ = writeln!(std::io::stdout(), "{text}");
    }));
    // Handlers that do not end must not keep the process alive.
    runtime.shutdown_background();
    served.map_err(failed)
}
