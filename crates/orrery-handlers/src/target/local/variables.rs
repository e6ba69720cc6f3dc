//! Environment variables that commands inherit.

use std::ffi::{OsStr, OsString};

/// Selection of inherited variables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Variables {
    /// All: the user of this process runs the commands.
    #[default]
    All,
    /// All but the configuration of this program.
    WithoutOwn,
    /// Only variables about the machine's setup: others may contain secrets.
    Standard,
}

/// Prefix of this program's configuration.
const ORRERY_PREFIX: &str = "ORRERY_";

/// Machine setup: paths, language, proxies.
const STANDARD: [&str; 26] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TERM",
    "TMPDIR",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_DIRS",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "DEBIAN_FRONTEND",
    "http_proxy",
    "https_proxy",
    "ftp_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "FTP_PROXY",
    "NO_PROXY",
];

impl Variables {
    /// Returns true if commands inherit the variable.
    pub fn include(self, name: &OsStr) -> bool {
        match self {
            Variables::All => true,
            Variables::WithoutOwn => !is_orrery_variable(name),
            Variables::Standard => name
                .to_str()
                .is_some_and(|name| STANDARD.contains(&name) || name.starts_with("LC_")),
        }
    }

    /// Inherited variables of this process.
    pub fn collect(self) -> impl Iterator<Item = (OsString, OsString)> {
        std::env::vars_os().filter(move |(name, _)| self.include(name))
    }
}

/// Returns true for a configuration variable of this program.
pub fn is_orrery_variable(name: &OsStr) -> bool {
    name.as_encoded_bytes().to_ascii_uppercase().starts_with(ORRERY_PREFIX.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_a_server_are_not_inherited() {
        let includes = |variables: Variables, name: &str| variables.include(OsStr::new(name));
        for name in
            ["ORRERY_ADMIN_PASSWORD", "ORRERY_DATABASE", "PGPASSWORD", "AWS_SECRET_ACCESS_KEY"]
        {
            assert!(!includes(Variables::Standard, name), "{name}");
            assert!(includes(Variables::All, name), "{name}");
        }
        for name in ["PATH", "LC_ALL", "LANG", "https_proxy"] {
            assert!(includes(Variables::Standard, name), "{name}");
        }
        assert!(!includes(Variables::WithoutOwn, "ORRERY_TOKEN"));
        assert!(includes(Variables::WithoutOwn, "PGPASSWORD"));
    }
}
