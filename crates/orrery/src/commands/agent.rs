//! `orrery agent join` and `orrery agent run`: what a machine does to be a remote agent.

use std::error::Error;

use orrery_agent::protocol::RefusalCode;
use orrery_agent::running::Limits;
use orrery_agent::token::JoinToken;
use orrery_agent::{
    Agent, AgentError, AskError, DEFAULT_PORT, EnrolmentError, Pace, StateDirectory,
};
use orrery_server::telemetry;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::remote::terminal;
use super::trouble::Trouble;
use crate::cli_agent::{AgentJoin, AgentRun, AgentState};
use crate::cli_server::LogFormat;
use crate::{Exit, output, style};

impl AgentState {
    fn open(self) -> Result<StateDirectory, Trouble> {
        let path = self.state.or_else(StateDirectory::usual);
        let path = path.ok_or_else(|| {
            let trouble = Trouble::said("there is no home directory to keep the agent's state in");
            trouble.help("say where with --state")
        })?;
        StateDirectory::open(&path).map_err(|error| Trouble::of(&error))
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, Trouble> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().map_err(|error| Trouble::of(&error))
}

pub(super) fn join(options: AgentJoin, as_json: bool) -> Result<Exit, Trouble> {
    let AgentJoin { gateway, token, names, replace, state } = options;
    let token = match token {
        Some(token) => JoinToken::parse(&token),
        None => JoinToken::parse(terminal::secret("token")?.expose()),
    };
    let token = token.map_err(|error| Trouble::of(&error))?;
    let state = state.open()?;
    let names = (!names.is_empty()).then_some(names);
    let joined = runtime()?.block_on(async {
        if replace {
            orrery_agent::join_instead(&state, &gateway, &token, names).await
        } else {
            orrery_agent::join(&state, &gateway, &token, names).await
        }
    });
    let identity = joined.map_err(|error| {
        let trouble = Trouble::of(&error);
        match error {
            EnrolmentError::Ask(AskError::Refused(refusal))
                if refusal.code == RefusalCode::Token =>
            {
                trouble.help("tokens are good for one machine and a short time: `orrery agent invite` makes another")
            }
            EnrolmentError::Ask(AskError::NoGateway { .. } | AskError::Insecure { .. }) => {
                let help = format!("the gateway has a port of its own, {DEFAULT_PORT} unless the server says otherwise: `orrery agent invite` shows its address");
                trouble.help(help)
            }
            _ => trouble,
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
    let names = style::harmless(&identity.names.join(", "));
    output::say(&format!("{}: this machine serves {names}", style::good("joined")));
    output::say("next: orrery agent run");
    Ok(Exit::Done)
}

pub(super) fn run(options: AgentRun) -> Result<Exit, Trouble> {
    let AgentRun { state, workers, log, log_format } = options;
    let format = match log_format {
        Some(LogFormat::Json) => telemetry::LogFormat::Json,
        _ => telemetry::LogFormat::Text,
    };
    let started = telemetry::start(&log, format, output::stderr_has_colour(), None);
    let _telemetry = started.map_err(|error| Trouble::said(format!("--log: {}", chain(&error))))?;
    let limits = Limits { running_max: workers.into(), ..Limits::default() };
    let agent = Agent::start(state.open()?, limits, Pace::default());
    let agent = agent.map_err(|error| Trouble::of(&error))?;
    let runtime = runtime()?;
    let served = runtime.block_on(serve(agent));
    // Handlers that do not end must not keep the process.
    runtime.shutdown_background();
    served.map(|()| Exit::Done).map_err(|error| {
        let trouble = Trouble::of(&error);
        match error {
            AgentError::Revoked(_) => trouble
                .help("if it is to come back: a new invitation, and orrery agent join --replace"),
            _ => trouble,
        }
    })
}

fn chain(error: &dyn Error) -> String {
    Trouble::of(error).to_string()
}

async fn serve(agent: Agent) -> Result<(), AgentError> {
    let stop = CancellationToken::new();
    let asked = stop.clone();
    let mut interrupted = signal(SignalKind::interrupt()).map_err(AgentError::Thread)?;
    let mut terminated = signal(SignalKind::terminate()).map_err(AgentError::Thread)?;
    let identity = agent.identity();
    // The one line on standard output: whoever started the agent may be waiting for it.
    let text = format!("orrery agent {} serves {}", identity.agent, identity.names.join(", "));
    let _ = output::print(|out| writeln!(out, "{text}"));
    tracing::info!(agent = %identity.agent, gateway = %identity.gateway, names = ?identity.names, "the agent begins");
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
        // Who asks twice does not want to wait.
        _ = interrupted.recv() => Ok(()),
        _ = terminated.recv() => Ok(()),
    }
}
