//! Parses lines of `ls -ldn`, the POSIX way to read attributes.

use crate::target::{FileKind, Stat};

/// Attributes in a line, and the rest of it: the name, with the destination of a link.
pub(super) fn parse(line: &str) -> Option<(Stat, &str)> {
    let mut rest = line;
    let mut word = || {
        rest = rest.trim_start_matches(' ');
        let (first, after) = rest.split_once(' ')?;
        rest = after;
        Some(first)
    };
    let permissions = word()?;
    let _links = word()?;
    let (uid, gid) = (word()?.parse().ok()?, word()?.parse().ok()?);
    let size = word()?;
    // A device has two numbers instead.
    if size.ends_with(',') {
        word()?;
    }
    let _date = (word()?, word()?, word()?);
    let (kind, mode) = parse_permissions(permissions)?;
    Some((Stat { kind, mode, uid, gid, size: size.parse().unwrap_or(0) }, rest))
}

/// Attributes of `./name`, and the destination if it is a link.
pub(super) fn parse_named(line: &str, name: &str) -> Option<(Stat, Option<String>)> {
    let (stat, rest) = parse(line)?;
    let rest = rest.strip_prefix("./")?.strip_prefix(name)?;
    match rest.strip_prefix(" -> ") {
        Some(leads_to) => Some((stat, Some(leads_to.to_owned()))),
        None => rest.is_empty().then_some((stat, None)),
    }
}

fn parse_permissions(text: &str) -> Option<(FileKind, u32)> {
    let letters = text.as_bytes().get(..10)?;
    let kind = match letters[0] {
        b'-' => FileKind::File,
        b'd' => FileKind::Directory,
        b'l' => FileKind::Symlink,
        _ => FileKind::Other,
    };
    let mut mode = 0;
    for (class, special) in [(0, 0o4000), (1, 0o2000), (2, 0o1000)] {
        let bits = &letters[1 + class * 3..][..3];
        let shift = 6 - 3 * class;
        if bits[0] == b'r' {
            mode |= 4 << shift;
        }
        if bits[1] == b'w' {
            mode |= 2 << shift;
        }
        if matches!(bits[2], b'x' | b's' | b't') {
            mode |= 1 << shift;
        }
        if matches!(bits[2], b's' | b'S' | b't' | b'T') {
            mode |= special;
        }
    }
    Some((kind, mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_gnu_and_busybox_are_parsed() {
        let line = "-rwsr-sr-t. 1 1000 100 1234 Jan  2 03:04 ./a b";
        let (stat, leads_to) = parse_named(line, "a b").unwrap();
        assert_eq!((stat.kind, stat.mode, stat.size), (FileKind::File, 0o7755, 1234));
        assert_eq!((stat.uid, stat.gid, leads_to), (1000, 100, None));
        let line = "lrwxrwxrwx    1 0        0               11 Nov 18 10:00 ./l -> /etc/a -> b";
        let (stat, leads_to) = parse_named(line, "l").unwrap();
        assert_eq!((stat.kind, leads_to.as_deref()), (FileKind::Symlink, Some("/etc/a -> b")));
        let line = "crw-rw-rw- 1 0 0 1, 3 Nov 18 2020 ./null";
        let (stat, _) = parse_named(line, "null").unwrap();
        assert_eq!((stat.kind, stat.mode, stat.size), (FileKind::Other, 0o666, 0));
        let (stat, _) = parse_named("drwS--S--T 2 0 0 40 Nov 18 2020 ./d", "d").unwrap();
        assert_eq!((stat.kind, stat.mode), (FileKind::Directory, 0o7600));
    }

    #[test]
    fn other_lines_are_rejected() {
        for line in ["", "total 0", "-rw-r--r-- 1 jo jo 1 Jan 2 03:04 ./a", "-rw 1 0 0 1 J 2 3 ./a"]
        {
            assert_eq!(parse_named(line, "a"), None, "{line}");
        }
        for name in ["o", "others"] {
            assert_eq!(parse_named("-rw-r--r-- 1 0 0 1 Jan 2 03:04 ./other", name), None);
        }
    }
}
