//! Maps failures of scripts and of the programs they use to causes.

use std::io;

use crate::error::Cause;
use crate::target::Output;

/// Cause of a failure that a script found itself.
pub(super) fn failure_cause(failure: &str, detail: &str) -> Cause {
    match failure {
        "too-many-links" => Cause::TooManyLinks,
        "denied" => Cause::PermissionDenied,
        "parent-missing" => Cause::ParentMissing,
        "not-found" => Cause::NotFound,
        "not-a-directory" => Cause::NotADirectory,
        "is-a-directory" => Cause::IsADirectory,
        "not-a-regular-file" => Cause::NotARegularFile,
        "not-a-symlink" => Cause::NotASymlink,
        // The caller knows the limit.
        "too-large" => Cause::TooLarge { limit: 0 },
        "command-not-found" => Cause::CommandNotFound,
        "foreign-link" => {
            let (uid, link) = detail.split_once(' ').unwrap_or(("", detail));
            Cause::ForeignLink { link: link.to_owned(), uid: uid.parse().unwrap_or(u32::MAX) }
        }
        "changed" => Cause::Unexpected(format!("{detail} was replaced during the operation")),
        "incomplete" => Cause::Unexpected(format!("only {detail} bytes of the content arrived")),
        other => Cause::Unexpected(format!("the script failed: {other} {detail}")),
    }
}

/// Cause of a failure that a program reports in words, those of the C locale.
pub(super) fn text_cause(output: &Output) -> Cause {
    let text = output.error_excerpt();
    let has = |part: &str| text.contains(part);
    if has("No space left") || has("uota exceeded") {
        Cause::NoSpace
    } else if has("Read-only file system") {
        Cause::ReadOnly
    } else if has("ermission denied") || has("not permitted") {
        Cause::PermissionDenied
    } else if has("irectory not empty") {
        Cause::NotEmpty
    } else if has("Is a directory") {
        Cause::IsADirectory
    } else if has("Not a directory") {
        Cause::NotADirectory
    } else if has("Too many levels of symbolic links") || has("Symbolic link loop") {
        Cause::TooManyLinks
    } else if has("File exists") {
        Cause::Io(io::Error::new(io::ErrorKind::AlreadyExists, text))
    } else if has("No such file") {
        Cause::NotFound
    } else if text.is_empty() {
        Cause::Unexpected(format!("the shell ended with code {} and no message", output.code))
    } else {
        Cause::Unexpected(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_programs_have_causes() {
        let cause = |text: &str| text_cause(&Output::new(1, "", text));
        for (text, expected) in [
            ("cat: write error: No space left on device", "no space left"),
            ("mkdir: cannot create directory './d': Permission denied", "permission denied"),
            ("sh: 3: cannot create ./x: Read-only file system", "the file system is read-only"),
            ("chown: ./x: Operation not permitted", "permission denied"),
            ("rmdir: './d': Directory not empty", "the directory is not empty"),
            ("ls: /x: Symbolic link loop", "too many symbolic links"),
            ("", "the shell ended with code 1 and no message"),
            ("strange", "strange"),
        ] {
            assert_eq!(cause(text).to_string(), expected, "{text}");
        }
        assert!(!cause("cat: write error: Disk quota exceeded").is_unclear());
        assert!(cause("strange").is_unclear());
    }

    #[test]
    fn a_foreign_link_names_its_user() {
        let cause = failure_cause("foreign-link", "1000 /home/jo/a b");
        assert!(
            matches!(&cause, Cause::ForeignLink { link, uid: 1000 } if link == "/home/jo/a b"),
            "{cause}"
        );
    }
}
