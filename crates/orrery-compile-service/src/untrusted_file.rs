//! Reads files that tenant code leaves for the server. Neither their type nor their size is
//! trusted.

use std::io::{self, Read as _};
use std::path::Path;

use orrery_base::byte_size;
use rustix::fs::{Mode, OFlags, ResolveFlags};

/// Maximum size of a compile result.
pub(crate) const RESULT_MAX: u64 = 256 << 20;
/// Maximum size of a file content, as for uploads.
pub(crate) const CONTENT_MAX: u64 = 100 << 20;

/// Reads a regular file below a directory. Rejects links, devices and oversized files, including
/// files that grow meanwhile.
pub(crate) fn read(directory: &Path, name: &Path, max: u64) -> io::Result<Vec<u8>> {
    let directory = rustix::fs::open(
        directory,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let file = rustix::fs::openat2(&directory, name, flags, Mode::empty(), resolve);
    let file = std::fs::File::from(file.map_err(|error| match error {
        rustix::io::Errno::LOOP => io::Error::other("it is a symbolic link"),
        error => error.into(),
    })?);
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let too_large =
        || io::Error::other(format!("it is larger than {}", byte_size::format_limit(max)));
    if found.len() > max {
        return Err(too_large());
    }
    let mut content = Vec::new();
    file.take(max + 1).read_to_end(&mut content)?;
    if content.len() as u64 > max { Err(too_large()) } else { Ok(content) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_small_regular_files_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("good"), "content").unwrap();
        std::fs::write(path("large"), vec![0; 2000]).unwrap();
        std::fs::create_dir(path("inner")).unwrap();
        std::fs::write(path("inner/good"), "inner").unwrap();
        symlink("good", path("link")).unwrap();
        symlink("/dev/zero", path("zero")).unwrap();
        symlink("inner", path("way")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, path("pipe"), Mode::RUSR | Mode::WUSR).unwrap();
        let read = |name: &str| read(dir.path(), Path::new(name), 1000);
        assert_eq!(read("good").unwrap(), b"content");
        assert_eq!(read("inner/good").unwrap(), b"inner");
        for name in
            ["large", "link", "zero", "way/good", "pipe", "inner", "../x", "/etc/passwd", "none"]
        {
            assert!(read(name).is_err(), "{name}");
        }
        assert!(read("zero").unwrap_err().to_string().contains("symbolic link"));
    }
}
