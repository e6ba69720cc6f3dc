//! `orrery agent join` and `orrery agent run`: a machine as a remote agent.

use orrery_agent::protocol::RefusalCode;
use orrery_agent::runner::Limits;
use orrery_agent::token::JoinToken;
use orrery_agent::{
    AgentError, AgentProcess, DEFAULT_PORT, EnrolmentError, GatewayRequestError, ReconnectBackoff,
    StateDirectory,
};
use orrery_base::error_chain::error_chain;
use orrery_server::telemetry;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::remote::terminal;
use crate::cli::agent::{AgentJoin, AgentRun, AgentState};
use crate::cli::server::LogFormat;
use crate::error::CliError;
use crate::{Exit, output, style};

impl AgentState {
    fn open(self) -> Result<StateDirectory, CliError> {
        let path = self.state.or_else(StateDirectory::default_path);
        let path = path.ok_or_else(|| {
            let error = CliError::new("no home directory for the agent's state");
            error.help("set a directory with --state")
        })?;
        StateDirectory::open(&path).map_err(|error| CliError::from_error(&error))
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, CliError> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().map_err(|error| CliError::from_error(&error))
}

pub(super) fn join(options: AgentJoin, as_json: bool) -> Result<Exit, CliError> {
    let AgentJoin { gateway, token, names, replace, state } = options;
    let token = match token {
        Some(token) => JoinToken::parse(&token),
        None => JoinToken::parse(terminal::secret("token")?.expose()),
    };
    let token = token.map_err(|error| CliError::from_error(&error))?;
    let state = state.open()?;
    let names = (!names.is_empty()).then_some(names);
    let joined = runtime()?.block_on(async {
        if replace {
            orrery_agent::join_and_replace(&state, &gateway, &token, names).await
        } else {
            orrery_agent::join(&state, &gateway, &token, names).await
        }
    });
    let identity = joined.map_err(|error| {
        let reported = CliError::from_error(&error);
        match error {
            EnrolmentError::Gateway(GatewayRequestError::Refused(refusal))
                if refusal.code == RefusalCode::Token =>
            {
                reported.help("tokens expire and admit one machine: `orrery agent invite` creates another")
            }
            EnrolmentError::Gateway(GatewayRequestError::NoGateway { .. } | GatewayRequestError::Insecure { .. }) => {
                let help = format!("the gateway has its own port, default {DEFAULT_PORT}: `orrery agent invite` shows its address");
                reported.help(help)
            }
            _ => reported,
        }
    })?;
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
    output::print_status("next: orrery agent run");
    Ok(Exit::Done)
}

pub(super) fn run(options: AgentRun) -> Result<Exit, CliError> {
    let AgentRun { state, workers, log, log_format } = options;
    let format = match log_format {
        Some(LogFormat::Json) => telemetry::LogFormat::Json,
        _ => telemetry::LogFormat::Text,
    };
    let started = telemetry::start(&log, format, output::stderr_has_colour(), None);
    let _telemetry =
        started.map_err(|error| CliError::new(format!("--log: {}", error_chain(&error))))?;
    let limits = Limits { running_max: workers.into(), ..Limits::default() };
    let agent = AgentProcess::start(state.open()?, limits, ReconnectBackoff::default());
    let agent = agent.map_err(|error| CliError::from_error(&error))?;
    let runtime = runtime()?;
    let served = runtime.block_on(serve(agent));
    // Handlers that do not end must not keep the process alive.
    runtime.shutdown_background();
    served.map(|()| Exit::Done).map_err(|error| {
        let reported = CliError::from_error(&error);
        match error {
            AgentError::Revoked(_) => reported
                .help("to rejoin, create a new invitation and run `orrery agent join --replace`"),
            _ => reported,
        }
    })
}

async fn serve(agent: AgentProcess) -> Result<(), AgentError> {
    let stop = CancellationToken::new();
    let asked = stop.clone();
    let mut interrupted = signal(SignalKind::interrupt()).map_err(AgentError::Thread)?;
    let mut terminated = signal(SignalKind::terminate()).map_err(AgentError::Thread)?;
    let identity = agent.identity();
    // The only line on standard output: scripts wait for it.
    let text = format!("orrery agent {} serves {}", identity.agent, identity.names.join(", "));
    let _ = output::print(|out| writeln!(out, "{text}"));
    tracing::info!(agent = %identity.agent, gateway = %identity.gateway, names = ?identity.names, "agent started");
    let running = agent.run(stop);
    tokio::pin!(running);
    tokio::select! {
        ended = &mut running => return ended,
        _ = interrupted.recv() => {}
        _ = terminated.recv() => {}
    }
    asked.cancel();
    tokio::select! {
        ended = &mut running => ended,
        // A second signal ends the agent immediately.
        _ = interrupted.recv() => Ok(()),
        _ = terminated.recv() => Ok(()),
    }
}
