//! What each task of a compile sees and may write: cloning is the server's own, installing writes the virtualenv, compiling the result.

use std::ffi::OsString;
use std::path::PathBuf;

use orrery_sandbox::Confinement;

use super::CompileOptions;
use super::job::Task;
use super::place::Place;

/// What a task runs in; `None` for those that run no code of tenants, and need the credentials of the server's user.
pub(super) fn for_task(
    task: Task,
    confinement: Confinement,
    place: &Place,
    options: &CompileOptions,
) -> Option<Confinement> {
    let bytecode = place.bytecode();
    let mut confinement = confinement
        .readable(place.project())
        .writable(&bytecode)
        .env("PYTHONPYCACHEPREFIX", bytecode);
    confinement.policy.limits.disk = Some(options.disk_max);
    match task {
        Task::Fetch | Task::FetchUpdates => None,
        Task::Install | Task::Update => {
            let mut confinement = confinement.readable(place.fetched());
            for (name, value) in pip_variables() {
                let paths = local_paths(&value.to_string_lossy());
                confinement = confinement.env(&name, &value);
                confinement = paths.into_iter().fold(confinement, Confinement::readable);
            }
            let paths = options.variables.values().flat_map(|value| local_paths(value));
            confinement = paths.fold(confinement, Confinement::readable);
            confinement = confinement.env("XDG_CACHE_HOME", place.cache());
            Some(confinement.writable(place.python()).writable(place.cache()))
        }
        Task::Compile => Some(confinement.readable(place.python()).writable(place.scratch())),
    }
}

/// What pip is told by the server's own environment. It is for installing only: there may be passwords of indexes in it.
fn pip_variables() -> Vec<(String, OsString)> {
    let all =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    let mut found: Vec<(String, OsString)> =
        all.filter(|(name, _)| name.starts_with("PIP_")).collect();
    // The file of the server's user, whose home is not seen.
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let home = variable("HOME").map(PathBuf::from);
    let config = variable("XDG_CONFIG_HOME").map(PathBuf::from);
    let config = config.or_else(|| Some(home.as_ref()?.join(".config")));
    let files =
        [config.map(|dir| dir.join("pip/pip.conf")), home.map(|dir| dir.join(".pip/pip.conf"))];
    let file = files.into_iter().flatten().find(|path| path.is_file());
    if let Some(file) = file.filter(|_| found.iter().all(|(name, _)| name != "PIP_CONFIG_FILE")) {
        found.push(("PIP_CONFIG_FILE".to_owned(), file.into()));
    }
    found
}

/// Paths of this machine that a variable of the server's administrator names.
fn local_paths(value: &str) -> Vec<PathBuf> {
    let paths = value.split_whitespace().map(|word| word.strip_prefix("file://").unwrap_or(word));
    paths.map(PathBuf::from).filter(|path| path.is_absolute() && path.exists()).collect()
}
