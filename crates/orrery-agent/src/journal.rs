//! Journal of commands, so a repeated command is answered and not run again.
//!
//! A file of lines: start of a command, result of a command, highest epoch seen. An incomplete last
//! line, left by a kill, is cut off. The journal keeps as many entries as may be needed; the file
//! is rewritten when most of it is obsolete.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::protocol::CommandResult;

/// Limits of the journal.
#[derive(Clone, Copy, Debug)]
pub struct JournalLimits {
    pub entries_max: usize,
    pub bytes_max: u64,
    /// A smaller file is never rewritten.
    pub rewrite_from: u64,
}

impl Default for JournalLimits {
    fn default() -> Self {
        JournalLimits {
            entries_max: 10_000,
            bytes_max: 64 * 1024 * 1024,
            rewrite_from: 1024 * 1024,
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the journal {} cannot be {action}; check the free space and the permissions", path.display())]
pub struct JournalError {
    path: PathBuf,
    action: &'static str,
    source: io::Error,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line<A> {
    Epoch(u64),
    Started(Uuid),
    Finished(A),
}

/// Journal entry of a command.
#[derive(Clone, Debug, PartialEq)]
pub enum JournalEntry {
    /// Started; its progress is unknown.
    Started,
    Finished(Box<CommandResult>),
}

/// Position of a line in the file.
#[derive(Clone, Copy, Debug)]
struct LineSpan {
    offset: u64,
    length: u64,
}

#[derive(Clone, Copy, Debug)]
struct IndexEntry {
    /// Eviction order.
    number: u64,
    finished: bool,
    span: LineSpan,
}

#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    limits: JournalLimits,
    length: u64,
    epoch: u64,
    entries: BTreeMap<Uuid, IndexEntry>,
    in_order: BTreeMap<u64, Uuid>,
    /// Total length of the lines of live entries.
    live: u64,
    next: u64,
    /// File length from which rewriting is considered.
    compact_from: u64,
    /// The directory entry of this file is durable.
    directory_synced: bool,
}

impl Journal {
    /// Opens or creates a journal.
    ///
    /// # Errors
    /// If the file cannot be read and written.
    pub fn open(path: &Path, limits: JournalLimits) -> Result<Self, JournalError> {
        let failed = |source| JournalError { path: path.to_owned(), action: "opened", source };
        let mut options = OpenOptions::new();
        let file = options.read(true).append(true).create(true).mode(0o600).open(path);
        let mut journal = Journal {
            path: path.to_owned(),
            file: file.map_err(failed)?,
            limits,
            length: 0,
            epoch: 0,
            entries: BTreeMap::new(),
            in_order: BTreeMap::new(),
            live: 0,
            next: 0,
            compact_from: limits.rewrite_from,
            directory_synced: false,
        };
        journal.load().map_err(failed)?;
        Ok(journal)
    }

    fn load(&mut self) -> io::Result<()> {
        let mut reader = BufReader::new(self.file.try_clone()?);
        reader.seek(SeekFrom::Start(0))?;
        let mut line = Vec::new();
        loop {
            line.clear();
            // A damaged file must not make this read without limit.
            let read =
                reader.by_ref().take(self.limits.bytes_max.max(self.limits.rewrite_from) * 2);
            let length = { read }.read_until(b'\n', &mut line)? as u64;
            if length == 0 {
                break;
            }
            let span = LineSpan { offset: self.length, length };
            if line.last() != Some(&b'\n') {
                // An incomplete last line: it was never reported.
                self.file.set_len(self.length)?;
                break;
            }
            self.length += length;
            match serde_json::from_slice::<Line<Id>>(&line) {
                Ok(Line::Epoch(epoch)) => self.epoch = self.epoch.max(epoch),
                Ok(Line::Started(id)) => self.index_line(id, false, span),
                Ok(Line::Finished(Id { id })) => self.index_line(id, true, span),
                Err(error) => {
                    tracing::warn!(path = %self.path.display(), offset = span.offset, %error, "skipping a damaged line of the journal");
                }
            }
        }
        self.check_spans();
        Ok(())
    }

    /// The highest epoch seen.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Records a higher epoch durably.
    ///
    /// # Errors
    /// If it cannot be written; the epoch is unchanged then.
    pub fn raise_epoch(&mut self, epoch: u64) -> Result<(), JournalError> {
        self.append(&Line::<CommandResult>::Epoch(epoch))?;
        self.sync()?;
        self.epoch = epoch;
        Ok(())
    }

    /// Returns the entry of a recent command.
    ///
    /// # Errors
    /// If its result cannot be read.
    pub fn find(&self, id: Uuid) -> Result<Option<JournalEntry>, JournalError> {
        let Some(entry) = self.entries.get(&id) else { return Ok(None) };
        if !entry.finished {
            return Ok(Some(JournalEntry::Started));
        }
        let read = || -> io::Result<JournalEntry> {
            let length = usize::try_from(entry.span.length).map_err(io::Error::other)?;
            let mut line = vec![0; length];
            self.file.read_exact_at(&mut line, entry.span.offset)?;
            match serde_json::from_slice(&line)? {
                Line::Finished(result) => Ok(JournalEntry::Finished(Box::new(result))),
                Line::Epoch(_) | Line::Started(_) => Err(io::ErrorKind::InvalidData.into()),
            }
        };
        read().map(Some).map_err(self.failed("read"))
    }

    /// Records the start of a command. Survives the end of this process; see `sync` for power loss.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn record_started(&mut self, id: Uuid) -> Result<(), JournalError> {
        let span = self.append(&Line::<CommandResult>::Started(id))?;
        self.index_line(id, false, span);
        self.compact_if_sparse();
        Ok(())
    }

    /// Records results of commands. Survives the end of this process; see `sync` for power loss.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn record_finished(&mut self, results: &[CommandResult]) -> Result<(), JournalError> {
        for result in results {
            let span = self.append(&Line::Finished(result))?;
            self.index_line(result.id, true, span);
        }
        self.compact_if_sparse();
        Ok(())
    }

    /// Makes all records durable against power loss.
    ///
    /// # Errors
    /// If the sync fails.
    pub fn sync(&mut self) -> Result<(), JournalError> {
        let sync = || {
            self.file.sync_data()?;
            if !self.directory_synced {
                let directory = self.path.parent().filter(|path| !path.as_os_str().is_empty());
                File::open(directory.unwrap_or(Path::new(".")))?.sync_all()?;
            }
            Ok(())
        };
        sync().map_err(self.failed("written"))?;
        self.directory_synced = true;
        Ok(())
    }

    fn failed(&self, action: &'static str) -> impl Fn(io::Error) -> JournalError {
        let path = self.path.clone();
        move |source| JournalError { path: path.clone(), action, source }
    }

    fn append<A: Serialize>(&mut self, line: &Line<A>) -> Result<LineSpan, JournalError> {
        let mut write = || {
            let mut text = serde_json::to_vec(line)?;
            text.push(b'\n');
            if let Err(error) = self.file.write_all(&text) {
                // A partial line would corrupt the next one.
                self.file.set_len(self.length)?;
                return Err(error);
            }
            let span = LineSpan { offset: self.length, length: text.len() as u64 };
            self.length += span.length;
            Ok(span)
        };
        write().map_err(self.failed("written"))
    }

    fn index_line(&mut self, id: Uuid, finished: bool, span: LineSpan) {
        let entry = IndexEntry { number: self.next, finished, span };
        self.next += 1;
        if let Some(before) = self.entries.insert(id, entry) {
            self.in_order.remove(&before.number);
            self.live -= before.span.length;
        }
        self.in_order.insert(entry.number, id);
        self.live += span.length;
        while let Some(number) = self.next_to_evict(entry.number) {
            let Some(id) = self.in_order.remove(&number) else { break };
            if let Some(gone) = self.entries.remove(&id) {
                self.live -= gone.span.length;
            }
        }
        self.check_counts();
    }

    /// Checks what every change of the index must preserve.
    fn check_counts(&self) {
        debug_assert_eq!(self.entries.len(), self.in_order.len(), "every entry has its place");
        debug_assert!(self.entries.len() <= self.limits.entries_max, "old entries are evicted");
        debug_assert!(self.live <= self.length, "live lines are in the file");
        debug_assert!(
            self.in_order.last_key_value().is_none_or(|(number, _)| *number < self.next),
            "numbers grow"
        );
    }

    /// Checks every entry against the file; the cost is proportional to their number.
    fn check_spans(&self) {
        if cfg!(debug_assertions) {
            let length: u64 = self.entries.values().map(|entry| entry.span.length).sum();
            assert_eq!(length, self.live, "the length of live lines is that of the entries");
            let ends = |entry: &IndexEntry| entry.span.offset + entry.span.length <= self.length;
            assert!(self.entries.values().all(ends), "an entry ends within the file");
            let numbered = |(number, id): (&u64, &Uuid)| {
                self.entries.get(id).is_some_and(|entry| entry.number == *number)
            };
            assert!(self.in_order.iter().all(numbered), "the order names every entry once");
        }
    }

    /// Returns the entry to evict next, if over a limit.
    fn next_to_evict(&self, newest: u64) -> Option<u64> {
        if self.entries.len() > self.limits.entries_max {
            return self.in_order.first_key_value().map(|(number, _)| *number);
        }
        if self.live <= self.limits.bytes_max {
            return None;
        }
        // Results are large; a start record is small, and is needed as long as the command runs.
        let is_answer = |(number, id): &(&u64, &Uuid)| {
            **number != newest && self.entries.get(id).is_some_and(|entry| entry.finished)
        };
        self.in_order.iter().find(is_answer).map(|(number, _)| *number)
    }

    /// Rewrites the file when most of it is obsolete. After a failure the old file stays in use,
    /// and the next attempt waits until it has grown.
    fn compact_if_sparse(&mut self) {
        if self.length <= self.compact_from || self.length <= self.live * 2 {
            return;
        }
        self.compact_from = self.limits.rewrite_from;
        if let Err(error) = self.rewrite() {
            self.compact_from += self.length;
            // On a full disk, a partial copy must not take the remaining space.
            let _ = std::fs::remove_file(self.path.with_extension("new"));
            tracing::warn!(path = %self.path.display(), %error, "cannot compact the journal");
        }
    }

    /// Rewrites the file atomically: a kill leaves the old file or the new one. Nothing can fail
    /// after the rename.
    fn rewrite(&mut self) -> io::Result<()> {
        let beside = self.path.with_extension("new");
        let mut options = OpenOptions::new();
        let mut file = options.read(true).append(true).create(true).mode(0o600).open(&beside)?;
        // A kill may have left a partial file.
        file.set_len(0)?;
        let mut writer = io::BufWriter::new(&mut file);
        let mut offset = 0;
        let epoch = serde_json::to_vec(&Line::<CommandResult>::Epoch(self.epoch))?;
        writer.write_all(&epoch)?;
        writer.write_all(b"\n")?;
        offset += epoch.len() as u64 + 1;
        let mut moved = BTreeMap::new();
        for id in self.in_order.values() {
            let Some(entry) = self.entries.get(id) else { continue };
            let length = usize::try_from(entry.span.length).map_err(io::Error::other)?;
            let mut line = vec![0; length];
            self.file.read_exact_at(&mut line, entry.span.offset)?;
            writer.write_all(&line)?;
            moved.insert(*id, offset);
            offset += entry.span.length;
        }
        writer.flush()?;
        drop(writer);
        file.sync_data()?;
        std::fs::rename(&beside, &self.path)?;
        self.file = file;
        // Until the directory is synced, a power loss may restore the old file, with everything
        // synced before.
        self.directory_synced = false;
        self.length = offset;
        for (id, offset) in moved {
            if let Some(entry) = self.entries.get_mut(&id) {
                entry.span.offset = offset;
            }
        }
        self.check_spans();
        Ok(())
    }
}

/// Id of a result, all that indexing needs.
#[derive(Debug, Serialize, Deserialize)]
struct Id {
    id: Uuid,
}

#[cfg(test)]
mod tests;
