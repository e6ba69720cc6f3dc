//! What people are to be told about an environment.

use orrery_model::Timestamp;

use crate::records::note;
use crate::sql::Sql;
use crate::{EnvironmentKey, Result, values};

/// Something that people are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewNotification {
    pub id: [u8; 16],
    pub title: String,
    pub message: String,
    /// `message`, `info`, `success`, `warning` or `error`.
    pub severity: &'static str,
    /// Where there is more to read, as a path of the API.
    pub uri: String,
    /// The compile that it is about.
    pub compile: Option<[u8; 16]>,
}

/// Tells people of something, in the transaction in which it comes about.
pub(crate) fn notify(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    new: &NewNotification,
    now: Timestamp,
) -> Result<()> {
    let insert = "INSERT INTO notification \
         (id, environment, created, title, message, severity, uri, compile) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let NewNotification { id, title, message, severity, uri, compile } = new;
    let compile = compile.as_ref();
    let values = values![id, environment.0, now, title, message, *severity, uri, compile];
    sql.run(insert, values)?;
    note(sql, Some(environment), "notification", &crate::uuid_text(id), now)
}
