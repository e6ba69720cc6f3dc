//! Remote agents: invitations, and their end.

use orrery_gateway::{AuthorityError, CertificateAuthority, HEARTBEAT_MAX_AGE};
use orrery_model::{Duration, SecretText, Timestamp};
use orrery_roles::token_hash::hash_of;
use orrery_store::{
    EnvironmentKey, EnvironmentRecord, NewInvitationRecord, RemoteAgentRecord, Store, StoreError,
};
use uuid::Uuid;

use crate::auth::Caller;
use crate::error::ServerError;
use crate::placement::read_inventory;
use crate::services::Services;
use crate::state::ServerState;
use crate::vault::VaultError;

use super::environments::check_not_deleting;

const EXPIRES_IN: u32 = 60 * 60;
const EXPIRES_IN_MAX: u32 = 7 * 24 * 60 * 60;
const NAMES_MAX: usize = 1000;
/// Maximum number of notes about names.
const NOTES_MAX: usize = 20;

/// An invitation that was created.
pub(crate) struct CreatedInvitation {
    /// Stored as a hash: this is its only copy.
    pub(crate) token: SecretText,
    pub(crate) names: Vec<String>,
    pub(crate) expires: Timestamp,
    /// Address of a gateway, as `host:port`.
    pub(crate) gateway: String,
    /// Names that already have a place, and what happens to them.
    pub(crate) notes: Vec<String>,
}

fn check(names: &[String], expires_in: Option<u32>) -> Result<(), ServerError> {
    if names.is_empty() || names.len() > NAMES_MAX {
        return Err(ServerError::field("names", format!("must be 1 to {NAMES_MAX} names")));
    }
    for name in names {
        // As in resource ids, where the name of an agent ends at a comma.
        let fits = |c: char| !c.is_control() && !",[]".contains(c);
        if !(1..=255).contains(&name.chars().count()) || !name.chars().all(fits) {
            let reason = format!("{name:?} cannot be the name of an agent");
            return Err(ServerError::field("names", reason));
        }
    }
    if expires_in.is_some_and(|seconds| !(1..=EXPIRES_IN_MAX).contains(&seconds)) {
        let reason = format!("must be 1 to {EXPIRES_IN_MAX} seconds");
        return Err(ServerError::field("expires_in", reason));
    }
    Ok(())
}

fn invitation_error(error: AuthorityError) -> ServerError {
    match error {
        AuthorityError::Vault(VaultError::Store(error)) => error.into(),
        other => {
            tracing::error!(
                error = &other as &dyn std::error::Error,
                "cannot create an invitation"
            );
            ServerError::Unavailable(other.to_string())
        }
    }
}

/// Creates an invitation for one machine that will serve these agents.
pub(crate) async fn invite(
    state: &ServerState,
    caller: &Caller,
    environment: &EnvironmentRecord,
    mut names: Vec<String>,
    expires_in: Option<u32>,
) -> Result<CreatedInvitation, ServerError> {
    // A machine outlives the token that invited it: this needs a token created for the group.
    caller.need_named_group("remote-agents")?;
    check_not_deleting(environment)?;
    check(&names, expires_in)?;
    names.sort();
    names.dedup();
    let now = state.now();
    let gateways = state.with_store(|store| store.gateways().list(HEARTBEAT_MAX_AGE)).await?;
    let Some(gateway) = gateways.into_iter().next() else {
        let reason = "no gateway is running: start a server with --role gateway";
        return Err(ServerError::Unavailable(reason.to_owned()));
    };
    let vault = state.vault().clone();
    let opened =
        tokio::task::spawn_blocking(move || CertificateAuthority::open_or_create(&vault, now))
            .await;
    let authority = opened.map_err(|_| ServerError::Stopping)?.map_err(invitation_error)?;
    let token = authority.token().map_err(|error| invitation_error(error.into()))?;
    let seconds = expires_in.unwrap_or(EXPIRES_IN);
    let mut expires = now + Duration::from_secs(seconds.into());
    if let Some(end) = caller.token().and_then(|token| token.expires) {
        expires = expires.min(end);
    }
    let kept = NewInvitationRecord {
        uuid: Uuid::new_v4().into(),
        hash: hash_of(token.text().expose()),
        names: names.clone(),
        created: now,
        expires,
        token: caller.token().map(|token| token.id),
    };
    let key = environment.key;
    let invited = names.clone();
    let notes = state.with_store(move |store| placement_notes(store, key, &invited)).await?;
    state.change(move |store| store.invitations().create(key, &kept)).await?;
    let token = token.text().clone();
    Ok(CreatedInvitation { token, names, expires, gateway: gateway.address, notes })
}

/// Withdraws an invitation that no machine has used: its token is refused from now on.
pub(crate) async fn withdraw_invitation(
    services: &Services,
    environment: EnvironmentKey,
    id: Uuid,
) -> Result<(), ServerError> {
    let now = services.now();
    let withdraw =
        services.change(move |store| store.invitations().withdraw(environment, id.into(), now));
    Ok(withdraw.await?)
}

/// What happens to invited names that already have a place.
fn placement_notes(
    store: &Store,
    environment: EnvironmentKey,
    names: &[String],
) -> Result<Vec<String>, StoreError> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let inventory = read_inventory(store, environment, None, &names)?;
    let note = |name: &&str| inventory.placement_of(name).on_invitation(name);
    Ok(names.iter().filter_map(note).take(NOTES_MAX).collect())
}

/// Returns a remote agent of an environment.
pub(crate) fn find(
    store: &Store,
    environment: &EnvironmentRecord,
    id: Uuid,
) -> Result<RemoteAgentRecord, StoreError> {
    let found = store.remote_agents().get(id.into())?;
    if found.environment != environment.key {
        return Err(StoreError::NotFound { kind: "remote agent", name: id.to_string() });
    }
    Ok(found)
}

/// Revokes a remote agent: ends its session at once and refuses its certificate. With `release`, its
/// agents move to the machine that runs the server's handlers.
pub(crate) async fn revoke(
    services: &Services,
    environment: EnvironmentRecord,
    id: Uuid,
    release: bool,
) -> Result<RemoteAgentRecord, ServerError> {
    let now = services.now();
    let release = release.then(|| Uuid::new_v4().into());
    let revoked = services
        .change(move |store| {
            store.remote_agents().revoke(environment.key, id.into(), release, now)?;
            find(store, &environment, id)
        })
        .await?;
    Ok(revoked)
}
