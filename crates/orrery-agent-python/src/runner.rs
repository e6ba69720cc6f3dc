//! Runner of Python handlers: one handler for each set of code.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use orrery_agent::CodeRunner;
use orrery_agent::protocol::CodeReference;
use orrery_base::lock::IgnorePoison;
use orrery_handler_host::HostLimits;
use orrery_handlers::Handler;
use orrery_model::VersionNumber;

use crate::code_handler::CodeHandler;
use crate::directories::Directories;

/// Maximum number of sets with processes; the one that was not used for the longest time ends.
const SETS_MAX: usize = 8;

/// Runs Python handlers with code that the server sends. Starts nothing before the first one.
pub struct PythonRunner {
    directories: Directories,
    limits: HostLimits,
    sets: Mutex<Sets>,
}

#[derive(Default)]
struct Sets {
    by_code: BTreeMap<CodeReference, (u64, Arc<CodeHandler>)>,
    /// Number of uses, which orders them.
    uses: u64,
}

impl fmt::Debug for PythonRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PythonRunner")
            .field("directories", &self.directories)
            .finish_non_exhaustive()
    }
}

impl PythonRunner {
    /// Caches code and virtualenvs below a directory, which is created when it is needed.
    pub fn new(directory: &Path) -> Self {
        PythonRunner {
            directories: Directories::new(directory),
            limits: HostLimits::default(),
            sets: Mutex::default(),
        }
    }

    /// Limits the private memory of each process, in bytes; `None` for no limit.
    #[must_use]
    pub fn with_memory_max(mut self, memory_max: Option<u64>) -> Self {
        self.limits.memory_max = memory_max;
        self
    }
}

impl CodeRunner for PythonRunner {
    fn handler(&self, code: &CodeReference, version: VersionNumber) -> Arc<dyn Handler> {
        let (handler, ended) = {
            let mut sets = self.sets.lock().ignore_poison();
            sets.uses += 1;
            let number = sets.uses;
            let create = || {
                let new = CodeHandler::new(code.clone(), self.directories.clone(), self.limits);
                (number, Arc::new(new))
            };
            let entry = sets.by_code.entry(code.clone()).or_insert_with(create);
            entry.0 = number;
            let handler = Arc::clone(&entry.1);
            (handler, sets.take_excess())
        };
        // Outside of the lock: processes need a moment to end.
        for old in ended {
            old.close();
        }
        handler.begin_version(version);
        handler
    }

    fn close(&self) {
        let sets = std::mem::take(&mut self.sets.lock().ignore_poison().by_code);
        for (_, handler) in sets.into_values() {
            handler.close();
        }
    }
}

impl Sets {
    /// Removes sets beyond the maximum that no run uses.
    fn take_excess(&mut self) -> Vec<Arc<CodeHandler>> {
        let mut idle: Vec<(u64, CodeReference)> = self
            .by_code
            .iter()
            .filter(|(_, (_, handler))| Arc::strong_count(handler) == 1)
            .map(|(code, (number, _))| (*number, code.clone()))
            .collect();
        idle.sort_unstable();
        let excess = self.by_code.len().saturating_sub(SETS_MAX);
        let removed = idle.iter().take(excess);
        removed.filter_map(|(_, code)| Some(self.by_code.remove(code)?.1)).collect()
    }
}

/// Directory for a process without a state directory of its own: beside the helper's binary.
pub fn cache_directory() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let given = variable("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = match given {
        Some(cache) => cache,
        None if rustix::process::geteuid().is_root() => PathBuf::from("/var/cache"),
        None => PathBuf::from(variable("HOME")?).join(".cache"),
    };
    Some(cache.join("orrery/python"))
}
