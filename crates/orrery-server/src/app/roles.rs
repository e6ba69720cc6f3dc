//! Roles: assigned to accounts, everywhere, in a project or in an environment.

use orrery_api::RoleName;
use orrery_store::{RoleRecord, RoleScope, Store, StoreError};
use uuid::Uuid;

use crate::auth::Caller;
use crate::error::ServerError;
use crate::services::Services;

/// Assigns a role to the account with a name, and describes its scope. Not with a token, which the
/// role would outlive.
pub async fn assign(
    services: &Services,
    caller: &Caller,
    user: String,
    scope: RoleScope,
    role: RoleName,
) -> Result<(RoleRecord, String), ServerError> {
    caller.need_interactive_login()?;
    let (role, now) = (role.to_string(), services.now());
    let made = services
        .change(move |store| {
            let place = describe(store, scope)?;
            let Some(account) = store.accounts().named(&user)? else {
                return Err(StoreError::NotFound { kind: "user", name: user });
            };
            store.accounts().assign_role(account.uuid, scope, &role, now)?;
            let made =
                RoleRecord { account: account.uuid, account_name: account.name, scope, role };
            Ok((made, place))
        })
        .await?;
    Ok(made)
}

/// Removes a role of an account. Returns the name of the account, and describes the scope.
pub async fn revoke(
    services: &Services,
    account: Uuid,
    scope: RoleScope,
    role: String,
) -> Result<(String, String), ServerError> {
    let now = services.now();
    let revoked = services
        .change(move |store| {
            store.accounts().revoke_role(account.into(), scope, &role, now)?;
            let name = store.accounts().get(account.into())?.name;
            Ok((name, describe(store, scope)?))
        })
        .await?;
    Ok(revoked)
}

/// Describes a scope: `in project shop`. Fails if it does not exist.
fn describe(store: &Store, scope: RoleScope) -> Result<String, StoreError> {
    Ok(match scope {
        RoleScope::Everywhere => "everywhere".to_owned(),
        RoleScope::Project(id) => format!("in project {}", store.projects().get(id)?.name),
        RoleScope::Environment(id) => {
            let found = store.environments().get(id)?;
            format!("in environment {}/{}", found.project_name, found.name)
        }
    })
}
