//! Isolation of environment code on a server, by options and machine.

use std::path::{Path, PathBuf};

use orrery_server::{Isolation, load_uid_base};
use orrery_store::{Store, StoreError};

use crate::cli::server::ServerOptions;

/// Detects the sandboxing of this machine, unless disabled, and warns if it is unsafe. `config` is
/// the configuration file, which may contain passwords.
pub(super) fn choose(
    options: &ServerOptions,
    program: &Path,
    data: &Path,
    config: &Path,
    store: &Store,
) -> Result<Isolation, StoreError> {
    if options.unsafe_shared_identity.unwrap_or(false) {
        tracing::warn!(
            "--unsafe-shared-identity: the code of environments runs with the identity of the server; everybody who can change a model \
             can become administrator of the installation and read the files of all others"
        );
        return Ok(Isolation::Shared);
    }
    Ok(match Isolation::detect(program, data) {
        Isolation::Sandboxed(sandboxing) => {
            let base = match options.sandbox_uid_base {
                Some(base) => base,
                None => load_uid_base(store)?,
            };
            let sandboxing = sandboxing
                .hide_paths(private_files(options, config))
                .allow_read(options.sandbox_readable.clone().unwrap_or_default())
                .allow_write(options.sandbox_writable.clone().unwrap_or_default())
                .uid_base(base);
            // Users of environments must be able to read unpacked code below the data directory,
            // which is itself closed to others.
            rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
            tracing::info!(method = ?sandboxing.sandbox().method(), "environment code runs in sandboxes");
            Isolation::Sandboxed(Box::new(sandboxing))
        }
        Isolation::Refused(unavailable) => {
            tracing::error!(
                "{unavailable}, or start the server with --unsafe-shared-identity; until then, compiles and module handlers do not run"
            );
            Isolation::Refused(unavailable)
        }
        Isolation::Shared => Isolation::Shared,
    })
}

/// Server files that may be outside of its data directory.
pub(super) fn private_files(options: &ServerOptions, config: &Path) -> Vec<PathBuf> {
    let database = options.database.as_deref();
    let database = database.map(|path| path.strip_prefix("sqlite://").unwrap_or(path));
    let database = database.filter(|database| !database.contains("://"));
    let database = database.into_iter().flat_map(|path| {
        ["", "-wal", "-shm"].map(|suffix| PathBuf::from(format!("{path}{suffix}")))
    });
    let given = [&options.secret_key_file, &options.tls_key].into_iter().flatten().cloned();
    // Directory of systemd credentials.
    let credentials = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
    let all = database.chain(given).chain(credentials).chain([config.to_owned()]);
    // Absolute: sandboxes start in another directory.
    all.map(|path| std::path::absolute(&path).unwrap_or(path)).collect()
}
