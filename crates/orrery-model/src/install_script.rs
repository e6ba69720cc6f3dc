//! Boot script that installs a remote agent on a machine: plain shell, and cloud-init user data.
//!
//! The script is rendered from data alone, so that the command line and a model produce the same.
//! Values are quoted as shell words, and the token is in no argument of a process.

use std::fmt;

use crate::{SecretText, shell_word};

const SCRIPT: &str = include_str!("../../../packaging/install-agent.sh");
/// systemd unit of the agent, for handlers with the rights of root.
pub const AGENT_UNIT: &str = include_str!("../../../packaging/orrery-agent.service");

/// Settings of the unit for an agent without the rights of root. The files of its user remain
/// accessible.
const UNPRIVILEGED: &str = "\
NoNewPrivileges=yes
CapabilityBoundingSet=
ProtectClock=yes
ProtectControlGroups=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
RestrictNamespaces=yes
RestrictSUIDSGID=yes
";

/// Path of the script on a machine that cloud-init prepares; gone after the next boot.
const CLOUD_INIT_PATH: &str = "/run/orrery-agent-install.sh";

/// Source of the agent's program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramSource {
    /// The gateway serves the program of this architecture.
    Gateway { architecture: String, sha256: String },
    /// A URL, with the digest of its content.
    Url { url: String, sha256: String },
    /// A path on the machine, for images that contain the program.
    Path { path: String, sha256: Option<String> },
}

/// A boot script.
#[derive(Clone, Debug)]
pub struct InstallScript {
    /// Address of the gateway, as `host:port`.
    pub gateway: String,
    pub token: SecretText,
    pub program: ProgramSource,
    /// User that runs the agent; root if absent.
    pub user: Option<String>,
}

/// Reason why a value cannot be part of a boot script.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InstallScriptError {
    #[error("{what} {given:?}: expected {expected}")]
    Invalid { what: &'static str, given: String, expected: &'static str },
}

impl InstallScript {
    /// Renders the script for a POSIX shell.
    ///
    /// # Errors
    /// If a value is malformed.
    pub fn shell(&self) -> Result<String, InstallScriptError> {
        self.check()?;
        let (source, sha256, architecture) = match &self.program {
            ProgramSource::Gateway { architecture, sha256 } => ("", &**sha256, &**architecture),
            ProgramSource::Url { url, sha256 } => (&**url, &**sha256, ""),
            ProgramSource::Path { path, sha256 } => {
                (&**path, sha256.as_deref().unwrap_or_default(), "")
            }
        };
        let values = [
            ("@GATEWAY_COMMENT@", self.gateway.clone()),
            ("@GATEWAY@", shell_word(&self.gateway)),
            ("@TOKEN@", shell_word(self.token.expose())),
            ("@SOURCE@", shell_word(source)),
            ("@SHA256@", shell_word(sha256)),
            ("@ARCHITECTURE@", shell_word(architecture)),
            ("@USER@", shell_word(self.user.as_deref().unwrap_or_default())),
            ("@UNIT@", self.unit()),
        ];
        Ok(replace_each(SCRIPT, &values))
    }

    /// Renders user data for cloud-init, which runs the script at the first boot.
    ///
    /// # Errors
    /// If a value is malformed.
    pub fn cloud_init(&self) -> Result<String, InstallScriptError> {
        let script = Base64(self.shell()?.into_bytes());
        Ok(format!(
            "#cloud-config\n\
             write_files:\n\
             - path: {CLOUD_INIT_PATH}\n\
             \x20 owner: root:root\n\
             \x20 permissions: '0700'\n\
             \x20 encoding: b64\n\
             \x20 content: {script}\n\
             runcmd:\n\
             - [sh, -c, 'sh {CLOUD_INIT_PATH} && rm -f {CLOUD_INIT_PATH}']\n"
        ))
    }

    /// The systemd unit.
    fn unit(&self) -> String {
        match &self.user {
            None => AGENT_UNIT.to_owned(),
            Some(user) => {
                let with = format!("[Service]\nUser={user}\n{UNPRIVILEGED}");
                AGENT_UNIT.replacen("[Service]\n", &with, 1)
            }
        }
    }

    fn check(&self) -> Result<(), InstallScriptError> {
        let invalid = |what, given: &str, expected| {
            Err(InstallScriptError::Invalid { what, given: given.to_owned(), expected })
        };
        let is_host = |one: char| one.is_ascii_alphanumeric() || "-_.:[]".contains(one);
        if !self.gateway.contains(':') || !self.gateway.chars().all(is_host) {
            return invalid("gateway", &self.gateway, "host:port");
        }
        let is_token = |one: char| one.is_ascii_alphanumeric() || "-_.".contains(one);
        if self.token.expose().is_empty() || !self.token.expose().chars().all(is_token) {
            return invalid("token", "…", "a token of orrery agent invite");
        }
        let digest = match &self.program {
            ProgramSource::Gateway { sha256, .. } | ProgramSource::Url { sha256, .. } => {
                Some(sha256)
            }
            ProgramSource::Path { sha256, .. } => sha256.as_ref(),
        };
        let is_digest = |text: &str| {
            text.len() == 64 && text.bytes().all(|one| matches!(one, b'0'..=b'9' | b'a'..=b'f'))
        };
        if let Some(digest) = digest.filter(|digest| !is_digest(digest)) {
            return invalid("SHA-256", digest, "64 hexadecimal digits in lower case");
        }
        match &self.program {
            ProgramSource::Url { url, .. }
                if !(url.starts_with("https://") || url.starts_with("http://"))
                    || url.chars().any(|one| one.is_whitespace() || one.is_control()) =>
            {
                return invalid("URL", url, "https://…");
            }
            ProgramSource::Path { path, .. }
                if !path.starts_with('/') || path.chars().any(char::is_control) =>
            {
                return invalid("path", path, "an absolute path");
            }
            _ => {}
        }
        let is_name = |one: char| one.is_ascii_alphanumeric() || "-_".contains(one);
        match &self.user {
            Some(user)
                if !user.starts_with(|one: char| one.is_ascii_alphabetic() || one == '_')
                    || !user.chars().all(is_name) =>
            {
                invalid("user", user, "a name of a user, such as orrery")
            }
            _ => Ok(()),
        }
    }
}

/// Replaces placeholders in one pass, so that no value is searched for placeholders.
fn replace_each(template: &str, values: &[(&str, String)]) -> String {
    let mut out = String::with_capacity(template.len() * 2);
    let mut rest = template;
    while let Some(at) = rest.find('@') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        match values.iter().find(|(name, _)| rest.starts_with(name)) {
            Some((name, value)) => {
                out.push_str(value);
                rest = &rest[name.len()..];
            }
            None => {
                out.push('@');
                rest = &rest[1..];
            }
        }
    }
    out.push_str(rest);
    out
}

/// Bytes in Base64.
struct Base64(Vec<u8>);

impl fmt::Display for Base64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        for chunk in self.0.chunks(3) {
            let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
            let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
            for digit in 0..4 {
                let shown = if digit <= chunk.len() {
                    char::from(DIGITS[(bits >> (18 - 6 * digit) & 63) as usize])
                } else {
                    '='
                };
                write!(f, "{shown}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(program: ProgramSource) -> InstallScript {
        InstallScript {
            gateway: "gw.example.com:8889".to_owned(),
            token: SecretText::new("orrj_abc-_.0123"),
            program,
            user: None,
        }
    }

    fn path(path: &str) -> ProgramSource {
        ProgramSource::Path { path: path.to_owned(), sha256: None }
    }

    fn is_shell(text: &str) -> bool {
        let mut sh = std::process::Command::new("sh");
        let sh = sh.arg("-n").stdin(std::process::Stdio::piped()).spawn();
        let mut sh = sh.unwrap();
        std::io::Write::write_all(&mut sh.stdin.take().unwrap(), text.as_bytes()).unwrap();
        sh.wait().unwrap().success()
    }

    #[test]
    fn values_are_quoted_and_the_result_is_a_shell_script() {
        let odd = path("/opt/it's $(touch x) @TOKEN@/agent");
        let text = script(odd).shell().unwrap();
        assert!(text.contains(r"source='/opt/it'\''s $(touch x) @TOKEN@/agent'"), "{text}");
        assert!(text.contains("token=orrj_abc-_.0123\n") && !text.contains("@UNIT@"));
        assert!(is_shell(&text));
        let user = InstallScript { user: Some("orrery".to_owned()), ..script(path("/a")) };
        let text = user.shell().unwrap();
        assert!(text.contains("[Service]\nUser=orrery\nNoNewPrivileges=yes\n"), "{text}");
        assert!(is_shell(&text));
    }

    #[test]
    fn malformed_values_are_refused() {
        let good = script(path("/a"));
        let sha256 = "0".repeat(64);
        let url = |url: &str| ProgramSource::Url { url: url.to_owned(), sha256: sha256.clone() };
        for bad in [
            InstallScript { gateway: "gw;reboot:1".to_owned(), ..good.clone() },
            InstallScript { gateway: "gw".to_owned(), ..good.clone() },
            InstallScript { token: SecretText::new("a b"), ..good.clone() },
            InstallScript { user: Some("a\nUser=root".to_owned()), ..good.clone() },
            script(path("relative")),
            script(path("/a\nb")),
            script(url("ftp://x")),
            script(url("https://x y")),
            script(ProgramSource::Url { url: "https://x".to_owned(), sha256: "12".to_owned() }),
        ] {
            assert!(bad.shell().is_err(), "{bad:?}");
        }
        script(url("https://x/y")).shell().unwrap();
    }

    #[test]
    fn cloud_init_gets_the_same_script_in_base64() {
        assert_eq!(Base64(b"hello\n".to_vec()).to_string(), "aGVsbG8K");
        assert_eq!(Base64(b"ab".to_vec()).to_string(), "YWI=");
        assert_eq!(Base64(b"a".to_vec()).to_string(), "YQ==");
        let script = script(path("/a"));
        let encoded = Base64(script.shell().unwrap().into_bytes()).to_string();
        let text = script.cloud_init().unwrap();
        assert!(text.starts_with("#cloud-config\n") && text.contains(&encoded));
        assert!(text.contains("permissions: '0700'"));
    }
}
