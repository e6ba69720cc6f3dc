//! Syntax of versions and requirements of modules, by the rules of Python packages (PEP 440 and PEP
//! 508). Only the form is checked, since nothing is installed here.

use std::sync::LazyLock;

use regex::Regex;

const VERSION: &str = r"v?(?:[0-9]+!)?[0-9]+(?:\.[0-9]+)*(?:[-_.]?(?:alpha|a|beta|b|preview|pre|c|rc)[-_.]?[0-9]*)?(?:-[0-9]+|[-_.]?(?:post|rev|r)[-_.]?[0-9]*)?(?:[-_.]?dev[-_.]?[0-9]*)?";
const LOCAL: &str = r"(?:\+[a-z0-9]+(?:[-_.][a-z0-9]+)*)?";

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("invariant: the patterns of versions are valid")
}

pub(crate) fn is_version(text: &str) -> bool {
    static WHOLE: LazyLock<Regex> =
        LazyLock::new(|| pattern(&format!(r"(?i)^\s*{VERSION}{LOCAL}\s*$")));
    WHOLE.is_match(text)
}

/// A purely numeric version: no pre-release, no development version, no local part.
pub(crate) fn is_base_version(text: &str) -> bool {
    static BASE: LazyLock<Regex> =
        LazyLock::new(|| pattern(r"(?i)^\s*v?(?:[0-9]+!)?[0-9]+(?:\.[0-9]+)*\s*$"));
    BASE.is_match(text)
}

/// Fast path: most requirements are a plain name, and building the patterns takes longer than
/// compiling a small model.
fn is_plain_name(text: &str) -> bool {
    let ends = [text.bytes().next(), text.bytes().last()];
    ends.iter().flatten().filter(|byte| byte.is_ascii_alphanumeric()).count() == 2
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// Checks a requirement such as `shop >= 1.2, < 2 ; python_version > "3"`. An error marks the
/// position below the text.
pub(crate) fn check_requirement(text: &str) -> Result<(), String> {
    if is_plain_name(text) {
        return Ok(());
    }
    static NAME: LazyLock<Regex> =
        LazyLock::new(|| pattern(r"^\s*[a-zA-Z0-9][a-zA-Z0-9._-]*\b\s*"));
    static EXTRAS: LazyLock<Regex> = LazyLock::new(|| {
        let name = r"[a-zA-Z0-9](?:[a-zA-Z0-9._-]*[a-zA-Z0-9])?";
        pattern(&format!(r"^\[\s*(?:{name}\s*(?:,\s*{name}\s*)*)?\]\s*"))
    });
    static SPECIFIERS: LazyLock<Regex> = LazyLock::new(|| {
        let one = format!(
            r"(?:===\s*[^\s;)]+|(?:==|!=)\s*{VERSION}(?:\.\*|{LOCAL})|~=\s*v?(?:[0-9]+!)?[0-9]+(?:\.[0-9]+)+[-_.a-z0-9]*|(?:<=|>=|<|>)\s*{VERSION})"
        );
        pattern(&format!(r"(?i)^{one}(?:\s*,\s*{one})*\s*,?\s*"))
    });
    let Some(name) = NAME.find(text) else {
        return Err(point(
            "Expected package name at the start of dependency specifier",
            text,
            0..0,
        ));
    };
    let mut at = name.end();
    if text[at..].starts_with('[') {
        let Some(extras) = EXTRAS.find(&text[at..]) else {
            let problem = "Expected matching RIGHT_BRACKET for LEFT_BRACKET, after extras";
            return Err(point(problem, text, at..text.len()));
        };
        at += extras.end();
    }
    if text[at..].starts_with('@') {
        // A URL: not checked.
        return Ok(());
    }
    let parenthesis = text[at..].starts_with('(').then_some(at);
    if parenthesis.is_some() {
        at += 1;
    }
    let specified = SPECIFIERS.find(&text[at..]).map(|found| at..at + found.end());
    if let Some(specified) = &specified {
        at = specified.end;
    }
    if let Some(opened) = parenthesis {
        if !text[at..].starts_with(')') {
            let problem =
                "Expected matching RIGHT_PARENTHESIS for LEFT_PARENTHESIS, after version specifier";
            return Err(point(problem, text, opened..at));
        }
        at += 1;
    }
    let rest = text[at..].trim_start();
    if let Some(marker) = rest.strip_prefix(';') {
        return check_marker(text, marker);
    }
    if rest.is_empty() {
        return Ok(());
    }
    Err(match specified {
        Some(specified) => point(
            "Expected comma (within version specifier), semicolon (after version specifier) or end",
            text,
            specified,
        ),
        None => {
            let problem = "Expected semicolon (after name with no version specifier) or end";
            point(problem, text, at..at)
        }
    })
}

/// Checks an environment marker. It begins with a known name, or with quoted text.
fn check_marker(text: &str, marker: &str) -> Result<(), String> {
    static START: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r#"^[\s(]*(?:['"]|(?:python_version|python_full_version|os_name|os\.name|sys_platform|sys\.platform|platform_\w+|platform\.\w+|python_implementation|implementation_\w+|extras?|dependency_groups)\b)"#,
        )
    });
    if START.is_match(marker) {
        return Ok(());
    }
    let at = text.len() - marker.trim_start().len();
    Err(point("Expected a marker variable or quoted string", text, at..at))
}

fn point(problem: &str, text: &str, span: std::ops::Range<usize>) -> String {
    let before = " ".repeat(text[..span.start].chars().count());
    let under = "~".repeat(text[span].chars().count());
    format!("{problem}\n    {text}\n    {before}{under}^")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        for good in
            ["1", "1.0.0", "v1.0", "1.0.0rc1", "1.0-1", "1!1.0", "1.0+abc.5", "1.0.dev1", " 1.0 "]
        {
            assert!(is_version(good), "{good}");
        }
        for bad in ["", "abc", "1.0.x", "1.0+", "attr: w.__version__", "1..0"] {
            assert!(!is_version(bad), "{bad}");
        }
        assert!(is_base_version("1.0.0") && !is_base_version("1.0.0.dev1"));
    }

    #[test]
    fn requirements() {
        for good in [
            "m",
            " m ",
            "m >= 1",
            "m>=1,<2",
            "m[extra]",
            "m == 1.*",
            "m ~= v1.2",
            "m === foo",
            "m @ http://x",
            "m.n",
            "m; python_version > '3'",
            "m (>=1)",
            "m>=1.0,",
        ] {
            assert_eq!(check_requirement(good), Ok(()), "{good}");
        }
        let name = "Expected package name at the start of dependency specifier";
        let end = "Expected semicolon (after name with no version specifier) or end";
        for (bad, problem, pointer) in [
            ("!!", name, "^"),
            ("__config__", name, "^"),
            ("", name, "^"),
            ("m>=", end, " ^"),
            ("m ~= 1", end, "  ^"),
            ("m::a", end, " ^"),
            ("m-", end, " ^"),
            ("m[", "Expected matching RIGHT_BRACKET for LEFT_BRACKET, after extras", " ~^"),
            (
                "m>=1 n",
                "Expected comma (within version specifier), semicolon (after version specifier) or end",
                " ~~~~^",
            ),
            ("m ; foo", "Expected a marker variable or quoted string", "    ^"),
        ] {
            assert_eq!(check_requirement(bad), Err(format!("{problem}\n    {bad}\n    {pointer}")));
        }
    }
}
