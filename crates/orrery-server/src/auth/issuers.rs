//! Callers that an external issuer vouches for: JSON Web Tokens, checked with the issuer's keys.
//!
//! Which algorithms a key may be used with is fixed by the settings and by the key, never by the token. Keys are read again when a token names one
//! that is not known, at most once a minute, and when they are old.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, dangerous, decode, decode_header};
use orrery_model::SecretText;
use orrery_store::RoleScope;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::sync::Mutex;
use uuid::Uuid;

use crate::access::Right;
use crate::app::App;
use crate::auth::caller::{Scope, role_right, scope_of};
use crate::auth::{Caller, How};
use crate::problem::ServerError;

/// Clocks may differ by so much.
const SKEW_SECONDS: u64 = 60;

/// Keys are asked for at most so often, and at least so often while they are used.
const ASK_AGAIN: Duration = Duration::from_secs(60);
const KEYS_FRESH: Duration = Duration::from_secs(3600);

/// So much is logged of what a token that was not checked says.
const NAMED_MAX: usize = 200;
/// So many refused tokens a second are logged.
const LOGGED_MAX: u32 = 20;
const NAME_MAX: usize = 255;

const FETCH: Duration = Duration::from_secs(5);
const DOCUMENT_MAX: u64 = 1024 * 1024;

/// Somebody whose word counts.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct IssuerSettings {
    /// How it is called here: in the audit log, and with accounts that it vouches for.
    pub name: String,
    /// The claim `iss` of its tokens.
    pub issuer: String,
    /// The claim `aud` of tokens that are meant for this server.
    pub audience: String,
    /// Where its keys are; found by OpenID discovery if absent.
    #[serde(default)]
    pub jwks_uri: Option<String>,
    /// A key that both share, instead of keys that are fetched: for HS256 only.
    #[serde(default)]
    pub shared_key: Option<SecretText>,
    /// What its tokens may be signed with.
    #[serde(default = "usual_algorithms")]
    pub algorithms: Vec<String>,
    /// The claim with the user's name.
    #[serde(default = "usual_name_claim")]
    pub username_claim: String,
    /// Roles that claims give, beside those that an account of that name has here.
    #[serde(default)]
    pub roles: Vec<RoleMapping>,
}

/// Who has this value in this claim has this role.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoleMapping {
    /// The name of the claim; dots lead into objects.
    pub claim: String,
    /// One of its values, or its only one.
    pub value: String,
    pub role: String,
    #[serde(default)]
    pub project: Option<Uuid>,
    #[serde(default)]
    pub environment: Option<Uuid>,
}

fn usual_algorithms() -> Vec<String> {
    vec!["RS256".to_owned(), "ES256".to_owned()]
}

fn usual_name_claim() -> String {
    "sub".to_owned()
}

/// Why settings of an issuer cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("issuer {name:?}: {reason}")]
pub struct InvalidIssuer {
    name: String,
    reason: String,
}

impl IssuerSettings {
    /// # Errors
    /// If something in it cannot be used.
    pub fn check(&self) -> Result<(), InvalidIssuer> {
        if self.name.is_empty() || self.name.contains(['/', ':']) {
            return Err(self.invalid("the name must not be empty, nor have / or : in it"));
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

    /// What keys that are fetched may be used with.
    fn algorithms(&self) -> Result<Vec<Algorithm>, InvalidIssuer> {
        let parse = |text: &String| match text.parse() {
            Ok(Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512) | Err(_) => {
                Err(self.invalid(format!("{text} is no algorithm for keys that are fetched")))
            }
            Ok(algorithm) => Ok(algorithm),
        };
        self.algorithms.iter().map(parse).collect()
    }
}

/// By https, or from this machine, where nobody is in between.
fn may_fetch(url: &str) -> bool {
    let local = ["http://127.0.0.1", "http://[::1]", "http://localhost"];
    let ends = |rest: &str| rest.is_empty() || rest.starts_with(['/', ':']);
    url.starts_with("https://") || local.iter().any(|base| url.strip_prefix(base).is_some_and(ends))
}

/// A key with what it may be used for.
#[derive(Clone)]
struct Usable {
    key: DecodingKey,
    algorithms: Vec<Algorithm>,
}

impl fmt::Debug for Usable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Usable({:?})", self.algorithms)
    }
}

#[derive(Debug, Default)]
struct Keys {
    asked: Option<Instant>,
    got: Option<Instant>,
    /// By their names; one without a name is good for tokens that name none.
    known: HashMap<Option<String>, Usable>,
}

/// What is known of the keys of all issuers, by name.
#[derive(Debug, Default)]
pub(crate) struct Issuers {
    keys: Mutex<HashMap<String, Arc<Mutex<Keys>>>>,
}

/// Whoever shows a token learns nothing of what is wrong with it; the administrator does.
fn refused(issuer: &str, reason: &str) -> ServerError {
    // Before a token is checked, what it says is anybody's word; and nobody is to fill the log.
    if may_log() {
        let issuer: String = issuer.chars().take(NAMED_MAX).collect();
        tracing::info!(issuer, reason, "a token of an issuer is refused");
    }
    ServerError::Unauthenticated("invalid token")
}

fn may_log() -> bool {
    static SECOND: std::sync::Mutex<Option<(Instant, u32)>> = std::sync::Mutex::new(None);
    let mut second = SECOND.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (_, count) = match &mut *second {
        Some(current) if current.0.elapsed() < Duration::from_secs(1) => current,
        other => other.insert((Instant::now(), 0)),
    };
    *count += 1;
    *count <= LOGGED_MAX
}

/// What is wrong with a token, in words.
fn reason_of(error: &jsonwebtoken::errors::Error, issuer: &IssuerSettings) -> String {
    use jsonwebtoken::errors::ErrorKind;
    match error.kind() {
        ErrorKind::ExpiredSignature => "it has expired".to_owned(),
        ErrorKind::ImmatureSignature => "it is not valid yet: look at the clocks".to_owned(),
        ErrorKind::InvalidAudience => format!("its audience is not {}", issuer.audience),
        ErrorKind::InvalidIssuer => format!("its issuer is not {}", issuer.issuer),
        ErrorKind::InvalidSignature => "its signature is not of the issuer's key".to_owned(),
        ErrorKind::MissingRequiredClaim(claim) => format!("it has no claim {claim}"),
        _ => error.to_string(),
    }
}

/// The caller that a token of an external issuer stands for.
pub(crate) async fn by_issuer(app: &App, token: &str) -> Result<Caller, ServerError> {
    let claimed: Value = dangerous::insecure_decode_claims(token)
        .map_err(|_| refused("", "it is no JSON Web Token"))?;
    let claimed = claimed["iss"].as_str().ok_or_else(|| refused("", "it names no issuer"))?;
    let mut issuers = app.settings().auth.issuers.iter();
    let issuer = issuers
        .find(|issuer| issuer.issuer == claimed)
        .ok_or_else(|| refused(claimed, "no issuer of this name is configured"))?;
    let refuse = |reason: &str| refused(&issuer.name, reason);
    let header = decode_header(token).map_err(|_| refuse("its header cannot be read"))?;
    let usable = app.auth().issuers.key(issuer, header.kid).await?;
    let usable = usable.ok_or_else(|| refuse("the issuer has no key of the name that it has"))?;
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
    let claims = data.map_err(|error| refuse(&reason_of(&error, issuer)))?;
    known(app, issuer, &claims.claims).await
}

/// The person in checked claims, with the roles of the claims and of the account here, if there is one.
async fn known(
    app: &App,
    issuer: &IssuerSettings,
    claims: &Map<String, Value>,
) -> Result<Caller, ServerError> {
    let refuse = |reason: &str| refused(&issuer.name, reason);
    let name = claims.get(&issuer.username_claim).and_then(Value::as_str);
    let name = name.ok_or_else(|| refuse(&format!("it has no claim {}", issuer.username_claim)))?;
    if name.is_empty() || name.len() > NAME_MAX || name.chars().any(char::is_control) {
        return Err(refuse("its name of the user is empty, too long, or no text"));
    }
    let mut grants: Vec<(Scope, Right)> = Vec::new();
    for mapping in issuer.roles.iter().filter(|mapping| mapping.holds(claims)) {
        let scope: RoleScope = scope_of(mapping.project, mapping.environment)?;
        grants.extend(role_right(&mapping.role).map(|right| (scope.into(), right)));
    }
    let shown = format!("issuer:{}/{name}", issuer.name);
    let wanted = name.to_owned();
    let found = app.with_store(move |store| store.records().identity_named(&wanted)).await?;
    let own = found.filter(|found| found.account.issuer.as_deref() == Some(&issuer.name));
    let Some(identity) = own else {
        // An account of the same name that is somebody else's gives nothing.
        return Ok(Caller::vouched(shown, grants));
    };
    if identity.account.disabled {
        return Err(ServerError::Unauthenticated("the account is disabled"));
    }
    Ok(Caller::known(shown, &identity, How::Issuer).with_grants(grants))
}

impl RoleMapping {
    fn holds(&self, claims: &Map<String, Value>) -> bool {
        let mut steps = self.claim.split('.');
        let first = steps.next().and_then(|name| claims.get(name));
        // A claim whose name has dots in it comes first.
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
    /// The key of that name, asked for if it is not known.
    async fn key(
        &self,
        issuer: &IssuerSettings,
        name: Option<String>,
    ) -> Result<Option<Usable>, ServerError> {
        if let Some(shared) = &issuer.shared_key {
            let key = DecodingKey::from_secret(shared.expose().as_bytes());
            return Ok(Some(Usable { key, algorithms: vec![Algorithm::HS256] }));
        }
        let keys = Arc::clone(self.keys.lock().await.entry(issuer.name.clone()).or_default());
        // One asks, the others wait for what comes.
        let mut keys = keys.lock().await;
        let old = keys.got.is_none_or(|got| got.elapsed() > KEYS_FRESH);
        let known = keys.known.get(&name).cloned();
        let may_ask = keys.asked.is_none_or(|asked| asked.elapsed() > ASK_AGAIN);
        if (known.is_some() && !old) || !may_ask {
            return Ok(known);
        }
        keys.asked = Some(Instant::now());
        let settings = issuer.clone();
        let asked = tokio::task::spawn_blocking(move || fetch(&settings)).await;
        match asked.map_err(|error| error.to_string()).flatten() {
            Ok(fresh) => {
                keys.known = fresh;
                keys.got = Some(Instant::now());
                Ok(keys.known.get(&name).cloned())
            }
            Err(reason) => {
                tracing::warn!(issuer = issuer.name, reason, "the keys of an issuer cannot be had");
                match known {
                    Some(known) => Ok(Some(known)),
                    None => Err(ServerError::Unavailable(format!(
                        "the keys of {} cannot be had now",
                        issuer.name
                    ))),
                }
            }
        }
    }
}

/// Asks an issuer for its keys.
fn fetch(issuer: &IssuerSettings) -> Result<HashMap<Option<String>, Usable>, String> {
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
                return Err("the discovered document is about somebody else".to_owned());
            }
            document["jwks_uri"].as_str().ok_or("the document names no keys")?.to_owned()
        }
    };
    if !may_fetch(&uri) {
        return Err(format!("keys must come by https, not from {uri}"));
    }
    let set: JwkSet = serde_json::from_str(&get(&uri)?).map_err(|error| error.to_string())?;
    let allowed = issuer.algorithms().map_err(|error| error.to_string())?;
    Ok(set.keys.iter().filter_map(|jwk| usable(jwk, &allowed)).collect())
}

/// A key with the algorithms that the settings allow and that fit it.
fn usable(jwk: &Jwk, allowed: &[Algorithm]) -> Option<(Option<String>, Usable)> {
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
        // A key that is published cannot be a secret.
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
    Some((jwk.common.key_id.clone(), Usable { key, algorithms }))
}
