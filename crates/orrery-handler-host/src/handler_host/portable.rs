//! Code of handlers for runs on other machines: the files of a code set, and its callbacks.

use std::fmt;
use std::sync::Mutex;

use orrery_base::lock::IgnorePoison;

use orrery_handlers::{CodePart, HandlerError, PortableCode, ServerReply};
use orrery_host::code_store::CodeSet;
use orrery_host::manifest::LocalManifest;
use serde_json::{Map, Value};

use super::callbacks::HandlerCallbacks;

/// A code set of this machine. Its files are read with the first remote run.
pub struct SetCode {
    set: CodeSet,
    environment: String,
    callbacks: HandlerCallbacks,
    manifest: Mutex<Option<LocalManifest>>,
}

impl fmt::Debug for SetCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SetCode").field("handlers", &self.set.handlers).finish_non_exhaustive()
    }
}

impl SetCode {
    /// Code of an environment, which is a UUID.
    pub fn new(set: CodeSet, environment: String, callbacks: HandlerCallbacks) -> Self {
        SetCode { set, environment, callbacks, manifest: Mutex::default() }
    }

    /// Calls a function with the manifest, which is created if necessary.
    fn with_manifest<R>(
        &self,
        function: impl FnOnce(&LocalManifest) -> R,
    ) -> Result<R, HandlerError> {
        let mut manifest = self.manifest.lock().ignore_poison();
        if let Some(manifest) = &*manifest {
            return Ok(function(manifest));
        }
        let described = LocalManifest::of(&self.set);
        let described = described.map_err(|error| HandlerError::failed(error.to_string()))?;
        Ok(function(manifest.insert(described)))
    }
}

impl PortableCode for SetCode {
    fn digest(&self) -> Result<String, HandlerError> {
        self.with_manifest(|manifest| manifest.digest().to_owned())
    }

    fn environment(&self) -> &str {
        &self.environment
    }

    fn read(
        &self,
        digest: &str,
        offset: u64,
        bytes_max: usize,
    ) -> Result<Option<CodePart>, HandlerError> {
        let read = self.with_manifest(|manifest| manifest.read(digest, offset, bytes_max))?;
        let part = read.map_err(|error| {
            HandlerError::failed(format!("the code of the handlers cannot be read: {error}"))
        })?;
        Ok(part.map(|(size, content)| CodePart { size, content }))
    }

    fn answer(&self, method: &str, arguments: &Map<String, Value>, changed: bool) -> ServerReply {
        let reply = self.callbacks.call(method, arguments, changed);
        ServerReply { status: reply.code, result: reply.result }
    }
}
