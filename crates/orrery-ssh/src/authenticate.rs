//! Authenticates a user: certificates, keys, the SSH agent's keys, and a password.

use std::sync::Arc;

use russh::client::{AuthResult, Handle, KeyboardInteractiveAuthResponse};
use russh::keys::agent::AgentIdentity;
use russh::keys::agent::client::AgentClient;
use russh::keys::{Algorithm, PrivateKeyWithHashAlg, PublicKey, PublicKeyBase64 as _};
use tokio::net::UnixStream;

use crate::credentials::{Credentials, Identity};
use crate::error::ConnectError;
use crate::peer::Peer;

/// Keys that are offered; OpenSSH's server ends the connection after six attempts by default.
const KEYS_MAX: usize = 5;
/// Questions of a keyboard-interactive dialogue that are answered.
const QUESTIONS_MAX: usize = 4;

/// Attempts of one authentication.
struct Attempts<'a> {
    handle: &'a mut Handle<Peer>,
    user: &'a str,
    tried: Vec<String>,
    keys: usize,
    /// Methods that the server accepts, as it said last.
    accepted: String,
}

/// Authenticates a user.
///
/// # Errors
/// If no credential is accepted.
pub(crate) async fn authenticate(
    handle: &mut Handle<Peer>,
    user: &str,
    mut credentials: Credentials,
) -> Result<(), ConnectError> {
    let mut attempts =
        Attempts { handle, user, tried: Vec::new(), keys: 0, accepted: String::new() };
    for identity in std::mem::take(&mut credentials.identities) {
        if attempts.identity(&identity).await? {
            return Ok(());
        }
    }
    if attempts.agent(&credentials).await? {
        return Ok(());
    }
    if let Some(password) = &credentials.password
        && attempts.password(password.expose()).await?
    {
        return Ok(());
    }
    // A key that could not be read is the more likely reason.
    let mut skipped = credentials.skipped.into_iter();
    if attempts.tried.is_empty()
        && let Some(error) = skipped.next()
    {
        return Err(error.into());
    }
    let mut tried = match attempts.tried.is_empty() {
        true => "there is no key, no SSH agent and no password".to_owned(),
        false => format!("refused: {}", attempts.tried.join(", ")),
    };
    for error in skipped {
        tried.push_str(&format!("; {error}"));
    }
    Err(ConnectError::Authentication { user: user.to_owned(), tried, accepted: attempts.accepted })
}

impl Attempts<'_> {
    fn may_offer(&mut self) -> bool {
        self.keys += 1;
        self.keys <= KEYS_MAX
    }

    fn is_success(&mut self, result: &AuthResult, what: String) -> Result<bool, ConnectError> {
        match result {
            AuthResult::Success => Ok(true),
            AuthResult::Failure { remaining_methods, partial_success } => {
                let methods: Vec<&str> =
                    remaining_methods.iter().map(|method| method.into()).collect();
                self.accepted = methods.join(", ");
                let what = if *partial_success { format!("{what} (accepted)") } else { what };
                self.tried.push(what);
                // The server ended the connection, after too many attempts for example.
                match self.handle.is_closed() {
                    true => Err(ConnectError::Authentication {
                        user: self.user.to_owned(),
                        tried: format!("refused: {}", self.tried.join(", ")),
                        accepted: "no further attempt".to_owned(),
                    }),
                    false => Ok(false),
                }
            }
        }
    }

    async fn identity(&mut self, identity: &Identity) -> Result<bool, ConnectError> {
        for certificate in &identity.certificates {
            if !self.may_offer() {
                return Ok(false);
            }
            let key = Arc::clone(&identity.key);
            let result = self
                .handle
                .authenticate_openssh_cert(self.user, key, certificate.clone())
                .await
                .map_err(protocol)?;
            if self.is_success(&result, format!("certificate of {}", identity.what))? {
                return Ok(true);
            }
        }
        if !self.may_offer() {
            return Ok(false);
        }
        let hash = self.hash(&identity.key.algorithm()).await?;
        let key = PrivateKeyWithHashAlg::new(Arc::clone(&identity.key), hash);
        let result = self.handle.authenticate_publickey(self.user, key).await.map_err(protocol)?;
        self.is_success(&result, format!("key {}", identity.what))
    }

    /// Hash of signatures; only RSA has a choice.
    async fn hash(
        &self,
        algorithm: &Algorithm,
    ) -> Result<Option<russh::keys::HashAlg>, ConnectError> {
        match algorithm {
            Algorithm::Rsa { .. } => {
                Ok(self.handle.best_supported_rsa_hash().await.map_err(protocol)?.flatten())
            }
            _ => Ok(None),
        }
    }

    /// Tries the keys of the SSH agent: those that the configuration names first, or alone if it
    /// names some.
    async fn agent(&mut self, credentials: &Credentials) -> Result<bool, ConnectError> {
        let Some(socket) = &credentials.agent else { return Ok(false) };
        let stream = match UnixStream::connect(socket).await {
            Ok(stream) => stream,
            Err(error) => {
                tracing::debug!(socket = %socket.display(), %error, "no SSH agent");
                return Ok(false);
            }
        };
        let mut agent = AgentClient::connect(stream);
        let identities = match agent.request_identities().await {
            Ok(identities) => identities,
            Err(error) => {
                tracing::warn!(socket = %socket.display(), %error, "the SSH agent does not answer");
                return Ok(false);
            }
        };
        let configured = &credentials.configured_public;
        for identity in identities {
            let public = match &identity {
                AgentIdentity::PublicKey { key, .. } => key.clone(),
                AgentIdentity::Certificate { certificate, .. } => {
                    PublicKey::from(certificate.public_key().clone())
                }
            };
            let is_configured = configured.contains(&public.public_key_bytes());
            if !configured.is_empty() && !is_configured {
                continue;
            }
            if !self.may_offer() {
                break;
            }
            let hash = self.hash(&public.algorithm()).await?;
            let (result, what) = match identity {
                AgentIdentity::PublicKey { key, comment } => (
                    self.handle.authenticate_publickey_with(self.user, key, hash, &mut agent).await,
                    format!("key {comment} of the SSH agent"),
                ),
                AgentIdentity::Certificate { certificate, comment } => (
                    self.handle
                        .authenticate_certificate_with(self.user, certificate, hash, &mut agent)
                        .await,
                    format!("certificate {comment} of the SSH agent"),
                ),
            };
            match result {
                Ok(result) => {
                    if self.is_success(&result, what)? {
                        return Ok(true);
                    }
                }
                Err(error) => self.tried.push(format!("{what} ({error})")),
            }
        }
        Ok(false)
    }

    async fn password(&mut self, password: &str) -> Result<bool, ConnectError> {
        let result =
            self.handle.authenticate_password(self.user, password).await.map_err(protocol)?;
        if self.is_success(&result, "password".to_owned())? {
            return Ok(true);
        }
        if !self.accepted.contains("keyboard-interactive") {
            return Ok(false);
        }
        let mut response = self
            .handle
            .authenticate_keyboard_interactive_start(self.user, None)
            .await
            .map_err(protocol)?;
        for _ in 0..QUESTIONS_MAX {
            match response {
                KeyboardInteractiveAuthResponse::Success => return Ok(true),
                KeyboardInteractiveAuthResponse::Failure { .. } => break,
                KeyboardInteractiveAuthResponse::InfoRequest { prompts, .. } => {
                    // Only a single hidden question is that for the password.
                    let answers = match &prompts[..] {
                        [] => Vec::new(),
                        [prompt] if !prompt.echo => vec![password.to_owned()],
                        _ => break,
                    };
                    response = self
                        .handle
                        .authenticate_keyboard_interactive_respond(answers)
                        .await
                        .map_err(protocol)?;
                }
            }
        }
        self.tried.push("keyboard-interactive password".to_owned());
        Ok(false)
    }
}

fn protocol(error: russh::Error) -> ConnectError {
    match error {
        russh::Error::SendError
        | russh::Error::RecvError
        | russh::Error::HUP
        | russh::Error::Disconnect => ConnectError::ClosedEarly,
        other => ConnectError::Protocol(other.to_string()),
    }
}
