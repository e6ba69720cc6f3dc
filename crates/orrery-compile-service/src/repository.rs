//! Repositories of models: validation of URLs, and the git commands.

use std::path::{Path, PathBuf};

use orrery_base::hex::to_hex;
use orrery_model::SecretText;
use sha2::{Digest as _, Sha256};

use crate::child::ChildCommand;
use crate::output_filter::{REDACTED, mask_userinfo};

/// Reason why a URL or branch is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RepositoryError {
    #[error("the environment has no repository; set one, or push versions with `orrery export`")]
    None,
    #[error("{0} is not a git repository URL: expected https://…, ssh://… or name@host:path")]
    Address(String),
    #[error(
        "{0} is on the server's own machine; the administrator can allow it: orrery server --allow-local-repositories"
    )]
    Local(String),
    #[error("{0:?} is not a branch name")]
    Branch(String),
}

/// A validated repository and branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Repository {
    pub(crate) url: String,
    /// Empty for the default branch.
    pub(crate) branch: String,
    /// Protocols that git may use.
    protocols: &'static str,
    /// Userinfo of the URL. It appears in no argument and in no file of the checkout.
    credential: Option<SecretText>,
}

/// Head of a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) commit: String,
    /// Name of the branch, resolved if it is the default one.
    pub(crate) branch: String,
}

fn is_local_host(host: &str) -> bool {
    matches!(host, "localhost" | "127.0.0.1" | "[::1]")
}

/// Checks that a server may use this repository and branch.
///
/// # Errors
/// The reason for a rejection.
pub fn check_repository(url: &str, branch: &str, local: bool) -> Result<(), RepositoryError> {
    Repository::new(url, branch, local).map(drop)
}

/// Masks the password of a URL. A user name alone is masked only where it is a token.
pub fn mask_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let Some((user, host)) = authority.rsplit_once('@') else { return url.to_owned() };
    match user.split_once(':') {
        None if scheme.contains("ssh") => url.to_owned(),
        None => format!("{scheme}://***@{host}{path}"),
        Some((name, _)) => format!("{scheme}://{name}:***@{host}{path}"),
    }
}

/// Splits a URL into the one to store and show, and the credential to seal. A masked password is
/// not a credential.
pub(crate) fn split_credential(url: &str) -> (String, Option<SecretText>) {
    let url = url.trim();
    let Some((scheme, userinfo, rest)) = userinfo_of(url) else { return (url.to_owned(), None) };
    if scheme.contains("ssh") {
        // Git passes no password to ssh.
        let name = userinfo.split(':').next().unwrap_or_default();
        return (format!("{scheme}://{name}@{rest}"), None);
    }
    let secret = (!is_hidden(userinfo)).then(|| SecretText::new(userinfo));
    (mask_password(url), secret)
}

/// Restores the sealed credential in a URL.
pub(crate) fn with_credential(url: &str, credential: &SecretText) -> String {
    match userinfo_of(url) {
        Some((scheme, userinfo, rest)) if is_hidden(userinfo) => {
            format!("{scheme}://{}@{rest}", credential.expose())
        }
        _ => url.to_owned(),
    }
}

/// Returns host and port of a URL with a scheme.
pub(crate) fn authority_of(url: &str) -> Option<&str> {
    let (_, rest) = url.trim().split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    Some(authority.rsplit_once('@').map_or(authority, |(_, host)| host))
}

/// True if the password of a URL is masked.
pub(crate) fn has_hidden_password(url: &str) -> bool {
    userinfo_of(url.trim()).is_some_and(|(_, userinfo, _)| is_hidden(userinfo))
}

fn is_hidden(userinfo: &str) -> bool {
    userinfo.split_once(':').map_or(userinfo, |(_, password)| password) == REDACTED
}

/// Splits a URL into scheme, userinfo, and the rest from the host on.
fn userinfo_of(url: &str) -> Option<(&str, &str, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let at = rest[..end].rfind('@')?;
    Some((scheme, &rest[..at], &rest[at + 1..]))
}

impl Repository {
    pub(crate) fn new(url: &str, branch: &str, local: bool) -> Result<Self, RepositoryError> {
        check_branch(branch)?;
        let url = url.trim();
        if url.is_empty() {
            return Err(RepositoryError::None);
        }
        let shown = || mask_userinfo(url);
        // A leading dash would make it an option, and `x::y` runs a program.
        let odd = url.starts_with('-') || url.contains("::") || url.chars().any(char::is_control);
        if odd && !is_ipv6(url) {
            return Err(RepositoryError::Address(shown()));
        }
        let protocols = match url.split_once("://") {
            Some(("https" | "ssh" | "git+ssh", rest)) if host_of(rest).is_some() => "https:ssh",
            Some(("http", rest)) if host_of(rest).is_some_and(is_local_host) => {
                if !local {
                    return Err(RepositoryError::Local(shown()));
                }
                "https:ssh:http"
            }
            Some(("file", _)) => local_only(local, shown)?,
            Some(_) => return Err(RepositoryError::Address(shown())),
            None if is_remote_path(url) => "https:ssh",
            None if Path::new(url).is_absolute() => local_only(local, shown)?,
            None => return Err(RepositoryError::Address(shown())),
        };
        let (url, credential) = match userinfo_of(url) {
            Some((scheme @ ("https" | "http"), userinfo, rest)) => {
                let credential = (!is_hidden(userinfo)).then(|| SecretText::new(userinfo));
                (format!("{scheme}://{rest}"), credential)
            }
            _ => (url.to_owned(), None),
        };
        Ok(Repository { url, branch: branch.to_owned(), protocols, credential })
    }

    /// Identifies the repository of a checkout, without revealing its URL.
    pub(crate) fn fingerprint(&self) -> String {
        to_hex(&Sha256::digest(self.url.as_bytes()))
    }

    /// Identifies the repository and branch of a stored head.
    pub(crate) fn source(&self) -> String {
        let digest =
            Sha256::new().chain_update(&self.url).chain_update([0]).chain_update(&self.branch);
        to_hex(&digest.finalize())
    }

    /// Command that lists the head of the branch, without fetching.
    pub(crate) fn list_head(&self) -> ChildCommand {
        let command = self.git(None).arg("ls-remote");
        match &*self.branch {
            "" => command.arg("--symref").arg("--").arg(&self.url).arg("HEAD"),
            branch => {
                let command = command.arg("--").arg(&self.url);
                let tag = format!("refs/tags/{branch}");
                command.arg(format!("refs/heads/{branch}")).arg(format!("{tag}^{{}}")).arg(tag)
            }
        }
    }

    /// Parses the output of `list_head`; `None` if the repository does not have the branch.
    pub(crate) fn parse_head(&self, answer: &str) -> Option<Head> {
        let lines: Vec<(&str, &str)> =
            answer.lines().filter_map(|line| line.split_once('\t')).collect();
        let is_commit = |text: &str| {
            (40..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        let at = |name: &str| {
            let mut found = lines.iter().filter(|(commit, of)| *of == name && is_commit(commit));
            found.next().map(|(commit, _)| (*commit).to_owned())
        };
        if !self.branch.is_empty() {
            let branch = self.branch.clone();
            let tag = format!("refs/tags/{branch}");
            let commit = at(&format!("refs/heads/{branch}"))
                .or_else(|| at(&format!("{tag}^{{}}")))
                .or_else(|| at(&tag))?;
            return Some(Head { commit, branch });
        }
        let named = lines.iter().find(|(left, of)| *of == "HEAD" && left.starts_with("ref: "));
        let branch = named.and_then(|(left, _)| left.strip_prefix("ref: refs/heads/"));
        Some(Head { commit: at("HEAD")?, branch: branch.unwrap_or("HEAD").to_owned() })
    }

    fn git(&self, directory: Option<&Path>) -> ChildCommand {
        let command = git(directory).env("GIT_ALLOW_PROTOCOL", self.protocols);
        match self.credential_line() {
            // In the format of git's `store` helper, in a file that exists only while git runs.
            Some(line) => command
                .arg("-c")
                .arg("credential.helper=")
                .arg("-c")
                .arg_with_private_file("credential.helper=store --file=", line),
            None => command,
        }
    }

    /// Returns the credential in the format of `git credential-store`.
    fn credential_line(&self) -> Option<SecretText> {
        let credential = self.credential.as_ref()?.expose();
        let (scheme, _) = self.url.split_once("://")?;
        let password = if credential.contains(':') { "" } else { ":" };
        let host = authority_of(&self.url)?;
        Some(SecretText::new(format!("{scheme}://{credential}{password}@{host}\n")))
    }

    /// Command that prints the current commit.
    pub(crate) fn commit(checkout: &Path) -> ChildCommand {
        git(Some(checkout)).arg("rev-parse").arg("--verify").arg("HEAD")
    }

    pub(crate) fn clone_into(&self, directory: &Path) -> ChildCommand {
        let mut command = self.git(None).arg("clone").arg("--no-recurse-submodules");
        if !self.branch.is_empty() {
            command = command.arg("--branch").arg(&self.branch);
        }
        command.arg("--").arg(&self.url).arg(directory)
    }

    pub(crate) fn fetch(&self, checkout: &Path) -> ChildCommand {
        let heads = "+refs/heads/*:refs/remotes/origin/*";
        let all = ["fetch", "--prune", "--tags", "--force", "--no-recurse-submodules"];
        let command = all.iter().fold(self.git(Some(checkout)), |command, word| command.arg(word));
        command.arg("--").arg("origin").arg(heads)
    }

    /// Command that prints the current branch; fails on a detached head.
    pub(crate) fn current_branch(&self, checkout: &Path) -> ChildCommand {
        let words = ["symbolic-ref", "--quiet", "--short", "HEAD"];
        words.iter().fold(self.git(Some(checkout)), |command, word| command.arg(word))
    }

    /// Command that fails if the repository does not have the branch.
    pub(crate) fn upstream(&self, checkout: &Path, branch: &str) -> ChildCommand {
        let name = format!("refs/remotes/origin/{branch}");
        self.git(Some(checkout)).arg("rev-parse").arg("--verify").arg("--quiet").arg(name)
    }

    pub(crate) fn switch(&self, checkout: &Path) -> ChildCommand {
        let command = self.git(Some(checkout)).arg("checkout").arg("--force");
        command.arg(&self.branch).arg("--")
    }

    /// Command that fails if the fetched branch does not contain this commit.
    pub(crate) fn has_commit(&self, checkout: &Path, branch: &str, commit: &str) -> ChildCommand {
        let name = format!("refs/remotes/origin/{branch}");
        self.git(Some(checkout)).arg("merge-base").arg("--is-ancestor").arg(commit).arg(name)
    }

    /// Command that resets the checkout to a commit.
    pub(crate) fn reset_to(&self, checkout: &Path, commit: &str) -> ChildCommand {
        self.git(Some(checkout)).arg("reset").arg("--hard").arg(commit).arg("--")
    }

    /// Command that resets the checkout to the fetched branch, even after a rewritten history.
    pub(crate) fn reset_to_branch(&self, checkout: &Path, branch: &str) -> ChildCommand {
        let name = format!("refs/remotes/origin/{branch}");
        self.git(Some(checkout)).arg("reset").arg("--hard").arg(name).arg("--")
    }
}

/// Git without prompts, hooks and other programs.
fn git(directory: Option<&Path>) -> ChildCommand {
    let mut command = ChildCommand::new(PathBuf::from("git"));
    // Neither a repository nor the machine may make git run programs or prompt.
    for setting in [
        "core.hooksPath=/dev/null",
        "core.fsmonitor=false",
        "core.askPass=",
        "protocol.ext.allow=never",
        "submodule.recurse=false",
        "advice.detachedHead=false",
    ] {
        command = command.arg("-c").arg(setting);
    }
    if let Some(directory) = directory {
        command = command.directory(directory);
    }
    command
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_ASKPASS", "")
        .env("SSH_ASKPASS", "")
        .env("GIT_ALLOW_PROTOCOL", "https:ssh")
        .ssh_batch_mode()
}

fn local_only(local: bool, shown: impl Fn() -> String) -> Result<&'static str, RepositoryError> {
    if local { Ok("https:ssh:file") } else { Err(RepositoryError::Local(shown())) }
}

/// Returns the host behind `://`; `None` if it is missing or would be parsed as an option.
fn host_of(rest: &str) -> Option<&str> {
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = match host.find(']') {
        Some(end) => &host[..=end],
        None => host.split(':').next()?,
    };
    (!host.is_empty() && !host.starts_with('-')).then_some(host)
}

fn is_ipv6(url: &str) -> bool {
    url.split_once("://").and_then(|(_, rest)| host_of(rest)).is_some_and(|h| h.starts_with('['))
}

/// True for `name@host:path`.
fn is_remote_path(url: &str) -> bool {
    let Some((host, path)) = url.split_once(':') else { return false };
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    !host.is_empty() && !host.starts_with('-') && host.chars().all(plain) && !path.is_empty()
}

/// Checks a branch name: like git, and stricter where a name could be misinterpreted.
fn check_branch(branch: &str) -> Result<(), RepositoryError> {
    let odd_part = |part: &str| part.starts_with('.') || part.ends_with(".lock");
    // As an argument of a fetch, `+main` is `main`, and `HEAD` the default branch.
    let bad = branch.starts_with(['-', '+', '/'])
        || branch.ends_with(['/', '.'])
        || branch.split('/').any(odd_part)
        || matches!(branch, "@" | "HEAD")
        || branch.contains("..")
        || branch.contains("//")
        || branch.contains("@{")
        || branch.chars().any(|c| c.is_control() || c.is_whitespace() || "~^:?*[\\".contains(c));
    if bad { Err(RepositoryError::Branch(branch.to_owned())) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_and_ssh_unless_the_administrator_says_otherwise() {
        let is = |url: &str, local: bool| check_repository(url, "main", local);
        for url in
            ["https://h/x.git", "https://a:b@h:8443/x", "ssh://git@h/x", "git@h:a/b.git", "h:x"]
        {
            assert_eq!(is(url, false), Ok(()), "{url}");
        }
        for url in ["/srv/x.git", "file:///srv/x", "http://127.0.0.1:80/x", "http://a@localhost/x"]
        {
            assert!(matches!(is(url, false), Err(RepositoryError::Local(_))), "{url}");
            assert_eq!(is(url, true), Ok(()), "{url}");
        }
        for url in [
            "ext::sh -c id",
            "--upload-pack=id",
            "http://h/x",
            "git://h/x",
            "ftp://h/x",
            "x/y",
            "../x",
            "-oProxyCommand=id:x",
            "ssh://-oProxyCommand=id/x",
            "https:///x",
            "fd::3",
            "a\nb:c",
            "https://h\r/x",
        ] {
            assert!(matches!(is(url, true), Err(RepositoryError::Address(_))), "{url}");
        }
        assert_eq!(is(" ", true), Err(RepositoryError::None));
    }

    #[test]
    fn a_branch_is_never_an_option_or_an_expression() {
        let is = |branch: &str| check_repository("https://h/x", branch, false).is_ok();
        assert!(["", "main", "feature/x-1", "v1.2.3", "a+b", "a@b"].into_iter().all(is));
        for branch in ["-b", "a..b", "a b", "a~1", "@{u}", "x:y", "/a", "a/", "a.lock", "a\n"] {
            assert!(!is(branch), "{branch}");
        }
        for branch in ["+main", "a/.b", ".a", "a.lock/b", "@", "HEAD", "a\\b", "a.", "a*", "a//b"] {
            assert!(!is(branch), "{branch}");
        }
    }

    #[test]
    fn heads_are_parsed() {
        let of = |branch: &str, answer: &str| {
            Repository::new("https://h/x", branch, false).unwrap().parse_head(answer)
        };
        let (one, two) = ("1".repeat(40), "2".repeat(40));
        let head = |commit: &str, branch: &str| {
            Some(Head { commit: commit.to_owned(), branch: branch.to_owned() })
        };
        let answer = format!("ref: refs/heads/trunk\tHEAD\n{one}\tHEAD\n");
        assert_eq!(of("", &answer), head(&one, "trunk"));
        assert_eq!(of("main", &format!("{two}\trefs/heads/main\n")), head(&two, "main"));
        let tag = format!("{one}\trefs/tags/v1\n{two}\trefs/tags/v1^{{}}\n");
        assert_eq!(of("v1", &tag), head(&two, "v1"));
        assert_eq!(of("main", &format!("{two}\trefs/heads/maintenance\n")), None);
        assert_eq!((of("", ""), of("main", "warning: nothing\n")), (None, None));
    }

    #[test]
    fn addresses_are_shown_without_their_secrets() {
        for (url, shown) in [
            ("https://h/x@y", "https://h/x@y"),
            ("https://ada:word@h:8/x", "https://ada:***@h:8/x"),
            ("https://token@h", "https://***@h"),
            ("ssh://git@h/x", "ssh://git@h/x"),
            ("ssh://git:word@h/x", "ssh://git:***@h/x"),
            ("git@h:x", "git@h:x"),
        ] {
            assert_eq!(mask_password(url), shown);
        }
    }

    #[test]
    fn credentials_are_apart_from_addresses() {
        for (url, kept, secret) in [
            ("https://ada:word@h:8/x", "https://ada:***@h:8/x", Some("ada:word")),
            ("https://token@h/x", "https://***@h/x", Some("token")),
            ("https://ada:***@h/x", "https://ada:***@h/x", None),
            ("https://h/x@y", "https://h/x@y", None),
            ("ssh://git:word@h/x", "ssh://git@h/x", None),
            ("git@h:x", "git@h:x", None),
        ] {
            let (address, found) = split_credential(url);
            assert_eq!(
                (&*address, found.as_ref().map(SecretText::expose)),
                (kept, secret),
                "{url}"
            );
            if let Some(secret) = found {
                assert_eq!(with_credential(&address, &secret), url);
            }
        }
        let repository = Repository::new("https://ada:word@h:8/x", "", false).unwrap();
        assert_eq!(repository.url, "https://h:8/x");
        assert_eq!(repository.credential_line().unwrap().expose(), "https://ada:word@h:8\n");
        assert!(!format!("{repository:?}").contains("word"));
        let again = Repository::new("https://ada:other@h:8/x", "", false).unwrap();
        assert_eq!(repository.fingerprint(), again.fingerprint());
        assert!(has_hidden_password("https://ada:***@h/x") && !has_hidden_password("https://h/x"));
    }

    #[test]
    fn errors_do_not_tell_credentials() {
        let error = check_repository("ftp://ada:secret@h/x", "", false).unwrap_err().to_string();
        assert!(!error.contains("secret") && error.contains("ftp://***@h/x"), "{error}");
    }
}
