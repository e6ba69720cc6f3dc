//! From a parsed pattern to the syntax of the engines, for one kind of subject.
//!
//! Knowing the subject keeps the translation both exact and cheap: in a text of ASCII `\w` is four
//! ranges, and where no newline ends the text `$` is the end. What remains different from Python's
//! meaning is spelt out with look-around, which only the backtracking engine knows.

use super::ast::{Anchor, Case, Category, ClassItem, Greed, Node};
use super::case;
use std::collections::BTreeMap;

/// Known properties of the text to be matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Subject {
    pub(super) empty: bool,
    pub(super) ascii: bool,
    pub(super) newline_last: bool,
}

pub(super) struct Translated {
    pub(super) pattern: String,
    /// True if it needs a backtracking engine.
    pub(super) backtracks: bool,
}

pub(super) fn translate(node: &Node, subject: Subject) -> Translated {
    let captures = Captures::of(node);
    let mut translator = Translator { subject, out: String::new(), backtracks: false, captures };
    translator.node(node, Context::Alternative);
    Translated { pattern: translator.out, backtracks: translator.backtracks }
}

/// The groups that something refers to, by their numbers in the pattern, and their numbers in the
/// translation.
#[derive(Default)]
struct Captures {
    /// Groups with back-references.
    texts: BTreeMap<usize, usize>,
    /// Groups that a condition asks for. Each is followed by an empty group, which matches again
    /// just when the group took part: the engine's own conditionals break atomic groups around them.
    markers: BTreeMap<usize, usize>,
}

impl Captures {
    fn of(node: &Node) -> Captures {
        let mut captures = Captures::default();
        captures.collect(node);
        if !captures.texts.is_empty() || !captures.markers.is_empty() {
            captures.assign(node, &mut 0);
        }
        captures
    }

    fn collect(&mut self, node: &Node) {
        match node {
            Node::BackReference { group, .. } => {
                self.texts.insert(*group, 0);
            }
            Node::Conditional { group, .. } => {
                self.markers.insert(*group, 0);
            }
            _ => {}
        }
        node.children().for_each(|child| self.collect(child));
    }

    /// Numbers the groups in the order in which the translation opens them.
    fn assign(&mut self, node: &Node, last: &mut usize) {
        let group = match node {
            Node::Group { capture, .. } => *capture,
            _ => None,
        };
        if let Some(number) = group.and_then(|group| self.texts.get_mut(&group)) {
            *last += 1;
            *number = *last;
        }
        node.children().for_each(|child| self.assign(child, last));
        if let Some(number) = group.and_then(|group| self.markers.get_mut(&group)) {
            *last += 1;
            *number = *last;
        }
    }
}

/// Context of a node, which decides the need for parentheses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Context {
    Alternative,
    Sequence,
    Repeated,
}

struct Translator {
    subject: Subject,
    out: String,
    backtracks: bool,
    captures: Captures,
}

impl Translator {
    fn node(&mut self, node: &Node, context: Context) {
        match node {
            Node::Literal { character, case } => self.literal(*character, *case),
            Node::AnyCharacter { newline_too } => {
                self.out.push_str(if *newline_too { "(?s:.)" } else { "[^\\n]" });
            }
            Node::Class { negated, items, case } => self.class(*negated, items, *case),
            Node::Anchor(anchor) => self.anchor(*anchor, context),
            Node::Never => self.out.push_str(NEVER),
            Node::Sequence(nodes) => {
                self.wrapped(context > Context::Sequence, |translator| {
                    for node in nodes {
                        translator.node(node, Context::Sequence);
                    }
                });
            }
            Node::Alternatives(branches) => {
                self.wrapped(context > Context::Alternative, |translator| {
                    for (at, branch) in branches.iter().enumerate() {
                        if at > 0 {
                            translator.out.push('|');
                        }
                        translator.node(branch, Context::Sequence);
                    }
                });
            }
            Node::Group { capture, body } => self.group(*capture, body, context),
            Node::Look { behind, negated, body } => {
                self.backtracks = true;
                self.wrapped(context == Context::Repeated, |translator| {
                    translator.enclosed(
                        match (behind, negated) {
                            (false, false) => "(?=",
                            (false, true) => "(?!",
                            (true, false) => "(?<=",
                            (true, true) => "(?<!",
                        },
                        body,
                    );
                });
            }
            Node::Atomic(body) => {
                self.backtracks = true;
                self.enclosed("(?>", body);
            }
            Node::Conditional { group, yes, no } => self.conditional(*group, yes, no.as_deref()),
            Node::BackReference { group, case } => {
                self.backtracks = true;
                // The engine's own idea of case: Python's for ASCII, and for nearly all else.
                let flag = if *case == Case::Sensitive { "" } else { "i" };
                let number = self.captures.texts.get(group).copied().unwrap_or(0);
                self.out.push_str(&format!("(?{flag}:\\{number})"));
            }
            Node::Repeat { min, max, greed, body } => {
                self.wrapped(context == Context::Repeated, |translator| {
                    translator.repeat(*min, *max, *greed, body);
                });
            }
        }
    }

    fn wrapped(&mut self, parentheses: bool, write: impl FnOnce(&mut Self)) {
        if parentheses {
            self.out.push_str("(?:");
        }
        write(self);
        if parentheses {
            self.out.push(')');
        }
    }

    fn enclosed(&mut self, opening: &str, body: &Node) {
        self.out.push_str(opening);
        self.node(body, Context::Alternative);
        self.out.push(')');
    }

    fn group(&mut self, capture: Option<usize>, body: &Node, context: Context) {
        let is_in = |groups: &BTreeMap<usize, usize>| {
            capture.is_some_and(|group| groups.contains_key(&group))
        };
        let (text, marker) = (is_in(&self.captures.texts), is_in(&self.captures.markers));
        self.wrapped(marker, |translator| {
            if text {
                translator.enclosed("(", body);
            } else {
                translator.node(body, if marker { Context::Sequence } else { context });
            }
            if marker {
                translator.out.push_str("()");
            }
        });
    }

    fn conditional(&mut self, group: usize, yes: &Node, no: Option<&Node>) {
        self.backtracks = true;
        let marker = self.captures.markers.get(&group).copied().unwrap_or(0);
        self.out.push_str(&format!("(?:(?:\\{marker})"));
        self.node(yes, Context::Sequence);
        self.out.push_str(&format!("|(?!\\{marker})"));
        if let Some(no) = no {
            self.node(no, Context::Sequence);
        }
        self.out.push(')');
    }

    fn repeat(&mut self, min: u32, max: Option<u32>, greed: Greed, body: &Node) {
        if body.is_zero_width() {
            return self.zero_width_repeat(min, max, greed, body);
        }
        if greed == Greed::Possessive {
            self.backtracks = true;
            self.out.push_str("(?>");
        }
        self.node(body, Context::Repeated);
        match (min, max) {
            (0, Some(1)) => self.out.push('?'),
            (0, None) => self.out.push('*'),
            (1, None) => self.out.push('+'),
            (min, None) => self.out.push_str(&format!("{{{min},}}")),
            (min, Some(max)) => self.out.push_str(&format!("{{{min},{max}}}")),
        }
        match greed {
            Greed::Greedy => {}
            Greed::Lazy => self.out.push('?'),
            Greed::Possessive => self.out.push(')'),
        }
    }

    /// Repeats a zero-width node at most once, which is equivalent; the engines refuse to repeat
    /// it.
    fn zero_width_repeat(&mut self, min: u32, max: Option<u32>, greed: Greed, body: &Node) {
        if max == Some(0) {
            return;
        }
        if greed == Greed::Possessive {
            self.backtracks = true;
        }
        self.out.push_str(if greed == Greed::Possessive { "(?>" } else { "(?:" });
        if min == 0 && greed == Greed::Lazy {
            self.out.push('|');
        }
        self.node(body, Context::Sequence);
        if min == 0 && greed != Greed::Lazy {
            self.out.push('|');
        }
        self.out.push(')');
    }

    fn anchor(&mut self, anchor: Anchor, context: Context) {
        let ascii_text = self.subject.ascii;
        let text = match anchor {
            Anchor::TextStart => "\\A",
            Anchor::TextEnd => "\\z",
            Anchor::LineStart => "(?m:^)",
            Anchor::LineEnd => "(?m:$)",
            Anchor::TextEndOrLastNewline if !self.subject.newline_last => "\\z",
            Anchor::TextEndOrLastNewline => {
                self.backtracks = true;
                "(?=\\n?\\z)"
            }
            // Python 3.13 finds neither a boundary nor the lack of one in an empty text.
            Anchor::WordBoundary { .. } | Anchor::NotWordBoundary { .. } if self.subject.empty => {
                NEVER
            }
            Anchor::WordBoundary { .. } if ascii_text => "\\b",
            Anchor::NotWordBoundary { .. } if ascii_text => "\\B",
            Anchor::WordBoundary { ascii } => return self.boundary(ascii, context, true),
            Anchor::NotWordBoundary { ascii } => return self.boundary(ascii, context, false),
        };
        self.out.push_str(text);
    }

    /// Spells out word boundaries: the engines' words contain marks and joiners, Python's do not.
    fn boundary(&mut self, ascii: bool, context: Context, present: bool) {
        self.backtracks = true;
        let word = format!("[{}]", self.category(Category::Word, ascii));
        let (before, after) = if present { ("(?!", "(?=") } else { ("(?=", "(?!") };
        self.wrapped(context >= Context::Sequence, |translator| {
            translator
                .out
                .push_str(&format!("(?<={word}){before}{word})|(?<!{word}){after}{word})"));
        });
    }

    fn literal(&mut self, character: char, case: Case) {
        let same = self.same_in_case(character, case);
        if let [only] = same[..] {
            push_literal(&mut self.out, only);
            return;
        }
        self.out.push('[');
        for character in same {
            push_class_character(&mut self.out, character);
        }
        self.out.push(']');
    }

    fn same_in_case(&self, character: char, case: Case) -> Vec<char> {
        match case {
            Case::Sensitive => vec![character],
            Case::IgnoreAscii if character.is_ascii() => case::ascii_equivalents(character),
            Case::IgnoreAscii => vec![character],
            Case::Ignore if self.subject.ascii => case::ascii_equivalents(character),
            Case::Ignore => case::equivalents(character),
        }
    }

    fn class(&mut self, negated: bool, items: &[ClassItem], case: Case) {
        self.out.push_str(if negated { "[^" } else { "[" });
        if items.iter().all(|item| matches!(item, ClassItem::Range(0xd800.., ..=0xdfff))) {
            // Surrogates are no characters, and the engines take no set without members.
            self.out.push_str(NEVER);
        }
        for item in items {
            match *item {
                ClassItem::Range(first, last) => push_range(&mut self.out, first, last),
                ClassItem::Category { category, negated, ascii } => {
                    let members = self.category(category, ascii);
                    let opening = if negated { "[^" } else { "[" };
                    self.out.push_str(&format!("{opening}{members}]"));
                }
            }
        }
        if case != Case::Sensitive {
            self.other_cases(items, case);
        }
        self.out.push(']');
    }

    /// Adds to a set the characters that differ from its members only in case.
    fn other_cases(&mut self, items: &[ClassItem], case: Case) {
        let contains = |character: &char| {
            items.iter().any(|item| match item {
                ClassItem::Range(first, last) => (*first..=*last).contains(&u32::from(*character)),
                ClassItem::Category { .. } => false,
            })
        };
        let mut add = |group: &[char]| {
            if group.iter().any(contains) {
                for character in group.iter().filter(|character| !contains(character)) {
                    push_class_character(&mut self.out, *character);
                }
            }
        };
        match case {
            Case::Ignore if !self.subject.ascii => {
                case::groups().iter().for_each(|group| add(group));
            }
            _ => {
                for letter in 'a'..='z' {
                    let upper = letter.to_ascii_uppercase();
                    match letter {
                        _ if case == Case::IgnoreAscii => add(&[letter, upper]),
                        'i' => add(&[letter, upper, '\u{130}', '\u{131}']),
                        's' => add(&[letter, upper, '\u{17f}']),
                        'k' => add(&[letter, upper, '\u{212a}']),
                        _ => add(&[letter, upper]),
                    }
                }
            }
        }
    }

    /// The members of a category, to stand inside brackets.
    fn category(&self, category: Category, ascii: bool) -> &'static str {
        match (category, ascii, self.subject.ascii) {
            (Category::Digit, false, false) => "\\p{Nd}",
            (Category::Digit, ..) => "0-9",
            (Category::Word, false, false) => "\\p{L}\\p{N}_",
            (Category::Word, ..) => "0-9A-Za-z_",
            (Category::Space, true, _) => "\\t-\\r\\x20",
            (Category::Space, false, true) => "\\t-\\r\\x1c-\\x20",
            (Category::Space, false, false) => {
                "\\t-\\r\\x1c-\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\
                 \\x{202f}\\x{205f}\\x{3000}"
            }
        }
    }
}

/// Matches nothing.
const NEVER: &str = "[^\\x00-\\x{10ffff}]";

fn push_literal(out: &mut String, character: char) {
    match character {
        '\\' | '.' | '+' | '*' | '?' | '(' | ')' | '|' | '[' | ']' | '{' | '}' | '^' | '$'
        | '#' | '&' | '-' | '~' => {
            out.push('\\');
            out.push(character);
        }
        _ if character.is_control() || character.is_whitespace() => push_code(out, character),
        _ => out.push(character),
    }
}

/// A range of code points as ranges of characters: without the surrogates.
fn push_range(out: &mut String, first: u32, last: u32) {
    let first = if (0xd800..=0xdfff).contains(&first) { 0xe000 } else { first };
    let last = if (0xd800..=0xdfff).contains(&last) { 0xd7ff } else { last };
    if let (Some(first), Some(last)) = (char::from_u32(first), char::from_u32(last))
        && first <= last
    {
        push_class_character(out, first);
        if first != last {
            out.push('-');
            push_class_character(out, last);
        }
    }
}

fn push_class_character(out: &mut String, character: char) {
    if character.is_ascii_alphanumeric() || (!character.is_ascii() && !character.is_control()) {
        out.push(character);
    } else {
        push_code(out, character);
    }
}

fn push_code(out: &mut String, character: char) {
    out.push_str(&format!("\\x{{{:x}}}", u32::from(character)));
}
