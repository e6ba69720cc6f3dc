//! The lexer's rules and their order.

use orrery_syntax::SyntaxKind::{self, *};
use orrery_syntax::lexer::lex;

/// The tokens of a text without blanks, as kinds and texts.
fn tokens(text: &str) -> Vec<(SyntaxKind, &str)> {
    let tokens = lex(text);
    let ends = tokens.iter().skip(1).map(|token| token.start as usize).chain([text.len()]);
    tokens
        .iter()
        .zip(ends)
        .map(|(token, end)| (token.kind, &text[token.start as usize..end]))
        .filter(|(kind, _)| *kind != Whitespace)
        .collect()
}

#[test]
fn hyphens_belong_to_names_and_numbers() {
    assert_eq!(tokens("a-1"), [(Id, "a-1")]);
    assert_eq!(tokens("a -1"), [(Id, "a"), (Int, "-1")]);
    assert_eq!(tokens("5-1"), [(Int, "5"), (Int, "-1")]);
    assert_eq!(tokens("a - 1"), [(Id, "a"), (Minus, "-"), (Int, "1")]);
    assert_eq!(tokens("-x"), [(Minus, "-"), (Id, "x")]);
    assert_eq!(tokens("- -.5"), [(Minus, "-"), (Float, "-.5")]);
}

#[test]
fn relations_come_before_comparisons() {
    assert_eq!(tokens("1 <-1"), [(Int, "1"), (RelationOp, "<-"), (Int, "1")]);
    assert_eq!(tokens("a--b"), [(Id, "a--b")]);
    assert_eq!(tokens("--1"), [(RelationOp, "--"), (Int, "1")]);
    assert_eq!(tokens("->"), [(RelationOp, "->")]);
    assert_eq!(tokens("<= >= != == < >").len(), 6);
}

#[test]
fn numbers() {
    assert_eq!(tokens(".5 1.5 007"), [(Float, ".5"), (Float, "1.5"), (Int, "007")]);
    assert_eq!(tokens("1."), [(Int, "1"), (Dot, ".")]);
    assert_eq!(tokens("1e5"), [(Int, "1"), (Id, "e5")]);
    assert_eq!(tokens("1.2.3"), [(Float, "1.2"), (Float, ".3")]);
    assert_eq!(tokens("1..5"), [(Int, "1"), (Dot, "."), (Float, ".5")]);
}

#[test]
fn strings() {
    assert_eq!(tokens(r#""a\"b" 'c"d'"#), [(String, r#""a\"b""#), (String, r#"'c"d'"#)]);
    assert_eq!(
        tokens(r#"f"x" r'\'' fr"x""#)[..2],
        [(FormatString, "f\"x\""), (RawString, r"r'\''")]
    );
    // An unknown prefix is a name.
    assert_eq!(tokens("fr\"x\""), [(Id, "fr"), (String, "\"x\"")]);
    assert_eq!(tokens("F\"x\""), [(ClassId, "F"), (String, "\"x\"")]);
    // There are no other multi-line strings than those with double quotes.
    assert_eq!(tokens("'''a'''"), [(String, "''"), (String, "'a'"), (String, "''")]);
    assert_eq!(tokens("f\"\"\"a\"\"\"")[0], (FormatString, "f\"\""));
}

#[test]
fn a_string_that_does_not_end_takes_its_line() {
    assert_eq!(tokens("\"a\nb"), [(OpenString, "\"a"), (Id, "b")]);
    assert_eq!(tokens("'a\\\nb"), [(OpenString, "'a\\"), (Id, "b")]);
    assert_eq!(tokens("\"a\rb"), [(OpenString, "\"a"), (Id, "b")]);
}

#[test]
fn multi_line_strings_open_with_as_many_quotes_as_possible() {
    assert_eq!(tokens("\"\"\"a\nb\"\"\""), [(MultiLineString, "\"\"\"a\nb\"\"\"")]);
    assert_eq!(tokens("\"\"\"\"q\"\"\"\"").len(), 1);
    assert_eq!(tokens("\"\"\"a\"b\"\"\"\"\"").len(), 1);
    assert_eq!(tokens("\"\"\"\"\"\""), [(MultiLineString, "\"\"\"\"\"\"")]);
    // With more quotes further on, six of them are an opening of five and the start of the text.
    let text = "\"\"\"\"\"\"\ny = \"\"\"abc";
    assert_eq!(tokens(text), [(MultiLineString, "\"\"\"\"\"\"\ny = \"\"\""), (Id, "abc")]);
    // Without an end there is no multi-line string.
    assert_eq!(tokens("\"\"\"a"), [(String, "\"\""), (OpenString, "\"a")]);
}

#[test]
fn a_pattern_is_one_token_with_its_keyword() {
    assert_eq!(tokens("matching /a/"), [(Regex, "matching /a/")]);
    assert_eq!(tokens("matching\n\t/a\\/b/ x"), [(Regex, "matching\n\t/a\\/b/"), (Id, "x")]);
    assert_eq!(tokens("matching/a/")[0], (MatchingKw, "matching"));
    assert_eq!(tokens("matching //")[0], (MatchingKw, "matching"));
    assert_eq!(tokens("matching /a\nb/")[0], (MatchingKw, "matching"));
    assert_eq!(tokens("matching self"), [(MatchingKw, "matching"), (Id, "self")]);
    assert_eq!(tokens("matching-x /a/")[0], (Id, "matching-x"));
}

#[test]
fn comments_and_what_is_illegal() {
    assert_eq!(tokens("x # a\ny"), [(Id, "x"), (Comment, "# a"), (Id, "y")]);
    assert_eq!(tokens("x # a\r\ny")[1], (Comment, "# a"));
    assert_eq!(tokens("// x"), [(Slash, "/"), (Slash, "/"), (Id, "x")]);
    assert_eq!(tokens("a ; é \u{c}").len(), 4);
    assert_eq!(tokens("\u{feff}x"), [(ByteOrderMark, "\u{feff}"), (Id, "x")]);
}

#[test]
fn keywords_are_whole_words() {
    assert_eq!(tokens("end ends end-x"), [(EndKw, "end"), (Id, "ends"), (Id, "end-x")]);
    assert_eq!(
        tokens("string any self list"),
        [(Id, "string"), (Id, "any"), (Id, "self"), (Id, "list")]
    );
}
