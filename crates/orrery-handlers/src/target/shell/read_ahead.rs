//! Reads the state of many paths in one round trip, for runs that are about to start.
//!
//! A state is used once, within seconds, and only if nothing was changed through this target since.
//! Changes by others in these seconds are found by the next run, as if they had come after it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;

use super::listing;
use super::script::quote;
use super::session::Session;
use crate::error::TargetVerb;
use crate::read_ahead_window::ReadAheadWindow;
use crate::target::{Algorithm, ContentDigest, ReadAhead, Stat, check_path, split_path};

/// Lifetime of a state.
const TTL: Duration = Duration::from_secs(5);

/// State of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PrefetchedState {
    /// Attributes, and the destination of a link; `None` if it does not exist.
    pub(super) found: Option<(Stat, Option<String>)>,
    pub(super) digest: Option<ContentDigest>,
}

/// States of paths that were read ahead.
#[derive(Debug, Default)]
pub(super) struct ReadAheadCache(Mutex<CacheState>);

#[derive(Debug, Default)]
struct CacheState {
    /// Grows with each invalidation.
    changes: u64,
    read_at: Option<Instant>,
    paths: HashMap<String, PrefetchedState>,
    window: ReadAheadWindow,
}

impl CacheState {
    /// Drops states that are too old.
    fn expire(&mut self) {
        if self.read_at.is_none_or(|read_at| read_at.elapsed() > TTL) {
            self.paths.clear();
        }
    }
}

impl ReadAheadCache {
    /// Takes the state of a path, if it is known and fresh.
    pub(super) fn take(&self, path: &str) -> Option<PrefetchedState> {
        let mut state = self.0.lock().ignore_poison();
        state.expire();
        let found = state.paths.remove(path)?;
        state.window.record_use();
        Some(found)
    }

    /// Number of paths to read before a run that begins with this one; 0 if it is known.
    pub(super) fn prefetch_max(&self, path: &str) -> usize {
        let mut state = self.0.lock().ignore_poison();
        state.expire();
        if state.paths.contains_key(path) { 0 } else { state.window.size() }
    }

    /// Drops all states: something is about to change.
    pub(super) fn invalidate(&self) {
        let mut state = self.0.lock().ignore_poison();
        state.changes += 1;
        if !state.paths.is_empty() {
            state.paths.clear();
            state.window.drop_rest();
        }
    }

    fn changes(&self) -> u64 {
        self.0.lock().ignore_poison().changes
    }

    /// Replaces the states, unless something changed since `changes`.
    fn replace(&self, changes: u64, read_at: Instant, paths: HashMap<String, PrefetchedState>) {
        let mut state = self.0.lock().ignore_poison();
        if state.changes == changes {
            state.read_at = Some(read_at);
            state.paths = paths;
            state.window.start_batch();
        }
    }
}

/// Names of one directory, with the digests to compute.
type Names<'r> = BTreeMap<&'r str, Option<Algorithm>>;

/// Reads the states of paths. A failure is that of the run that needs them.
pub(super) fn prefetch(session: &Session, reads: &[ReadAhead<'_>]) {
    let mut directories: BTreeMap<&str, Names<'_>> = BTreeMap::new();
    for read in reads {
        // The names are compared with lines of output.
        let Ok(path) = check_path(TargetVerb::Stat, read.path) else { continue };
        if path.contains('\\') || path.chars().any(char::is_control) {
            continue;
        }
        let (directory, name) = split_path(path);
        directories.entry(directory).or_default().insert(name, read.content);
    }
    if directories.is_empty() {
        return;
    }
    let (changes, read_at) = (session.read_ahead.changes(), monotonic());
    match read_directories(session, &directories) {
        Ok(paths) => session.read_ahead.replace(changes, read_at, paths),
        Err(error) => tracing::debug!(%error, "cannot read ahead"),
    }
}

fn read_directories(
    session: &Session,
    directories: &BTreeMap<&str, Names<'_>>,
) -> crate::target::Result<HashMap<String, PrefetchedState>> {
    let capabilities = session.capabilities(TargetVerb::Stat)?;
    let mut script = session
        .script(TargetVerb::Stat)?
        .part(include_str!("scripts/prefetch.sh"))
        .part("reply states");
    for (directory, names) in directories {
        let mut code = String::from("(\n");
        code.push_str(&format!("directory {}", quote(directory)));
        names.keys().for_each(|name| code.push_str(&format!(" {}", quote(name))));
        for algorithm in [Algorithm::Md5, Algorithm::Sha1, Algorithm::Sha256] {
            let Some(program) = capabilities.digest_program(algorithm) else { continue };
            let hashed = names.iter().filter(|(_, content)| **content == Some(algorithm));
            let hashed: String = hashed.map(|(name, _)| format!(" {}", quote(name))).collect();
            if !hashed.is_empty() {
                code.push_str(&format!("\ndigests {program}{hashed}"));
            }
        }
        code.push_str("\nprintf 'end\\n'\n)");
        script = script.part(&code);
    }
    let reply = session.call(TargetVerb::Stat, "files", script)?;
    if reply.truncated {
        return Ok(HashMap::new());
    }
    let text = String::from_utf8_lossy(&reply.body);
    let mut groups = directories.iter();
    let mut states = HashMap::new();
    let mut current: Option<(&str, &Names<'_>)> = None;
    let mut lines = Vec::new();
    for line in text.lines() {
        match line {
            "directory" => {
                current = groups.next().map(|(directory, names)| (*directory, names));
                lines.clear();
            }
            "end" => {
                if let Some((directory, names)) = current.take() {
                    add_states(directory, names, &lines, &mut states);
                }
            }
            line => lines.push(line),
        }
    }
    Ok(states)
}

/// Adds the states of one directory.
fn add_states(
    directory: &str,
    names: &Names<'_>,
    lines: &[&str],
    states: &mut HashMap<String, PrefetchedState>,
) {
    let path = |name: &str| format!("{}/{name}", directory.trim_end_matches('/'));
    if lines.first() == Some(&"missing") {
        for name in names.keys() {
            states.insert(path(name), PrefetchedState { found: None, digest: None });
        }
        return;
    }
    for line in lines {
        if let Some(name) = line.strip_prefix("absent ./") {
            states.insert(path(name), PrefetchedState { found: None, digest: None });
        } else if let Some((stat, rest)) = listing::parse(line) {
            let Some(rest) = rest.strip_prefix("./") else { continue };
            let (name, leads_to) = match rest.split_once(" -> ") {
                Some((name, leads_to)) if names.contains_key(name) => {
                    (name, Some(leads_to.to_owned()))
                }
                _ => (rest, None),
            };
            if names.contains_key(name) {
                let found = Some((stat, leads_to));
                states.insert(path(name), PrefetchedState { found, digest: None });
            }
        } else if let Some((digest, name)) = line.split_once(' ')
            && let Some(name) = name.trim_start_matches([' ', '*']).strip_prefix("./")
            && let Ok(digest) = digest.parse::<ContentDigest>()
            && let Some(state) = states.get_mut(&path(name))
        {
            state.digest = Some(digest);
        }
    }
}
