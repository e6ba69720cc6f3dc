//! Commit statuses: endpoint and wording of each forge.

use std::time::Duration;

use orrery_model::SecretText;
use serde_json::{Value, json};

/// Timeout of a request to a forge.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of an error response that are read, and characters that are reported.
const RESPONSE_MAX: u64 = 4096;
const ERROR_TEXT_MAX: usize = 200;
/// Maximum description length that all forges accept.
const DESCRIPTION_MAX: usize = 140;

/// A kind of forge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forge {
    GitHub,
    GitLab,
    Gitea,
}

impl Forge {
    /// Returns the forge of this name; `None` for `off`.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        match name {
            "github" => Some(Forge::GitHub),
            "gitlab" => Some(Forge::GitLab),
            "gitea" => Some(Forge::Gitea),
            _ => None,
        }
    }
}

/// The status of a commit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommitReport<'a> {
    /// `owner/name`, with more parts where groups are nested.
    pub(crate) repository: &'a str,
    pub(crate) commit: &'a str,
    /// `pending`, `success` or `failure`.
    pub(crate) state: &'a str,
    pub(crate) description: &'a str,
    /// Distinguishes this status from others of the same commit.
    pub(crate) context: &'a str,
    /// Link to details.
    pub(crate) target: Option<&'a str>,
}

/// Reason why a status was not reported.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReportError {
    #[error("{url} answered {status}: {body}")]
    Refused { url: String, status: u16, body: String },
    #[error("{url} cannot be reached")]
    Unreachable {
        url: String,
        #[source]
        cause: Box<ureq::Error>,
    },
}

/// Reports commit statuses to one forge.
#[derive(Debug)]
pub(crate) struct Reporter {
    pub(crate) forge: Forge,
    /// Base URL of its API, without a trailing slash.
    pub(crate) base: String,
    pub(crate) token: SecretText,
}

impl Reporter {
    /// Reports a status.
    ///
    /// # Errors
    /// If the forge does not accept it.
    pub(crate) fn report(&self, report: &CommitReport<'_>) -> Result<(), ReportError> {
        orrery_roles::tls::install_provider();
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            .max_redirects(0);
        let agent: ureq::Agent = config.build().into();
        let (url, body) = self.request(report);
        let token = self.token.expose();
        let (name, value) = match self.forge {
            Forge::GitHub => ("authorization", format!("Bearer {token}")),
            Forge::Gitea => ("authorization", format!("token {token}")),
            Forge::GitLab => ("private-token", token.to_owned()),
        };
        let sent = agent
            .post(&url)
            .header(name, value)
            .header("accept", "application/json")
            .header("content-type", "application/json")
            .header("user-agent", concat!("orrery/", env!("CARGO_PKG_VERSION")))
            .send(body.to_string());
        let answer = match sent {
            Ok(answer) => answer,
            Err(cause) => return Err(ReportError::Unreachable { url, cause: Box::new(cause) }),
        };
        let status = answer.status();
        if status.is_success() {
            return Ok(());
        }
        let body = answer.into_body().into_with_config().limit(RESPONSE_MAX).read_to_string();
        let body = body.unwrap_or_default();
        // Keeps the token out of logs if the forge echoes the request.
        let body = body.replace(token, "***").chars().take(ERROR_TEXT_MAX).collect();
        Err(ReportError::Refused { url, status: status.as_u16(), body })
    }

    fn request(&self, report: &CommitReport<'_>) -> (String, Value) {
        let CommitReport { repository, commit, state, context, target, .. } = *report;
        let description: String = report.description.chars().take(DESCRIPTION_MAX).collect();
        let base = &self.base;
        match self.forge {
            Forge::GitHub | Forge::Gitea => (
                format!("{base}/repos/{repository}/statuses/{commit}"),
                json!({
                    "state": state, "description": description, "context": context,
                    "target_url": target.unwrap_or_default(),
                }),
            ),
            Forge::GitLab => {
                let state = if state == "failure" { "failed" } else { state };
                let mut body = json!({"state": state, "description": description, "name": context});
                if let Some(target) = target {
                    body["target_url"] = target.into();
                }
                (
                    format!("{base}/projects/{}/statuses/{commit}", repository.replace('/', "%2F")),
                    body,
                )
            }
        }
    }
}

/// Splits a repository URL into host and path, without `.git`. `None` if it has no host.
fn split_url(url: &str) -> Option<(&str, &str)> {
    let (host, path) = match url.split_once("://") {
        Some((_, rest)) => rest.split_once('/')?,
        None => url.split_once(':')?,
    };
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let path = path.trim_matches('/');
    let path = path.strip_suffix(".git").unwrap_or(path);
    (!host.is_empty() && path.contains('/')).then_some((host, path))
}

/// Returns the path of a repository at its forge: `owner/name`.
pub(crate) fn repository_path(url: &str) -> Option<&str> {
    split_url(url).map(|(_, path)| path)
}

/// Returns the default API base URL of the forge that hosts a repository.
pub(crate) fn api_base(forge: Forge, url: &str) -> Option<String> {
    let (host, _) = split_url(url)?;
    // The port of SSH is not that of the API.
    let host = match url.starts_with("https://") {
        true => host,
        false => host.split(':').next()?,
    };
    Some(match forge {
        Forge::GitHub if host == "github.com" => "https://api.github.com".to_owned(),
        Forge::GitHub => format!("https://{host}/api/v3"),
        Forge::GitLab => format!("https://{host}/api/v4"),
        Forge::Gitea => format!("https://{host}/api/v1"),
    })
}

/// True if a token may be sent to a URL: https only, or http to this machine if the administrator
/// allows it.
pub(crate) fn may_send_token(base: &str, local: bool) -> bool {
    let Some(rest) = base.strip_prefix("http://") else { return base.starts_with("https://") };
    let host = rest.split(['/', ':']).next().unwrap_or_default();
    local && matches!(host, "127.0.0.1" | "localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lead_to_the_api_of_their_forge() {
        let base = |forge, url| api_base(forge, url).unwrap();
        assert_eq!(base(Forge::GitHub, "git@github.com:a/b.git"), "https://api.github.com");
        assert_eq!(base(Forge::GitHub, "https://git.corp/a/b"), "https://git.corp/api/v3");
        assert_eq!(base(Forge::GitLab, "ssh://git@h:22/a/b/c.git"), "https://h/api/v4");
        assert_eq!(base(Forge::Gitea, "https://t:x@h:3000/a/b"), "https://h:3000/api/v1");
        assert_eq!(repository_path("ssh://git@h:22/a/b/c.git"), Some("a/b/c"));
        assert_eq!(repository_path("git@h:a/b.git"), Some("a/b"));
        assert_eq!(repository_path("/srv/model.git"), None);
    }

    #[test]
    fn tokens_travel_encrypted_or_not_at_all() {
        assert!(may_send_token("https://h/api", false));
        assert!(
            may_send_token("http://127.0.0.1:8/api", true)
                && !may_send_token("http://127.0.0.1:8", false)
        );
        assert!(!may_send_token("http://h/api", true) && !may_send_token("ftp://h", true));
        assert!(!may_send_token("http://127.0.0.1.evil.example/", true));
    }

    #[test]
    fn each_forge_has_its_own_format() {
        let token = SecretText::new("t");
        let report = CommitReport {
            repository: "a/b",
            commit: "c0",
            state: "failure",
            description: &"é".repeat(200),
            context: "orrery/p/e",
            target: None,
        };
        let request = |forge| {
            Reporter { forge, base: "https://h".to_owned(), token: token.clone() }.request(&report)
        };
        let (url, body) = request(Forge::GitLab);
        assert_eq!(
            (&*url, &body["state"]),
            ("https://h/projects/a%2Fb/statuses/c0", &json!("failed"))
        );
        let (url, body) = request(Forge::GitHub);
        assert_eq!((&*url, &body["state"]), ("https://h/repos/a/b/statuses/c0", &json!("failure")));
        assert_eq!(body["description"].as_str().unwrap().chars().count(), DESCRIPTION_MAX);
    }
}
