//! File operations, one script each.

use std::str;

use orrery_base::lock::IgnorePoison;

use super::listing;
use super::read_ahead::PrefetchedState;
use super::script::{CHANGE, Script};
use super::session::{PendingSync, Reply, Session, split_line};
use crate::error::{Cause, TargetError, TargetVerb};
use crate::target::{
    Algorithm, ContentDigest, ExpectedContent, FileComparison, FileKind, Ownership, Result, Stat,
    split_path,
};

/// Maximum size of a file that is read as a whole.
const READ_MAX: u64 = 1024 * 1024 * 1024;
/// Maximum size of the line with the attributes, which contains the name.
const LINE_MAX: usize = 16 * 1024;

/// A script for the file at a path, which has passed `check_path`.
fn located(session: &Session, operation: TargetVerb, path: &str) -> Result<Script> {
    let (directory, name) = split_path(path);
    Ok(session.script(operation)?.set("dir", directory).set("name", name))
}

/// Like `located`, with the functions for changes.
fn changing(
    session: &Session,
    operation: TargetVerb,
    path: &str,
    ownership: Ownership,
) -> Result<Script> {
    let number = |id: Option<u32>| id.map(|id| id.to_string()).unwrap_or_default();
    let mode = ownership.mode.map(|mode| format!("{mode:05o}")).unwrap_or_default();
    Ok(located(session, operation, path)?
        .set("want_mode", &mode)
        .set("want_uid", &number(ownership.uid))
        .set("want_gid", &number(ownership.gid))
        .set("base", &temporary_base(split_path(path).1))
        .part(CHANGE))
}

/// Middle part of temporary names: the name, or its digest if the whole would be too long.
fn temporary_base(name: &str) -> String {
    const LENGTH_MAX: usize = 255 - ".".len() - ".4294967295".len() - ".orrery~".len();
    if name.len() <= LENGTH_MAX {
        name.to_owned()
    } else {
        Algorithm::Sha256.digest(name.as_bytes()).to_string()
    }
}

fn unexpected(operation: TargetVerb, path: &str, reply: &Reply) -> TargetError {
    let text = String::from_utf8_lossy(&reply.body[..reply.body.len().min(200)]).into_owned();
    let cause = Cause::Unexpected(format!("unexpected reply of the shell: {} {text}", reply.word));
    TargetError::new(operation, path, cause)
}

/// Reads the attributes of a path, and the destination if it is a link.
fn attributes(
    session: &Session,
    operation: TargetVerb,
    path: &str,
) -> Result<Option<(Stat, Option<String>)>> {
    if let Some(known) = session.read_ahead.take(path) {
        return Ok(known.found);
    }
    let script =
        located(session, operation, path)?.set("how", "stat").part(include_str!("scripts/read.sh"));
    let reply = session.call(operation, path, script)?;
    if reply.word == "absent" {
        return Ok(None);
    }
    let line = str::from_utf8(&reply.body).ok().and_then(|text| text.strip_suffix('\n'));
    let parsed = line.and_then(|line| listing::parse_named(line, split_path(path).1));
    parsed.map(Some).ok_or_else(|| unexpected(operation, path, &reply))
}

pub(super) fn stat(session: &Session, path: &str) -> Result<Option<Stat>> {
    Ok(attributes(session, TargetVerb::Stat, path)?.map(|(stat, _)| stat))
}

pub(super) fn read_link(session: &Session, path: &str) -> Result<Option<String>> {
    match attributes(session, TargetVerb::ReadLink, path)? {
        None => Ok(None),
        Some((Stat { kind: FileKind::Symlink, .. }, Some(leads_to))) => Ok(Some(leads_to)),
        Some(_) => Err(TargetError::new(TargetVerb::ReadLink, path, Cause::NotASymlink)),
    }
}

pub(super) fn stat_following(session: &Session, path: &str) -> Result<Option<Stat>> {
    let script =
        session.script(TargetVerb::Stat)?.set("path", path).part(include_str!("scripts/follow.sh"));
    let reply = session.call(TargetVerb::Stat, path, script)?;
    if reply.word == "absent" {
        return Ok(None);
    }
    let line = String::from_utf8_lossy(&reply.body);
    let parsed = listing::parse(&line).map(|(stat, _)| Some(stat));
    parsed.ok_or_else(|| unexpected(TargetVerb::Stat, path, &reply))
}

/// Result of a read.
enum ReadResult {
    Absent,
    /// Not a regular file.
    Other(Stat),
    /// Output of the program that read it.
    File(Stat, Vec<u8>),
}

/// Reads a regular file with a program of the machine.
fn read_with(session: &Session, path: &str, program: &str, limit: u64) -> Result<ReadResult> {
    let operation = TargetVerb::Read;
    let script = located(session, operation, path)?
        .set("how", program)
        .set("limit", &limit.min(i64::MAX.unsigned_abs()).to_string())
        .part(include_str!("scripts/read.sh"));
    let output_max = usize::try_from(limit.min(READ_MAX)).unwrap_or(usize::MAX) + LINE_MAX;
    let reply = session.call_with_limit(operation, path, script, output_max);
    let too_large = || TargetError::new(operation, path, Cause::TooLarge { limit });
    let reply = match reply {
        Err(TargetError { cause: Cause::TooLarge { .. }, .. }) => return Err(too_large()),
        other => other?,
    };
    if reply.word == "absent" {
        return Ok(ReadResult::Absent);
    }
    // The name in the line may have line breaks.
    let lines = 1 + split_path(path).1.matches('\n').count();
    let mut rest = &reply.body[..];
    let mut line = String::new();
    for number in 0..lines {
        let (next, after) = split_line(rest);
        if number > 0 {
            line.push('\n');
        }
        line.push_str(&next);
        rest = after;
    }
    let Some((stat, _)) = listing::parse(&line) else {
        return Err(unexpected(operation, path, &reply));
    };
    if reply.word == "attributes" {
        return Ok(ReadResult::Other(stat));
    }
    if reply.truncated || rest.len() as u64 > limit.max(LINE_MAX as u64) {
        return Err(too_large());
    }
    Ok(ReadResult::File(stat, rest.to_vec()))
}

fn not_a_file(path: &str, stat: Stat) -> TargetError {
    let cause = match stat.kind {
        FileKind::Directory => Cause::IsADirectory,
        _ => Cause::NotARegularFile,
    };
    TargetError::new(TargetVerb::Read, path, cause)
}

pub(super) fn read(session: &Session, path: &str, limit: u64) -> Result<Option<Vec<u8>>> {
    match read_with(session, path, "cat", limit)? {
        ReadResult::Absent => Ok(None),
        ReadResult::Other(stat) => Err(not_a_file(path, stat)),
        ReadResult::File(_, content) if content.len() as u64 > limit => {
            Err(TargetError::new(TargetVerb::Read, path, Cause::TooLarge { limit }))
        }
        ReadResult::File(_, content) => Ok(Some(content)),
    }
}

/// Reads the attributes and the digest; reads the content where the machine has no program for it.
fn read_digest(
    session: &Session,
    path: &str,
    algorithm: Algorithm,
) -> Result<Option<(Stat, Option<ContentDigest>)>> {
    let program = session.capabilities(TargetVerb::Read)?.digest_program(algorithm);
    let (stat, output) = match program {
        Some(program) => match read_with(session, path, program, u64::MAX)? {
            ReadResult::Absent => return Ok(None),
            ReadResult::Other(stat) => return Ok(Some((stat, None))),
            ReadResult::File(stat, output) => (stat, output),
        },
        None => match read_with(session, path, "cat", READ_MAX)? {
            ReadResult::Absent => return Ok(None),
            ReadResult::Other(stat) => return Ok(Some((stat, None))),
            ReadResult::File(stat, content) => {
                return Ok(Some((stat, Some(algorithm.digest(&content)))));
            }
        },
    };
    let text = String::from_utf8_lossy(&output);
    let digest = text.split_whitespace().next().and_then(|word| word.parse().ok());
    match digest {
        Some(digest) => Ok(Some((stat, Some(digest)))),
        None => {
            let cause = Cause::Unexpected(format!("no digest in the output: {text}"));
            Err(TargetError::new(TargetVerb::Read, path, cause))
        }
    }
}

pub(super) fn digest(
    session: &Session,
    path: &str,
    algorithm: Algorithm,
) -> Result<Option<ContentDigest>> {
    match read_digest(session, path, algorithm)? {
        None => Ok(None),
        Some((_, Some(digest))) => Ok(Some(digest)),
        Some((stat, None)) => Err(not_a_file(path, stat)),
    }
}

pub(super) fn compare(
    session: &Session,
    path: &str,
    expected: ExpectedContent<'_>,
) -> Result<Option<FileComparison>> {
    let (algorithm, size) = match expected {
        ExpectedContent::Bytes(bytes) => (Algorithm::Sha256, Some(bytes.len() as u64)),
        ExpectedContent::Digest(digest) => (digest.algorithm, None),
    };
    let known = session.read_ahead.take(path).and_then(|state| {
        let PrefetchedState { found, digest } = state;
        let Some((stat, _)) = found else { return Some(None) };
        let differs = stat.kind != FileKind::File || size.is_some_and(|size| size != stat.size);
        let digest = digest.filter(|digest| digest.algorithm == algorithm);
        (differs || digest.is_some()).then_some(Some((stat, digest.filter(|_| !differs))))
    });
    let found = match known {
        Some(found) => found,
        None => read_digest(session, path, algorithm)?,
    };
    Ok(found.map(|(stat, digest)| {
        let same = match expected {
            ExpectedContent::Bytes(bytes) => {
                stat.size == bytes.len() as u64 && digest == Some(algorithm.digest(bytes))
            }
            ExpectedContent::Digest(expected) => digest.as_ref() == Some(expected),
        };
        FileComparison { stat, same }
    }))
}

pub(super) fn write(
    session: &Session,
    path: &str,
    content: &[u8],
    ownership: Ownership,
) -> Result<()> {
    let script = changing(session, TargetVerb::Write, path, ownership)?
        .set("length", &content.len().to_string())
        .part(include_str!("scripts/write.sh"));
    session.changing(&[path, split_path(path).0]);
    session.change(TargetVerb::Write, path, script, Some(content)).map(drop)
}

pub(super) fn set_attributes(session: &Session, path: &str, ownership: Ownership) -> Result<()> {
    let operation = TargetVerb::SetAttributes;
    let script =
        changing(session, operation, path, ownership)?.part(include_str!("scripts/attributes.sh"));
    session.changing(&[path]);
    session.change(operation, path, script, None).map(drop)
}

pub(super) fn make_directory(session: &Session, path: &str, ownership: Ownership) -> Result<()> {
    let operation = TargetVerb::MakeDirectory;
    let script =
        changing(session, operation, path, ownership)?.part(include_str!("scripts/directory.sh"));
    session.changing(&[path, split_path(path).0]);
    session.change(operation, path, script, None).map(drop)
}

pub(super) fn make_symlink(session: &Session, path: &str, leads_to: &str) -> Result<()> {
    let operation = TargetVerb::MakeSymlink;
    if leads_to.contains('\0') {
        return Err(TargetError::new(operation, leads_to, Cause::InvalidPath));
    }
    let script = changing(session, operation, path, Ownership::default())?
        .set("leads_to", leads_to)
        .part(include_str!("scripts/symlink.sh"));
    session.changing(&[split_path(path).0]);
    session.change(operation, path, script, None).map(drop)
}

/// Removes what the script is told; returns true if it existed.
pub(super) fn remove(session: &Session, path: &str, what: &str) -> Result<bool> {
    let script = located(session, TargetVerb::Remove, path)?
        .set("what", what)
        .part(include_str!("scripts/remove.sh"));
    session.changing(&[split_path(path).0]);
    Ok(session.change(TargetVerb::Remove, path, script, None)?.word != "absent")
}

pub(super) fn list(session: &Session, path: &str) -> Result<Vec<String>> {
    /// Limit of the names of a directory.
    const NAMES_MAX: usize = 64 * 1024 * 1024;
    let script = located(session, TargetVerb::List, path)?.part(include_str!("scripts/list.sh"));
    let reply = session.call_with_limit(TargetVerb::List, path, script, NAMES_MAX)?;
    if reply.truncated {
        let cause = Cause::TooLarge { limit: NAMES_MAX as u64 };
        return Err(TargetError::new(TargetVerb::List, path, cause));
    }
    let names = reply.body.split(|&byte| byte == 0).filter(|name| !name.is_empty());
    let mut names: Vec<String> =
        names.map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    names.sort_unstable();
    Ok(names)
}

pub(super) fn sync(session: &Session) -> Result<()> {
    let pending = std::mem::take(&mut *session.pending_sync.lock().ignore_poison());
    let paths = match pending {
        PendingSync::None => return Ok(()),
        PendingSync::Paths(paths) => paths,
        PendingSync::All => Vec::new(),
    };
    let script = session
        .script(TargetVerb::Sync)?
        .arguments(paths.iter().map(String::as_str))
        .part(include_str!("scripts/sync.sh"));
    session.call(TargetVerb::Sync, "the file system", script).map(drop)
}
