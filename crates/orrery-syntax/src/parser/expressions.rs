//! Expressions. Each function returns the height of the parsed tree.

use super::{ARGUMENT, Expected, Marker, Parsed, Parser, VALUE};
use crate::error::{Explanation, Moment, Stage};
use crate::fields;
use crate::kind::SyntaxKind::{self, *};
use crate::strings::{decoded, string_content};

/// Kind of a name with its dots and subscripts.
pub(super) struct Operand {
    pub(super) height: u32,
    /// `x`, `ns::x` or `x.y`
    pub(super) assignable: bool,
}

/// Precedence of operators; all of them group to the left. `not` stands between.
const CONDITIONAL: u8 = 1;
const OR: u8 = 2;
const AND: u8 = 3;
const COMPARISON: u8 = 4;
const SUM: u8 = 5;
const PRODUCT: u8 = 6;
const POWER: u8 = 7;
const NOT: u8 = 8;
const MEMBERSHIP: u8 = 9;

fn binding_power(kind: SyntaxKind) -> Option<u8> {
    Some(match kind {
        Question => CONDITIONAL,
        OrKw => OR,
        AndKw => AND,
        EqualEqual | NotEqual | Less | LessEqual | Greater | GreaterEqual => COMPARISON,
        Plus | Minus => SUM,
        Star | Slash | Percent => PRODUCT,
        StarStar => POWER,
        NotKw => NOT,
        InKw => MEMBERSHIP,
        _ => return None,
    })
}

impl Parser<'_> {
    pub(super) fn expression(&mut self) -> Parsed<u32> {
        self.nested(|parser| parser.binding(0))
    }

    /// Parses an expression of operators that bind more tightly than `minimum`.
    fn binding(&mut self, minimum: u8) -> Parsed<u32> {
        let marker = self.start();
        let height = self.operand()?;
        self.operators(marker, height, minimum)
    }

    /// The operators after an operand that began at `marker`.
    pub(super) fn operators(
        &mut self,
        marker: Marker,
        mut height: u32,
        minimum: u8,
    ) -> Parsed<u32> {
        while let Some(power) = binding_power(self.current)
            && power > minimum
        {
            let right = match self.current {
                Question => {
                    height = self.conditional(marker, height)?;
                    continue;
                }
                // After an operand `not` can only be the start of `not in`.
                NotKw => {
                    self.bump();
                    self.expect(InKw)?;
                    self.binding(MEMBERSHIP)?
                }
                _ => {
                    self.bump();
                    self.binding(power)?
                }
            };
            height = self.above(height.max(right))?;
            self.finish(marker, BinaryExpr);
        }
        Ok(height)
    }

    fn conditional(&mut self, marker: Marker, condition: u32) -> Parsed<u32> {
        self.bump();
        let then = self.expression()?;
        self.expect(Colon)?;
        let otherwise = self.expression()?;
        let height = self.above(condition.max(then).max(otherwise))?;
        self.finish(marker, ConditionalExpr);
        Ok(height)
    }

    fn operand(&mut self) -> Parsed<u32> {
        match self.current {
            Id | ClassId => {
                let marker = self.start();
                let is_class = self.path()?;
                Ok(self.named_operand(marker, is_class)?.height)
            }
            NotKw => self.nested(|parser| {
                let marker = parser.start();
                parser.bump();
                let inner = parser.binding(NOT)?;
                // `not a not in b` could be read in two ways, and is neither.
                if parser.at(NotKw) {
                    return Err(parser.unexpected(Expected::What("an operator")));
                }
                let height = parser.above(inner)?;
                parser.finish(marker, NotExpr);
                Ok(height)
            }),
            LParen => {
                let marker = self.start();
                self.bump();
                let height = self.expression()?;
                self.close(RParen, marker.first, "")?;
                self.finish(marker, ParenExpr);
                Ok(height)
            }
            LBracket => self.list(),
            LBrace => self.dict(),
            _ if self.at_literal() => {
                let marker = self.start();
                self.bump();
                self.finish(marker, Literal);
                Ok(1)
            }
            _ => Err(self.unexpected(Expected::What(VALUE))),
        }
    }

    pub(super) fn at_literal(&self) -> bool {
        matches!(
            self.current,
            Int | Float
                | String
                | RawString
                | FormatString
                | MultiLineString
                | Regex
                | OpenString
                | TrueKw
                | FalseKw
                | NullKw
        )
    }

    /// Parses `a::b` or `a::B`; returns true if it names a class.
    pub(super) fn path(&mut self) -> Parsed<bool> {
        let marker = self.start();
        loop {
            if self.eat(ClassId) {
                self.finish(marker, Path);
                return Ok(true);
            }
            self.expect(Id)?;
            if !self.eat(PathSep) {
                self.finish(marker, Path);
                return Ok(false);
            }
        }
    }

    /// Parses the continuation of a path that began at `marker`: a call, a constructor, dots,
    /// subscripts.
    pub(super) fn named_operand(&mut self, marker: Marker, is_class: bool) -> Parsed<Operand> {
        let (height, kind) = match (is_class, self.current) {
            (true, LParen) => (self.keyword_args(RParen)?, ConstructExpr),
            (true, LBracket) => (self.keyword_args(RBracket)?, IndexLookupExpr),
            (true, _) => return Err(self.unexpected(Expected::AfterClass)),
            (false, LParen) => (self.call_args()?, CallExpr),
            (false, _) => return self.reference(marker),
        };
        let height = self.above(height)?;
        self.finish(marker, kind);
        Ok(Operand { height, assignable: false })
    }

    /// The dots and subscripts after a variable.
    fn reference(&mut self, marker: Marker) -> Parsed<Operand> {
        // `ns::x is defined` does not exist.
        let qualified = self.nodes.last().is_some_and(|path| path.end - path.first > 1);
        self.finish(marker, VariableExpr);
        let mut height = 1;
        let mut last = VariableExpr;
        loop {
            match self.current {
                Dot if last != LookupExpr => {
                    self.attribute_access(marker)?;
                    height = self.above(height)?;
                    last = AttributeExpr;
                }
                LParen if last == AttributeExpr => return self.dotted_call(marker),
                LBracket if last == AttributeExpr && self.at_short_lookup() => {
                    // The relation's name belongs to the lookup: undo its attribute node.
                    self.nodes.pop();
                    let args = self.keyword_args(RBracket)?;
                    let height = self.above(height.max(args))?;
                    self.finish(marker, ShortIndexLookupExpr);
                    return Ok(Operand { height, assignable: false });
                }
                LBracket => {
                    let bracket = self.current_index();
                    self.bump();
                    let key = self.expression()?;
                    self.close(RBracket, bracket, "")?;
                    height = self.above(height.max(key))?;
                    self.finish(marker, LookupExpr);
                    last = LookupExpr;
                }
                IsKw if last != VariableExpr || !qualified => {
                    self.bump();
                    self.expect(DefinedKw)?;
                    // On a lookup this is short for three comparisons joined by `and`.
                    height = self.above(height + 3)?;
                    self.finish(marker, IsDefinedExpr);
                    return Ok(Operand { height, assignable: false });
                }
                _ => return Ok(Operand { height, assignable: last != LookupExpr }),
            }
        }
    }

    /// Parses `.name`. A class, or a call after the dots, means that `::` was intended.
    fn attribute_access(&mut self, marker: Marker) -> Parsed {
        self.bump();
        if self.eat(ClassId) {
            if !self.current.may_follow_class() {
                return Err(self.unexpected(Expected::AfterClass));
            }
            self.invalid_namespace_access(marker);
            return Err(super::Stop);
        }
        self.expect(Id)?;
        self.finish(marker, AttributeExpr);
        Ok(())
    }

    /// Reports the name from `marker` to the last token as one that should have been written with
    /// `::` for its dots.
    pub(super) fn invalid_namespace_access(&mut self, marker: Marker) {
        let fits = self.current.may_follow_class();
        let stage = if fits { Stage::Completing } else { Stage::Completed };
        self.namespace_error(marker.first, self.consumed_end, stage);
    }

    fn namespace_error(&mut self, first: u32, end: u32, stage: Stage) {
        let loc = self.loc_of(first, end);
        let written: std::string::String = (first..end)
            .filter(|index| !self.tokens[*index as usize].kind.is_trivia())
            .map(|index| self.token_text(index))
            .collect();
        let meant = written.replace('.', "::");
        let message = format!(
            "Syntax error: invalid namespace access `{written}`. Namespaces should be accessed with \
             '::' rather than '.'. The '.' separator is reserved for attribute and relation access. \
             Did you mean: `{meant}`"
        );
        self.push_error(message, loc, (loc.start, loc.end), self.now(stage));
        let headline = "names in a module are written with `::`, not with a dot";
        let explanation = Explanation::new(headline).at(loc, "");
        if let Some(error) = self.errors.last_mut() {
            error.class = "InvalidNamespaceAccess";
            error.explanation = Some(Box::new(explanation.help(format!("write `{meant}`"))));
        }
    }

    /// A call on a name with dots: `std.print(x)`.
    fn dotted_call(&mut self, marker: Marker) -> Parsed<Operand> {
        let name_end = self.consumed_end;
        let height = self.call_args()?;
        let fits = self.current.may_follow_expression();
        let stage = if fits { Stage::Completing } else { Stage::Completed };
        self.namespace_error(marker.first, name_end, stage);
        self.finish(marker, CallExpr);
        Ok(Operand { height: self.above(height)?, assignable: false })
    }

    /// Returns true if the bracket opens `[name=value]` or `[**dict]` rather than a subscript.
    fn at_short_lookup(&self) -> bool {
        self.nth(1) == StarStar || (self.nth(1) == Id && self.nth(2) == Equal)
    }

    /// `name=value` and `**dict`, up to and with `close`. An empty list is fine.
    pub(super) fn keyword_args(&mut self, close: SyntaxKind) -> Parsed<u32> {
        self.args(close, false)
    }

    fn call_args(&mut self) -> Parsed<u32> {
        self.args(RParen, true)
    }

    fn args(&mut self, close: SyntaxKind, positional: bool) -> Parsed<u32> {
        let marker = self.start();
        self.bump();
        let mut height = 0;
        while !self.at(close) {
            let arg = self.start();
            let kind = match self.current {
                StarStar => {
                    self.bump();
                    SpreadArg
                }
                Id if self.nth(1) == Equal || !positional => {
                    self.bump();
                    self.expect(Equal)?;
                    KeywordArg
                }
                _ if positional => PositionalArg,
                _ if self.at_end() || self.starts_line(self.current_index()) => {
                    let (open, part) = (marker.first, ARGUMENT);
                    return Err(self.unexpected(Expected::Close { open, close, part }));
                }
                _ => return Err(self.unexpected(Expected::What(ARGUMENT))),
            };
            height = height.max(self.expression()?);
            self.finish(arg, kind);
            if !self.eat_comma() {
                break;
            }
        }
        self.close(close, marker.first, "`,`")?;
        self.finish(marker, Args);
        Ok(height)
    }

    /// A list or a list comprehension.
    fn list(&mut self) -> Parsed<u32> {
        let marker = self.start();
        self.bump();
        let mut height = 0;
        let mut first = true;
        while !self.at(RBracket) {
            height = height.max(self.expression()?);
            if first && self.at(ForKw) {
                return self.comprehension(marker, height);
            }
            first = false;
            if !self.eat_comma() {
                break;
            }
        }
        self.close(RBracket, marker.first, "`,`")?;
        let height = self.above(height)?;
        self.finish(marker, ListExpr);
        Ok(height)
    }

    fn comprehension(&mut self, marker: Marker, mut height: u32) -> Parsed<u32> {
        let mut levels = 0;
        while self.at(ForKw) {
            let level = self.start();
            self.bump();
            self.expect(Id)?;
            self.expect(InKw)?;
            height = height.max(self.expression()?);
            self.finish(level, ComprehensionFor);
            levels += 1;
        }
        while self.at(IfKw) {
            let guard = self.start();
            self.bump();
            height = height.max(self.expression()?);
            self.finish(guard, ComprehensionIf);
            levels += 1;
        }
        self.close(RBracket, marker.first, "")?;
        let height = self.above(height + levels - 1)?;
        self.finish(marker, ComprehensionExpr);
        Ok(height)
    }

    /// Reports references in a key, where they have no meaning.
    fn check_key(&mut self) {
        let key = self.current_index();
        let text = self.token_text(key);
        if !text.contains("{{") {
            return;
        }
        let Ok((value, _)) = decoded(String, string_content(String, text)) else {
            return;
        };
        if !fields::interpolations(&value).is_empty() {
            let message = "Syntax error: String interpolation is not supported in dictionary keys. \
                           Use raw string to use a key containing double curly brackets";
            let (start, end) = self.token_bytes(key);
            // Known as soon as the key has been read.
            let moment = Moment { known_at: start, stage: Stage::Completed };
            self.push_error(message.to_owned(), self.loc(start, end), (start, end), moment);
        }
    }

    pub(super) fn dict(&mut self) -> Parsed<u32> {
        let marker = self.start();
        self.bump();
        let mut height = 0;
        while !self.at(RBrace) {
            let entry = self.start();
            match self.current {
                String => self.check_key(),
                RawString | OpenString => {}
                _ if self.at_end() => {
                    let (open, close, part) = (marker.first, RBrace, "a key");
                    return Err(self.unexpected(Expected::Close { open, close, part }));
                }
                _ => return Err(self.unexpected(Expected::What("a key: a string in quotes"))),
            }
            self.bump();
            self.expect(Colon)?;
            height = height.max(self.expression()?);
            self.finish(entry, DictEntry);
            if !self.eat_comma() {
                break;
            }
        }
        self.close(RBrace, marker.first, "`,`")?;
        let height = self.above(height)?;
        self.finish(marker, DictExpr);
        Ok(height)
    }
}
