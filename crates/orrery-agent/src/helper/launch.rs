//! Starts a helper: from the machine's cache, or after an upload.

use std::sync::Arc;
use std::time::Duration;

use orrery_handlers::CancelToken;
use orrery_handlers::target::{
    ExecLimits, InterruptCause, Transport, TransportError, TransportErrorKind,
};
use uuid::Uuid;

use super::DriftListener;
use super::binaries::HelperBinaries;
use super::connection::{Connection, Greeting};
use crate::protocol::PROTOCOL;

/// Time for a helper to start.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for the end of a helper whose output has ended.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for an answer of the machine itself, after a helper did not start.
const ALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Starts that lose their connection before the machine is used by its shell.
const STARTS_MAX: usize = 3;
/// Time limit of an upload, for slow links.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(600);

/// Result of a start.
pub(super) enum Launch {
    Started(Arc<Connection>),
    /// The machine cannot run a helper, for this reason. A lost connection is none.
    Impossible(String),
}

/// Starts the helper that fits; uploads it if the machine does not have it. A connection that is
/// lost meanwhile is made again, a few times.
///
/// # Errors
/// If the machine is not reached.
pub(super) fn launch(
    transport: &dyn Transport,
    binaries: &HelperBinaries,
    drift: Option<&DriftListener>,
    stop: &CancelToken,
) -> Result<Launch, TransportError> {
    let mut lost = 0;
    loop {
        match try_launch(transport, binaries, drift, stop) {
            Err(error) if error.kind == TransportErrorKind::Lost && stop.reason().is_none() => {
                lost += 1;
                let (destination, reason) = (transport.destination(), &error.reason);
                tracing::debug!(destination, reason, lost, "connection lost while a helper starts");
                if lost == STARTS_MAX {
                    return Ok(Launch::Impossible(format!(
                        "the connection was lost {lost} times while the helper was started: {reason}"
                    )));
                }
            }
            ended => return ended,
        }
    }
}

fn try_launch(
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
        let is_too_slow = stop.reason().is_none()
            && error.kind == TransportErrorKind::Interrupted(InterruptCause::TimedOut);
        if error.kind != TransportErrorKind::Upload && !is_too_slow {
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
    Ok(match connection.greeting(START_TIMEOUT, stop) {
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
            // With the end of the connection, this is the error.
            let code = connection.exit_code(END_TIMEOUT)?;
            Started::Said(not_started(code, connection.error_excerpt().trim()))
        }
        None => {
            let end = |kind, reason: &str| {
                Err(TransportError::new(kind, transport.destination(), reason))
            };
            if let Some(cause) = stop.reason() {
                let kind = TransportErrorKind::NotStarted(cause.into());
                return end(kind, "interrupted while the helper was started");
            }
            connection.end();
            let limits = ExecLimits { timeout: Some(ALIVE_TIMEOUT), ..ExecLimits::default() };
            let seconds = START_TIMEOUT.as_secs();
            match transport.exec(":", b"", &limits, stop) {
                Ok(_) => Started::Said(format!("the helper did not start within {seconds} s")),
                // It answers, and starts nothing: each command says so.
                Err(error) if error.kind == TransportErrorKind::Refused => {
                    Started::Said(error.reason)
                }
                Err(_) => {
                    let reason = "the machine did not answer while the helper was started";
                    return end(TransportErrorKind::Unreachable, reason);
                }
            }
        }
    })
}

/// Reason of a helper that ended before its greeting.
fn not_started(code: Option<i32>, errors: &str) -> String {
    let mut reason = match code {
        None => "the helper does not start: the machine printed something else".to_owned(),
        // Of a shell that found the file and may not execute it.
        Some(126) => "the helper does not start: the machine refuses to execute it (its cache may be on a file system mounted with noexec)".to_owned(),
        Some(code) => format!("the helper does not start: it ended with code {code}"),
    };
    if !errors.is_empty() {
        reason.push_str(": ");
        reason.push_str(errors);
    }
    reason
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
