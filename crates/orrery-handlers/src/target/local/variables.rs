//! Environment variables that commands get from the process that runs them.

use std::ffi::{OsStr, OsString};

/// Which variables of this process the commands of a target get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Variables {
    /// All of them: whoever started this process runs the commands.
    #[default]
    All,
    /// All but those that this program is configured with.
    WithoutOwn,
    /// Those that say how the machine is set up, and nothing else: there may be secrets in the others.
    Usual,
}

/// How the variables begin that this program is configured with.
const OWN: &str = "ORRERY_";

/// How the machine is set up: where things are, in which language, by which way out.
const USUAL: [&str; 26] = [
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
    /// Whether commands get the variable of this name.
    pub fn include(self, name: &OsStr) -> bool {
        match self {
            Variables::All => true,
            Variables::WithoutOwn => !is_own(name),
            Variables::Usual => {
                name.to_str().is_some_and(|name| USUAL.contains(&name) || name.starts_with("LC_"))
            }
        }
    }

    /// The variables of this process that commands get.
    pub fn collect(self) -> impl Iterator<Item = (OsString, OsString)> {
        std::env::vars_os().filter(move |(name, _)| self.include(name))
    }
}

/// Whether this program is configured with the variable.
pub fn is_own(name: &OsStr) -> bool {
    name.as_encoded_bytes().to_ascii_uppercase().starts_with(OWN.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_a_server_are_not_among_the_usual_variables() {
        let includes = |variables: Variables, name: &str| variables.include(OsStr::new(name));
        for name in
            ["ORRERY_ADMIN_PASSWORD", "ORRERY_DATABASE", "PGPASSWORD", "AWS_SECRET_ACCESS_KEY"]
        {
            assert!(!includes(Variables::Usual, name), "{name}");
            assert!(includes(Variables::All, name), "{name}");
        }
        for name in ["PATH", "LC_ALL", "LANG", "https_proxy"] {
            assert!(includes(Variables::Usual, name), "{name}");
        }
        assert!(!includes(Variables::WithoutOwn, "ORRERY_TOKEN"));
        assert!(includes(Variables::WithoutOwn, "PGPASSWORD"));
    }
}
