//! Content digests. The length of the hexadecimal text determines the algorithm.

use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

use md5::{Digest, Md5};
use sha1::Sha1;
use sha2::Sha256;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    Md5,
    Sha1,
    Sha256,
}

/// Digest of a content.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContentDigest {
    pub algorithm: Algorithm,
    /// Padded with zeros.
    bytes: [u8; 32],
}

impl Algorithm {
    fn length(self) -> usize {
        match self {
            Algorithm::Md5 => 16,
            Algorithm::Sha1 => 20,
            Algorithm::Sha256 => 32,
        }
    }

    pub fn digest(self, content: &[u8]) -> ContentDigest {
        match self {
            Algorithm::Md5 => ContentDigest::new(self, &Md5::digest(content)),
            Algorithm::Sha1 => ContentDigest::new(self, &Sha1::digest(content)),
            Algorithm::Sha256 => ContentDigest::new(self, &Sha256::digest(content)),
        }
    }

    /// Digest of a stream, read in chunks.
    pub fn digest_stream(self, stream: &mut dyn Read) -> io::Result<ContentDigest> {
        match self {
            Algorithm::Md5 => Ok(ContentDigest::new(self, &feed::<Md5>(stream)?)),
            Algorithm::Sha1 => Ok(ContentDigest::new(self, &feed::<Sha1>(stream)?)),
            Algorithm::Sha256 => Ok(ContentDigest::new(self, &feed::<Sha256>(stream)?)),
        }
    }
}

fn feed<D: Digest>(stream: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut digest = D::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(digest.finalize().to_vec()),
            Ok(count) => digest.update(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

impl ContentDigest {
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.algorithm.length()]
    }

    fn new(algorithm: Algorithm, digest: &[u8]) -> Self {
        let mut bytes = [0; 32];
        bytes[..digest.len()].copy_from_slice(digest);
        ContentDigest { algorithm, bytes }
    }
}

impl fmt::Display for ContentDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes[..self.algorithm.length()].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ContentDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a digest: expected 32, 40 or 64 hexadecimal digits (MD5, SHA-1 or SHA-256)")]
pub struct InvalidDigest(String);

impl FromStr for ContentDigest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        let invalid = || InvalidDigest(text.to_owned());
        let algorithm = match text.len() {
            32 => Algorithm::Md5,
            40 => Algorithm::Sha1,
            64 => Algorithm::Sha256,
            _ => return Err(invalid()),
        };
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digit = |digit: u8| char::from(digit).to_digit(16).ok_or_else(invalid);
            let value = digit(pair[0])? * 16 + digit(pair[1])?;
            *byte = u8::try_from(value).map_err(|_| invalid())?;
        }
        Ok(ContentDigest { algorithm, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_match_known_values() {
        for (algorithm, text) in [
            (Algorithm::Md5, "900150983cd24fb0d6963f7d28e17f72"),
            (Algorithm::Sha1, "a9993e364706816aba3e25717850c26c9cd0d89d"),
            (Algorithm::Sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        ] {
            assert_eq!(algorithm.digest(b"abc").to_string(), text);
            assert_eq!(algorithm.digest_stream(&mut &b"abc"[..]).unwrap().to_string(), text);
            assert_eq!(text.parse(), Ok(algorithm.digest(b"abc")));
            assert_eq!(text.to_uppercase().parse(), Ok(algorithm.digest(b"abc")));
        }
    }

    #[test]
    fn invalid_digests_are_rejected() {
        for text in
            ["", "abc", "zz0150983cd24fb0d6963f7d28e17f72", "é00150983cd24fb0d6963f7d28e17f7"]
        {
            assert!(text.parse::<ContentDigest>().is_err(), "{text}");
        }
    }
}
