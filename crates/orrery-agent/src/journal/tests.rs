//! The journal through kills, damage and many commands; random histories against a list.

use orrery_model::{Change, LogLevel, LogLine, OutcomeStatus, Timestamp};
use proptest::prelude::*;

use super::*;
use crate::protocol::WireOutcome;

fn answer(number: u128, message: &str) -> Answer {
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
    Answer {
        id: Uuid::from_u128(number),
        outcome,
        announced: true,
        repeated: false,
        unclear: false,
    }
}

fn finished(number: u128, message: &str) -> Option<Known> {
    Some(Known::Finished(Box::new(answer(number, message))))
}

#[test]
fn it_is_the_same_after_it_was_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let mut journal = Journal::open(&path, Bounds::default()).unwrap();
    journal.raise_epoch(4).unwrap();
    journal.started(Uuid::from_u128(1)).unwrap();
    journal.started(Uuid::from_u128(2)).unwrap();
    journal.finished(&[answer(1, "one")]).unwrap();
    for journal in [&journal, &Journal::open(&path, Bounds::default()).unwrap()] {
        assert_eq!(journal.epoch(), 4);
        assert_eq!(journal.find(Uuid::from_u128(1)).unwrap(), finished(1, "one"));
        assert_eq!(journal.find(Uuid::from_u128(2)).unwrap(), Some(Known::Started));
        assert_eq!(journal.find(Uuid::from_u128(3)).unwrap(), None);
    }
}

#[test]
fn whatever_a_kill_cuts_off_the_rest_is_readable_and_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let mut journal = Journal::open(&path, Bounds::default()).unwrap();
    journal.raise_epoch(4).unwrap();
    journal.finished(&[answer(1, "one")]).unwrap();
    let whole = std::fs::metadata(&path).unwrap().len();
    journal.finished(&[answer(2, "two")]).unwrap();
    let text = std::fs::read(&path).unwrap();
    for cut in usize::try_from(whole).unwrap()..text.len() {
        std::fs::write(&path, &text[..cut]).unwrap();
        let mut journal = Journal::open(&path, Bounds::default()).unwrap();
        assert_eq!(journal.find(Uuid::from_u128(1)).unwrap(), finished(1, "one"));
        assert_eq!(journal.find(Uuid::from_u128(2)).unwrap(), None);
        journal.finished(&[answer(3, "three")]).unwrap();
        let journal = Journal::open(&path, Bounds::default()).unwrap();
        assert_eq!(journal.epoch(), 4);
        assert_eq!(journal.find(Uuid::from_u128(3)).unwrap(), finished(3, "three"));
    }
}

#[test]
fn a_damaged_line_costs_that_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let mut journal = Journal::open(&path, Bounds::default()).unwrap();
    journal.finished(&[answer(1, "one"), answer(2, "two")]).unwrap();
    let text = std::fs::read_to_string(&path).unwrap().replacen("\"finished\"", "finished", 1);
    std::fs::write(&path, text).unwrap();
    let journal = Journal::open(&path, Bounds::default()).unwrap();
    assert_eq!(journal.find(Uuid::from_u128(1)).unwrap(), None);
    assert_eq!(journal.find(Uuid::from_u128(2)).unwrap(), finished(2, "two"));
}

#[test]
fn the_oldest_is_forgotten_and_the_file_stays_small() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let bounds = Bounds { entries_max: 100, bytes_max: 400_000, rewrite_from: 1_000_000 };
    let mut journal = Journal::open(&path, bounds).unwrap();
    journal.raise_epoch(9).unwrap();
    let message = "x".repeat(5_000);
    for number in 1..=1_000 {
        journal.started(Uuid::from_u128(number)).unwrap();
        journal.finished(&[answer(number, &message)]).unwrap();
        assert!(std::fs::metadata(&path).unwrap().len() <= bounds.rewrite_from + 20_000);
    }
    for journal in [&journal, &Journal::open(&path, bounds).unwrap()] {
        assert_eq!(journal.epoch(), 9);
        assert!(journal.live <= bounds.bytes_max && journal.entries.len() <= 100);
        assert_eq!(journal.find(Uuid::from_u128(1_000)).unwrap(), finished(1_000, &message));
        assert_eq!(journal.find(Uuid::from_u128(950)).unwrap(), finished(950, &message));
        assert_eq!(journal.find(Uuid::from_u128(1)).unwrap(), None);
    }
}

#[test]
fn a_file_that_cannot_be_written_anew_is_used_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let bounds = Bounds { entries_max: 10, bytes_max: 1 << 20, rewrite_from: 10_000 };
    let mut journal = Journal::open(&path, bounds).unwrap();
    // Nothing can be written beside it.
    let in_the_way = path.with_extension("new");
    std::fs::create_dir(&in_the_way).unwrap();
    let message = "x".repeat(1_000);
    for number in 1..=100 {
        journal.started(Uuid::from_u128(number)).unwrap();
        journal.finished(&[answer(number, &message)]).unwrap();
    }
    journal.sync().unwrap();
    assert!(std::fs::metadata(&path).unwrap().len() > 100_000);
    for journal in [&journal, &Journal::open(&path, bounds).unwrap()] {
        assert_eq!(journal.find(Uuid::from_u128(100)).unwrap(), finished(100, &message));
    }
    std::fs::remove_dir(&in_the_way).unwrap();
    for number in 101..=120 {
        journal.finished(&[answer(number, &message)]).unwrap();
    }
    assert!(std::fs::metadata(&path).unwrap().len() < 30_000);
}

/// In a process of its own: a path without a directory is for the working directory, which belongs to the whole process.
#[test]
fn what_comes_after_the_file_was_written_anew_is_there_also_in_the_working_directory() {
    const ITSELF: &str = "ORRERY_TEST_JOURNAL_HERE";
    if std::env::var_os(ITSELF).is_none() {
        let directory = tempfile::tempdir().unwrap();
        let name = "journal::tests::what_comes_after_the_file_was_written_anew_is_there_also_in_the_working_directory";
        let mut itself = std::process::Command::new(std::env::current_exe().unwrap());
        itself.args(["--exact", name]).env(ITSELF, "1").current_dir(directory.path());
        assert!(itself.status().unwrap().success());
        return;
    }
    let path = Path::new("journal");
    let bounds = Bounds { entries_max: 5, bytes_max: 1 << 20, rewrite_from: 1_000 };
    let mut journal = Journal::open(path, bounds).unwrap();
    for number in 1..=100 {
        journal.started(Uuid::from_u128(number)).unwrap();
        let again = Journal::open(path, bounds).unwrap();
        assert_eq!(again.find(Uuid::from_u128(number)).unwrap(), Some(Known::Started));
    }
    journal.sync().unwrap();
    assert!(std::fs::metadata(path).unwrap().len() < 2_000);
}

#[test]
fn large_answers_do_not_make_it_forget_what_runs() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let bounds = Bounds { entries_max: 100, bytes_max: 20_000, rewrite_from: 1_000 };
    let mut journal = Journal::open(&path, bounds).unwrap();
    journal.started(Uuid::from_u128(1)).unwrap();
    let message = "x".repeat(9_000);
    for number in 2..=9 {
        journal.finished(&[answer(number, &message)]).unwrap();
    }
    // One that is longer than all that may be kept is the newest, and is kept.
    journal.finished(&[answer(10, &message.repeat(3))]).unwrap();
    for journal in [&journal, &Journal::open(&path, bounds).unwrap()] {
        assert_eq!(journal.find(Uuid::from_u128(1)).unwrap(), Some(Known::Started));
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
    /// A kill in the middle of writing the last line, with so many parts of a hundred of it written.
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

/// What a journal of five entries should know: the last five commands that something was said of.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    epoch: u64,
    known: Vec<(u128, Known)>,
}

impl Model {
    fn note(&mut self, number: u128, known: Known) {
        self.known.retain(|(one, _)| *one != number);
        self.known.push((number, known));
        if self.known.len() > 5 {
            self.known.remove(0);
        }
    }
}

fn lines(path: &Path) -> usize {
    std::fs::read_to_string(path).unwrap().lines().count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn it_knows_what_it_should_whatever_happens(steps in steps()) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let bounds = Bounds { entries_max: 5, bytes_max: 1 << 20, rewrite_from: 2_000 };
        let mut journal = Journal::open(&path, bounds).unwrap();
        // The models before each line that a kill could still have prevented.
        let mut before: Vec<Model> = Vec::new();
        let mut model = Model::default();
        for (round, step) in steps.into_iter().enumerate() {
            let count = lines(&path);
            match step {
                Step::Started(number) => {
                    journal.started(Uuid::from_u128(number)).unwrap();
                    before.push(model.clone());
                    model.note(number, Known::Started);
                }
                Step::Finished(numbers) => {
                    let message = format!("round {round}");
                    let answers: Vec<_> =
                        numbers.iter().map(|number| answer(*number, &message)).collect();
                    journal.finished(&answers).unwrap();
                    for answer in answers {
                        before.push(model.clone());
                        model.note(answer.id.as_u128(), Known::Finished(Box::new(answer)));
                    }
                }
                Step::Epoch(epoch) => {
                    if epoch > journal.epoch() {
                        journal.raise_epoch(epoch).unwrap();
                        before.push(model.clone());
                        model.epoch = epoch;
                    }
                }
                Step::OpenAgain => journal = Journal::open(&path, bounds).unwrap(),
                Step::Cut(part) => {
                    if let Some(earlier) = before.pop() {
                        let text = std::fs::read(&path).unwrap();
                        let start = text[..text.len() - 1]
                            .iter()
                            .rposition(|byte| *byte == b'\n')
                            .map_or(0, |at| at + 1);
                        let written = (text.len() - start) * part / 100;
                        std::fs::write(&path, &text[..start + written]).unwrap();
                        journal = Journal::open(&path, bounds).unwrap();
                        // What had to make room is gone from the memory of before, too.
                        let kept = |(number, _): &&(u128, Known)| {
                            journal.find(Uuid::from_u128(*number)).unwrap().is_some()
                        };
                        let found = earlier.known.iter().filter(kept).cloned().collect();
                        model = Model { known: found, ..earlier.clone() };
                        prop_assert!(earlier.known.len() - model.known.len() <= 1);
                    }
                }
            }
            if lines(&path) < count {
                // It was written anew, synced and put in place: nothing of it can be cut off.
                before.clear();
            }
            prop_assert_eq!(journal.epoch(), model.epoch);
            for number in 0..9 {
                let wanted = model.known.iter().find(|(one, _)| *one == number);
                let found = journal.find(Uuid::from_u128(number)).unwrap();
                prop_assert_eq!(found, wanted.map(|(_, known)| known.clone()));
            }
        }
    }
}
