//! Single writer per store file: an advisory lock of the operating system on a file beside it.
//!
//! The lock is held by an open file and ends with the process. The text in the file only names the
//! holder for people.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use orrery_model::Timestamp;

use crate::{Holder, Result, StoreError};

/// Exclusive right to write to a store, until it is dropped.
#[derive(Debug)]
pub(crate) struct WriterLock {
    file: File,
}

/// A process that only tests whether the lock is free holds it for an instant; a writer retries so
/// as not to mistake it for another writer.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(10);

impl WriterLock {
    pub(crate) fn acquire(store: &Path, holder: &Holder) -> Result<Self> {
        let path = lock_path(store);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(|error| StoreError::io(&path, error))?;
        for attempt in 1.. {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(error)) => return Err(StoreError::io(&path, error)),
                Err(TryLockError::WouldBlock) if attempt < ATTEMPTS => std::thread::sleep(PAUSE),
                Err(TryLockError::WouldBlock) => {
                    let holder = read_holder(&mut file);
                    return Err(StoreError::Busy { path: store.to_owned(), holder });
                }
            }
        }
        let text = serde_json::to_string(holder).unwrap_or_default();
        let written = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(text.as_bytes()));
        written.map_err(|error| StoreError::io(&path, error))?;
        Ok(WriterLock { file })
    }
}

impl Drop for WriterLock {
    fn drop(&mut self) {
        // The file itself stays: removing it would let two processes lock two files of the same
        // name. The lock ends with the descriptor, even if the text could not be cleared.
        let _ = self.file.set_len(0);
    }
}

/// Holder of the writer lock of `store`; `None` if it is free.
///
/// # Errors
/// If the lock file exists and cannot be opened.
pub fn current_writer(store: &Path) -> Result<Option<Holder>> {
    let path = lock_path(store);
    let mut file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StoreError::io(&path, error)),
    };
    for attempt in 1.. {
        match file.try_lock_shared() {
            Ok(()) => break,
            Err(TryLockError::Error(error)) => return Err(StoreError::io(&path, error)),
            Err(TryLockError::WouldBlock) => {}
        }
        if let Some(holder) = read_holder(&mut file) {
            return Ok(Some(holder));
        }
        // A holder without a name has just started, is just ending, or passed the lock for an
        // instant to a child process before `exec`.
        if attempt == ATTEMPTS {
            return Ok(Some(Holder {
                pid: 0,
                host: "unknown".to_owned(),
                command: "unknown".to_owned(),
                since: Timestamp::default(),
            }));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(None)
}

fn lock_path(store: &Path) -> PathBuf {
    let mut path = store.as_os_str().to_owned();
    path.push(".lock");
    path.into()
}

fn read_holder(file: &mut File) -> Option<Holder> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}
