//! Authentication of requests.

use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, COOKIE};
use axum::http::request::Parts;
use orrery_model::Duration;
use orrery_roles::token_hash::hash_of;
use orrery_store::{ClusterRecord, EnvironmentRecord, Identity, TokenRecord};
use uuid::Uuid;

use crate::auth::cache::{CachedCaller, Credential};
use crate::auth::jwt::authenticate_jwt;
use crate::auth::random_tokens::{SESSION, TOKEN};
use crate::auth::{Auth, AuthMethod, Caller, TokenLimits};
use crate::error::ServerError;

/// Lifetime of a session without renewal.
pub const SESSION_LENGTH: Duration = Duration::from_secs(12 * 3600);

/// Header of the server's own scripts. Cross-site requests cannot send it.
const OWN_SCRIPT: &str = "x-orrery-client";

/// Maximum length of a credential.
const CREDENTIAL_MAX: usize = 16 * 1024;

/// Credentials of a request.
struct Credentials<'a> {
    secret: &'a str,
    cookie: bool,
}

/// The name of the cookie. With TLS, browsers keep other hosts and paths from setting it.
pub(crate) fn cookie_name(secure: bool) -> &'static str {
    if secure { "__Host-orrery" } else { "orrery" }
}

fn unauthenticated(reason: &'static str) -> ServerError {
    ServerError::Unauthenticated(reason)
}

fn read_credentials<'a>(
    headers: &'a HeaderMap,
    cookie: &str,
) -> Result<Credentials<'a>, ServerError> {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    if let Some(value) = given.next() {
        if given.next().is_some() {
            return Err(unauthenticated("there is more than one Authorization header"));
        }
        let text = value.to_str().unwrap_or_default();
        let (scheme, secret) = text.split_once(' ').unwrap_or_default();
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(unauthenticated(
                "the Authorization header must contain Bearer and a token",
            ));
        }
        return Ok(Credentials { secret: secret.trim(), cookie: false });
    }
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|text| text.split(';')).filter_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        (name == cookie).then_some(value)
    });
    match pairs.next() {
        Some(secret) => Ok(Credentials { secret, cookie: true }),
        None => Err(unauthenticated("send a token as Authorization: Bearer …")),
    }
}

/// True if a page of another site could have sent the request: browsers attach cookies there as well.
fn needs_proof_of_origin(headers: &HeaderMap) -> bool {
    if headers.contains_key(OWN_SCRIPT) {
        return false;
    }
    headers.get("sec-fetch-site").is_none_or(|site| site != "same-origin")
}

/// Authenticates a request. A request that only reads may use the cache.
pub(crate) async fn authenticate(
    auth: &Auth,
    parts: &Parts,
    only_reads: bool,
) -> Result<Caller, ServerError> {
    let cookie = cookie_name(auth.settings.secure_cookies);
    let Credentials { secret, cookie } = read_credentials(&parts.headers, cookie)?;
    if secret.len() > CREDENTIAL_MAX {
        return Err(unauthenticated("invalid token"));
    }
    // Not by the method: one GET route of the Inmanta-compatible API changes something.
    if cookie && !only_reads && needs_proof_of_origin(&parts.headers) {
        let need = format!("changes with a cookie need a same-site request: send {OWN_SCRIPT}");
        return Err(ServerError::Forbidden(need));
    }
    if secret.starts_with(SESSION) {
        let credential = (hash_of(secret), cookie);
        return with_cache(auth, only_reads, credential, authenticate_session(auth, credential))
            .await;
    }
    if cookie {
        return Err(unauthenticated("the session has ended; log in again"));
    }
    if secret.starts_with(TOKEN) {
        let credential = (hash_of(secret), cookie);
        return with_cache(auth, only_reads, credential, authenticate_token(auth, credential))
            .await;
    }
    if secret.split('.').count() == 3 {
        return authenticate_jwt(auth, secret).await;
    }
    Err(unauthenticated("invalid token"))
}

/// Authenticates through the cache. Only requests that read may use a cached caller.
async fn with_cache(
    auth: &Auth,
    only_reads: bool,
    credential: Credential,
    find: impl Future<Output = Result<CachedCaller, ServerError>>,
) -> Result<Caller, ServerError> {
    let cache = &auth.cache;
    if only_reads && let Some(caller) = cache.caller(&credential, auth.services.now()) {
        return Ok(caller);
    }
    let asked = cache.stamp();
    let known = find.await?;
    cache.insert_caller(credential, known.clone(), asked);
    Ok(known.0)
}

async fn authenticate_session(
    auth: &Auth,
    (hash, cookie): Credential,
) -> Result<CachedCaller, ServerError> {
    let now = auth.services.now();
    let found = auth.services.with_store(move |store| store.accounts().session(&hash, now)).await?;
    let Some((session, identity)) = found else {
        return Err(unauthenticated("the session has ended; log in again"));
    };
    need_enabled(&identity)?;
    let method = AuthMethod::Session { hash, expires: session.expires, cookie };
    let caller = Caller::for_account(format!("user:{}", identity.account.name), &identity, method);
    Ok((caller, Some(session.expires)))
}

async fn authenticate_token(
    auth: &Auth,
    (hash, _): Credential,
) -> Result<CachedCaller, ServerError> {
    let found = auth.services.with_store(move |store| store.tokens().with_hash(&hash)).await?;
    let Some((token, identity)) = found else { return Err(unauthenticated("invalid token")) };
    let now = auth.services.now();
    if !token.is_valid(now) {
        return Err(unauthenticated("the token has expired or was revoked"));
    }
    need_enabled(&identity)?;
    let limit = TokenLimits::from_record(&token)
        .map_err(|error| ServerError::Internal(format!("the limits of a token: {error}")))?;
    record_use(auth, &token);
    let name = format!("token:{}/{}", identity.account.name, token.name);
    Ok((Caller::for_account(name, &identity, AuthMethod::Token).limited(limit), token.expires))
}

fn need_enabled(identity: &Identity) -> Result<(), ServerError> {
    if identity.account.disabled { Err(unauthenticated("the account is disabled")) } else { Ok(()) }
}

/// Records the use of a token, at most once a minute and in the background.
fn record_use(auth: &Auth, token: &TokenRecord) {
    let now = auth.services.now();
    if !auth.touched.is_due(token.uuid, token.last_used, now) {
        return;
    }
    let (services, uuid) = (auth.services.clone(), token.uuid);
    tokio::spawn(async move {
        let noted = services.with_store(move |store| store.tokens().touch(&[(uuid, now)])).await;
        if let Err(error) = noted {
            tracing::warn!(%error, "cannot record the use of a token");
        }
    });
}

impl Auth {
    /// Finds an environment. Requests that only read may use the cache.
    pub(crate) async fn find_environment(
        &self,
        id: Uuid,
        only_reads: bool,
    ) -> Result<EnvironmentRecord, ServerError> {
        if only_reads && let Some(found) = self.cache.environment(id.into()) {
            return Ok(found);
        }
        let asked = self.cache.stamp();
        let read = self.services.with_store(move |store| store.environments().get(id.into()));
        let found = read.await?;
        self.cache.insert_environment(found.clone(), asked);
        Ok(found)
    }

    /// Finds a cluster, to learn its project.
    pub(crate) async fn find_cluster(&self, id: &str) -> Result<ClusterRecord, ServerError> {
        let id = id.to_owned();
        Ok(self.services.with_store(move |store| store.clusters().get(&id)).await?)
    }
}
