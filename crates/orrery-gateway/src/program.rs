//! The program of an agent, for machines that install it: a download, and its digest.
//!
//! Both are public: a machine has no identity before it has the program. Boot scripts pin the
//! digest, which their author got over a connection that a token authenticates.

use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use orrery_agent::protocol::{ProgramInfo, RefusalCode};
use sha2::{Digest as _, Sha256};
use tokio::sync::{Mutex, Semaphore, mpsc};

use super::GatewayState;
use super::admission::Refused;

/// Concurrent downloads.
const DOWNLOADS_MAX: usize = 16;
/// Size of a part of a download.
const CHUNK: usize = 64 * 1024;

/// The program that a gateway offers.
#[derive(Debug)]
pub(crate) struct AgentProgram {
    path: Option<PathBuf>,
    /// Digest of the file as it was then.
    known: Mutex<Option<(SystemTime, ProgramInfo)>>,
    downloads: Arc<Semaphore>,
}

impl AgentProgram {
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        let downloads = Arc::new(Semaphore::new(DOWNLOADS_MAX));
        AgentProgram { path, known: Mutex::default(), downloads }
    }

    /// Describes the program; computes its digest once, and again after a change.
    async fn info(&self) -> Result<ProgramInfo, Refused> {
        let path = self.path.clone().ok_or_else(no_program)?;
        let mut known = self.known.lock().await;
        let before = known.clone();
        let read = tokio::task::spawn_blocking(move || {
            let metadata = std::fs::metadata(&path)?;
            let changed = metadata.modified()?;
            if let Some((at, info)) =
                before.filter(|(at, info)| *at == changed && info.size == metadata.len())
            {
                return Ok((at, info));
            }
            let mut file = std::fs::File::open(&path)?;
            let (mut hash, mut size, mut chunk) = (Sha256::new(), 0, vec![0; CHUNK]);
            loop {
                match file.read(&mut chunk)? {
                    0 => break,
                    count => {
                        hash.update(&chunk[..count]);
                        size += count as u64;
                    }
                }
            }
            let sha256 = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
            let architecture = std::env::consts::ARCH.to_owned();
            Ok((changed, ProgramInfo { sha256, size, architecture }))
        });
        let read: std::io::Result<_> = read.await.map_err(|error| Refused::unavailable(&error))?;
        let (changed, info) = read.map_err(|error| Refused::unavailable(&error))?;
        *known = Some((changed, info.clone()));
        Ok(info)
    }
}

fn no_program() -> Refused {
    let reason = "this server has no program for agents: start it with --gateway-program, or install the program from elsewhere";
    Refused::new(StatusCode::NOT_FOUND, RefusalCode::Unavailable, reason)
}

/// Describes the program of an agent.
pub(super) async fn info(
    State(gateway): State<GatewayState>,
) -> Result<Json<ProgramInfo>, Refused> {
    gateway.program.info().await.map(Json)
}

/// Sends the program of an agent.
pub(super) async fn download(State(gateway): State<GatewayState>) -> Result<Response, Refused> {
    let path = gateway.program.path.clone().ok_or_else(no_program)?;
    let permit = Arc::clone(&gateway.program.downloads).try_acquire_owned().map_err(|_| {
        let reason = "too many downloads; retry later";
        Refused::new(StatusCode::SERVICE_UNAVAILABLE, RefusalCode::Unavailable, reason)
    })?;
    let opened = tokio::task::spawn_blocking(move || {
        let file = std::fs::File::open(path)?;
        let size = file.metadata()?.len();
        Ok((file, size))
    });
    let opened: std::io::Result<_> = opened.await.map_err(|error| Refused::unavailable(&error))?;
    let (mut file, size) = opened.map_err(|error| Refused::unavailable(&error))?;
    let (sender, receiver) = mpsc::channel::<std::io::Result<Bytes>>(2);
    tokio::task::spawn_blocking(move || {
        let _permit = permit;
        loop {
            let mut chunk = vec![0; CHUNK];
            let part = match file.read(&mut chunk) {
                Ok(0) => break,
                Ok(count) => {
                    chunk.truncate(count);
                    Ok(chunk.into())
                }
                Err(error) => Err(error),
            };
            let is_last = part.is_err();
            // The receiver is gone if the connection is.
            if sender.blocking_send(part).is_err() || is_last {
                break;
            }
        }
    });
    let parts = stream::unfold(receiver, async |mut receiver| {
        receiver.recv().await.map(|part| (part, receiver))
    });
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, size.to_string()),
    ];
    Ok((headers, Body::from_stream(parts)).into_response())
}
