//! Notifications for the users of an environment.

use orrery_model::{CompileId, NotificationId, Timestamp};

use crate::encoding::unsigned;
use crate::records::{Notifications, Transactions as _, record_change};
use crate::sql::{Row, RowExt as _, Sql, SqlExt as _};
use crate::{EnvironmentKey, Result, StoreError, values};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotificationRecord {
    pub uuid: NotificationId,
    pub created: Timestamp,
    pub title: String,
    pub message: String,
    /// `message`, `info`, `success`, `warning` or `error`.
    pub severity: String,
    /// The path of its subject, below the API's root; or empty.
    pub uri: String,
    pub compile: Option<CompileId>,
    pub read: bool,
    pub cleared: bool,
}

/// A notification to be created.
#[derive(Clone, Copy, Debug)]
pub struct NewNotification<'a> {
    pub uuid: NotificationId,
    pub title: &'a str,
    pub message: &'a str,
    pub severity: &'a str,
    pub uri: &'a str,
    pub compile: Option<CompileId>,
}

/// Filter for notifications. All given conditions must hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct NotificationFilter<'a> {
    pub read: Option<bool>,
    pub cleared: Option<bool>,
    pub severity: Option<&'a str>,
}

const COLUMNS: &str = "SELECT id, created, title, message, severity, uri, compile, read, cleared \
     FROM notification WHERE environment = ?1";

fn from_row(row: &dyn Row) -> Result<NotificationRecord> {
    Ok(NotificationRecord {
        uuid: row.id(0)?,
        created: row.time(1)?,
        title: row.string(2)?,
        message: row.string(3)?,
        severity: row.string(4)?,
        uri: row.string(5)?,
        compile: row.maybe_id(6)?,
        read: row.flag(7)?,
        cleared: row.flag(8)?,
    })
}

fn find(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    uuid: NotificationId,
) -> Result<NotificationRecord> {
    let select = format!("{COLUMNS} AND id = ?2");
    let found = sql.first(&select, values![environment.0, uuid], from_row)?;
    found.ok_or_else(|| StoreError::not_found("notification", uuid.to_string()))
}

/// Creates a notification, in the transaction of its cause.
pub(crate) fn insert_notification(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    new: &NewNotification<'_>,
    now: Timestamp,
) -> Result<()> {
    let insert = "INSERT INTO notification \
         (id, environment, created, title, message, severity, uri, compile) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let NewNotification { uuid, title, message, severity, uri, compile } = *new;
    let values = values![uuid, environment.0, now, title, message, severity, uri, compile];
    sql.run(insert, values)?;
    record_change(sql, Some(environment), "notification", &uuid.to_string(), now)
}

impl Notifications<'_> {
    /// Creates a notification.
    ///
    /// # Errors
    /// Database errors.
    pub fn add(
        &self,
        environment: EnvironmentKey,
        new: &NewNotification<'_>,
        now: Timestamp,
    ) -> Result<()> {
        self.transact(|sql| insert_notification(sql, environment, new, now))
    }

    /// Notifications, newest first, older than a cursor.
    ///
    /// # Errors
    /// Database errors.
    pub fn list(
        &self,
        environment: EnvironmentKey,
        filter: &NotificationFilter<'_>,
        after: Option<(Timestamp, NotificationId)>,
        limit: usize,
    ) -> Result<Vec<NotificationRecord>> {
        let (before, uuid) =
            after.unwrap_or((Timestamp(i64::MAX), NotificationId::from_bytes([0xff; 16])));
        let select = format!(
            "{COLUMNS} AND (created < ?2 OR (created = ?2 AND id < ?3)) \
             AND (?4 < 0 OR read = ?4) AND (?5 < 0 OR cleared = ?5) \
             AND (?6 = '' OR severity = ?6) ORDER BY created DESC, id DESC LIMIT ?7"
        );
        let flag = |flag: Option<bool>| flag.map_or(-1, i64::from);
        let values = values![
            environment.0,
            before,
            uuid,
            flag(filter.read),
            flag(filter.cleared),
            filter.severity.unwrap_or(""),
            i64::try_from(limit).unwrap_or(i64::MAX),
        ];
        self.query(|sql| sql.all(&select, values, from_row))
    }

    /// One notification.
    ///
    /// # Errors
    /// `NotFound` if it does not exist.
    pub fn get(
        &self,
        environment: EnvironmentKey,
        uuid: NotificationId,
    ) -> Result<NotificationRecord> {
        self.query(|sql| find(sql, environment, uuid))
    }

    /// Changes the given fields.
    ///
    /// # Errors
    /// `NotFound` if it does not exist.
    pub fn update(
        &self,
        environment: EnvironmentKey,
        uuid: NotificationId,
        read: Option<bool>,
        cleared: Option<bool>,
        now: Timestamp,
    ) -> Result<NotificationRecord> {
        self.transact(|sql| {
            let old = find(sql, environment, uuid)?;
            let update = "UPDATE notification SET read = ?2, cleared = ?3 WHERE id = ?1";
            let (read, cleared) = (read.unwrap_or(old.read), cleared.unwrap_or(old.cleared));
            sql.run(update, values![uuid, read, cleared])?;
            record_change(sql, Some(environment), "notification", &uuid.to_string(), now)?;
            Ok(NotificationRecord { read, cleared, ..old })
        })
    }

    /// Number of notifications that are neither read nor cleared.
    ///
    /// # Errors
    /// Database errors.
    pub fn count_unread(&self, environment: EnvironmentKey) -> Result<u64> {
        let select = "SELECT count(*) FROM notification \
             WHERE environment = ?1 AND read = 0 AND cleared = 0";
        let found =
            self.query(|sql| sql.first(select, values![environment.0], |row| row.int(0)))?;
        unsigned(found.unwrap_or(0))
    }

    /// Changes the given fields of all notifications that were created until `until`. Returns the
    /// number of changed ones.
    ///
    /// # Errors
    /// Database errors.
    pub fn update_all(
        &self,
        environment: EnvironmentKey,
        until: Timestamp,
        read: Option<bool>,
        cleared: Option<bool>,
        now: Timestamp,
    ) -> Result<u64> {
        let flag = |flag: Option<bool>| flag.map_or(-1, i64::from);
        let (read, cleared) = (flag(read), flag(cleared));
        self.transact(|sql| {
            let update = "UPDATE notification \
                 SET read = CASE WHEN ?3 < 0 THEN read ELSE ?3 END, \
                 cleared = CASE WHEN ?4 < 0 THEN cleared ELSE ?4 END \
                 WHERE environment = ?1 AND created <= ?2 \
                 AND ((?3 >= 0 AND read <> ?3) OR (?4 >= 0 AND cleared <> ?4))";
            let changed = sql.run(update, values![environment.0, until, read, cleared])?;
            if changed > 0 {
                record_change(sql, Some(environment), "notification", "*", now)?;
            }
            Ok(changed)
        })
    }

    /// Deletes notifications from before `before`.
    ///
    /// # Errors
    /// Database errors.
    pub fn expire(&self, environment: EnvironmentKey, before: Timestamp) -> Result<u64> {
        let delete = "DELETE FROM notification WHERE environment = ?1 AND created < ?2";
        self.transact(|sql| sql.run(delete, values![environment.0, before]))
    }
}
