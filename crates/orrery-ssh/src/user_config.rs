//! Reads the SSH configuration of the user of this process.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use orrery_handlers::target::host_name;

use crate::config::{ConfigError, ConfigFile, LocalUser, Pattern, SshConfig, matches_list};
use crate::route::RouteSource;

/// Maximum size of a configuration file in bytes.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Reads the configuration of the user: `~/.ssh/config` and `/etc/ssh/ssh_config`.
///
/// # Errors
/// If a file has an error; the text names file and line.
pub fn user_routes() -> Result<RouteSource, ConfigError> {
    let local = local_user();
    let files = [local.home.join(".ssh/config"), PathBuf::from("/etc/ssh/ssh_config")];
    let mut texts = Vec::new();
    for path in &files {
        texts.extend(read_config(path)?);
    }
    let home = local.home.clone();
    let mut include = |pattern: &str| included(pattern, &home);
    let config = SshConfig::parse(&texts, &mut include)?;
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    Ok(RouteSource::of_user(config, local))
}

/// Returns the user of this process.
pub fn local_user() -> LocalUser {
    let uid = nix::unistd::getuid();
    let account = nix::unistd::User::from_uid(uid).ok().flatten();
    let (name, home) = match account {
        Some(account) => (account.name, account.dir),
        None => (uid.to_string(), PathBuf::from("/")),
    };
    // The variable wins, as for most programs; tests and services set it.
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).map_or(home, PathBuf::from);
    let agent_socket = std::env::var_os("SSH_AUTH_SOCK").filter(|path| !path.is_empty());
    LocalUser {
        name,
        uid: uid.as_raw(),
        home,
        host_name: host_name(),
        agent_socket: agent_socket.map(PathBuf::from),
    }
}

fn read_config(path: &Path) -> Result<Option<ConfigFile>, ConfigError> {
    let name = path.display().to_string();
    let failed =
        |error: io::Error| ConfigError { file: name.clone(), line: 0, reason: error.to_string() };
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
        Ok(metadata) if metadata.len() > FILE_BYTES_MAX => {
            return Err(failed(io::Error::other("the file is too large")));
        }
        Ok(_) => {}
    }
    let text = fs::read(path).map_err(failed)?;
    Ok(Some(ConfigFile { name, text: String::from_utf8_lossy(&text).into_owned() }))
}

/// Files of an `Include` pattern, sorted. A pattern may have `*` and `?` in its last component.
fn included(pattern: &str, home: &Path) -> Vec<ConfigFile> {
    let pattern = match pattern.strip_prefix("~/") {
        Some(rest) => home.join(rest),
        None if pattern.starts_with('/') => PathBuf::from(pattern),
        None => home.join(".ssh").join(pattern),
    };
    let (Some(directory), Some(name)) = (pattern.parent(), pattern.file_name()) else {
        return Vec::new();
    };
    let name = name.to_string_lossy();
    let patterns = [Pattern::parse(&name)];
    let mut paths: Vec<PathBuf> = match name.contains(['*', '?']) {
        false => vec![pattern.clone()],
        true => fs::read_dir(directory)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| matches_list(&patterns, &entry.file_name().to_string_lossy()))
            .map(|entry| entry.path())
            .collect(),
    };
    paths.sort();
    paths.iter().filter_map(|path| read_config(path).ok().flatten()).collect()
}
