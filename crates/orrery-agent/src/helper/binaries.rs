//! Helper binaries of this installation, with the platforms that can run them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

/// Maximum size of a binary that is uploaded.
const SIZE_MAX: u64 = 128 * 1024 * 1024;

/// Directory of agent binaries for other platforms, relative to that of the executable.
const AGENTS_DIRECTORY: &str = "../lib/orrery/agents";

/// A program that can be a helper.
#[derive(Debug)]
pub struct HelperBinary {
    path: PathBuf,
    /// Arguments that make it a helper.
    arguments: &'static str,
    platform: Platform,
    /// SHA-256 in hexadecimal digits.
    digest: String,
}

/// Requirements of a binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Platform {
    /// System and machine as `uname -sm` prints them.
    pub(super) name: &'static str,
    /// Dynamic loader; `None` for a static binary.
    pub(super) interpreter: Option<String>,
    /// Newest version 2.x of glibc that it refers to.
    pub(super) glibc_minor: Option<u32>,
}

impl HelperBinary {
    /// Reads a binary; `arguments` make it a helper. `None` if it is not a program that fits.
    pub fn open(path: &Path, arguments: &'static str) -> Option<Self> {
        let size = fs::metadata(path).ok().filter(fs::Metadata::is_file)?.len();
        if size > SIZE_MAX {
            tracing::debug!(path = %path.display(), size, "too large for a helper");
            return None;
        }
        let content = fs::read(path).ok()?;
        let platform = Platform::parse(&content)?;
        let digest = digest(&content);
        Some(HelperBinary { path: path.to_owned(), arguments, platform, digest })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn platform(&self) -> &Platform {
        &self.platform
    }

    pub(super) fn arguments(&self) -> &str {
        self.arguments
    }

    pub(super) fn digest(&self) -> &str {
        &self.digest
    }

    /// Reads the content. An upgrade of this installation may have replaced it.
    pub(super) fn read(&self) -> io::Result<Vec<u8>> {
        let content = fs::read(&self.path)?;
        if digest(&content) == self.digest {
            Ok(content)
        } else {
            Err(io::Error::other("it was replaced while this process ran"))
        }
    }
}

fn digest(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Time without commands after which a helper is ended: shorter than its own timeout, so that no
/// command is sent to one that is about to end.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// Helper binaries, the preferred one of each platform first.
#[derive(Debug)]
pub struct HelperBinaries {
    binaries: Vec<HelperBinary>,
    idle_timeout: Duration,
}

impl Default for HelperBinaries {
    fn default() -> Self {
        HelperBinaries::new(Vec::new())
    }
}

impl HelperBinaries {
    pub fn new(binaries: Vec<HelperBinary>) -> Self {
        HelperBinaries { binaries, idle_timeout: IDLE_TIMEOUT }
    }

    /// Ends helpers that got no command for this time.
    #[must_use]
    pub fn with_idle_timeout(self, idle_timeout: Duration) -> Self {
        HelperBinaries { idle_timeout, ..self }
    }

    pub(super) fn idle_timeout(&self) -> Duration {
        self.idle_timeout
    }

    /// Binaries of this installation: `orrery-agent` beside the executable, the files of
    /// `lib/orrery/agents`, and the executable itself. Takes some time: it reads them.
    pub fn installed() -> Self {
        let Ok(executable) = std::env::current_exe() else { return HelperBinaries::default() };
        let Some(directory) = executable.parent() else { return HelperBinaries::default() };
        let mut found = Vec::new();
        found.extend(HelperBinary::open(&directory.join("orrery-agent"), "once"));
        let entries = fs::read_dir(directory.join(AGENTS_DIRECTORY)).into_iter().flatten();
        let mut others: Vec<PathBuf> =
            entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        others.sort_unstable();
        found.extend(others.iter().filter_map(|path| HelperBinary::open(path, "once")));
        let has_own = |found: &[HelperBinary]| {
            let own = format!("Linux {}", std::env::consts::ARCH);
            found.iter().any(|binary| binary.platform.name == own)
        };
        if executable.file_name().is_some_and(|name| name == "orrery") && !has_own(&found) {
            found.extend(HelperBinary::open(&executable, "agent once"));
        }
        HelperBinaries::new(found)
    }

    pub fn is_empty(&self) -> bool {
        self.binaries.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &HelperBinary> {
        self.binaries.iter()
    }

    pub(super) fn with_digest(&self, digest: &str) -> Option<&HelperBinary> {
        self.binaries.iter().find(|binary| binary.digest == digest)
    }
}

impl Platform {
    /// Reads the header of a 64-bit little-endian ELF program.
    fn parse(content: &[u8]) -> Option<Self> {
        const ELF_64_LITTLE: &[u8] = b"\x7fELF\x02\x01";
        const PROGRAM_HEADER_LENGTH: usize = 56;
        const INTERPRETER: u32 = 3;
        if !content.starts_with(ELF_64_LITTLE) {
            return None;
        }
        let name = match read_u16(content, 18)? {
            0x3e => "Linux x86_64",
            0xb7 => "Linux aarch64",
            0xf3 => "Linux riscv64",
            0x15 => "Linux ppc64le",
            _ => return None,
        };
        let headers_at = usize::try_from(read_u64(content, 32)?).ok()?;
        let mut interpreter = None;
        for number in 0..usize::from(read_u16(content, 56)?) {
            let at = headers_at.checked_add(number.checked_mul(PROGRAM_HEADER_LENGTH)?)?;
            if read_u32(content, at)? == INTERPRETER {
                let start = usize::try_from(read_u64(content, at + 8)?).ok()?;
                let length = usize::try_from(read_u64(content, at + 32)?).ok()?;
                let text = content.get(start..start.checked_add(length)?)?;
                let text = text.strip_suffix(b"\0").unwrap_or(text);
                interpreter = Some(std::str::from_utf8(text).ok()?.to_owned());
            }
        }
        let glibc_minor = interpreter.as_ref().and_then(|_| newest_glibc(content));
        Some(Platform { name, interpreter, glibc_minor })
    }
}

fn read_u16(content: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(content.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn read_u32(content: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(content.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn read_u64(content: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(content.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// Newest symbol version 2.x of glibc in a binary.
fn newest_glibc(content: &[u8]) -> Option<u32> {
    const PREFIX: &[u8] = b"GLIBC_2.";
    let mut newest = None;
    let mut rest = content;
    while let Some(at) = rest.windows(PREFIX.len()).position(|window| window == PREFIX) {
        rest = &rest[at + PREFIX.len()..];
        let digits = rest.iter().take(3).take_while(|byte| byte.is_ascii_digit());
        let minor = digits.fold(0, |number, byte| number * 10 + u32::from(byte - b'0'));
        newest = newest.max(Some(minor));
    }
    newest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_platform_of_a_program_is_read() {
        let own = HelperBinary::open(&std::env::current_exe().unwrap(), "once");
        // A debug binary may be too large.
        if let Some(own) = own {
            assert_eq!(own.platform().name, format!("Linux {}", std::env::consts::ARCH));
        }
        let shell = fs::canonicalize("/bin/sh").unwrap();
        let shell = HelperBinary::open(&shell, "once").unwrap();
        let platform = shell.platform();
        assert_eq!(platform.name, format!("Linux {}", std::env::consts::ARCH));
        assert!(platform.interpreter.as_ref().is_some_and(|path| Path::new(path).exists()));
        assert_eq!(shell.digest().len(), 64);
    }

    #[test]
    fn other_files_are_no_programs() {
        for content in [&b""[..], b"#!/bin/sh\n", b"\x7fELF\x02\x01", b"\x7fELF\x01\x01\x01"] {
            assert_eq!(Platform::parse(content), None);
        }
        let mut endless = b"\x7fELF\x02\x01".to_vec();
        endless.resize(64, 0xff);
        endless[18..20].copy_from_slice(&0x3eu16.to_le_bytes());
        assert_eq!(Platform::parse(&endless), None);
    }

    #[test]
    fn the_newest_version_of_glibc_counts() {
        let content = b"\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.4\0GLIBC_PRIVATE\0";
        assert_eq!(newest_glibc(content), Some(34));
        assert_eq!(newest_glibc(b"static"), None);
    }
}
