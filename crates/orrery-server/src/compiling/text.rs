//! What programs write, made fit to be kept: whole characters, however they arrive, and no credentials.

use std::collections::BTreeMap;

/// Makes text of bytes that arrive in pieces: a character that is split over two of them stays whole.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// The beginning of a character whose end has not come.
    rest: Vec<u8>,
}

impl Decoder {
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
            if chunks.peek().is_none() && may_go_on(invalid) {
                self.rest = invalid.to_vec();
            } else {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        // Databases have no place for it.
        text.retain(|c| c != '\0');
        text
    }

    /// What is left at the end.
    pub(crate) fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.rest)).into_owned()
    }
}

/// Whether bytes can be the beginning of a character.
fn may_go_on(bytes: &[u8]) -> bool {
    matches!(std::str::from_utf8(bytes), Err(error) if error.error_len().is_none())
}

/// Takes credentials out of text: the part of URLs before the host, and secrets that are known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mask {
    secrets: Vec<String>,
}

/// What stands for a secret.
pub(super) const HIDDEN: &str = "***";
/// Shorter ones would hide half of every word.
const SECRET_MIN: usize = 4;

impl Mask {
    /// Hides the credentials of this URL wherever they occur.
    pub(crate) fn for_url(url: &str) -> Self {
        let Some((_, rest)) = url.split_once("://") else { return Mask::default() };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let Some((user, _)) = authority.rsplit_once('@') else { return Mask::default() };
        let (_, password) = user.split_once(':').unwrap_or(("", user));
        let mut secrets = vec![password.to_owned(), percent_decoded(password)];
        secrets.retain(|secret| secret.len() >= SECRET_MIN);
        secrets.dedup();
        Mask { secrets }
    }

    pub(crate) fn apply(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.secrets {
            if text.contains(secret.as_str()) {
                text = text.replace(secret.as_str(), HIDDEN);
            }
        }
        without_userinfo(&text)
    }
}

/// `https://name:word@host/` becomes `https://***@host/`.
pub(crate) fn without_userinfo(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        shown.push_str(before);
        let ends = |c: char| c.is_whitespace() || "/?#'\"<>".contains(c);
        let end = after.find(ends).unwrap_or(after.len());
        let authority = &after[..end];
        match authority.rsplit_once('@') {
            Some((_, host)) => {
                shown.push_str(HIDDEN);
                shown.push('@');
                shown.push_str(host);
            }
            None => shown.push_str(authority),
        }
        rest = &after[end..];
    }
    shown.push_str(rest);
    shown
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

/// A stream of text that is masked as it passes: what might be the beginning of a credential waits for its end.
#[derive(Debug, Default)]
pub(crate) struct Masked {
    decoder: Decoder,
    mask: Mask,
    held: String,
}

/// So much is held back at most.
const HELD_MAX: usize = 8 << 10;

impl Masked {
    pub(crate) fn new(mask: Mask) -> Self {
        Masked { decoder: Decoder::default(), mask, held: String::new() }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        let text = self.decoder.push(bytes);
        self.held.push_str(&text);
        // Words are whole where a space follows.
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

/// Variables as they are told: there may be passwords among their values, and everybody who may look at a compile reads this.
pub(crate) fn without_values(variables: BTreeMap<String, String>) -> BTreeMap<String, String> {
    variables.into_keys().map(|name| (name, "***".to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_arrive_in_pieces_are_whole() {
        let text = "größer ☃ 🦀 ende";
        for size in 1..5 {
            let mut decoder = Decoder::default();
            let mut read = String::new();
            for piece in text.as_bytes().chunks(size) {
                read.push_str(&decoder.push(piece));
            }
            read.push_str(&decoder.finish());
            assert_eq!(read, text);
        }
        let mut decoder = Decoder::default();
        assert_eq!(decoder.push(b"a\xffb\xe2\x98"), "a\u{fffd}b");
        assert_eq!(decoder.push(b"x\0y"), "\u{fffd}xy");
        assert_eq!(decoder.push(b"\xe2"), "");
        assert_eq!(decoder.finish(), "\u{fffd}");
    }

    #[test]
    fn credentials_are_hidden_however_they_arrive() {
        let url = "https://ada:s3cr%40t@example.org/x.git";
        let mask = Mask::for_url(url);
        let said = format!("fatal: unable to access '{url}/': the word s3cr@t or s3cr%40t\n");
        for size in 1..60 {
            let mut masked = Masked::new(mask.clone());
            let mut read = String::new();
            for piece in said.as_bytes().chunks(size) {
                read.push_str(&masked.push(piece));
            }
            read.push_str(&masked.finish());
            assert!(!read.contains("s3cr"), "{size}: {read}");
            assert!(read.contains("https://***@example.org/x.git"), "{read}");
        }
    }

    #[test]
    fn what_is_no_credential_stays() {
        for text in ["see https://example.org/a@b", "git@example.org:a/b.git", "a://", "x"] {
            assert_eq!(without_userinfo(text), text);
        }
        assert_eq!(without_userinfo("ssh://git@h/x b://c:d@e"), "ssh://***@h/x b://***@e");
    }
}
