//! User-facing errors and warnings: a stable id that has a page in `docs/diagnostics`, source
//! locations, notes and help. Terminals and editors show these; programs that expect the reference
//! compiler's output use `report`.

use std::ops::Range;

use orrery_syntax::ast::{FileId, Loc};
use orrery_syntax::{Explanation, SyntaxError};

use crate::error::CompileError;
use crate::{Compilation, CompileWarning};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Error,
    Warning,
    /// Part of another diagnostic: its cause.
    Note,
}

/// A source location with a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLabel {
    pub loc: Loc,
    /// The bytes to underline, if they differ from `loc`.
    pub highlight: Option<Range<u32>>,
    pub label: String,
}

impl SourceLabel {
    fn new(loc: Loc, label: impl Into<String>) -> Self {
        SourceLabel { loc, highlight: None, label: label.into() }
    }

    pub fn file(&self) -> FileId {
        self.loc.file
    }

    pub fn underlined(&self) -> Range<u32> {
        self.highlight.clone().unwrap_or(self.loc.start..self.loc.end)
    }
}

/// One problem, ready to display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    pub severity: Severity,
    /// Diagnostic id; its page is `docs/diagnostics/ID.md`.
    pub id: Option<&'static str>,
    /// One line.
    pub message: String,
    /// Remaining lines of the message.
    pub details: Vec<String>,
    /// Further independent sentences.
    pub notes: Vec<String>,
    pub primary: Option<SourceLabel>,
    /// "first set here"
    pub related: Vec<SourceLabel>,
    /// The causes, nearest first.
    pub causes: Vec<Diagnostic>,
    pub help: Option<String>,
}

impl Diagnostic {
    fn new(severity: Severity, class: &str, text: &str) -> Self {
        let mut lines = text.trim_end().lines();
        let message = lines.next().unwrap_or_default().trim();
        // An exception without a message is identified by its class alone.
        let message = if message.is_empty() { class } else { message };
        // Some messages of the reference compiler end with advice.
        let (advice, details): (Vec<&str>, Vec<&str>) =
            lines.partition(|line| line.starts_with("Try "));
        Diagnostic {
            severity,
            id: diagnostic_id(class, text),
            message: message.strip_suffix(':').unwrap_or(message).to_owned(),
            details: details.into_iter().map(|line| line.replace('\t', "  ")).collect(),
            notes: Vec::new(),
            primary: None,
            related: Vec::new(),
            causes: Vec::new(),
            help: (!advice.is_empty()).then(|| advice.join("\n")),
        }
    }

    /// The errors of a file. Duplicates found by two parser stages are merged.
    pub fn all_of(errors: &[SyntaxError]) -> Vec<Diagnostic> {
        let mut all: Vec<Diagnostic> = errors.iter().map(Diagnostic::from).collect();
        all.dedup();
        all
    }

    fn of_error(severity: Severity, error: &CompileError) -> Self {
        let mut this = Diagnostic::new(severity, error.class, &error.text);
        this.id = error.id.or(this.id);
        this.primary = error.loc.map(|loc| {
            let focus = error.focus.filter(|focus| focus.file == loc.file);
            SourceLabel {
                highlight: focus.map(|focus| focus.start..focus.end),
                ..SourceLabel::new(loc, "")
            }
        });
        if let Some(explanation) = &error.explanation {
            this.help = error.help.clone();
            return this.explained(explanation);
        }
        this.related =
            error.related.iter().map(|(loc, label)| SourceLabel::new(*loc, label)).collect();
        this.help = error.help.clone().or(this.help);
        this.causes =
            error.causes.iter().map(|cause| Self::of_error(Severity::Note, cause)).collect();
        for cause in &mut this.causes {
            // An error often repeats the related locations of its cause.
            cause.related.retain(|location| !this.related.contains(location));
            cause.help = cause.help.take().filter(|help| this.help.as_ref() != Some(help));
        }
        this
    }

    /// Replaces the texts with those of an explanation.
    fn explained(mut self, explanation: &Explanation) -> Self {
        self.message.clone_from(&explanation.headline);
        self.details.clear();
        self.notes.clone_from(&explanation.notes);
        if let Some((loc, label)) = &explanation.primary {
            self.primary = Some(SourceLabel::new(*loc, label));
        }
        let related = explanation.related.iter();
        self.related = related.map(|(loc, label)| SourceLabel::new(*loc, label)).collect();
        self.help = explanation.help.clone().or(self.help);
        self
    }
}

impl From<&CompileError> for Diagnostic {
    fn from(error: &CompileError) -> Self {
        Self::of_error(Severity::Error, error)
    }
}

impl From<&SyntaxError> for Diagnostic {
    fn from(error: &SyntaxError) -> Self {
        let mut this = Diagnostic::new(Severity::Error, error.class, &error.message);
        this.primary = Some(SourceLabel {
            loc: error.loc,
            highlight: Some(error.highlight.clone()),
            label: String::new(),
        });
        this.related.extend(error.duplicate_of.map(|loc| SourceLabel::new(loc, "first one here")));
        this.help = error.help.clone().or(this.help);
        match &error.explanation {
            Some(explanation) => {
                this.help = None;
                this.explained(explanation)
            }
            None => this,
        }
    }
}

impl From<&CompileWarning> for Diagnostic {
    fn from(warning: &CompileWarning) -> Self {
        let mut this = Diagnostic::new(Severity::Warning, warning.class, &warning.message);
        this.primary = warning.loc.map(|loc| SourceLabel::new(loc, ""));
        this
    }
}

impl Compilation {
    /// All errors, one by one: the syntax errors, or the parts of a combined error.
    pub fn errors(&self) -> Vec<Diagnostic> {
        match &self.outcome {
            Ok(_) => Vec::new(),
            Err(_) if !self.syntax_errors.is_empty() => Diagnostic::all_of(&self.syntax_errors),
            Err(error) if !error.parts.is_empty() => {
                let parts = error.parts.iter().filter(|part| !part.consequence);
                parts.map(Diagnostic::from).collect()
            }
            Err(error) => vec![Diagnostic::from(&**error)],
        }
    }
}

/// Class, start of the text (`*` matches anything) and the id; the first matching row wins.
#[rustfmt::skip]
const DIAGNOSTIC_IDS: &[(&str, &str, &str)] = &[
    ("ParserException", "Syntax error: this is nested too deeply", "nesting-too-deep"),
    ("NestingException", "", "nesting-too-deep"),
    ("ParserException", "", "syntax-error"),
    ("ValueError", "Exceeds the limit", "syntax-error"),
    ("InvalidNamespaceAccess", "", "invalid-namespace-access"),
    ("HyphenException", "", "hyphen-in-name"),
    ("ModuleLoadingException", "", "module-not-found"),
    ("ModuleNotFoundException", "", "module-not-found"),
    ("InvalidModuleException", "The module found at", "module-layout"),
    ("InvalidModuleException", "", "module-not-found"),
    ("FileNotFoundError", "", "module-not-found"),
    ("InvalidRequirement", "", "module-not-found"),
    ("ModuleV2InV1PathException", "", "module-layout"),
    ("ModuleMetadataFileNotFound", "", "module-layout"),
    ("InvalidMetadata", "", "invalid-metadata"),
    ("InvalidInventory", "", "invalid-inventory"),
    ("ProjectNotFound", "", "project-not-found"),
    ("UnreadableFile", "", "unreadable-file"),
    ("IsADirectoryError", "", "unreadable-file"),
    ("NotADirectoryError", "", "unreadable-file"),
    ("PermissionError", "", "unreadable-file"),
    ("OSError", "[Errno 40]", "unreadable-file"),
    ("UnicodeDecodeError", "", "unreadable-file"),
    ("CompilerException", "*is not a valid module name: hyphens", "hyphen-in-name"),
    ("CompilerException", "Unable to load all plug-ins", "plugin-load-failed"),

    ("TypeNotFoundException", "", "type-not-found"),
    ("MissingImportException", "", "missing-import"),
    ("AmbiguousTypeException", "", "ambiguous-type"),
    ("NotFoundException", "variable ", "variable-not-found"),
    ("NotFoundException", "Namespace ", "namespace-not-found"),
    ("NotFoundException", "could not find attribute", "attribute-not-found"),
    ("NotFoundException", "Attribute * referenced in index is not defined", "index-attribute-not-found"),
    ("NotFoundException", "No index defined on", "index-not-found"),
    ("NotFoundException", "No match in index", "index-match-not-found"),
    ("DuplicateException", "duplicate key in dict", "duplicate-dict-key"),
    ("DuplicateException", "Duplicate key in index", "duplicate-index-key"),
    ("DuplicateException", "Type found in index is not an exact match", "index-type-mismatch"),
    ("DuplicateException", "Incompatible attributes", "incompatible-attributes"),
    ("DuplicateException", "", "duplicate-definition"),
    ("CycleException", "", "inheritance-cycle"),
    ("TypingException", "same parent defined twice", "duplicate-parent"),
    ("RuntimeException", "* is not a constant", "not-a-constant"),
    ("TypingException", "typedef expressions should reference the self variable", "typedef-without-self"),
    ("NotFoundException", "Unable to resolve * a type constraint can not reference variables", "typedef-variable"),
    ("DirectExecuteException", "", "not-executable-here"),
    ("TypingException", "Type mismatch: cannot use", "implementation-mismatch"),
    ("AssertionError", "* is not an implementation", "implementation-mismatch"),
    ("RuntimeException", "Conditional implementation with parents", "conditional-parents"),
    ("DataClassException", "", "dataclass-mismatch"),
    ("DataClassMismatchException", "", "dataclass-mismatch"),
    ("DataClassException", "", "dataclass-mismatch"),
    ("ModuleNotFoundError", "No module named 'inmanta_plugins.", "dataclass-mismatch"),
    ("InvalidRelationPrecedenceRuleError", "", "invalid-precedence-rule"),
    ("CycleInRelationPrecedencePolicyError", "", "invalid-precedence-rule"),

    ("IndexException", "", "invalid-index"),
    ("IndexAttributeMissingInConstructorException", "", "missing-index-attribute"),
    ("IndexCollisionException", "", "index-collision"),
    ("TypingException", "short index lookup is only possible", "invalid-short-lookup"),
    ("RuntimeException", "Attribute * provided twice in index lookup", "attribute-set-twice"),
    ("TypingException", "Invalid value * in index for attribute *: references can not be used", "unexpected-reference"),

    ("AttributeException", "", "could-not-set-attribute"),
    ("RuntimeException", "Invalid value *, does not match constraint", "constraint-violated"),
    ("RuntimeException", "Invalid value *: the condition for", "condition-not-boolean"),
    ("RuntimeException", "Invalid value *expects a boolean", "condition-not-boolean"),
    ("RuntimeException", "Invalid left hand value", "condition-not-boolean"),
    ("RuntimeException", "Invalid right hand value", "condition-not-boolean"),
    ("RuntimeException", "Invalid value", "invalid-value"),
    ("RuntimeException", "Invalid type for value", "invalid-value"),
    ("RuntimeException", "Invalid class type for", "invalid-value"),
    ("DoubleSetException", "", "double-assignment"),
    ("TypingException", "no attribute * on type", "unknown-constructor-attribute"),
    ("RuntimeException", "The attribute * in the constructor call of", "attribute-set-twice"),
    ("RuntimeException", "The attribute * is set twice in the constructor call", "attribute-set-twice"),
    ("TypingException", "Can not assign a value of type", "constructor-type-mismatch"),
    ("TypingException", "Can only compare numbers", "operand-type"),
    ("TypingException", "Can only concatenate", "operand-type"),
    ("TypingException", "Unsupported operand type(s)", "operand-type"),
    ("TypingException", "Operand two of", "operand-type"),
    ("TypingException", "A for loop can only be applied to", "not-iterable"),
    ("TypingException", "A list comprehension can only be applied to", "not-iterable"),
    ("InvalidCompilerState", "", "partly-unknown-list"),
    ("RuntimeException", "can not get attribute", "not-an-instance"),
    ("TypingException", "The object at * is not an Entity", "not-an-instance"),
    ("TypingException", "dict lookup is only possible on dicts", "not-a-dictionary"),
    ("TypingException", "The ** operator can only be applied to dictionaries", "not-a-dictionary"),
    ("TypingException", "dict keys must be string", "not-a-dictionary"),
    ("KeyException", "", "key-not-found"),
    ("RuntimeException", "Failed to cast", "cast-failed"),
    ("RuntimeException", "Illegal arguments *type cast expects", "cast-failed"),
    ("RuntimeException", "Only positional arguments allowed in type cast", "cast-failed"),
    ("RuntimeException", "Can not call", "not-callable"),
    ("RuntimeException", "Invalid f-string", "format-error"),
    ("RuntimeException", "Invalid key in f-string", "format-error"),
    ("RuntimeException", "f-strings do not support", "format-error"),
    ("TypeError", "unsupported format string passed", "format-error"),
    ("ZeroDivisionError", "", "arithmetic-error"),
    ("OverflowError", "", "arithmetic-error"),
    ("UnexpectedReference", "", "unexpected-reference"),

    ("TypingException", "Can not use += on relations", "append-to-single-relation"),
    ("RuntimeException", "Exceeded relation arity", "arity-exceeded"),
    ("RuntimeException", "List over full", "arity-exceeded"),
    ("RuntimeException", "Trying to set relation attribute", "relation-set-to-null"),
    ("AttributeError", "'Unknown' object", "unknown-in-relation"),
    ("TypingException", "Relation annotation can not be Unknown", "unknown-in-relation"),
    ("OptionalValueException", "", "optional-without-value"),
    ("ModifiedAfterFreezeException", "", "modified-after-freeze"),
    ("RuntimeException", "Unable to select implementation", "no-implementation"),
    ("UnsetException", "", "not-complete"),
    ("RuntimeException", "not all statements executed", "statements-not-executed"),
    ("EndlessModel", "", "model-too-large"),
    ("MemoryError", "", "model-too-large"),
    ("MultiException", "", "several-errors"),

    ("RuntimeException", "*() missing ", "plugin-arguments"),
    ("RuntimeException", "*() takes ", "plugin-arguments"),
    ("RuntimeException", "*() got ", "plugin-arguments"),
    ("RuntimeException", "Keyword argument * repeated in function call", "plugin-arguments"),
    ("RuntimeException", "All arguments of plugin * should be annotated", "plugin-load-failed"),
    ("PluginTypeException", "", "plugin-type-mismatch"),
    ("ExternalException", "", "plugin-failed"),
    ("ExplicitPluginException", "", "plugin-failed"),
    ("WrappingRuntimeException", "", "plugin-failed"),
    ("PluginNotAvailable", "", "plugin-not-available"),
    ("TemplateNotSupported", "", "template-not-supported"),

    ("VariableShadowWarning", "", "variable-shadowed"),
    ("TypeDeprecationWarning", "", "deprecated-type"),
    ("PluginDeprecationWarning", "", "deprecated-plugin"),
    ("CompilerRuntimeWarning", "", "built-in-type-overridden"),
    ("DeprecationWarning", "invalid escape sequence", "invalid-escape"),
    ("DeprecationWarning", "invalid octal escape sequence", "invalid-escape"),
    ("InmantaWarning", "Loaded V1 module", "legacy-module"),
    ("ModuleDeprecationWarning", "", "deprecated-module"),
    ("ProjectConfigurationWarning", "", "setting-ignored"),
    ("", "The name in the module file", "module-name-mismatch"),
    ("", "Module * is installed as a V1 module and a V2 module", "module-in-both-layouts"),
];

/// The diagnostic id for an error class and message of the reference compiler.
pub fn diagnostic_id(class: &str, text: &str) -> Option<&'static str> {
    let row = DIAGNOSTIC_IDS.iter().find(|(of, pattern, _)| *of == class && begins(text, pattern));
    row.map(|(_, _, id)| *id)
}

fn begins(text: &str, pattern: &str) -> bool {
    // The only operator spelled with asterisks.
    let pattern = pattern.replace("**", "\0");
    let text = text.replace("**", "\0");
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    parts.all(|part| match rest.split_once(part) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_a_prefix_with_wildcards() {
        assert!(begins(
            "Invalid value 3, does not match constraint `x`",
            "Invalid value *, does not"
        ));
        assert!(begins("std::at() missing 1", "*() missing "));
        assert!(!begins("an Invalid value", "Invalid value"));
        assert!(!begins("Invalid value 3", "Invalid value *, does not"));
        assert!(begins("The ** operator", "The ** operator"));
        assert!(!begins("The + operator", "The ** operator"));
    }

    #[test]
    fn the_text_decides_where_the_class_is_ambiguous() {
        let id = |text| diagnostic_id("RuntimeException", text);
        assert_eq!(id("Invalid value 'x', expected int"), Some("invalid-value"));
        assert_eq!(
            id("Invalid value 0, does not match constraint `p`"),
            Some("constraint-violated")
        );
        assert_eq!(id("something else"), None);
    }

    #[test]
    fn the_first_line_is_the_message_and_the_rest_are_details() {
        let error = CompileError::new("DoubleSetException", "value set twice:\n\told value: 1\n");
        let shown = Diagnostic::from(&*error);
        assert_eq!(shown.message, "value set twice");
        assert_eq!(shown.details, ["  old value: 1"]);
        assert_eq!(shown.id, Some("double-assignment"));
    }
}
