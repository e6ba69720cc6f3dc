//! Error messages that beginners see: each mistake with the exact terminal output and a mark. The
//! cases are in `messages/*.session`, in the format of `sessions.rs` with a line before the files:
//!
//! ```text
//! mark: 5, underlines the value and says how to mend it
//! ```
//!
//! | mark | the message |
//! |---|---|
//! | 5 | names the mistake and the remedy, at the exact place; a beginner needs nothing else |
//! | 4 | names the mistake at the exact place; the remedy follows from it |
//! | 3 | true, but the reader has to search for the location or the meaning |
//! | 2 | about a consequence, or in terms of another program |
//! | 1 | misleading |
//! | 0 | no message |
//!
//! A message below mark 4 is a defect.

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;

use crate::sessions;

/// Minimum mark.
const MARK_MIN: u32 = 4;

pub(crate) fn trials() -> Result<Vec<Trial>> {
    sessions::trials_in("messages", has_good_mark)
}

fn has_good_mark(setting: &str) -> Result<()> {
    let line = setting.lines().next().unwrap_or_default();
    let mark = line.strip_prefix("mark: ").context("the case does not begin with its mark")?;
    let (mark, reason) = mark.split_once(", ").context("the mark has no reason")?;
    let mark: u32 = mark.parse().context("the mark is no number")?;
    ensure!((MARK_MIN..=5).contains(&mark), "the mark is {mark}: {reason}");
    ensure!(reason.split_whitespace().count() >= 4, "the reason says nothing: {reason}");
    Ok(())
}
