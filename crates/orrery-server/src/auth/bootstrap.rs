//! Bootstrap: the first account of an installation, by a given password or by a one-time link.

use orrery_base::hex::to_hex;
use orrery_model::{Duration, SecretText, Timestamp};
use orrery_roles::token_hash::hash_of;
use orrery_store::{AccountRecord, NewAccount};
use uuid::Uuid;

use crate::auth::random_tokens::{BOOTSTRAP, RandomToken};
use crate::auth::{Auth, check_password, normalized};
use crate::error::ServerError;

/// Meta key of the hash and expiry of the bootstrap token.
const META_KEY: &str = "setup ticket";

/// Meta key of the hash of the token that created the first account.
const USED_META_KEY: &str = "used setup ticket";

const USED: &str =
    "the set-up link was used already, and works once: log in with the account that it created";
const EXPIRED: &str = "the set-up link has expired: restart the server, which prints a new one";
const WRONG: &str = "this is not the set-up link that the server printed at its latest start: check that all of it was copied; if there is no account yet, restart the server, which prints a new link";

const TOKEN_LIFETIME: Duration = Duration::from_secs(3600);

/// Name of the account for a given password.
const ADMIN: &str = "admin";

/// State of an installation at the start of a server.
#[derive(Debug)]
pub enum BootstrapState {
    /// Accounts exist.
    HasAccounts,
    /// The account `admin` was created with the given password.
    AdminCreated,
    /// No account exists. This token creates the first one, once, within an hour.
    BootstrapToken(SecretText),
}

/// Prepares the first account if there is none. Each start invalidates earlier tokens.
///
/// # Errors
/// If the password is too weak, or those of the store.
pub(crate) async fn prepare_first_account(
    auth: &Auth,
    admin_password: Option<&SecretText>,
) -> Result<BootstrapState, ServerError> {
    if !auth.services.with_store(|store| store.accounts().is_empty()).await? {
        return Ok(BootstrapState::HasAccounts);
    }
    if let Some(password) = admin_password {
        let made = create_first_account(auth, ADMIN.to_owned(), password, None).await?;
        return Ok(made.map_or(BootstrapState::HasAccounts, |_| BootstrapState::AdminCreated));
    }
    let RandomToken { secret, hash } = RandomToken::bootstrap()?;
    let value = encode_token(&hash, auth.services.now() + TOKEN_LIFETIME);
    auth.services.with_store(move |store| store.meta().put(META_KEY, &value)).await?;
    Ok(BootstrapState::BootstrapToken(secret))
}

fn encode_token(hash: &[u8; 32], expires: Timestamp) -> String {
    format!("{} {}", to_hex(hash), expires.0)
}

/// Creates the first account and invalidates the bootstrap token.
pub(crate) async fn redeem_bootstrap_token(
    auth: &Auth,
    token: &SecretText,
    name: String,
    password: &SecretText,
) -> Result<AccountRecord, ServerError> {
    let hash = hash_of(token.expose());
    let found = auth
        .services
        .with_store(|store| Ok((store.meta().get(META_KEY)?, store.meta().get(USED_META_KEY)?)));
    let (stored, used) = found.await?;
    // Only the holder of the link learns more than that another one is wrong.
    if used.is_some_and(|used| is_same(&used, &to_hex(&hash))) {
        return Err(ServerError::Unauthenticated(USED));
    }
    let wrong = || ServerError::Unauthenticated(WRONG);
    let stored = stored.ok_or_else(wrong)?;
    let ends = stored.split_once(' ').and_then(|(_, ends)| ends.parse().ok());
    let ends = Timestamp(ends.ok_or_else(wrong)?);
    if !token.expose().starts_with(BOOTSTRAP) || !is_same(&stored, &encode_token(&hash, ends)) {
        return Err(wrong());
    }
    if ends <= auth.services.now() {
        return Err(ServerError::Unauthenticated(EXPIRED));
    }
    let created = create_first_account(auth, name, password, Some(stored)).await?;
    let created = created.ok_or(ServerError::Unauthenticated(USED))?;
    // Without this record, the link is only wrong from now on.
    let used = to_hex(&hash);
    let kept = auth.services.with_store(move |store| store.meta().put(USED_META_KEY, &used)).await;
    if let Err(error) = kept {
        tracing::debug!(%error, "the use of the set-up link was not recorded");
    }
    Ok(created)
}

fn is_same(one: &str, other: &str) -> bool {
    bool::from(subtle::ConstantTimeEq::ct_eq(one.as_bytes(), other.as_bytes()))
}

async fn create_first_account(
    auth: &Auth,
    name: String,
    password: &SecretText,
    token: Option<String>,
) -> Result<Option<AccountRecord>, ServerError> {
    let password = normalized(password);
    check_password("password", &password)?;
    let kept = auth.passwords.hash("set-up", password).await?;
    let now = auth.services.now();
    let created = auth.services.change(move |store| {
        let uuid = Uuid::new_v4().into();
        let password = Some(kept.as_str());
        let new = NewAccount { uuid, name: &name, password, issuer: None, admin: true };
        let token = token.as_deref().map(|value| (META_KEY, value));
        store.accounts().create_first(&new, token, now)
    });
    Ok(created.await?)
}
