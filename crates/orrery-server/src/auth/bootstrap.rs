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
    let refused = || ServerError::Unauthenticated("the set-up link is used, expired or invalid");
    let stored = auth.services.with_store(|store| store.meta().get(META_KEY)).await?;
    let stored = stored.ok_or_else(refused)?;
    let ends = stored.split_once(' ').and_then(|(_, ends)| ends.parse().ok());
    let ends = Timestamp(ends.ok_or_else(refused)?);
    let shown = encode_token(&hash_of(token.expose()), ends);
    let same = subtle::ConstantTimeEq::ct_eq(shown.as_bytes(), stored.as_bytes());
    if !token.expose().starts_with(BOOTSTRAP) || !bool::from(same) || ends <= auth.services.now() {
        return Err(refused());
    }
    create_first_account(auth, name, password, Some(stored)).await?.ok_or_else(refused)
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
