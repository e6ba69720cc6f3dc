//! Splits command strings into words, by the rules of Python's `shlex`, which existing models rely
//! on. Quotes and backslashes work as in a shell; nothing else is special.

/// Splits a command; `None` with an unclosed quote or a trailing backslash.
pub(crate) fn split(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    // An empty pair of quotes is a word, too.
    let mut word: Option<String> = None;
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            ' ' | '\t' | '\r' | '\n' => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match rest.next()? {
                        '\'' => break,
                        c => word.push(c),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match rest.next()? {
                        '"' => break,
                        '\\' => match rest.next()? {
                            c @ ('"' | '\\') => word.push(c),
                            c => word.extend(['\\', c]),
                        },
                        c => word.push(c),
                    }
                }
            }
            '\\' => word.get_or_insert_default().push(rest.next()?),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn words_match_python_shlex() {
        let cases: [(&str, &[&str]); 9] = [
            ("", &[]),
            ("  a  b\tc\n", &["a", "b", "c"]),
            (r#"sh -c "echo \"x\" \$HOME""#, &["sh", "-c", r#"echo "x" \$HOME"#]),
            (r"a\ b c\'d", &["a b", "c'd"]),
            ("'a  b'c ''", &["a  bc", ""]),
            (r#"'a\' "b\\""#, &[r"a\", r"b\"]),
            ("echo # no comment", &["echo", "#", "no", "comment"]),
            ("a;b|c>$d*", &["a;b|c>$d*"]),
            (r#"sh -c 'a'"'"'b'"#, &["sh", "-c", "a'b"]),
        ];
        for (text, words) in cases {
            assert_eq!(split(text).unwrap(), words, "{text}");
        }
    }

    #[test]
    fn unclosed_quotes_are_rejected() {
        for text in ["'a", "\"a", "a\\", "\"a\\"] {
            assert_eq!(split(text), None, "{text}");
        }
    }
}
