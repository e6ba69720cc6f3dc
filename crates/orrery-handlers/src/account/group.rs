//! `user::Group`.

use orrery_model::{AttributeDiff, Fact};
use serde::Deserialize;

use crate::context::Context;
use crate::error::HandlerError;
use crate::handler::Crud;
use crate::target::{AccountName, CommandLine, Group as Account};
use crate::tools::{check_name, run_checked};

#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupHandler;

#[derive(Debug, Deserialize)]
pub(crate) struct Group {
    #[serde(default)]
    purged: bool,
    #[serde(default)]
    system: bool,
}

impl Crud for GroupHandler {
    type Desired = Group;
    type Current = Account;

    fn is_purged(desired: &Group) -> bool {
        desired.purged
    }

    fn read(
        &self,
        _desired: &Group,
        context: &mut Context<'_>,
    ) -> Result<Option<Account>, HandlerError> {
        let name = context.id().value();
        check_name("group", name)?;
        Ok(context.target().group(AccountName::Name(name))?)
    }

    /// Its gid was assigned at its creation, and stays.
    fn diff(
        &self,
        _desired: &Group,
        _current: &Account,
        _context: &mut Context<'_>,
    ) -> Result<Vec<AttributeDiff>, HandlerError> {
        Ok(Vec::new())
    }

    fn create(&self, desired: &Group, context: &mut Context<'_>) -> Result<(), HandlerError> {
        context.cache().invalidate_accounts();
        let system = desired.system.then_some("--system");
        let words = ["groupadd"].into_iter().chain(system).chain(["--", context.id().value()]);
        run_checked(context, CommandLine::new(words))
    }

    fn update(
        &self,
        _: &Group,
        _: &Account,
        _: &[AttributeDiff],
        _: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        Ok(())
    }

    fn delete(
        &self,
        _desired: &Group,
        _current: &Account,
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        context.cache().invalidate_accounts();
        run_checked(context, CommandLine::new(["groupdel", "--", context.id().value()]))
    }

    /// Reports its gid.
    fn facts(&self, _: &Group, context: &mut Context<'_>) -> Result<Vec<Fact>, HandlerError> {
        let group = context.target().group(AccountName::Name(context.id().value()))?;
        let fact = |group: Account| Fact {
            name: "gid".to_owned(),
            value: group.gid.to_string(),
            expires: true,
        };
        Ok(group.map(fact).into_iter().collect())
    }
}
