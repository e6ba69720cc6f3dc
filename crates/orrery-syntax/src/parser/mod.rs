//! The parser: recursive descent for statements and precedence climbing for expressions, over the
//! tokens that are not trivia.
//!
//! Newlines mean nothing, so a statement continues for as long as the next token can continue it. A
//! token that fits nowhere is reported, and the parser skips to the probable start of the next
//! statement or definition. Nodes are recorded when they are finished, children before parents: a
//! construct that fails midway leaves its finished parts to the `Error` node around it.
//!
//! Every construct that nests goes through [`Parser::nested`], which bounds the recursion, and
//! every expression knows its height, so that no tree is too deep for recursive readers.

mod explain;
mod expressions;
mod items;
mod statements;

use crate::ast::{FileId, Loc};
use crate::error::{ERRORS_MAX, Moment, Stage, SyntaxError};
use crate::kind::SyntaxKind;
use crate::lexer::SyntaxToken;
use crate::tree::Node;

pub(crate) use explain::Expected;
use explain::OpenBlock;

/// Maximum nesting of brackets, blocks, `not`, `? :` and `elif`.
pub(crate) const NESTING_MAX: u32 = 500;
/// Maximum depth of an expression; `a + b + c` has three levels.
pub(crate) const EXPRESSION_HEIGHT_MAX: u32 = 500;

/// Descriptions of expected constructs.
const VALUE: &str = "a value";
const ARGUMENT: &str = "`NAME=VALUE`";
const CARDINALITY: &str = "a number of instances, such as `[0:]`";

/// A construct could not be finished. The error is recorded already.
#[derive(Debug)]
pub(crate) struct Stop;

pub(crate) type Parsed<T = ()> = Result<T, Stop>;

/// Start of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marker {
    first: u32,
    nodes_before: u32,
}

pub(crate) struct Parser<'t> {
    file: FileId,
    text: &'t str,
    tokens: &'t [SyntaxToken],
    /// Indices of the tokens that are not trivia.
    significant: Vec<u32>,
    /// Place in `significant` of the current token.
    pos: usize,
    current: SyntaxKind,
    /// One after the last token consumed.
    consumed_end: u32,
    nodes: Vec<Node>,
    errors: Vec<SyntaxError>,
    depth: u32,
    /// Set when nesting exceeds the limit: nothing after that token is parsed.
    too_deep: bool,
    /// The last `null` that was the default of a dict.
    null_of_dict: Option<u32>,
    /// Last reported token: consequences of the same mistake name no other.
    reported: Option<u32>,
    /// The first token of the innermost statement or definition.
    statement: u32,
    /// The blocks around the current token.
    open: Vec<OpenBlock>,
    /// Keyword of the first block with an `end` that is indented less than the block.
    doubtful: Option<u32>,
    /// First token of a line that begins a block by a word that is not a keyword: errors in the
    /// block are consequences of that mistake.
    foreign_block: Option<u32>,
}

/// Progress in the header of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    /// All of it, but for the colon perhaps.
    Complete,
    Broken,
}

impl Header {
    /// Of two headers of one construct.
    fn and(self, other: Header) -> Header {
        if other == Header::Broken { other } else { self }
    }

    /// The node that holds header and block.
    fn node(self, kind: SyntaxKind) -> SyntaxKind {
        match self {
            Header::Complete => kind,
            Header::Broken => SyntaxKind::Error,
        }
    }
}

pub(crate) struct ParserOutput {
    pub(crate) postorder: Vec<Node>,
    pub(crate) errors: Vec<SyntaxError>,
}

/// Parses the tokens of `text` as a file.
pub(crate) fn parse_tokens(text: &str, tokens: &[SyntaxToken], file: FileId) -> ParserOutput {
    let mut significant = Vec::with_capacity(tokens.len() * 2 / 3);
    for (index, token) in tokens.iter().enumerate() {
        if !token.kind.is_trivia() {
            significant.push(index as u32);
        }
    }
    let mut parser = Parser {
        file,
        text,
        tokens,
        nodes: Vec::with_capacity(significant.len()),
        significant,
        pos: 0,
        current: SyntaxKind::EndOfFile,
        consumed_end: 0,
        errors: Vec::new(),
        depth: 0,
        too_deep: false,
        null_of_dict: None,
        reported: None,
        statement: 0,
        open: Vec::new(),
        doubtful: None,
        foreign_block: None,
    };
    parser.current = parser.nth(0);
    parser.file();
    ParserOutput { postorder: parser.nodes, errors: parser.errors }
}

impl Parser<'_> {
    fn nth(&self, n: usize) -> SyntaxKind {
        match self.significant.get(self.pos + n) {
            Some(&index) => self.tokens[index as usize].kind,
            None => SyntaxKind::EndOfFile,
        }
    }

    fn at(&self, kind: SyntaxKind) -> bool {
        self.current == kind
    }

    fn at_end(&self) -> bool {
        self.current == SyntaxKind::EndOfFile
    }

    /// Index of the current token in `tokens`, or their number at the end.
    fn current_index(&self) -> u32 {
        self.significant.get(self.pos).copied().unwrap_or(self.tokens.len() as u32)
    }

    fn bump(&mut self) {
        if let Some(&index) = self.significant.get(self.pos) {
            self.consumed_end = index + 1;
            self.pos += 1;
            self.current = self.nth(0);
        }
    }

    fn eat(&mut self, kind: SyntaxKind) -> bool {
        let found = self.at(kind);
        if found {
            self.bump();
        }
        found
    }

    fn expect(&mut self, kind: SyntaxKind) -> Parsed {
        // The rest of the line, which a string without an end has swallowed, may have what closes.
        let closes = matches!(
            kind,
            SyntaxKind::RParen | SyntaxKind::RBracket | SyntaxKind::RBrace | SyntaxKind::Colon
        );
        let given = self.eat(kind) || closes && self.after_open_string();
        if given { Ok(()) } else { Err(self.unexpected(Expected::Token(kind))) }
    }

    /// Parses the bracket that closes the one at token `open`; another `part` could precede it.
    fn close(&mut self, close: SyntaxKind, open: u32, part: &'static str) -> Parsed {
        if self.eat(close) || self.after_open_string() {
            return Ok(());
        }
        Err(self.unexpected(Expected::Close { open, close, part }))
    }

    /// Parses the content of a block; its keyword is the first token of `marker`.
    fn in_block(&mut self, marker: Marker, parse: impl FnOnce(&mut Self) -> Parsed) -> Parsed {
        self.open.push(OpenBlock { keyword: marker.first });
        let parsed = parse(self);
        self.open.pop();
        parsed
    }

    /// Takes the `end` of a block, and notes one that was probably meant for another block.
    fn eat_end(&mut self) -> bool {
        if self.at(SyntaxKind::EndKw)
            && self.doubtful.is_none()
            && let Some(block) = self.open.last()
            && self.starts_line(self.current_index())
            && self.starts_line(block.keyword)
            && self.indentation(self.current_index()) < self.indentation(block.keyword)
        {
            self.doubtful = Some(block.keyword);
        }
        self.eat(SyntaxKind::EndKw)
    }

    fn after_open_string(&self) -> bool {
        let previous = self.pos.checked_sub(1).and_then(|at| self.significant.get(at));
        previous.is_some_and(|&index| self.tokens[index as usize].kind == SyntaxKind::OpenString)
    }

    /// The comma between the parts of a list. One that a string without an end has swallowed is
    /// taken as read where the next line is still part of the statement.
    fn eat_comma(&mut self) -> bool {
        self.eat(SyntaxKind::Comma) || self.after_open_string() && self.is_indented(self.statement)
    }

    /// Parses the header of a block, with its colon. After a mistake in it the block is still read
    /// as such, if the line continues to a colon or the next line is indented.
    fn header(
        &mut self,
        marker: Marker,
        parse: impl FnOnce(&mut Self) -> Parsed,
    ) -> Parsed<Header> {
        let mut header = Header::Complete;
        if parse(self).is_err() {
            header = Header::Broken;
        } else if self.eat(SyntaxKind::Colon) || self.after_open_string() {
            return Ok(header);
        } else {
            self.unexpected(Expected::Colon { header: marker.first });
        }
        while !self.at_end() && !self.starts_line(self.current_index()) {
            header = Header::Broken;
            let colon = self.at(SyntaxKind::Colon);
            self.bump();
            if colon {
                return Ok(header);
            }
        }
        let closes =
            matches!(self.current, SyntaxKind::EndKw | SyntaxKind::ElifKw | SyntaxKind::ElseKw);
        let goes_on = !self.at_end() && (closes || self.is_indented(marker.first));
        if goes_on { Ok(header) } else { Err(Stop) }
    }

    fn start(&self) -> Marker {
        Marker { first: self.current_index(), nodes_before: self.nodes.len() as u32 }
    }

    /// Records a node from `marker` to the last token consumed. Calling it again with the same
    /// marker wraps that node in another.
    fn finish(&mut self, marker: Marker, kind: SyntaxKind) {
        // A node without tokens is positioned right after the last consumed token.
        self.nodes.push(Node {
            kind,
            first: marker.first.min(self.consumed_end),
            end: self.consumed_end,
            size: self.nodes.len() as u32 - marker.nodes_before + 1,
        });
    }

    /// Runs `parse` one level deeper, unless that is too deep.
    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth >= NESTING_MAX {
            return Err(self.nested_too_deeply());
        }
        self.depth += 1;
        let result = parse(self);
        self.depth -= 1;
        result
    }

    /// The height of an expression one level above parts of height `below`.
    fn above(&mut self, below: u32) -> Parsed<u32> {
        if below >= EXPRESSION_HEIGHT_MAX {
            return Err(self.nested_too_deeply());
        }
        Ok(below + 1)
    }

    fn token_bytes(&self, index: u32) -> (u32, u32) {
        let end = self.text.len() as u32;
        let start_of = |i: u32| self.tokens.get(i as usize).map_or(end, |token| token.start);
        (start_of(index), start_of(index + 1))
    }

    fn loc(&self, start: u32, end: u32) -> Loc {
        Loc { file: self.file, start, end, column: true }
    }

    /// Returns the location from the start of token `first` to the end of the one before `end`.
    fn loc_of(&self, first: u32, end: u32) -> Loc {
        self.loc(self.token_bytes(first).0, self.token_bytes(end.saturating_sub(1)).1)
    }

    fn token_text(&self, index: u32) -> &str {
        let (start, end) = self.token_bytes(index);
        &self.text[start as usize..end as usize]
    }

    fn push_error(&mut self, message: String, loc: Loc, highlight: (u32, u32), moment: Moment) {
        if self.errors.len() >= ERRORS_MAX {
            return;
        }
        self.errors.push(SyntaxError {
            class: "ParserException",
            message,
            loc,
            highlight: highlight.0..highlight.1,
            reported_in: None,
            duplicate_of: None,
            help: None,
            explanation: None,
            moment,
        });
    }

    /// Reports the current token as one that does not fit.
    #[cold]
    fn unexpected(&mut self, expected: Expected) -> Stop {
        let known = self.reported == Some(self.current_index());
        if self.too_deep || known || self.at(SyntaxKind::OpenString) || self.after_open_string() {
            return Stop;
        }
        if self.after_illegal() {
            // The lexer has reported the text before it.
            self.reported = Some(self.current_index());
            return Stop;
        }
        self.reported = Some(self.current_index());
        // A file of a million mistakes is not explained a million times.
        let explanation =
            (self.errors.len() < ERRORS_MAX).then(|| Box::new(self.explain(expected)));
        self.foreign_block = self.foreign_header();
        let moment = self.now(Stage::Token);
        let index = self.current_index();
        let (start, end) = self.token_bytes(index);
        if self.at_end() {
            let message = "Syntax error: Unexpected end of file".to_owned();
            let beyond = self.loc(end + 1, end + 1);
            self.push_error(message, beyond, (end, end), moment);
        } else if let Some(keyword) = self.misused_keyword() {
            let text = self.token_text(keyword);
            let message = format!("Syntax error: invalid identifier, {text} is a reserved keyword");
            let (start, end) = self.token_bytes(keyword);
            self.push_error(message, self.loc(start, end), (start, end), moment);
        } else {
            let value = crate::strings::token_value(self.current, self.token_text(index));
            let message = format!("Syntax error at token {value}");
            self.push_error(message, self.loc(end, end), (start, end), moment);
        }
        if let Some(error) = self.errors.last_mut() {
            error.explanation = explanation;
        }
        Stop
    }

    /// Returns true if the lexer has reported a character between the last token and the current
    /// one.
    fn after_illegal(&self) -> bool {
        let previous = self.pos.checked_sub(1).and_then(|at| self.significant.get(at));
        let between = previous.map_or(0, |&at| at + 1)..self.current_index();
        between.into_iter().any(|at| self.tokens[at as usize].kind == SyntaxKind::Illegal)
    }

    /// Replaces the explanation of the last error, once the expected construct is known.
    fn explain_last(&mut self, expected: Expected) {
        let explanation = self.explain(expected);
        if let Some(error) = self.errors.last_mut() {
            error.explanation = Some(Box::new(explanation));
        }
    }

    /// The keyword that was probably meant as a name where the current token does not fit: that
    /// token, or the one before it unless it has become part of something complete.
    fn misused_keyword(&self) -> Option<u32> {
        if self.current.is_keyword() {
            return Some(self.current_index());
        }
        let previous = *self.significant.get(self.pos.checked_sub(1)?)?;
        match self.tokens[previous as usize].kind {
            SyntaxKind::NullKw if self.null_of_dict == Some(previous) => Some(previous),
            SyntaxKind::TrueKw
            | SyntaxKind::FalseKw
            | SyntaxKind::NullKw
            | SyntaxKind::DefinedKw => (!self.current.may_follow_expression()).then_some(previous),
            kind => kind.is_keyword().then_some(previous),
        }
    }

    /// The moment at which the current token has just been read.
    fn now(&self, stage: Stage) -> Moment {
        let known_at = match self.at_end() {
            true => self.text.len() as u32 + 1,
            false => self.token_bytes(self.current_index()).0,
        };
        Moment { known_at, stage }
    }

    /// Reports `message` about the bytes from `start` to `end`, as noticed when a construct before
    /// the current token is complete.
    #[cold]
    fn error_at(&mut self, message: impl Into<String>, (start, end): (u32, u32)) {
        let moment = self.now(Stage::Completed);
        self.push_error(message.into(), self.loc(start, end), (start, end), moment);
    }

    #[cold]
    fn nested_too_deeply(&mut self) -> Stop {
        if !self.too_deep {
            let (start, end) = self.token_bytes(self.current_index());
            let message = "Syntax error: this is nested too deeply".to_owned();
            let moment = self.now(Stage::Token);
            self.push_error(message, self.loc(start, end), (start, end), moment);
            if let Some(error) = self.errors.last_mut() {
                error.help = Some("give inner parts a name of their own".to_owned());
            }
            self.too_deep = true;
        }
        // Skip everything that is left, so that every caller stops.
        self.pos = self.significant.len();
        self.consumed_end = self.tokens.len() as u32;
        self.current = SyntaxKind::EndOfFile;
        Stop
    }

    fn starts_line(&self, index: u32) -> bool {
        let (start, _) = self.token_bytes(index);
        let before = &self.text.as_bytes()[..start as usize];
        let mut blanks = before.iter().rev().skip_while(|b| matches!(b, b' ' | b'\t'));
        blanks.next().is_none_or(|b| matches!(b, b'\n' | b'\r'))
    }

    /// Returns the indentation of a token's line.
    fn indentation(&self, index: u32) -> usize {
        let before = &self.text.as_bytes()[..self.token_bytes(index).0 as usize];
        let line = before.iter().rposition(|b| matches!(b, b'\n' | b'\r')).map_or(0, |at| at + 1);
        let blanks = self.text.as_bytes()[line..].iter();
        blanks.take_while(|b| matches!(b, b' ' | b'\t')).count()
    }

    /// Returns true if the current token's line is indented deeper than that of another.
    fn is_indented(&self, than: u32) -> bool {
        !self.at_end() && self.indentation(self.current_index()) > self.indentation(than)
    }

    /// Skips to a token at which a statement or definition may begin, or at which a block ends.
    /// At least one token is skipped if none has been consumed since `marker`.
    ///
    /// A line inside of brackets begins no statement, unless its indentation is outside of the
    /// brackets: then they are probably unclosed.
    fn recover(&mut self, marker: Marker) {
        if let Some(first) = self.foreign_block.take() {
            while !self.at_end()
                && (!self.starts_line(self.current_index()) || self.is_indented(first))
            {
                self.bump();
            }
            self.eat(SyntaxKind::EndKw);
            self.finish(marker, SyntaxKind::Error);
            return;
        }
        let skipped = marker.first..self.current_index();
        let change = |depth: usize, kind| match kind {
            SyntaxKind::LParen | SyntaxKind::LBracket | SyntaxKind::LBrace => depth + 1,
            SyntaxKind::RParen | SyntaxKind::RBracket | SyntaxKind::RBrace => {
                depth.saturating_sub(1)
            }
            _ => depth,
        };
        let mut depth = skipped.fold(0, |depth, at| change(depth, self.tokens[at as usize].kind));
        if self.consumed_end <= marker.first {
            depth = change(depth, self.current);
            self.bump();
        }
        while !self.at_end() {
            let outside = |parser: &Self| {
                parser.starts_line(parser.current_index()) && !parser.is_indented(marker.first)
            };
            if self.at_recovery_point() && (depth == 0 || outside(self)) {
                break;
            }
            depth = change(depth, self.current);
            self.bump();
        }
        self.finish(marker, SyntaxKind::Error);
    }

    /// Reports a definition that begins where a block should have ended; by its indentation it is
    /// not meant as part of the block.
    fn at_next_definition(&mut self, block_of: Marker) -> bool {
        let found = self.at_definition() && !self.is_indented(block_of.first);
        if found {
            self.unexpected(Expected::End);
        }
        found
    }

    fn at_recovery_point(&self) -> bool {
        use SyntaxKind::*;
        match self.current {
            EndKw | ElifKw | ElseKw => true,
            kind if self.at_definition() => kind != IndexKw || self.nth(1) != Equal,
            Id | ClassId | ForKw | IfKw => self.starts_line(self.current_index()),
            _ => false,
        }
    }

    /// Returns true if the current token is a keyword that opens a definition, at the start of a
    /// line.
    fn at_definition(&self) -> bool {
        use SyntaxKind::*;
        let definition = matches!(
            self.current,
            EntityKw | ImplementationKw | ImplementKw | TypedefKw | IndexKw | ImportKw
        );
        definition && self.starts_line(self.current_index())
    }
}
