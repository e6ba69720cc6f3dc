//! What keeps a server closed: TLS, proxies that are believed, the first account.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use orrery_model::SecretText;
use orrery_server::{
    App, AuthSettings, FirstStart, InvalidIssuer, InvalidNetwork, MasterKey, Network, ServerError,
    Tls, TlsError, TlsSource, VaultError, check_listen, first_start,
};

use crate::cli_server::{LogFormat, ServerOptions, TlsMode};
use crate::output;
use crate::state::now;

/// The password of the account `admin`, if the installation has no account yet.
const ADMIN_PASSWORD: &str = "ORRERY_ADMIN_PASSWORD";

#[derive(Debug, thiserror::Error)]
pub(super) enum Insecure {
    #[error("--tls-certificate and --tls-key go together; give both")]
    HalfTls,
    #[error("give --tls self-signed, or --tls-certificate and --tls-key, not both")]
    TwiceTls,
    #[error("{option}")]
    Tls { option: &'static str, source: TlsError },
    #[error(transparent)]
    Listen(#[from] orrery_server::NotWithoutTls),
    #[error(transparent)]
    Vault(#[from] VaultError),
    #[error("--secret-key-file")]
    KeyFile(#[source] VaultError),
    #[error("issuers of the configuration file")]
    Issuer(#[from] InvalidIssuer),
    #[error("--trusted-proxies")]
    Proxies(#[from] InvalidNetwork),
    #[error("the first account cannot be made ({ADMIN_PASSWORD}): {0}")]
    FirstAccount(String),
}

/// How connections are encrypted, if they are; and whether that is enough for where the server listens.
pub(super) fn tls(
    options: &ServerOptions,
    address: SocketAddr,
    data: &Path,
) -> Result<Option<Tls>, Insecure> {
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
        (None, ..) => return Err(Insecure::HalfTls),
        (Some(_), ..) => return Err(Insecure::TwiceTls),
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
        Insecure::Tls { option, source }
    })?;
    Ok(Some(tls))
}

/// The name of this machine, if it has one.
pub(super) fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = name.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

/// Tells what is for people and not for the log, in the form that the log has: whoever reads JSON gets nothing else.
fn tell(format: LogFormat, text: &str, detail: (&str, &str)) {
    let (name, value) = detail;
    match format {
        LogFormat::Text => {
            output::say(text);
            output::say(&format!("  {value}"));
        }
        LogFormat::Json => {
            let message = text.trim_end_matches(':');
            let line = serde_json::json!({
                "timestamp": now().to_string(), "level": "INFO",
                "fields": {"message": message, name: value}, "target": "orrery",
            });
            output::say(&line.to_string());
        }
    }
}

/// Says how to trust a certificate that nobody vouches for.
pub(super) fn tell_certificate(tls: Option<&Tls>, url: &str, format: LogFormat) {
    let Some((tls, file)) = tls.and_then(|tls| Some((tls, tls.self_signed()?))) else { return };
    let (file, fingerprint) = (file.display(), tls.fingerprint());
    let text = format!(
        "the certificate signs itself: {file}, its SHA-256 is {fingerprint}; other machines need a copy of the file:"
    );
    tell(format, &text, ("command", &format!("orrery login {url} --ca {file}")));
}

/// Where the key for secrets is.
pub(super) fn master_key(options: &ServerOptions, data: &Path) -> MasterKey {
    if let Some(path) = &options.secret_key_file {
        return MasterKey::Given(path.clone());
    }
    let credentials = std::env::var_os("CREDENTIALS_DIRECTORY").filter(|path| !path.is_empty());
    let credentials = credentials.map(PathBuf::from);
    match credentials.map(|directory| directory.join("orrery-secret-key")) {
        Some(path) if path.exists() => MasterKey::Given(path),
        _ => MasterKey::Made(data.join("secret.key")),
    }
}

/// Fails if this process could not open the secrets that others have sealed.
pub(super) fn check_key(app: &App, options: &ServerOptions) -> Result<(), Insecure> {
    let named = options.secret_key_file.is_some();
    app.vault().check().map_err(|error| match error {
        error @ VaultError::KeyFile { .. } if named => Insecure::KeyFile(error),
        error => Insecure::Vault(error),
    })
}

/// Makes a new key for secrets.
pub(super) fn rotate(app: &App) -> Result<(), Insecure> {
    let count = app.vault().rotate()?;
    output::say(&format!(
        "{count} secrets are sealed with a new key; keep the older keys in the file as long as there are backups"
    ));
    Ok(())
}

/// How callers are known.
pub(super) fn auth(options: &ServerOptions, tls: bool) -> Result<AuthSettings, Insecure> {
    let proxies = options.trusted_proxies.iter().flatten();
    let trusted_proxies: Result<Vec<Network>, _> = proxies.map(|text| text.parse()).collect();
    let issuers = options.issuers.clone().unwrap_or_default();
    for issuer in &issuers {
        issuer.check()?;
    }
    Ok(AuthSettings { trusted_proxies: trusted_proxies?, secure_cookies: tls, issuers })
}

/// Makes sure that somebody can log in, or can make the first account.
pub(super) async fn prepare_accounts(
    app: &App,
    url: &str,
    format: LogFormat,
) -> Result<(), Insecure> {
    let password = std::env::var(ADMIN_PASSWORD).ok().filter(|text| !text.is_empty());
    let password = password.map(SecretText::new);
    let start = first_start(app, password.as_ref()).await.map_err(|error| match error {
        ServerError::Invalid(fields) => {
            let reasons: Vec<String> = fields
                .into_iter()
                .map(|field| format!("{} {}", field.name, field.reason))
                .collect();
            Insecure::FirstAccount(reasons.join("; "))
        }
        other => Insecure::FirstAccount(other.to_string()),
    })?;
    match start {
        FirstStart::HasAccounts => {}
        FirstStart::AdminMade => tracing::info!("created account admin"),
        // Not in the log: the link is as good as a password for an hour.
        FirstStart::Ticket(ticket) => {
            let text = "there is no account yet; create the first one within an hour, with this link that works once:";
            tell(format, text, ("link", &format!("{url}/setup#{}", ticket.expose())));
        }
    }
    Ok(())
}

/// Reads the certificate again, if there is one.
pub(super) fn reload(tls: Option<&Tls>) {
    match tls.map(Tls::reload) {
        None => {}
        Some(Ok(())) => tracing::info!("the certificate was read again"),
        Some(Err(error)) => {
            let error = &error as &dyn std::error::Error;
            tracing::error!(error, "the certificate cannot be read again; the old one stays");
        }
    }
}
