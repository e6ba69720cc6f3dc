//! Reports the memory limit as the cause of failures, in whichever program it strikes.

use orrery_api::{CompileProblem, ProblemCategory};
use orrery_base::byte_size;

/// Messages about exhausted memory: of this program, Python, git, and the system.
const SIGNS: [&str; 7] = [
    "memory allocation of ",
    "MemoryError",
    "cannot start a thread",
    "no thread could be started",
    "can't start new thread",
    "Cannot allocate memory",
    "Out of memory",
];
/// Option that the compiler's help names and the server does not have.
const OTHER_OPTION: &str = "--max-memory";

/// True if a text reports exhausted memory.
pub(crate) fn is_exhausted(text: &str) -> bool {
    SIGNS.iter().any(|sign| text.contains(sign))
}

/// Builds the problem of a compile that needed more than `limit` bytes.
pub(crate) fn limit_problem(limit: u64) -> CompileProblem {
    CompileProblem {
        category: ProblemCategory::Limit,
        r#type: "Memory".to_owned(),
        message: format!(
            "the compile exceeded its memory limit of {}",
            byte_size::format_limit(limit)
        ),
        help: Some(help(limit)),
        ..CompileProblem::default()
    }
}

fn help(limit: u64) -> String {
    let mebibytes = limit >> 20;
    format!(
        "to compile a model of this size, raise the limit: orrery server --compile-memory MIB, now {mebibytes}"
    )
}

/// Puts the limit first if it caused one of the errors, and names the server's option in their
/// help.
pub(crate) fn explain(problems: Vec<CompileProblem>, limit: Option<u64>) -> Vec<CompileProblem> {
    let Some(limit) = limit else { return problems };
    let mut explained = Vec::with_capacity(problems.len() + 1);
    let is_explained = problems.iter().any(|one| one.category == ProblemCategory::Limit);
    if !is_explained && problems.iter().any(|one| is_exhausted(&one.message)) {
        explained.push(limit_problem(limit));
    }
    explained.extend(problems.into_iter().map(|mut one| {
        if one.help.as_ref().is_some_and(|text| text.contains(OTHER_OPTION)) {
            one.help = Some(help(limit));
        }
        one
    }));
    explained
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
        assert_eq!((python.len(), python[0].category), (2, ProblemCategory::Limit));
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
