//! What `orrery server` understands: the same options as flags, environment variables and lines of a file.

use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use orrery_server::IssuerSettings;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Error as _, IntoDeserializer as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Run a server for teams
///
/// It takes models over HTTP or compiles them from git, deploys what is released, and keeps it so. Without any option it listens on this
/// machine only and keeps everything in one file.
#[derive(Debug, Args)]
#[command(after_help = "\
Every option can also be a line of the configuration file, under its name without dashes in front
(`listen = \"127.0.0.1:8888\"`), or an environment variable. Flags are stronger than variables, and
variables stronger than the file.

Without an account yet, a link is printed with which the first one can be made. The variable
ORRERY_ADMIN_PASSWORD makes the account `admin` with that password instead. Other issuers of tokens,
for single sign-on, are sections [[issuers]] of the file.

Examples:
  orrery server                                             all roles, state in one file
  orrery server --database postgres://orrery@db/orrery      state in PostgreSQL
  orrery server --role api --database postgres://…          one of several servers
  orrery server --gateway-listen 0.0.0.0:8889 --gateway-address orrery.example.com:8889
                                                            remote agents from everywhere

Exit codes: 0 stopped as asked, 1 error.")]
pub(crate) struct Server {
    /// The configuration file [default: /etc/orrery/server.toml, if it is there]
    #[arg(long, value_name = "FILE", env = "ORRERY_CONFIG", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// Make a new key for secrets, seal all secrets with it, and end; the server must not be running
    #[arg(long)]
    pub(crate) rotate_secret_key: bool,
    #[command(flatten)]
    pub(crate) options: ServerOptions,
}

/// One part of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// Answers requests; keeps nothing
    Api,
    /// Compiles and deploys
    Process,
    /// Is where remote agents dial in
    Gateway,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TlsMode {
    /// With a certificate that nobody vouches for
    SelfSigned,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// How resources of agents that are the server's own machine are deployed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OwnMachine {
    /// With the server's rights as long as there were only administrators, in a sandbox otherwise
    Auto,
    /// Always with the server's rights
    Allow,
    /// Always in a sandbox, with a user for each environment
    Sandbox,
    /// Not at all: only remote agents deploy
    Forbid,
}

/// All that can be set. `None`: not said here.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct ServerOptions {
    /// Where to listen [default: 127.0.0.1:8888]
    #[arg(long, value_name = "ADDRESS", env = "ORRERY_LISTEN", value_parser = socket_address)]
    #[serde(deserialize_with = "read_address")]
    pub(crate) listen: Option<SocketAddr>,
    /// Encrypt connections with a certificate that signs itself, made at the first start: for development
    #[arg(long, value_name = "HOW", env = "ORRERY_TLS")]
    pub(crate) tls: Option<TlsMode>,
    /// The certificate for TLS, with those that vouch for it, in PEM format; read again on SIGHUP
    #[arg(long, value_name = "FILE", env = "ORRERY_TLS_CERTIFICATE", value_hint = ValueHint::FilePath)]
    pub(crate) tls_certificate: Option<PathBuf>,
    /// The key of the certificate, in PEM format
    #[arg(long, value_name = "FILE", env = "ORRERY_TLS_KEY", value_hint = ValueHint::FilePath)]
    pub(crate) tls_key: Option<PathBuf>,
    /// Listen for other machines without TLS, because a proxy in front of the server does it
    #[arg(long, env = "ORRERY_INSECURE_LISTEN", num_args = 0..=1, default_missing_value = "true", value_name = "YES")]
    pub(crate) insecure_listen: Option<bool>,
    /// Proxies that may tell, by X-Forwarded-For, where a request comes from: networks such as 10.0.0.0/8
    #[arg(long, value_name = "NETWORK", env = "ORRERY_TRUSTED_PROXIES", value_delimiter = ',')]
    #[serde(deserialize_with = "one_or_more")]
    pub(crate) trusted_proxies: Option<Vec<String>>,
    /// The file with the key that seals secrets, mode 0600 [default: the credential `orrery-secret-key` of systemd, else secret.key in the data directory, made when it is needed]
    #[arg(long, value_name = "FILE", env = "ORRERY_SECRET_KEY_FILE", value_hint = ValueHint::FilePath)]
    pub(crate) secret_key_file: Option<PathBuf>,
    /// How many days entries of the audit log are kept; 0 keeps them for ever [default: 365]
    #[arg(long, value_name = "DAYS", env = "ORRERY_AUDIT_RETENTION", value_parser = whole::<u32>)]
    pub(crate) audit_retention: Option<u32>,
    /// After how many hours uploaded contents that no version refers to are deleted [default: 24]
    #[arg(long, value_name = "HOURS", env = "ORRERY_CONTENTS_GRACE", value_parser = whole::<u32>)]
    pub(crate) contents_grace: Option<u32>,
    /// How many MiB of contents that no version refers to one account may have uploaded [default: 2048]
    #[arg(long, value_name = "MIB", env = "ORRERY_CONTENTS_QUOTA", value_parser = whole::<u32>)]
    pub(crate) contents_quota: Option<u32>,
    /// The same for all accounts together [default: 16384]
    #[arg(long, value_name = "MIB", env = "ORRERY_CONTENTS_QUOTA_ALL", value_parser = whole::<u32>)]
    pub(crate) contents_quota_all: Option<u32>,
    /// Who else may vouch for callers, by JSON Web Tokens; only in the configuration file, as `[[issuers]]`
    #[arg(skip)]
    pub(crate) issuers: Option<Vec<IssuerSettings>>,
    /// Where the state is: a path of a file, or postgres://user:password@host/database [default: server.db in the data directory]
    #[arg(long, value_name = "URL", env = "ORRERY_DATABASE", hide_env_values = true)]
    pub(crate) database: Option<String>,
    /// How many connections to PostgreSQL this process has at most [default: 10]
    #[arg(long, value_name = "COUNT", env = "ORRERY_DATABASE_CONNECTIONS", value_parser = whole::<u16>)]
    pub(crate) database_connections: Option<u16>,
    /// Where checkouts, code and Python environments are kept [default: /var/lib/orrery for root, ~/.local/state/orrery otherwise]
    #[arg(long, value_name = "DIR", env = "ORRERY_SERVER_DATA", value_hint = ValueHint::DirPath)]
    pub(crate) data: Option<PathBuf>,
    /// Which parts to run [default: all]; without `api`, only /health and /metrics are answered
    #[arg(long, value_name = "ROLE", env = "ORRERY_ROLE", value_delimiter = ',')]
    #[serde(deserialize_with = "one_or_more")]
    pub(crate) role: Option<Vec<Role>>,
    /// Where compiles find the API, if this process compiles and another one answers requests [default: this process]
    #[arg(long, value_name = "URL", env = "ORRERY_API_ADDRESS")]
    pub(crate) api_address: Option<String>,
    /// Where remote agents dial in, always with TLS [default: the address of --listen, one port higher]
    #[arg(long, value_name = "ADDRESS", env = "ORRERY_GATEWAY_LISTEN", value_parser = socket_address)]
    #[serde(deserialize_with = "read_address")]
    pub(crate) gateway_listen: Option<SocketAddr>,
    /// Where invitations send agents, as host:port, if it is not where the gateway listens
    #[arg(long, value_name = "HOST:PORT", env = "ORRERY_GATEWAY_ADDRESS")]
    pub(crate) gateway_address: Option<String>,
    /// Where other servers reach just this gateway, as host:port, if agents reach it through a balancer
    #[arg(long, value_name = "HOST:PORT", env = "ORRERY_GATEWAY_PEER_ADDRESS")]
    pub(crate) gateway_peer_address: Option<String>,
    /// Further names under which agents dial the gateway, for its certificate
    #[arg(long, value_name = "NAME", env = "ORRERY_GATEWAY_NAMES", value_delimiter = ',')]
    #[serde(deserialize_with = "one_or_more")]
    pub(crate) gateway_names: Option<Vec<String>>,
    /// How many handlers may run at once in one environment [default: as many as are slow, up to 1000, and 16 beside them]
    #[arg(long, value_name = "COUNT", env = "ORRERY_WORKERS", value_parser = whole::<u16>)]
    pub(crate) workers: Option<u16>,
    /// How much memory a process that runs the code of modules may have, in MiB; 0 for any [default: 4096]
    #[arg(long, value_name = "MIB", env = "ORRERY_HOST_MEMORY", value_parser = whole::<u64>)]
    pub(crate) host_memory: Option<u64>,
    /// With which rights environments act on the server's own machine [default: auto]
    #[arg(long, value_name = "RIGHTS", env = "ORRERY_OWN_MACHINE")]
    pub(crate) own_machine: Option<OwnMachine>,
    /// How many compiles may run at once [default: one for each processor]
    #[arg(long, value_name = "COUNT", env = "ORRERY_COMPILES", value_parser = whole::<u16>)]
    pub(crate) compiles: Option<u16>,
    /// How long one compile may take, in seconds [default: 3600]
    #[arg(long, value_name = "SECONDS", env = "ORRERY_COMPILE_TIME", value_parser = whole::<u64>)]
    pub(crate) compile_time: Option<u64>,
    /// How much memory a compile may have, in MiB; 0 for any [default: 4096]
    #[arg(long, value_name = "MIB", env = "ORRERY_COMPILE_MEMORY", value_parser = whole::<u64>)]
    pub(crate) compile_memory: Option<u64>,
    /// Let environments take their model from paths and file: URLs of this machine
    #[arg(long, env = "ORRERY_ALLOW_LOCAL_REPOSITORIES", num_args = 0..=1, default_missing_value = "true", value_name = "YES")]
    pub(crate) allow_local_repositories: Option<bool>,
    /// Run the code of environments with the identity of the server: everybody who can change a model can then become administrator of the installation
    #[arg(long, env = "ORRERY_UNSAFE_SHARED_IDENTITY", num_args = 0..=1, default_missing_value = "true", value_name = "YES")]
    pub(crate) unsafe_shared_identity: Option<bool>,
    /// The first user that environments get, if the server is root; each adds its own number [default: chosen once for the installation]
    #[arg(long, value_name = "UID", env = "ORRERY_SANDBOX_UID_BASE", value_parser = whole::<u32>)]
    pub(crate) sandbox_uid_base: Option<u32>,
    /// What the code of environments may read although it lies in a home directory, /run or /tmp
    #[arg(long, value_name = "PATH", env = "ORRERY_SANDBOX_READABLE", value_delimiter = ',', value_hint = ValueHint::AnyPath)]
    #[serde(deserialize_with = "one_or_more")]
    pub(crate) sandbox_readable: Option<Vec<PathBuf>>,
    /// What handlers in Python may write on this machine, as far as the user of their environment may
    #[arg(long, value_name = "PATH", env = "ORRERY_SANDBOX_WRITABLE", value_delimiter = ',', value_hint = ValueHint::AnyPath)]
    #[serde(deserialize_with = "one_or_more")]
    pub(crate) sandbox_writable: Option<Vec<PathBuf>>,
    /// How log lines look [default: text]
    #[arg(long, value_name = "FORMAT", env = "ORRERY_LOG_FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
    /// What is logged: a level, or levels of parts such as `info,orrery_server=debug` [default: info]
    #[arg(long, value_name = "FILTER", env = "ORRERY_LOG")]
    pub(crate) log: Option<String>,
    /// Send traces to this collector (OTLP over HTTP), such as http://127.0.0.1:4318/v1/traces
    #[arg(long, value_name = "URL", env = "ORRERY_TRACES")]
    pub(crate) traces: Option<String>,
}

/// An address to listen at. Names are not taken: which of its addresses is meant, and when it is looked up, nobody could tell.
fn socket_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "an address is a number of the machine and a port, such as 127.0.0.1:8888 (this machine only), 0.0.0.0:8888 \
         (all its networks) or [::1]:8888"
            .to_owned()
    })
}

/// A number of things.
fn whole<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.trim().parse().map_err(|_| "it has to be a whole number, and not too large".to_owned())
}

fn read_address<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(from)?;
    socket_address(&text).map(Some).map_err(D::Error::custom)
}

/// A list, or the only thing on it.
fn one_or_more<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Option<Vec<T>>, D::Error> {
    struct OneOrMore<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for OneOrMore<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a text or a list of texts")
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
    /// These options, and those of `other` where nothing is said.
    pub(crate) fn or(self, other: Self) -> Self {
        ServerOptions {
            listen: self.listen.or(other.listen),
            tls: self.tls.or(other.tls),
            tls_certificate: self.tls_certificate.or(other.tls_certificate),
            tls_key: self.tls_key.or(other.tls_key),
            insecure_listen: self.insecure_listen.or(other.insecure_listen),
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
            workers: self.workers.or(other.workers),
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

    /// Whoever reads the page must find every option there is.
    #[test]
    fn every_option_is_on_the_page() {
        let page = include_str!("../../../docs/reference/server.md");
        let command = super::Server::augment_args(Command::new("server"));
        for option in command.get_arguments().filter_map(|argument| argument.get_long()) {
            assert!(page.contains(&format!("`--{option}`")), "--{option} is not on the page");
        }
    }
}
