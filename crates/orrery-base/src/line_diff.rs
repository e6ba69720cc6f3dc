//! Differences between two texts by line: the one place that instantiates the diff library, whose
//! generic code is large.

use std::time::Duration;

use similar::{ChangeTag, TextDiff};

/// Unchanged lines around a change.
const CONTEXT: usize = 3;

/// Changed lines with their context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hunk {
    /// Position in both texts: `@@ -1,2 +1,2 @@`.
    pub header: String,
    pub lines: Vec<DiffLine>,
}

/// A line of a hunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiffLine {
    pub kind: LineKind,
    /// The line with its end, if it has one.
    pub text: String,
}

/// Kind of a line in a hunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineKind {
    Removed,
    Added,
    Unchanged,
}

impl LineKind {
    /// Sign before the line: `-`, `+` or a space.
    pub fn sign(self) -> char {
        match self {
            LineKind::Removed => '-',
            LineKind::Added => '+',
            LineKind::Unchanged => ' ',
        }
    }
}

impl DiffLine {
    /// The line without its end.
    pub fn content(&self) -> &str {
        self.text.strip_suffix('\n').unwrap_or(&self.text)
    }

    /// True for the last line of a text without a newline at its end.
    pub fn is_unterminated(&self) -> bool {
        !self.text.ends_with('\n')
    }
}

/// Returns the differences in the form of a unified diff. The shortest difference is looked for
/// within `time_max`; after that, the result can be longer.
pub fn hunks(old: &str, new: &str, time_max: Option<Duration>) -> Vec<Hunk> {
    let mut config = TextDiff::configure();
    if let Some(time_max) = time_max {
        config.timeout(time_max);
    }
    let difference = config.diff_lines(old, new);
    let mut unified = difference.unified_diff();
    let hunks = unified.context_radius(CONTEXT).iter_hunks().map(|hunk| Hunk {
        header: hunk.header().to_string(),
        lines: hunk
            .iter_changes()
            .map(|change| DiffLine {
                kind: match change.tag() {
                    ChangeTag::Delete => LineKind::Removed,
                    ChangeTag::Insert => LineKind::Added,
                    ChangeTag::Equal => LineKind::Unchanged,
                },
                text: change.value().to_owned(),
            })
            .collect(),
    });
    hunks.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_have_signs_and_context() {
        let found = hunks("a\nb\n", "a\nc", None);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].header, "@@ -1,2 +1,2 @@");
        let lines: Vec<(char, &str, bool)> = found[0]
            .lines
            .iter()
            .map(|line| (line.kind.sign(), line.content(), line.is_unterminated()))
            .collect();
        assert_eq!(lines, [(' ', "a", false), ('-', "b", false), ('+', "c", true)]);
        assert!(hunks("a\n", "a\n", Some(Duration::from_secs(1))).is_empty());
    }

    #[test]
    fn distant_changes_are_hunks_of_their_own() {
        let text = |first: &str, last: &str| format!("{first}\n{}{last}\n", "x\n".repeat(20));
        assert_eq!(hunks(&text("a", "b"), &text("c", "d"), None).len(), 2);
    }
}
