//! `user::User`.

use std::sync::Arc;

use orrery_model::{AttributeChange, Fact};
use serde::Deserialize;
use serde_json::Value;

use crate::context::{Context, changed};
use crate::error::HandlerError;
use crate::handler::Crud;
use crate::target::{AccountName, CommandLine, Group, User as Account};
use crate::tools::{ask_checked, check_name, tell};

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

/// What was found of a user.
pub(crate) struct Found {
    account: Account,
    /// Further groups that it should be in and is not.
    missing_groups: Vec<String>,
}

/// All groups with their members, from one query.
struct Groups(Vec<Group>);

fn groups(context: &Context<'_>) -> Result<Arc<Groups>, HandlerError> {
    context.session().cached(|| {
        let text = ask_checked(context, CommandLine::new(["getent", "group"]))?;
        Ok(Groups(text.lines().filter_map(Group::parse).collect()))
    })
}

impl User {
    /// Refuses what would break the lines of the account files.
    fn check(&self, name: &str) -> Result<(), HandlerError> {
        check_name("user", name)?;
        check_name("group", &self.group)?;
        self.groups.iter().try_for_each(|group| check_name("group", group))?;
        for path in [&self.homedir, &self.shell] {
            if path.contains([':', '\n']) || path.starts_with('-') {
                let text = format!("{path:?} cannot be the home or shell of a user");
                return Err(HandlerError::failed(text));
            }
        }
        Ok(())
    }
}

fn forget(context: &Context<'_>) {
    context.session().forget_accounts();
    context.session().forget::<Groups>();
}

impl Crud for UserHandler {
    type Desired = User;
    type Current = Found;

    fn is_purged(desired: &User) -> bool {
        desired.purged
    }

    fn read(
        &self,
        desired: &User,
        context: &mut Context<'_>,
    ) -> Result<Option<Found>, HandlerError> {
        let name = context.id().value();
        desired.check(name)?;
        let Some(account) = context.target().user(AccountName::Name(name))? else {
            return Ok(None);
        };
        let mut missing_groups = Vec::new();
        if !desired.groups.is_empty() && !desired.purged {
            let groups = groups(context)?;
            // Being in a group as the first one counts for the first one that is wanted only: the one
            // that is there may be about to change.
            let is_in = |wanted: &str| {
                let has = |group: &Group| group.members.iter().any(|member| member == name);
                wanted == desired.group
                    || groups.0.iter().any(|group| group.name == wanted && has(group))
            };
            missing_groups = desired.groups.iter().filter(|group| !is_in(group)).cloned().collect();
        }
        Ok(Some(Found { account, missing_groups }))
    }

    fn diff(
        &self,
        desired: &User,
        current: &Found,
        context: &mut Context<'_>,
    ) -> Result<Vec<AttributeChange>, HandlerError> {
        let mut changes = Vec::new();
        let account = &current.account;
        if context.gid(&desired.group)? != Some(account.gid) {
            let found = context.target().group(AccountName::Id(account.gid))?;
            let name = found.map_or_else(|| account.gid.to_string(), |group| group.name);
            changes.push(changed("group", name, desired.group.as_str()));
        }
        if !current.missing_groups.is_empty() {
            let wanted = desired.groups.iter();
            let present = wanted.filter(|group| !current.missing_groups.contains(group));
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
        forget(context);
        let mut words = vec!["useradd", "--gid", &desired.group, "--shell", &desired.shell];
        words.extend(["--home-dir", &desired.homedir]);
        let groups = desired.groups.join(",");
        if !groups.is_empty() {
            words.extend(["--groups", &groups]);
        }
        words.push(if desired.system { "--system" } else { "--create-home" });
        words.extend(["--", context.id().value()]);
        tell(context, CommandLine::new(words))
    }

    fn update(
        &self,
        desired: &User,
        current: &Found,
        changes: &[AttributeChange],
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        forget(context);
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
            // The old directory stays where it is: moving it is not ours to decide.
            words.extend(["--home", &desired.homedir]);
        }
        words.extend(["--", context.id().value()]);
        tell(context, CommandLine::new(words))
    }

    /// Without its home directory: data is purged as data.
    fn delete(
        &self,
        _desired: &User,
        _current: &Found,
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        forget(context);
        tell(context, CommandLine::new(["userdel", "--", context.id().value()]))
    }

    /// The number that it got.
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
