//! `user::User`.

use std::sync::Arc;

use orrery_model::{AttributeDiff, Fact};
use serde::Deserialize;
use serde_json::Value;

use crate::context::{Context, changed};
use crate::error::HandlerError;
use crate::handler::Crud;
use crate::target::{AccountName, CommandLine, Group, User as Account};
use crate::tools::{check_name, query_checked, run_checked};

#[derive(Clone, Copy, Debug)]
pub(crate) struct UserHandler;

#[derive(Debug, Deserialize)]
pub(crate) struct User {
    group: String,
    #[serde(default)]
    groups: Vec<String>,
    homedir: String,
    #[serde(default)]
    purged: bool,
    shell: String,
    #[serde(default)]
    system: bool,
}

/// Current state of a user.
pub(crate) struct UserState {
    account: Account,
    /// Desired supplementary groups that it is not in.
    missing_groups: Vec<String>,
}

/// All groups with their members, from one query.
struct Groups(Vec<Group>);

fn groups(context: &Context<'_>) -> Result<Arc<Groups>, HandlerError> {
    context.cache().get_or_query(|| {
        let text = query_checked(context, CommandLine::new(["getent", "group"]))?;
        Ok(Groups(text.lines().filter_map(Group::parse).collect()))
    })
}

impl User {
    /// Rejects values that would corrupt the account files.
    fn check(&self, name: &str) -> Result<(), HandlerError> {
        check_name("user", name)?;
        check_name("group", &self.group)?;
        self.groups.iter().try_for_each(|group| check_name("group", group))?;
        for path in [&self.homedir, &self.shell] {
            if path.contains([':', '\n']) || path.starts_with('-') {
                let text = format!("invalid home or shell {path:?}");
                return Err(HandlerError::failed(text));
            }
        }
        Ok(())
    }
}

fn invalidate(context: &Context<'_>) {
    context.cache().invalidate_accounts();
    context.cache().invalidate::<Groups>();
}

impl Crud for UserHandler {
    type Desired = User;
    type Current = UserState;

    fn is_purged(desired: &User) -> bool {
        desired.purged
    }

    fn read(
        &self,
        desired: &User,
        context: &mut Context<'_>,
    ) -> Result<Option<UserState>, HandlerError> {
        let name = context.id().value();
        desired.check(name)?;
        let Some(account) = context.target().user(AccountName::Name(name))? else {
            return Ok(None);
        };
        let mut missing_groups = Vec::new();
        if !desired.groups.is_empty() && !desired.purged {
            let groups = groups(context)?;
            // The desired primary group counts as a membership; the current one does not, since it
            // may be about to change.
            let is_in = |desired_group: &str| {
                let has = |group: &Group| group.members.iter().any(|member| member == name);
                desired_group == desired.group
                    || groups.0.iter().any(|group| group.name == desired_group && has(group))
            };
            missing_groups = desired.groups.iter().filter(|group| !is_in(group)).cloned().collect();
        }
        Ok(Some(UserState { account, missing_groups }))
    }

    fn diff(
        &self,
        desired: &User,
        current: &UserState,
        context: &mut Context<'_>,
    ) -> Result<Vec<AttributeDiff>, HandlerError> {
        let mut changes = Vec::new();
        let account = &current.account;
        if context.gid(&desired.group)? != Some(account.gid) {
            let found = context.target().group(AccountName::Id(account.gid))?;
            let name = found.map_or_else(|| account.gid.to_string(), |group| group.name);
            changes.push(changed("group", name, desired.group.as_str()));
        }
        if !current.missing_groups.is_empty() {
            let desired_group = desired.groups.iter();
            let present = desired_group.filter(|group| !current.missing_groups.contains(group));
            let present: Vec<Value> = present.map(|group| Value::from(&**group)).collect();
            changes.push(changed("groups", present, desired.groups.clone()));
        }
        if account.shell != desired.shell {
            changes.push(changed("shell", account.shell.as_str(), desired.shell.as_str()));
        }
        if account.home != desired.homedir {
            changes.push(changed("homedir", account.home.as_str(), desired.homedir.as_str()));
        }
        Ok(changes)
    }

    fn create(&self, desired: &User, context: &mut Context<'_>) -> Result<(), HandlerError> {
        invalidate(context);
        let mut words = vec!["useradd", "--gid", &desired.group, "--shell", &desired.shell];
        words.extend(["--home-dir", &desired.homedir]);
        let groups = desired.groups.join(",");
        if !groups.is_empty() {
            words.extend(["--groups", &groups]);
        }
        words.push(if desired.system { "--system" } else { "--create-home" });
        words.extend(["--", context.id().value()]);
        run_checked(context, CommandLine::new(words))
    }

    fn update(
        &self,
        desired: &User,
        current: &UserState,
        changes: &[AttributeDiff],
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        invalidate(context);
        let changes = |name: &str| changes.iter().any(|change| change.name == name);
        let groups = current.missing_groups.join(",");
        let mut words = vec!["usermod"];
        if changes("group") {
            words.extend(["--gid", &desired.group]);
        }
        if changes("groups") {
            words.extend(["--append", "--groups", &groups]);
        }
        if changes("shell") {
            words.extend(["--shell", &desired.shell]);
        }
        if changes("homedir") {
            // The old directory stays: moving data is left to the operator.
            words.extend(["--home", &desired.homedir]);
        }
        words.extend(["--", context.id().value()]);
        run_checked(context, CommandLine::new(words))
    }

    /// Keeps the home directory: data is purged as data.
    fn delete(
        &self,
        _desired: &User,
        _current: &UserState,
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        invalidate(context);
        run_checked(context, CommandLine::new(["userdel", "--", context.id().value()]))
    }

    /// Reports its uid.
    fn facts(&self, _: &User, context: &mut Context<'_>) -> Result<Vec<Fact>, HandlerError> {
        let user = context.target().user(AccountName::Name(context.id().value()))?;
        let fact = |user: Account| Fact {
            name: "uid".to_owned(),
            value: user.uid.to_string(),
            expires: true,
        };
        Ok(user.map(fact).into_iter().collect())
    }
}
