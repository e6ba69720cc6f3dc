//! Opening a file: recognizes its format and version, and migrates an older one.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use crate::migrations::{MIGRATIONS, SCHEMA};
use crate::{Result, StoreError};

/// Application id in the header of the database: "Orry".
const APPLICATION_ID: i64 = 0x4f72_7279;

/// Time for which a connection waits for another one that commits.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Large enough that a batch of results does not spill; small compared with an engine's memory.
const CACHE_KIB: i64 = 32 * 1024;

/// Pages in the write-ahead log before a checkpoint. Results change the same pages repeatedly, so a
/// late checkpoint copies less.
const CHECKPOINT_PAGES: u32 = 4_000;

/// State of a file, found without changing it.
enum FileState {
    Absent,
    /// Exists, but nothing was ever committed to it: creation was interrupted.
    Empty,
    Schema(u32),
}

/// Opens the only connection that writes.
pub(super) fn open_writer(path: &Path) -> Result<Connection> {
    open_writer_of_schema(path).map_err(|error| error.at(path))
}

fn open_writer_of_schema(path: &Path) -> Result<Connection> {
    match recognize(path)? {
        FileState::Absent | FileState::Empty => create(path)?,
        FileState::Schema(found) if found > SCHEMA => {
            return Err(StoreError::Newer { path: path.to_owned(), found, supported: SCHEMA });
        }
        FileState::Schema(_) => {}
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    configure(&connection)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    // Every commit is on disk when it returns. Commits are few, because all writes come in batches;
    // a weaker mode would save little and could lose an acknowledged effect in a power failure.
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    connection.pragma_update(None, "journal_size_limit", 64 * 1024 * 1024)?;
    migrate(connection)
}

pub(super) fn open_memory() -> Result<Connection> {
    let connection = Connection::open_in_memory()?;
    configure(&connection)?;
    migrate(connection)
}

/// Opens a connection that only reads; any number of them may be open while a writer works.
pub(super) fn open_reader(path: &Path) -> Result<Connection> {
    let open = || {
        let connection = connect_to_read(path)?;
        configure(&connection)?;
        Ok(connection)
    };
    open().map_err(|error: StoreError| error.at(path))
}

/// Fails if this program cannot read the file.
pub(super) fn check_readable(path: &Path) -> Result<()> {
    match recognize(path).map_err(|error| error.at(path))? {
        FileState::Absent | FileState::Empty => Err(StoreError::Missing { path: path.to_owned() }),
        FileState::Schema(found) if found > SCHEMA => {
            Err(StoreError::Newer { path: path.to_owned(), found, supported: SCHEMA })
        }
        FileState::Schema(found) if found < SCHEMA => {
            Err(StoreError::Older { path: path.to_owned(), found, supported: SCHEMA })
        }
        FileState::Schema(_) => Ok(()),
    }
}

fn connect_to_read(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    Ok(connection)
}

fn configure(connection: &Connection) -> Result<()> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(64);
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    connection.pragma_update(None, "temp_store", "memory")?;
    // Detects damage when a page is read, instead of copying it.
    connection.pragma_update(None, "cell_size_check", "on")?;
    Ok(())
}

/// Creates a store beside its path and renames it when it is complete: an interruption leaves
/// either nothing or a whole store. The file at the path holds nothing.
fn create(path: &Path) -> Result<()> {
    let fresh = beside(path, ".new");
    // The write-ahead log of a lost store file. It may help to recover the file.
    let log = beside(path, "-wal");
    if fs::metadata(&log).is_ok_and(|log| log.len() > 0) {
        let detail = format!("it is missing or empty, but its log {} exists", log.display());
        return Err(StoreError::Damaged { path: path.to_owned(), detail });
    }
    for suffix in ["-wal", "-shm", "-journal"] {
        remove(&beside(path, suffix))?;
        remove(&beside(&fresh, suffix))?;
    }
    remove(&fresh)?;
    // Created before the database opens it, so that only its owner has access from the start.
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh);
    let file = created.map_err(|error| StoreError::io(&fresh, error))?;
    let connection = Connection::open_with_flags(&fresh, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.pragma_update(None, "journal_mode", "memory")?;
    let connection = migrate(connection)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.close().map_err(|(_, error)| error)?;
    file.sync_all().map_err(|error| StoreError::io(&fresh, error))?;
    fs::rename(&fresh, path).map_err(|error| StoreError::io(path, error))?;
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(|error| StoreError::io(directory, error))
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(StoreError::io(path, error))
        }
        _ => Ok(()),
    }
}

/// Examines a file through a read-only connection, so that a foreign file, or one of a newer
/// program, stays unchanged.
///
/// Only the database opens the file: were it opened and closed here, the operating system would
/// drop the locks of every other connection that this process has to it.
fn recognize(path: &Path) -> Result<FileState> {
    match fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(FileState::Absent);
        }
        Err(error) => return Err(StoreError::io(path, error)),
        Ok(metadata) if metadata.len() == 0 => return Ok(FileState::Empty),
        Ok(_) => {}
    }
    let connection = connect_to_read(path)?;
    let number = |pragma: &str| -> Result<i64> {
        match connection.pragma_query_value(None, pragma, |row| row.get(0)) {
            // A rollback journal that waits for a writer, which a store of ours never has.
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::ReadOnly) => {
                Err(StoreError::Foreign { path: path.to_owned() })
            }
            answer => Ok(answer?),
        }
    };
    let application = number("application_id")?;
    let schema = number("user_version")?;
    if application == APPLICATION_ID {
        let schema = u32::try_from(schema).map_err(|_| StoreError::Damaged {
            path: path.to_owned(),
            detail: format!("{schema} is not a schema number"),
        })?;
        return Ok(FileState::Schema(schema));
    }
    let objects: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", (), |row| row.get(0))?;
    if (application, schema, objects) == (0, 0, 0) {
        Ok(FileState::Empty)
    } else {
        Err(StoreError::Foreign { path: path.to_owned() })
    }
}

/// Applies the missing migrations, all in one transaction.
fn migrate(mut connection: Connection) -> Result<Connection> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found: u32 =
        transaction.pragma_query_value(None, "user_version", |row| row.get::<_, u32>(0))?;
    let missing = MIGRATIONS.get(found as usize..).unwrap_or_default();
    if !missing.is_empty() {
        for migration in missing {
            transaction.execute_batch(migration)?;
        }
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", SCHEMA)?;
    }
    transaction.commit()?;
    Ok(connection)
}
