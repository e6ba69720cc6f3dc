//! `cron::Cronjob`: a file in `/etc/cron.d`.

use std::collections::BTreeMap;
use std::sync::Arc;

use orrery_model::{AttributeDiff, ResourceType};
use serde::Deserialize;
use serde_json::Value;

use crate::context::{Context, changed};
use crate::error::{HandlerError, TargetVerb};
use crate::handler::Crud;
use crate::registry::Registry;
use crate::target::{ExpectedContent, FileComparison, FileKind, Ownership};

pub(crate) fn register(registry: &mut Registry) {
    let fields = ["command", "env_vars", "purged", "schedule", "user"];
    let declaration = ResourceType::new("cron::Cronjob", "host.name", "name", &fields);
    registry.register(declaration, Arc::new(CronHandler));
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct CronHandler;

#[derive(Debug, Deserialize)]
pub(crate) struct Cronjob {
    command: String,
    #[serde(default)]
    env_vars: BTreeMap<String, Value>,
    #[serde(default)]
    purged: bool,
    schedule: String,
    user: String,
}

/// Mode and owner that cron requires of its files.
const MODE: u32 = 0o644;
const ROOT: u32 = 0;

impl Cronjob {
    /// Builds the content of the file. Rejects values that could become a second entry.
    fn content(&self) -> Result<String, HandlerError> {
        let schedule = self.schedule.trim();
        let fields = schedule.split_whitespace().count();
        if !(fields == 5 || (fields == 1 && schedule.starts_with('@'))) {
            return Err(HandlerError::failed_with_hint(
                format!("invalid schedule {schedule:?}"),
                "write minute, hour, day, month and day of the week, or a word such as @daily",
            ));
        }
        let is_line = |text: &str| !text.is_empty() && !text.contains(['\n', '\r', '\0']);
        let user_is_word = is_line(&self.user) && !self.user.contains(char::is_whitespace);
        if !(is_line(&self.command) && is_line(schedule) && user_is_word) {
            let text =
                "the command, the schedule and the user must be one line each, and not empty";
            return Err(HandlerError::failed(text));
        }
        let mut content = String::from("# Managed: changes made here are undone.\n");
        for (name, value) in &self.env_vars {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let is_name =
                !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            if !is_name || value.contains(['\n', '\r', '\0', '"']) {
                let text =
                    format!("cron does not support this value of the environment variable {name}");
                return Err(HandlerError::failed(text));
            }
            content.push_str(&format!("{name}=\"{value}\"\n"));
        }
        content.push_str(&format!("{schedule} {} {}\n", self.user, self.command));
        Ok(content)
    }
}

fn path(context: &Context<'_>) -> Result<String, HandlerError> {
    let name = context.id().value();
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if name.chars().all(good) {
        Ok(format!("/etc/cron.d/{name}"))
    } else {
        Err(HandlerError::failed_with_hint(
            format!("cron ignores files named {name:?}"),
            "use letters, digits, dashes and underscores",
        ))
    }
}

impl Crud for CronHandler {
    type Desired = Cronjob;
    type Current = FileComparison;

    fn is_purged(desired: &Cronjob) -> bool {
        desired.purged
    }

    fn read(
        &self,
        desired: &Cronjob,
        context: &mut Context<'_>,
    ) -> Result<Option<FileComparison>, HandlerError> {
        let path = path(context)?;
        if desired.purged {
            let stat = context.target().stat(&path)?;
            return Ok(stat.map(|stat| FileComparison { stat, same: false }));
        }
        let content = desired.content()?;
        Ok(context.target().compare(&path, ExpectedContent::Bytes(content.as_bytes()))?)
    }

    fn diff(
        &self,
        desired: &Cronjob,
        current: &FileComparison,
        context: &mut Context<'_>,
    ) -> Result<Vec<AttributeDiff>, HandlerError> {
        const SHOWN_MAX: u64 = 16 * 1024;
        let path = path(context)?;
        let stat = current.stat;
        let mut changes = Vec::new();
        match stat.kind {
            FileKind::File => {}
            FileKind::Symlink => return Ok(vec![changed("type", "symlink", "file")]),
            FileKind::Directory | FileKind::Other => {
                let text =
                    format!("cannot {} {path}: not a regular file", TargetVerb::Write.as_str());
                return Err(HandlerError::failed(text));
            }
        }
        if !current.same {
            let found = if stat.size <= SHOWN_MAX {
                context.target().read_file(&path, SHOWN_MAX)?
            } else {
                None
            };
            let found = found.map(|found| String::from_utf8_lossy(&found).into_owned());
            changes.push(changed("entry", found, desired.content()?));
        }
        if (stat.mode, stat.uid, stat.gid) != (MODE, ROOT, ROOT) {
            let found = format!("{:04o} {}:{}", stat.mode, stat.uid, stat.gid);
            changes.push(changed("mode", found, format!("{MODE:04o} {ROOT}:{ROOT}")));
        }
        Ok(changes)
    }

    fn create(&self, desired: &Cronjob, context: &mut Context<'_>) -> Result<(), HandlerError> {
        let ownership = Ownership { mode: Some(MODE), uid: Some(ROOT), gid: Some(ROOT) };
        let content = desired.content()?;
        Ok(context.target().write_file(&path(context)?, content.as_bytes(), ownership)?)
    }

    fn update(
        &self,
        desired: &Cronjob,
        _current: &FileComparison,
        _changes: &[AttributeDiff],
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        self.create(desired, context)
    }

    fn delete(
        &self,
        _desired: &Cronjob,
        _current: &FileComparison,
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        context.target().remove_file(&path(context)?)?;
        Ok(())
    }
}
