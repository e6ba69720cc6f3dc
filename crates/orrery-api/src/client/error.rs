//! Client errors, with remedies for the command line.

use std::path::PathBuf;

use crate::Problem;

/// Failure of a request.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("{address:?} is not a server address: {reason}")]
    BadAddress { address: String, reason: String },
    #[error("the certificates in {} cannot be used: {reason}", file.display())]
    Certificates { file: PathBuf, reason: String },
    #[error("{server} does not answer: {reason}")]
    Unreachable { server: String, reason: String, remedy: Remedy },
    #[error("{problem}")]
    Refused { server: String, problem: Box<Problem>, known: bool },
    #[error("{server} answered with the status {status}, and is not an Orrery server")]
    NotOrrery { server: String, status: u16 },
    #[error("{server} sent an unexpected response")]
    Unexpected { server: String, source: serde_json::Error },
    #[error("the request cannot be written as JSON")]
    Unwritable { source: serde_json::Error },
}

/// Possible remedy for a failed connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Start a server at that address.
    Start,
    /// Trust a certificate.
    Trust,
    /// Use the other of `http` and `https`.
    OtherScheme,
}

/// Returns the address with the other of `http` and `https`.
fn with_other_scheme(server: &str) -> String {
    match server.strip_prefix("https://") {
        Some(rest) => format!("http://{rest}"),
        None => server.replacen("http://", "https://", 1),
    }
}

impl ClientError {
    pub(super) fn unreachable(server: &str, error: &ureq::Error) -> Self {
        let tls = super::tls_error(error);
        let remedy = match (tls, error) {
            (Some(rustls::Error::InvalidMessage(_)), _) => Remedy::OtherScheme,
            (Some(_), _) => Remedy::Trust,
            (None, ureq::Error::Protocol(_)) if server.starts_with("http://") => {
                Remedy::OtherScheme
            }
            _ => Remedy::Start,
        };
        let reason = match error {
            ureq::Error::Io(_) if remedy == Remedy::OtherScheme => {
                "it does not speak TLS".to_owned()
            }
            ureq::Error::Io(error) => error.to_string(),
            ureq::Error::HostNotFound => "host not found".to_owned(),
            ureq::Error::Timeout(_) => "it timed out".to_owned(),
            ureq::Error::Protocol(_) if remedy == Remedy::OtherScheme => {
                "it does not speak HTTP without TLS".to_owned()
            }
            other => other.to_string(),
        };
        ClientError::Unreachable { server: server.to_owned(), reason, remedy }
    }

    pub(super) fn refused(server: &str, problem: Problem, known: bool) -> Self {
        ClientError::Refused { server: server.to_owned(), problem: Box::new(problem), known }
    }

    pub(super) fn not_orrery(server: &str, status: u16) -> Self {
        ClientError::NotOrrery { server: server.to_owned(), status }
    }

    /// Problem that the server reported.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            ClientError::Refused { problem, .. } => Some(problem),
            _ => None,
        }
    }

    /// The HTTP status of a refusal.
    pub fn status(&self) -> Option<u16> {
        self.problem().map(|problem| problem.status)
    }

    pub fn is_not_found(&self) -> bool {
        self.status() == Some(404)
    }

    /// True if a later attempt may succeed, such as during a restart of the server or of a proxy.
    pub fn is_temporary(&self) -> bool {
        match self {
            ClientError::Unreachable { remedy, .. } => {
                !matches!(remedy, Remedy::Trust | Remedy::OtherScheme)
            }
            ClientError::Refused { problem, .. } => matches!(problem.status, 429 | 502..=504),
            ClientError::NotOrrery { status, .. } => matches!(status, 502..=504),
            ClientError::BadAddress { .. }
            | ClientError::Certificates { .. }
            | ClientError::Unexpected { .. }
            | ClientError::Unwritable { .. } => false,
        }
    }

    /// Remedy for an operator at the command line.
    pub fn help(&self) -> Option<String> {
        Some(match self {
            ClientError::BadAddress { .. } => "expected an address such as https://orrery.example.com:8888".to_owned(),
            ClientError::Unreachable { remedy: Remedy::Trust, .. } => {
                "name a file with the certificate to trust: --ca FILE".to_owned()
            }
            ClientError::Unreachable { remedy: Remedy::OtherScheme, server, .. } => {
                format!("use {}", with_other_scheme(server))
            }
            ClientError::Unreachable { .. } => {
                "is the server running, and is this its address? `orrery context list` shows the ones you use".to_owned()
            }
            ClientError::Refused { problem, server, known } => match problem.status {
                401 if *known => format!("the session has ended or the token is not valid: orrery login {server}"),
                401 => format!("orrery login {server}"),
                // Protection applies to all roles, so a role does not help.
                403 if problem.code == "protected" => return None,
                403 if problem.code == "token-limit" => {
                    "a token keeps the verbs and groups that it was created with: `orrery token create NAME --verbs … --groups …` \
                     creates one with more; without these options, a token has all of them"
                        .to_owned()
                }
                409 if problem.code == "follows-repository" => {
                    "to preview, let versions wait with `orrery environment setting set auto_deploy false`, push a commit, and \
                     run `orrery version dry-run NUMBER`; to remove what is deployed, stop following with \
                     `orrery environment update --repository ''`, and run `orrery destroy`"
                        .to_owned()
                }
                403 => "`orrery context show` shows your account there; an administrator can assign a role".to_owned(),
                _ => return None,
            },
            ClientError::NotOrrery { .. } => "does the address have the right port?".to_owned(),
            ClientError::Unexpected { .. } => "the server may have another version; `orrery --version` shows this one".to_owned(),
            ClientError::Certificates { .. } | ClientError::Unwritable { .. } => return None,
        })
    }
}
