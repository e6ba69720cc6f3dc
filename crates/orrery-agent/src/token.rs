//! Token of an invitation: a one-time secret, and the fingerprint of the CA to trust at first
//! contact.
//!
//! `orrj_<32 random bytes, base64url>.<first 32 hexadecimal digits of the SHA-256 of the CA's certificate>`

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use orrery_base::hex::to_hex;
use orrery_model::SecretText;
use sha2::{Digest, Sha256};

const PREFIX: &str = "orrj_";
const SECRET_BYTES: usize = 32;
const FINGERPRINT_DIGITS: usize = 32;

/// Fingerprint of a CA certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint(String);

impl Fingerprint {
    /// Fingerprint of a DER certificate.
    pub fn from_der(certificate: &[u8]) -> Self {
        let mut digits = to_hex(&Sha256::digest(certificate));
        digits.truncate(FINGERPRINT_DIGITS);
        Fingerprint(digits)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A token as shown to people.
#[derive(Clone, Debug)]
pub struct JoinToken {
    text: SecretText,
    fingerprint: Fingerprint,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid invitation token: expected `{PREFIX}…` as shown when the invitation was created")]
pub struct InvalidToken;

impl JoinToken {
    /// `random` must be unpredictable; `ca` is the CA certificate in DER.
    pub fn new(random: &[u8; SECRET_BYTES], ca: &[u8]) -> Self {
        let fingerprint = Fingerprint::from_der(ca);
        let text = format!("{PREFIX}{}.{fingerprint}", URL_SAFE_NO_PAD.encode(random));
        JoinToken { text: SecretText::new(text), fingerprint }
    }

    /// # Errors
    /// If the text is not a token.
    pub fn parse(text: &str) -> Result<Self, InvalidToken> {
        let text = text.trim();
        let rest = text.strip_prefix(PREFIX).ok_or(InvalidToken)?;
        let (random, fingerprint) = rest.split_once('.').ok_or(InvalidToken)?;
        let is_secret = URL_SAFE_NO_PAD.decode(random).is_ok_and(|it| it.len() == SECRET_BYTES);
        let is_digit = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
        if !is_secret
            || fingerprint.len() != FINGERPRINT_DIGITS
            || !fingerprint.bytes().all(is_digit)
        {
            return Err(InvalidToken);
        }
        Ok(JoinToken {
            text: SecretText::new(text),
            fingerprint: Fingerprint(fingerprint.to_owned()),
        })
    }

    pub fn text(&self) -> &SecretText {
        &self.text
    }

    pub fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    /// Hash that the server stores: hexadecimal SHA-256 of the text.
    pub fn hash(&self) -> String {
        to_hex(&Sha256::digest(self.text.expose().as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_a_fingerprint_and_does_not_print_itself() {
        let token = JoinToken::new(&[7; 32], b"a certificate");
        let text = token.text().expose().to_owned();
        let again = JoinToken::parse(&format!(" {text}\n")).unwrap();
        assert_eq!(again.fingerprint(), &Fingerprint::from_der(b"a certificate"));
        assert_eq!(again.hash(), token.hash());
        assert_ne!(again.hash(), JoinToken::new(&[8; 32], b"a certificate").hash());
        assert_eq!(token.hash().len(), 64);
        assert!(!format!("{token:?}").contains(&text[5..20]), "{token:?}");
    }

    #[test]
    fn invalid_tokens_are_rejected() {
        let good = JoinToken::new(&[7; 32], b"a certificate").text().expose().to_owned();
        for bad in [
            "",
            "orrj_",
            "orrj_.",
            &good[1..],
            &good[..good.len() - 1],
            &good.to_uppercase(),
            &good.replace('.', ""),
            &good.replacen("orrj_", "orrj_A", 1),
        ] {
            assert_eq!(JoinToken::parse(bad).unwrap_err(), InvalidToken, "{bad}");
        }
    }
}
