//! Times of last use of directories, as the times of files in them.

use std::fs::{DirEntry, File};
use std::io;
use std::path::Path;

/// Sets the time of a file to now; creates it if it is missing.
///
/// # Errors
/// Fails if the file cannot be written.
pub fn touch(path: &Path) -> io::Result<()> {
    let file = File::create(path)?;
    file.set_len(0)?;
    // Truncating an empty file may not change its time.
    rustix::fs::futimens(
        &file,
        &rustix::fs::Timestamps {
            last_access: rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW },
            last_modification: rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW },
        },
    )?;
    Ok(())
}

/// Returns the subdirectories of a directory; empty if it is missing.
///
/// # Errors
/// Fails if the directory cannot be read.
pub fn subdirectories(dir: &Path) -> io::Result<Vec<DirEntry>> {
    match std::fs::read_dir(dir) {
        Ok(entries) => {
            let mut found = Vec::new();
            for entry in entries {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    found.push(entry);
                }
            }
            Ok(found)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
