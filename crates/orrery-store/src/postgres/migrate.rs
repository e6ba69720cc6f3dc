//! Schema migrations in PostgreSQL: translated from the text for SQLite, and applied under a lock.

use super::SCHEMA_LOCK_CLASS;
use super::connection::Connection;
use crate::migrations::{MIGRATIONS, SCHEMA};
use crate::{Result, StoreError};

/// Additions of a migration for PostgreSQL beside its translation, by the same numbers.
const EXTRAS: [&str; MIGRATIONS.len()] = [
    include_str!("extras/0001_initial.sql"),
    include_str!("extras/0002_server_records.sql"),
    include_str!("extras/0003_idempotency_acted.sql"),
    include_str!("extras/0004_parameter_metadata.sql"),
    include_str!("extras/0005_remote_agents.sql"),
    include_str!("extras/0006_ended_revisions.sql"),
    include_str!("extras/0007_environment_trouble.sql"),
    include_str!("extras/0008_version_by_step.sql"),
    include_str!("extras/0009_followed_branches.sql"),
    include_str!("extras/0010_environment_model_project.sql"),
    include_str!("extras/0011_resource_origin.sql"),
    include_str!("extras/0012_begun_effects.sql"),
    include_str!("extras/0013_familiar_networks.sql"),
    include_str!("extras/0014_content_claims.sql"),
    include_str!("extras/0015_cluster_documents.sql"),
    include_str!("extras/0016_unclaimed_revisions.sql"),
    include_str!("extras/0017_offered_types.sql"),
    include_str!("extras/0018_agent_connections.sql"),
    include_str!("extras/0019_clusters.sql"),
];

/// Oldest server version with all functions that this program uses.
const OLDEST_SERVER: i64 = 130_000;

/// Migrates an empty or older database to the schema of this program. Concurrent processes wait,
/// and then find nothing to do.
pub(super) fn migrate(connection: &mut Connection) -> Result<()> {
    check_server(connection)?;
    // A migration has no time limit.
    connection.batch("BEGIN; SET LOCAL statement_timeout = 0")?;
    let done = migrate_in_transaction(connection);
    connection.batch(if done.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
    done
}

fn check_server(connection: &mut Connection) -> Result<()> {
    let row = connection.query_one(
        "SELECT current_setting('server_version_num')::bigint, current_setting('server_version'), \
         current_setting('server_encoding'), current_schema()::text",
        &[],
    )?;
    let database = connection.database();
    let unfit =
        |reason: String| Err(StoreError::UnfitDatabase { database: database.to_owned(), reason });
    if row.get::<_, i64>(0) < OLDEST_SERVER {
        let version: &str = row.get(1);
        return unfit(format!(
            "it is PostgreSQL {version}, and 13 is the oldest supported version"
        ));
    }
    let encoding: &str = row.get(2);
    if encoding != "UTF8" {
        return unfit(format!(
            "its encoding is {encoding}; create one with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
        ));
    }
    if row.get::<_, Option<&str>>(3).is_none() {
        return unfit("no schema of its search_path exists".to_owned());
    }
    Ok(())
}

fn migrate_in_transaction(connection: &mut Connection) -> Result<()> {
    connection.query_one("SELECT pg_advisory_xact_lock($1, 0)", &[&SCHEMA_LOCK_CLASS])?;
    let found = match find_schema(connection)? {
        Some(found) => found,
        None => {
            connection.batch(
                "CREATE TABLE orrery_schema (number bigint NOT NULL); \
                 INSERT INTO orrery_schema (number) VALUES (0)",
            )?;
            0
        }
    };
    let supported = SCHEMA;
    let Some(found) = usize::try_from(found).ok().filter(|found| *found <= MIGRATIONS.len()) else {
        let database = connection.database().to_owned();
        return Err(StoreError::NewerDatabase { database, found, supported });
    };
    for (migration, extra) in MIGRATIONS.iter().zip(EXTRAS).skip(found) {
        connection.batch(&translate(migration))?;
        connection.batch(extra)?;
    }
    if found < MIGRATIONS.len() {
        let schema = i64::from(supported);
        connection.execute("UPDATE orrery_schema SET number = $1", &[&schema])?;
    }
    Ok(())
}

/// The schema number of the database; `None` if it is empty.
fn find_schema(connection: &mut Connection) -> Result<Option<i64>> {
    let row = connection.query_one(
        "SELECT count(*), count(*) FILTER (WHERE relname = 'orrery_schema' AND relkind = 'r') \
         FROM pg_class WHERE relnamespace = current_schema()::regnamespace \
         AND relkind IN ('r', 'p', 'v', 'm', 'f', 'S')",
        &[],
    )?;
    match (row.get::<_, i64>(0), row.get::<_, i64>(1)) {
        (0, _) => Ok(None),
        (_, 0) => Err(StoreError::ForeignDatabase { database: connection.database().to_owned() }),
        _ => {
            let rows = connection.query("SELECT number FROM orrery_schema", &[])?;
            match &rows[..] {
                [row] => Ok(Some(row.get(0))),
                _ => {
                    Err(StoreError::ForeignDatabase { database: connection.database().to_owned() })
                }
            }
        }
    }
}

/// Translates a schema from SQLite to PostgreSQL. Texts are ordered by their bytes, as ids are.
fn translate(migration: &str) -> String {
    let mut translated = String::with_capacity(migration.len() + migration.len() / 4);
    for line in migration.lines() {
        let (code, comment) = match line.find("--") {
            Some(at) => line.split_at(at),
            None => (line, ""),
        };
        let code = code
            .replace(") STRICT, WITHOUT ROWID;", ");")
            .replace(") STRICT;", ");")
            .replace(
                " id INTEGER PRIMARY KEY",
                " id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
            )
            .replace(" INTEGER", " BIGINT")
            .replace(" BLOB", " BYTEA")
            .replace(" TEXT", " TEXT COLLATE \"C\"");
        translated.push_str(&code);
        translated.push_str(comment);
        translated.push('\n');
    }
    translated
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_translated() {
        let translated = translate(
            "CREATE TABLE t ( -- TEXT\n    id INTEGER PRIMARY KEY,\n    name TEXT NOT NULL,\n    \
             other INTEGER PRIMARY KEY REFERENCES t (id),\n    bytes BLOB\n) STRICT, WITHOUT ROWID;",
        );
        assert_eq!(
            translated,
            "CREATE TABLE t ( -- TEXT\n    id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,\n    \
             name TEXT COLLATE \"C\" NOT NULL,\n    other BIGINT PRIMARY KEY REFERENCES t (id),\n    \
             bytes BYTEA\n);\n"
        );
        for migration in MIGRATIONS {
            let code: String = translate(migration)
                .lines()
                .map(|line| line.split("--").next().unwrap_or_default().to_owned() + "\n")
                .collect();
            for word in ["STRICT", "ROWID", "INTEGER", "BLOB", "AUTOINCREMENT"] {
                assert!(!code.contains(word), "{word}");
            }
        }
    }
}
