//! Contents of plug-in resources on a worker: files by tenant and SHA-256, fetched from the server
//! of a task.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use orrery_agent::calls::FETCH_CODE;
use orrery_handlers::ServerCalls;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::plugin::{PluginError, PluginResources};

/// Largest content in bytes.
const CONTENT_BYTES_MAX: u64 = 256 << 20;

/// A directory of contents of one tenant.
#[derive(Clone, Debug)]
pub(super) struct ContentCache {
    directory: PathBuf,
}

fn is_sha256(digest: &str) -> bool {
    digest.len() == 64 && digest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn sha256(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl ContentCache {
    pub(super) fn new(directory: PathBuf) -> Self {
        ContentCache { directory }
    }

    /// A content that matches its digest; others count as missing.
    fn read(&self, digest: &str) -> Option<Vec<u8>> {
        let content = fs::read(self.directory.join(digest)).ok()?;
        (sha256(&content) == digest).then_some(content)
    }

    fn write(&self, digest: &str, content: &[u8]) -> io::Result<()> {
        fs::create_dir_all(&self.directory)?;
        let mut file = tempfile::NamedTempFile::new_in(&self.directory)?;
        file.write_all(content)?;
        file.persist(self.directory.join(digest))?;
        Ok(())
    }

    /// Fetches the contents that are missing.
    ///
    /// # Errors
    /// If the server does not have one, or another content came.
    pub(super) fn fetch<'d>(
        &self,
        server: &dyn ServerCalls,
        digests: impl Iterator<Item = &'d str>,
    ) -> Result<(), PluginError> {
        for digest in digests.filter(|digest| is_sha256(digest)) {
            if self.read(digest).is_some() {
                continue;
            }
            let content = fetch_content(server, digest)?;
            if sha256(&content) != digest {
                return Err(PluginError::new(format!(
                    "the server sent another content than {digest}"
                )));
            }
            self.write(digest, &content)
                .map_err(|error| PluginError::io(format!("store the content {digest}"), &error))?;
        }
        Ok(())
    }
}

/// Fetches one content in parts.
fn fetch_content(server: &dyn ServerCalls, digest: &str) -> Result<Vec<u8>, PluginError> {
    let failed = |reason: &str| {
        PluginError::new(format!("the content {digest} cannot be fetched: {reason}"))
    };
    let mut content = Vec::new();
    loop {
        let arguments = json!({"digests": [digest], "offset": content.len()});
        let arguments: Map<String, Value> = arguments.as_object().cloned().unwrap_or_default();
        let reply =
            server.call(FETCH_CODE, arguments).map_err(|error| failed(&error.to_string()))?;
        if reply.status != 200 {
            let message = reply.result.get("message").and_then(Value::as_str);
            return Err(failed(message.unwrap_or("the server refused")));
        }
        let part = reply.result.pointer("/parts/0").ok_or_else(|| failed("no answer"))?;
        let size = part.get("size").and_then(Value::as_u64).unwrap_or(u64::MAX);
        let bytes = part.get("content").and_then(Value::as_str).map(|text| BASE64.decode(text));
        let Some(Ok(bytes)) = bytes else { return Err(failed("its encoding is wrong")) };
        let is_empty = bytes.is_empty();
        content.extend(bytes);
        let length = content.len() as u64;
        if size > CONTENT_BYTES_MAX || length > size {
            return Err(failed("it is too large"));
        }
        if length == size {
            return Ok(content);
        }
        if is_empty {
            return Err(failed("the answer has no data"));
        }
    }
}

impl PluginResources for ContentCache {
    fn content(&self, _tenant: &str, digest: &str) -> Result<Option<Arc<[u8]>>, PluginError> {
        if !is_sha256(digest) {
            return Ok(None);
        }
        Ok(self.read(digest).map(Arc::from))
    }
}

/// Removes the directory of a slot that changes its tenant.
pub(super) fn clear(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}
