//! Watched paths and when to look at them: pure, times and signatures are arguments.
//!
//! ```text
//! event ──► due after a quiet time ──► signature differs ──► report ──► run ──► new signature
//! ```
//!
//! A report without a run is repeated, at growing intervals. A path that keeps drifting after its
//! runs is reported ever more rarely, so that two parties that both write it do not loop.
//!
//! A change of others within a repair is taken for a part of it. So the repair of a drift is
//! followed by one more run, which confirms it; if that one changes the path, it counts as a drift.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use orrery_model::ResourceId;

use super::{PathSignature, RunEnd, RunMark};

/// A path is looked at once it has been quiet for this time: programs write in several steps.
const QUIET_FOR: Duration = Duration::from_millis(150);
/// A path that never becomes quiet is looked at after this time.
const NEVER_QUIET: Duration = Duration::from_secs(2);
/// First and longest interval between two reports of the same drift.
const REPEAT_FIRST: Duration = Duration::from_secs(5);
const REPEAT_MAX: Duration = Duration::from_mins(1);
/// Reports of one drift, after which the path is forgotten until its next run.
const REPORTS_MAX: u32 = 8;
/// Drifts of a path in a row that are reported at once.
const IMMEDIATE: u32 = 3;
/// Longest time that a path that keeps drifting is left alone.
const HOLD_MAX: Duration = Duration::from_mins(5);
/// A path without drift for this time starts over.
const CALM_AFTER: Duration = Duration::from_mins(10);

/// One watched path.
#[derive(Debug)]
struct Watched {
    /// Resources with this path; more than one if an operator manages it twice.
    ids: Vec<ResourceId>,
    /// State after the last run.
    expected: PathSignature,
    /// Runs in progress.
    runs: u32,
    due: Option<Instant>,
    /// First event since the path was last looked at.
    first_event: Option<Instant>,
    /// Reports of the current drift without a run.
    reports: u32,
    /// Drifts in a row, and the time of the last one.
    drifts: u32,
    drifted_at: Option<Instant>,
    /// The run in progress answers a report.
    answers: bool,
    confirmation: Confirmation,
}

/// Confirmation of a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Confirmation {
    None,
    /// A repair has ended, and a run is to be reported.
    Due,
    /// Reported: the next run confirms.
    Requested,
}

/// All watched paths.
#[derive(Debug, Default)]
pub(super) struct WatchList {
    paths: HashMap<PathBuf, Watched>,
    due: BTreeSet<(Instant, PathBuf)>,
}

impl WatchList {
    pub(super) fn len(&self) -> usize {
        self.paths.len()
    }

    pub(super) fn contains(&self, path: &Path) -> bool {
        self.paths.contains_key(path)
    }

    /// Time at which a path must be looked at.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    fn schedule(&mut self, path: &Path, at: Option<Instant>) {
        let Some(watched) = self.paths.get_mut(path) else { return };
        let former = std::mem::replace(&mut watched.due, at);
        if former == at {
            return;
        }
        if let Some(former) = former {
            self.due.remove(&(former, path.to_owned()));
        }
        if let Some(at) = at {
            self.due.insert((at, path.to_owned()));
        }
    }

    /// Something happened at a path.
    pub(super) fn touch(&mut self, path: &Path, now: Instant) {
        let Some(watched) = self.paths.get_mut(path) else { return };
        // The end of a run compares, and a report waits for its run or its repetition.
        if watched.runs > 0 || watched.reports > 0 {
            return;
        }
        let first = *watched.first_event.get_or_insert(now);
        self.schedule(path, Some((now + QUIET_FOR).min(first + NEVER_QUIET)));
    }

    /// Something may have happened at all paths, or at those in a directory.
    pub(super) fn touch_all_in(&mut self, directory: Option<&Path>, now: Instant) {
        let is_meant = |path: &&PathBuf| directory.is_none() || path.parent() == directory;
        let paths: Vec<PathBuf> = self.paths.keys().filter(is_meant).cloned().collect();
        paths.iter().for_each(|path| self.touch(path, now));
    }

    /// Makes reports that wait for a repetition due: there is a new receiver.
    pub(super) fn repeat_reports(&mut self, now: Instant) {
        let waiting = self.paths.iter().filter(|(_, watched)| watched.reports > 0);
        let paths: Vec<PathBuf> = waiting.map(|(path, _)| path.clone()).collect();
        paths.iter().for_each(|path| self.schedule(path, Some(now)));
    }

    pub(super) fn begin_run(&mut self, path: &Path) {
        if let Some(watched) = self.paths.get_mut(path) {
            watched.runs += 1;
            watched.answers = watched.reports > 0;
            watched.reports = 0;
            watched.first_event = None;
            self.schedule(path, None);
        }
    }

    /// Ends a run: from now on `current` is expected, unless the path changed during the run
    /// without the run. `add` watches a path that was not watched before.
    pub(super) fn end_run(
        &mut self,
        id: &ResourceId,
        path: &Path,
        (mark, current): (RunMark, PathSignature),
        end: RunEnd,
        (now, add): (Instant, bool),
    ) {
        if !self.paths.contains_key(path) {
            if !add {
                return;
            }
            let watched = Watched {
                ids: Vec::new(),
                expected: current,
                runs: 1,
                due: None,
                first_event: None,
                reports: 0,
                drifts: 0,
                drifted_at: None,
                answers: false,
                confirmation: Confirmation::None,
            };
            self.paths.insert(path.to_owned(), watched);
        }
        let Some(watched) = self.paths.get_mut(path) else { return };
        watched.runs = watched.runs.saturating_sub(1);
        if end.succeeded && !watched.ids.contains(id) {
            watched.ids.push(id.clone());
        }
        let changed_by_others = !end.changed && mark.0.is_some_and(|before| before != current);
        watched.expected = match mark.0 {
            Some(before) if changed_by_others => before,
            _ => current,
        };
        let has_repaired = std::mem::take(&mut watched.answers) && end.succeeded && end.changed;
        let confirmed = std::mem::replace(&mut watched.confirmation, Confirmation::None);
        if has_repaired {
            watched.confirmation = Confirmation::Due;
            // The confirming run found a change of others.
            if confirmed == Confirmation::Requested {
                watched.drifts = watched.drifts.saturating_add(1);
                watched.drifted_at = Some(now);
            }
        }
        if changed_by_others || has_repaired {
            self.touch(path, now);
        }
    }

    /// Takes the paths that are due.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<PathBuf> {
        let mut due = Vec::new();
        while let Some((at, path)) = self.due.first().cloned()
            && at <= now
        {
            self.schedule(&path, None);
            due.push(path);
        }
        due
    }

    /// Judges a path that was due; returns the resources to report. They count as reported only if
    /// [`record_report`](Self::record_report) follows.
    pub(super) fn judge(
        &mut self,
        path: &Path,
        current: PathSignature,
        now: Instant,
    ) -> Vec<ResourceId> {
        let Some(watched) = self.paths.get_mut(path) else { return Vec::new() };
        watched.first_event = None;
        if watched.runs > 0 {
            return Vec::new();
        }
        if current == watched.expected && watched.confirmation == Confirmation::None {
            watched.reports = 0;
            return Vec::new();
        }
        if watched.reports == 0 {
            if watched.drifted_at.is_none_or(|at| now.duration_since(at) >= CALM_AFTER) {
                watched.drifts = 0;
            }
            let hold = hold_after(watched.drifts);
            if let Some(until) = watched.drifted_at.map(|at| at + hold).filter(|at| *at > now) {
                self.schedule(path, Some(until));
                return Vec::new();
            }
        }
        watched.ids.clone()
    }

    /// Records that a path was reported, or that it could not be.
    pub(super) fn record_report(&mut self, path: &Path, delivered: bool, now: Instant) {
        let Some(watched) = self.paths.get_mut(path) else { return };
        if watched.runs > 0 {
            return;
        }
        if !delivered {
            return self.schedule(path, Some(now + REPEAT_FIRST));
        }
        if watched.reports == 0 && watched.confirmation == Confirmation::None {
            watched.drifts = watched.drifts.saturating_add(1);
            watched.drifted_at = Some(now);
        }
        if watched.confirmation == Confirmation::Due {
            watched.confirmation = Confirmation::Requested;
        }
        watched.reports += 1;
        if watched.reports >= REPORTS_MAX {
            // Its resource is not managed any more, or a pause keeps the reports.
            self.schedule(path, None);
            self.paths.remove(path);
            return;
        }
        let doublings = (watched.reports - 1).min(16);
        let at = now + REPEAT_FIRST.saturating_mul(1 << doublings).min(REPEAT_MAX);
        self.schedule(path, Some(at));
    }
}

/// Time after a drift in which the next one is not reported, by the number of drifts in a row.
fn hold_after(drifts: u32) -> Duration {
    match drifts.checked_sub(IMMEDIATE) {
        None => Duration::ZERO,
        Some(more) => Duration::from_secs(1).saturating_mul(1 << more.min(16)).min(HOLD_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DONE: RunEnd = RunEnd { succeeded: true, changed: true };
    const UNCHANGED: RunEnd = RunEnd { succeeded: true, changed: false };

    struct Scene {
        directory: tempfile::TempDir,
        list: WatchList,
        now: Instant,
        versions: u32,
    }

    impl Scene {
        /// A file that a run wrote.
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let mut scene =
                Scene { directory, list: WatchList::default(), now: Instant::now(), versions: 0 };
            scene.write();
            scene.run(DONE);
            scene
        }

        fn path(&self) -> PathBuf {
            self.directory.path().join("file")
        }

        fn id(&self) -> ResourceId {
            ResourceId::new("std::File", "a", "path", &self.path().display().to_string()).unwrap()
        }

        /// Replaces the file; each one has another size.
        fn write(&mut self) {
            self.versions += 1;
            std::fs::write(self.path(), "x".repeat(self.versions as usize)).unwrap();
        }

        fn run(&mut self, end: RunEnd) {
            let (path, id) = (self.path(), self.id());
            let mark = RunMark(Some(PathSignature::of(&path)));
            self.list.begin_run(&path);
            if end.changed {
                self.write();
            }
            let signatures = (mark, PathSignature::of(&path));
            self.list.end_run(&id, &path, signatures, end, (self.now, true));
        }

        fn drift(&mut self) {
            self.write();
            let path = self.path();
            self.list.touch(&path, self.now);
        }

        /// Advances to the next due path, at most for a day; returns the time that passed before a
        /// report.
        fn reported(&mut self) -> Option<Duration> {
            let began = self.now;
            while let Some(at) = self.list.next_due() {
                self.now = self.now.max(at);
                for path in self.list.take_due(self.now) {
                    let ids = self.list.judge(&path, PathSignature::of(&path), self.now);
                    if !ids.is_empty() {
                        assert_eq!(ids, [self.id()]);
                        self.list.record_report(&path, true, self.now);
                        return Some(self.now - began);
                    }
                }
            }
            None
        }
    }

    #[test]
    fn a_change_is_reported_when_it_is_quiet() {
        let mut scene = Scene::new();
        assert_eq!(scene.reported(), None);
        scene.drift();
        assert_eq!(scene.reported(), Some(QUIET_FOR));
        scene.run(DONE);
        assert_eq!(scene.reported(), Some(QUIET_FOR), "one run confirms the repair");
        scene.run(UNCHANGED);
        assert_eq!(scene.reported(), None, "the run mended it");
    }

    #[test]
    fn a_change_within_a_repair_is_found_by_its_confirmation() {
        let mut scene = Scene::new();
        scene.drift();
        scene.reported().unwrap();
        // The state at the end of the run is that of another program, and looks like its own.
        scene.run(DONE);
        assert_eq!(scene.reported(), Some(QUIET_FOR));
        scene.run(DONE);
        assert_eq!(scene.reported(), Some(QUIET_FOR), "it repaired something, too");
        scene.run(UNCHANGED);
        assert_eq!(scene.reported(), None);
        // A deploy that no drift has caused needs none: there may be thousands.
        scene.run(DONE);
        assert_eq!(scene.reported(), None);
    }

    #[test]
    fn confirmations_that_always_find_a_change_become_rare() {
        let mut scene = Scene::new();
        scene.drift();
        let mut waits: Vec<u64> = Vec::new();
        for _ in 0..14 {
            waits.push(scene.reported().unwrap().as_secs());
            scene.run(DONE);
        }
        assert_eq!(waits[..3], [0, 0, 0]);
        assert!(waits[4..].windows(2).all(|two| two[0] <= two[1]), "{waits:?}");
        assert_eq!(waits.last(), Some(&300), "five minutes after the one before");
    }

    #[test]
    fn the_writes_of_a_run_are_not_drift() {
        let mut scene = Scene::new();
        let path = scene.path();
        scene.run(DONE);
        // Events of its writes that arrive late.
        scene.list.touch(&path, scene.now);
        assert_eq!(scene.reported(), None);
    }

    #[test]
    fn a_change_during_a_run_that_changes_nothing_is_drift() {
        let mut scene = Scene::new();
        let (path, id) = (scene.path(), scene.id());
        let mark = RunMark(Some(PathSignature::of(&path)));
        scene.list.begin_run(&path);
        scene.drift();
        let signatures = (mark, PathSignature::of(&path));
        scene.list.end_run(&id, &path, signatures, UNCHANGED, (scene.now, true));
        assert_eq!(scene.reported(), Some(QUIET_FOR));
    }

    #[test]
    fn a_path_that_never_becomes_quiet_is_reported_nevertheless() {
        let mut scene = Scene::new();
        let began = scene.now;
        let path = scene.path();
        scene.drift();
        for _ in 0..100 {
            scene.now += Duration::from_millis(100);
            if scene.list.next_due().is_some_and(|due| due <= scene.now) {
                break;
            }
            scene.list.touch(&path, scene.now);
        }
        assert!(scene.reported().is_some());
        assert!(scene.now - began <= NEVER_QUIET + Duration::from_millis(100));
    }

    #[test]
    fn a_report_without_a_run_is_repeated_and_then_forgotten() {
        let mut scene = Scene::new();
        scene.drift();
        let mut waits: Vec<u64> = Vec::new();
        while let Some(wait) = scene.reported() {
            waits.push(wait.as_secs());
        }
        assert_eq!(waits, [0, 5, 10, 20, 40, 60, 60, 60]);
        assert_eq!(scene.list.len(), 0);
    }

    #[test]
    fn a_path_that_keeps_drifting_is_reported_ever_more_rarely() {
        let mut scene = Scene::new();
        let mut waits: Vec<u64> = Vec::new();
        for _ in 0..14 {
            scene.drift();
            waits.push(scene.reported().unwrap().as_secs());
            scene.run(DONE);
        }
        assert_eq!(waits[..3], [0, 0, 0]);
        assert!(waits[4..].windows(2).all(|two| two[0] <= two[1]), "{waits:?}");
        assert_eq!(waits.last(), Some(&300), "five minutes after the one before");
        scene.reported().unwrap();
        scene.run(UNCHANGED);
        scene.now += CALM_AFTER;
        scene.drift();
        assert_eq!(scene.reported(), Some(QUIET_FOR), "it was calm");
    }

    #[test]
    fn an_undelivered_report_is_repeated() {
        let mut scene = Scene::new();
        let path = scene.path();
        scene.drift();
        scene.now = scene.list.next_due().unwrap();
        for _ in 0..20 {
            for path in scene.list.take_due(scene.now) {
                assert_eq!(scene.list.judge(&path, PathSignature::of(&path), scene.now).len(), 1);
                scene.list.record_report(&path, false, scene.now);
            }
            scene.now += REPEAT_FIRST;
        }
        assert!(scene.list.contains(&path), "there is no receiver; it is not forgotten");
    }
}
