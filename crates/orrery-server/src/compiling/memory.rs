//! Compiles that need more memory than they may have: the limit is named, whoever runs into it, and however that is told there.

use orrery_api::CompileProblem;

/// How programs say that they get no more memory: this one, Python, git, and the system.
const SIGNS: [&str; 6] = [
    "memory allocation of ",
    "MemoryError",
    "no thread could be started",
    "can't start new thread",
    "Cannot allocate memory",
    "Out of memory",
];
/// What the compiler names, and the server does not have.
const OTHER_OPTION: &str = "--max-memory";

/// Whether this tells of too little memory.
pub(super) fn is_exhausted(text: &str) -> bool {
    SIGNS.iter().any(|sign| text.contains(sign))
}

/// What is told of a compile that needed more than `limit` bytes.
pub(super) fn problem(limit: u64) -> CompileProblem {
    CompileProblem {
        category: "limit".to_owned(),
        r#type: "Memory".to_owned(),
        message: format!(
            "the compile needed more memory than the {} MiB that it may have",
            limit >> 20
        ),
        help: Some(help(limit)),
        ..CompileProblem::default()
    }
}

fn help(limit: u64) -> String {
    let mebibytes = limit >> 20;
    format!(
        "a model that is meant to be so large needs a higher limit: orrery server --compile-memory MIB, now {mebibytes}"
    )
}

/// Errors of a model, and the limit first if it is behind one of them.
pub(super) fn explain(problems: Vec<CompileProblem>, limit: Option<u64>) -> Vec<CompileProblem> {
    let Some(limit) = limit else { return problems };
    let mut told = Vec::with_capacity(problems.len() + 1);
    let is_told = problems.iter().any(|one| one.category == "limit");
    if !is_told && problems.iter().any(|one| is_exhausted(&one.message)) {
        told.push(problem(limit));
    }
    told.extend(problems.into_iter().map(|mut one| {
        if one.help.as_ref().is_some_and(|text| text.contains(OTHER_OPTION)) {
            one.help = Some(help(limit));
        }
        one
    }));
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_named() {
        let of = |message: &str, help: Option<&str>| CompileProblem {
            message: message.to_owned(),
            help: help.map(str::to_owned),
            ..CompileProblem::default()
        };
        let limit = Some(700 << 20);
        let python =
            explain(vec![of("Exception in plugin std::sequence\nMemoryError:", None)], limit);
        assert_eq!((python.len(), &*python[0].category), (2, "limit"));
        assert!(python[0].message.contains("700 MiB"), "{python:?}");
        assert!(python[0].help.as_ref().unwrap().contains("--compile-memory"), "{python:?}");
        let own = explain(vec![of("too large", Some("a higher limit: --max-memory MIB"))], limit);
        assert_eq!(own.len(), 1);
        assert!(own[0].help.as_ref().unwrap().contains("--compile-memory"), "{own:?}");
        let other = vec![of("unknown type", None)];
        assert_eq!(explain(other.clone(), limit), other);
        assert!(is_exhausted("memory allocation of 48000000 bytes failed"));
    }
}
