//! Users and groups of the machine.

use super::session::Session;
use crate::error::TargetVerb;
use crate::target::{AccountName, Group, Result, User};

pub(super) fn user(session: &Session, name: AccountName<'_>) -> Result<Option<User>> {
    let lines = look_up(session, "passwd", "user", name)?;
    Ok(lines.lines().filter_map(User::parse).find(|user| user.is(name)))
}

pub(super) fn group(session: &Session, name: AccountName<'_>) -> Result<Option<Group>> {
    let lines = look_up(session, "group", "group", name)?;
    Ok(lines.lines().filter_map(Group::parse).find(|group| group.is(name)))
}

/// Lines of a database that may be about the account.
fn look_up(session: &Session, database: &str, what: &str, name: AccountName<'_>) -> Result<String> {
    let key = match name {
        // Neither an option nor a line of a file.
        AccountName::Name(name) if name.starts_with('-') || name.contains(['\0', '\n', ':']) => {
            return Ok(String::new());
        }
        AccountName::Name(name) => name.to_owned(),
        AccountName::Id(id) => id.to_string(),
    };
    let script = session
        .script(TargetVerb::LookUp)?
        .set("database", database)
        .set("key", &key)
        .part(include_str!("scripts/account.sh"));
    let reply = session.call(TargetVerb::LookUp, &format!("{what} {key}"), script)?;
    Ok(String::from_utf8_lossy(&reply.body).into_owned())
}
