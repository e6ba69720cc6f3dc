//! Opening a file: is it ours, is it whole, how new is it; and bringing an older one up to date.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use crate::migrations::{MIGRATIONS, SCHEMA};
use crate::{Result, StoreError};

/// Marks a file as ours, in the header of the database: "Orry".
const APPLICATION_ID: i64 = 0x4f72_7279;

/// How long a connection waits for another one that commits.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Large enough that a batch of results does not spill; small beside what an engine needs anyway.
const CACHE_KIB: i64 = 32 * 1024;

/// Pages in the write-ahead log before they are copied to their places. Results change the same pages again and
/// again, so copying later is copying less.
const CHECKPOINT_PAGES: u32 = 4_000;

/// What a file is, found without changing it.
enum Recognized {
    Absent,
    /// There, but nothing was ever committed to it: creation was interrupted.
    Empty,
    Schema(u32),
}

/// Opens the only connection that writes.
pub(super) fn open_writer(path: &Path) -> Result<Connection> {
    open_writer_of_schema(path).map_err(|error| error.at(path))
}

fn open_writer_of_schema(path: &Path) -> Result<Connection> {
    match recognize(path)? {
        Recognized::Absent | Recognized::Empty => create(path)?,
        Recognized::Schema(found) if found > SCHEMA => {
            return Err(StoreError::Newer { path: path.to_owned(), found, supported: SCHEMA });
        }
        Recognized::Schema(_) => {}
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    configure(&connection)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    // Every commit is on the disk when it answers. Commits are few, because all writes come in batches; a
    // weaker mode would save little and could forget, after a power cut, that something was done.
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

/// Whether the file can be read by this program.
pub(super) fn check_readable(path: &Path) -> Result<()> {
    match recognize(path).map_err(|error| error.at(path))? {
        Recognized::Absent | Recognized::Empty => {
            Err(StoreError::Missing { path: path.to_owned() })
        }
        Recognized::Schema(found) if found > SCHEMA => {
            Err(StoreError::Newer { path: path.to_owned(), found, supported: SCHEMA })
        }
        Recognized::Schema(found) if found < SCHEMA => {
            Err(StoreError::Older { path: path.to_owned(), found, supported: SCHEMA })
        }
        Recognized::Schema(_) => Ok(()),
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
    // Damage is noticed when a page is read, instead of being copied on.
    connection.pragma_update(None, "cell_size_check", "on")?;
    Ok(())
}

/// Makes a store beside its place and moves it there when it is complete: whoever is interrupted leaves either
/// nothing or a whole store. What is at the place holds nothing.
fn create(path: &Path) -> Result<()> {
    let fresh = beside(path, ".new");
    // All that is left of a store whose file was lost. It can be worth something to somebody who finds the file.
    let log = beside(path, "-wal");
    if fs::metadata(&log).is_ok_and(|log| log.len() > 0) {
        let detail = format!("it is gone or empty, but its log {} is there", log.display());
        return Err(StoreError::Damaged { path: path.to_owned(), detail });
    }
    for suffix in ["-wal", "-shm", "-journal"] {
        remove(&beside(path, suffix))?;
        remove(&beside(&fresh, suffix))?;
    }
    remove(&fresh)?;
    // Created before the database sees it, so that it is for its owner alone from the start.
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

/// Looks at a file through a connection that cannot write, so that a file of somebody else, or of a newer
/// program, stays as it is.
///
/// The file is opened by the database only: were it opened and closed here, the operating system would drop the
/// locks of every other connection that this process has to it.
fn recognize(path: &Path) -> Result<Recognized> {
    match fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Recognized::Absent);
        }
        Err(error) => return Err(StoreError::io(path, error)),
        Ok(metadata) if metadata.len() == 0 => return Ok(Recognized::Empty),
        Ok(_) => {}
    }
    let connection = connect_to_read(path)?;
    let number = |pragma: &str| -> Result<i64> {
        match connection.pragma_query_value(None, pragma, |row| row.get(0)) {
            // Waits for a writer to undo something, which a store of ours never does.
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
            detail: format!("{schema} is no number of a schema"),
        })?;
        return Ok(Recognized::Schema(schema));
    }
    let objects: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", (), |row| row.get(0))?;
    if (application, schema, objects) == (0, 0, 0) {
        Ok(Recognized::Empty)
    } else {
        Err(StoreError::Foreign { path: path.to_owned() })
    }
}

/// Applies what is missing, all in one transaction.
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
