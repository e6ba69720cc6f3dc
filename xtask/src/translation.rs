//! APIs translate: they parse, call the application layer, and convert the result.
//!
//! A change of the store is a decision, so only the application layer makes one. Its functions send
//! the wake-ups that belong to their changes, too.

use crate::rust_tokens::shipped_tokens;
use crate::{TextFile, Violation};

/// Directories of code that only translates.
pub const APIS: [&str; 2] = ["crates/orrery-server/src/routes/", "crates/orrery-inmanta-api/src/"];
/// Methods of `Services` that change something.
const CHANGES: [&str; 3] = ["change", "try_change", "wake_up"];

/// Changes in shipped code of the APIs.
pub fn check(files: &[TextFile]) -> Vec<Violation> {
    let is_api = |file: &&TextFile| {
        file.extension() == "rs" && APIS.iter().any(|api| file.path.starts_with(api))
    };
    let mut violations = Vec::new();
    for file in files.iter().filter(is_api) {
        let tokens = shipped_tokens(&file.text);
        for three in tokens.windows(3) {
            let name = three[1].text.as_str();
            if three[0].text == "." && CHANGES.contains(&name) && three[2].text == "(" {
                let place = format!("{}:{}", file.path, three[1].line);
                let problem = format!(
                    "calls {name}: APIs translate, and rules belong to crates/orrery-server/src/app"
                );
                violations.push(Violation::new(place, problem));
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> Vec<String> {
        check(&[TextFile::new(path, text)]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn changes_in_apis_are_found() {
        for api in APIS {
            let path = format!("{api}a.rs");
            for name in CHANGES {
                assert_eq!(problems(&path, &format!("fn f() {{ app.{name}(x) }}")).len(), 1);
            }
            assert!(
                problems(&path, "\nfn f() { a\n.change(x) }")[0].starts_with(&format!("{path}:3"))
            );
        }
    }

    #[test]
    fn reads_calls_of_rules_and_tests_are_fine() {
        let api = format!("{}a.rs", APIS[0]);
        for text in [
            "fn f() { app.with_store(x) }",
            "fn f() { settings::change(x) }",
            "struct A { change: u8 }",
            "#[cfg(test)] mod tests { fn f() { app.change(x) } }",
        ] {
            assert_eq!(problems(&api, text), [""; 0], "{text}");
        }
        assert!(problems("crates/orrery-server/src/app/a.rs", "fn f() { a.change(x) }").is_empty());
    }
}
