//! The English of comments and documents: components are named, not persons.

use crate::{TextFile, Violation};

/// Words for a person. Where a human being is meant, a few of them are fine.
const PERSON_WORDS: [&str; 7] =
    ["who", "whom", "whoever", "somebody", "anybody", "nobody", "everybody"];

/// Person words allowed per 1,000 words of prose.
pub const PERSON_WORDS_MAX: f64 = 0.5;

/// Words that a documentation comment does not open with: it names a thing or says what is done.
const VAGUE_OPENINGS: [&str; 9] =
    ["what", "how", "whether", "where", "why", "which", "who", "whoever", "those"];

/// Documentation comments that may open vaguely, of 1,000.
pub const VAGUE_OPENINGS_MAX: f64 = 5.0;

/// One line of prose and its number in the file.
type Line<'a> = (usize, &'a str);

/// Comments of a source file, or the text of a document. Nothing for other files.
pub fn prose(file: &TextFile) -> Vec<Line<'_>> {
    let lines = file.text.lines().enumerate().map(|(index, line)| (index + 1, line));
    match file.extension() {
        "rs" => lines.filter_map(|(number, line)| Some((number, rust_comment(line)?))).collect(),
        "py" => python_comments(&file.text),
        // Code blocks and transcripts are quotations.
        "md" => {
            let mut fenced = false;
            lines
                .filter(|(_, line)| {
                    let fence = line.trim_start().starts_with("```");
                    fenced ^= fence;
                    !fenced && !fence && !line.starts_with("    ")
                })
                .collect()
        }
        _ => Vec::new(),
    }
}

/// The comment of a line that consists of one.
fn rust_comment(line: &str) -> Option<&str> {
    let comment = line.trim_start().strip_prefix("//")?;
    Some(comment.trim_start_matches(['/', '!']).trim_start())
}

/// Comments and docstrings of a Python file.
fn python_comments(text: &str) -> Vec<Line<'_>> {
    let mut found = Vec::new();
    let mut docstring = false;
    for (index, line) in text.lines().enumerate() {
        let quotes = line.matches("\"\"\"").count();
        let trimmed = line.trim_start();
        if docstring || trimmed.starts_with("\"\"\"") {
            found.push((index + 1, line));
            docstring ^= quotes == 1;
        } else if let Some(comment) = trimmed.strip_prefix('#') {
            found.push((index + 1, comment));
        }
    }
    found
}

/// The lower-case words of `line`.
fn words(line: &str) -> impl Iterator<Item = String> + '_ {
    line.split(|c: char| !c.is_alphanumeric() && c != '\'')
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
}

/// Person words above [`PERSON_WORDS_MAX`] per 1,000 over all of `files`, each with its place.
pub fn check_person_words(files: &[TextFile]) -> Vec<Violation> {
    let mut total = 0;
    let mut found = Vec::new();
    for file in files.iter().filter(|file| is_ours(file)) {
        for (number, line) in prose(file) {
            for word in words(line) {
                total += 1;
                if PERSON_WORDS.contains(&word.as_str()) {
                    let place = format!("{}:{number}", file.path);
                    found.push(Violation::new(place, format!("`{word}`: name the component")));
                }
            }
        }
    }
    if ratio(found.len(), total) > PERSON_WORDS_MAX { found } else { Vec::new() }
}

/// Documentation comments that open vaguely, if more than [`VAGUE_OPENINGS_MAX`] per 1,000 do.
pub fn check_openings(files: &[TextFile]) -> Vec<Violation> {
    let mut total = 0;
    let mut found = Vec::new();
    for file in files.iter().filter(|file| is_ours(file) && file.extension() == "rs") {
        let mut inside = false;
        for (index, line) in file.text.lines().enumerate() {
            let line = line.trim_start();
            let comment = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
            if let Some(comment) = comment
                && !inside
            {
                total += 1;
                let first = words(comment).next().unwrap_or_default();
                if VAGUE_OPENINGS.contains(&first.as_str()) {
                    found.push(Violation::new(
                        format!("{}:{}", file.path, index + 1),
                        format!("opens with `{first}`: open with a noun or a verb such as Returns"),
                    ));
                }
            }
            inside = comment.is_some();
        }
    }
    if ratio(found.len(), total) > VAGUE_OPENINGS_MAX { found } else { Vec::new() }
}

/// Per 1,000.
fn ratio(part: usize, total: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts of words are small")]
    let (part, total) = (part as f64, total.max(1) as f64);
    1000.0 * part / total
}

/// Not the words that this module lists, nor recorded answers of other programs.
fn is_ours(file: &TextFile) -> bool {
    file.path != "xtask/src/prose.rs" && !file.path.starts_with("tests/language/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_comments_docstrings_and_text_outside_of_fences() {
        let rust = TextFile::new("a.rs", "//! One.\nlet who = 1; // no\n    /// Two.\n");
        assert_eq!(prose(&rust), [(1, "One."), (3, "Two.")]);
        let python = TextFile::new("a.py", "\"\"\"One\ntwo.\"\"\"\nx = 1\n# Three.\n");
        assert_eq!(prose(&python).len(), 3);
        let markdown = TextFile::new("a.md", "One.\n```\nwho\n```\n    who\nTwo.\n");
        assert_eq!(prose(&markdown), [(1, "One."), (6, "Two.")]);
        assert!(prose(&TextFile::new("a.json", "who")).is_empty());
    }

    #[test]
    fn person_words_are_counted_over_all_files() {
        let line = |count: usize| format!("// {}\n", "word ".repeat(count));
        let few = [TextFile::new("a.rs", format!("// who\n{}", line(1999)))];
        assert!(check_person_words(&few).is_empty());
        let many = [TextFile::new("a.rs", format!("// Who, nobody\n{}", line(1999)))];
        let found = check_person_words(&many);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].place, "a.rs:1");
        assert!(check_person_words(&[TextFile::new("a.rs", "// whole\n")]).is_empty());
    }

    #[test]
    fn comments_open_with_a_noun_or_a_verb() {
        let bad = TextFile::new("a.rs", "/// Whether x.\nfn a() {}\n/// Returns\n/// what x.\n");
        assert_eq!(check_openings(&[bad]).len(), 1);
        let good = TextFile::new("a.rs", "/// True if x.\nfn a() {}\n");
        assert!(check_openings(&[good]).is_empty());
    }
}
