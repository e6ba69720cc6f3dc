//! Watches files of this machine through inotify: one descriptor, one thread, one watch for each
//! directory. The thread sleeps until something happens.
//!
//! The kernel's interface is used directly, with a mask of its own: a general library also asks for
//! every `open` in a directory, which wakes the thread for each program that reads its files.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;
use orrery_base::thread::spawn_named;
use orrery_model::ResourceId;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify::{
    CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init, remove_watch,
};
use rustix::io::Errno;

use super::watch_list::WatchList;
use super::{DriftWatch, PathSignature, RunEnd, RunMark, WatchRefusal};

/// Maximum number of watched paths and of their directories.
const PATHS_MAX: usize = 65_536;
const DIRECTORIES_MAX: usize = 8_192;
/// Resources of one report.
const REPORT_MAX: usize = 1_000;
/// Shortest time between two reports: changes in close succession share one.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);
/// Space for events of the kernel.
const BUFFER: usize = 16 * 1024;

/// Receiver of reports: resources whose paths changed. Returns false if there is none at present.
pub type DriftSink = Box<dyn Fn(&[ResourceId]) -> bool + Send + Sync>;

/// A watch of the files of this machine. It costs nothing before the first path is watched; dropping
/// it ends it.
pub struct FileWatch {
    shared: Arc<Shared>,
}

struct Shared {
    sink: Mutex<Option<Arc<DriftSink>>>,
    state: Mutex<State>,
}

/// Descriptors of a running watch.
struct Descriptors {
    inotify: OwnedFd,
    wake: OwnedFd,
}

#[derive(Default)]
struct State {
    list: WatchList,
    descriptors: Option<Arc<Descriptors>>,
    /// Watches of directories, by path. Several paths may lead to one directory.
    directories: HashMap<PathBuf, i32>,
    by_watch: HashMap<i32, Vec<PathBuf>>,
    /// Resources whose path could not be watched, and that was reported.
    refused: HashSet<ResourceId>,
    closed: bool,
}

impl fmt::Debug for FileWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileWatch").field("paths", &self.len()).finish()
    }
}

impl Default for FileWatch {
    fn default() -> Self {
        FileWatch { shared: Arc::new(Shared { sink: Mutex::default(), state: Mutex::default() }) }
    }
}

impl Drop for FileWatch {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.closed = true;
        state.wake();
    }
}

impl FileWatch {
    /// Reports to a receiver from now on; without one, nothing is watched. Reports that no run has
    /// answered are repeated to a new receiver at once.
    pub fn set_sink(&self, sink: Option<DriftSink>) {
        *self.shared.sink.lock().ignore_poison() = sink.map(Arc::new);
        let mut state = self.shared.lock();
        state.list.repeat_reports(monotonic());
        state.wake();
    }

    /// Number of watched paths.
    pub fn len(&self) -> usize {
        self.shared.lock().list.len()
    }

    /// True if no path is watched.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl DriftWatch for FileWatch {
    fn mark(&self, path: &str) -> RunMark {
        RunMark(self.shared.sink().map(|_| PathSignature::of(Path::new(path))))
    }

    fn begin_run(&self, path: &str) {
        self.shared.lock().list.begin_run(Path::new(path));
    }

    fn end_run(
        &self,
        id: &ResourceId,
        path: &str,
        mark: RunMark,
        end: RunEnd,
    ) -> Result<(), WatchRefusal> {
        let is_wanted = mark.0.is_some() && self.shared.sink().is_some();
        let path = Path::new(path);
        let mut state = self.shared.lock();
        let watched = match is_wanted && end.succeeded {
            true => state.watch_parent(path, &self.shared),
            false => Ok(()),
        };
        // After the watch exists: what happens from now on is seen.
        let current = PathSignature::of(path);
        let add = is_wanted && end.succeeded && watched.is_ok();
        state.list.end_run(id, path, (mark, current), end, (monotonic(), add));
        if state.list.next_due().is_some() {
            state.wake();
        }
        match watched {
            Ok(()) => {
                state.refused.remove(id);
                Ok(())
            }
            // A path that must not exist, in a directory that does not.
            Err(_) if current.is_missing() => Ok(()),
            Err(_) if !state.refused.insert(id.clone()) => Ok(()),
            Err(reason) => Err(WatchRefusal { path: path.display().to_string(), reason }),
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }

    fn sink(&self) -> Option<Arc<DriftSink>> {
        self.sink.lock().ignore_poison().clone()
    }

    /// Waits for events and reports changes, until the watch is dropped.
    fn run(&self, descriptors: &Descriptors) {
        let mut buffer = [MaybeUninit::uninit(); BUFFER];
        let mut reported_at: Option<Instant> = None;
        loop {
            let due = {
                let state = self.lock();
                if state.closed {
                    return;
                }
                state.list.next_due()
            };
            let due = due.map(|due| reported_at.map_or(due, |at| due.max(at + REPORT_INTERVAL)));
            if let Err(error) = wait(descriptors, due) {
                tracing::error!(%error, "files are not watched any more");
                return;
            }
            let mut reader = Reader::new(&descriptors.inotify, &mut buffer);
            let now = monotonic();
            {
                let mut state = self.lock();
                loop {
                    match reader.next() {
                        Ok(event) => {
                            let name =
                                event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
                            state.handle_event(event.wd(), event.events(), name, now);
                        }
                        Err(Errno::AGAIN) => break,
                        Err(Errno::INTR) => {}
                        Err(error) => {
                            tracing::error!(%error, "files are not watched any more");
                            return;
                        }
                    }
                }
            }
            if due.is_some_and(|due| due <= monotonic()) && self.report_due() {
                reported_at = Some(monotonic());
            }
        }
    }

    /// Reports the paths that are due and differ; returns true if there were any.
    fn report_due(&self) -> bool {
        let now = monotonic();
        let due = self.lock().list.take_due(now);
        let mut drifted: Vec<(PathBuf, Vec<ResourceId>)> = Vec::new();
        for path in due {
            let current = PathSignature::of(&path);
            let ids = self.lock().list.judge(&path, current, now);
            if !ids.is_empty() {
                drifted.push((path, ids));
            }
        }
        if drifted.is_empty() {
            return false;
        }
        let ids: Vec<ResourceId> =
            drifted.iter().flat_map(|(_, ids)| ids.iter().cloned()).collect();
        let sink = self.sink();
        let delivered = sink.is_some_and(|sink| ids.chunks(REPORT_MAX).all(|part| (**sink)(part)));
        tracing::debug!(resources = ids.len(), delivered, "files changed");
        let mut state = self.lock();
        drifted.iter().for_each(|(path, _)| state.list.record_report(path, delivered, now));
        true
    }
}

impl State {
    /// Wakes the thread: it has something to look at.
    fn wake(&self) {
        if let Some(descriptors) = &self.descriptors {
            // Fails only if the counter is full, and then the thread is woken already.
            let _ = rustix::io::write(&descriptors.wake, &1u64.to_ne_bytes());
        }
    }

    /// Watches the directory of a path. Starts the thread with the first one.
    fn watch_parent(&mut self, path: &Path, shared: &Arc<Shared>) -> Result<(), String> {
        let Some(directory) = path.parent() else { return Err("it has no directory".to_owned()) };
        let is_new = !self.list.contains(path);
        if is_new && (self.list.len() >= PATHS_MAX || self.directories.len() >= DIRECTORIES_MAX) {
            return Err(format!(
                "at most {PATHS_MAX} paths in {DIRECTORIES_MAX} directories are watched"
            ));
        }
        if self.directories.contains_key(directory) {
            return Ok(());
        }
        let descriptors = self.descriptors(shared).map_err(|error| error.to_string())?;
        let flags = WatchFlags::CLOSE_WRITE
            | WatchFlags::ATTRIB
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        let watch =
            add_watch(&descriptors.inotify, directory, flags).map_err(|error| match error {
                Errno::NOSPC => {
                    "the limit of the system is reached (fs.inotify.max_user_watches)".to_owned()
                }
                error => error.to_string(),
            })?;
        self.directories.insert(directory.to_owned(), watch);
        self.by_watch.entry(watch).or_default().push(directory.to_owned());
        Ok(())
    }

    /// Returns the descriptors; creates them, and the thread, at the first use.
    fn descriptors(&mut self, shared: &Arc<Shared>) -> io::Result<Arc<Descriptors>> {
        if let Some(descriptors) = &self.descriptors {
            return Ok(Arc::clone(descriptors));
        }
        let descriptors = Arc::new(Descriptors {
            inotify: init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?,
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        });
        let (own, shared) = (Arc::clone(&descriptors), Arc::clone(shared));
        spawn_named("drift", move || shared.run(&own))?;
        self.descriptors = Some(Arc::clone(&descriptors));
        Ok(descriptors)
    }

    fn handle_event(&mut self, watch: i32, events: ReadFlags, name: Option<&OsStr>, now: Instant) {
        if events.contains(ReadFlags::QUEUE_OVERFLOW) {
            tracing::warn!("the kernel dropped events of files; all watched files are compared");
            return self.list.touch_all_in(None, now);
        }
        let gone = ReadFlags::IGNORED | ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF;
        if events.intersects(gone) {
            return self.drop_directory(watch, events.contains(ReadFlags::MOVE_SELF), now);
        }
        let Some(name) = name else { return };
        for directory in self.by_watch.get(&watch).into_iter().flatten() {
            self.list.touch(&directory.join(name), now);
        }
    }

    /// Drops the watch of a directory that is gone. It is watched again after the next run there.
    fn drop_directory(&mut self, watch: i32, still_watched: bool, now: Instant) {
        if still_watched && let Some(descriptors) = &self.descriptors {
            let _ = remove_watch(&descriptors.inotify, watch);
        }
        for directory in self.by_watch.remove(&watch).into_iter().flatten() {
            self.directories.remove(&directory);
            self.list.touch_all_in(Some(&directory), now);
        }
    }
}

/// Waits for an event, a wake-up or a time.
fn wait(descriptors: &Descriptors, until: Option<Instant>) -> io::Result<()> {
    let timeout = until.map(|until| {
        let left = until.saturating_duration_since(monotonic());
        Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        }
    });
    let mut ready = [
        PollFd::new(&descriptors.inotify, PollFlags::IN),
        PollFd::new(&descriptors.wake, PollFlags::IN),
    ];
    match poll(&mut ready, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let mut count = [0; 8];
    // Nothing to read means that nothing woke the thread.
    let _ = rustix::io::read(&descriptors.wake, &mut count);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

    use super::*;

    const LONG: Duration = Duration::from_secs(20);
    const DONE: RunEnd = RunEnd { succeeded: true, changed: true };

    struct Scene {
        directory: tempfile::TempDir,
        watch: FileWatch,
        reports: Receiver<Vec<ResourceId>>,
    }

    impl Scene {
        fn new() -> Self {
            let (sender, reports) = channel();
            let watch = FileWatch::default();
            watch.set_sink(Some(Box::new(move |ids| sender.send(ids.to_vec()).is_ok())));
            Scene { directory: tempfile::tempdir().unwrap(), watch, reports }
        }

        fn path(&self, name: &str) -> String {
            self.directory.path().join(name).display().to_string()
        }

        fn id(&self, name: &str) -> ResourceId {
            ResourceId::new("std::File", "a", "path", &self.path(name)).unwrap()
        }

        /// A run that writes a file in place of the former one.
        fn deploy(&self, name: &str) {
            let (id, path) = (self.id(name), self.path(name));
            let mark = self.watch.mark(&path);
            self.watch.begin_run(&path);
            fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
            fs::write(format!("{path}.new"), "desired").unwrap();
            fs::rename(format!("{path}.new"), &path).unwrap();
            self.watch.end_run(&id, &path, mark, DONE).unwrap();
        }

        /// A run that finds everything as it should be.
        fn confirm(&self, name: &str) {
            let (id, path) = (self.id(name), self.path(name));
            let mark = self.watch.mark(&path);
            self.watch.begin_run(&path);
            let end = RunEnd { succeeded: true, changed: false };
            self.watch.end_run(&id, &path, mark, end).unwrap();
        }

        fn report(&self) -> Vec<ResourceId> {
            let mut report = self.reports.recv_timeout(LONG).unwrap();
            report.sort_unstable();
            report
        }

        fn assert_quiet(&self) {
            let waited = self.reports.recv_timeout(Duration::from_millis(600));
            assert_eq!(waited, Err(RecvTimeoutError::Timeout));
        }
    }

    #[test]
    fn changes_of_every_kind_are_reported_once() {
        let scene = Scene::new();
        scene.deploy("file");
        scene.assert_quiet();
        let path = scene.path("file");
        let changes: [&dyn Fn(); 4] = [
            &|| fs::write(&path, "other").unwrap(),
            &|| fs::remove_file(&path).unwrap(),
            &|| {
                use std::os::unix::fs::PermissionsExt as _;
                fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            },
            &|| fs::write(&path, "again").unwrap(),
        ];
        for change in &changes[..3] {
            change();
            assert_eq!(scene.report(), [scene.id("file")]);
            scene.deploy("file");
        }
        assert_eq!(scene.report(), [scene.id("file")], "a repair is confirmed");
        scene.confirm("file");
        scene.assert_quiet();
    }

    #[test]
    fn reading_and_changes_of_other_files_are_not_reported() {
        let scene = Scene::new();
        scene.deploy("file");
        fs::read(scene.path("file")).unwrap();
        fs::write(scene.path("other"), "x").unwrap();
        scene.assert_quiet();
    }

    #[test]
    fn a_directory_that_is_replaced_is_watched_again_after_the_run() {
        let scene = Scene::new();
        scene.deploy("sub/file");
        fs::remove_dir_all(scene.path("sub")).unwrap();
        assert_eq!(scene.report(), [scene.id("sub/file")]);
        scene.deploy("sub/file");
        fs::write(scene.path("sub/file"), "other").unwrap();
        assert_eq!(scene.report(), [scene.id("sub/file")]);
    }

    #[test]
    fn many_files_that_change_together_share_reports() {
        let scene = Scene::new();
        let names: Vec<String> = (0..1_000).map(|number| format!("f{number}")).collect();
        names.iter().for_each(|name| scene.deploy(name));
        names.iter().for_each(|name| fs::write(scene.path(name), "other").unwrap());
        let mut reported = HashSet::new();
        let mut reports = 0;
        while reported.len() < names.len() {
            reported.extend(scene.report());
            reports += 1;
        }
        assert!(reports <= 20, "{reports}");
    }

    #[test]
    fn without_a_receiver_nothing_is_watched_and_a_new_one_gets_what_waits() {
        let scene = Scene::new();
        scene.watch.set_sink(None);
        scene.deploy("file");
        assert!(scene.watch.is_empty());
        let (sender, reports) = channel();
        scene.watch.set_sink(Some(Box::new(move |_| sender.send(()).is_err())));
        scene.deploy("file");
        fs::write(scene.path("file"), "other").unwrap();
        reports.recv_timeout(LONG).expect("it is offered, and refused");
        let (sender, reports) = channel();
        scene.watch.set_sink(Some(Box::new(move |ids| sender.send(ids.len()).is_ok())));
        assert_eq!(reports.recv_timeout(LONG), Ok(1));
    }
}
