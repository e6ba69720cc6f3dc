//! A parsed pattern with the meaning of Python's `re`, before an engine is chosen.

/// Case sensitivity of letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Case {
    Sensitive,
    /// Ignored for ASCII letters only: `(?ai)`.
    IgnoreAscii,
    Ignore,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Category {
    Digit,
    Space,
    Word,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClassItem {
    /// Code points, because a pattern may name surrogates.
    Range(u32, u32),
    Category {
        category: Category,
        negated: bool,
        ascii: bool,
    },
}

impl ClassItem {
    pub(super) fn character(character: char) -> ClassItem {
        ClassItem::Range(character.into(), character.into())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Greed {
    Greedy,
    Lazy,
    Possessive,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    /// `\A`, and `^` outside multi-line mode.
    TextStart,
    LineStart,
    /// `\Z`
    TextEnd,
    /// `$` outside multi-line mode: the end, or before a newline that ends the text.
    TextEndOrLastNewline,
    LineEnd,
    WordBoundary {
        ascii: bool,
    },
    NotWordBoundary {
        ascii: bool,
    },
}

#[derive(Clone, Debug)]
pub(super) enum Node {
    Literal {
        character: char,
        case: Case,
    },
    AnyCharacter {
        newline_too: bool,
    },
    Class {
        negated: bool,
        items: Vec<ClassItem>,
        case: Case,
    },
    Anchor(Anchor),
    Sequence(Vec<Node>),
    Alternatives(Vec<Node>),
    Group {
        capture: Option<usize>,
        body: Box<Node>,
    },
    Look {
        behind: bool,
        negated: bool,
        body: Box<Node>,
    },
    /// Never matches: an empty negative look-around, or a lone surrogate.
    Never,
    Atomic(Box<Node>),
    Conditional {
        group: usize,
        yes: Box<Node>,
        no: Option<Box<Node>>,
    },
    BackReference {
        group: usize,
        case: Case,
    },
    Repeat {
        min: u32,
        max: Option<u32>,
        greed: Greed,
        body: Box<Node>,
    },
}

/// The fewest and the most characters that something can match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Width {
    pub(super) min: u64,
    pub(super) max: u64,
}

/// Python counts no further than this.
pub(super) const WIDTH_MAX: u64 = 1 << 62;

impl Width {
    const ZERO: Width = Width { min: 0, max: 0 };

    fn exactly(count: u64) -> Width {
        Width { min: count, max: count }
    }

    fn or(self, other: Width) -> Width {
        Width { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

impl Node {
    /// The nodes directly below, in the order of the pattern.
    pub(super) fn children(&self) -> impl Iterator<Item = &Node> {
        let (many, first, second): (&[Node], Option<&Node>, Option<&Node>) = match self {
            Node::Sequence(nodes) | Node::Alternatives(nodes) => (nodes, None, None),
            Node::Group { body, .. }
            | Node::Look { body, .. }
            | Node::Atomic(body)
            | Node::Repeat { body, .. } => (&[], Some(body), None),
            Node::Conditional { yes, no, .. } => (&[], Some(yes), no.as_deref()),
            _ => (&[], None, None),
        };
        many.iter().chain(first).chain(second)
    }

    /// Returns true if the node never consumes a character.
    pub(super) fn is_zero_width(&self) -> bool {
        match self {
            Node::Anchor(_) | Node::Look { .. } | Node::Never => true,
            Node::Sequence(nodes) | Node::Alternatives(nodes) => {
                nodes.iter().all(Node::is_zero_width)
            }
            Node::Group { body, .. } | Node::Atomic(body) => body.is_zero_width(),
            Node::Repeat { max, body, .. } => *max == Some(0) || body.is_zero_width(),
            _ => false,
        }
    }

    /// `groups` holds the widths of the capture groups closed so far, by number.
    pub(super) fn width(&self, groups: &[Option<Width>]) -> Width {
        match self {
            Node::Literal { .. } | Node::AnyCharacter { .. } | Node::Class { .. } => {
                Width::exactly(1)
            }
            Node::Anchor(_) | Node::Look { .. } | Node::Never => Width::ZERO,
            Node::Sequence(nodes) => {
                nodes.iter().map(|node| node.width(groups)).fold(Width::ZERO, |sum, width| Width {
                    min: (sum.min + width.min).min(WIDTH_MAX),
                    max: (sum.max + width.max).min(WIDTH_MAX),
                })
            }
            Node::Alternatives(nodes) => {
                nodes.iter().map(|node| node.width(groups)).reduce(Width::or).unwrap_or(Width::ZERO)
            }
            Node::Group { body, .. } | Node::Atomic(body) => body.width(groups),
            Node::Conditional { yes, no, .. } => {
                let no = no.as_ref().map_or(Width::ZERO, |node| node.width(groups));
                yes.width(groups).or(no)
            }
            Node::BackReference { group, .. } => {
                groups.get(*group).copied().flatten().unwrap_or(Width::ZERO)
            }
            Node::Repeat { min, max, body, .. } => {
                let width = body.width(groups);
                let most = max.map_or(u64::from(u32::MAX), u64::from);
                Width {
                    min: width.min.saturating_mul(u64::from(*min)).min(WIDTH_MAX),
                    max: width.max.saturating_mul(most).min(WIDTH_MAX),
                }
            }
        }
    }
}
