//! Meaning of constructs: precedence, sugar, strings.

use orrery_syntax::ast::{
    Arity, AssignmentTarget, Default, ExprKind, ImplementationRef, Item, Stmt,
};
use orrery_syntax::render_expr;

use crate::{parsed, valid};

/// The value assigned by a text that is one assignment, as messages show it.
fn value(text: &str) -> String {
    let (file, interner) = valid(text);
    match &file.items[..] {
        [Item::Stmt(Stmt::Assign(assign))] => render_expr(&assign.value, &interner),
        items => panic!("not one assignment: {items:?}"),
    }
}

fn check(cases: &[(&str, &str)]) {
    for (expr, expected) in cases {
        assert_eq!(value(&format!("x = {expr}")), *expected, "in {expr}");
    }
}

#[test]
fn operators_bind_as_the_language_has_it() {
    check(&[
        ("1 + 2 * 3", "(1 + (2 * 3))"),
        ("2 ** 3 ** 2", "((2 ** 3) ** 2)"),
        ("10 - 3 - 2", "((10 - 3) - 2)"),
        ("7 % 4 * 2", "((7 % 4) * 2)"),
        ("2 * 3 ** 2", "(2 * (3 ** 2))"),
        ("not a == b", "(Not(a) == b)"),
        ("not a in b", "Not((a in b))"),
        ("not a ** b", "(Not(a) ** b)"),
        ("a ** not b ** c", "((a ** Not(b)) ** c)"),
        ("a in not b in c", "(a in Not((b in c)))"),
        ("1 + 1 in [2]", "(1 + (1 in [2]))"),
        ("a or b and c", "(a or (b and c))"),
        ("1 < 2 == true", "((1 < 2) == true)"),
        ("a not in b or c", "(Not((a in b)) or c)"),
        ("not not a", "Not(Not(a))"),
        ("not a and b", "(Not(a) and b)"),
        ("(1 + 1) in [2]", "((1 + 1) in [2])"),
        ("a == b in c", "(a == (b in c))"),
        ("a in b not in c", "Not(((a in b) in c))"),
        ("a ** b not in c", "(a ** Not((b in c)))"),
        ("a not in b in c", "(Not((a in b)) in c)"),
    ]);
}

#[test]
fn conditionals_nest_to_the_right() {
    check(&[
        ("a ? 1 : b ? 2 : 3", "a ? 1 : b ? 2 : 3"),
        ("a ? b ? 1 : 2 : 3", "a ? b ? 1 : 2 : 3"),
        ("a or b ? 1 + 1 : 2 + 5", "(a or b) ? (1 + 1) : (2 + 5)"),
        ("a in b ? c : d", "(a in b) ? c : d"),
    ]);
    let (file, _) = valid("x = a ? 1 : b ? 2 : 3");
    let [Item::Stmt(Stmt::Assign(assign))] = &file.items[..] else { panic!("one assignment") };
    let ExprKind::Conditional { condition, otherwise, .. } = &assign.value.kind else {
        panic!("a conditional")
    };
    assert!(matches!(condition.kind, ExprKind::Variable(_)));
    assert!(matches!(otherwise.kind, ExprKind::Conditional { .. }));
}

#[test]
fn sugar_is_removed() {
    check(&[
        ("a not in b", "Not((a in b))"),
        ("d[\"k\"] is defined", "((('k' in d) and (d['k'] != null)) and (d['k'] != []))"),
        (
            "a.b[\"k\"][k] is defined",
            "(((k in a.b['k']) and (a.b['k'][k] != null)) and (a.b['k'][k] != []))",
        ),
        ("[a for x in b for y in c if d if e]", "[[a for y in c if (d and e)] for x in b]"),
        ("[a for x in b]", "[a for x in b]"),
        ("a is defined", "a is defined"),
        ("not a.b is defined", "Not(a.b is defined)"),
    ]);
}

#[test]
fn elif_is_an_if_in_the_else() {
    let (file, _) = valid("if a:\n x = 1\nelif b:\n x = 2\nelse:\n x = 3\nend");
    let [Item::Stmt(Stmt::If(outer))] = &file.items[..] else { panic!("one if") };
    let [Stmt::If(inner)] = &outer.otherwise[..] else { panic!("one elif") };
    assert_eq!((outer.then.len(), inner.then.len(), inner.otherwise.len()), (1, 1, 1));
}

#[test]
fn names_calls_and_lookups() {
    check(&[
        ("std :: linux . name", "std::linux.name"),
        ("std::count([1], k=2, **d)", "std::count([1],k=2,**d)"),
        ("A[n=\"x\", m=y]", "A[[('n', 'x'), ('m', y)]]"),
        ("a.b.c[n=1,]", "a.b.c[[('n', 1)]]"),
        ("a.b[c]", "a.b[c]"),
        ("a.b[c == d]", "a.b[(c == d)]"),
        ("a::B()", "Construct(a::B)"),
        ("f(a)", "f(a)"),
        ("A[]", "A[[]]"),
    ]);
}

#[test]
fn a_statement_extends_as_far_as_possible() {
    for (text, items) in [
        ("x = y\n[\"a\"]", 1),
        ("x = std::count\n([1])", 1),
        ("x = 5\n- 2", 1),
        ("x = 5\n-2", 2),
        ("x = 5\n(3)", 2),
        ("x = f(1)\n[2]", 2),
        ("x = 1\nnot in [1]", 1),
        ("x = true\n? 1 : 2", 1),
        ("x = a\n.b", 1),
        ("x = \"a\" \"b\"", 2),
        ("x = 1 y = 2 std::print(x)", 3),
        ("x = 1e5", 2),
        ("x = matching /a/ matching /b/", 2),
    ] {
        assert_eq!(valid(text).0.items.len(), items, "in {text}");
    }
}

#[test]
fn strings_are_decoded() {
    check(&[
        (r#""a\tb\x41\u00e9\101""#, "'a\\tbAéA'"),
        (r#"r"a\tb""#, "'a\\\\tb'"),
        ("\"héllo €\"", "'héllo €'"),
        ("\"\"\"\"q\"\"\"\"", "'\"q\"'"),
        ("\"\"\"a\"b\"\"\"\"\"", "'a\"b\"\"'"),
        ("\"\"\"a\r\nb\rc\"\"\"", "'a\\nb\\nc'"),
    ]);
}

#[test]
fn unknown_escapes_are_kept_with_a_warning() {
    let (parsed, _) = parsed("x = \"\\q\"\ny = f\"\\q\"\nz = \"\"\"\\q\"\"\"\nw = r\"\\q\"");
    let warnings: Vec<_> = parsed.warnings.iter().map(|warning| &warning.message[..]).collect();
    assert_eq!(warnings, [r"invalid escape sequence '\q'"; 3]);
    assert!(parsed.errors.is_empty());
}

/// The references of the string assigned by `text`, as `matched text -> reference`.
fn references(text: &str) -> Vec<String> {
    let (file, interner) = valid(text);
    let [Item::Stmt(Stmt::Assign(assign))] = &file.items[..] else { panic!("one assignment") };
    match &assign.value.kind {
        ExprKind::Interpolation { parts, .. } | ExprKind::FString { parts, .. } => parts
            .iter()
            .map(|part| format!("{} -> {}", part.text, render_expr(&part.reference, &interner)))
            .collect(),
        _ => Vec::new(),
    }
}

#[test]
fn references_in_plain_strings() {
    assert_eq!(
        references("x = \"{{a}} {{ b.c }} {{a}}\""),
        ["{{a}} -> a", "{{ b.c }} -> b.c", "{{a}} -> a"]
    );
    assert_eq!(
        references("x = \"{{{a}}} {{a-b}} {{5}}\""),
        ["{{a}} -> a", "{{a-b}} -> a-b", "{{5}} -> 5"]
    );
    assert_eq!(references("x = \"{{a b}} {{}} {{ }} {{a::b}} {a} {{a\""), [""; 0]);
    assert_eq!(references("x = r\"{{a}}\""), [""; 0]);
    assert_eq!(references("x = \"\\x7b{a}}\""), ["{{a}} -> a"]);
    assert_eq!(references("x = \"\"\"a\n{{\nb\n}}\"\"\""), ["{{\nb\n}} -> b"]);
}

#[test]
fn fields_of_format_strings_are_collected_up_to_a_doubled_brace() {
    assert_eq!(references("x = f\"{a} { b.c } {a!r}\""), ["a -> a", " b.c  -> b.c", "a -> a"]);
    assert_eq!(references("x = f\"{a} {{lit}} {b}\""), ["a -> a"]);
    assert_eq!(references("x = f\"{{ {a}\""), [""; 0]);
    assert_eq!(references("x = f\"{a}}}\""), ["a -> a"]);
    assert_eq!(references("x = f\"{v:{w}.{p}f} {b}\""), ["v -> v", "w -> w", "p -> p", "b -> b"]);
    assert_eq!(references("x = f\"{a:{{}}} {b}\""), ["a -> a", "b -> b"]);
    assert_eq!(references("x = f\"{} {a}\""), [""; 0]);
    assert_eq!(
        references("x = f\"{a b} {a[0]} {a.}\""),
        ["a b -> a b", "a[0] -> a[0]", "a. -> a."]
    );
}

#[test]
fn definitions() {
    let text = "\"\"\"doc\"\"\"\nimport a::b as c\nentity A extends B, c::D:\n\"\"\"d\"\"\"\n string[]? x = null\n \
                dict y\n a::t z = undef\nend\nimplement A using parents, c::d when true\nindex A(x, y)\n\
                A.p [0:] -- B.q [1:2]\nA.r [:3] \"note\", x B\n\"\"\"r\"\"\"\ntypedef t as int matching self > 1";
    let (file, interner) = valid(text);
    assert_eq!(file.docstring.as_deref(), Some("doc"));
    let name = |symbol| interner.text(symbol);
    let [
        Item::Import(import),
        Item::Entity(entity),
        Item::Implement(implement),
        Item::Index(index),
        Item::Relation(pq),
        Item::Relation(r),
        Item::Typedef(typedef),
    ] = &file.items[..]
    else {
        panic!("{:?}", file.items)
    };
    assert_eq!(name(import.path.symbol), "a::b");
    assert_eq!(import.alias.map(|alias| name(alias.symbol)), Some("c"));
    assert_eq!(entity.parents.iter().map(|p| name(p.symbol)).collect::<Vec<_>>(), ["B", "c::D"]);
    let [x, y, z] = &entity.attributes[..] else { panic!("three attributes") };
    assert!(x.ty.list && x.ty.nullable && matches!(&x.default, Default::Value(_)));
    assert_eq!(name(y.ty.path.symbol), "dict");
    assert!(matches!(y.default, Default::None) && matches!(z.default, Default::Undef));
    assert!(matches!(
        implement.using[..],
        [ImplementationRef::Parents(_), ImplementationRef::Named(_)]
    ));
    assert!(implement.when.is_some());
    assert_eq!(index.attributes.len(), 2);
    assert_eq!(pq.arity, Arity { low: 0, high: None });
    let inverse = pq.inverse.map(|(inverse, arity)| (name(inverse.symbol), arity));
    assert_eq!(inverse, Some(("q", Arity { low: 1, high: Some(2) })));
    assert_eq!((r.arity, r.annotations.len()), (Arity { low: 0, high: Some(3) }, 2));
    assert_eq!(r.docstring.as_deref(), Some("r"));
    assert_eq!(name(typedef.base.symbol), "int");
}

#[test]
fn targets_of_assignments() {
    let (file, interner) = valid("a::b = 1\nc.d.e += 2");
    let [Item::Stmt(Stmt::Assign(first)), Item::Stmt(Stmt::Assign(second))] = &file.items[..]
    else {
        panic!("two assignments")
    };
    let AssignmentTarget::Variable(path) = &first.target else { panic!("a variable") };
    assert_eq!(interner.text(path.symbol), "a::b");
    let AssignmentTarget::Attribute { base, attribute } = &second.target else {
        panic!("an attribute")
    };
    assert_eq!(
        (render_expr(base, &interner).as_str(), interner.text(attribute.symbol)),
        ("c.d", "e")
    );
    assert!(second.append && !first.append);
}
