//! Random tokens, returned once and stored as hashes.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use orrery_model::SecretText;
use orrery_roles::token_hash::hash_of;
use rand::TryRng as _;
use rand::rngs::SysRng;

use crate::error::ServerError;

/// Prefixes of tokens, recognizable by humans and secret scanners.
pub(super) const SESSION: &str = "ors_";
pub(super) const TOKEN: &str = "orr_";
pub(super) const BOOTSTRAP: &str = "oru_";
const WEBHOOK: &str = "orw_";

/// A new random token with its hash.
#[derive(Debug)]
pub(crate) struct RandomToken {
    pub(crate) secret: SecretText,
    pub(crate) hash: [u8; 32],
}

impl RandomToken {
    pub(crate) fn session() -> Result<Self, ServerError> {
        Self::with_prefix(SESSION)
    }

    pub(crate) fn token() -> Result<Self, ServerError> {
        Self::with_prefix(TOKEN)
    }

    pub(crate) fn webhook() -> Result<Self, ServerError> {
        Self::with_prefix(WEBHOOK)
    }

    pub(super) fn bootstrap() -> Result<Self, ServerError> {
        Self::with_prefix(BOOTSTRAP)
    }

    fn with_prefix(prefix: &str) -> Result<Self, ServerError> {
        let mut bytes = [0; 32];
        let filled = SysRng.try_fill_bytes(&mut bytes);
        filled.map_err(|error| ServerError::Unavailable(format!("no random numbers: {error}")))?;
        let text = format!("{prefix}{}", URL_SAFE_NO_PAD.encode(bytes));
        let hash = hash_of(&text);
        Ok(RandomToken { secret: SecretText::new(text), hash })
    }
}
