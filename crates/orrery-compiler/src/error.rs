//! Errors of the compiler: what the reference calls them, its exact wording, the place and the causes;
//! and for people an explanation in our own words, which takes the place of the wording on a terminal.

use orrery_syntax::ast::Loc;
use orrery_syntax::{Explanation, SyntaxError};

use crate::plugins::FilePlace;
use crate::source::Sources;

/// A failure of the compile. `class` is the name that existing tools know the error by.
#[derive(Clone, Debug)]
pub struct CompileError {
    pub class: &'static str,
    /// Its diagnostic id, where class and text do not tell it.
    pub id: Option<&'static str>,
    /// The message without places.
    pub text: String,
    pub loc: Option<Loc>,
    /// What exactly is meant, where `loc` is the whole statement around it.
    pub focus: Option<Loc>,
    /// The statement in which it was found, rendered.
    pub statement: Option<String>,
    /// Place of that statement; `loc` may be another one.
    pub(crate) statement_loc: Option<Loc>,
    pub causes: Vec<CompileError>,
    /// Further places worth showing: "first set here".
    pub related: Vec<(Loc, String)>,
    pub help: Option<String>,
    /// The error for people: replaces text, place, causes and help wherever it is shown to them.
    pub explanation: Option<Box<Explanation>>,
    /// It follows from another error of the same list, which tells of it too: people are shown
    /// that one only.
    pub consequence: bool,
    /// The place that people are shown, where it is in a file that is no part of the model; it
    /// becomes part of the explanation once all files are known.
    pub file_place: Option<Box<FilePlace>>,
    /// Where several are reported together: `MultiException` shows its parts as a list.
    pub parts: Vec<CompileError>,
    /// Lower is reported first.
    pub importance: u32,
    /// The message never carries a place (what would be a raw Python exception).
    pub bare: bool,
    /// The place is known, but the message does not name it again.
    pub hide_place: bool,
    /// The place is all there is: no statement is named.
    pub final_place: bool,
    /// Replaces the usual "(place)" suffix: the reference's duplicate errors name two places themselves.
    pub places: Option<(Loc, Loc)>,
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
            file_place: None,
            parts: Vec::new(),
            importance: importance(class),
            bare: false,
            hide_place: false,
            final_place: false,
            places: None,
        })
    }

    /// One error out of several: a single one stands for itself, more are listed in this order.
    pub fn combine(mut errors: Vec<CompileError>) -> Option<Box<Self>> {
        if errors.len() < 2 {
            return errors.pop().map(Box::new);
        }
        let mut all = Self::new("MultiException", format!("Reported {} errors", errors.len()));
        all.parts = errors;
        Some(all)
    }

    /// What is a plain Python exception in the reference: no place is attached.
    pub fn python(error: orrery_python::PyError) -> Box<Self> {
        let mut this = Self::new(error.kind, error.message);
        this.bare = true;
        this
    }

    /// What one file alone shows to be wrong.
    pub fn syntax(error: &SyntaxError) -> Box<Self> {
        let mut this = Self::new(error.class, error.message.clone()).at(error.loc);
        this.help.clone_from(&error.help);
        this.explanation.clone_from(&error.explanation);
        this.statement.clone_from(&error.reported_in);
        this.places = error.duplicate_of.map(|original| (error.loc, original));
        // The reference has these from Python itself, without a place.
        this.hide_place = matches!(
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

    /// Names the statement unless a closer one was named already.
    #[must_use]
    pub fn or_in(mut self: Box<Self>, statement: impl FnOnce() -> String, loc: Loc) -> Box<Self> {
        if !self.final_place && self.class != "ParserException" && self.lacks_statement() {
            self.fill_statement(&statement(), loc);
        }
        if self.bare {
            // Messages do not name it, but people can be shown where it happened.
            self.loc.get_or_insert(loc);
        }
        self
    }

    /// Names another statement, whatever was named before. A place apart from the statement stays.
    #[must_use]
    pub fn replace_statement(mut self: Box<Self>, statement: &str, loc: Loc) -> Box<Self> {
        self.put_statement(statement, loc);
        self
    }

    fn put_statement(&mut self, statement: &str, loc: Loc) {
        if self.bare {
            return;
        }
        self.statement = Some(statement.to_owned());
        let previous = self.statement_loc.replace(loc);
        if self.loc.is_none() || self.loc == previous {
            self.loc = Some(loc);
        }
        for cause in &mut self.causes {
            cause.put_statement(statement, loc);
        }
    }

    /// Forgets where it happened: whoever reports it says.
    pub fn forget_places(&mut self) {
        self.statement = None;
        self.statement_loc = None;
        self.loc = None;
        self.causes.iter_mut().for_each(Self::forget_places);
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

    /// Tells it to people in other words.
    #[must_use]
    pub fn explained(mut self: Box<Self>, explanation: Explanation) -> Box<Self> {
        self.explanation = Some(Box::new(explanation));
        self
    }

    /// Adds the files of places outside of the model to the sources, and shows those places.
    pub(crate) fn resolve_file_places(
        &mut self,
        sources: &mut Sources,
        show: &dyn Fn(&str) -> String,
    ) {
        if let Some(place) = self.file_place.take()
            && let Some(explanation) = &mut self.explanation
        {
            let file = sources.add(show(&place.path), place.text.clone());
            if let Some((loc, label)) = explanation.primary.take() {
                explanation.related.push((loc, label));
            }
            let loc = |line: usize, word: &str| {
                let bytes = word_on_line(&place.text, line, word);
                Loc { file, start: bytes.start as u32, end: bytes.end as u32, column: true }
            };
            explanation.primary = Some((loc(place.line, &place.word), place.label.clone()));
            if let Some((line, word, label)) = &place.related {
                explanation.related.insert(0, (loc(*line, word), label.clone()));
            }
        }
        for other in self.causes.iter_mut().chain(&mut self.parts) {
            other.resolve_file_places(sources, show);
        }
    }

    /// The complete message; `place` renders a location.
    pub fn message(&self, place: &dyn Fn(Loc) -> String) -> String {
        let mut out = String::new();
        self.write(0, &mut out, place);
        out
    }

    fn write(&self, level: usize, out: &mut String, place: &dyn Fn(Loc) -> String) {
        let indent = "  ".repeat(level);
        out.push_str(&indent);
        out.push_str(&self.text);
        if let Some((original, duplicate)) = self.places {
            out.push_str(&format!(
                " (original at ({})) (duplicate at ({}))",
                place(original),
                place(duplicate)
            ));
        } else if !self.bare && !self.hide_place {
            match (&self.statement, self.loc) {
                (Some(statement), Some(loc)) => {
                    out.push_str(&format!(" (reported in {statement} ({}))", place(loc)));
                }
                (Some(statement), None) => out.push_str(&format!(" (reported in {statement})")),
                (None, Some(loc)) => out.push_str(&format!(" ({})", place(loc))),
                (None, None) => {}
            }
        }
        for (number, part) in self.parts.iter().enumerate() {
            out.push_str(&format!("\n{indent}error {number}:\n"));
            part.write(level + 1, out, place);
        }
        for cause in &self.causes {
            out.push_str(&format!("\n{indent}caused by:\n"));
            cause.write(level + 1, out, place);
        }
    }
}

/// The bytes of a word on a line, counted from 1; those of the whole line if it is not there.
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
