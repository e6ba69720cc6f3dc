//! States of commits, as forges show them beside a commit: where each forge takes them, and in which words.

use std::time::Duration;

use orrery_model::SecretText;
use serde_json::{Value, json};

/// How long a forge may take to answer.
const TIME_MAX: Duration = Duration::from_secs(10);
/// So much of an answer is read and told.
const ANSWER_MAX: u64 = 4096;
const TOLD_MAX: usize = 200;
/// Forges take no longer descriptions.
const DESCRIPTION_MAX: usize = 140;

/// A kind of forge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forge {
    GitHub,
    GitLab,
    Gitea,
}

impl Forge {
    /// The forge of this name; `None` for `off`.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "github" => Some(Forge::GitHub),
            "gitlab" => Some(Forge::GitLab),
            "gitea" => Some(Forge::Gitea),
            _ => None,
        }
    }
}

/// A state of a commit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report<'a> {
    /// `owner/name`, with more parts where groups are nested.
    pub(crate) repository: &'a str,
    pub(crate) commit: &'a str,
    /// `pending`, `success` or `failure`.
    pub(crate) state: &'a str,
    pub(crate) description: &'a str,
    /// What tells this report from others about the same commit.
    pub(crate) context: &'a str,
    /// Where people read more.
    pub(crate) target: Option<&'a str>,
}

/// Why a state was not reported.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReportError {
    #[error("{url} answered {status}: {told}")]
    Refused { url: String, status: u16, told: String },
    #[error("{url} cannot be reached")]
    Unreachable {
        url: String,
        #[source]
        cause: Box<ureq::Error>,
    },
}

/// Reports states to one forge.
#[derive(Debug)]
pub(crate) struct Reporter {
    pub(crate) forge: Forge,
    /// Where its API begins, without a slash at the end.
    pub(crate) base: String,
    pub(crate) token: SecretText,
}

impl Reporter {
    /// Reports a state.
    ///
    /// # Errors
    /// If the forge does not take it.
    pub(crate) fn report(&self, report: &Report<'_>) -> Result<(), ReportError> {
        crate::tls::install_provider();
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(TIME_MAX))
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
        let told = answer.into_body().into_with_config().limit(ANSWER_MAX).read_to_string();
        let told = told.unwrap_or_default();
        // A forge that repeats what it was sent does not get the token into a log.
        let told = told.replace(token, "***").chars().take(TOLD_MAX).collect();
        Err(ReportError::Refused { url, status: status.as_u16(), told })
    }

    fn request(&self, report: &Report<'_>) -> (String, Value) {
        let Report { repository, commit, state, context, target, .. } = *report;
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

/// The host of a repository and its path there, without what is added for git. `None` if the address has no host.
fn parts_of(url: &str) -> Option<(&str, &str)> {
    let (host, path) = match url.split_once("://") {
        Some((_, rest)) => rest.split_once('/')?,
        None => url.split_once(':')?,
    };
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let path = path.trim_matches('/');
    let path = path.strip_suffix(".git").unwrap_or(path);
    (!host.is_empty() && path.contains('/')).then_some((host, path))
}

/// The path of a repository at its forge: `owner/name`.
pub(crate) fn path_of(url: &str) -> Option<&str> {
    parts_of(url).map(|(_, path)| path)
}

/// Where the API of the forge that hosts a repository begins, if nobody says otherwise.
pub(crate) fn api_base(forge: Forge, url: &str) -> Option<String> {
    let (host, _) = parts_of(url)?;
    // The port of ssh is not that of the API.
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

/// Whether a token may be sent to an address: by https; without, only on this machine and if its administrator allows that.
pub(crate) fn may_be_told(base: &str, local: bool) -> bool {
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
        assert_eq!(path_of("ssh://git@h:22/a/b/c.git"), Some("a/b/c"));
        assert_eq!(path_of("git@h:a/b.git"), Some("a/b"));
        assert_eq!(path_of("/srv/model.git"), None);
    }

    #[test]
    fn tokens_travel_encrypted_or_not_at_all() {
        assert!(may_be_told("https://h/api", false));
        assert!(
            may_be_told("http://127.0.0.1:8/api", true)
                && !may_be_told("http://127.0.0.1:8", false)
        );
        assert!(!may_be_told("http://h/api", true) && !may_be_told("ftp://h", true));
        assert!(!may_be_told("http://127.0.0.1.evil.example/", true));
    }

    #[test]
    fn each_forge_has_its_words() {
        let token = SecretText::new("t");
        let report = Report {
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
