//! Resolves destinations from the text of `ssh_config` files; reads no files itself.
//!
//! The first value of a keyword wins, as in OpenSSH. Start from [`SshConfig::parse`] and
//! [`SshConfig::route`].

mod destination;
mod parse;
mod pattern;
#[cfg(test)]
mod tests;

pub use destination::{
    AgentSocket, Destination, HostKeyPolicy, HostRequest, JumpHost, LocalUser, PORT_DEFAULT,
};
use parse::{Parser, Statement};
pub(crate) use pattern::{Pattern, matches_list};

/// Maximum of jump hosts on the way to a destination.
const JUMPS_MAX: usize = 8;

/// Text of a configuration file.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    /// Path, for messages.
    pub name: String,
    pub text: String,
}

/// Error in a configuration file, with its line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {reason}")]
pub struct ConfigError {
    pub file: String,
    pub line: usize,
    pub reason: String,
}

/// Unsupported part of a configuration file, which is skipped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {keyword} is not supported; its section is skipped")]
pub struct ConfigWarning {
    pub file: String,
    pub line: usize,
    pub keyword: &'static str,
}

/// Parsed configuration files.
#[derive(Debug, Default)]
pub struct SshConfig {
    statements: Vec<Statement>,
    warnings: Vec<ConfigWarning>,
}

impl SshConfig {
    /// Parses files in order of precedence. `include` reads the files of an `Include` pattern.
    pub fn parse(
        files: &[ConfigFile],
        include: &mut dyn FnMut(&str) -> Vec<ConfigFile>,
    ) -> Result<Self, ConfigError> {
        let mut parser = Parser { statements: Vec::new(), warnings: Vec::new(), include, lines: 0 };
        for file in files {
            parser.file(file, &[], 0)?;
        }
        Ok(SshConfig { statements: parser.statements, warnings: parser.warnings })
    }

    pub fn warnings(&self) -> &[ConfigWarning] {
        &self.warnings
    }

    /// Resolves one host. The values of the request win over those of the files.
    pub fn resolve(
        &self,
        request: &HostRequest,
        local: &LocalUser,
    ) -> Result<Destination, ConfigError> {
        let holds = |statement: &&Statement| {
            statement.conditions.iter().all(|condition| condition.holds(&request.host))
        };
        destination::resolve(self.statements.iter().filter(holds), request, local)
    }

    /// Resolves a host and its jump hosts, in the order of the connections.
    pub fn route(
        &self,
        request: &HostRequest,
        local: &LocalUser,
    ) -> Result<Vec<Destination>, ConfigError> {
        let mut route = Vec::new();
        self.extend_route(request, local, &mut Vec::new(), &mut route)?;
        Ok(route)
    }

    fn extend_route(
        &self,
        request: &HostRequest,
        local: &LocalUser,
        passed: &mut Vec<String>,
        route: &mut Vec<Destination>,
    ) -> Result<(), ConfigError> {
        let refuse = |reason: String| ConfigError { file: "ProxyJump".to_owned(), line: 0, reason };
        if passed.contains(&request.host) {
            return Err(refuse(format!("the jump hosts of {} form a loop", request.host)));
        }
        passed.push(request.host.clone());
        let destination = self.resolve(request, local)?;
        if let Some((first, others)) = destination.jumps.split_first() {
            // Only the first jump host may have jump hosts of its own, as in OpenSSH.
            self.extend_route(&first.to_request(), local, passed, route)?;
            for jump in others {
                route.push(self.resolve(&jump.to_request(), local)?);
            }
        }
        route.push(destination);
        if route.len() > JUMPS_MAX + 1 {
            return Err(refuse(format!("{} has more than {JUMPS_MAX} jump hosts", request.host)));
        }
        Ok(())
    }
}
