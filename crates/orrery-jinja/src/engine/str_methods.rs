//! Python's string functions that filters and methods share.

use std::collections::VecDeque;
use std::rc::Rc;

use orrery_python::{is_space, str_lower, str_upper};

/// Python's `str.center`, which puts the odd blank on the right only sometimes.
pub(super) fn center(text: &str, width: usize, fill: char) -> String {
    let len = text.chars().count();
    let padding = width.saturating_sub(len);
    let left = padding / 2 + (padding & width & 1);
    let repeat = |count: usize| fill.to_string().repeat(count);
    format!("{}{text}{}", repeat(left), repeat(padding - left))
}

/// Splits at Python's line ends, which are dropped unless `keep_ends`.
pub(super) fn split_lines(text: &str, keep_ends: bool) -> Vec<&str> {
    let is_end = |c: char| {
        matches!(
            c,
            '\n' | '\r'
                | '\u{b}'
                | '\u{c}'
                | '\u{1c}'
                | '\u{1d}'
                | '\u{1e}'
                | '\u{85}'
                | '\u{2028}'
                | '\u{2029}'
        )
    };
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(end) = rest.find(is_end) {
        let end_len = if rest[end..].starts_with("\r\n") {
            2
        } else {
            rest[end..].chars().next().map_or(1, char::len_utf8)
        };
        lines.push(&rest[..if keep_ends { end + end_len } else { end }]);
        rest = &rest[end + end_len..];
    }
    if !rest.is_empty() {
        lines.push(rest);
    }
    lines
}

/// The filter `indent`.
pub(super) fn indent(text: &str, indention: &str, first: bool, blank: bool) -> String {
    let text = format!("{text}\n");
    let lines = split_lines(&text, false);
    let mut out = String::new();
    for (index, line) in lines.iter().enumerate() {
        if index > 0 {
            out.push('\n');
            if blank || !line.is_empty() {
                out.push_str(indention);
            }
        } else if first {
            out.push_str(indention);
        }
        out.push_str(line);
    }
    out
}

/// The filter `title`: words begin after blanks, hyphens and opening brackets.
pub(super) fn title(text: &str) -> String {
    let is_separator = |c: char| is_space(c) || matches!(c, '-' | '(' | '{' | '[' | '<');
    let mut out = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let separators = rest.find(|c| !is_separator(c)).unwrap_or(rest.len());
        out.push_str(&rest[..separators]);
        rest = &rest[separators..];
        let word = rest.find(is_separator).unwrap_or(rest.len());
        let first = rest.chars().next().map_or(0, char::len_utf8);
        out.push_str(&str_upper(&rest[..first]));
        out.push_str(&str_lower(&rest[first..word]));
        rest = &rest[word..];
    }
    out
}

/// Python's `str.title`: every run of letters is a word.
pub(super) fn str_title(text: &str) -> String {
    let mut out = String::new();
    let mut after_letter = false;
    for c in text.chars() {
        if after_letter {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
        after_letter = c.is_alphabetic();
    }
    out
}

/// The filter `truncate`; the arguments must fit together.
pub(super) fn truncate(
    text: &str,
    length: usize,
    kill_words: bool,
    end: &str,
    leeway: usize,
) -> String {
    let chars: Vec<char> = text.chars().collect();
    if chars.len() <= length.saturating_add(leeway) {
        return text.to_owned();
    }
    let kept: String = chars[..length.saturating_sub(end.chars().count())].iter().collect();
    let kept =
        if kill_words { kept.as_str() } else { kept.rsplit_once(' ').map_or(&*kept, |p| p.0) };
    format!("{kept}{end}")
}

/// The filter `urlencode` for one text.
pub(super) fn url_quote(text: &str, in_query: bool) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' | b'-' | b'~' => {
                out.push(char::from(byte));
            }
            b'/' if !in_query => out.push('/'),
            b' ' if in_query => out.push('+'),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

/// Escapes HTML's special characters.
pub(super) fn escape(text: &str) -> Rc<str> {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            other => out.push(other),
        }
    }
    out.into()
}

/// Python's `textwrap.wrap` for texts without hyphens, tabs and line ends.
pub(super) fn wrap(text: &str, width: usize, break_long_words: bool) -> Vec<String> {
    // Chunks are words and the blanks between them.
    let mut chunks: VecDeque<&str> = VecDeque::new();
    let mut rest = text;
    while !rest.is_empty() {
        let blank = rest.starts_with(' ');
        let len = rest.find(|c| (c == ' ') != blank).unwrap_or(rest.len());
        chunks.push_back(&rest[..len]);
        rest = &rest[len..];
    }
    let count = |text: &str| text.chars().count();
    let mut lines: Vec<String> = Vec::new();
    while let Some(&first) = chunks.front() {
        // Blanks at the start of every line but the first are dropped.
        if !lines.is_empty() && first.starts_with(' ') {
            chunks.pop_front();
        }
        let mut line: Vec<&str> = Vec::new();
        let mut len = 0;
        while let Some(&chunk) = chunks.front().filter(|chunk| len + count(chunk) <= width) {
            line.push(chunk);
            len += count(chunk);
            chunks.pop_front();
        }
        if let Some(&chunk) = chunks.front().filter(|chunk| count(chunk) > width) {
            if break_long_words {
                // Python adds the part of the word that has room, even an empty one.
                let room = width - len;
                let cut = chunk.char_indices().nth(room).map_or(chunk.len(), |(at, _)| at);
                line.push(&chunk[..cut]);
                chunks[0] = &chunk[cut..];
            } else if line.is_empty() {
                line.push(chunk);
                chunks.pop_front();
            }
        }
        // So the last chunk may be empty; the blanks before it then stay.
        if line.last().is_some_and(|chunk| chunk.trim_start_matches(' ').is_empty()) {
            line.pop();
        }
        if !line.is_empty() {
            lines.push(line.concat());
        }
    }
    lines
}

/// The filter `filesizeformat`.
#[expect(clippy::float_cmp, reason = "Jinja compares exactly")]
pub(super) fn file_size(bytes: f64, binary: bool) -> String {
    let base: f64 = if binary { 1024.0 } else { 1000.0 };
    let prefixes = if binary {
        ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"]
    } else {
        ["kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"]
    };
    if bytes == 1.0 {
        return "1 Byte".to_owned();
    }
    if bytes < base {
        return format!("{} Bytes", bytes.trunc());
    }
    let mut unit = base;
    let mut shown = String::new();
    for prefix in prefixes {
        unit *= base;
        shown = format!("{:.1} {prefix}", base * bytes / unit);
        if bytes < unit {
            break;
        }
    }
    shown
}
