//! Random secrets that are handed out once, and of which only hashes are kept.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use orrery_model::SecretText;
use rand::TryRng as _;
use rand::rngs::SysRng;
use sha2::{Digest as _, Sha256};

use crate::problem::ServerError;

/// The beginnings of secrets: people and scanners can tell what they found.
pub(super) const SESSION: &str = "ors_";
pub(super) const TOKEN: &str = "orr_";
pub(super) const TICKET: &str = "oru_";
const WEBHOOK: &str = "orw_";

/// A new secret with its hash.
#[derive(Debug)]
pub(crate) struct Minted {
    pub(crate) secret: SecretText,
    pub(crate) hash: [u8; 32],
}

impl Minted {
    pub(crate) fn session() -> Result<Self, ServerError> {
        Self::with_prefix(SESSION)
    }

    pub(crate) fn token() -> Result<Self, ServerError> {
        Self::with_prefix(TOKEN)
    }

    pub(crate) fn webhook() -> Result<Self, ServerError> {
        Self::with_prefix(WEBHOOK)
    }

    pub(super) fn ticket() -> Result<Self, ServerError> {
        Self::with_prefix(TICKET)
    }

    fn with_prefix(prefix: &str) -> Result<Self, ServerError> {
        let mut bytes = [0; 32];
        let filled = SysRng.try_fill_bytes(&mut bytes);
        filled.map_err(|error| ServerError::Unavailable(format!("no random numbers: {error}")))?;
        let text = format!("{prefix}{}", URL_SAFE_NO_PAD.encode(bytes));
        let hash = hash_of(&text);
        Ok(Minted { secret: SecretText::new(text), hash })
    }
}

/// What is kept of a secret. It has 256 random bits, so that a fast hash is enough, and looking it up by hash tells an attacker nothing.
pub(crate) fn hash_of(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}
