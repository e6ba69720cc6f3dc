//! Source access: a small interface over the file system, so that the compiler itself does no I/O
//! and tests can hold a project in memory.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Kind of file at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    File,
    Directory,
    /// A device, pipe or socket: reading it might never end.
    Other,
}

/// Maximum size of a file: source offsets are 32-bit numbers. It also bounds reads from a device or
/// pipe.
const FILE_BYTES_MAX: u64 = u32::MAX as u64;

pub trait Files {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    fn is_file(&self, path: &Path) -> bool;
    fn is_dir(&self, path: &Path) -> bool;
    /// Kind of file at a path, following links.
    fn kind(&self, path: &Path) -> io::Result<Kind>;
    /// The path with links resolved; unchanged if it does not exist.
    fn real_path(&self, path: &Path) -> PathBuf;
    /// Names in a directory, sorted.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;
    fn write(&self, path: &Path, text: &str) -> io::Result<()>;
}

/// The real file system.
#[derive(Debug, Default)]
pub struct Disk;

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut file = std::fs::File::open(path)?;
        let size = file.metadata().map_or(0, |metadata| metadata.len());
        bytes.try_reserve(size.min(FILE_BYTES_MAX) as usize)?;
        (&mut file).take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
        if bytes.len() as u64 == FILE_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is over 4 GiB"));
        }
        Ok(bytes)
    }

    fn is_file(&self, path: &Path) -> bool {
        path.is_file()
    }

    fn is_dir(&self, path: &Path) -> bool {
        path.is_dir()
    }

    fn kind(&self, path: &Path) -> io::Result<Kind> {
        let kind = std::fs::metadata(path)?.file_type();
        Ok(match () {
            () if kind.is_file() => Kind::File,
            () if kind.is_dir() => Kind::Directory,
            () => Kind::Other,
        })
    }

    fn real_path(&self, path: &Path) -> PathBuf {
        std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(path)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(path, text)
    }
}

/// Files in memory.
#[derive(Debug, Default)]
pub struct Memory {
    files: BTreeMap<PathBuf, Vec<u8>>,
}

impl Memory {
    pub fn add(&mut self, path: impl Into<PathBuf>, content: impl Into<Vec<u8>>) {
        self.files.insert(path.into(), content.into());
    }
}

fn missing(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("no such file: {}", path.display()))
}

impl Files for Memory {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        if self.is_dir(path) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        self.files.get(path).cloned().ok_or_else(|| missing(path))
    }

    fn is_file(&self, path: &Path) -> bool {
        self.files.contains_key(path)
    }

    fn is_dir(&self, path: &Path) -> bool {
        self.files.keys().any(|file| file.starts_with(path) && file != path)
    }

    fn kind(&self, path: &Path) -> io::Result<Kind> {
        let above_is_file = || path.ancestors().skip(1).any(|above| self.is_file(above));
        match () {
            () if self.is_file(path) => Ok(Kind::File),
            () if self.is_dir(path) => Ok(Kind::Directory),
            () if above_is_file() => Err(io::ErrorKind::NotADirectory.into()),
            () => Err(missing(path)),
        }
    }

    fn real_path(&self, path: &Path) -> PathBuf {
        path.to_owned()
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let mut names: Vec<String> = self
            .files
            .keys()
            .filter_map(|file| file.strip_prefix(path).ok()?.components().next())
            .map(|part| part.as_os_str().to_string_lossy().into_owned())
            .collect();
        names.dedup();
        if names.is_empty() { Err(missing(path)) } else { Ok(names) }
    }

    fn write(&self, path: &Path, _text: &str) -> io::Result<()> {
        let text = format!("{} is read-only", path.display());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
    }
}
