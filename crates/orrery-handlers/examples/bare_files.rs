//! Baseline of `bench/converge`: a bare loop of the system calls for many files, in one thread.
//!
//!     bare_files write|check DIRECTORY COUNT
//!
//! `write` creates each file under a temporary name, sets its mode and renames it; `check` opens,
//! stats, reads and compares each, and fails on a difference.

use std::fmt::Write;

use rustix::fs::{Mode, OFlags};

/// Suffix of every file; the same text is in `bench/converge/contents.py`.
const REST: &str = "listen = 127.0.0.1\nworkers = 4\ntimeout = 30\nlog = /var/log/service/current\n\
     user = service\ngroup = service\nretry = always\nlimits = none\ncolour = blue\n";
const PERMISSIONS: u32 = 0o644;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(task), Some(directory), Some(count)) =
        (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err("usage: bare_files write|check DIRECTORY COUNT".into());
    };
    let count: u32 = count.parse()?;
    let (mut path, mut temporary, mut content) = (String::new(), String::new(), String::new());
    let mut buffer = vec![0; 4096];
    for number in 0..count {
        path.clear();
        content.clear();
        write!(path, "{directory}/service-{number}.conf")?;
        write!(content, "# Service {number}\nshard = {number}\n{REST}")?;
        match &*task {
            "write" => {
                temporary.clear();
                write!(temporary, "{directory}/.service-{number}.conf~")?;
                write_file(&temporary, &path, content.as_bytes())?;
            }
            "check" if is_compliant(&path, content.as_bytes(), &mut buffer)? => {}
            "check" => return Err(format!("{path} is not as wanted").into()),
            _ => return Err(format!("there is no task {task}").into()),
        }
    }
    Ok(())
}

fn write_file(temporary: &str, path: &str, content: &[u8]) -> rustix::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::open(temporary, flags, Mode::from_raw_mode(0o600))?;
    let mut rest = content;
    while !rest.is_empty() {
        rest = &rest[rustix::io::write(&file, rest)?..];
    }
    rustix::fs::fchmod(&file, Mode::from_raw_mode(PERMISSIONS))?;
    drop(file);
    rustix::fs::rename(temporary, path)
}

fn is_compliant(path: &str, content: &[u8], buffer: &mut [u8]) -> rustix::io::Result<bool> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let stat = rustix::fs::fstat(&file)?;
    let count = rustix::io::read(&file, &mut *buffer)?;
    Ok(stat.st_mode & 0o7777 == PERMISSIONS && buffer[..count] == *content)
}
