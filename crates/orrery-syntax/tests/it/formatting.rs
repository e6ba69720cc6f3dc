//! The formatter's style.

use crate::formatted;

fn check(text: &str, expected: &str) {
    assert_eq!(formatted(text), expected);
}

#[test]
fn one_statement_a_line() {
    check("x=1 y = 2\tstd::print( x,y )", "x = 1\ny = 2\nstd::print(x, y)\n");
    check("a -1", "a\n-1\n");
    check("a - 1", "a - 1\n");
    check("5 -1 f \"x\"", "5\n-1\nf\n\"x\"\n");
    check("x = 2*-1 < -3", "x = 2 * -1 < -3\n");
    check("", "");
    check("\n\n# only\n", "# only\n");
}

#[test]
fn blank_lines() {
    check("a = 1\n\n\n\nb = 2\nc = 3\n\n", "a = 1\n\nb = 2\nc = 3\n");
    check(
        "import a\nimport b\nx = 1\nentity A: end entity B: int i end\ny = 1",
        "import a\nimport b\n\nx = 1\n\nentity A:\nend\n\nentity B:\n    int i\nend\n\ny = 1\n",
    );
    check("if a:\n\n\n b = 1\n\n\n c = 2\n\nend", "if a:\n    b = 1\n\n    c = 2\nend\n");
}

#[test]
fn definitions() {
    check(
        "entity A extends B,c :: D :\n\"\"\" doc\n  more \"\"\"\nstring [ ] ? x = null\ndict ? y = {\"a\":1}\nint z=undef end",
        "entity A extends B, c::D:\n    \"\"\" doc\n  more \"\"\"\n    string[]? x = null\n    dict? y = {\"a\": 1}\n    int z = undef\nend\n",
    );
    check(
        "A . x [ 0 : ] -- b::B . y [ 1 ] \"\"\"doc\"\"\"\nA.z [:1] n , m B",
        "A.x [0:] -- b::B.y [1]\n\"\"\"doc\"\"\"\nA.z [:1] n, m B\n",
    );
    check("typedef a as b::c matching self>1", "typedef a as b::c matching self > 1\n");
    check("typedef a as b matching\n\t/x y/", "typedef a as b matching /x y/\n");
    check("index A ( a,b )", "index A(a, b)\n");
    check("implement A using a , parents when x", "implement A using a, parents when x\n");
    check(
        "implementation a for A: \"\"\"d\"\"\" for x in y: self.z+=x end end",
        "implementation a for A:\n    \"\"\"d\"\"\"\n    for x in y:\n        self.z += x\n    end\nend\n",
    );
}

#[test]
fn branches() {
    check(
        "if a: b() elif c: d() else: e() end",
        "if a:\n    b()\nelif c:\n    d()\nelse:\n    e()\nend\n",
    );
}

#[test]
fn expressions() {
    check(
        "x = not(a)and b not   in c ? d[ \"k\" ] : A[ a = 1 ]",
        "x = not (a) and b not in c ? d[\"k\"] : A[a=1]\n",
    );
    check("x = [ a for a in b if c ]", "x = [a for a in b if c]\n");
    check("x = a . b is   defined", "x = a.b is defined\n");
    check("f( ** d , k = 1 )", "f(**d, k=1)\n");
    check("x = {} y = [ ] z = f( )", "x = {}\ny = []\nz = f()\n");
}

#[test]
fn lines_that_do_not_fit_are_broken() {
    let a = "a".repeat(50);
    let b = "b".repeat(50);
    check(&format!("f({a}, {b})"), &format!("f(\n    {a},\n    {b},\n)\n"));
    check(&format!("x = [{a}, {b}]"), &format!("x = [\n    {a},\n    {b},\n]\n"));
    check(
        &format!("x = {{\"a\": {a}, \"b\": {b}}}"),
        &format!("x = {{\n    \"a\": {a},\n    \"b\": {b},\n}}\n"),
    );
    check(&format!("f([{a}, {b}])"), &format!("f([\n    {a},\n    {b},\n])\n"));
    check(&format!("x = {a} + {b} - c * d"), &format!("x = {a}\n    + {b}\n    - c * d\n"));
    check(&format!("x = {a} ? {b} : c"), &format!("x = {a}\n    ? {b}\n    : c\n"));
    check(
        &format!("x = [{a} for {b} in c if d]"),
        &format!("x = [\n    {a}\n    for {b} in c\n    if d\n]\n"),
    );
    check(&format!("x = ({a} or {b})"), &format!("x = (\n    {a}\n        or {b}\n)\n"));
    let ninety_six = "a".repeat(96);
    check(&format!("x = {ninety_six}"), &format!("x = {ninety_six}\n"));
}

#[test]
fn a_trailing_comma_keeps_brackets_broken() {
    check("f(a,)", "f(\n    a,\n)\n");
    check("x = {\"a\": [1,2,]}", "x = {\n    \"a\": [\n        1,\n        2,\n    ],\n}\n");
}

#[test]
fn comments_stay_between_the_same_tokens() {
    check("# a\n\n\n# b\nx = 1 # c\n# d", "# a\n\n# b\nx = 1  # c\n# d\n");
    check(
        "entity A: # a\n # b\n int x # c\n # d\nend # e\n",
        "entity A:  # a\n    # b\n    int x  # c\n    # d\nend  # e\n",
    );
    check("f(a, # one\n b # two\n)", "f(\n    a,  # one\n    b,  # two\n)\n");
    check("f( # none\n)", "f(  # none\n)\n");
    check("x = [\n # first\n 1\n # last\n]", "x = [\n    # first\n    1,\n    # last\n]\n");
    check("x = # why\n 5", "x =  # why\n5\n");
    check(
        "if a: # one\n # two\n b\n # three\nelse: # four\n c\n # five\nend",
        "if a:  # one\n    # two\n    b\n    # three\nelse:  # four\n    c\n    # five\nend\n",
    );
}

#[test]
fn strings_stay_as_they_are() {
    check("x = 'a' + \"\"\"b\n  c\"\"\" + r\"\\d\"", "x = 'a' + \"\"\"b\n  c\"\"\" + r\"\\d\"\n");
    check("f(\"\"\"a\nb\"\"\")", "f(\"\"\"a\nb\"\"\")\n");
    check("x = 1\r\ny = \"\"\"a\r\nb\"\"\"\r\n", "x = 1\ny = \"\"\"a\nb\"\"\"\n");
}

#[test]
fn texts_with_errors_are_refused() {
    let errors = orrery_syntax::format("x = )").expect_err("there is an error");
    assert_eq!(errors[0].message, "Syntax error at token )");
}
