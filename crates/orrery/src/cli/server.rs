//! Arguments of `orrery server`: the same options as flags, environment variables and configuration
//! file keys.

use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use orrery_server::IssuerSettings;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Error as _, IntoDeserializer as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Run a server
///
/// Accepts models over HTTP or compiles them from git, deploys released versions, and keeps them
/// compliant. By default, it listens on localhost and stores everything in one file.
#[derive(Debug, Args)]
#[command(after_help = "\
Every option can also be set in the configuration file, under its name without leading dashes
(`listen = \"127.0.0.1:8888\"`), or by an environment variable. Flags override variables, and
variables override the file.

While there is no account, the server prints a link to create the first one. The variable
ORRERY_ADMIN_PASSWORD creates the account `admin` with that password instead. External issuers of tokens,
for single sign-on, are [[issuers]] sections of the file.

Examples:
  orrery server                                             all roles, state in one file
  orrery server --database postgres://orrery@db/orrery      state in PostgreSQL
  orrery server --role api --database postgres://…          one of several servers
  orrery server --gateway-listen 0.0.0.0:8889 --gateway-address orrery.example.com:8889
                                                            remote agents from everywhere

Exit codes: 0 stopped, 1 error.")]
pub(crate) struct Server {
    /// Configuration file [default: /etc/orrery/server.toml, if it exists]
    #[arg(long, value_name = "FILE", env = "ORRERY_CONFIG", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// Create a new key for secrets, seal all secrets with it, and exit; the server must not be
    /// running
    #[arg(long)]
    pub(crate) rotate_secret_key: bool,
    #[command(flatten)]
    pub(crate) options: ServerOptions,
}

/// Role of a server process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// Serves the API; stateless
    Api,
    /// Compiles and deploys
    Process,
    /// Accepts connections of remote agents
    Gateway,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TlsMode {
    /// Self-signed certificate
    SelfSigned,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// Rights of deployments on the server's own machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OwnMachine {
    /// The server's rights while all accounts are administrators, otherwise a sandbox
    Auto,
    /// The server's rights
    Allow,
    /// A sandbox, with a user for each environment
    Sandbox,
    /// None: only remote agents deploy
    Forbid,
}

/// Options of a server. `None`: not set in this source.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct ServerOptions {
    /// Listen address [default: 127.0.0.1:8888]
    #[arg(long, value_name = "ADDRESS", env = "ORRERY_LISTEN", value_parser = socket_address)]
    #[serde(deserialize_with = "read_address")]
    pub(crate) listen: Option<SocketAddr>,
    /// Encrypt connections with a self-signed certificate, generated at first start (development
    /// only)
    #[arg(long, value_name = "HOW", env = "ORRERY_TLS")]
    pub(crate) tls: Option<TlsMode>,
    /// TLS certificate chain, in PEM format; reloaded on SIGHUP
    #[arg(long, value_name = "FILE", env = "ORRERY_TLS_CERTIFICATE", value_hint = ValueHint::FilePath)]
    pub(crate) tls_certificate: Option<PathBuf>,
    /// Key of the TLS certificate, in PEM format
    #[arg(long, value_name = "FILE", env = "ORRERY_TLS_KEY", value_hint = ValueHint::FilePath)]
    pub(crate) tls_key: Option<PathBuf>,
    /// Allow listening for other machines without TLS, behind a proxy that terminates it
    #[arg(long, env = "ORRERY_INSECURE_LISTEN", num_args = 0..=1, default_missing_value = "true", value_name = "YES")]
    pub(crate) insecure_listen: Option<bool>,
    /// Names by which browsers reach the server, besides its addresses, localhost and its host name;
    /// * and ? are wildcards [default: any if it listens for other machines, otherwise none]
    #[arg(long, value_name = "NAME", env = "ORRERY_HOST_NAMES", value_delimiter = ',')]
    #[serde(deserialize_with = "one_or_more")]
    pub(crate) host_names: Option<Vec<String>>,
    /// Proxies with a trusted X-Forwarded-For header: networks such as 10.0.0.0/8
    #[arg(long, value_name = "NETWORK", env = "ORRERY_TRUSTED_PROXIES", value_delimiter = ',')]
    #[serde(deserialize_with = "one_or_more")]
    pub(crate) trusted_proxies: Option<Vec<String>>,
    /// File with the key that seals secrets, mode 0600 [default: the systemd credential
    /// `orrery-secret-key`, else secret.key in the data directory, created when needed]
    #[arg(long, value_name = "FILE", env = "ORRERY_SECRET_KEY_FILE", value_hint = ValueHint::FilePath)]
    pub(crate) secret_key_file: Option<PathBuf>,
    /// Retention of audit log entries, in days; 0 keeps them forever [default: 365]
    #[arg(long, value_name = "DAYS", env = "ORRERY_AUDIT_RETENTION", value_parser = whole::<u32>)]
    pub(crate) audit_retention: Option<u32>,
    /// Hours after which uploaded contents without a referring version are deleted [default: 24]
    #[arg(long, value_name = "HOURS", env = "ORRERY_CONTENTS_GRACE", value_parser = whole::<u32>)]
    pub(crate) contents_grace: Option<u32>,
    /// Quota of uploaded contents without a referring version per account, in MiB [default: 2048]
    #[arg(long, value_name = "MIB", env = "ORRERY_CONTENTS_QUOTA", value_parser = whole::<u32>)]
    pub(crate) contents_quota: Option<u32>,
    /// The same quota for all accounts together, in MiB [default: 16384]
    #[arg(long, value_name = "MIB", env = "ORRERY_CONTENTS_QUOTA_ALL", value_parser = whole::<u32>)]
    pub(crate) contents_quota_all: Option<u32>,
    /// External issuers of JSON Web Tokens; only in the configuration file, as `[[issuers]]`
    #[arg(skip)]
    pub(crate) issuers: Option<Vec<IssuerSettings>>,
    /// Database: path of a file, or postgres://user:password@host/database [default: server.db in
    /// the data directory]
    #[arg(long, value_name = "URL", env = "ORRERY_DATABASE", hide_env_values = true)]
    pub(crate) database: Option<String>,
    /// Maximum number of PostgreSQL connections of this process [default: 10]
    #[arg(long, value_name = "COUNT", env = "ORRERY_DATABASE_CONNECTIONS", value_parser = whole::<u16>)]
    pub(crate) database_connections: Option<u16>,
    /// Data directory for checkouts, code and virtualenvs [default: /var/lib/orrery for root,
    /// otherwise ~/.local/state/orrery]
    #[arg(long, value_name = "DIR", env = "ORRERY_SERVER_DATA", value_hint = ValueHint::DirPath)]
    pub(crate) data: Option<PathBuf>,
    /// Roles to run [default: all]; without `api`, only /health and /metrics are served
    #[arg(long, value_name = "ROLE", env = "ORRERY_ROLE", value_delimiter = ',')]
    #[serde(deserialize_with = "one_or_more")]
    pub(crate) role: Option<Vec<Role>>,
    /// URL of the API for compiles, if another process serves it [default: this process]
    #[arg(long, value_name = "URL", env = "ORRERY_API_ADDRESS")]
    pub(crate) api_address: Option<String>,
    /// Listen address for remote agents, always with TLS [default: the address of --listen, next
    /// port]
    #[arg(long, value_name = "ADDRESS", env = "ORRERY_GATEWAY_LISTEN", value_parser = socket_address)]
    #[serde(deserialize_with = "read_address")]
    pub(crate) gateway_listen: Option<SocketAddr>,
    /// Address of the gateway in invitations, as host:port [default: the listen address]
    #[arg(long, value_name = "HOST:PORT", env = "ORRERY_GATEWAY_ADDRESS")]
    pub(crate) gateway_address: Option<String>,
    /// Address at which other servers reach this gateway, as host:port, if agents use a load
    /// balancer
    #[arg(long, value_name = "HOST:PORT", env = "ORRERY_GATEWAY_PEER_ADDRESS")]
    pub(crate) gateway_peer_address: Option<String>,
    /// Additional names of the gateway, for its certificate
    #[arg(long, value_name = "NAME", env = "ORRERY_GATEWAY_NAMES", value_delimiter = ',')]
    #[serde(deserialize_with = "one_or_more")]
    pub(crate) gateway_names: Option<Vec<String>>,
    /// Program of an agent, which boot scripts download [default: orrery-agent beside this
    /// program, if it exists]
    #[arg(long, value_name = "FILE", env = "ORRERY_GATEWAY_PROGRAM", value_hint = ValueHint::FilePath)]
    pub(crate) gateway_program: Option<PathBuf>,
    /// Maximum number of handlers that run at once in one environment [default: as many as are
    /// slow, up to 5000, plus 16]
    #[arg(long, value_name = "COUNT", env = "ORRERY_WORKERS", value_parser = whole::<u16>)]
    pub(crate) workers: Option<u16>,
    /// Maximum number of handlers that run at once in one environment and act on this machine
    /// [default: 1000]
    #[arg(long, value_name = "COUNT", env = "ORRERY_LOCAL_WORKERS", value_parser = whole::<u16>)]
    pub(crate) local_workers: Option<u16>,
    /// Memory limit of a process that runs module code, in MiB; 0 for none [default: 4096]
    #[arg(long, value_name = "MIB", env = "ORRERY_HOST_MEMORY", value_parser = whole::<u64>)]
    pub(crate) host_memory: Option<u64>,
    /// Rights of deployments on the server's own machine [default: auto]
    #[arg(long, value_name = "RIGHTS", env = "ORRERY_OWN_MACHINE")]
    pub(crate) own_machine: Option<OwnMachine>,
    /// Maximum number of concurrent compiles [default: one per processor]
    #[arg(long, value_name = "COUNT", env = "ORRERY_COMPILES", value_parser = whole::<u16>)]
    pub(crate) compiles: Option<u16>,
    /// Time limit of one compile, in seconds [default: 3600]
    #[arg(long, value_name = "SECONDS", env = "ORRERY_COMPILE_TIME", value_parser = whole::<u64>)]
    pub(crate) compile_time: Option<u64>,
    /// Memory limit of one compile, in MiB; 0 for none [default: 4096]
    #[arg(long, value_name = "MIB", env = "ORRERY_COMPILE_MEMORY", value_parser = whole::<u64>)]
    pub(crate) compile_memory: Option<u64>,
    /// Allow environments to use repositories from local paths and file: URLs
    #[arg(long, env = "ORRERY_ALLOW_LOCAL_REPOSITORIES", num_args = 0..=1, default_missing_value = "true", value_name = "YES")]
    pub(crate) allow_local_repositories: Option<bool>,
    /// Run code of environments as the server's own user: any author of a model can then
    /// become administrator of the installation
    #[arg(long, env = "ORRERY_UNSAFE_SHARED_IDENTITY", num_args = 0..=1, default_missing_value = "true", value_name = "YES")]
    pub(crate) unsafe_shared_identity: Option<bool>,
    /// First user id for environments, if the server runs as root; each environment adds its own
    /// number [default: chosen once for the installation]
    #[arg(long, value_name = "UID", env = "ORRERY_SANDBOX_UID_BASE", value_parser = whole::<u32>)]
    pub(crate) sandbox_uid_base: Option<u32>,
    /// Paths in a home directory, /run or /tmp that code of environments may read
    #[arg(long, value_name = "PATH", env = "ORRERY_SANDBOX_READABLE", value_delimiter = ',', value_hint = ValueHint::AnyPath)]
    #[serde(deserialize_with = "one_or_more")]
    pub(crate) sandbox_readable: Option<Vec<PathBuf>>,
    /// Paths that Python handlers may write on this machine, within the permissions of their
    /// environment's user
    #[arg(long, value_name = "PATH", env = "ORRERY_SANDBOX_WRITABLE", value_delimiter = ',', value_hint = ValueHint::AnyPath)]
    #[serde(deserialize_with = "one_or_more")]
    pub(crate) sandbox_writable: Option<Vec<PathBuf>>,
    /// Format of log lines [default: text]
    #[arg(long, value_name = "FORMAT", env = "ORRERY_LOG_FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
    /// Log filter: a level, or levels of components such as `info,orrery_server=debug` [default:
    /// info]
    #[arg(long, value_name = "FILTER", env = "ORRERY_LOG")]
    pub(crate) log: Option<String>,
    /// Send traces to this OTLP/HTTP collector, such as http://127.0.0.1:4318/v1/traces
    #[arg(long, value_name = "URL", env = "ORRERY_TRACES")]
    pub(crate) traces: Option<String>,
}

/// Parses a listen address. Host names are rejected: they may have several addresses, which may
/// change.
fn socket_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "expected an IP address and port, such as 127.0.0.1:8888 (this machine only), 0.0.0.0:8888 \
         (all networks) or [::1]:8888"
            .to_owned()
    })
}

/// Parses a whole number.
fn whole<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.trim().parse().map_err(|_| "expected a whole number within the allowed range".to_owned())
}

fn read_address<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(from)?;
    socket_address(&text).map(Some).map_err(D::Error::custom)
}

/// Deserializes a list or a single value.
fn one_or_more<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Option<Vec<T>>, D::Error> {
    struct OneOrMore<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for OneOrMore<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string or a list of strings")
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Vec<T>, E> {
            Ok(vec![T::deserialize(text.into_deserializer())?])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Vec<T>, A::Error> {
            Vec::deserialize(SeqAccessDeserializer::new(list))
        }
    }
    from.deserialize_any(OneOrMore(PhantomData)).map(Some)
}

impl ServerOptions {
    /// Returns these options, with `other` as fallback.
    pub(crate) fn or(self, other: Self) -> Self {
        ServerOptions {
            listen: self.listen.or(other.listen),
            tls: self.tls.or(other.tls),
            tls_certificate: self.tls_certificate.or(other.tls_certificate),
            tls_key: self.tls_key.or(other.tls_key),
            insecure_listen: self.insecure_listen.or(other.insecure_listen),
            host_names: self.host_names.or(other.host_names),
            trusted_proxies: self.trusted_proxies.or(other.trusted_proxies),
            secret_key_file: self.secret_key_file.or(other.secret_key_file),
            audit_retention: self.audit_retention.or(other.audit_retention),
            contents_grace: self.contents_grace.or(other.contents_grace),
            contents_quota: self.contents_quota.or(other.contents_quota),
            contents_quota_all: self.contents_quota_all.or(other.contents_quota_all),
            issuers: self.issuers.or(other.issuers),
            database: self.database.or(other.database),
            database_connections: self.database_connections.or(other.database_connections),
            data: self.data.or(other.data),
            role: self.role.or(other.role),
            api_address: self.api_address.or(other.api_address),
            gateway_listen: self.gateway_listen.or(other.gateway_listen),
            gateway_address: self.gateway_address.or(other.gateway_address),
            gateway_peer_address: self.gateway_peer_address.or(other.gateway_peer_address),
            gateway_names: self.gateway_names.or(other.gateway_names),
            gateway_program: self.gateway_program.or(other.gateway_program),
            workers: self.workers.or(other.workers),
            local_workers: self.local_workers.or(other.local_workers),
            host_memory: self.host_memory.or(other.host_memory),
            own_machine: self.own_machine.or(other.own_machine),
            compiles: self.compiles.or(other.compiles),
            compile_time: self.compile_time.or(other.compile_time),
            compile_memory: self.compile_memory.or(other.compile_memory),
            allow_local_repositories: self
                .allow_local_repositories
                .or(other.allow_local_repositories),
            unsafe_shared_identity: self.unsafe_shared_identity.or(other.unsafe_shared_identity),
            sandbox_uid_base: self.sandbox_uid_base.or(other.sandbox_uid_base),
            sandbox_readable: self.sandbox_readable.or(other.sandbox_readable),
            sandbox_writable: self.sandbox_writable.or(other.sandbox_writable),
            log_format: self.log_format.or(other.log_format),
            log: self.log.or(other.log),
            traces: self.traces.or(other.traces),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Command};

    /// The reference page must list every option.
    #[test]
    fn every_option_is_on_the_page() {
        let page = include_str!("../../../../docs/reference/server.md");
        let command = super::Server::augment_args(Command::new("server"));
        for option in command.get_arguments().filter_map(|argument| argument.get_long()) {
            assert!(page.contains(&format!("`--{option}`")), "--{option} is missing from the page");
        }
    }
}
