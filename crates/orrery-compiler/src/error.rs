//! Compiler errors: the reference compiler's class and exact wording, the location and the causes;
//! and a user-facing explanation in our own words, which replaces the wording on a terminal.

use orrery_syntax::ast::Loc;
use orrery_syntax::{Explanation, SyntaxError};

use crate::plugins::FileLocation;
use crate::source::Sources;

/// A failure of the compile. `class` is the name that existing tools know the error by.
#[derive(Clone, Debug)]
pub struct CompileError {
    pub class: &'static str,
    /// Diagnostic id, if class and text do not determine it.
    pub id: Option<&'static str>,
    /// The message without locations.
    pub text: String,
    pub loc: Option<Loc>,
    /// The exact location, if `loc` covers the whole surrounding statement.
    pub focus: Option<Loc>,
    /// The statement in which the error occurred, rendered.
    pub statement: Option<String>,
    /// Location of that statement; `loc` may differ.
    pub(crate) statement_loc: Option<Loc>,
    pub causes: Vec<CompileError>,
    /// Further relevant locations: "first set here".
    pub related: Vec<(Loc, String)>,
    pub help: Option<String>,
    /// User-facing error: replaces text, location, causes and help wherever it is displayed.
    pub explanation: Option<Box<Explanation>>,
    /// True if the error follows from another error of the same list: only that one is displayed.
    pub consequence: bool,
    /// Displayed location in a file outside of the model; joins the explanation once all files are
    /// known.
    pub file_location: Option<Box<FileLocation>>,
    /// Errors reported together: `MultiException` shows its parts as a list.
    pub parts: Vec<CompileError>,
    /// Lower is reported first.
    pub importance: u32,
    /// The message never carries a location (the equivalent of a raw Python exception).
    pub bare: bool,
    /// The location is known, but the message does not repeat it.
    pub hide_location: bool,
    /// Only the location is reported: no statement is named.
    pub location_only: bool,
    /// Replaces the "(location)" suffix: the reference compiler's duplicate errors name two
    /// locations themselves.
    pub duplicate_locations: Option<(Loc, Loc)>,
}

pub type Result<T, E = Box<CompileError>> = std::result::Result<T, E>;

impl CompileError {
    pub fn new(class: &'static str, text: impl Into<String>) -> Box<Self> {
        Box::new(CompileError {
            class,
            id: None,
            text: text.into(),
            loc: None,
            focus: None,
            statement: None,
            statement_loc: None,
            causes: Vec::new(),
            related: Vec::new(),
            help: None,
            explanation: None,
            consequence: false,
            file_location: None,
            parts: Vec::new(),
            importance: importance(class),
            bare: false,
            hide_location: false,
            location_only: false,
            duplicate_locations: None,
        })
    }

    /// Combines several errors: a single one is returned as is, more become a list in this order.
    pub fn combine(mut errors: Vec<CompileError>) -> Option<Box<Self>> {
        if errors.len() < 2 {
            return errors.pop().map(Box::new);
        }
        let mut all = Self::new("MultiException", format!("Reported {} errors", errors.len()));
        all.parts = errors;
        Some(all)
    }

    /// The equivalent of a plain Python exception in the reference compiler: no location is
    /// attached.
    pub fn from_python(error: orrery_python::PyError) -> Box<Self> {
        let mut this = Self::new(error.kind, error.message);
        this.bare = true;
        this
    }

    /// Converts a syntax error of one file.
    pub fn from_syntax(error: &SyntaxError) -> Box<Self> {
        let mut this = Self::new(error.class, error.message.clone()).at(error.loc);
        this.help.clone_from(&error.help);
        this.explanation.clone_from(&error.explanation);
        this.statement.clone_from(&error.reported_in);
        this.duplicate_locations = error.duplicate_of.map(|original| (error.loc, original));
        // The reference compiler gets these from Python itself, without a location.
        this.hide_location = matches!(
            error.class,
            "UnicodeDecodeError" | "UnicodeEncodeError" | "ValueError" | "CompilerException"
        );
        this
    }

    #[must_use]
    pub fn at(mut self: Box<Self>, loc: Loc) -> Box<Self> {
        self.loc = Some(loc);
        self
    }

    #[must_use]
    pub fn in_statement(mut self: Box<Self>, statement: impl Into<String>, loc: Loc) -> Box<Self> {
        self.statement = Some(statement.into());
        self.statement_loc = Some(loc);
        self.loc = Some(loc);
        self
    }

    /// Names the statement unless a closer one is already named.
    #[must_use]
    pub fn or_in_statement(
        mut self: Box<Self>,
        statement: impl FnOnce() -> String,
        loc: Loc,
    ) -> Box<Self> {
        if !self.location_only && self.class != "ParserException" && self.lacks_statement() {
            self.fill_statement(&statement(), loc);
        }
        if self.bare {
            // Messages do not name the location, but diagnostics show it.
            self.loc.get_or_insert(loc);
        }
        self
    }

    /// Replaces the named statement. A location apart from the statement stays.
    #[must_use]
    pub fn replace_statement(mut self: Box<Self>, statement: &str, loc: Loc) -> Box<Self> {
        self.set_statement(statement, loc);
        self
    }

    fn set_statement(&mut self, statement: &str, loc: Loc) {
        if self.bare {
            return;
        }
        self.statement = Some(statement.to_owned());
        let previous = self.statement_loc.replace(loc);
        if self.loc.is_none() || self.loc == previous {
            self.loc = Some(loc);
        }
        for cause in &mut self.causes {
            cause.set_statement(statement, loc);
        }
    }

    /// Removes all locations: the caller adds its own.
    pub fn clear_locations(&mut self) {
        self.statement = None;
        self.statement_loc = None;
        self.loc = None;
        self.causes.iter_mut().for_each(Self::clear_locations);
    }

    fn lacks_statement(&self) -> bool {
        !self.bare && (self.statement.is_none() || self.causes.iter().any(Self::lacks_statement))
    }

    fn fill_statement(&mut self, statement: &str, loc: Loc) {
        if self.bare {
            return;
        }
        if self.statement.is_none() {
            self.statement = Some(statement.to_owned());
            self.statement_loc = Some(loc);
            self.loc.get_or_insert(loc);
        }
        for cause in &mut self.causes {
            cause.fill_statement(statement, loc);
        }
    }

    #[must_use]
    pub fn caused_by(mut self: Box<Self>, cause: Box<CompileError>) -> Box<Self> {
        self.causes.push(*cause);
        self
    }

    #[must_use]
    pub fn related(mut self: Box<Self>, loc: Loc, note: impl Into<String>) -> Box<Self> {
        self.related.push((loc, note.into()));
        self
    }

    #[must_use]
    pub fn help(mut self: Box<Self>, help: impl Into<String>) -> Box<Self> {
        self.help = Some(help.into());
        self
    }

    /// Sets the user-facing explanation.
    #[must_use]
    pub fn explained(mut self: Box<Self>, explanation: Explanation) -> Box<Self> {
        self.explanation = Some(Box::new(explanation));
        self
    }

    /// Adds the files of locations outside of the model to the sources and resolves those
    /// locations.
    pub(crate) fn resolve_file_locations(
        &mut self,
        sources: &mut Sources,
        show: &dyn Fn(&str) -> String,
    ) {
        if let Some(location) = self.file_location.take()
            && let Some(explanation) = &mut self.explanation
        {
            let file = sources.add(show(&location.path), location.text.clone());
            if let Some((loc, label)) = explanation.primary.take() {
                explanation.related.push((loc, label));
            }
            let loc = |line: usize, word: &str| {
                let bytes = word_on_line(&location.text, line, word);
                Loc { file, start: bytes.start as u32, end: bytes.end as u32, column: true }
            };
            explanation.primary =
                Some((loc(location.line, &location.word), location.label.clone()));
            if let Some((line, word, label)) = &location.related {
                explanation.related.insert(0, (loc(*line, word), label.clone()));
            }
        }
        for other in self.causes.iter_mut().chain(&mut self.parts) {
            other.resolve_file_locations(sources, show);
        }
    }

    /// The complete message; `location` renders a location.
    pub fn message(&self, location: &dyn Fn(Loc) -> String) -> String {
        let mut out = String::new();
        self.write(0, &mut out, location);
        out
    }

    fn write(&self, level: usize, out: &mut String, location: &dyn Fn(Loc) -> String) {
        let indent = "  ".repeat(level);
        out.push_str(&indent);
        out.push_str(&self.text);
        if let Some((original, duplicate)) = self.duplicate_locations {
            out.push_str(&format!(
                " (original at ({})) (duplicate at ({}))",
                location(original),
                location(duplicate)
            ));
        } else if !self.bare && !self.hide_location {
            match (&self.statement, self.loc) {
                (Some(statement), Some(loc)) => {
                    out.push_str(&format!(" (reported in {statement} ({}))", location(loc)));
                }
                (Some(statement), None) => out.push_str(&format!(" (reported in {statement})")),
                (None, Some(loc)) => out.push_str(&format!(" ({})", location(loc))),
                (None, None) => {}
            }
        }
        for (number, part) in self.parts.iter().enumerate() {
            out.push_str(&format!("\n{indent}error {number}:\n"));
            part.write(level + 1, out, location);
        }
        for cause in &self.causes {
            out.push_str(&format!("\n{indent}caused by:\n"));
            cause.write(level + 1, out, location);
        }
    }
}

/// The byte range of a word on a line, counted from 1; the whole line if it is absent.
fn word_on_line(text: &str, line: usize, word: &str) -> std::ops::Range<usize> {
    let before = text.split_inclusive('\n').take(line.saturating_sub(1));
    let start: usize = before.map(str::len).sum();
    let line = text[start..].lines().next().unwrap_or_default();
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let found = line.match_indices(word).find(|(at, _)| {
        let (before, after) = (&line[..*at], &line[at + word.len()..]);
        !before.ends_with(is_part) && !after.starts_with(is_part)
    });
    match found {
        Some((at, _)) if !word.is_empty() => start + at..start + at + word.len(),
        _ => {
            let blanks = line.len() - line.trim_start().len();
            start + blanks..start + line.trim_end().len().max(blanks)
        }
    }
}

fn importance(class: &str) -> u32 {
    match class {
        "DataClassException" | "DataClassMismatchException" => 9,
        "CycleException"
        | "TypingException"
        | "IndexException"
        | "IndexAttributeMissingInConstructorException"
        | "IndexCollisionException" => 10,
        "DirectExecuteException" => 11,
        "TypeNotFoundException"
        | "MissingImportException"
        | "AmbiguousTypeException"
        | "NotFoundException" => 20,
        "DuplicateException" => 40,
        "ModifiedAfterFreezeException" => 50,
        "DoubleSetException" => 51,
        "ExternalException" => 60,
        "OptionalValueException" => 61,
        "KeyException" => 70,
        _ => 100,
    }
}
