//! Starts a helper: from the machine's cache, or after an upload.

use std::sync::Arc;
use std::time::Duration;

use orrery_handlers::CancelToken;
use orrery_handlers::target::{ExecLimits, Transport, TransportError, TransportErrorKind};
use uuid::Uuid;

use super::DriftListener;
use super::binaries::HelperBinaries;
use super::connection::{Connection, Greeting};
use crate::protocol::PROTOCOL;

/// Time for a helper to start.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit of an upload, for slow links.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(600);

/// Result of a start.
pub(super) enum Launch {
    Started(Arc<Connection>),
    /// The machine cannot run a helper, for this reason.
    Impossible(String),
}

/// Starts the helper that fits; uploads it if the machine does not have it.
pub(super) fn launch(
    transport: &dyn Transport,
    binaries: &HelperBinaries,
    drift: Option<&DriftListener>,
    stop: &CancelToken,
) -> Result<Launch, TransportError> {
    let reply = match start(transport, binaries, "", drift, stop)? {
        Started::Helper(connection) => return Ok(Launch::Started(connection)),
        Started::Said(reply) => reply,
    };
    let Some((digest, cache)) =
        reply.strip_prefix("missing ").and_then(|rest| rest.split_once(' '))
    else {
        let reason = reply.strip_prefix("impossible ").unwrap_or(&reply);
        return Ok(Launch::Impossible(reason.to_owned()));
    };
    let Some(binary) = binaries.with_digest(digest) else {
        return Ok(Launch::Impossible(format!("unexpected reply of the machine: {reply}")));
    };
    let content = match binary.read() {
        Ok(content) => content,
        Err(error) => {
            let reason = format!("cannot read {}: {error}", binary.path().display());
            return Ok(Launch::Impossible(reason));
        }
    };
    let name = format!("upload-{}", Uuid::new_v4());
    let path = format!("{cache}/{name}");
    tracing::info!(
        destination = transport.destination(),
        bytes = content.len(),
        "uploading a helper"
    );
    if let Err(error) = transport.upload(&path, &content, 0o700, &stop.within(UPLOAD_TIMEOUT)) {
        if error.kind != TransportErrorKind::Upload {
            return Err(error);
        }
        // A part of the file may be there, and take the last space.
        let remove = format!("rm -f {}", quote(&path));
        let limits = ExecLimits { timeout: Some(START_TIMEOUT), ..ExecLimits::default() };
        if let Err(error) = transport.exec(&remove, b"", &limits, stop) {
            tracing::debug!(%error, "cannot remove a part of a helper");
        }
        return Ok(Launch::Impossible(format!("cannot upload the helper: {}", error.reason)));
    }
    Ok(match start(transport, binaries, &name, drift, stop)? {
        Started::Helper(connection) => Launch::Started(connection),
        Started::Said(reply) => {
            let reason = reply.strip_prefix("impossible ").unwrap_or(&reply);
            Launch::Impossible(reason.to_owned())
        }
    })
}

enum Started {
    Helper(Arc<Connection>),
    Said(String),
}

fn start(
    transport: &dyn Transport,
    binaries: &HelperBinaries,
    upload: &str,
    drift: Option<&DriftListener>,
    stop: &CancelToken,
) -> Result<Started, TransportError> {
    let process = transport.start(&script(binaries, upload), stop)?;
    let refused = |reason: String| {
        TransportError::new(TransportErrorKind::Refused, transport.destination(), reason)
    };
    let connection = Connection::open(process, binaries.idle_timeout(), drift.cloned())
        .map_err(|error| refused(format!("cannot start a thread: {error}")))?;
    let wait = stop.remaining().map_or(START_TIMEOUT, |left| left.min(START_TIMEOUT));
    Ok(match connection.greeting(wait) {
        Some(Greeting::Hello(hello)) if hello.protocol == PROTOCOL => {
            connection.learn(&hello);
            connection.watch_files();
            Started::Helper(connection)
        }
        Some(Greeting::Hello(hello)) => Started::Said(format!(
            "the helper is version {} with protocol {}; this program has {PROTOCOL}",
            hello.program_version, hello.protocol
        )),
        Some(Greeting::Said(text)) => Started::Said(text),
        Some(Greeting::Ended) => {
            let errors = connection.error_excerpt();
            Started::Said(format!("the helper does not start: {}", errors.trim()))
        }
        None => Started::Said("the helper did not start in time".to_owned()),
    })
}

/// Script that starts the first binary that fits.
fn script(binaries: &HelperBinaries, upload: &str) -> String {
    let mut script = String::from(include_str!("launch.sh"));
    script.push_str(&format!("upload={}\n", quote(upload)));
    let mut keyword = "if";
    for binary in binaries.iter() {
        let platform = binary.platform();
        let minor = platform.glibc_minor.map(|minor| minor.to_string()).unwrap_or_default();
        script.push_str(&format!(
            "{keyword} fits {} {} '{minor}'; then digest={} arguments={}\n",
            quote(platform.name),
            quote(platform.interpreter.as_deref().unwrap_or_default()),
            quote(binary.digest()),
            quote(binary.arguments()),
        ));
        keyword = "elif";
    }
    script.push_str("fi\nstart\n");
    script
}

/// Quotes a text for a shell.
fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
