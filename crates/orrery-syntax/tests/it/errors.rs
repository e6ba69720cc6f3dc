//! First error of a text: class, text and location of the reference compiler.

use crate::{first_error, parsed, valid};

/// Checks `(text, first error)` pairs, all of class `ParserException`.
fn check(cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        assert_eq!(first_error(text), format!("ParserException: {expected}"), "in {text}");
    }
}

#[test]
fn a_token_that_does_not_fit_is_named_by_value_and_placed_at_its_end() {
    check(&[
        ("x = 1 // two", "Syntax error at token / @ 1:9"),
        ("b = -(3)", "Syntax error at token - @ 1:6"),
        ("x = 1.", "Syntax error at token . @ 1:7"),
        ("1 <-1", "Syntax error at token <- @ 1:5"),
        ("Xy = 1", "Syntax error at token = @ 1:5"),
        ("A(\"x\")", "Syntax error at token x @ 1:6"),
        ("d = {\"\"\"a\"\"\": 1}", "Syntax error at token a @ 1:13"),
        ("x = [1 \"a\\tb\"]", "Syntax error at token a\tb @ 1:14"),
        ("x = [1 r\"a\\tb\"]", "Syntax error at token a\\tb @ 1:15"),
        ("x = [1 f\"a{\"]", "Syntax error at token a{ @ 1:13"),
        ("x = [1 1.50]", "Syntax error at token 1.5 @ 1:12"),
        ("x = [1 007]", "Syntax error at token 7 @ 1:11"),
        ("x = [1 -.50]", "Syntax error at token -0.5 @ 1:12"),
        ("x = [1 12345678901234567890.5]", "Syntax error at token 1.2345678901234567e+19 @ 1:30"),
        ("x = [1 matching /a\\/b/]", "Syntax error at token /a\\/b/ @ 1:23"),
        ("\tx = \"é€\" + )", "Syntax error at token ) @ 1:14"),
        ("# foo\rx = 1\r\r)", "Syntax error at token ) @ 4:2"),
    ]);
}

#[test]
fn only_references_take_dots_and_subscripts() {
    check(&[
        ("std::print({\"a\": 1}[\"a\"])", "Syntax error at token [ @ 1:21"),
        ("std::print(A(i=1).i)", "Syntax error at token . @ 1:19"),
        ("std::print(A[i=1].i)", "Syntax error at token . @ 1:19"),
        ("std::print(d[\"a\"].b)", "Syntax error at token . @ 1:19"),
        ("d[\"b\"] = 2", "Syntax error at token = @ 1:9"),
        ("x = y\n[1,2]", "Syntax error at token , @ 2:4"),
        ("x = A.b", "Syntax error at token . @ 1:7"),
        (
            "std::print(std::linux is defined)",
            "Syntax error: invalid identifier, is is a reserved keyword @ 1:23",
        ),
    ]);
}

#[test]
fn a_keyword_that_does_not_fit_was_meant_as_a_name() {
    let keyword = |text: &str, expected: &str| {
        let expected = format!("Syntax error: invalid identifier, {expected}");
        check(&[(text, &expected)]);
    };
    keyword("end = 1", "end is a reserved keyword @ 1:1");
    keyword("y.index = 2", "index is a reserved keyword @ 1:3");
    keyword("f(index=1)", "index is a reserved keyword @ 1:3");
    keyword("typedef a as dict matching self", "dict is a reserved keyword @ 1:14");
    keyword("x = 1 not true", "true is a reserved keyword @ 1:11");
    // The keyword before the token that does not fit, too, as long as it is nothing complete.
    keyword("for = 1", "for is a reserved keyword @ 1:1");
    keyword("x = not )", "not is a reserved keyword @ 1:5");
    keyword("x = 1 in )", "in is a reserved keyword @ 1:7");
    keyword("entity A:\n dict[] x\nend", "dict is a reserved keyword @ 2:2");
    keyword("entity A: end )", "end is a reserved keyword @ 1:11");
    keyword("implement A using parents )", "parents is a reserved keyword @ 1:19");
    keyword("entity A:\nstring x = undef )", "undef is a reserved keyword @ 2:12");
    keyword("entity A:\ndict? x = null )", "null is a reserved keyword @ 2:11");
    keyword("implementation X for A:", "implementation is a reserved keyword @ 1:1");
    keyword("true = 1", "true is a reserved keyword @ 1:1");
    keyword("f(1, true = 2)", "true is a reserved keyword @ 1:6");
    // Neither `not (a not in b)` nor `(not a) not in b`.
    keyword("x = not a not in b", "not is a reserved keyword @ 1:11");
    keyword("x = not a in b not in c", "not is a reserved keyword @ 1:16");
    check(&[
        ("x = true )", "Syntax error at token ) @ 1:11"),
        ("x = a.b is defined )", "Syntax error at token ) @ 1:21"),
        ("entity A:\nstring x = null )", "Syntax error at token ) @ 2:18"),
        ("x = not", "Syntax error: Unexpected end of file @ 2:2"),
    ]);
}

#[test]
fn the_end_of_file_is_reported_beyond_the_text() {
    check(&[
        ("x =", "Syntax error: Unexpected end of file @ 2:2"),
        ("x =\n", "Syntax error: Unexpected end of file @ 3:2"),
        ("entity A:\n    \n", "Syntax error: Unexpected end of file @ 4:2"),
        (
            "entity A:\nend\nimplement A using std::none,\n",
            "Syntax error: Unexpected end of file @ 5:2",
        ),
    ]);
    let (parsed, _) = parsed("x =");
    assert_eq!(parsed.errors[0].highlight, 3..3);
}

#[test]
fn illegal_characters() {
    check(&[
        ("x = 1 ; y = 2", "Syntax error: Illegal character ';' @ 1:7"),
        ("é = 1", "Syntax error: Illegal character 'é' @ 1:1"),
        ("x = \"a\nb\"", "Syntax error: Illegal character '\"' @ 1:5"),
        ("x = 1\u{a0}", "Syntax error: Illegal character '\u{a0}' @ 1:6"),
        ("x = a ! b", "Syntax error: Illegal character '!' @ 1:7"),
        // The construct before it is complete only when the character has been read.
        ("entity foo: end ;", "Syntax error: Illegal character ';' @ 1:17"),
        ("x = f\"{a\" ;", "Syntax error: Illegal character ';' @ 1:11"),
        ("x = ) ;", "Syntax error at token ) @ 1:6"),
    ]);
}

#[test]
fn names_in_the_wrong_case() {
    let capital = "Syntax error: Invalid identifier: Entity names must start with a capital";
    let lower =
        "Syntax error: Invalid identifier: attribute names must start with a lower case character";
    check(&[
        ("entity foo:\nend", &format!("{capital} @ 1:8")),
        ("entity Foo extends bar:\nend", &format!("{capital} @ 1:20")),
        ("entity Foo extends bar::baz, C:", &format!("{capital} @ 1:20")),
        ("entity A extends a, b:\nend", &format!("{capital} @ 1:21")),
        ("entity A extends a.b, C:\nend", &format!("{capital} @ 1")),
        ("entity Foo extends bar, )", "Syntax error at token ) @ 1:26"),
        ("entity foo: string )", "Syntax error at token ) @ 1:21"),
        ("entity Foo:\n  string Bar\nend", &format!("{lower} @ 2:10")),
        ("entity A:\nstring Bar = )", "Syntax error at token ) @ 2:15"),
    ]);
}

#[test]
fn other_constructs_with_a_message_of_their_own() {
    check(&[
        (
            "entity Foo:\n  dict x = null\nend",
            "Syntax error: null can not be assigned to dict, did you mean \"dict? x = null\" @ 2:8",
        ),
        ("x\n += 1", "Syntax error: Can not perform += on variable x @ 1:1"),
        ("x-y += 1", "Syntax error: Can not perform += on variable x-y @ 1:1"),
        (
            "typedef Foo as std::A(a=1)\nc = )",
            "Syntax error: The use of default constructors is no longer supported @ 1:9",
        ),
        ("typedef Foo as string matching /x/", "Syntax error at token /x/ @ 1:35"),
        (
            "d = {\"b\": 1,\n \"{{a}}\": 1}",
            "Syntax error: String interpolation is not supported in dictionary keys. Use raw string \
             to use a key containing double curly brackets @ 2:2",
        ),
        (
            "x = {\"a{{b}}\" ;",
            "Syntax error: String interpolation is not supported in dictionary keys. Use raw string \
             to use a key containing double curly brackets @ 1:6",
        ),
    ]);
    valid("d = {r\"{{a}}\": 1, \"{{a b}}\": 2}");
}

#[test]
fn dots_where_double_colons_belong() {
    let expected = |written: &str, meant: &str, place: &str| {
        format!(
            "InvalidNamespaceAccess: Syntax error: invalid namespace access `{written}`. Namespaces \
             should be accessed with '::' rather than '.'. The '.' separator is reserved for attribute \
             and relation access. Did you mean: `{meant}` @ {place}"
        )
    };
    for (text, written, meant, place) in [
        ("std.print(\"x\")", "std.print", "std::print", "1:1"),
        ("z = std.foo.print(\"x\")", "std.foo.print", "std::foo::print", "1:5"),
        ("x = a.b\n(3)", "a.b", "a::b", "1:5"),
        ("x = a.B\ny = 1", "a.B", "a::B", "1:5"),
        ("x = a.b.C(c=1)", "a.b.C", "a::b::C", "1:5"),
        ("a.B.x [0:] -- C", "a.B", "a::B", "1:1"),
        ("implement a.B using c", "a.B", "a::B", "1:11"),
        ("entity A extends a.B, )", "a.B", "a::B", "1:18"),
        ("A.x [0:] -- a.B", "a.B", "a::B", "1:13"),
        ("x = a.b(1) + )", "a.b", "a::b", "1:5"),
    ] {
        assert_eq!(first_error(text), expected(written, meant, place), "in {text}");
    }
    check(&[
        ("x = f(a.B)", "Syntax error at token ) @ 1:11"),
        ("a.B = 3", "Syntax error at token = @ 1:6"),
        ("x = a.b(1 2)", "Syntax error at token 2 @ 1:12"),
    ]);
}

#[test]
fn format_strings_are_checked_when_the_expression_is_complete() {
    let problem = |text: &str, expected: &str| {
        check(&[(text, &format!("Syntax error: Invalid f-string: {expected}"))]);
    };
    problem("x = f\"{a\"", "expected '}' before end of string @ 1:5");
    problem("y = f\"a}b\"", "Single '}' encountered in format string @ 1:5");
    problem("x = f\"a{\"", "Single '{' encountered in format string @ 1:5");
    problem("x = f\"{a!}\"", "unmatched '{' in format spec @ 1:5");
    problem("x = f\"{a!rr}\"", "expected ':' after conversion specifier @ 1:5");
    problem("x = f\"{a:{b\"", "unmatched '{' in format spec @ 1:5");
    problem("x = f\"{a{b}}\"", "unexpected '{' in field name @ 1:5");
}

#[test]
fn hyphens_in_declared_names() {
    let hyphen = |text: &str, name: &str, place: &str| {
        let expected = format!(
            "HyphenException: The use of '-' in identifiers is not allowed. please rename {name}. in {name} @ {place}"
        );
        assert_eq!(first_error(text), expected, "in {text}");
    };
    hyphen("a-b = 1\nc = )", "a-b", "1:1");
    hyphen("entity A-b: string x-y end", "x-y", "1:20");
    hyphen("entity A-b: string x end", "A-b", "1:8");
    hyphen("implementation a-b for A: c-d = 1 end", "c-d", "1:27");
    hyphen("A.a-b [0:] -- B.c-d [1]", "a-b", "1:3");
    hyphen("import std as b-c", "b-c", "1:15");
    hyphen("std::y-z = 1", "std::y-z", "1:1");
    hyphen("typedef a-b as int matching self > 1", "a-b", "1:9");
    assert_eq!(
        first_error("import a-b"),
        "CompilerException: a-b is not a valid module name: hyphens are not allowed, please use \
         underscores instead. @ 1:8"
    );
    // Where names are only used, they are simply not found later.
    valid(
        "for a-b in [1]:\n  std::print(a-b)\nend\nx.a-b = 1\nf(a-b=1)\nindex A(b-c)\ny = [a-b for a-b in z]",
    );
    check(&[("a-b = )", "Syntax error at token ) @ 1:8")]);
}

#[test]
fn repeated_keys_and_arguments() {
    for (text, expected) in [
        (
            "d = {\"a\": 1,\n  \"b\": x,\n  \"a\": 2\n }",
            "DuplicateException: duplicate key in dict a @ 3 first 1",
        ),
        (
            "x = {\"a\": b, \"a\": c}\n)",
            "DuplicateException: duplicate key in dict a @ 1:19 first 1:11",
        ),
        (
            "x = {\"a\": 1, \"b\": 2, \"b\": 3, \"a\": 4}",
            "DuplicateException: duplicate key in dict b @ 1 first 1",
        ),
        (
            "entity A:\ndict x = {\"a\": 1, r\"a\": 1 }\n)",
            "DuplicateException: duplicate key in dict a @ 2 first 2",
        ),
        (
            "f(1, x, \"s\", a=[1,x], b=g(1,k=2), c=y.z, a=2)",
            "RuntimeException: Keyword argument a repeated in function call f() \
             in f(1,x,'s',a=List(),b=g(1,k=2),c=y.z) @ 1:1",
        ),
        (
            "f(-1.50, true, null, not x, a + b, {\"k\": 1}, A(c=1), a=1, a=2)",
            "RuntimeException: Keyword argument a repeated in function call f() \
             in f(-1.5,true,null,Not(x),(a + b),{'k': 1},Construct(A),a=1) @ 1:1",
        ),
        (
            "f(a=1, **b, a=3)",
            "RuntimeException: Keyword argument a repeated in function call f() in f(a=1,**b) @ 1:1",
        ),
        (
            "f(a=1, a=2, 3, **d, b=4)",
            "RuntimeException: Keyword argument a repeated in function call f() in f(3,a=1,**d) @ 1:1",
        ),
        (
            "A\n(b=1, c=2, **d, c=3, b=4)",
            "RuntimeException: The attribute c in the constructor call of A is already set. \
             in Construct(A) @ 2",
        ),
    ] {
        assert_eq!(first_error(text), expected, "in {text}");
    }
    valid("x = A[a=1, a=2]");
}

#[test]
fn typedefs_must_depend_on_the_value() {
    for constraint in [
        "true",
        "self is defined",
        "[self for self in [1]]",
        "[1 for x in [1] if self]",
        "foo(self=1)",
        "a::self",
        "x.self",
    ] {
        let text = format!("typedef a as string matching {constraint}\nx = 1");
        let expected = "TypingException: typedef expressions should reference the self variable in Type(a) @ 1:9";
        assert_eq!(first_error(&text), expected, "in {text}");
    }
    for constraint in [
        "/a/",
        "self.b",
        "[x for x in [self]]",
        "[self for x in [1]]",
        "f\"{self}\"",
        "\"{{ self.x }}\"",
        "A[a=self]",
        "x.y[a=self]",
        "{\"a\": self}",
        "true ? true : self",
        "self[\"a\"] is defined",
        "self.x is defined",
        "true and not self",
        "1 + matching /a/",
        "a > 1",
    ] {
        valid(&format!("typedef a as string matching {constraint}"));
    }
}

#[test]
fn parents_have_no_condition() {
    assert_eq!(
        first_error("implement A using i, parents when x\ny = )"),
        "RuntimeException: Conditional implementation with parents not allowed in Implement(A) @ 1:11"
    );
    valid("implement A using i, parents when true");
}

#[test]
fn complete_parts_are_checked_even_in_incomplete_constructs() {
    check(&[(
        "k = A[x=f\"{a\" 1]",
        "Syntax error: Invalid f-string: expected '}' before end of string @ 1:9",
    )]);
}

#[test]
fn errors_do_not_hide_what_comes_after() {
    let text = "x = )\nentity A:\n  string Bar\n  int ok = 1\nend\ny = [1 2]\nfor i in z:\n  a = }\n  b = 1\nend\nc = 3\n";
    let (parsed, interner) = parsed(text);
    let messages: Vec<_> = parsed.errors.iter().map(|error| error.message.as_str()).collect();
    assert_eq!(
        messages,
        [
            "Syntax error at token )",
            "Syntax error: Invalid identifier: attribute names must start with a lower case character",
            "Syntax error at token 2",
            "Syntax error at token }",
        ]
    );
    let shape = crate::shape(&parsed.file, &interner);
    for name in ["symbol: A,", "symbol: ok,", "symbol: b,", "symbol: c,"] {
        assert!(shape.contains(name), "{name} not in {shape}");
    }
}

#[test]
fn definitions_are_found_after_a_block_that_does_not_end() {
    let text = "implementation a for A:\n  x = (\nentity B:\n  int i\nend\n";
    let (parsed, interner) = parsed(text);
    assert_eq!(
        parsed.errors[0].message,
        "Syntax error: invalid identifier, entity is a reserved keyword"
    );
    assert!(crate::shape(&parsed.file, &interner).contains("symbol: B,"));
}
