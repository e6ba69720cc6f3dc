//! Source lines around some spans, cut so that a diagnostic stays short and cheap for long files
//! and lines.

use std::ops::Range;

/// Longer lines are cut; the renderer fits shorter ones into the terminal.
const LINE_BYTES_MAX: usize = 400;
/// Length of the visible part of a cut line, and its share before the span.
const WINDOW_BYTES: usize = 120;
const LEAD_BYTES: usize = 50;
/// Maximum distance in lines of spans in one excerpt.
pub(crate) const LINES_MAX: usize = 400;

/// Some lines, and the position of each requested span in them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Excerpt {
    pub(crate) text: String,
    /// `None` for a span that was cut off.
    pub(crate) spans: Vec<Option<Range<usize>>>,
}

/// Cuts the lines with `places` out of `text`. Marks only the first line of a span. Always contains
/// the first span.
pub(crate) fn cut(text: &str, places: &[Range<usize>]) -> Excerpt {
    let places: Vec<Range<usize>> = places.iter().map(|place| on_one_line(text, place)).collect();
    let first = places.iter().map(|place| place.start).min().unwrap_or(0);
    let last = places.iter().map(|place| place.start).max().unwrap_or(0);
    let mut excerpt = Excerpt { text: String::new(), spans: vec![None; places.len()] };
    let mut at = line_start(text, first);
    for line in text[at..line_end(text, last)].split('\n') {
        let range = at..at + line.len();
        let here = |place: &Range<usize>| range.start <= place.start && place.start <= range.end;
        let focus = places.iter().find(|place| here(place));
        let window = window(line, focus.map(|place| place.start - range.start));
        if !excerpt.text.is_empty() || at > line_start(text, first) {
            excerpt.text.push('\n');
        }
        if window.start > 0 {
            excerpt.text.push('…');
        }
        let shown_at = excerpt.text.len();
        excerpt.text.push_str(&line[window.clone()]);
        if window.end < line.len() {
            excerpt.text.push('…');
        }
        let window = range.start + window.start..range.start + window.end;
        for (place, span) in places.iter().zip(&mut excerpt.spans) {
            if here(place) && window.start <= place.start && place.start <= window.end {
                let end = place.end.min(window.end);
                *span = Some(shown_at + place.start - window.start..shown_at + end - window.start);
            }
        }
        at = range.end + 1;
    }
    excerpt
}

/// Visible part of a line that contains `focus`.
fn window(line: &str, focus: Option<usize>) -> Range<usize> {
    if line.len() <= LINE_BYTES_MAX {
        return 0..line.len();
    }
    let lead = focus.unwrap_or(0).saturating_sub(LEAD_BYTES);
    let start = if lead < LEAD_BYTES { 0 } else { line.floor_char_boundary(lead) };
    start..line.floor_char_boundary(start + WINDOW_BYTES)
}

/// Part of a span on its first line, inside the text and at character boundaries.
fn on_one_line(text: &str, place: &Range<usize>) -> Range<usize> {
    let start = text.floor_char_boundary(place.start.min(text.len()));
    let end = text.ceil_char_boundary(place.end.min(line_end(text, start)));
    start..end.max(start)
}

fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |newline| newline + 1)
}

fn line_end(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |newline| at + newline)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(
        text: &str,
        place: Range<usize>,
        other: Option<Range<usize>>,
    ) -> (String, Vec<String>) {
        let places: Vec<Range<usize>> = std::iter::once(place).chain(other).collect();
        let excerpt = cut(text, &places);
        let marked = excerpt.spans.iter().map(|span| {
            span.clone().map_or("(cut away)".to_owned(), |span| excerpt.text[span].to_owned())
        });
        let marked = marked.collect();
        (excerpt.text, marked)
    }

    fn strings(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn only_the_lines_between_the_places_are_kept() {
        let text = "one\ntwo\nthree\nfour\nfive\n";
        assert_eq!(rendered(text, 4..7, None), ("two".into(), strings(&["two"])));
        let (lines, marked) = rendered(text, 14..18, Some(5..6));
        assert_eq!((lines.as_str(), marked), ("two\nthree\nfour", strings(&["four", "w"])));
    }

    #[test]
    fn empty_lines_and_the_end_of_the_text_are_places_too() {
        assert_eq!(rendered("a\n\nb", 2..2, None), (String::new(), strings(&[""])));
        assert_eq!(rendered("a\n\nb", 3..4, Some(2..2)), ("\nb".into(), strings(&["b", ""])));
        assert_eq!(rendered("a\nb\n", 4..4, None), (String::new(), strings(&[""])));
        assert_eq!(rendered("", 0..0, None), (String::new(), strings(&[""])));
        assert_eq!(rendered("ab", 7..9, None), ("ab".into(), strings(&[""])));
    }

    #[test]
    fn a_place_over_several_lines_is_marked_on_its_first() {
        assert_eq!(
            rendered("if a:\n  b\nend\n", 0..12, None),
            ("if a:".into(), strings(&["if a:"]))
        );
    }

    #[test]
    fn long_lines_are_cut_around_the_first_place_at_whole_characters() {
        let text = format!("{}needle{}", "é".repeat(5_000), "è".repeat(5_000));
        let (line, marked) = rendered(&text, 10_000..10_006, Some(3..5));
        assert_eq!(marked, strings(&["needle", "(cut away)"]));
        assert!(line.starts_with("…é") && line.ends_with("è…"), "{line}");
        assert!(line.len() <= WINDOW_BYTES + 6, "{}", line.len());
        let (_, marked) = rendered(&text, 10_001..40_000, None);
        assert!(marked[0].starts_with("eedleè"), "{marked:?}");
    }
}
