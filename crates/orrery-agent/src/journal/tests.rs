//! The journal under kills, damage and load; random histories against a model.

use orrery_model::{Change, LogLevel, LogLine, OutcomeStatus, Timestamp};
use proptest::prelude::*;

use super::*;
use crate::protocol::WireOutcome;

fn answer(number: u128, message: &str) -> CommandResult {
    let line = LogLine {
        at: Timestamp(1),
        level: LogLevel::Info,
        message: message.to_owned(),
        values: serde_json::Map::new(),
    };
    let outcome = WireOutcome {
        status: OutcomeStatus::Deployed,
        change: Change::default(),
        facts: Vec::new(),
        log: vec![line],
    };
    CommandResult {
        id: Uuid::from_u128(number),
        outcome,
        announced: true,
        repeated: false,
        unclear: false,
    }
}

fn finished(number: u128, message: &str) -> Option<JournalEntry> {
    Some(JournalEntry::Finished(Box::new(answer(number, message))))
}

#[test]
fn a_journal_is_unchanged_after_reopening() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let mut journal = Journal::open(&path, JournalLimits::default()).unwrap();
    journal.raise_epoch(4).unwrap();
    journal.record_started(Uuid::from_u128(1)).unwrap();
    journal.record_started(Uuid::from_u128(2)).unwrap();
    journal.record_finished(&[answer(1, "one")]).unwrap();
    for journal in [&journal, &Journal::open(&path, JournalLimits::default()).unwrap()] {
        assert_eq!(journal.epoch(), 4);
        assert_eq!(journal.find(Uuid::from_u128(1)).unwrap(), finished(1, "one"));
        assert_eq!(journal.find(Uuid::from_u128(2)).unwrap(), Some(JournalEntry::Started));
        assert_eq!(journal.find(Uuid::from_u128(3)).unwrap(), None);
    }
}

#[test]
fn a_truncated_journal_stays_readable_and_writable() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let mut journal = Journal::open(&path, JournalLimits::default()).unwrap();
    journal.raise_epoch(4).unwrap();
    journal.record_finished(&[answer(1, "one")]).unwrap();
    let whole = std::fs::metadata(&path).unwrap().len();
    journal.record_finished(&[answer(2, "two")]).unwrap();
    let text = std::fs::read(&path).unwrap();
    for cut in usize::try_from(whole).unwrap()..text.len() {
        std::fs::write(&path, &text[..cut]).unwrap();
        let mut journal = Journal::open(&path, JournalLimits::default()).unwrap();
        assert_eq!(journal.find(Uuid::from_u128(1)).unwrap(), finished(1, "one"));
        assert_eq!(journal.find(Uuid::from_u128(2)).unwrap(), None);
        journal.record_finished(&[answer(3, "three")]).unwrap();
        let journal = Journal::open(&path, JournalLimits::default()).unwrap();
        assert_eq!(journal.epoch(), 4);
        assert_eq!(journal.find(Uuid::from_u128(3)).unwrap(), finished(3, "three"));
    }
}

#[test]
fn a_damaged_line_is_skipped() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let mut journal = Journal::open(&path, JournalLimits::default()).unwrap();
    journal.record_finished(&[answer(1, "one"), answer(2, "two")]).unwrap();
    let text = std::fs::read_to_string(&path).unwrap().replacen("\"finished\"", "finished", 1);
    std::fs::write(&path, text).unwrap();
    let journal = Journal::open(&path, JournalLimits::default()).unwrap();
    assert_eq!(journal.find(Uuid::from_u128(1)).unwrap(), None);
    assert_eq!(journal.find(Uuid::from_u128(2)).unwrap(), finished(2, "two"));
}

#[test]
fn old_entries_are_evicted_and_the_file_stays_small() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let limits = JournalLimits { entries_max: 100, bytes_max: 400_000, rewrite_from: 1_000_000 };
    let mut journal = Journal::open(&path, limits).unwrap();
    journal.raise_epoch(9).unwrap();
    let message = "x".repeat(5_000);
    for number in 1..=1_000 {
        journal.record_started(Uuid::from_u128(number)).unwrap();
        journal.record_finished(&[answer(number, &message)]).unwrap();
        assert!(std::fs::metadata(&path).unwrap().len() <= limits.rewrite_from + 20_000);
    }
    for journal in [&journal, &Journal::open(&path, limits).unwrap()] {
        assert_eq!(journal.epoch(), 9);
        assert!(journal.live <= limits.bytes_max && journal.entries.len() <= 100);
        assert_eq!(journal.find(Uuid::from_u128(1_000)).unwrap(), finished(1_000, &message));
        assert_eq!(journal.find(Uuid::from_u128(950)).unwrap(), finished(950, &message));
        assert_eq!(journal.find(Uuid::from_u128(1)).unwrap(), None);
    }
}

#[test]
fn a_failed_rewrite_keeps_the_old_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let limits = JournalLimits { entries_max: 10, bytes_max: 1 << 20, rewrite_from: 10_000 };
    let mut journal = Journal::open(&path, limits).unwrap();
    // Nothing can be written beside it.
    let in_the_way = path.with_extension("new");
    std::fs::create_dir(&in_the_way).unwrap();
    let message = "x".repeat(1_000);
    for number in 1..=100 {
        journal.record_started(Uuid::from_u128(number)).unwrap();
        journal.record_finished(&[answer(number, &message)]).unwrap();
    }
    journal.sync().unwrap();
    assert!(std::fs::metadata(&path).unwrap().len() > 100_000);
    for journal in [&journal, &Journal::open(&path, limits).unwrap()] {
        assert_eq!(journal.find(Uuid::from_u128(100)).unwrap(), finished(100, &message));
    }
    std::fs::remove_dir(&in_the_way).unwrap();
    for number in 101..=120 {
        journal.record_finished(&[answer(number, &message)]).unwrap();
    }
    assert!(std::fs::metadata(&path).unwrap().len() < 30_000);
}

/// Runs in its own process: a path without a directory is relative to the process-wide working
/// directory.
#[test]
fn entries_after_a_rewrite_persist_also_in_the_working_directory() {
    const ITSELF: &str = "ORRERY_TEST_JOURNAL_HERE";
    if std::env::var_os(ITSELF).is_none() {
        let directory = tempfile::tempdir().unwrap();
        let name = "journal::tests::entries_after_a_rewrite_persist_also_in_the_working_directory";
        let mut itself = std::process::Command::new(std::env::current_exe().unwrap());
        itself.args(["--exact", name]).env(ITSELF, "1").current_dir(directory.path());
        assert!(itself.status().unwrap().success());
        return;
    }
    let path = Path::new("journal");
    let limits = JournalLimits { entries_max: 5, bytes_max: 1 << 20, rewrite_from: 1_000 };
    let mut journal = Journal::open(path, limits).unwrap();
    for number in 1..=100 {
        journal.record_started(Uuid::from_u128(number)).unwrap();
        let again = Journal::open(path, limits).unwrap();
        assert_eq!(again.find(Uuid::from_u128(number)).unwrap(), Some(JournalEntry::Started));
    }
    journal.sync().unwrap();
    assert!(std::fs::metadata(path).unwrap().len() < 2_000);
}

#[test]
fn large_results_do_not_evict_running_commands() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let limits = JournalLimits { entries_max: 100, bytes_max: 20_000, rewrite_from: 1_000 };
    let mut journal = Journal::open(&path, limits).unwrap();
    journal.record_started(Uuid::from_u128(1)).unwrap();
    let message = "x".repeat(9_000);
    for number in 2..=9 {
        journal.record_finished(&[answer(number, &message)]).unwrap();
    }
    // A result above the limit is the newest, and is kept.
    journal.record_finished(&[answer(10, &message.repeat(3))]).unwrap();
    for journal in [&journal, &Journal::open(&path, limits).unwrap()] {
        assert_eq!(journal.find(Uuid::from_u128(1)).unwrap(), Some(JournalEntry::Started));
        assert_eq!(journal.find(Uuid::from_u128(9)).unwrap(), None);
        assert_eq!(journal.find(Uuid::from_u128(10)).unwrap(), finished(10, &message.repeat(3)));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Started(u128),
    Finished(Vec<u128>),
    Epoch(u64),
    OpenAgain,
    /// A kill during the last line, after this percentage of it was written.
    Cut(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..9u128).prop_map(Step::Started),
        4 => prop::collection::vec(0..9u128, 1..4).prop_map(Step::Finished),
        1 => (0..9u64).prop_map(Step::Epoch),
        1 => Just(Step::OpenAgain),
        2 => (0..100usize).prop_map(Step::Cut),
    ];
    prop::collection::vec(step, 0..60)
}

/// Model of a journal of five entries: the last five commands with a record.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    epoch: u64,
    entries: Vec<(u128, JournalEntry)>,
}

impl Model {
    fn index_line(&mut self, number: u128, entry: JournalEntry) {
        self.entries.retain(|(one, _)| *one != number);
        self.entries.push((number, entry));
        if self.entries.len() > 5 {
            self.entries.remove(0);
        }
    }
}

fn lines(path: &Path) -> usize {
    std::fs::read_to_string(path).unwrap().lines().count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn random_histories_match_the_model(steps in steps()) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let limits = JournalLimits { entries_max: 5, bytes_max: 1 << 20, rewrite_from: 2_000 };
        let mut journal = Journal::open(&path, limits).unwrap();
        // Models before each line that a kill could still have prevented.
        let mut before: Vec<Model> = Vec::new();
        let mut model = Model::default();
        for (round, step) in steps.into_iter().enumerate() {
            let count = lines(&path);
            match step {
                Step::Started(number) => {
                    journal.record_started(Uuid::from_u128(number)).unwrap();
                    before.push(model.clone());
                    model.index_line(number, JournalEntry::Started);
                }
                Step::Finished(numbers) => {
                    let message = format!("round {round}");
                    let answers: Vec<_> =
                        numbers.iter().map(|number| answer(*number, &message)).collect();
                    journal.record_finished(&answers).unwrap();
                    for answer in answers {
                        before.push(model.clone());
                        model.index_line(answer.id.as_u128(), JournalEntry::Finished(Box::new(answer)));
                    }
                }
                Step::Epoch(epoch) => {
                    if epoch > journal.epoch() {
                        journal.raise_epoch(epoch).unwrap();
                        before.push(model.clone());
                        model.epoch = epoch;
                    }
                }
                Step::OpenAgain => journal = Journal::open(&path, limits).unwrap(),
                Step::Cut(part) => {
                    if let Some(earlier) = before.pop() {
                        let text = std::fs::read(&path).unwrap();
                        let start = text[..text.len() - 1]
                            .iter()
                            .rposition(|byte| *byte == b'\n')
                            .map_or(0, |at| at + 1);
                        let written = (text.len() - start) * part / 100;
                        std::fs::write(&path, &text[..start + written]).unwrap();
                        journal = Journal::open(&path, limits).unwrap();
                        // Evicted entries are gone from the earlier models, too.
                        let remains = |(number, _): &&(u128, JournalEntry)| {
                            journal.find(Uuid::from_u128(*number)).unwrap().is_some()
                        };
                        let found = earlier.entries.iter().filter(remains).cloned().collect();
                        model = Model { entries: found, ..earlier.clone() };
                        prop_assert!(earlier.entries.len() - model.entries.len() <= 1);
                    }
                }
            }
            if lines(&path) < count {
                // It was rewritten, synced and renamed: nothing of it can be cut off.
                before.clear();
            }
            prop_assert_eq!(journal.epoch(), model.epoch);
            for number in 0..9 {
                let expected = model.entries.iter().find(|(one, _)| *one == number);
                let found = journal.find(Uuid::from_u128(number)).unwrap();
                prop_assert_eq!(found, expected.map(|(_, entry)| entry.clone()));
            }
        }
    }
}
