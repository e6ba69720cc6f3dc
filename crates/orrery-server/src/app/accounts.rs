//! Accounts: names, passwords and sessions.

use orrery_model::{SecretText, Timestamp};
use orrery_roles::network::network_of;
use orrery_store::{AccountRecord, Identity, NewAccount, SessionRecord};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::access::Right;
use crate::auth::{
    AuthMethod, Caller, Line, RandomToken, SESSION_LENGTH, check_password, normalized,
};
use crate::error::ServerError;
use crate::services::Services;
use crate::state::ServerState;

/// An account to create: with a password, or with the name of its identity provider.
#[derive(Clone, Debug)]
pub struct AccountDraft {
    pub name: String,
    pub password: Option<SecretText>,
    pub issuer: Option<String>,
    pub admin: bool,
}

/// Fails for a name that no account may have.
pub(crate) fn check_name(name: &str) -> Result<(), ServerError> {
    let length = name.chars().count();
    if !(1..=255).contains(&length) {
        return Err(ServerError::field("name", "must have 1 to 255 characters"));
    }
    if name.trim() != name || name.chars().any(|c| c.is_control() || c == '/' || c == ':') {
        let reason =
            "must not begin or end with a space, nor have control characters, / or : in it";
        return Err(ServerError::field("name", reason));
    }
    Ok(())
}

/// Creates an account. Not with a token, which it would outlive.
pub async fn create(
    state: &ServerState,
    caller: &Caller,
    draft: AccountDraft,
) -> Result<AccountRecord, ServerError> {
    caller.need_interactive_login()?;
    let AccountDraft { name, password, issuer, admin } = draft;
    check_name(&name)?;
    let password = match (&password, &issuer) {
        (Some(password), None) => {
            let password = normalized(password);
            check_password("password", &password)?;
            Some(state.auth().passwords.hash(&caller.name, password).await?)
        }
        (None, Some(issuer)) => {
            check_issuer(state, issuer)?;
            None
        }
        _ => {
            let reason = "give a password, or the issuer of the user";
            return Err(ServerError::field("password", reason));
        }
    };
    let now = state.now();
    let made = state
        .change(move |store| {
            let (password, issuer) = (password.as_deref(), issuer.as_deref());
            let uuid = Uuid::new_v4().into();
            let new = NewAccount { uuid, name: &name, password, issuer, admin };
            store.accounts().create(&new, now)
        })
        .await?;
    Ok(made)
}

/// Fails for an identity provider that is not configured.
fn check_issuer(state: &ServerState, name: &str) -> Result<(), ServerError> {
    let issuers = &state.settings().auth.issuers;
    if issuers.iter().any(|issuer| issuer.name == name) {
        return Ok(());
    }
    let names: Vec<&str> = issuers.iter().map(|issuer| issuer.name.as_str()).collect();
    let known = match names.join(", ") {
        names if names.is_empty() => {
            "none is configured: see the configuration file of the server".to_owned()
        }
        names => format!("configured: {names}"),
    };
    Err(ServerError::field("issuer", format!("there is no issuer called {name:?}; {known}")))
}

/// Changes an account, if it still has the expected revision.
pub async fn update(
    services: &Services,
    caller: &Caller,
    account: Uuid,
    expected: Option<i64>,
    (admin, disabled): (Option<bool>, Option<bool>),
) -> Result<AccountRecord, ServerError> {
    // Removing rights is safe for tokens: nothing outlives them.
    if admin == Some(true) || disabled == Some(false) {
        caller.need_interactive_login()?;
    }
    let now = services.now();
    let changed = services
        .change(move |store| {
            store.accounts().update(account.into(), expected, admin, disabled, now)
        })
        .await?;
    Ok(changed)
}

/// Deletes an account with its roles, sessions and tokens.
pub async fn delete(
    services: &Services,
    account: Uuid,
    expected: Option<i64>,
) -> Result<AccountRecord, ServerError> {
    let now = services.now();
    let gone = services
        .change(move |store| store.accounts().delete(account.into(), expected, now))
        .await?;
    Ok(gone)
}

/// Returns the account with a name.
pub async fn find(services: &Services, name: &str) -> Result<AccountRecord, ServerError> {
    let wanted = name.to_owned();
    let found = services.with_store(move |store| store.accounts().named(&wanted)).await?;
    found.ok_or_else(|| ServerError::NotFound { kind: "user", name: name.to_owned() })
}

/// Sets a password: the caller's own with the current one; administrators, that of any account. Ends
/// all other sessions of the account.
pub async fn change_password(
    state: &ServerState,
    caller: &Caller,
    address: &str,
    account: Uuid,
    (current, new): (Option<&SecretText>, &SecretText),
) -> Result<(), ServerError> {
    caller.need_interactive_login()?;
    let own = caller.account == Some(account);
    if !own {
        caller.need_everywhere(Right::Administer)?;
    }
    let password = normalized(new);
    check_password("password", &password)?;
    if own {
        let found = state.with_store(move |store| store.accounts().get(account.into())).await?;
        let current = current.map(normalized).unwrap_or_default();
        let now = state.now();
        let auth = state.auth();
        let position = auth.passwords.join(Line::Reserved(caller.name.clone()))?;
        // Counted for the account of the session as from a familiar network, so others cannot lock
        // it out.
        auth.throttle.begin(&found.name, address, true, now)?;
        let permit = position.acquire(&CancellationToken::new()).await;
        let permit = permit.inspect_err(|_| auth.throttle.withdraw(&found.name, address))?;
        if !auth.passwords.verify(permit, found.password, current).await? {
            return Err(ServerError::field("current", "is not the current password"));
        }
        auth.throttle.succeed(&found.name, address);
    }
    let kept = state.auth().passwords.hash(&caller.name, password).await?;
    let keep = match caller.method {
        AuthMethod::Session { hash, .. } if own => Some(hash),
        _ => None,
    };
    let now = state.now();
    state
        .change(move |store| {
            store.accounts().set_password(account.into(), &kept, keep.as_ref(), now)
        })
        .await?;
    Ok(())
}

/// A new session, and the account that it belongs to.
pub struct LoginSession {
    pub identity: Identity,
    pub secret: SecretText,
    pub(crate) hash: [u8; 32],
    pub expires: Timestamp,
}

/// Opens a session for a name and password. A failure does not reveal which of them is wrong.
pub async fn open_session(
    state: &ServerState,
    address: &str,
    gone: &CancellationToken,
    name: &str,
    password: &SecretText,
) -> Result<LoginSession, ServerError> {
    let wrong = || ServerError::Unauthenticated("the name or the password is wrong");
    let now = state.now();
    let (wanted, network) = (name.to_owned(), network_of(address));
    let asked = network.clone();
    let (found, is_familiar) =
        state.with_store(move |store| store.accounts().identity_at(&wanted, &asked, now)).await?;
    let usable = found.filter(|found| !found.account.disabled && found.account.issuer.is_none());
    let kept = usable.as_ref().and_then(|found| found.account.password.clone());
    let line = match is_familiar {
        true => Line::Reserved(format!("{network} {name}")),
        false => Line::Open(network.clone()),
    };
    let auth = state.auth();
    let position = auth.passwords.join(line)?;
    auth.throttle.begin(name, address, is_familiar, now)?;
    let permit =
        position.acquire(gone).await.inspect_err(|_| auth.throttle.withdraw(name, address))?;
    let fits = auth.passwords.verify(permit, kept, normalized(password)).await?;
    let Some(identity) = usable.filter(|_| fits) else { return Err(wrong()) };
    auth.throttle.succeed(name, address);

    let RandomToken { secret, hash } = RandomToken::session()?;
    let (account, expires) = (identity.account.uuid, now + SESSION_LENGTH);
    let session = SessionRecord { account, created: now, expires };
    state
        .change(move |store| store.accounts().create_session(&hash, &session, Some(&network)))
        .await?;
    Ok(LoginSession { identity, secret, hash, expires })
}

/// Replaces a session by a new one. Returns its secret and its expiry.
pub async fn renew_session(
    services: &Services,
    old: [u8; 32],
) -> Result<(SecretText, Timestamp), ServerError> {
    let RandomToken { secret, hash } = RandomToken::session()?;
    let now = services.now();
    let expires = now + SESSION_LENGTH;
    services.change(move |store| store.accounts().renew_session(&old, &hash, expires, now)).await?;
    Ok((secret, expires))
}

/// Ends a session.
pub(crate) async fn end_session(services: &Services, hash: [u8; 32]) -> Result<(), ServerError> {
    services.change(move |store| store.accounts().end_session(&hash)).await?;
    Ok(())
}
