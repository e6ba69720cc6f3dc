//! Fetches code from the server of a run: the description by its digest, and the files that this
//! machine does not have. Nothing is used before it matches its digest.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use orrery_agent::calls::{DIGESTS_MAX, FETCH_CODE};
use orrery_handlers::{HandlerError, ServerCalls};
use orrery_host::code_store::CodeSet;
use orrery_host::manifest::{CodeManifest, MANIFEST_BYTES_MAX, is_sha256_hex, sha256_hex};
use serde_json::{Value, json};

use crate::directories::Directories;

/// Reason why there is no code.
#[derive(Debug)]
pub(crate) enum FetchError {
    /// The run ended, or the server did not answer: the next run tries again.
    Run(HandlerError),
    /// The code cannot be used.
    Code(String),
}

impl From<io::Error> for FetchError {
    fn from(error: io::Error) -> Self {
        FetchError::Code(format!("the code of the handler cannot be stored: {error}"))
    }
}

/// Part of a file.
struct Part {
    size: u64,
    content: Vec<u8>,
}

/// Returns the set of code with this digest; fetches what is missing.
pub(crate) fn fetch_set(
    server: &dyn ServerCalls,
    directories: &Directories,
    digest: &str,
) -> Result<CodeSet, FetchError> {
    let store = directories.code();
    if !is_sha256_hex(digest) {
        return Err(FetchError::Code(format!("{digest:?} is not the digest of code")));
    }
    if let Ok(set) = store.open(digest) {
        return Ok(set);
    }
    let blobs = directories.blobs();
    DirBuilder::new().recursive(true).mode(0o700).create(&blobs)?;
    let text = match read_blob(&blobs, digest) {
        Some(text) => text,
        None => {
            let text = fetch_file(server, digest, Vec::new(), MANIFEST_BYTES_MAX)?;
            store_blob(&blobs, digest, &text)?;
            text
        }
    };
    let manifest =
        CodeManifest::parse(digest, &text).map_err(|error| FetchError::Code(error.to_string()))?;
    fetch_missing(server, &blobs, &manifest)?;
    let mut read = |file: &orrery_host::manifest::ManifestFile| {
        read_blob(&blobs, &file.sha256)
            .ok_or_else(|| "it is missing after it was fetched".to_owned())
    };
    let unpacked = store.unpack_manifest(digest, &manifest, &mut read);
    unpacked.map_err(|error| FetchError::Code(error.to_string()))
}

/// Fetches the files that are not here: many in one call, large ones in several.
fn fetch_missing(
    server: &dyn ServerCalls,
    blobs: &Path,
    manifest: &CodeManifest,
) -> Result<(), FetchError> {
    let sizes: BTreeMap<&str, u64> =
        manifest.files.values().map(|file| (file.sha256.as_str(), file.size)).collect();
    let is_missing = |digest: &&str| read_blob(blobs, digest).is_none();
    let mut missing: Vec<&str> = sizes.keys().copied().filter(is_missing).collect();
    tracing::debug!(files = sizes.len(), missing = missing.len(), "fetching code");
    while !missing.is_empty() {
        let asked = &missing[..missing.len().min(DIGESTS_MAX)];
        let parts = fetch_parts(server, asked, 0)?;
        let received = parts.len();
        for (digest, Part { size, content }) in asked.iter().zip(parts) {
            if Some(&size) != sizes.get(digest) {
                return Err(FetchError::Code(format!(
                    "the server sent another file than {digest}"
                )));
            }
            let content = if (content.len() as u64) < size {
                fetch_file(server, digest, content, size)?
            } else {
                content
            };
            store_blob(blobs, digest, &content)?;
        }
        missing.drain(..received);
    }
    Ok(())
}

/// Fetches the rest of a file.
fn fetch_file(
    server: &dyn ServerCalls,
    digest: &str,
    mut content: Vec<u8>,
    bytes_max: u64,
) -> Result<Vec<u8>, FetchError> {
    loop {
        let parts = fetch_parts(server, &[digest], content.len() as u64)?;
        let Some(part) = parts.into_iter().next() else { return Err(no_answer()) };
        let is_empty = part.content.is_empty();
        content.extend(part.content);
        if part.size > bytes_max || content.len() as u64 > part.size {
            return Err(FetchError::Code(format!("the file {digest} of the code is too large")));
        }
        if content.len() as u64 == part.size {
            return Ok(content);
        }
        if is_empty {
            return Err(no_answer());
        }
    }
}

/// Requests files from an offset of the first one. Returns the first of them, at least one.
fn fetch_parts(
    server: &dyn ServerCalls,
    digests: &[&str],
    offset: u64,
) -> Result<Vec<Part>, FetchError> {
    let Value::Object(arguments) = json!({ "digests": digests, "offset": offset }) else {
        return Err(no_answer());
    };
    let reply = server.call(FETCH_CODE, arguments).map_err(FetchError::Run)?;
    if reply.status != 200 {
        let reason = reply.result.get("message").and_then(Value::as_str).unwrap_or_default();
        let reason = format!("the server did not send the code of the handler: {reason}");
        return Err(FetchError::Run(HandlerError::failed(reason)));
    }
    let parts = reply.result.get("parts").and_then(Value::as_array).ok_or_else(no_answer)?;
    let parsed = parts.iter().zip(digests).map(|(part, digest)| {
        let text = |name: &str| part.get(name).and_then(Value::as_str);
        if text("digest") != Some(digest) {
            return Err(no_answer());
        }
        let content = text("content").and_then(|text| BASE64.decode(text).ok());
        let size = part.get("size").and_then(Value::as_u64);
        Ok(Part { size: size.ok_or_else(no_answer)?, content: content.ok_or_else(no_answer)? })
    });
    let parsed = parsed.collect::<Result<Vec<Part>, FetchError>>()?;
    if parsed.is_empty() { Err(no_answer()) } else { Ok(parsed) }
}

fn no_answer() -> FetchError {
    FetchError::Code("the server answered without the code of the handler".to_owned())
}

/// Returns a file that is here, undamaged.
fn read_blob(blobs: &Path, digest: &str) -> Option<Vec<u8>> {
    let path = blobs.join(digest);
    let content = std::fs::read(&path).ok().filter(|content| sha256_hex(content) == digest)?;
    // Only for the removal of unused files.
    let _ = touch_content(&path);
    Some(content)
}

/// Marks a file as used without a change of its content.
fn touch_content(path: &Path) -> io::Result<()> {
    let file = std::fs::File::options().append(true).open(path)?;
    file.set_modified(orrery_base::clock::wall())
}

/// Stores a file under its digest: complete, or not at all.
fn store_blob(blobs: &Path, digest: &str, content: &[u8]) -> Result<(), FetchError> {
    if sha256_hex(content) != digest {
        let reason = format!(
            "the code that the server sent does not match its digest {digest}; it is not used"
        );
        return Err(FetchError::Code(reason));
    }
    let fresh = blobs.join(format!(".{digest}.{}", std::process::id()));
    std::fs::write(&fresh, content)?;
    std::fs::rename(&fresh, blobs.join(digest))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::Mutex;

    use orrery_handlers::ServerReply;
    use orrery_host::code_store::CodeSet;
    use orrery_host::handshake::ModuleCode;
    use orrery_host::manifest::LocalManifest;
    use orrery_model::PipSettings;
    use serde_json::Map;

    use super::*;

    /// A server with some code, which may change what it sends.
    struct CodeServer {
        manifest: LocalManifest,
        part_max: usize,
        tamper: fn(&str, Vec<u8>) -> Vec<u8>,
        calls: Mutex<Vec<usize>>,
    }

    impl ServerCalls for CodeServer {
        fn call(
            &self,
            method: &str,
            arguments: Map<String, Value>,
        ) -> Result<ServerReply, HandlerError> {
            assert_eq!(method, FETCH_CODE);
            let digests = arguments["digests"].as_array().unwrap();
            self.calls.lock().unwrap().push(digests.len());
            let offset = RefCell::new(arguments["offset"].as_u64().unwrap());
            let parts = digests.iter().take(2).map(|digest| {
                let digest = digest.as_str().unwrap();
                let from = offset.replace(0);
                let read = self.manifest.read(digest, from, self.part_max).unwrap();
                let (size, content) = read.unwrap();
                let content = (self.tamper)(digest, content);
                json!({ "digest": digest, "size": size, "content": BASE64.encode(content) })
            });
            let parts: Vec<Value> = parts.collect();
            Ok(ServerReply { status: 200, result: json!({ "parts": parts }) })
        }
    }

    fn server(directory: &Path, files: &[(&str, &str)]) -> CodeServer {
        let code = directory.join("module");
        for (name, text) in files {
            let path = code.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let set = CodeSet {
            modules: vec![ModuleCode {
                name: "shop".to_owned(),
                package: "inmanta_plugins.shop".to_owned(),
                root: code.clone(),
                code,
                version: "1.0".to_owned(),
            }],
            handlers: vec!["shop::Price".to_owned()],
            machine_handlers: Vec::new(),
            python: None,
            program: "/usr/bin/python3".into(),
            path: Vec::new(),
            requirements: Vec::new(),
            installed: Vec::new(),
            pip: PipSettings::default(),
        };
        CodeServer {
            manifest: LocalManifest::of(&set).unwrap(),
            part_max: 1 << 20,
            tamper: |_, content| content,
            calls: Mutex::default(),
        }
    }

    const FILES: [(&str, &str); 4] = [
        ("__init__.py", "import os\n"),
        ("deep/one.py", "x = 1\n"),
        ("deep/same.py", "x = 1\n"),
        ("large.txt", "0123456789abcdef0123456789abcdef0123456789abcdef"),
    ];

    fn fetch(server: &CodeServer, place: &Path) -> Result<CodeSet, FetchError> {
        let directories = Directories::new(place);
        fetch_set(server, &directories, server.manifest.digest())
    }

    #[test]
    fn code_is_fetched_in_parts_and_once() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut server = server(here.path(), &FILES);
        server.part_max = 20;
        let set = fetch(&server, there.path()).unwrap();
        for (name, text) in FILES {
            assert_eq!(std::fs::read_to_string(set.modules[0].code.join(name)).unwrap(), text);
        }
        let calls = server.calls.lock().unwrap().len();
        fetch(&server, there.path()).unwrap();
        assert_eq!(server.calls.lock().unwrap().len(), calls, "the code is here");
    }

    #[test]
    fn only_changed_files_travel() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fetch(&server(here.path(), &FILES), there.path()).unwrap();
        let next = server(here.path(), &[("deep/one.py", "x = 2\n")]);
        let set = fetch(&next, there.path()).unwrap();
        // The description, and one file.
        assert_eq!(*next.calls.lock().unwrap(), [1, 1]);
        let one = std::fs::read_to_string(set.modules[0].code.join("deep/one.py")).unwrap();
        assert_eq!(one, "x = 2\n");
        let same = std::fs::read_to_string(set.modules[0].code.join("deep/same.py")).unwrap();
        assert_eq!(same, "x = 1\n");
    }

    #[test]
    fn tampered_code_is_not_used() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut server = server(here.path(), &FILES);
        let digest = server.manifest.digest().to_owned();
        // A file, then the description.
        server.tamper = |_, content| match content.as_slice() {
            b"import os\n" => b"import no\n".to_vec(),
            _ => content,
        };
        let refused = |server: &CodeServer| match fetch(server, there.path()).unwrap_err() {
            FetchError::Code(reason) => {
                assert!(reason.contains("does not match its digest"), "{reason}");
            }
            FetchError::Run(error) => panic!("{error}"),
        };
        refused(&server);
        let code = Directories::new(there.path()).code();
        assert!(code.open(&digest).is_err(), "nothing is unpacked");
        std::fs::remove_file(there.path().join("blobs").join(&digest)).unwrap();
        server.tamper = |_, content| content.iter().map(|byte| byte ^ 1).collect();
        refused(&server);
        assert!(!there.path().join("blobs").join(&digest).exists());
        // A file that was damaged here is fetched again.
        server.tamper = |_, content| content;
        fetch(&server, there.path()).unwrap();
        std::fs::remove_dir_all(there.path().join("code")).unwrap();
        std::fs::write(there.path().join("blobs").join(&digest), "damaged").unwrap();
        fetch(&server, there.path()).unwrap();
    }
}
