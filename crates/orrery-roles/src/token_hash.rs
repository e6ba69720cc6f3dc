//! Stored form of random tokens.

use sha2::{Digest as _, Sha256};

/// Hashes a random token. With 256 random bits, a fast hash suffices, and a lookup by hash has no
/// useful timing side channel.
pub fn hash_of(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}
