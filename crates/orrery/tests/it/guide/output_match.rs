//! Compares the output of a command with its page.

use std::sync::LazyLock;

use regex::Regex;

/// Normalizes text that varies between runs, and its alignment.
fn normalised(line: &str) -> String {
    static CHANGING: LazyLock<[(Regex, &str); 10]> = LazyLock::new(|| {
        let regex = |pattern: &str| Regex::new(pattern).expect("a valid pattern");
        [
            (regex(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?Z"), "TIME"),
            (regex(r"\d\d:\d\d:\d\d\.\d{3}"), "CLOCK"),
            (regex(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "ID"),
            (regex(r"\b[0-9a-f]{7,64}\b"), "HASH"),
            (regex(r"\b[0-9,]+ (s|min|h|days?) ago\b"), "AGO"),
            (regex(r"\b[0-9.]+ (ms|s)\b"), "SPAN"),
            (regex(r"Python 3\.\d+\.\d+"), "PYTHON"),
            (regex(r"orrery \d+\.\d+\.\d+\S*"), "VERSION"),
            (regex(r"\b(orr|orrj|ors)_[A-Za-z0-9_-]+"), "${1}_EXAMPLE"),
            (regex(r" +"), " "),
        ]
    });
    let line = line.trim_end().to_owned();
    CHANGING.iter().fold(line, |line, (regex, word)| regex.replace_all(&line, *word).into_owned())
}

/// True if the output matches the page. A line `…` matches any lines, and `…` in a line any text.
pub(super) fn agrees(page: &[String], actual: &[String]) -> bool {
    // Omitted lines must not contain a failure.
    let failure = |lines: &[String]| lines.iter().find(|line| line.starts_with("[exit ")).cloned();
    if failure(page) != failure(actual) {
        return false;
    }
    let without_end = |lines: &[String]| {
        let end = lines.iter().rposition(|line| !line.trim().is_empty()).map_or(0, |at| at + 1);
        lines[..end].iter().map(|line| normalised(line)).collect::<Vec<_>>()
    };
    lines_agree(&without_end(page), &without_end(actual))
}

fn lines_agree(page: &[String], actual: &[String]) -> bool {
    match (page, actual) {
        ([], []) => true,
        ([any, rest @ ..], _) if any.trim() == "…" => {
            (0..=actual.len()).any(|skipped| lines_agree(rest, &actual[skipped..]))
        }
        ([wanted, page @ ..], [found, actual @ ..]) => {
            line_agrees(wanted, found) && lines_agree(page, actual)
        }
        _ => false,
    }
}

fn line_agrees(wanted: &str, found: &str) -> bool {
    let Some((start, rest)) = wanted.split_once('…') else { return wanted == found };
    let Some(found) = found.strip_prefix(start) else { return false };
    (0..=found.len())
        .filter(|at| found.is_char_boundary(*at))
        .any(|at| line_agrees(rest, &found[at..]))
}

/// Tests of the comparison itself.
pub(super) fn check_the_comparison() -> anyhow::Result<()> {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    for (page, actual, expected) in [
        ("a in 12 ms\n", "a in 3.4 s", true),
        ("a\n…\nd", "a\nb\nc\nd", true),
        ("a\n…", "a", true),
        ("a\n…\nd", "a\nb", false),
        ("made …, as ever", "made 7 things, as ever", true),
        ("made …, as ever", "made 7 things", false),
        ("a", "a\nb", false),
        ("a\n…", "a\n[exit 1]", false),
        ("orr_EXAMPLE", "orr_x7-Y_z", true),
    ] {
        anyhow::ensure!(
            agrees(&lines(page), &lines(actual)) == expected,
            "{page:?} and {actual:?}"
        );
    }
    Ok(())
}
