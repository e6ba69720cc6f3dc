//! Properties that hold for every text. `PROPTEST_CASES` sets the number of cases.

use orrery_syntax::parse;
use orrery_syntax::tree::{Element, NodeId, TokenId};
use proptest::prelude::*;

use crate::{formatted, parsed};

/// Checks that nothing of a text is lost, and that its nodes nest.
fn check_lossless(text: &str) {
    let tree = parse(text).tree;
    let count = tree.tokens().len() as u32;
    let joined: String = (0..count).map(|index| tree.token_text(TokenId(index))).collect();
    assert_eq!(joined, text);
    assert_eq!(tree.text(), text);
    assert_eq!(tree.token_range(tree.root()), 0..count as usize);
    let mut seen = 0;
    let mut reached = 0;
    for index in 0..tree.node_count() as u32 {
        let node = NodeId(index);
        let whole = tree.token_range(node);
        let mut before = whole.start;
        for child in tree.children(node) {
            let range = tree.token_range(child);
            assert!(before <= range.start && range.start <= range.end && range.end <= whole.end);
            before = range.end;
            reached += 1;
        }
        seen += tree.elements(node).filter(|element| matches!(element, Element::Token(_))).count();
    }
    assert_eq!(reached + 1, tree.node_count(), "every node but the root is a child of one");
    let significant = tree.tokens().iter().filter(|token| !token.kind.is_trivia()).count();
    assert_eq!(seen, significant, "every token belongs to one node");
}

/// Pieces of random texts that look like programs.
const PIECES: &[&str] = &[
    "entity",
    "A",
    "B",
    "extends",
    ":",
    "end",
    "string",
    "x",
    "y",
    "a-b",
    "=",
    "+=",
    "1",
    "-1",
    ".5",
    "\"s\"",
    "\"{{x}}\"",
    "r'raw'",
    "f\"{x:{y}}\"",
    "f\"{\"",
    "\"\"\"doc\nmore\"\"\"",
    "\"\"\"",
    "\"",
    "dict",
    "?",
    "[",
    "]",
    "(",
    ")",
    "{",
    "}",
    ",",
    ".",
    "::",
    "--",
    "<-",
    "implementation",
    "for",
    "implement",
    "using",
    "parents",
    "when",
    "typedef",
    "as",
    "matching",
    "matching /a/",
    "index",
    "import",
    "in",
    "not",
    "and",
    "or",
    "if",
    "elif",
    "else",
    "is",
    "defined",
    "true",
    "null",
    "undef",
    "+",
    "-",
    "*",
    "**",
    "/",
    "%",
    "==",
    "<",
    "\n",
    "# comment\n",
    " ",
    "\t",
    ";",
    "é",
    "\\",
    "[0:]",
    "x.y",
    "std::print(",
    "A(",
    "A[",
    "\r\n",
];

fn token_soup() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(PIECES);
    let glue = prop::sample::select(&["", " ", " ", "\n"][..]);
    prop::collection::vec((piece, glue), 0..60).prop_map(|pieces| {
        pieces.into_iter().map(|(piece, glue)| format!("{piece}{glue}")).collect()
    })
}

fn blank() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&[" ", " ", " ", "\n", "\t", "  \n\n\n ", " # note\n", "\n# line\n\n"][..])
}

fn name() -> impl Strategy<Value = String> {
    prop::sample::select(&["a", "b", "c1", "_d", "long_name_of_a_variable", "f", "r"][..])
        .prop_map(str::to_owned)
}

/// Joins parts with blanks and comments of all kinds between them.
fn joined(parts: Vec<BoxedStrategy<String>>) -> BoxedStrategy<String> {
    parts
        .into_iter()
        .fold(Just(String::new()).boxed(), |text, part| {
            (text, blank(), part).prop_map(|(text, blank, part)| text + blank + &part).boxed()
        })
        .boxed()
}

fn word(text: &'static str) -> BoxedStrategy<String> {
    Just(text.to_owned()).boxed()
}

fn list_of(item: BoxedStrategy<String>, min: usize) -> BoxedStrategy<String> {
    (prop::collection::vec((item, blank()), min..5), any::<bool>())
        .prop_map(|(items, comma)| {
            let mut text = String::new();
            for (index, (item, blank)) in items.iter().enumerate() {
                text += item;
                text += blank;
                if index + 1 < items.len() || comma {
                    text += ",";
                    text += blank;
                }
            }
            text
        })
        .boxed()
}

fn expression() -> BoxedStrategy<String> {
    let leaf = prop_oneof![
        prop::sample::select(
            &[
                "1",
                "-2",
                "0.5",
                "true",
                "null",
                "\"s\"",
                "'{{ a.b }}'",
                "r\"x\"",
                "f\"{a} {b.c:>{d}}\"",
                "\"\"\"m\n l\"\"\"",
                "matching /a b/",
                "99999999999999999999",
                "[]",
                "{}",
                "f()",
            ][..]
        )
        .prop_map(str::to_owned),
        name(),
        (name(), name()).prop_map(|(a, b)| format!("{a}::{b}")),
        (name(), blank(), name()).prop_map(|(a, blank, b)| format!("{a}{blank}.{b}")),
    ]
    .boxed();
    leaf.prop_recursive(5, 60, 5, |inner| {
        let inner = inner.boxed();
        let operator =
            prop::sample::select(
                &[
                    "+", "-", "*", "/", "%", "**", "==", "!=", "<", ">=", "and", "or", "in",
                    "not in",
                ][..],
            )
            .prop_map(str::to_owned)
            .boxed();
        let keyword =
            |inner: &BoxedStrategy<String>| joined(vec![name().boxed(), word("="), inner.clone()]);
        let distinct = (inner.clone(), inner.clone(), blank())
            .prop_map(|(a, b, blank)| format!("one ={blank}{a}, two={b}"))
            .boxed();
        prop_oneof![
            joined(vec![inner.clone(), operator, inner.clone()]),
            joined(vec![word("("), inner.clone(), word(")")]),
            joined(vec![word("not"), inner.clone()]),
            joined(vec![inner.clone(), word("?"), inner.clone(), word(":"), inner.clone()]),
            joined(vec![word("["), list_of(inner.clone(), 1), word("]")]),
            joined(vec![word("{\"k\":"), inner.clone(), word(", 'l' :"), inner.clone(), word("}")]),
            joined(vec![word("std::f("), list_of(inner.clone(), 1), word(")")]),
            joined(vec![word("std::f("), inner.clone(), word(","), keyword(&inner), word(")")]),
            joined(vec![word("A("), distinct.clone(), word(", **"), inner.clone(), word(")")]),
            joined(vec![word("ns::A["), distinct.clone(), word("]")]),
            joined(vec![word("a.b["), distinct, word("]")]),
            joined(vec![word("a.b["), inner.clone(), word("][ 'k' ]")]),
            joined(vec![word("a["), inner.clone(), word("] is defined")]),
            joined(vec![
                word("["),
                inner.clone(),
                word("for x in"),
                inner.clone(),
                word("if"),
                inner,
                word("]")
            ]),
            Just("a.b is defined".to_owned()),
        ]
    })
    .boxed()
}

fn statement() -> BoxedStrategy<String> {
    let simple = prop_oneof![
        expression(),
        joined(vec![name().boxed(), word("="), expression()]),
        joined(vec![word("a.b"), word("+="), expression()]),
    ]
    .boxed();
    simple
        .prop_recursive(3, 12, 4, |inner| {
            let block = |inner: &BoxedStrategy<String>| {
                prop::collection::vec((inner.clone(), blank()), 0..4)
                    .prop_map(|all| all.into_iter().map(|(s, blank)| s + "\n" + blank).collect())
                    .boxed()
            };
            let inner = inner.boxed();
            prop_oneof![
                joined(vec![word("for x in"), expression(), word(":"), block(&inner), word("end")]),
                joined(vec![
                    word("if"),
                    expression(),
                    word(":"),
                    block(&inner),
                    word("elif"),
                    expression(),
                    word(":"),
                    block(&inner),
                    word("else"),
                    word(":"),
                    block(&inner),
                    word("end"),
                ]),
            ]
        })
        .boxed()
}

fn item() -> BoxedStrategy<String> {
    prop_oneof![
        4 => statement(),
        1 => joined(vec![
            word("entity"), word("A"), word("extends"), word("B , c::D"), word(":"),
            word("\"\"\" doc \"\"\""), word("string [ ] ? x = null"), word("dict y"), word("int z = -1"), word("end"),
        ]),
        1 => joined(vec![word("implementation"), name().boxed(), word("for A:"), statement(), word("end")]),
        1 => joined(vec![word("implement A using"), name().boxed(), word(", parents when"), expression()]),
        1 => joined(vec![word("A ."), name().boxed(), word("[ 0 :"), word("]"), word("--"), word("B.x [1]")]),
        1 => joined(vec![word("A.x [0:1]"), list_of(expression(), 1).prop_map(|list| {
            list.trim_end_matches([',', ' ', '\n', '\t']).to_owned()
        }).boxed(), word("B")]),
        1 => joined(vec![word("typedef"), name().boxed(), word("as int matching self +"), expression()]),
        1 => joined(vec![word("index A ("), name().boxed(), word(", b)")]),
        1 => joined(vec![word("import a ::"), name().boxed(), word("as"), name().boxed()]),
    ]
    .boxed()
}

fn program() -> impl Strategy<Value = String> {
    prop::collection::vec(item(), 0..6).prop_map(|items| items.join("\n"))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_preserved(text in any::<String>()) {
        check_lossless(&text);
        parsed(&text);
    }

    #[test]
    fn any_tokens_are_preserved(text in token_soup()) {
        check_lossless(&text);
        let (parsed, _) = parsed(&text);
        for error in &parsed.errors {
            let highlighted = error.highlight.start as usize..error.highlight.end as usize;
            prop_assert!(text.get(highlighted).is_some(), "{:?}", error);
        }
        if parse(&text).errors.is_empty() {
            formatted(&text);
        }
    }

    #[test]
    fn programs_mean_the_same_when_formatted(text in program()) {
        check_lossless(&text);
        if parse(&text).errors.is_empty() {
            formatted(&text);
        }
    }

    #[test]
    fn broken_programs_are_parsed(text in program(), cut in any::<prop::sample::Index>(), insert in prop::sample::select(PIECES)) {
        let mut position = cut.index(text.len() + 1);
        while !text.is_char_boundary(position) {
            position -= 1;
        }
        let broken = format!("{}{insert}{}", &text[..position], &text[position..]);
        check_lossless(&broken);
        parsed(&broken);
        parsed(&text[..position]);
        parsed(&text[position..]);
    }
}

/// The generator of programs is only worth something if most of them are valid.
#[test]
fn generated_programs_are_mostly_valid() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let mut valid = 0;
    let mut long = 0;
    for _ in 0..100 {
        let tree = program().new_tree(&mut runner).expect("a program can be generated");
        let text = tree.current();
        valid += usize::from(parse(&text).errors.is_empty());
        long += usize::from(text.len() > 300);
    }
    assert!(valid > 60, "{valid} of 100 are valid");
    assert!(long > 20, "{long} of 100 are long");
}
