//! Results of a deploy for users: changes, skipped resources by cause, and failures last, so that
//! they stay visible.

use std::collections::BTreeMap;

use orrery_executor::FinishedRun;
use orrery_model::{AttributeDiff, Change, ChangeKind, OutcomeStatus};
use rustc_hash::FxHashMap;

use crate::commands::inspect::text;
use crate::{natural_order, style};

/// Maximum number of listed changes; the log of each resource has all of them.
pub(super) const CHANGES_MAX: usize = 200;
/// Maximum number of failures with messages.
const FAILURES_MAX: usize = 50;
/// Maximum number of named resources that one cause skipped.
const NAMED_MAX: usize = 3;

/// A run that changed something or failed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RunResult {
    pub(super) id: String,
    pub(super) status: OutcomeStatus,
    pub(super) change: Change,
    pub(super) message: Option<String>,
    pub(super) hint: Option<String>,
    /// Requirements of a skipped resource that are not deployed.
    pub(super) blocked_by: Vec<String>,
}

impl From<&FinishedRun> for RunResult {
    fn from(finished: &FinishedRun) -> Self {
        let FinishedRun { id, status, change, message, hint, blocked_by, .. } = finished;
        RunResult {
            id: id.to_string(),
            status: *status,
            change: change.clone(),
            message: message.clone(),
            hint: hint.clone(),
            blocked_by: blocked_by.clone(),
        }
    }
}

impl RunResult {
    pub(super) fn is_good(&self) -> bool {
        self.status == OutcomeStatus::Deployed
    }

    /// Line of a resource, followed by the reason of a failure.
    pub(super) fn lines(&self) -> Vec<String> {
        let only = |name: &str| {
            let attributes = &self.change.attributes;
            !attributes.is_empty() && attributes.iter().all(|one| one.name == name)
        };
        let word = match (self.status, self.change.kind) {
            (OutcomeStatus::Deployed, ChangeKind::Updated) if only("executed") => {
                style::changed("ran")
            }
            (OutcomeStatus::Deployed, ChangeKind::Updated) if only("reload") => {
                style::changed("reloaded")
            }
            (OutcomeStatus::Deployed, ChangeKind::Created) => style::added("created"),
            (OutcomeStatus::Deployed, ChangeKind::Updated) => style::changed("updated"),
            (OutcomeStatus::Deployed, ChangeKind::Purged) => style::removed("removed"),
            (OutcomeStatus::Deployed, ChangeKind::NoChange) => style::good("unchanged"),
            (OutcomeStatus::Skipped | OutcomeStatus::SkippedForDependency, _) => {
                style::warning("skipped")
            }
            (OutcomeStatus::Failed, _) => style::error("failed"),
            (OutcomeStatus::Unavailable, _) => style::error("unavailable"),
            (OutcomeStatus::NonCompliant, _) => style::warning("non-compliant"),
        };
        let mut line = format!("{word} {}", style::sanitize(&self.id));
        let about = self.about();
        if !about.is_empty() && !only("executed") && !only("reload") {
            line.push_str(&format!(" ({})", style::sanitize(&about.join(", "))));
        }
        let mut lines = vec![line];
        lines.extend(self.reasons());
        lines
    }

    fn reasons(&self) -> Vec<String> {
        let message = self.message.as_ref().filter(|_| !self.is_good());
        let message = message.map(|text| format!("  {}", indented(text)));
        let hint =
            self.hint.as_ref().map(|hint| format!("  {}: {}", style::help("help"), indented(hint)));
        message.into_iter().chain(hint).collect()
    }

    /// Names of the changed attributes. Omits those of created resources and of commands that ran.
    fn about(&self) -> Vec<&str> {
        if self.change.kind != ChangeKind::Updated && self.is_good() {
            return Vec::new();
        }
        let word = |change: &'_ AttributeDiff| match &*change.name {
            "executed" => "ran",
            "reload" => "reloaded",
            "purged" if change.desired == true => "exists",
            "purged" => "missing",
            _ => "",
        };
        let name = |change| match word(change) {
            "" => &*change.name,
            word => word,
        };
        self.change.attributes.iter().map(name).collect()
    }
}

fn indented(text: &str) -> String {
    style::sanitize(text).replace('\n', "\n  ")
}

/// Failures, printed last: skipped resources by cause, then unavailable ones by reason, then failed
/// ones.
pub(super) fn closing_lines(results: &[RunResult]) -> Vec<String> {
    let bad: Vec<&RunResult> = results.iter().filter(|result| !result.is_good()).collect();
    let by_id: FxHashMap<&str, &RunResult> =
        bad.iter().map(|result| (result.id.as_str(), *result)).collect();
    let mut skipped: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let (mut unavailable, mut others, mut failed) = (BTreeMap::new(), Vec::new(), Vec::new());
    for result in &bad {
        match result.status {
            OutcomeStatus::SkippedForDependency if !result.blocked_by.is_empty() => {
                skipped.entry(root_cause(result, &by_id)).or_default().push(&result.id);
            }
            OutcomeStatus::Unavailable => {
                let group: &mut Vec<&RunResult> = unavailable
                    .entry((result.message.as_deref(), result.hint.as_deref()))
                    .or_default();
                group.push(result);
            }
            OutcomeStatus::Failed => failed.push(*result),
            _ => others.push(*result),
        }
    }
    let mut lines: Vec<String> = others.iter().flat_map(|result| result.lines()).collect();
    for (cause, ids) in &skipped {
        let status = by_id.get(cause).map_or("is not deployed", |cause| has_become(cause.status));
        lines.extend(skipped_lines(ids, &format!("{} {status}", style::sanitize(cause))));
    }
    for group in unavailable.values() {
        lines.extend(unavailable_lines(group));
    }
    failed.sort_by(|one, other| natural_order::compare(&one.id, &other.id));
    lines.extend(failed.iter().take(FAILURES_MAX).flat_map(|result| result.lines()));
    if failed.len() > FAILURES_MAX {
        let more = style::grouped(failed.len() - FAILURES_MAX);
        lines.push(format!("… and {more} more failed: orrery resources --status failed"));
    }
    lines
}

fn has_become(status: OutcomeStatus) -> &'static str {
    match status {
        OutcomeStatus::Deployed => "is not deployed",
        OutcomeStatus::Failed => "failed",
        OutcomeStatus::Skipped | OutcomeStatus::SkippedForDependency => "was skipped",
        OutcomeStatus::Unavailable => "is unavailable",
        OutcomeStatus::NonCompliant => "is non-compliant",
    }
}

/// Root cause of a skip: the first requirement that was not itself skipped.
fn root_cause<'a>(skipped: &'a RunResult, by_id: &FxHashMap<&str, &'a RunResult>) -> &'a str {
    let mut at = skipped;
    // Requirements have no cycles, but results from a server are untrusted.
    for _ in 0..by_id.len() {
        let Some(cause) = at.blocked_by.iter().min_by_key(|id| blame(by_id.get(id.as_str())))
        else {
            return &at.id;
        };
        match by_id.get(cause.as_str()) {
            Some(next) if next.status == OutcomeStatus::SkippedForDependency => at = next,
            _ => return cause,
        }
    }
    &at.id
}

/// Rank of a requirement as a cause: failed ones come first.
fn blame(result: Option<&&RunResult>) -> u8 {
    match result.map(|result| result.status) {
        Some(OutcomeStatus::Failed) => 0,
        Some(OutcomeStatus::Unavailable) => 1,
        Some(OutcomeStatus::NonCompliant | OutcomeStatus::Skipped) => 2,
        Some(OutcomeStatus::SkippedForDependency) => 3,
        Some(OutcomeStatus::Deployed) | None => 4,
    }
}

fn skipped_lines(ids: &[&str], because: &str) -> Vec<String> {
    let word = style::warning("skipped");
    let mut ids = ids.to_vec();
    ids.sort_by(|one, other| natural_order::compare(one, other));
    match &ids[..] {
        [one] => vec![format!("{word} {} because {because}", style::sanitize(one))],
        many if many.len() <= NAMED_MAX => {
            let count = style::count(many.len(), "resource");
            let mut lines = vec![format!("{word} {count} because {because}:")];
            lines.extend(many.iter().map(|id| format!("  {}", style::sanitize(id))));
            lines
        }
        many => {
            let count = style::count(many.len(), "resource");
            vec![format!("{word} {count} because {because}")]
        }
    }
}

fn unavailable_lines(group: &[&RunResult]) -> Vec<String> {
    let [first, _, ..] = group else { return group.iter().flat_map(|one| one.lines()).collect() };
    let count = style::count(group.len(), "resource");
    let mut ids: Vec<&str> = group.iter().map(|one| &*one.id).collect();
    ids.sort_by(|one, other| natural_order::compare(one, other));
    let names = style::sanitize(&text::some_of(&ids));
    let mut lines = vec![format!("{} {count}: {names}", style::error("unavailable"))];
    lines.extend(first.reasons());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(id: &str, status: OutcomeStatus, blocked_by: &[&str]) -> RunResult {
        let message = (status == OutcomeStatus::Failed).then(|| "no space".to_owned());
        RunResult {
            id: id.to_owned(),
            status,
            change: Change::default(),
            message,
            hint: (status == OutcomeStatus::Failed).then(|| "make some".to_owned()),
            blocked_by: blocked_by.iter().map(|id| (*id).to_owned()).collect(),
        }
    }

    fn plain(results: &[RunResult]) -> Vec<String> {
        let strip = |line: String| anstream::adapter::strip_str(&line).to_string();
        closing_lines(results).into_iter().map(strip).collect()
    }

    #[test]
    fn skipped_resources_stand_under_their_root_cause_and_failures_last() {
        let skip = OutcomeStatus::SkippedForDependency;
        let mut results = vec![
            result("d::D[a,p=/d]", OutcomeStatus::Failed, &[]),
            result("f::F[a,p=/d/1]", skip, &["d::D[a,p=/d]"]),
            result("l::L[a,p=/d/1/l]", skip, &["f::F[a,p=/d/1]"]),
        ];
        results.extend(
            (2..1000)
                .map(|number| result(&format!("f::F[a,p=/d/{number}]"), skip, &["d::D[a,p=/d]"])),
        );
        assert_eq!(
            plain(&results),
            [
                "skipped 1,000 resources because d::D[a,p=/d] failed",
                "failed d::D[a,p=/d]",
                "  no space",
                "  help: make some",
            ]
        );
        assert_eq!(plain(&results[..2])[0], "skipped f::F[a,p=/d/1] because d::D[a,p=/d] failed");
        assert_eq!(
            plain(&results[..3])[..3],
            [
                "skipped 2 resources because d::D[a,p=/d] failed:",
                "  f::F[a,p=/d/1]",
                "  l::L[a,p=/d/1/l]",
            ]
        );
    }

    #[test]
    fn a_circle_of_skipped_resources_ends() {
        let skip = OutcomeStatus::SkippedForDependency;
        let results = [
            result("f::F[a,p=1]", skip, &["f::F[a,p=2]"]),
            result("f::F[a,p=2]", skip, &["f::F[a,p=1]"]),
        ];
        assert_eq!(plain(&results).len(), 2);
    }
}
