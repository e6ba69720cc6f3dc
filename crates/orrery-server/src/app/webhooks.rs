//! Webhooks: their secrets, and the events that forges send to them.

use orrery_api::WebhookEffect;
use orrery_compile_service::forge::{WebhookEvent, WebhookSignature};
use orrery_model::SecretText;
use orrery_store::{EnvironmentKey, EnvironmentRecord, SecretRecord, StoreError};
use uuid::Uuid;

use super::compiles::check_repository;
use super::environments::check_not_deleting;
use crate::auth::{Caller, RandomToken};
use crate::error::ServerError;
use crate::services::Services;
use crate::state::ServerState;
use crate::vault::{RESERVED, VaultError};

fn secret_name() -> String {
    format!("{RESERVED}webhook")
}

fn failed(error: VaultError) -> ServerError {
    match error {
        VaultError::Store(error) => error.into(),
        error => {
            tracing::error!(%error, "the secret of a webhook cannot be used");
            ServerError::Unavailable(error.to_string())
        }
    }
}

/// Returns the secret of the webhook, without its value; `None` if the webhook is disabled.
pub(crate) async fn find_secret(
    services: &Services,
    environment: EnvironmentKey,
) -> Result<Option<SecretRecord>, ServerError> {
    let found = services
        .with_store(move |store| match store.secrets().get(Some(environment), &secret_name()) {
            Err(StoreError::NotFound { .. }) => Ok(None),
            found => found.map(Some),
        })
        .await?;
    Ok(found)
}

/// Creates a new secret, which invalidates the previous one.
pub(crate) async fn renew_secret(
    state: &ServerState,
    caller: &Caller,
    environment: &EnvironmentRecord,
) -> Result<SecretText, ServerError> {
    // The secret does not expire and would outlive a token.
    caller.need_interactive_login()?;
    check_not_deleting(environment)?;
    check_repository(environment)?;
    let secret = RandomToken::webhook()?.secret;
    let (vault, now, key) = (state.vault().clone(), state.now(), environment.key);
    let kept = secret.clone();
    // Inside the store's idempotent request: a repetition must not replace the secret again.
    let put = state.change(move |_| Ok(vault.put(Some(key), &secret_name(), &kept, now))).await?;
    put.map_err(failed)?;
    Ok(secret)
}

/// Disables the webhook.
pub(crate) async fn disable(
    services: &Services,
    environment: EnvironmentKey,
) -> Result<(), ServerError> {
    let now = services.now();
    services
        .change(move |store| store.secrets().delete(Some(environment), &secret_name(), now))
        .await?;
    Ok(())
}

/// Finds the environment of a webhook by its id, if the signature of the body is right.
///
/// The error is the same for all unauthenticated requests: it does not reveal if the environment,
/// its webhook or the signature is missing.
pub(crate) async fn authenticate(
    state: &ServerState,
    id: &str,
    signature: Option<WebhookSignature>,
    body: &[u8],
) -> Result<EnvironmentRecord, ServerError> {
    let invalid =
        || ServerError::Unauthenticated("the webhook does not exist, or its signature is wrong");
    let signature = signature.ok_or_else(invalid)?;
    // Constant time: a missing secret takes as long as a wrong one.
    let (environment, secret) = match find(state, id).await? {
        Some((environment, secret)) => (Some(environment), secret),
        None => (None, RandomToken::webhook()?.secret),
    };
    let is_proven = signature.verify(secret.expose(), body);
    environment.filter(|_| is_proven).ok_or_else(invalid)
}

/// Finds an environment and the secret of its webhook; `None` if either is missing.
async fn find(
    state: &ServerState,
    id: &str,
) -> Result<Option<(EnvironmentRecord, SecretText)>, ServerError> {
    let Ok(id) = id.parse::<Uuid>() else { return Ok(None) };
    let (store, vault) = (state.store().clone(), state.vault().clone());
    let find = move || {
        let environment = match store.environments().get(id.into()) {
            Err(StoreError::NotFound { .. }) => return Ok(None),
            found => found?,
        };
        let secret = vault.reserved_secret(environment.key, &secret_name())?;
        Ok(secret.map(|secret| (environment, secret)))
    };
    let found = tokio::task::spawn_blocking(find).await.map_err(|_| ServerError::Stopping)?;
    found.map_err(failed)
}

/// Handles an authenticated event: a push to the followed branch makes the server read it at once.
/// Returns the effect and its description.
pub(crate) async fn handle_event(
    state: &ServerState,
    environment: EnvironmentRecord,
    event: WebhookEvent,
) -> Result<(WebhookEffect, String), ServerError> {
    let push = match event {
        WebhookEvent::Ping => return Ok((WebhookEffect::Pong, "the webhook works".to_owned())),
        WebhookEvent::Other(event) => {
            let detail = format!("{event:?} has no effect: only pushes do");
            return Ok((WebhookEffect::Ignored, detail));
        }
        WebhookEvent::Push(push) => push,
    };
    if !push.is_to(&environment.branch) {
        let detail = format!("{} is not what the environment follows", push.reference);
        return Ok((WebhookEffect::Ignored, detail));
    }
    if push.is_deletion {
        let detail = format!("{} was deleted: there is no commit to compile", push.reference);
        return Ok((WebhookEffect::Ignored, detail));
    }
    check_not_deleting(&environment)?;
    let (store, local, now) =
        (state.store().clone(), state.settings().local_repositories, state.now());
    let poll = move || orrery_compile_service::poll_now(&store, &environment, local, now);
    tokio::task::spawn_blocking(poll).await.map_err(|_| ServerError::Stopping)??;
    state.wake_up();
    Ok((WebhookEffect::Accepted, format!("{} will be read", push.reference)))
}
