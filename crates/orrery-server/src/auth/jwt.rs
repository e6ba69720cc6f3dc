//! JSON Web Tokens of identity providers, verified with their keys.
//!
//! The settings and the key determine the algorithm, never the token. Keys are fetched again when a
//! token names an unknown one, at most once a minute, and when they are old.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, dangerous, decode, decode_header};
use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;
use orrery_model::SecretText;
use orrery_store::RoleScope;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::sync::Mutex;
use uuid::Uuid;

use crate::access::Right;
use crate::auth::caller::{Scope, role_right, scope_of};
use crate::auth::{Auth, AuthMethod, Caller};
use crate::error::ServerError;

/// Tolerated clock skew.
const SKEW_SECONDS: u64 = 60;

/// Minimum and maximum interval between fetches of keys.
const REFETCH_AFTER: Duration = Duration::from_secs(60);
const KEYS_FRESH: Duration = Duration::from_secs(3600);

/// Maximum length of an unverified claim in the log.
const LOGGED_CLAIM_MAX: usize = 200;
/// Maximum number of logged refusals per second.
const LOGGED_MAX: u32 = 20;
const NAME_MAX: usize = 255;

const FETCH: Duration = Duration::from_secs(5);
const DOCUMENT_MAX: u64 = 1024 * 1024;

/// Settings of an identity provider.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct IssuerSettings {
    /// Local name: in the audit log and in accounts.
    pub name: String,
    /// Claim `iss` of its tokens.
    pub issuer: String,
    /// Claim `aud` of tokens for this server.
    pub audience: String,
    /// URL of its keys. Default: from OpenID discovery.
    #[serde(default)]
    pub jwks_uri: Option<String>,
    /// Shared key instead of fetched keys; HS256 only.
    #[serde(default)]
    pub shared_key: Option<SecretText>,
    /// Accepted signature algorithms.
    #[serde(default = "default_algorithms")]
    pub algorithms: Vec<String>,
    /// Claim with the name of the user.
    #[serde(default = "default_name_claim")]
    pub username_claim: String,
    /// Roles granted by claims, in addition to those of the local account.
    #[serde(default)]
    pub roles: Vec<RoleMapping>,
}

/// Grants a role for a value of a claim.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoleMapping {
    /// Name of the claim; dots select members of objects.
    pub claim: String,
    /// The value, or one element of an array.
    pub value: String,
    pub role: String,
    #[serde(default)]
    pub project: Option<Uuid>,
    #[serde(default)]
    pub environment: Option<Uuid>,
}

fn default_algorithms() -> Vec<String> {
    vec!["RS256".to_owned(), "ES256".to_owned()]
}

fn default_name_claim() -> String {
    "sub".to_owned()
}

/// Invalid settings of an identity provider.
#[derive(Debug, thiserror::Error)]
#[error("issuer {name:?}: {reason}")]
pub struct InvalidIssuer {
    name: String,
    reason: String,
}

impl IssuerSettings {
    /// # Errors
    /// If a setting is invalid.
    pub fn check(&self) -> Result<(), InvalidIssuer> {
        if self.name.is_empty() || self.name.contains(['/', ':']) {
            return Err(self.invalid("the name must not be empty or contain / or :"));
        }
        for mapping in &self.roles {
            if role_right(&mapping.role).is_none() {
                return Err(self.invalid(format!("there is no role {:?}", mapping.role)));
            }
            if mapping.project.is_some() && mapping.environment.is_some() {
                return Err(self.invalid("a role is for a project or an environment, not both"));
            }
        }
        match (&self.shared_key, &self.jwks_uri) {
            (Some(_), Some(_)) => Err(self.invalid("give jwks-uri or shared-key, not both")),
            (Some(key), None) if key.expose().len() < 32 => {
                Err(self.invalid("shared-key must have 32 bytes or more"))
            }
            (Some(_), None) => Ok(()),
            (None, uri) => {
                let from = uri.as_ref().unwrap_or(&self.issuer);
                if !may_fetch(from) {
                    return Err(self.invalid(format!("keys must come by https, not from {from}")));
                }
                self.algorithms().map(drop)
            }
        }
    }

    fn invalid(&self, reason: impl Into<String>) -> InvalidIssuer {
        InvalidIssuer { name: self.name.clone(), reason: reason.into() }
    }

    /// Parses the accepted algorithms for fetched keys.
    fn algorithms(&self) -> Result<Vec<Algorithm>, InvalidIssuer> {
        let parse = |text: &String| match text.parse() {
            Ok(Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512) | Err(_) => {
                Err(self.invalid(format!("{text} is not an algorithm for fetched keys")))
            }
            Ok(algorithm) => Ok(algorithm),
        };
        self.algorithms.iter().map(parse).collect()
    }
}

/// True for `https`, or plain HTTP from this machine.
fn may_fetch(url: &str) -> bool {
    let local = ["http://127.0.0.1", "http://[::1]", "http://localhost"];
    let ends = |rest: &str| rest.is_empty() || rest.starts_with(['/', ':']);
    url.starts_with("https://") || local.iter().any(|base| url.strip_prefix(base).is_some_and(ends))
}

/// A key with its permitted algorithms.
#[derive(Clone)]
struct VerificationKey {
    key: DecodingKey,
    algorithms: Vec<Algorithm>,
}

impl fmt::Debug for VerificationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VerificationKey({:?})", self.algorithms)
    }
}

#[derive(Debug, Default)]
struct Keys {
    asked: Option<Instant>,
    got: Option<Instant>,
    /// Keys by id. The key without an id verifies tokens without one.
    known: HashMap<Option<String>, VerificationKey>,
}

/// Keys of all identity providers, by name.
#[derive(Debug, Default)]
pub(crate) struct Issuers {
    keys: Mutex<HashMap<String, Arc<Mutex<Keys>>>>,
}

/// Refuses a token. The client gets no reason; the log does.
fn refused(issuer: &str, reason: &str) -> ServerError {
    // Unverified claims are attacker-controlled, and the log must not be flooded.
    if may_log() {
        let issuer: String = issuer.chars().take(LOGGED_CLAIM_MAX).collect();
        tracing::info!(issuer, reason, "a token of an issuer is refused");
    }
    ServerError::Unauthenticated("invalid token")
}

fn may_log() -> bool {
    static SECOND: std::sync::Mutex<Option<(Instant, u32)>> = std::sync::Mutex::new(None);
    let mut second = SECOND.lock().ignore_poison();
    let (_, count) = match &mut *second {
        Some(current) if current.0.elapsed() < Duration::from_secs(1) => current,
        other => other.insert((monotonic(), 0)),
    };
    *count += 1;
    *count <= LOGGED_MAX
}

/// Returns the reason for a refused token.
fn refusal_reason(error: &jsonwebtoken::errors::Error, issuer: &IssuerSettings) -> String {
    use jsonwebtoken::errors::ErrorKind;
    match error.kind() {
        ErrorKind::ExpiredSignature => "it has expired".to_owned(),
        ErrorKind::ImmatureSignature => "it is not valid yet: check the clocks".to_owned(),
        ErrorKind::InvalidAudience => format!("its audience is not {}", issuer.audience),
        ErrorKind::InvalidIssuer => format!("its issuer is not {}", issuer.issuer),
        ErrorKind::InvalidSignature => "its signature does not match the issuer's key".to_owned(),
        ErrorKind::MissingRequiredClaim(claim) => format!("it has no claim {claim}"),
        _ => error.to_string(),
    }
}

/// Authenticates a token of an identity provider.
pub(crate) async fn authenticate_jwt(auth: &Auth, token: &str) -> Result<Caller, ServerError> {
    let claimed: Value = dangerous::insecure_decode_claims(token)
        .map_err(|_| refused("", "it is not a JSON Web Token"))?;
    let claimed = claimed["iss"].as_str().ok_or_else(|| refused("", "it names no issuer"))?;
    let mut issuers = auth.settings.issuers.iter();
    let issuer = issuers
        .find(|issuer| issuer.issuer == claimed)
        .ok_or_else(|| refused(claimed, "no issuer of this name is configured"))?;
    let refuse = |reason: &str| refused(&issuer.name, reason);
    let header = decode_header(token).map_err(|_| refuse("its header cannot be read"))?;
    let usable = auth.issuers.find_key(issuer, header.kid).await?;
    let usable = usable.ok_or_else(|| refuse("the issuer has no key with its id"))?;
    if !usable.algorithms.contains(&header.alg) {
        return Err(refuse(&format!("its algorithm, {:?}, is not allowed", header.alg)));
    }
    let mut rules = Validation::new(header.alg);
    rules.set_audience(&[&issuer.audience]);
    rules.set_issuer(&[&issuer.issuer]);
    rules.set_required_spec_claims(&["exp", "iss", "aud"]);
    rules.leeway = SKEW_SECONDS;
    rules.validate_nbf = true;
    let data = decode::<Map<String, Value>>(token, &usable.key, &rules);
    let claims = data.map_err(|error| refuse(&refusal_reason(&error, issuer)))?;
    caller_from_claims(auth, issuer, &claims.claims).await
}

/// Returns the caller for verified claims, with the roles of the claims and of the local account.
async fn caller_from_claims(
    auth: &Auth,
    issuer: &IssuerSettings,
    claims: &Map<String, Value>,
) -> Result<Caller, ServerError> {
    let refuse = |reason: &str| refused(&issuer.name, reason);
    let name = claims.get(&issuer.username_claim).and_then(Value::as_str);
    let name = name.ok_or_else(|| refuse(&format!("it has no claim {}", issuer.username_claim)))?;
    if name.is_empty() || name.len() > NAME_MAX || name.chars().any(char::is_control) {
        return Err(refuse("its user name is empty, too long, or not text"));
    }
    let mut grants: Vec<(Scope, Right)> = Vec::new();
    for mapping in issuer.roles.iter().filter(|mapping| mapping.matches(claims)) {
        let scope: RoleScope = scope_of(mapping.project, mapping.environment)?;
        grants.extend(role_right(&mapping.role).map(|right| (scope.into(), right)));
    }
    let shown = format!("issuer:{}/{name}", issuer.name);
    let wanted = name.to_owned();
    let found =
        auth.services.with_store(move |store| store.accounts().identity_named(&wanted)).await?;
    let own = found.filter(|found| found.account.issuer.as_deref() == Some(&issuer.name));
    let Some(identity) = own else {
        // An account of the same name without this identity provider grants nothing.
        return Ok(Caller::for_claims(shown, grants));
    };
    if identity.account.disabled {
        return Err(ServerError::Unauthenticated("the account is disabled"));
    }
    Ok(Caller::for_account(shown, &identity, AuthMethod::Issuer).with_grants(grants))
}

impl RoleMapping {
    fn matches(&self, claims: &Map<String, Value>) -> bool {
        let mut steps = self.claim.split('.');
        let first = steps.next().and_then(|name| claims.get(name));
        // A claim with dots in its own name takes precedence.
        let claim = claims.get(&self.claim).or_else(|| {
            first.and_then(|value| steps.try_fold(value, |value, name| value.get(name)))
        });
        match claim {
            Some(Value::Array(items)) => items.iter().any(|item| item == &self.value),
            Some(value) => value == &self.value,
            None => false,
        }
    }
}

impl Issuers {
    /// Returns a key by id; fetches the keys if it is unknown.
    async fn find_key(
        &self,
        issuer: &IssuerSettings,
        name: Option<String>,
    ) -> Result<Option<VerificationKey>, ServerError> {
        if let Some(shared) = &issuer.shared_key {
            let key = DecodingKey::from_secret(shared.expose().as_bytes());
            return Ok(Some(VerificationKey { key, algorithms: vec![Algorithm::HS256] }));
        }
        let keys = Arc::clone(self.keys.lock().await.entry(issuer.name.clone()).or_default());
        // Concurrent callers wait for the fetch in progress.
        let mut keys = keys.lock().await;
        let old = keys.got.is_none_or(|got| got.elapsed() > KEYS_FRESH);
        let known = keys.known.get(&name).cloned();
        let may_ask = keys.asked.is_none_or(|asked| asked.elapsed() > REFETCH_AFTER);
        if (known.is_some() && !old) || !may_ask {
            return Ok(known);
        }
        keys.asked = Some(monotonic());
        let settings = issuer.clone();
        let asked = tokio::task::spawn_blocking(move || fetch(&settings)).await;
        match asked.map_err(|error| error.to_string()).flatten() {
            Ok(fresh) => {
                keys.known = fresh;
                keys.got = Some(monotonic());
                Ok(keys.known.get(&name).cloned())
            }
            Err(reason) => {
                tracing::warn!(issuer = issuer.name, reason, "cannot fetch the keys of an issuer");
                match known {
                    Some(known) => Ok(Some(known)),
                    None => Err(ServerError::Unavailable(format!(
                        "the keys of {} are not available now",
                        issuer.name
                    ))),
                }
            }
        }
    }
}

/// Fetches the keys of an identity provider.
fn fetch(issuer: &IssuerSettings) -> Result<HashMap<Option<String>, VerificationKey>, String> {
    crate::tls::install_provider();
    let config = ureq::Agent::config_builder().timeout_global(Some(FETCH)).max_redirects(0);
    let agent: ureq::Agent = config.build().into();
    let get = |url: &str| -> Result<String, String> {
        let answer = agent.get(url).call().map_err(|error| format!("{url}: {error}"))?;
        let text = answer.into_body().into_with_config().limit(DOCUMENT_MAX).read_to_string();
        text.map_err(|error| format!("{url}: {error}"))
    };
    let uri = match &issuer.jwks_uri {
        Some(uri) => uri.clone(),
        None => {
            let base = issuer.issuer.trim_end_matches('/');
            let text = get(&format!("{base}/.well-known/openid-configuration"))?;
            let document: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
            if document["issuer"] != issuer.issuer.as_str() {
                return Err("the discovery document names another issuer".to_owned());
            }
            document["jwks_uri"].as_str().ok_or("the document names no keys")?.to_owned()
        }
    };
    if !may_fetch(&uri) {
        return Err(format!("keys must come by https, not from {uri}"));
    }
    let set: JwkSet = serde_json::from_str(&get(&uri)?).map_err(|error| error.to_string())?;
    let allowed = issuer.algorithms().map_err(|error| error.to_string())?;
    Ok(set.keys.iter().filter_map(|jwk| verification_key(jwk, &allowed)).collect())
}

/// Returns a key with the algorithms that the settings allow and that fit the key.
fn verification_key(jwk: &Jwk, allowed: &[Algorithm]) -> Option<(Option<String>, VerificationKey)> {
    if matches!(jwk.common.public_key_use, Some(PublicKeyUse::Encryption)) {
        return None;
    }
    let family: &[Algorithm] = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => &[
            Algorithm::RS256,
            Algorithm::RS384,
            Algorithm::RS512,
            Algorithm::PS256,
            Algorithm::PS384,
            Algorithm::PS512,
        ],
        AlgorithmParameters::EllipticCurve(parameters) => match parameters.curve {
            EllipticCurve::P256 => &[Algorithm::ES256],
            EllipticCurve::P384 => &[Algorithm::ES384],
            _ => return None,
        },
        AlgorithmParameters::OctetKeyPair(_) => &[Algorithm::EdDSA],
        // A published key cannot be a symmetric one.
        _ => return None,
    };
    let own = jwk.common.key_algorithm.map(Algorithm::try_from).transpose().ok()?;
    let fits = |algorithm: &&Algorithm| {
        allowed.contains(algorithm) && own.is_none_or(|own| own == **algorithm)
    };
    let algorithms: Vec<Algorithm> = family.iter().filter(fits).copied().collect();
    if algorithms.is_empty() {
        return None;
    }
    let key = DecodingKey::from_jwk(jwk).ok()?;
    Some((jwk.common.key_id.clone(), VerificationKey { key, algorithms }))
}
