//! Numbered slots of a directory of machines: files that each have the name of a machine.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::machine_name::MachineName;

/// Slots below one directory, which processes share.
#[derive(Debug)]
pub(super) struct SlotFiles {
    directory: PathBuf,
    slots_max: u16,
}

impl SlotFiles {
    pub(super) fn new(root: &Path, slots_max: u16) -> Self {
        SlotFiles { directory: root.join("slots"), slots_max }
    }

    /// Finds the slot of a machine, or claims the first free one.
    pub(super) fn claim(&self, name: &MachineName) -> io::Result<u16> {
        fs::create_dir_all(&self.directory)?;
        if let Some(slot) = self.of(name)? {
            return Ok(slot);
        }
        let mut claim = tempfile::NamedTempFile::new_in(self.directory.join(".."))?;
        claim.write_all(name.to_string().as_bytes())?;
        for slot in 0..self.slots_max {
            // A link is made as a whole, and fails if the slot is taken.
            match fs::hard_link(claim.path(), self.directory.join(slot.to_string())) {
                Ok(()) => return Ok(slot),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other(format!("there are {} nodes already", self.slots_max)))
    }

    /// Slot of a machine, if it has one.
    pub(super) fn of(&self, name: &MachineName) -> io::Result<Option<u16>> {
        let name = name.to_string();
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let slot = entry.file_name().to_str().and_then(|slot| slot.parse().ok());
            if fs::read_to_string(entry.path()).is_ok_and(|text| text == name) {
                return Ok(slot);
            }
        }
        Ok(None)
    }

    /// Frees the slot of a machine.
    pub(super) fn free(&self, name: &MachineName) -> io::Result<()> {
        match self.of(name)? {
            Some(slot) => fs::remove_file(self.directory.join(slot.to_string())),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_keeps_its_slot_and_a_free_one_is_used_again() {
        let root = tempfile::tempdir().unwrap();
        let slots = SlotFiles::new(root.path(), 2);
        let name = |number| MachineName::new("c1", number, 1).unwrap();
        assert_eq!((slots.claim(&name(1)).unwrap(), slots.claim(&name(2)).unwrap()), (0, 1));
        assert_eq!(slots.claim(&name(1)).unwrap(), 0);
        assert!(slots.claim(&name(3)).unwrap_err().to_string().contains("2 nodes"));
        slots.free(&name(1)).unwrap();
        assert_eq!(slots.claim(&name(3)).unwrap(), 0);
    }
}
