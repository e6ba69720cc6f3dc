//! Commands of an agent's program, as messages name them.

use std::path::{Path, PathBuf};

/// Variable with the state directory.
pub(crate) const STATE_VARIABLE: &str = "ORRERY_AGENT_STATE";

/// Program of an agent with its state directory, to name commands that can be pasted.
#[derive(Clone, Debug)]
pub struct AgentCommand {
    program: &'static str,
    state: Option<PathBuf>,
}

impl AgentCommand {
    /// A program, as it is called, and the state directory that it was given. A directory in its
    /// environment needs no option: the next command finds it there, too.
    pub fn new(program: &'static str, state: Option<&Path>) -> Self {
        let variable = std::env::var_os(STATE_VARIABLE).map(PathBuf::from);
        let state = state.filter(|state| variable.as_deref() != Some(state));
        AgentCommand { program, state: state.map(Path::to_owned) }
    }

    /// Command line for a subcommand with its arguments.
    pub fn line(&self, subcommand: &str) -> String {
        let Some(state) = &self.state else { return format!("{} {subcommand}", self.program) };
        let state = state.display().to_string();
        // A path with a NUL byte is refused before.
        let quoted = shlex::try_quote(&state).map(String::from).unwrap_or(state.clone());
        format!("{} {subcommand} --state {quoted}", self.program)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_program_and_its_state() {
        let line = |program, state: Option<&str>| {
            AgentCommand::new(program, state.map(Path::new)).line("run")
        };
        assert_eq!(line("orrery agent", None), "orrery agent run");
        assert_eq!(line("orrery-agent", Some("/srv/a")), "orrery-agent run --state /srv/a");
        assert_eq!(line("orrery-agent", Some("my state")), "orrery-agent run --state 'my state'");
    }
}
