//! Styles of messages; diagnostics have their own.

use anstyle::{AnsiColor, Effects, Style};
use orrery_base::line_diff::{DiffLine, LineKind};

const GOOD: Style = AnsiColor::Green.on_default().effects(Effects::BOLD);
const ERROR: Style = AnsiColor::BrightRed.on_default().effects(Effects::BOLD);
const WARNING: Style = AnsiColor::Yellow.on_default().effects(Effects::BOLD);
const HELP: Style = AnsiColor::BrightCyan.on_default().effects(Effects::BOLD);
const HEADING: Style = Style::new().effects(Effects::BOLD);
const ADDED: Style = AnsiColor::Green.on_default();
const CHANGED: Style = AnsiColor::Yellow.on_default();
const REMOVED: Style = AnsiColor::Red.on_default();

fn styled(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

pub(crate) fn good(text: &str) -> String {
    styled(GOOD, text)
}

pub(crate) fn error(text: &str) -> String {
    styled(ERROR, text)
}

pub(crate) fn warning(text: &str) -> String {
    styled(WARNING, text)
}

pub(crate) fn help(text: &str) -> String {
    styled(HELP, text)
}

pub(crate) fn heading(text: &str) -> String {
    styled(HEADING, text)
}

pub(crate) fn added(text: &str) -> String {
    styled(ADDED, text)
}

pub(crate) fn changed(text: &str) -> String {
    styled(CHANGED, text)
}

pub(crate) fn removed(text: &str) -> String {
    styled(REMOVED, text)
}

/// A line of a diff with its sign, in its color.
pub(crate) fn diff_line(line: &DiffLine) -> String {
    in_diff_color(line.kind, format!("{}{}", line.kind.sign(), sanitize(line.content())))
}

/// Colors the text of a line of a diff.
pub(crate) fn in_diff_color(kind: LineKind, text: String) -> String {
    match kind {
        LineKind::Removed => removed(&text),
        LineKind::Added => added(&text),
        LineKind::Unchanged => text,
    }
}

/// Replaces terminal control characters of an untrusted text by visible ones.
pub(crate) fn sanitize(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' => '\n',
            '\t' => ' ',
            // Pictures of control characters are in the same order.
            '\0'..='\x1f' => char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{fffd}'),
            '\x7f' => '\u{2421}',
            // C1 controls and bidirectional overrides.
            '\u{80}'..='\u{9f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
            other => other,
        })
        .collect()
}

/// `1 file`, `2 files`, with a comma at every thousand.
pub(crate) fn count(number: usize, noun: &str) -> String {
    let plural = match noun.strip_suffix('y') {
        _ if number == 1 => noun.to_owned(),
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{stem}ies"),
        _ => format!("{noun}s"),
    };
    format!("{} {plural}", grouped(number))
}

/// `1,234,567`
pub(crate) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// `12 ms`, `3.4 s`
pub(crate) fn duration(time: std::time::Duration) -> String {
    if time.as_secs() >= 1 {
        return format!("{:.1} s", time.as_secs_f64());
    }
    format!("{} ms", time.as_millis())
}

/// `12 s`, `5 min`, `3 h`, `2 days`: precision decreases with age.
pub(crate) fn ago(time: std::time::Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..=119 => format!("{seconds} s ago"),
        120..=7_199 => format!("{} min ago", seconds / 60),
        7_200..=172_799 => format!("{} h ago", seconds / 3_600),
        _ => {
            format!("{} days ago", grouped(usize::try_from(seconds / 86_400).unwrap_or(usize::MAX)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_read_well() {
        assert_eq!(count(0, "instance"), "0 instances");
        assert_eq!(count(1, "instance"), "1 instance");
        assert_eq!(count(1_234_567, "instance"), "1,234,567 instances");
        assert_eq!(count(999, "file"), "999 files");
        assert_eq!((count(1, "entry"), count(2, "entry")), ("1 entry".into(), "2 entries".into()));
        assert_eq!(count(2, "key"), "2 keys");
    }

    #[test]
    fn times_ago_are_short() {
        let ago = |seconds| ago(std::time::Duration::from_secs(seconds));
        assert_eq!([ago(0), ago(119)], ["0 s ago", "119 s ago"]);
        assert_eq!([ago(120), ago(7_199)], ["2 min ago", "119 min ago"]);
        assert_eq!([ago(7_200), ago(172_799)], ["2 h ago", "47 h ago"]);
        assert_eq!([ago(172_800), ago(1_000 * 86_400)], ["2 days ago", "1,000 days ago"]);
    }

    #[test]
    fn nothing_controls_the_terminal() {
        assert_eq!(sanitize("a\x1b[31mb\u{202e}\n\tc"), "a\u{241b}[31mb\u{fffd}\n c");
    }
}
