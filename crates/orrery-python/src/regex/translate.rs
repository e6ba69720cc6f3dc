//! From a parsed pattern to the syntax of the engines, for one kind of subject.
//!
//! Knowing the subject keeps the translation both exact and cheap: in a text of ASCII `\w` is four
//! ranges, and where no newline ends the text `$` is the end. What remains different from Python's
//! meaning is spelt out with look-around, which only the backtracking engine knows.

use super::ast::{Anchor, Case, Category, ClassItem, Greed, Node};
use super::case;

/// What the translation may take for granted of the text to be matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Subject {
    pub(super) empty: bool,
    pub(super) ascii: bool,
    pub(super) newline_last: bool,
}

pub(super) struct Translated {
    pub(super) pattern: String,
    /// Whether it uses what only a backtracking engine has.
    pub(super) backtracks: bool,
}

pub(super) fn translate(node: &Node, subject: Subject) -> Translated {
    let mut translator = Translator {
        subject,
        out: String::new(),
        backtracks: false,
        captures: needs_captures(node),
    };
    translator.node(node, Context::Alternative);
    Translated { pattern: translator.out, backtracks: translator.backtracks }
}

fn needs_captures(node: &Node) -> bool {
    match node {
        Node::BackReference { .. } | Node::Conditional { .. } => true,
        Node::Sequence(nodes) | Node::Alternatives(nodes) => nodes.iter().any(needs_captures),
        Node::Group { body, .. }
        | Node::Look { body, .. }
        | Node::Atomic(body)
        | Node::Repeat { body, .. } => needs_captures(body),
        _ => false,
    }
}

/// What a node stands in, which decides whether it needs parentheses.
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
    captures: bool,
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
            Node::Group { capture: Some(_), body } if self.captures => self.enclosed("(", body),
            Node::Group { body, .. } => self.node(body, context),
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
                let flag = if *case == Case::Sensitive { "" } else { "i" };
                self.out.push_str(&format!("(?{flag}:\\{group})"));
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

    fn conditional(&mut self, group: usize, yes: &Node, no: Option<&Node>) {
        self.backtracks = true;
        self.out.push_str(&format!("(?({group})"));
        self.enclosed("(?:", yes);
        self.out.push('|');
        match no {
            Some(no) => self.enclosed("(?:", no),
            None => self.out.push_str("(?:)"),
        }
        self.out.push(')');
    }

    fn repeat(&mut self, min: u32, max: Option<u32>, greed: Greed, body: &Node) {
        if greed == Greed::Possessive {
            self.backtracks = true;
            self.out.push_str("(?>");
        }
        let empty = matches!(body, Node::Sequence(nodes) if nodes.is_empty());
        if empty {
            self.out.push_str("(?:)");
        } else {
            self.node(body, Context::Repeated);
        }
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

    /// The engines' words contain marks and joiners, Python's do not: say what a boundary is.
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
        for item in items {
            match *item {
                ClassItem::Range(first, last) => {
                    push_class_character(&mut self.out, first);
                    if first != last {
                        self.out.push('-');
                        push_class_character(&mut self.out, last);
                    }
                }
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
                ClassItem::Range(first, last) => (first..=last).contains(&character),
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
                case::groups().iter().for_each(|group| add(group))
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
