//! Source location of each construct, shown with constructs spread over many lines.

use orrery_syntax::LineIndex;
use orrery_syntax::ast::{Arg, AssignmentTarget, Expr, ExprKind, Item, Loc, Stmt};

use crate::{location, valid};

/// `text` with each token on a line of its own.
fn spread(text: &str) -> String {
    text.split(' ').collect::<Vec<_>>().join("\n")
}

/// The value of the assignment that is the whole of `text`, and the text with one token a line.
fn value_of(text: &str) -> (Expr, String) {
    let text = spread(text);
    let (mut file, _) = valid(&text);
    match file.items.pop() {
        Some(Item::Stmt(Stmt::Assign(assign))) => (assign.value, text),
        item => panic!("not an assignment: {item:?}"),
    }
}

fn check(cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        let (value, text) = value_of(text);
        assert_eq!(location(&text, value.loc), *expected, "in {text}");
    }
}

#[test]
fn expressions() {
    check(&[
        ("x = 1", "3"),
        ("x = null", "3"),
        ("x = \"a\"", "3"),
        ("x = \"{{a}}\"", "3"),
        ("x = r\"a\"", "3:1"),
        ("x = f\"{a}\"", "3:1"),
        ("x = \"\"\"a\"\"\"", "3:1"),
        ("x = y", "3:1"),
        ("x = a :: b", "3:1"),
        ("x = a . b", "4"),
        ("x = a . b . c", "6"),
        ("x = f ( 1 )", "3:1"),
        ("x = a :: f ( 1 )", "3:1"),
        ("x = A ( b = 1 )", "4"),
        ("x = a :: A ( b = 1 )", "6"),
        ("x = A [ b = 1 ]", "4"),
        ("x = a . b [ c = 1 ]", "6"),
        ("x = a [ b ]", "3"),
        ("x = a . b [ c ]", "4"),
        ("x = a [ b ] [ c ]", "3"),
        ("x = [ 1 ]", "3"),
        ("x = { \"a\" : 1 }", "3"),
        ("x = [ a for b in c ]", "3"),
        ("x = not a", "3"),
        ("x = a + b", "4"),
        ("x = a + b * c", "4"),
        ("x = ( a + b )", "5"),
        ("x = a not in b", "4"),
        ("x = a and b", "4"),
        ("x = a ? b : c", "3"),
        ("x = a + b ? c : d", "4"),
        ("x = a . b is defined", "4"),
        ("x = a [ b ] is defined", "7"),
    ]);
}

#[test]
fn parts_of_expressions() {
    let (value, text) = value_of("x = [ a for b in c for d in e if g ]");
    let ExprKind::Comprehension { value: inner, variable, .. } = &value.kind else {
        panic!("a comprehension")
    };
    assert_eq!(location(&text, inner.loc), "3");
    assert_eq!(location(&text, variable.loc), "6:1");
    let (value, text) = value_of("x = A ( b = 1 , ** c )");
    let ExprKind::Construct { class, args } = &value.kind else { panic!("a constructor") };
    assert_eq!(location(&text, class.loc), "3:1");
    let Arg::Keyword(name, _) = &args[0] else { panic!("a keyword argument") };
    assert_eq!(location(&text, name.loc), "5:1");
}

#[test]
fn references_inside_strings() {
    for (text, expected) in [
        ("x = \"abc {{a.b}} \"", "1:14"),
        ("x = \"é€ {{a.b}}\"", "1:13"),
        ("x = \"\"\"ab\n  {{ a.b }}\"\"\"", "2:8"),
        ("x = f\"abc { a.b:d } \"", "1:15"),
        ("x = f\"ab {a:{a.c}}\"", "1:16"),
        ("x = f\"ab {a} {a} {a.b} {a.c}\"", "1:27"),
        ("x = f\"ab {a}\"", "1:11"),
        ("x = \"ab {{b.i}} {{  b.i.c }}\"", "1:25"),
        ("x = \"\\t\\u0041{{a.b}}\"", "1:18"),
    ] {
        let (file, _) = valid(text);
        let [Item::Stmt(Stmt::Assign(assign))] = &file.items[..] else { panic!("one assignment") };
        let (ExprKind::Interpolation { parts, .. } | ExprKind::FString { parts, .. }) =
            &assign.value.kind
        else {
            panic!("a string with references")
        };
        let last = &parts[parts.len() - 1].reference;
        assert_eq!(location(text, last.loc), expected, "in {text}");
    }
}

/// Returns the location of the statement or definition that is the whole of `text`.
fn item_place(text: &str) -> String {
    let text = spread(text);
    let (file, _) = valid(&text);
    let loc = match &file.items[0] {
        Item::Import(import) => import.loc,
        Item::Entity(entity) => entity.loc,
        Item::Implementation(implementation) => implementation.loc,
        Item::Implement(implement) => implement.loc,
        Item::Relation(relation) => relation.loc,
        Item::Typedef(typedef) => typedef.loc,
        Item::Index(index) => index.loc,
        Item::Stmt(Stmt::Assign(assign)) => assign.loc,
        Item::Stmt(Stmt::For(for_loop)) => for_loop.loc,
        Item::Stmt(Stmt::If(if_statement)) => match &if_statement.otherwise[..] {
            [Stmt::If(elif)] => elif.loc,
            _ => if_statement.loc,
        },
        Item::Stmt(Stmt::Expr(expr)) => expr.loc,
    };
    location(&text, loc)
}

#[test]
fn statements_and_definitions() {
    for (text, expected) in [
        ("x = 1", "2"),
        ("a . b += 1", "4"),
        ("for x in y : end", "1"),
        ("if x : end", "1"),
        ("if x : elif y : end", "6"),
        ("import a :: b as c", "1"),
        ("entity A : end", "2:1"),
        ("implementation a for A : end", "2:1"),
        ("implement A using b", "2:1"),
        ("A . x [ 0 : ] -- B", "3:1"),
        ("typedef a as int matching self", "2:1"),
        ("index A ( b )", "1"),
    ] {
        assert_eq!(item_place(text), expected, "in {text}");
    }
}

#[test]
fn names_are_whole_when_qualified() {
    let text = "a\n::\nb = 1";
    let (file, _) = valid(text);
    let [Item::Stmt(Stmt::Assign(assign))] = &file.items[..] else { panic!("one assignment") };
    let AssignmentTarget::Variable(path) = &assign.target else { panic!("a variable") };
    assert_eq!(&text[path.loc.start as usize..path.loc.end as usize], "a\n::\nb");
}

#[test]
fn line_index() {
    let text = "ab\r\nc\u{e9}d\re\u{1f600}f\n";
    let index = LineIndex::new(text);
    let at = |part: &str| index.line_col(text.find(part).map_or(0, |offset| offset as u32));
    assert_eq!(at("b"), (1, 2));
    assert_eq!(at("c"), (2, 1));
    assert_eq!(at("d"), (2, 3));
    assert_eq!(at("e\u{1f600}"), (3, 1));
    assert_eq!(at("f"), (3, 3));
    assert_eq!(index.line_col(text.len() as u32), (4, 1));
    assert_eq!(index.line_col(text.len() as u32 + 1), (5, 2));
    assert_eq!(index.line_range(2), 4..9);
    let loc = Loc { file: orrery_syntax::ast::FileId(0), start: 4, end: 5, column: false };
    assert_eq!(location(text, loc), "2");
}
