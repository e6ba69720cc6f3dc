//! Security of a server: TLS, trusted proxies, and the first account.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use orrery_handlers::clock::now;
use orrery_model::SecretText;
use orrery_server::{
    AllowedHosts, AuthSettings, BootstrapState, InvalidIssuer, InvalidNetwork, MasterKey, Network,
    ServerError, ServerState, Tls, TlsError, TlsSource, VaultError, check_listen,
    prepare_first_account,
};

use crate::cli::server::{LogFormat, ServerOptions, TlsMode};
use crate::output;

/// Password of the account `admin`, created if there is no account yet.
const ADMIN_PASSWORD: &str = "ORRERY_ADMIN_PASSWORD";

#[derive(Debug, thiserror::Error)]
pub(super) enum SecurityError {
    #[error("--tls-certificate and --tls-key must be given together")]
    HalfTls,
    #[error("--tls self-signed excludes --tls-certificate and --tls-key")]
    TwiceTls,
    #[error("{option}")]
    Tls { option: &'static str, source: TlsError },
    #[error(transparent)]
    Listen(#[from] orrery_server::TlsRequired),
    #[error(transparent)]
    Vault(#[from] VaultError),
    #[error("--secret-key-file")]
    KeyFile(#[source] VaultError),
    #[error("issuers of the configuration file")]
    Issuer(#[from] InvalidIssuer),
    #[error("--trusted-proxies")]
    Proxies(#[from] InvalidNetwork),
    #[error("cannot create the first account ({ADMIN_PASSWORD}): {0}")]
    FirstAccount(String),
}

/// TLS configuration; rejects an unencrypted listener that other machines can reach.
pub(super) fn tls(
    options: &ServerOptions,
    address: SocketAddr,
    data: &Path,
) -> Result<Option<Tls>, SecurityError> {
    let source = match (options.tls, &options.tls_certificate, &options.tls_key) {
        (None, None, None) => None,
        (None, Some(certificate), Some(key)) => {
            Some(TlsSource::Files { certificate: certificate.clone(), key: key.clone() })
        }
        (Some(TlsMode::SelfSigned), None, None) => {
            let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
            if !address.ip().is_unspecified() && !address.ip().is_loopback() {
                names.push(address.ip().to_string());
            }
            names.extend(host_name());
            Some(TlsSource::SelfSigned { directory: data.to_owned(), names })
        }
        (None, ..) => return Err(SecurityError::HalfTls),
        (Some(_), ..) => return Err(SecurityError::TwiceTls),
    };
    check_listen(address, source.is_some(), options.insecure_listen.unwrap_or(false))?;
    let Some(source) = source else { return Ok(None) };
    let own_key = options.tls_key.clone();
    let tls = Tls::load(source).map_err(|source| {
        let option = match source.path() {
            _ if options.tls.is_some() => "--tls self-signed",
            Some(path) if own_key.as_deref() == Some(path) => "--tls-key",
            _ => "--tls-certificate",
        };
        SecurityError::Tls { option, source }
    })?;
    Ok(Some(tls))
}

/// Host name of this machine.
pub(super) fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = name.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

/// Prints a message for users in the log's format, so that JSON output stays JSON.
fn announce(format: LogFormat, text: &str, detail: (&str, &str)) {
    let (name, value) = detail;
    match format {
        LogFormat::Text => {
            output::print_status(text);
            output::print_status(&format!("  {value}"));
        }
        LogFormat::Json => {
            let message = text.trim_end_matches(':');
            let line = serde_json::json!({
                "timestamp": now().to_string(), "level": "INFO",
                "fields": {"message": message, name: value}, "target": "orrery",
            });
            output::print_status(&line.to_string());
        }
    }
}

/// Prints how to trust the self-signed certificate.
pub(super) fn announce_certificate(tls: Option<&Tls>, url: &str, format: LogFormat) {
    let Some((tls, file)) = tls.and_then(|tls| Some((tls, tls.self_signed()?))) else { return };
    let (file, fingerprint) = (file.display(), tls.fingerprint());
    let text = format!(
        "self-signed certificate {file}, SHA-256 {fingerprint}; other machines need a copy of the file:"
    );
    announce(format, &text, ("command", &format!("orrery login {url} --ca {file}")));
}

/// Location of the key for secrets.
pub(super) fn master_key(options: &ServerOptions, data: &Path) -> MasterKey {
    if let Some(path) = &options.secret_key_file {
        return MasterKey::Provided(path.clone());
    }
    let credentials = std::env::var_os("CREDENTIALS_DIRECTORY").filter(|path| !path.is_empty());
    let credentials = credentials.map(PathBuf::from);
    match credentials.map(|directory| directory.join("orrery-secret-key")) {
        Some(path) if path.exists() => MasterKey::Provided(path),
        _ => MasterKey::Generated(data.join("secret.key")),
    }
}

/// Fails if this process cannot open existing secrets.
pub(super) fn check_key(app: &ServerState, options: &ServerOptions) -> Result<(), SecurityError> {
    let named = options.secret_key_file.is_some();
    app.vault().check().map_err(|error| match error {
        error @ VaultError::KeyFile { .. } if named => SecurityError::KeyFile(error),
        error => SecurityError::Vault(error),
    })
}

/// Creates a new key for secrets.
pub(super) fn rotate(app: &ServerState) -> Result<(), SecurityError> {
    let count = app.vault().rotate()?;
    output::print_status(&format!(
        "{count} secrets sealed with a new key; keep the old keys in the file while backups need them"
    ));
    Ok(())
}

/// Authentication settings.
pub(super) fn auth(
    options: &ServerOptions,
    listen: SocketAddr,
    tls: bool,
) -> Result<AuthSettings, SecurityError> {
    let proxies = options.trusted_proxies.iter().flatten();
    let trusted_proxies: Result<Vec<Network>, _> = proxies.map(|text| text.parse()).collect();
    let issuers = options.issuers.clone().unwrap_or_default();
    for issuer in &issuers {
        issuer.check()?;
    }
    let allowed_hosts = allowed_hosts(options.host_names.as_deref(), listen);
    let trusted_proxies = trusted_proxies?;
    Ok(AuthSettings { trusted_proxies, allowed_hosts, secure_cookies: tls, issuers })
}

/// Names by which browsers may address the server. Without names, a server for other machines
/// accepts all: it has a certificate, or a proxy in front of it, with names that are unknown here.
fn allowed_hosts(names: Option<&[String]>, listen: SocketAddr) -> AllowedHosts {
    if names.is_none() && !listen.ip().is_loopback() {
        return AllowedHosts::default();
    }
    let own = host_name();
    let short = own.as_deref().and_then(|name| name.split('.').next()).map(str::to_owned);
    AllowedHosts::only(names.unwrap_or_default().iter().cloned().chain(own).chain(short))
}

/// Creates the first account, or prints a link to create it.
pub(super) async fn prepare_accounts(
    app: &ServerState,
    url: &str,
    format: LogFormat,
) -> Result<(), SecurityError> {
    let password = std::env::var(ADMIN_PASSWORD).ok().filter(|text| !text.is_empty());
    let password = password.map(SecretText::new);
    let start =
        prepare_first_account(app, password.as_ref()).await.map_err(|error| match error {
            ServerError::Invalid(fields) => {
                let reasons: Vec<String> = fields
                    .into_iter()
                    .map(|field| format!("{} {}", field.name, field.reason))
                    .collect();
                SecurityError::FirstAccount(reasons.join("; "))
            }
            other => SecurityError::FirstAccount(other.to_string()),
        })?;
    match start {
        BootstrapState::HasAccounts => {}
        BootstrapState::AdminCreated => tracing::info!("created account admin"),
        // Not logged: the link is as sensitive as a password for an hour.
        BootstrapState::BootstrapToken(ticket) => {
            let text =
                "no account yet; create the first one within an hour with this one-time link:";
            announce(format, text, ("link", &format!("{url}/setup#{}", ticket.expose())));
        }
    }
    Ok(())
}

/// Reloads the certificate, if there is one.
pub(super) fn reload(tls: Option<&Tls>) {
    match tls.map(Tls::reload) {
        None => {}
        Some(Ok(())) => tracing::info!("certificate reloaded"),
        Some(Err(error)) => {
            let error = &error as &dyn std::error::Error;
            tracing::error!(error, "cannot reload the certificate; keeping the old one");
        }
    }
}
