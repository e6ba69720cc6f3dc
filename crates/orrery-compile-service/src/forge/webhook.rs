//! Webhooks of forges: signature verification and parsing. Pure.

use axum::http::HeaderMap;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// Event of a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookEvent {
    /// Connectivity test of the forge.
    Ping,
    Push(Push),
    /// Any other event, which is ignored.
    Other(String),
}

/// A branch that was pushed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    /// Full name of the pushed ref: `refs/heads/main`.
    pub reference: String,
    /// True if the branch was deleted.
    pub is_deletion: bool,
    /// Default branch of the repository, if the payload names it.
    pub default_branch: Option<String>,
}

impl Push {
    /// True if this is a push to `branch`; an empty name is the default branch.
    pub fn is_to(&self, branch: &str) -> bool {
        let branch = match branch {
            "" => self.default_branch.as_deref(),
            branch => Some(branch),
        };
        // If the default branch is unknown, the push is assumed to be to it.
        branch.is_none_or(|branch| self.reference.strip_prefix("refs/heads/") == Some(branch))
    }
}

/// Proof that the sender of a request knows the webhook secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookSignature {
    /// HMAC-SHA256 of the body (GitHub, Gitea, Forgejo).
    Hmac(Vec<u8>),
    /// The secret itself (GitLab).
    Token(Vec<u8>),
}

impl WebhookSignature {
    /// Reads the proof from the headers of a request; `None` if it is missing or malformed.
    pub fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        if let Some(given) = text("x-hub-signature-256") {
            return given.strip_prefix("sha256=").and_then(from_hex).map(WebhookSignature::Hmac);
        }
        for name in ["x-gitea-signature", "x-forgejo-signature"] {
            if let Some(given) = text(name) {
                return from_hex(given).map(WebhookSignature::Hmac);
            }
        }
        headers
            .get("x-gitlab-token")
            .map(|token| WebhookSignature::Token(token.as_bytes().to_vec()))
    }

    /// Verifies the proof for a body, in constant time.
    pub fn verify(&self, secret: &str, body: &[u8]) -> bool {
        match self {
            WebhookSignature::Hmac(given) => {
                hmac_sha256(secret.as_bytes(), body).as_slice().ct_eq(given).into()
            }
            // Compares digests, so that timing does not even leak the length of the secret.
            WebhookSignature::Token(given) => Sha256::digest(secret.as_bytes())
                .as_slice()
                .ct_eq(Sha256::digest(given).as_slice())
                .into(),
        }
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let text = text.trim();
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    (0..32).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()).collect()
}

/// HMAC-SHA256 (RFC 2104).
fn hmac_sha256(key: &[u8], message: &[u8]) -> [u8; 32] {
    const BLOCK: usize = 64;
    let mut block = [0; BLOCK];
    if key.len() > BLOCK {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let pad = |with: u8| block.map(|byte| byte ^ with);
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize().into()
}

/// Parses a webhook request.
///
/// # Errors
/// A description of the malformed part.
pub fn parse_event(headers: &HeaderMap, body: &[u8]) -> Result<WebhookEvent, String> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let named = ["x-gitea-event", "x-forgejo-event", "x-github-event", "x-gitlab-event"];
    let event = named.into_iter().find_map(text).ok_or("the request has no event header")?;
    match event {
        "ping" => return Ok(WebhookEvent::Ping),
        "push" | "Push Hook" => {}
        other => return Ok(WebhookEvent::Other(other.chars().take(100).collect())),
    }
    let form = text("content-type")
        .is_some_and(|kind| kind.starts_with("application/x-www-form-urlencoded"));
    let payload: Value = match form {
        true => serde_json::from_str(&form_payload(body).ok_or("the form has no payload")?),
        false => serde_json::from_slice(body),
    }
    .map_err(|error| format!("the payload is not JSON: {error}"))?;
    let reference = payload["ref"].as_str().ok_or("the payload has no ref")?.to_owned();
    let after = payload["after"].as_str().filter(|after| !after.is_empty());
    let after = after.ok_or("the payload has no commit: `after` is missing")?;
    let is_deletion = after.bytes().all(|byte| byte == b'0');
    let default_branch = ["repository", "project"]
        .into_iter()
        .find_map(|place| payload[place]["default_branch"].as_str())
        .map(str::to_owned);
    Ok(WebhookEvent::Push(Push { reference, is_deletion, default_branch }))
}

/// Decodes the field `payload` of a form.
fn form_payload(body: &[u8]) -> Option<String> {
    let field =
        body.split(|byte| *byte == b'&').find_map(|field| field.strip_prefix(b"payload="))?;
    let mut decoded = Vec::with_capacity(field.len());
    let mut bytes = field.iter().copied();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => {
                let pair = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(std::str::from_utf8(&pair).ok()?, 16).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use orrery_base::hex::to_hex;

    fn headers(given: &[(&'static str, &str)]) -> HeaderMap {
        given.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn signatures_are_those_of_rfc_4231() {
        let jefe = hmac_sha256(b"Jefe", b"what do ya want for nothing?");
        assert_eq!(
            to_hex(&jefe),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        let long =
            hmac_sha256(&[0xaa; 131], b"Test Using Larger Than Block-Size Key - Hash Key First");
        assert_eq!(
            to_hex(&long),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }

    #[test]
    fn each_forge_signs_in_its_own_way() {
        let (secret, body) = ("a secret", b"{}".as_slice());
        let signed = to_hex(&hmac_sha256(secret.as_bytes(), body));
        let proves = |given: &[(&'static str, &str)]| {
            WebhookSignature::from_headers(&headers(given))
                .is_some_and(|signature| signature.verify(secret, body))
        };
        assert!(proves(&[("x-hub-signature-256", &format!("sha256={signed}"))]));
        assert!(proves(&[("x-gitea-signature", &signed)]));
        assert!(proves(&[("x-forgejo-signature", &signed)]));
        assert!(proves(&[("x-gitlab-token", secret)]));
        let other = signed.replace(|c: char| c.is_ascii_digit(), "a");
        assert!(!proves(&[("x-hub-signature-256", &format!("sha256={other}"))]));
        assert!(!proves(&[("x-hub-signature-256", &signed)]), "without its prefix");
        assert!(!proves(&[("x-gitea-signature", &signed[..62])]));
        assert!(!proves(&[("x-gitlab-token", "a secre")]));
        assert!(!proves(&[("x-gitlab-token", "")]));
        assert!(!proves(&[]));
    }

    #[test]
    fn pushes_are_read_from_each_forge() {
        let github =
            br#"{"ref":"refs/heads/main","after":"ab12","repository":{"default_branch":"main"}}"#;
        let read = |event: (&'static str, &str), body: &[u8]| parse_event(&headers(&[event]), body);
        let Ok(WebhookEvent::Push(push)) = read(("x-github-event", "push"), github) else {
            panic!()
        };
        assert!(!push.is_deletion);
        assert!(push.is_to("main") && push.is_to("") && !push.is_to("mai") && !push.is_to("dev"));
        let gitlab =
            br#"{"ref":"refs/heads/dev","after":"0000","project":{"default_branch":"main"}}"#;
        let Ok(WebhookEvent::Push(push)) = read(("x-gitlab-event", "Push Hook"), gitlab) else {
            panic!()
        };
        assert!(push.is_deletion && push.is_to("dev") && !push.is_to(""));
        let without = read(("x-github-event", "push"), br#"{"ref":"refs/heads/main"}"#);
        assert!(without.unwrap_err().contains("`after`"));
        assert_eq!(read(("x-github-event", "ping"), b"{}"), Ok(WebhookEvent::Ping));
        let issue = read(("x-gitea-event", "issues"), b"no JSON at all");
        assert_eq!(issue, Ok(WebhookEvent::Other("issues".to_owned())));
        assert!(read(("x-github-event", "push"), b"[").is_err());
        assert!(read(("x-other", "push"), github).is_err());
        let kind = ("content-type", "application/x-www-form-urlencoded");
        let form = b"payload=%7B%22ref%22%3A+%22refs%2Fheads%2Fmain%22%2C%22after%22%3A%221%22%7D";
        let read = parse_event(&headers(&[("x-github-event", "push"), kind]), form);
        assert!(
            matches!(read, Ok(WebhookEvent::Push(push)) if push.reference == "refs/heads/main")
        );
    }
}
