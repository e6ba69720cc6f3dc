//! Types of parameters and results, defaults, and the kinds of parameters.

use orrery_compiler::value::Value;

use crate::test_host::{TestHost, message};

const MODULE: &str = "
entity T:
end
implement T using std::none
typedef small as int matching self < 10
";

/// The message of a call of `m::f`, which has one parameter.
fn called_with(ty: &str, argument: &str) -> String {
    let mut host =
        TestHost::default().with("m::f", &[&format!("a: {ty}")], "any", |_, _| Ok(Value::Null));
    message(&host.compile(MODULE, &format!("import m\nx = m::f({argument})\n")))
}

fn refused(ty: &str, argument: &str) -> Option<(String, String)> {
    let message = called_with(ty, argument);
    let (first, cause) = message.split_once("\ncaused by:\n  ")?;
    let expected = first.split_once("Expected type: ")?.1.split_once(" (reported")?.0;
    Some((expected.to_owned(), cause.split_once(" (reported")?.0.to_owned()))
}

#[test]
fn arguments_are_checked_against_types_of_the_plugins_namespace() {
    let cases = [
        ("T?", "2", "m::T?", "Invalid type for value '2', should be type m::T"),
        ("small[]?", "20", "m::small[]?", "Invalid value '20', expected m::small[]"),
        (
            "Union[int,string]",
            "1.5",
            "Union[int,string]",
            "Invalid value '1.5', expected Union[int,string]",
        ),
        (
            "Union[int,string[]]?",
            "'a'",
            "Union[int,string[]]?",
            "Invalid value 'a', expected Union[int,string[]]",
        ),
        (
            "dict[string, int]",
            "{'a': 1, 'b': 'x'}",
            "dict[string, int]",
            "Invalid value 'x', expected int",
        ),
        ("(dict[string, int])?", "2", "(dict[string, int])?", "Invalid value '2', expected dict"),
        (
            "(Union[T,int])[]",
            "[1, 'a']",
            "(Union[m::T,int])[]",
            "Invalid value 'a', expected Union[m::T,int]",
        ),
        ("null", "1", "null", "Invalid value '1', expected null"),
    ];
    for (ty, argument, expected, cause) in cases {
        assert_eq!(refused(ty, argument), Some((expected.into(), cause.into())), "{ty} {argument}");
    }
}

#[test]
fn arguments_that_fit_are_taken() {
    let cases = [
        ("T?", "null"),
        ("small", "9"),
        ("Union[int,string[]]?", "['a']"),
        ("Union[any,int]", "1.5"),
        ("dict[string, any]", "{'a': m::T()}"),
        ("dict[string, Union[int,T]]", "{'a': m::T(), 'b': 1}"),
        ("(dict[string, int])?", "null"),
        ("list", "[m::T()]"),
        ("Reference[any] | any", "1"),
    ];
    for (ty, argument) in cases {
        assert_eq!(called_with(ty, argument), "", "{ty} {argument}");
    }
}

#[test]
fn a_type_that_does_not_exist_is_an_error_of_the_plugin() {
    assert_eq!(
        called_with("Nope[]", "1"),
        "could not find type Nope in namespace m (./libs/m/plugins/__init__.py:3:1)"
    );
    assert_eq!(
        called_with("q::Nope", "1"),
        "could not find type q::Nope in namespace m.\nTry importing the module with `import q` in \
         ./libs/m/model/_init.cf (./libs/m/plugins/__init__.py:3:1)"
    );
}

#[test]
fn a_result_of_another_type_is_refused() {
    let compiled = TestHost::default()
        .with("m::f", &[], "int", |context, _| Ok(context.heap_mut().str("x")))
        .compile("", "import m\nx = m::f()\n");
    assert_eq!(
        message(&compiled),
        "Return value x of plugin m::f has incompatible type. Expected type: int (reported in \
         m::f() (./main.cf:2:5))\ncaused by:\n  Invalid value 'x', expected int (reported in \
         m::f() (./main.cf:2:5))"
    );
}

#[test]
fn defaults_are_unchecked_and_marked_as_omitted() {
    let params = [
        "a: int = null",
        "b: any = 'text'",
        "c: any = [1.5]",
        "d: int = kept",
        "*e: int",
        "**f: int",
    ];
    let mut host = TestHost::default().with("m::f", &params, "any", |context, call| {
        let shown: Vec<String> = call.args.iter().map(|&arg| context.repr(arg)).collect();
        context.print(&format!("{} omitted {:?}", shown.join(" "), call.omitted));
        Ok(Value::Null)
    });
    let main = "import m\nm::f()\n";
    assert_eq!(
        host.compile("", main).output,
        "null 'text' [1.5] null [] {} omitted [0, 1, 2, 3]\n"
    );
    let main = "import m\nm::f(1, d=2, g=3)\nm::f(1, 2, 3, 4, 5, 6)\n";
    let output = host.compile("", main).output;
    assert!(output.contains("1 'text' [1.5] 2 [] {'g': 3} omitted [1, 2]\n"), "{output}");
    assert!(output.contains("1 2 3 4 [5, 6] {} omitted []\n"), "{output}");
    let message = message(&host.compile("", "import m\nm::f(1, 2, 3, 'x')\n"));
    assert!(message.starts_with("Value 'x' for argument d of plugin m::f"), "{message}");
}
