//! Where a server runs code of its environments, as its options and this machine say.

use std::path::{Path, PathBuf};

use orrery_server::{Isolation, uid_base_of};
use orrery_store::{Store, StoreError};

use crate::cli_server::ServerOptions;

/// Finds out what this machine offers, unless that is not wanted, and warns of what is not safe. `config` is the file that the options
/// come from: there may be passwords in it.
pub(super) fn choose(
    options: &ServerOptions,
    program: &Path,
    data: &Path,
    config: &Path,
    store: &dyn Store,
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
                None => uid_base_of(store)?,
            };
            let sandboxing = sandboxing
                .hide(private_files(options, config))
                .show(options.sandbox_readable.clone().unwrap_or_default())
                .share(options.sandbox_writable.clone().unwrap_or_default())
                .uid_base(base);
            // Code and contents that the server unpacks in its data directory, which is closed to others, are for users of environments.
            rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
            tracing::info!(method = ?sandboxing.sandbox().method(), "the code of environments runs in sandboxes");
            Isolation::Sandboxed(Box::new(sandboxing))
        }
        Isolation::Refused(unavailable) => {
            tracing::error!(
                "{unavailable}, or start the server with --unsafe-shared-identity; until then, neither compiles nor the handlers of modules are run"
            );
            Isolation::Refused(unavailable)
        }
        Isolation::Shared => Isolation::Shared,
    })
}

/// Files of the server that may lie outside of its data directory.
pub(super) fn private_files(options: &ServerOptions, config: &Path) -> Vec<PathBuf> {
    let database = options.database.as_deref();
    let database = database.map(|path| path.strip_prefix("sqlite://").unwrap_or(path));
    let database = database.filter(|database| !database.contains("://"));
    let database = database.into_iter().flat_map(|path| {
        ["", "-wal", "-shm"].map(|suffix| PathBuf::from(format!("{path}{suffix}")))
    });
    let given = [&options.secret_key_file, &options.tls_key].into_iter().flatten().cloned();
    // Systemd puts credentials there.
    let credentials = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
    let all = database.chain(given).chain(credentials).chain([config.to_owned()]);
    // Sandboxes begin elsewhere.
    all.map(|path| std::path::absolute(&path).unwrap_or(path)).collect()
}
