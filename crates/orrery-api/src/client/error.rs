//! What can go wrong with a server, and what to do about it.

use std::path::PathBuf;

use crate::Problem;

/// Why a request to a server did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    #[error("{0:?} is no address of a server: expected https://… (or http://… on this machine)")]
    Address(String),
    #[error("the certificates in {} cannot be used: {reason}", path.display())]
    Certificates { path: PathBuf, reason: String },
    #[error(
        "the server {server} cannot be reached: {cause}; is it running, and is the address right?"
    )]
    Unreachable { server: String, cause: String },
    #[error("{}", not_logged_in(server, *known))]
    NotLoggedIn {
        server: String,
        /// A token was shown.
        known: bool,
    },
    #[error("the server refuses: {0}")]
    Refused(Box<Problem>),
    #[error("what answers at {server} is no Orrery server: {path} has the status {status}")]
    NoServer { server: String, path: String, status: u16 },
    #[error(
        "the server's answer to {path} is not understood ({reason}); is it of another version?"
    )]
    Unreadable { path: String, reason: String },
    #[error("there is no environment {name:?}{}", among(known))]
    NoEnvironment { name: String, known: String },
    #[error("there are several environments {0:?}: say which as PROJECT/NAME or by its id")]
    SeveralEnvironments(String),
}

fn not_logged_in(server: &str, known: bool) -> String {
    let what = match known {
        true => "does not know your token, or it has expired",
        false => "wants to know who you are",
    };
    format!("{server} {what}: log in with `orrery login`, or set --token or ORRERY_TOKEN")
}

fn among(known: &str) -> String {
    match known {
        "" => "; you can see none here".to_owned(),
        known => format!("; there are {known}"),
    }
}
