//! Upload of file contents. Only contents that the server lacks are sent.

use ureq::http::Method;

use super::{Client, ClientError, RetryPolicy, path};
use crate::FileHashes;

/// Maximum number of hashes in a request.
const HASHES_MAX: usize = 5_000;

impl Client {
    /// Returns the hashes of contents that the server lacks.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub fn missing_files(&self, hashes: &[String]) -> Result<Vec<String>, ClientError> {
        let mut missing = Vec::new();
        for some in hashes.chunks(HASHES_MAX) {
            let asked = FileHashes { hashes: some.to_vec() };
            let answer: FileHashes = self.post(&path(&["files", "missing"]), &asked)?;
            missing.extend(answer.hashes);
        }
        Ok(missing)
    }

    /// Uploads the content of a file.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub fn put_file(&self, sha1: &str, content: Vec<u8>) -> Result<(), ClientError> {
        let body = ("application/octet-stream", content);
        let path = path(&["files", sha1]);
        self.read(self.send(&Method::PUT, &path, Some(&body), &RetryPolicy::Idempotent)?)
    }
}
