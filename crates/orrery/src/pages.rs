//! Pages about diagnostics, and their rendering on a terminal.

use crate::style;

include!(concat!(env!("OUT_DIR"), "/diagnostic_pages.rs"));

/// Text width if the terminal width is unknown.
const WIDTH: usize = 80;
/// Maximum text width; longer lines are hard to read.
const WIDTH_MAX: usize = 100;

/// Returns the page of a diagnostic as Markdown.
pub(crate) fn find(id: &str) -> Option<&'static str> {
    let at = PAGES.binary_search_by(|(of, _)| (*of).cmp(id)).ok()?;
    Some(PAGES[at].1)
}

/// Returns the id if it has a page.
pub(crate) fn known_id(id: &str) -> Option<&'static str> {
    let at = PAGES.binary_search_by(|(of, _)| (*of).cmp(id)).ok()?;
    Some(PAGES[at].0)
}

/// All ids with the first sentences of their pages, sorted.
pub(crate) fn all() -> impl Iterator<Item = (&'static str, String)> {
    PAGES.iter().map(|(id, page)| (*id, summary(page)))
}

/// The first sentence of the first paragraph.
fn summary(page: &str) -> String {
    let text = page.lines().find(|line| !line.is_empty() && !line.starts_with('#'));
    let text = plain(text.unwrap_or_default());
    let end = text.find(". ").or_else(|| text.find(": ")).unwrap_or(text.len());
    text[..end].trim_end_matches(['.', ':']).to_owned()
}

/// Renders a page for a terminal: bold headings, indented code, wrapped text.
pub(crate) fn rendered(page: &str, width: Option<usize>) -> String {
    let width = width.unwrap_or(WIDTH).min(WIDTH_MAX);
    let mut out = String::new();
    let mut paragraph = String::new();
    let mut in_code = false;
    for line in page.lines() {
        let is_text = !in_code
            && !line.is_empty()
            && !line.starts_with(['#', '|'])
            && !line.starts_with("```");
        if !is_text || line.starts_with("- ") {
            wrap(&std::mem::take(&mut paragraph), width, &mut out);
        }
        if let Some(info) = line.strip_prefix("```") {
            in_code = !in_code;
            match info.split_once("file=") {
                Some((_, path)) => out.push_str(&format!("{path}:\n\n")),
                None if info == "error" => out.push_str("In reports, it reads:\n\n"),
                None => {}
            }
        } else if in_code {
            let indent = if line.is_empty() { "" } else { "    " };
            out.push_str(&format!("{indent}{line}\n"));
        } else if let Some(heading) = line.strip_prefix('#') {
            let heading = style::heading(heading.trim_start_matches('#').trim());
            out.push_str(&format!("{heading}\n"));
        } else if is_text {
            paragraph.push_str(&plain(line));
            paragraph.push(' ');
        } else {
            out.push_str(&format!("{line}\n"));
        }
    }
    wrap(&paragraph, width, &mut out);
    out
}

/// Replaces links by their texts.
fn plain(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(open) = rest.find('[') {
        let (before, from) = rest.split_at(open);
        out.push_str(before);
        let link = from.find("](").and_then(|middle| {
            let end = from[middle..].find(')')? + middle;
            Some((&from[1..middle], &from[end + 1..]))
        });
        match link {
            Some((text, after)) if !text.contains('[') => {
                out.push_str(text);
                rest = after;
            }
            _ => {
                out.push('[');
                rest = &from[1..];
            }
        }
    }
    out + rest
}

fn wrap(line: &str, width: usize, out: &mut String) {
    if line.is_empty() {
        return;
    }
    let indent = if line.starts_with("- ") { "  " } else { "" };
    let mut column = 0;
    for word in line.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > width {
            out.push('\n');
            out.push_str(indent);
            column = indent.len();
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_has_a_summary_and_can_be_shown() {
        let pages: Vec<_> = all().collect();
        assert!(pages.len() > 80, "{}", pages.len());
        for (id, summary) in pages {
            assert!(!summary.is_empty() && !summary.contains("]("), "{id}: {summary}");
            let page = rendered(find(id).expect("it was listed"), Some(72));
            assert!(!page.contains("```") && page.contains("Remedy"), "{id}:\n{page}");
        }
    }

    #[test]
    fn a_page_is_wrapped_and_its_code_is_not() {
        let page = "# a\n\none two\n[three](x.md) four\n\n```error\na long line of code\n```\n";
        let plain = anstream::adapter::strip_str(&rendered(page, Some(10))).to_string();
        let expected =
            "a\n\none two\nthree four\n\nIn reports, it reads:\n\n    a long line of code\n";
        assert_eq!(plain, expected);
    }
}
