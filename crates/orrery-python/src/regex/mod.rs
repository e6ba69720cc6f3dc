//! Regular expressions with the meaning of Python's `re` for `str` patterns.
//!
//! A pattern is parsed here, with Python's rules and error messages. To match, it is translated to
//! the linear-time engine, or where it needs look-around, back-references or atomic groups to a
//! backtracking one with a bound on its steps. Translations are made when a subject first needs them.
//!
//! Known differences: characters newer than Python 3.13's Unicode are classed as the engines know
//! them; a back-reference that ignores case does so by the engine's rules beyond ASCII; and what is too
//! large to compile or takes too many steps is an error, where Python would go on for very long.

mod ast;
mod case;
mod escape;
mod groups;
mod parser;
mod tokens;
mod translate;

use crate::PyError;
use ast::Node;
use std::fmt;
use std::sync::OnceLock;
use translate::{Subject, translate};

/// Steps after which the backtracking engine gives up.
const BACKTRACK_MAX: usize = 1_000_000;

/// The size of a compiled pattern in bytes; only extreme repetition counts need more.
const COMPILED_BYTES_MAX: usize = 64 << 20;

/// A compiled pattern.
pub struct PyRegex {
    pattern: String,
    node: Node,
    engines: [[OnceLock<Result<Engine, PyError>>; SUBJECT_KINDS]; MODES],
}

enum Engine {
    Linear(regex::Regex),
    Backtracking(fancy_regex::Regex),
}

#[derive(Clone, Copy)]
enum Mode {
    Match,
    FullMatch,
    Search,
}

const MODES: usize = 3;
const SUBJECT_KINDS: usize = 5;

impl PyRegex {
    /// Python's `re.compile(pattern)`. The error's message is that of `re.error`.
    pub fn new(pattern: &str) -> Result<PyRegex, PyError> {
        let node = parser::parse(pattern)?;
        Ok(PyRegex { pattern: pattern.to_string(), node, engines: Default::default() })
    }

    /// The pattern as it was given.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Returns true if Python's `re.match` finds a match: at the start of the text, not up to its
    /// end.
    pub fn is_match_at_start(&self, text: &str) -> Result<bool, PyError> {
        self.run(text, Mode::Match)
    }

    /// Returns true if Python's `re.fullmatch` matches the whole text.
    pub fn fullmatch(&self, text: &str) -> Result<bool, PyError> {
        self.run(text, Mode::FullMatch)
    }

    /// Returns true if Python's `re.search` finds a match anywhere in the text.
    pub fn search(&self, text: &str) -> Result<bool, PyError> {
        self.run(text, Mode::Search)
    }

    fn run(&self, text: &str, mode: Mode) -> Result<bool, PyError> {
        let subject = Subject {
            empty: text.is_empty(),
            ascii: text.is_ascii(),
            newline_last: text.ends_with('\n'),
        };
        let kind = match subject {
            Subject { empty: true, .. } => 0,
            Subject { ascii, newline_last, .. } => {
                1 + usize::from(ascii) + 2 * usize::from(newline_last)
            }
        };
        let engine = self.engines[mode as usize][kind]
            .get_or_init(|| compile(&self.node, subject, mode))
            .as_ref()
            .map_err(Clone::clone)?;
        match engine {
            Engine::Linear(regex) => Ok(regex.is_match(text)),
            Engine::Backtracking(regex) => regex.is_match(text).map_err(|_| {
                PyError::new("RuntimeError", "the regular expression takes too many steps")
            }),
        }
    }
}

fn compile(node: &Node, subject: Subject, mode: Mode) -> Result<Engine, PyError> {
    let translated = translate(node, subject);
    let body = translated.pattern;
    let pattern = match mode {
        Mode::Match => format!("\\A(?:{body})"),
        Mode::FullMatch => format!("\\A(?:{body})\\z"),
        Mode::Search => body,
    };
    let engine = if translated.backtracks {
        fancy_regex::RegexBuilder::new(&pattern)
            .backtrack_limit(BACKTRACK_MAX)
            .delegate_size_limit(COMPILED_BYTES_MAX)
            .build()
            .map(Engine::Backtracking)
            .map_err(|error| error.to_string())
    } else {
        regex::RegexBuilder::new(&pattern)
            .size_limit(COMPILED_BYTES_MAX)
            .nest_limit(10_000)
            .build()
            .map(Engine::Linear)
            .map_err(|error| error.to_string())
    };
    engine.map_err(|error| PyError::new("RuntimeError", format!("regular expression: {error}")))
}

impl Clone for PyRegex {
    fn clone(&self) -> Self {
        PyRegex {
            pattern: self.pattern.clone(),
            node: self.node.clone(),
            engines: Default::default(),
        }
    }
}

impl fmt::Debug for PyRegex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PyRegex").field(&self.pattern).finish()
    }
}
