//! Texts that are too deep or too long end in an error, never in a crash.

use crate::first_error;

/// Runs on the smallest stack that threads usually get.
fn on_small_stack(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(2 * 1024 * 1024).spawn(test);
    thread.expect("a thread can be started").join().expect("no stack overflow, no panic");
}

fn too_deep(text: &str) {
    let error = first_error(text);
    assert!(error.contains("nested too deeply"), "{error} for {}…", &text[..60.min(text.len())]);
    assert!(orrery_syntax::format(text).is_err());
}

#[test]
fn deep_nesting_is_refused() {
    on_small_stack(|| {
        const N: usize = 100_000;
        for (open, close) in [
            ("(", ")"),
            ("[", "]"),
            ("{\"a\": ", "}"),
            ("f(", ")"),
            ("A(x=", ")"),
            ("A[x=", "]"),
            ("a[", "]"),
            ("not ", ""),
            ("a ? ", " : b"),
            ("a ? b : ", ""),
            ("[x for x in ", "]"),
            ("a + (", ")"),
            ("a in not ", ""),
        ] {
            too_deep(&format!("x = {}1{}", open.repeat(N), close.repeat(N)));
        }
        too_deep(&format!("{}{}", "if a:\n".repeat(N), "end\n".repeat(N)));
        too_deep(&format!("{}{}", "for a in b:\n".repeat(N), "end\n".repeat(N)));
        too_deep(&format!("if a:\n{}end\n", "elif a:\n".repeat(N)));
    });
}

#[test]
fn long_chains_are_refused() {
    on_small_stack(|| {
        const N: usize = 100_000;
        too_deep(&format!("x = 1{}", " + 1".repeat(N)));
        too_deep(&format!("x = a{}", ".b".repeat(N)));
        too_deep(&format!("x = a{}", "[b]".repeat(N)));
        too_deep(&format!("x = [a{}]", " for a in b".repeat(N)));
        too_deep(&format!("x = [a for a in b{}]", " if c".repeat(N)));
        let mut nested = "a".to_owned();
        for _ in 0..12 {
            nested = format!("d[{nested}] is defined");
        }
        too_deep_when_lowered(&nested);
    });
}

fn too_deep_when_lowered(expr: &str) {
    let error = first_error(&format!("x = {expr}"));
    assert!(error.contains("nested too deeply"), "{error}");
}

/// Everything that is accepted can be parsed, lowered, formatted, shown and dropped.
#[test]
fn the_deepest_texts_fit_the_stack() {
    on_small_stack(|| {
        for (open, close) in [
            ("(", ")"),
            ("[", "]"),
            ("{\"a\": ", "}"),
            ("f(", ")"),
            ("A(x=", ")"),
            ("a[", "]"),
            ("not ", ""),
            ("a ? ", " : b"),
            ("[x for x in ", "]"),
        ] {
            let text = format!("x = {}1{}", open.repeat(490), close.repeat(490));
            assert!(crate::formatted(&text).len() > 200);
        }
        let blocks = format!("{}{}", "if a:\nb = 1\n".repeat(490), "end\n".repeat(490));
        assert!(crate::formatted(&blocks).len() > 490);
        let chain = format!("x = 1{}", " + 1".repeat(490));
        assert!(crate::formatted(&chain).len() > 490);
        let elifs = format!("if a:\n{}end\n", "elif a:\n".repeat(490));
        assert!(crate::formatted(&elifs).len() > 490);
    });
}

#[test]
fn long_texts_are_fine() {
    let items = "1, ".repeat(200_000);
    crate::valid(&format!("x = [{items}]"));
    crate::valid(&"x = 1\n".repeat(100_000));
    crate::valid(&"# comment\n".repeat(100_000));
    // One run of illegal characters is one mistake; token errors and grammar errors are bounded
    // separately.
    let (illegal, _) = crate::parsed(&";".repeat(100_000));
    assert_eq!(illegal.errors.len(), 1);
    let (illegal, _) = crate::parsed(&"x = ;\n".repeat(100_000));
    assert_eq!(illegal.errors.len(), 2 * 1000);
    let quotes = "\"\\\"".repeat(100_000);
    assert!(first_error(&quotes).contains("Illegal character"));
}

#[test]
fn integers_have_as_many_digits_as_python_reads() {
    crate::valid(&format!("x = {}", "9".repeat(4300)));
    let error = first_error(&format!("x = {}", "9".repeat(4301)));
    assert!(error.starts_with("ValueError: Exceeds the limit (4300 digits)"), "{error}");
}
