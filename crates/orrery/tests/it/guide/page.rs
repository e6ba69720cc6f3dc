//! A page as a script: commands with their output, files to write, and settings, in order.
//! `CONTRIBUTING.md` explains the markers.

use anyhow::{Context as _, Result, bail, ensure};

/// Languages of fences with shell commands.
const SHELL_FENCES: [&str; 4] = ["console", "sh", "bash", "shell"];

/// A step of a page.
#[derive(Debug)]
pub(super) enum Step {
    /// A command, and the lines of the page with its output.
    Command { line: usize, command: String, output: Vec<String> },
    /// A file on the page, to be written.
    File { path: String, text: String },
    /// A hidden command that prepares preconditions.
    Hidden(String),
}

#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) steps: Vec<Step>,
    /// Preconditions, by the names in `mod.rs`.
    pub(super) settings: Vec<String>,
}

/// A marker: `<!-- run: … -->` or `<!-- not run: … -->`.
enum Marker<'p> {
    Setting(&'p str),
    File(&'p str),
    Hidden(&'p str),
    NotRun,
}

impl<'p> Marker<'p> {
    fn read(line: &'p str) -> Result<Option<Self>> {
        let Some(inner) = line.trim().strip_prefix("<!--").and_then(|l| l.strip_suffix("-->"))
        else {
            return Ok(None);
        };
        let inner = inner.trim();
        if let Some(reason) = inner.strip_prefix("not run:") {
            ensure!(!reason.trim().is_empty(), "`not run` wants a reason");
            return Ok(Some(Marker::NotRun));
        }
        let Some(text) = inner.strip_prefix("run:") else { return Ok(None) };
        let (word, rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        Ok(Some(match word {
            "file" => Marker::File(rest.trim()),
            "sh" => Marker::Hidden(rest.trim()),
            _ => Marker::Setting(text.trim()),
        }))
    }
}

/// A block of code: its language, or none if it is indented, its lines, and the number of its first line.
struct Block<'p> {
    language: Option<&'p str>,
    lines: Vec<&'p str>,
    first: usize,
}

impl Block<'_> {
    fn is_commands(&self) -> bool {
        self.language.is_none_or(|language| SHELL_FENCES.contains(&language))
    }
}

impl Page {
    /// Reads a page.
    ///
    /// # Errors
    /// An error for a block of commands that is neither run nor marked as not run.
    pub(super) fn read(text: &str) -> Result<Self> {
        let lines: Vec<&str> = text.lines().collect();
        let mut page = Page::default();
        let mut marker: Option<Marker<'_>> = None;
        let mut at = 0;
        while at < lines.len() {
            let (block, next) = block_at(&lines, at);
            match block {
                Some(block) => page.add(&block, marker.take())?,
                None => match Marker::read(lines[at]).with_context(|| line_label(at))? {
                    Some(Marker::Setting(text)) => page.settings.push(text.to_owned()),
                    Some(Marker::Hidden(command)) => {
                        page.steps.push(Step::Hidden(command.to_owned()));
                    }
                    Some(found) => marker = Some(found),
                    None if lines[at].trim().is_empty() => {}
                    None if marker.is_some() => {
                        bail!("{}: the marker before it is of no block", line_label(at))
                    }
                    None => {}
                },
            }
            at = next;
        }
        ensure!(marker.is_none(), "the last marker is of no block");
        Ok(page)
    }

    fn add(&mut self, block: &Block<'_>, marker: Option<Marker<'_>>) -> Result<()> {
        match marker {
            Some(Marker::NotRun) => return Ok(()),
            Some(Marker::File(path)) => {
                let text = block.lines.join("\n") + "\n";
                self.steps.push(Step::File { path: path.to_owned(), text });
                return Ok(());
            }
            _ if !block.is_commands() => return Ok(()),
            _ => {}
        }
        let begins = block.lines.first().is_some_and(|line| line.starts_with("$ "));
        ensure!(
            begins,
            "{}: these lines are not run: let commands begin with `$ `, or say why with <!-- not run: … -->",
            line_label(block.first)
        );
        for (number, line) in block.lines.iter().enumerate() {
            let line_number = block.first + number;
            if let Some(command) = line.strip_prefix("$ ") {
                let command = command.to_owned();
                self.steps.push(Step::Command { line: line_number, command, output: Vec::new() });
            } else if let Some(Step::Command { output, .. }) = self.steps.last_mut() {
                output.push((*line).to_owned());
            }
        }
        Ok(())
    }
}

fn line_label(line: usize) -> String {
    format!("line {}", line + 1)
}

/// The code block at a line, if any, and the line after it.
fn block_at<'p>(lines: &[&'p str], at: usize) -> (Option<Block<'p>>, usize) {
    let line = lines[at];
    if let Some(info) = line.strip_prefix("```") {
        let end = (at + 1..lines.len()).find(|end| lines[*end].starts_with("```"));
        let end = end.unwrap_or(lines.len());
        let language = info.split(',').next().unwrap_or_default().trim();
        let language = Some(if language.is_empty() { "text" } else { language });
        let lines = lines[at + 1..end].to_vec();
        return (Some(Block { language, lines, first: at + 1 }), end + 1);
    }
    let after_text = at > 0 && !lines[at - 1].trim().is_empty();
    if !line.starts_with("    ") || after_text {
        return (None, at + 1);
    }
    let mut end = at;
    for (number, line) in lines.iter().enumerate().skip(at) {
        if line.starts_with("    ") {
            end = number + 1;
        } else if !line.is_empty() {
            break;
        }
    }
    let inner = lines[at..end].iter().map(|line| line.strip_prefix("    ").unwrap_or("")).collect();
    (Some(Block { language: None, lines: inner, first: at }), end)
}

/// The page with the actual output of its commands.
pub(super) fn rewritten(text: &str, answers: &[(usize, usize, Vec<String>)]) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for (line, count, answer) in answers.iter().rev() {
        let indent = if lines[*line].starts_with("    ") { "    " } else { "" };
        let answer = answer.iter().map(|line| format!("{indent}{line}").trim_end().to_owned());
        // An empty line after an output separates commands of a block.
        let mut end = line + 1 + count;
        while end > line + 1 && lines.get(end - 1).is_some_and(|last| last.trim().is_empty()) {
            end -= 1;
        }
        lines.splice(line + 1..end, answer);
    }
    lines.join("\n") + "\n"
}
