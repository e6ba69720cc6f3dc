//! The kinds of tokens and nodes in the lossless tree.

/// A token or node kind. Trivia first, then tokens that the grammar sees, then nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum SyntaxKind {
    // Trivia: the grammar never sees these.
    /// Blanks, tabs and newlines.
    Whitespace,
    /// `#` to the end of the line, without the newline.
    Comment,
    /// A byte order mark at the very start of the text.
    ByteOrderMark,
    /// Text that no rule matches; the lexer has reported it.
    Illegal,

    // Tokens with a text of their own.
    /// An identifier that starts in lower case or with `_`.
    Id,
    /// An identifier that starts with a capital: an entity's name.
    ClassId,
    Int,
    Float,
    String,
    RawString,
    FormatString,
    MultiLineString,
    /// `matching /…/` is one token.
    Regex,
    /// An unclosed quote with the rest of its line. The lexer has reported it; the grammar takes it
    /// for a string.
    OpenString,

    // Keywords.
    TypedefKw,
    AsKw,
    EntityKw,
    ExtendsKw,
    EndKw,
    InKw,
    ImplementationKw,
    ForKw,
    MatchingKw,
    IndexKw,
    ImplementKw,
    UsingKw,
    WhenKw,
    AndKw,
    OrKw,
    NotKw,
    TrueKw,
    FalseKw,
    ImportKw,
    IsKw,
    DefinedKw,
    DictKw,
    NullKw,
    UndefKw,
    ParentsKw,
    IfKw,
    ElseKw,
    ElifKw,

    // Punctuation.
    /// `::`
    PathSep,
    /// `--`, `->` or `<-`
    RelationOp,
    /// `==`
    EqualEqual,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterEqual,
    /// `+=`
    PlusEqual,
    Plus,
    Minus,
    Slash,
    Star,
    StarStar,
    Percent,
    Colon,
    LBracket,
    RBracket,
    LParen,
    RParen,
    LBrace,
    RBrace,
    Equal,
    Comma,
    Dot,
    Question,
    /// The end of the text: the parser's view only, never stored in a tree.
    EndOfFile,

    // Nodes.
    File,
    /// Tokens that the parser skipped.
    Error,
    Import,
    Entity,
    /// `extends a, b`: holds `Path` nodes.
    Extends,
    Attribute,
    /// `ns::t[]?` or `dict?`
    TypeRef,
    Implementation,
    Implement,
    /// `using a, parents`: holds `Path` nodes and the keyword.
    Using,
    /// `when expr`
    When,
    Relation,
    /// `[0:1]`
    Arity,
    Annotations,
    Typedef,
    Index,
    /// `(a, b)` of an index statement.
    IndexAttributes,
    /// A documentation string.
    Docstring,
    /// Statements of an implementation, loop or branch.
    Block,
    Assign,
    For,
    If,
    Elif,
    Else,
    ExprStmt,
    /// `a::b`
    Path,
    Literal,
    /// A `Path` as an expression.
    VariableExpr,
    /// `base.name`
    AttributeExpr,
    CallExpr,
    ConstructExpr,
    IndexLookupExpr,
    ShortIndexLookupExpr,
    LookupExpr,
    /// `(a, b=c, **d)` or the same in square brackets.
    Args,
    PositionalArg,
    KeywordArg,
    SpreadArg,
    ListExpr,
    DictExpr,
    /// `"key": value`
    DictEntry,
    ComprehensionExpr,
    /// `for x in e` of a comprehension
    ComprehensionFor,
    /// `if e` of a comprehension
    ComprehensionIf,
    ParenExpr,
    NotExpr,
    /// All binary operators, `in` and `not in` included.
    BinaryExpr,
    ConditionalExpr,
    IsDefinedExpr,
}

impl SyntaxKind {
    pub fn is_trivia(self) -> bool {
        self <= SyntaxKind::Illegal
    }

    pub fn is_keyword(self) -> bool {
        (SyntaxKind::TypedefKw..=SyntaxKind::ElifKw).contains(&self)
    }

    pub fn is_node(self) -> bool {
        self >= SyntaxKind::File
    }

    /// Returns true if a complete expression may precede this token, in any context.
    pub(crate) fn may_follow_expression(self) -> bool {
        use SyntaxKind::*;
        !matches!(
            self,
            Dot | PathSep
                | Equal
                | PlusEqual
                | RelationOp
                | AsKw
                | ExtendsKw
                | UsingKw
                | MatchingKw
                | IsKw
                | DefinedKw
                | DictKw
                | UndefKw
                | ParentsKw
        )
    }

    /// Returns true if the name of a class may precede this token: it ends a relation, and all
    /// other uses of classes continue with one of a few tokens.
    pub(crate) fn may_follow_class(self) -> bool {
        use SyntaxKind::*;
        self.starts_item() || matches!(self, Dot | Comma | Colon | UsingKw | EndOfFile)
    }

    /// Returns true if this token may begin a statement or definition.
    pub(crate) fn starts_item(self) -> bool {
        use SyntaxKind::*;
        (Id..=Regex).contains(&self)
            || matches!(
                self,
                EntityKw
                    | ImplementationKw
                    | ImplementKw
                    | TypedefKw
                    | IndexKw
                    | ImportKw
                    | ForKw
                    | IfKw
                    | NotKw
                    | TrueKw
                    | FalseKw
                    | NullKw
                    | LParen
                    | LBracket
                    | LBrace
            )
    }

    /// Describes a token of this kind: "`:`", "a name".
    pub(crate) fn described(self) -> String {
        match self {
            SyntaxKind::Id => "a name".to_owned(),
            SyntaxKind::ClassId => "the name of an entity, with a capital".to_owned(),
            SyntaxKind::Int => "a whole number".to_owned(),
            SyntaxKind::EndOfFile => "the end of the file".to_owned(),
            kind => format!("`{}`", kind.spelled()),
        }
    }

    /// The text of a keyword or punctuation mark that the parser may ask for; empty for all others.
    pub(crate) fn spelled(self) -> &'static str {
        use SyntaxKind::*;
        match self {
            AsKw => "as",
            DefinedKw => "defined",
            EndKw => "end",
            ForKw => "for",
            InKw => "in",
            MatchingKw => "matching",
            UsingKw => "using",
            PathSep => "::",
            Colon => ":",
            Equal => "=",
            LParen => "(",
            RParen => ")",
            LBracket => "[",
            RBracket => "]",
            RBrace => "}",
            _ => "",
        }
    }

    /// The keyword spelled `text`.
    pub fn keyword(text: &str) -> Option<SyntaxKind> {
        use SyntaxKind::*;
        Some(match text {
            "typedef" => TypedefKw,
            "as" => AsKw,
            "entity" => EntityKw,
            "extends" => ExtendsKw,
            "end" => EndKw,
            "in" => InKw,
            "implementation" => ImplementationKw,
            "for" => ForKw,
            "matching" => MatchingKw,
            "index" => IndexKw,
            "implement" => ImplementKw,
            "using" => UsingKw,
            "when" => WhenKw,
            "and" => AndKw,
            "or" => OrKw,
            "not" => NotKw,
            "true" => TrueKw,
            "false" => FalseKw,
            "import" => ImportKw,
            "is" => IsKw,
            "defined" => DefinedKw,
            "dict" => DictKw,
            "null" => NullKw,
            "undef" => UndefKw,
            "parents" => ParentsKw,
            "if" => IfKw,
            "else" => ElseKw,
            "elif" => ElifKw,
            _ => return None,
        })
    }
}
