//! Pure crates do no I/O through the standard library either.
//!
//! They read no clock, no environment variable and no file, and start neither threads nor processes.
//! Methods of values, such as `Path::exists`, are not seen: their type is not in the text.

use crate::layers::PURE;
use crate::rust_tokens::{Token, shipped_tokens, use_tree};
use crate::{TextFile, Violation};

/// Files that may do I/O, each with its reason. One that does none is reported.
pub const EXCEPTIONS: [(&str, &str); 2] = [
    ("crates/orrery-compiler/src/files.rs", "`Disk`, the real file system behind `Files`"),
    ("crates/orrery-compiler/src/system.rs", "variables and randomness of plugins behind `System`"),
];

/// Modules of the standard library that are about the machine.
const IMPURE_MODULES: [&str; 5] = ["env", "fs", "net", "process", "thread"];
/// Types of `std::net` that are plain values.
const ADDRESSES: [&str; 5] = ["AddrParseError", "IpAddr", "Ipv4Addr", "Ipv6Addr", "SocketAddr"];
/// Clocks.
const CLOCKS: [&str; 2] = ["Instant", "SystemTime"];

/// Uses of the machine in shipped code of pure crates, but for `exceptions`.
pub fn check(files: &[TextFile], exceptions: &[(&str, &str)]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| is_pure(file)) {
        let found = impure_uses(&shipped_tokens(&file.text));
        let reason = exceptions.iter().find(|(path, _)| *path == file.path);
        if reason.is_none() {
            violations.extend(found.into_iter().map(|(name, line)| {
                let place = format!("{}:{line}", file.path);
                Violation::new(place, format!("uses {name}, and its crate is pure"))
            }));
        } else if found.is_empty() {
            let problem = "is an exception in xtask/src/purity.rs and uses nothing impure";
            violations.push(Violation::new(&file.path, problem));
        }
    }
    violations
}

fn is_pure(file: &TextFile) -> bool {
    let mut parts = file.path.split('/');
    parts.next() == Some("crates")
        && parts.next().is_some_and(|name| PURE.contains(&name))
        && parts.next() == Some("src")
        && file.extension() == "rs"
        && !file.path.ends_with("/tests.rs")
}

fn impure_uses(tokens: &[Token]) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let text = |offset: usize| tokens.get(at + offset).map_or("", |token| token.text.as_str());
        let is_first = at == 0 || tokens[at - 1].text != "::";
        if CLOCKS.contains(&text(0)) && text(1) == "::" && text(2) == "now" {
            found.push((format!("{}::now", token.text), token.line));
        }
        if is_first && text(0) == "std" && text(1) == "::" {
            let mut leaves = Vec::new();
            use_tree(tokens, at, &[], &mut leaves);
            for leaf in leaves {
                let module = leaf.path.get(1).map_or("", String::as_str);
                let member = leaf.path.get(2).map_or("", String::as_str);
                let is_address = module == "net" && ADDRESSES.contains(&member);
                if IMPURE_MODULES.contains(&module) && !is_address {
                    found.push((format!("std::{module}"), leaf.line));
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        let file = TextFile::new("crates/orrery-model/src/a.rs", text);
        check(&[file], &[]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn uses_of_the_machine_are_found() {
        let bad = [
            "use std::fs;",
            "use std::{io, collections::BTreeMap, process::Command};",
            "fn f() { std::env::var(\"A\") }",
            "use std::net::{Ipv4Addr, TcpStream};",
            "fn f() { Instant::now() }",
            "fn f() { std::time::SystemTime::now() }",
            "fn f() { std::thread::spawn(g) }",
        ];
        for text in bad {
            assert_eq!(problems(text).len(), 1, "{text}");
        }
        assert!(
            problems("\n\nuse std::fs;")[0]
                .starts_with("crates/orrery-model/src/a.rs:3: uses std::fs")
        );
    }

    #[test]
    fn values_and_tests_are_no_io() {
        let good = [
            "use std::{io, fmt, path::Path};",
            "use std::net::{Ipv4Addr, Ipv6Addr};",
            "use std::time::{Duration, SystemTime};",
            "#[cfg(test)] mod tests { use std::fs; }",
            "// std::fs\nfn f() { \"std::fs\" }",
        ];
        for text in good {
            assert_eq!(problems(text), [""; 0], "{text}");
        }
        let elsewhere = TextFile::new("crates/orrery-store/src/a.rs", "use std::fs;");
        assert!(check(&[elsewhere], &[]).is_empty());
    }

    #[test]
    fn an_exception_is_listed_and_needed() {
        let path = "crates/orrery-model/src/a.rs";
        let of = |text: &str| check(&[TextFile::new(path, text)], &[(path, "a reason")]).len();
        assert_eq!((of("use std::fs;"), of("use std::fmt;")), (0, 1));
    }
}
