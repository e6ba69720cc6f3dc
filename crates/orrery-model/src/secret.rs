//! Texts that nobody may see: they do not print, they are not serialized, and their memory is wiped.

use std::fmt;

use serde::{Deserialize, Deserializer};
use zeroize::Zeroizing;

/// A secret. `Debug` shows that there is one, never what it is.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretText(Zeroizing<String>);

impl SecretText {
    pub fn new(text: impl Into<String>) -> Self {
        SecretText(Zeroizing::new(text.into()))
    }

    /// The secret itself. Whoever asks answers for where it goes.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(…)")
    }
}

impl<'de> Deserialize<'de> for SecretText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(SecretText::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printing_tells_nothing() {
        let secret: SecretText = serde_json::from_str(r#""hunter2""#).unwrap();
        assert_eq!(secret.expose(), "hunter2");
        assert!(!format!("{secret:?}").contains("hunter2"));
    }
}
