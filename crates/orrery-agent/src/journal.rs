//! What an agent remembers of commands, so that one that is repeated is answered and not run again.
//!
//! A file of lines: that a command began, what it came to, and the highest epoch that was seen. A line is there or not: what a kill left unfinished at the end is
//! cut off. Only as much is kept as may be asked for; the file is written anew when most of it is no longer.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::protocol::Answer;

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub entries_max: usize,
    pub bytes_max: u64,
    /// A file below this size is never written anew, whatever is in it.
    pub rewrite_from: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds { entries_max: 10_000, bytes_max: 64 * 1024 * 1024, rewrite_from: 1024 * 1024 }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the journal {} cannot be {action}; see that there is space, and who may write there", path.display())]
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

/// What is known of a command.
#[derive(Clone, Debug, PartialEq)]
pub enum Known {
    /// It began, and nobody knows how far it came.
    Started,
    Finished(Box<Answer>),
}

/// Where a line is in the file.
#[derive(Clone, Copy, Debug)]
struct Place {
    offset: u64,
    length: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Entries are forgotten in this order.
    number: u64,
    finished: bool,
    place: Place,
}

#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    bounds: Bounds,
    length: u64,
    epoch: u64,
    entries: BTreeMap<Uuid, Entry>,
    in_order: BTreeMap<u64, Uuid>,
    /// Of all lines that entries are at.
    live: u64,
    next: u64,
    /// From this length on it is looked at whether the file is to be written anew.
    tidy_from: u64,
    /// The directory is known to hold this very file after a loss of power.
    in_place: bool,
}

impl Journal {
    /// Opens a journal, or makes one.
    ///
    /// # Errors
    /// If the file cannot be read and written.
    pub fn open(path: &Path, bounds: Bounds) -> Result<Self, JournalError> {
        let failed = |source| JournalError { path: path.to_owned(), action: "opened", source };
        let mut options = OpenOptions::new();
        let file = options.read(true).append(true).create(true).mode(0o600).open(path);
        let mut journal = Journal {
            path: path.to_owned(),
            file: file.map_err(failed)?,
            bounds,
            length: 0,
            epoch: 0,
            entries: BTreeMap::new(),
            in_order: BTreeMap::new(),
            live: 0,
            next: 0,
            tidy_from: bounds.rewrite_from,
            in_place: false,
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
            // Damage must not make this read the whole disk.
            let read =
                reader.by_ref().take(self.bounds.bytes_max.max(self.bounds.rewrite_from) * 2);
            let length = { read }.read_until(b'\n', &mut line)? as u64;
            if length == 0 {
                break;
            }
            let place = Place { offset: self.length, length };
            if line.last() != Some(&b'\n') {
                // The end of a line that was never finished: nobody was answered with it.
                self.file.set_len(self.length)?;
                break;
            }
            self.length += length;
            match serde_json::from_slice::<Line<Id>>(&line) {
                Ok(Line::Epoch(epoch)) => self.epoch = self.epoch.max(epoch),
                Ok(Line::Started(id)) => self.note(id, false, place),
                Ok(Line::Finished(Id { id })) => self.note(id, true, place),
                Err(error) => {
                    tracing::warn!(path = %self.path.display(), offset = place.offset, %error, "a damaged line of the journal is passed over");
                }
            }
        }
        Ok(())
    }

    /// The highest epoch that was seen.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Remembers a higher epoch, for good.
    ///
    /// # Errors
    /// If it cannot be written; it does not count then.
    pub fn raise_epoch(&mut self, epoch: u64) -> Result<(), JournalError> {
        self.append(&Line::<Answer>::Epoch(epoch))?;
        self.sync()?;
        self.epoch = epoch;
        Ok(())
    }

    /// What is known of a command, if it is one of the last.
    ///
    /// # Errors
    /// If its answer cannot be read.
    pub fn find(&self, id: Uuid) -> Result<Option<Known>, JournalError> {
        let Some(entry) = self.entries.get(&id) else { return Ok(None) };
        if !entry.finished {
            return Ok(Some(Known::Started));
        }
        let read = || -> io::Result<Known> {
            let length = usize::try_from(entry.place.length).map_err(io::Error::other)?;
            let mut line = vec![0; length];
            self.file.read_exact_at(&mut line, entry.place.offset)?;
            match serde_json::from_slice(&line)? {
                Line::Finished(answer) => Ok(Known::Finished(Box::new(answer))),
                Line::Epoch(_) | Line::Started(_) => Err(io::ErrorKind::InvalidData.into()),
            }
        };
        read().map(Some).map_err(self.failed("read"))
    }

    /// Notes that a command begins. It survives the end of this process; for more, see `sync`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn started(&mut self, id: Uuid) -> Result<(), JournalError> {
        let place = self.append(&Line::<Answer>::Started(id))?;
        self.note(id, false, place);
        self.tidy();
        Ok(())
    }

    /// Notes what commands came to. It survives the end of this process; for more, see `sync`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finished(&mut self, answers: &[Answer]) -> Result<(), JournalError> {
        for answer in answers {
            let place = self.append(&Line::Finished(answer))?;
            self.note(answer.id, true, place);
        }
        self.tidy();
        Ok(())
    }

    /// Makes all that was noted survive a loss of power.
    ///
    /// # Errors
    /// If that is not possible.
    pub fn sync(&mut self) -> Result<(), JournalError> {
        let sync = || {
            self.file.sync_data()?;
            if !self.in_place {
                let directory = self.path.parent().filter(|path| !path.as_os_str().is_empty());
                File::open(directory.unwrap_or(Path::new(".")))?.sync_all()?;
            }
            Ok(())
        };
        sync().map_err(self.failed("written"))?;
        self.in_place = true;
        Ok(())
    }

    fn failed(&self, action: &'static str) -> impl Fn(io::Error) -> JournalError {
        let path = self.path.clone();
        move |source| JournalError { path: path.clone(), action, source }
    }

    fn append<A: Serialize>(&mut self, line: &Line<A>) -> Result<Place, JournalError> {
        let mut write = || {
            let mut text = serde_json::to_vec(line)?;
            text.push(b'\n');
            if let Err(error) = self.file.write_all(&text) {
                // Half a line would spoil the next one.
                self.file.set_len(self.length)?;
                return Err(error);
            }
            let place = Place { offset: self.length, length: text.len() as u64 };
            self.length += place.length;
            Ok(place)
        };
        write().map_err(self.failed("written"))
    }

    fn note(&mut self, id: Uuid, finished: bool, place: Place) {
        let entry = Entry { number: self.next, finished, place };
        self.next += 1;
        if let Some(before) = self.entries.insert(id, entry) {
            self.in_order.remove(&before.number);
            self.live -= before.place.length;
        }
        self.in_order.insert(entry.number, id);
        self.live += place.length;
        while let Some(number) = self.too_much(entry.number) {
            let Some(id) = self.in_order.remove(&number) else { break };
            if let Some(gone) = self.entries.remove(&id) {
                self.live -= gone.place.length;
            }
        }
    }

    /// What has to be forgotten next, if anything has to.
    fn too_much(&self, newest: u64) -> Option<u64> {
        if self.entries.len() > self.bounds.entries_max {
            return self.in_order.first_key_value().map(|(number, _)| *number);
        }
        if self.live <= self.bounds.bytes_max {
            return None;
        }
        // It is answers that are large. That a command began takes little room, and is needed as long as it runs.
        let is_answer = |(number, id): &(&u64, &Uuid)| {
            **number != newest && self.entries.get(id).is_some_and(|entry| entry.finished)
        };
        self.in_order.iter().find(is_answer).map(|(number, _)| *number)
    }

    /// Writes the file anew when most of it is of no use. If that is not possible, the old one serves, and it is tried again when it has grown.
    fn tidy(&mut self) {
        if self.length <= self.tidy_from || self.length <= self.live * 2 {
            return;
        }
        self.tidy_from = self.bounds.rewrite_from;
        if let Err(error) = self.rewrite() {
            self.tidy_from += self.length;
            // Where there is no space, half a copy must not take what is left.
            let _ = std::fs::remove_file(self.path.with_extension("new"));
            tracing::warn!(path = %self.path.display(), %error, "the journal cannot be tidied now");
        }
    }

    /// A kill leaves the old file or the new one. Nothing can fail once the new one is in place.
    fn rewrite(&mut self) -> io::Result<()> {
        let beside = self.path.with_extension("new");
        let mut options = OpenOptions::new();
        let mut file = options.read(true).append(true).create(true).mode(0o600).open(&beside)?;
        // A kill may have left something there.
        file.set_len(0)?;
        let mut writer = io::BufWriter::new(&mut file);
        let mut offset = 0;
        let epoch = serde_json::to_vec(&Line::<Answer>::Epoch(self.epoch))?;
        writer.write_all(&epoch)?;
        writer.write_all(b"\n")?;
        offset += epoch.len() as u64 + 1;
        let mut moved = BTreeMap::new();
        for id in self.in_order.values() {
            let Some(entry) = self.entries.get(id) else { continue };
            let length = usize::try_from(entry.place.length).map_err(io::Error::other)?;
            let mut line = vec![0; length];
            self.file.read_exact_at(&mut line, entry.place.offset)?;
            writer.write_all(&line)?;
            moved.insert(*id, offset);
            offset += entry.place.length;
        }
        writer.flush()?;
        drop(writer);
        file.sync_data()?;
        std::fs::rename(&beside, &self.path)?;
        self.file = file;
        // Until the directory is synced, a loss of power may bring the old one back, with all that was synced before.
        self.in_place = false;
        self.length = offset;
        for (id, offset) in moved {
            if let Some(entry) = self.entries.get_mut(&id) {
                entry.place.offset = offset;
            }
        }
        Ok(())
    }
}

/// As much of an answer as is needed to find it again.
#[derive(Debug, Serialize, Deserialize)]
struct Id {
    id: Uuid,
}

#[cfg(test)]
mod tests;
