//! Confinement of each step of a compile: fetching runs as the server, installing writes the
//! virtualenv, compiling writes the result.

use std::ffi::OsString;
use std::path::PathBuf;

use orrery_sandbox::Confinement;

use crate::CompileOptions;
use crate::job::CompileStep;
use crate::workdir::Workdir;

/// Returns the confinement of a step; `None` for steps that run no tenant code and need the
/// credentials of the server's user.
pub(crate) fn for_task(
    task: CompileStep,
    confinement: Confinement,
    workdir: &Workdir,
    options: &CompileOptions,
) -> Option<Confinement> {
    let bytecode = workdir.bytecode();
    let mut confinement = confinement
        .readable(workdir.project())
        .writable(&bytecode)
        .env("PYTHONPYCACHEPREFIX", bytecode);
    confinement.policy.limits.disk = Some(options.disk_max);
    match task {
        CompileStep::Fetch | CompileStep::FetchUpdates => None,
        CompileStep::Install | CompileStep::Update => {
            let mut confinement = confinement.readable(workdir.fetched());
            for (name, value) in pip_variables() {
                let paths = local_paths(&value.to_string_lossy());
                confinement = confinement.env(&name, &value);
                confinement = paths.into_iter().fold(confinement, Confinement::readable);
            }
            let paths = options.variables.values().flat_map(|value| local_paths(value));
            confinement = paths.fold(confinement, Confinement::readable);
            confinement = confinement.env("XDG_CACHE_HOME", workdir.cache());
            Some(confinement.writable(workdir.python()).writable(workdir.cache()))
        }
        CompileStep::Compile => {
            Some(confinement.readable(workdir.python()).writable(workdir.scratch()))
        }
    }
}

/// Returns the pip variables of the server's environment, for installing only: they may contain
/// passwords of indexes.
fn pip_variables() -> Vec<(String, OsString)> {
    let all =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    let mut found: Vec<(String, OsString)> =
        all.filter(|(name, _)| name.starts_with("PIP_")).collect();
    // Configuration file of the server's user, whose home is hidden.
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

/// Returns the local paths in a variable that the administrator set.
fn local_paths(value: &str) -> Vec<PathBuf> {
    let paths = value.split_whitespace().map(|word| word.strip_prefix("file://").unwrap_or(word));
    paths.map(PathBuf::from).filter(|path| path.is_absolute() && path.exists()).collect()
}
