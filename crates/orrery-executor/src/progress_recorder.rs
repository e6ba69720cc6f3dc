//! Results of runs since the start and since the last report, for the owner of an engine.

use orrery_model::{ChangeKind, OutcomeStatus, ResourceId};

use crate::progress::{FinishedRun, Tally};

#[derive(Debug, Default)]
pub(crate) struct ProgressRecorder {
    tally: Tally,
    /// Since the last report: runs that ended, warnings of the scheduler, parked resources with the
    /// number of attempts, and resolved unknowns.
    finished: Vec<FinishedRun>,
    warnings: Vec<String>,
    parked: Vec<(ResourceId, u32)>,
    resolved: usize,
    /// Resources that drifted, and whose policy asks operators.
    drifted: Vec<ResourceId>,
}

impl ProgressRecorder {
    pub(crate) fn tally(&self) -> Tally {
        self.tally
    }

    pub(crate) fn count(&mut self, status: OutcomeStatus, change: ChangeKind) {
        self.tally.add(status, change);
    }

    pub(crate) fn count_cancelled(&mut self) {
        self.tally.cancelled += 1;
    }

    pub(crate) fn report(&mut self, run: FinishedRun) {
        self.finished.push(run);
    }

    pub(crate) fn warn(&mut self, warning: String) {
        self.warnings.push(warning);
    }

    pub(crate) fn park(&mut self, id: ResourceId, attempts: u32) {
        self.parked.push((id, attempts));
    }

    pub(crate) fn add_resolved(&mut self, count: usize) {
        self.resolved += count;
    }

    pub(crate) fn ask_about_drift(&mut self, id: ResourceId) {
        self.drifted.push(id);
    }

    pub(crate) fn has_drifted(&self) -> bool {
        !self.drifted.is_empty()
    }

    pub(crate) fn take_drifted(&mut self) -> Vec<ResourceId> {
        std::mem::take(&mut self.drifted)
    }

    pub(crate) fn has_parked(&self) -> bool {
        !self.parked.is_empty()
    }

    /// Takes the runs and warnings since the last call.
    pub(crate) fn take_report(&mut self) -> (Vec<FinishedRun>, Vec<String>) {
        (std::mem::take(&mut self.finished), std::mem::take(&mut self.warnings))
    }

    pub(crate) fn take_parked(&mut self) -> Vec<(ResourceId, u32)> {
        std::mem::take(&mut self.parked)
    }

    pub(crate) fn take_resolved(&mut self) -> usize {
        std::mem::take(&mut self.resolved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::resource;

    #[test]
    fn counts_stay_and_news_are_taken_once() {
        let mut recorder = ProgressRecorder::default();
        recorder.count(OutcomeStatus::Deployed, ChangeKind::Created);
        recorder.count_cancelled();
        recorder.warn("slow".to_owned());
        recorder.park(resource("a").id, 3);
        recorder.add_resolved(2);
        assert!(recorder.has_parked());
        assert_eq!(recorder.take_report().1, ["slow"]);
        assert_eq!(recorder.take_parked(), [(resource("a").id, 3)]);
        assert_eq!(recorder.take_resolved(), 2);
        assert!(recorder.take_report().1.is_empty() && !recorder.has_parked());
        assert_eq!(recorder.take_resolved(), 0);
        assert_eq!((recorder.tally().created, recorder.tally().done()), (1, 2));
    }
}
