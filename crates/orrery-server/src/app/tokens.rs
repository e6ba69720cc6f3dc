//! API tokens: created for the caller, seen and revoked within its rights.

use orrery_model::{SecretText, Timestamp, TokenId};
use orrery_store::{EnvironmentRecord, RoleScope, StoreError, TokenRecord};
use uuid::Uuid;

use crate::access::Right;
use crate::auth::{Caller, RandomToken, TokenGrants};
use crate::error::ServerError;
use crate::services::{ServiceError, Services};

/// A token to create.
#[derive(Clone, Debug)]
pub struct TokenDraft {
    pub name: String,
    pub scope: RoleScope,
    pub grants: TokenGrants,
    /// `None` for a token without expiry.
    pub expires: Option<Timestamp>,
}

/// Creates a token for the caller. Its rights never exceed those of its creator, and a token creates
/// none. Returns its secret, of which only a hash is stored.
pub async fn create(
    services: &Services,
    caller: &Caller,
    draft: TokenDraft,
) -> Result<(SecretText, TokenRecord), ServerError> {
    caller.need_interactive_login()?;
    let account = caller.need_account()?;
    let TokenDraft { name, scope, grants, expires } = draft;
    let grants = serde_json::to_value(grants)
        .map_err(|error| ServerError::Internal(format!("the limits of a token: {error}")))?;
    let token = TokenRecord {
        uuid: Uuid::new_v4().into(),
        name,
        account: account.into(),
        scope,
        grants,
        created: services.now(),
        expires,
        revoked: None,
        last_used: None,
    };
    let RandomToken { secret, hash } = RandomToken::token()?;
    let kept = token.clone();
    services
        .change(move |store| {
            match scope {
                RoleScope::Everywhere => {}
                RoleScope::Project(id) => drop(store.projects().get(id)?),
                RoleScope::Environment(id) => drop(store.environments().get(id)?),
            }
            store.tokens().create(&hash, &kept)
        })
        .await?;
    Ok((secret, token))
}

/// True if the caller may see and revoke a token: its own; administrators, all.
pub(crate) fn may_see(caller: &Caller, token: &TokenRecord) -> bool {
    (is_own(caller, token) || caller.may_everywhere(Right::Administer))
        && caller.covers_token(token)
}

/// True if the caller may see and revoke a token of an environment: its own; administrators of the
/// environment, all.
pub fn may_see_in(environment: &EnvironmentRecord, caller: &Caller, token: &TokenRecord) -> bool {
    let is_here = token.scope == RoleScope::Environment(environment.uuid);
    is_here
        && caller.covers_token(token)
        && (is_own(caller, token) || caller.may_in_environment(Right::Administer, environment))
}

fn is_own(caller: &Caller, token: &TokenRecord) -> bool {
    caller.account.is_some_and(|id| id == token.account.uuid())
}

/// Lists tokens of an account, or of all, that are visible to the caller, newest first, before a
/// place in the list. Reads `batch` at a time until `most` are found.
pub async fn list(
    services: &Services,
    owner: Option<Uuid>,
    mut before: Option<(Timestamp, TokenId)>,
    (batch, most): (usize, usize),
    is_visible: impl Fn(&TokenRecord) -> bool + Send + 'static,
) -> Result<Vec<TokenRecord>, ServerError> {
    let found = services
        .with_store(move |store| {
            let owner = owner.map(Into::into);
            let mut found: Vec<TokenRecord> = Vec::new();
            loop {
                let part = store.tokens().list(owner, before, batch)?;
                let is_last = part.len() < batch;
                before = part.last().map(|last| (last.created, last.uuid));
                found.extend(part.into_iter().filter(|token| is_visible(token)));
                if is_last || found.len() >= most {
                    return Ok(found);
                }
            }
        })
        .await?;
    Ok(found)
}

/// Revokes a token that is visible to the caller. It is refused from the next request on.
pub async fn revoke(
    services: &Services,
    token: Uuid,
    is_visible: impl FnOnce(&TokenRecord) -> bool,
) -> Result<TokenRecord, ServerError> {
    let unknown = || ServerError::NotFound { kind: "token", name: token.to_string() };
    let found = services.with_store(move |store| store.tokens().get(token.into())).await;
    let found = match found {
        Err(ServiceError::Store(StoreError::NotFound { .. })) => return Err(unknown()),
        found => found?,
    };
    if !is_visible(&found) {
        return Err(unknown());
    }
    let now = services.now();
    services.change(move |store| store.tokens().revoke(token.into(), now)).await?;
    Ok(found)
}
