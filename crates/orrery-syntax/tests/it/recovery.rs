//! One mistake is one error: consequences are not reported, and the text after it is still parsed.

use orrery_syntax::LineIndex;

use crate::parsed;

/// The models of a text, which are separated by lines `=== title`, each with its errors.
fn errors_of(models: &str) -> String {
    let mut shown = String::new();
    for model in models.split("=== ").filter(|model| !model.trim().is_empty()) {
        let (title, text) = model.split_once('\n').expect("a title");
        let (parsed, _) = parsed(text);
        let lines = LineIndex::new(text);
        shown += &format!("{title}\n");
        for error in &parsed.errors {
            let (line, column) = lines.line_col(error.loc.start);
            shown += &format!("  {line}:{column} {}\n", error.message);
        }
    }
    shown
}

fn check(name: &str, models: &str) {
    insta::with_settings!({omit_expression => true}, {
        insta::assert_snapshot!(name, errors_of(models));
    });
}

#[test]
fn a_block_is_read_as_one_whatever_is_wrong_before_it() {
    check(
        "headers",
        r#"
=== entity without colon
entity A
    int x
    string y = "a"
end
implement A using std::none
x = A(x=1)
=== entity extends without colon
entity A extends B
    """ doc """
    int x
end
x = 1
=== implementation without colon
implementation a for A
    self.x = 1
    y = 2
end
x = 1
=== for without colon
for i in [1, 2]
    std::print(i)
end
x = 1
=== if without colon
if x == 1
    std::print(i)
else:
    std::print(2)
end
x = 1
=== else without colon
if x == 1:
    std::print(i)
else
    std::print(2)
end
x = 1
=== if with one equals
if x = 1:
    std::print(i)
end
x = 1
=== bad condition
if x == :
    std::print(i)
elif y:
    a = 1
end
x = 1
=== for without in
for i of list:
    std::print(i)
end
x = 1
=== no block after a broken header
entity
x = 1
y = )
"#,
    );
}

#[test]
fn a_missing_end_is_one_error() {
    check(
        "ends",
        r"
=== entity without end
entity A:
    int x

entity B:
    int y
end
x = 1
=== entity without end at the end
entity A:
    int x
x = 1
=== implementation without end
implementation a for A:
    self.x = 1

implementation b for A:
    self.x = 1
end
x = 1
=== if without end
implementation a for A:
    if self.x == 1:
        y = 1
end
implement A using a
=== if without end at top
if x == 1:
    y = 1
z = 2
=== one end too many
entity A:
    int x
end
end
x = 1
=== two blocks without end
implementation a for A:
    for i in [1]:
        if i == 1:
            x = 1
entity B:
    int x
end
y = )
",
    );
}

#[test]
fn a_mistake_inside_brackets_is_one_error() {
    check(
        "brackets",
        r#"
=== missing equals
x = 1
y 1 = 2
z = 3
=== missing equals in constructor
x = A(
    a 1,
    b=2,
    c=[
        3,
    ],
)
y = 2
=== missing comma in constructor
x = A(
    a=1
    b=2,
    c=3,
)
y = 2
=== missing comma in dict
x = {
    "a": 1
    "b": 2,
    "c": {
        "d": 1,
    },
}
y = 2
=== missing comma in list
x = [
    1,
    2
    3,
    4,
]
y = 2
=== unclosed list
x = [1, 2
y = 3
z = 4
=== unclosed constructor
x = A(a=1, b=2
y = 3
z = 4
=== unclosed call before definition
std::print("a"
entity A:
    int x
end
=== unclosed bracket in a block
implementation a for A:
    x = [1, 2
    y = 3
end
z = 1
=== unclosed multi-line constructor
x = A(
    a=1,
    b=2,
y = 3
z = 4
=== closing too much
x = [1, 2]]
y = 3
=== wrong bracket
x = [1, 2)
y = 3
=== unclosed string
x = "abc def
y = 3
=== unclosed string in a call
std::print("abc def)
y = 3
=== unclosed string in a list of lines
x = A(
    a="one,
    b=2,
)
y = )
"#,
    );
}

#[test]
fn other_mistakes_are_one_error_each() {
    check(
        "others",
        r#"
=== relation without arity
A.x -- B.y [1]
y = 3
=== relation with a bad arity
A.x [0:n] -- B.y [1]
y = 3
=== attribute without a name
entity A:
    int
    string y
end
x = 1
=== attribute with a bad default
entity A:
    int x = 1 + 1
    string y
end
x = 1
=== typedef without matching
typedef a as int self > 1
x = 1
=== semicolon
x = 1;
y = 2
=== keyword as an attribute
entity A:
    string index
    int y
end
x = 1
=== dot instead of double colon
x = std.print("a")
y = 1
=== import with a dot
import a.b
x = 1
=== implement without using
implement A
x = 1
"#,
    );
}

#[test]
fn every_mistake_is_found() {
    check(
        "several",
        r"
=== several mistakes
x = )
entity A
    int x
end
y = [1 2]
for i in z
    a = }
end
c = 3
",
    );
}
