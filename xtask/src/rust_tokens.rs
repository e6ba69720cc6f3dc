//! A small tokenizer of Rust source, enough to follow paths. Test code is left out.

/// A token with its line. Literals are dropped, since no check reads them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub text: String,
    pub line: usize,
}

impl Token {
    pub fn is_identifier(&self) -> bool {
        self.text.starts_with(|c: char| c.is_alphabetic() || c == '_')
    }
}

/// Tokens of code that ships: without comments, literals and items for tests.
pub fn shipped_tokens(source: &str) -> Vec<Token> {
    without_tests(&tokens(source))
}

/// Identifiers, `::` and single punctuation characters.
pub fn tokens(source: &str) -> Vec<Token> {
    let chars: Vec<char> = source.chars().collect();
    let mut found = Vec::new();
    let (mut at, mut line) = (0, 1);
    while let Some(&c) = chars.get(at) {
        let rest = &chars[at..];
        let end = if rest.starts_with(&['/', '/']) {
            at + rest.iter().position(|c| *c == '\n').unwrap_or(rest.len())
        } else if rest.starts_with(&['/', '*']) {
            at + block_comment(rest)
        } else if let Some(length) = string(rest) {
            at + length
        } else if c == '\'' {
            at + character_or_lifetime(rest)
        } else if c.is_alphabetic() || c == '_' {
            // `r#type` is the identifier `type`.
            let raw = if rest.starts_with(&['r', '#']) { 2 } else { 0 };
            let length = word(&rest[raw..]);
            let text = rest[raw..raw + length].iter().collect();
            found.push(Token { text, line });
            at + raw + length
        } else if c.is_ascii_digit() {
            at + word(rest)
        } else if rest.starts_with(&[':', ':']) {
            found.push(Token { text: "::".to_owned(), line });
            at + 2
        } else {
            if !c.is_whitespace() {
                found.push(Token { text: c.to_string(), line });
            }
            at + 1
        };
        line += chars[at..end].iter().filter(|c| **c == '\n').count();
        at = end;
    }
    found
}

fn word(rest: &[char]) -> usize {
    rest.iter().position(|c| !c.is_alphanumeric() && *c != '_').unwrap_or(rest.len())
}

/// Length of a block comment, which may contain others.
fn block_comment(rest: &[char]) -> usize {
    let (mut at, mut depth) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(&['/', '*']) {
            (depth, at) = (depth + 1, at + 2);
        } else if rest[at..].starts_with(&['*', '/']) {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// Length of a string literal of any kind, if one begins here.
fn string(rest: &[char]) -> Option<usize> {
    let prefix = rest.iter().take_while(|c| matches!(c, 'b' | 'r' | 'c')).count().min(2);
    let hashes = rest[prefix..].iter().take_while(|c| **c == '#').count();
    let is_raw = rest[..prefix].contains(&'r');
    if rest.get(prefix + hashes) != Some(&'"') || (hashes > 0 && !is_raw) {
        return None;
    }
    let mut at = prefix + hashes + 1;
    while at < rest.len() {
        match rest[at] {
            '\\' if !is_raw => at += 2,
            '"' if rest[at + 1..].iter().take_while(|c| **c == '#').count() >= hashes => {
                return Some(at + 1 + hashes);
            }
            _ => at += 1,
        }
    }
    Some(rest.len())
}

fn character_or_lifetime(rest: &[char]) -> usize {
    match rest.get(1) {
        Some('\\') => {
            // Skips the escaped character, which may be a quote itself.
            3 + rest[3.min(rest.len())..].iter().position(|c| *c == '\'').map_or(0, |end| end + 1)
        }
        Some(_) if rest.get(2) == Some(&'\'') => 3,
        _ => 1 + word(&rest[1..]),
    }
}

/// Drops items, fields and statements behind `#[cfg(test)]` or `#[test]`.
fn without_tests(all: &[Token]) -> Vec<Token> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < all.len() {
        match attribute_end(all, at) {
            Some(end) if is_test_attribute(&all[at..end]) => at = item_end(all, end),
            Some(end) => {
                kept.extend_from_slice(&all[at..end]);
                at = end;
            }
            None => {
                kept.push(all[at].clone());
                at += 1;
            }
        }
    }
    kept
}

/// Returns the position behind the outer attribute that begins here.
fn attribute_end(all: &[Token], at: usize) -> Option<usize> {
    let opens = all.get(at)?.text == "#" && all.get(at + 1)?.text == "[";
    opens.then(|| group_end(all, at + 1))
}

/// Returns true for `#[test]`, `#[cfg(test)]` and `#[cfg(all(test, …))]`.
fn is_test_attribute(attribute: &[Token]) -> bool {
    let words: Vec<&str> = attribute.iter().map(|token| token.text.as_str()).collect();
    matches!(words.as_slice(), ["#", "[", "test", "]"] | ["#", "[", "cfg", "(", "test", ")", "]"])
        || words.starts_with(&["#", "[", "cfg", "(", "all", "(", "test"])
}

/// Returns the position behind the brackets that open at `at`.
fn group_end(all: &[Token], at: usize) -> usize {
    let mut depth = 0_usize;
    for (index, token) in all.iter().enumerate().skip(at) {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return index + 1;
                }
            }
            _ => {}
        }
    }
    all.len()
}

/// Returns the position behind an item, field, arm or statement, with its other attributes.
fn item_end(all: &[Token], mut at: usize) -> usize {
    while let Some(end) = attribute_end(all, at) {
        at = end;
    }
    let head = &all[at..(at + 8).min(all.len())];
    let keyword = head.iter().map(|token| token.text.as_str()).find(|word| {
        matches!(
            *word,
            "use" | "type" | "static" | "let" | "fn" | "impl" | "mod" | "struct" | "enum" | "trait"
        )
    });
    let ends_with_semicolon = matches!(keyword, Some("use" | "type" | "static" | "let"));
    while let Some(token) = all.get(at) {
        match token.text.as_str() {
            ";" => return at + 1,
            "," if keyword.is_none() => return at + 1,
            "{" if !ends_with_semicolon => return group_end(all, at),
            "(" | "[" | "{" => at = group_end(all, at),
            ")" | "]" | "}" => return at,
            _ => at += 1,
        }
    }
    at
}

/// One name that a path or a use tree ends with.
pub struct Leaf {
    pub path: Vec<String>,
    /// The name in scope: of the path's end or behind `as`.
    pub name: String,
    pub line: usize,
}

/// Reads a path or use tree at `at`; returns the position behind it.
pub fn use_tree(
    tokens: &[Token],
    mut at: usize,
    prefix: &[String],
    leaves: &mut Vec<Leaf>,
) -> usize {
    let mut path = prefix.to_vec();
    let line = tokens.get(at).map_or(0, |token| token.line);
    loop {
        match tokens.get(at) {
            Some(token) if token.text == "{" => {
                at += 1;
                while tokens.get(at).is_some_and(|token| token.text != "}") {
                    let next = use_tree(tokens, at, &path, leaves);
                    let comma = tokens.get(next).is_some_and(|token| token.text == ",");
                    // What is neither a name nor a comma is no use tree.
                    at = if comma || next == at { next.max(at) + 1 } else { next };
                }
                return at + 1;
            }
            Some(token) if token.is_identifier() || token.text == "*" => {
                path.push(token.text.clone());
                at += 1;
            }
            _ => break,
        }
        if tokens.get(at).is_some_and(|token| token.text == "::") {
            at += 1;
        } else {
            break;
        }
    }
    let mut name = path.iter().rfind(|name| *name != "self").cloned().unwrap_or_default();
    if tokens.get(at).is_some_and(|token| token.text == "as")
        && let Some(alias) = tokens.get(at + 1)
    {
        name.clone_from(&alias.text);
        at += 2;
    }
    if path.len() > prefix.len() {
        leaves.push(Leaf { path, name, line });
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(source: &str) -> Vec<String> {
        shipped_tokens(source).into_iter().map(|token| token.text).collect()
    }

    #[test]
    fn literals_and_comments_are_no_tokens() {
        let source = r##"a /* b /* c */ d */ 'e' '\'' '\u{41}' "f \" g" r#"h " i"# b"j" 1.5e3 k"##;
        assert_eq!(words(source), ["a", ".", "k"]);
        assert_eq!(words("x::<'a>(r#type) // y::z"), ["x", "::", "<", ">", "(", "type", ")"]);
    }

    #[test]
    fn lines_are_counted_through_literals() {
        let found = tokens("a\n\"\n\n\" /*\n*/ b");
        assert_eq!((found[0].line, found[1].line), (1, 5));
    }

    #[test]
    fn code_for_tests_is_left_out() {
        let source = "fn a() {}\n#[cfg(test)]\nmod tests { use b; }\n#[cfg(test)] use c::{d};
            struct E { #[cfg(test)] f: G, h: I }
            #[test]\n#[ignore]\nfn j<K, L>() {}\n#[cfg(unix)] fn m() {}";
        let found = words(source);
        for name in ["b", "c", "d", "f", "G", "j", "L", "ignore"] {
            assert!(!found.contains(&name.to_owned()), "{name} in {found:?}");
        }
        for name in ["a", "h", "I", "m"] {
            assert!(found.contains(&name.to_owned()), "{name} not in {found:?}");
        }
    }
}
