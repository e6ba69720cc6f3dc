//! Filters the output of child processes: decodes UTF-8 across chunks and masks credentials.

use std::collections::BTreeMap;

pub(crate) use orrery_base::credentials::{REDACTED, mask_userinfo};

/// Decodes chunks of bytes; keeps characters whole that are split over two chunks.
#[derive(Debug, Default)]
pub(crate) struct Utf8Decoder {
    /// Start of an incomplete character.
    rest: Vec<u8>,
}

impl Utf8Decoder {
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        self.rest.extend_from_slice(bytes);
        let bytes = std::mem::take(&mut self.rest);
        let mut text = String::with_capacity(bytes.len());
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            text.push_str(chunk.valid());
            let invalid = chunk.invalid();
            if invalid.is_empty() {
                continue;
            }
            if chunks.peek().is_none() && is_incomplete_char(invalid) {
                self.rest = invalid.to_vec();
            } else {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        // Databases do not accept NUL.
        text.retain(|c| c != '\0');
        text
    }

    /// Returns the rest at the end of the stream.
    pub(crate) fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.rest)).into_owned()
    }
}

/// True if the bytes are the start of a character.
fn is_incomplete_char(bytes: &[u8]) -> bool {
    matches!(std::str::from_utf8(bytes), Err(error) if error.error_len().is_none())
}

/// Masks credentials in text: the userinfo of URLs, and known secrets.
#[derive(Clone, Debug, Default)]
pub(crate) struct CredentialMask {
    secrets: Vec<String>,
}

/// Minimum length of a masked secret; shorter ones would mask ordinary text.
const SECRET_MIN: usize = 4;

impl CredentialMask {
    /// Masks the credentials of this URL wherever they occur.
    pub(crate) fn for_url(url: &str) -> Self {
        let Some((_, rest)) = url.split_once("://") else { return CredentialMask::default() };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let Some((user, _)) = authority.rsplit_once('@') else { return CredentialMask::default() };
        let (_, password) = user.split_once(':').unwrap_or(("", user));
        let mut secrets = vec![password.to_owned(), percent_decoded(password)];
        secrets.retain(|secret| secret.len() >= SECRET_MIN);
        secrets.dedup();
        CredentialMask { secrets }
    }

    pub(crate) fn apply(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.secrets {
            if text.contains(secret.as_str()) {
                text = text.replace(secret.as_str(), REDACTED);
            }
        }
        mask_userinfo(&text)
    }
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let digits = tail.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        match (first, digits.and_then(|two| u8::from_str_radix(two, 16).ok())) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Masks a stream of text; withholds a possible start of a credential until its end arrives.
#[derive(Debug, Default)]
pub(crate) struct MaskingStream {
    decoder: Utf8Decoder,
    mask: CredentialMask,
    held: String,
}

/// Maximum size of the withheld text.
const HELD_MAX: usize = 8 << 10;

impl MaskingStream {
    pub(crate) fn new(mask: CredentialMask) -> Self {
        MaskingStream { decoder: Utf8Decoder::default(), mask, held: String::new() }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        let text = self.decoder.push(bytes);
        self.held.push_str(&text);
        // A word is complete when whitespace follows.
        let end = match self.held.rfind(char::is_whitespace) {
            Some(at) => at + self.held[at..].chars().next().map_or(0, char::len_utf8),
            None if self.held.len() > HELD_MAX => self.held.len(),
            None => 0,
        };
        let rest = self.held.split_off(end);
        let whole = std::mem::replace(&mut self.held, rest);
        self.mask.apply(&whole)
    }

    pub(crate) fn finish(&mut self) -> String {
        let mut text = std::mem::take(&mut self.held);
        text.push_str(&self.decoder.finish());
        self.mask.apply(&text)
    }
}

/// Redacts the values of variables, which may be passwords, for accounts that may view a compile.
pub fn redact_values(variables: BTreeMap<String, String>) -> BTreeMap<String, String> {
    variables.into_keys().map(|name| (name, "***".to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_arrive_in_pieces_are_whole() {
        let text = "größer ☃ 🦀 ende";
        for size in 1..5 {
            let mut decoder = Utf8Decoder::default();
            let mut read = String::new();
            for piece in text.as_bytes().chunks(size) {
                read.push_str(&decoder.push(piece));
            }
            read.push_str(&decoder.finish());
            assert_eq!(read, text);
        }
        let mut decoder = Utf8Decoder::default();
        assert_eq!(decoder.push(b"a\xffb\xe2\x98"), "a\u{fffd}b");
        assert_eq!(decoder.push(b"x\0y"), "\u{fffd}xy");
        assert_eq!(decoder.push(b"\xe2"), "");
        assert_eq!(decoder.finish(), "\u{fffd}");
    }

    #[test]
    fn credentials_are_hidden_however_they_arrive() {
        let url = "https://ada:s3cr%40t@example.org/x.git";
        let mask = CredentialMask::for_url(url);
        let said = format!("fatal: unable to access '{url}/': the word s3cr@t or s3cr%40t\n");
        for size in 1..60 {
            let mut masked = MaskingStream::new(mask.clone());
            let mut read = String::new();
            for piece in said.as_bytes().chunks(size) {
                read.push_str(&masked.push(piece));
            }
            read.push_str(&masked.finish());
            assert!(!read.contains("s3cr"), "{size}: {read}");
            assert!(read.contains("https://***@example.org/x.git"), "{read}");
        }
    }
}
