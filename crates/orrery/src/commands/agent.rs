//! `orrery agent join`, `orrery agent run` and `orrery agent once`: a machine as a remote agent.

use std::error::Error;
use std::io::BufReader;
use std::sync::Arc;

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
use orrery_server::telemetry;
use serde_json::json;

use super::remote::terminal;
use crate::cli::agent::{AgentJoin, AgentRun};
use crate::cli::server::LogFormat;
use crate::error::{CliError, finish};
use crate::{Exit, output, style};

/// This program as an agent, in commands to paste.
const PROGRAM: &str = "orrery agent";

fn open_state(options: StateOptions) -> Result<StateDirectory, CliError> {
    let path = options.state.or_else(StateDirectory::default_path);
    let path = path.ok_or_else(|| {
        let error = CliError::new("no home directory for the agent's state");
        error.help("set a directory with --state")
    })?;
    StateDirectory::open(&path).map_err(|error| CliError::from_error(&error))
}

pub(super) fn runtime() -> Result<tokio::runtime::Runtime, CliError> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().map_err(|error| CliError::from_error(&error))
}

pub(super) fn join(options: AgentJoin, as_json: bool) -> Result<Exit, CliError> {
    let AgentJoin { join: JoinOptions { gateway, names, replace, state }, token } = options;
    let token = match token {
        Some(token) => JoinToken::parse(&token),
        None => JoinToken::parse(terminal::secret("token")?.expose()),
    };
    let token = token.map_err(|error| CliError::from_error(&error))?;
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
    let identity = joined.map_err(|error| with_help(&error, error.help()))?;
    if as_json {
        let shown = json!({
            "agent": identity.agent,
            "environment": identity.environment,
            "names": identity.names,
            "gateway": identity.gateway.to_string(),
            "state": state.path().display().to_string(),
        });
        let written = output::print(|out| writeln!(out, "{shown}"));
        return Ok(if written { Exit::Done } else { Exit::Error });
    }
    let names = style::sanitize(&identity.names.join(", "));
    output::print_status(&format!("{}: this machine serves {names}", style::good("joined")));
    output::print_status(&format!("next: {}", style::sanitize(&command.line("run"))));
    Ok(Exit::Done)
}

pub(super) fn run(options: AgentRun) -> Result<Exit, CliError> {
    let AgentRun { serve: ServeOptions { state, workers, policy, host_memory, log }, log_format } =
        options;
    let format = match log_format {
        Some(LogFormat::Json) => telemetry::LogFormat::Json,
        _ => telemetry::LogFormat::Text,
    };
    let started = telemetry::start(&log, format, output::stderr_has_colour(), None);
    let _telemetry =
        started.map_err(|error| CliError::new(format!("--log: {}", error_chain(&error))))?;
    let limits = Limits { running_max: workers.into(), ..Limits::default() };
    let policy = Policy::load(policy.as_deref()).map_err(|error| CliError::from_error(&error))?;
    let backoff = ReconnectBackoff::default();
    let command = AgentCommand::new(PROGRAM, state.state.as_deref());
    let state = open_state(state)?;
    let memory_max = (host_memory > 0).then(|| byte_size::from_mib(host_memory));
    let python = PythonRunner::new(&state.path().join("python")).with_memory_max(memory_max);
    let agent = AgentProcess::start(state, limits, backoff, policy, Some(Arc::new(python)));
    let agent = agent.map_err(|error| with_help(&error, error.help(&command)))?;
    let runtime = runtime()?;
    let served = runtime.block_on(agent.run_until_signalled(|identity| {
        // The only line on standard output: scripts wait for it.
        let text = format!("orrery agent {} serves {}", identity.agent, identity.names.join(", "));
        let _ = output::print(|out| writeln!(out, "{text}"));
    }));
    // Handlers that do not end must not keep the process alive.
    runtime.shutdown_background();
    match served {
        Ok(()) => Ok(Exit::Done),
        Err(error @ AgentError::Revoked(_)) => {
            finish(Err(with_help(&error, error.help(&command))));
            Ok(Exit::Revoked)
        }
        Err(error) => Err(with_help(&error, error.help(&command))),
    }
}

/// Runs the commands of standard input.
pub(super) fn once() -> Result<Exit, CliError> {
    let input = BufReader::new(std::io::stdin());
    let python = cache_directory().map(|cache| Arc::new(PythonRunner::new(&cache)) as _);
    let served = orrery_agent::once::serve(input, std::io::stdout(), IDLE_TIMEOUT, python);
    served.map(|()| Exit::Done).map_err(|error| CliError::from_error(&error))
}

fn with_help(error: &dyn Error, help: Option<String>) -> CliError {
    let reported = CliError::from_error(error);
    match help {
        Some(help) => reported.help(help),
        None => reported,
    }
}
