//! Parser of `ssh_config`: conditions, keywords and their arguments, in order.

use std::sync::Arc;

use super::pattern::{Pattern, matches_list};
use super::{ConfigError, ConfigFile, ConfigWarning};

/// Maximum depth of `Include`, as in OpenSSH.
const INCLUDE_DEPTH_MAX: usize = 16;
/// Maximum of lines over all files: a file that includes itself in a loop ends.
const LINES_MAX: usize = 200_000;

/// Condition of the statements after a `Host` or `Match` line.
#[derive(Debug)]
pub(super) enum Condition {
    Always,
    Host(Vec<Pattern>),
    /// A `Match` line that is not supported.
    Never,
}

impl Condition {
    pub(super) fn holds(&self, host: &str) -> bool {
        match self {
            Condition::Always => true,
            Condition::Host(patterns) => matches_list(patterns, host),
            Condition::Never => false,
        }
    }
}

/// One setting with its conditions.
#[derive(Debug)]
pub(super) struct Statement {
    pub(super) conditions: Vec<Arc<Condition>>,
    /// In lower case.
    pub(super) keyword: String,
    pub(super) arguments: Vec<String>,
    pub(super) file: Arc<str>,
    pub(super) line: usize,
}

impl Statement {
    pub(super) fn error(&self, reason: impl Into<String>) -> ConfigError {
        ConfigError { file: self.file.to_string(), line: self.line, reason: reason.into() }
    }

    /// The only argument.
    pub(super) fn value(&self) -> Result<&str, ConfigError> {
        match &self.arguments[..] {
            [value] => Ok(value),
            [] => Err(self.error(format!("{} has no value", self.keyword))),
            _ => Err(self.error(format!("{} has more than one value", self.keyword))),
        }
    }
}

pub(super) struct Parser<'f> {
    pub(super) statements: Vec<Statement>,
    pub(super) warnings: Vec<ConfigWarning>,
    /// Reads the files of an `Include` pattern.
    pub(super) include: &'f mut dyn FnMut(&str) -> Vec<ConfigFile>,
    pub(super) lines: usize,
}

impl Parser<'_> {
    pub(super) fn file(
        &mut self,
        file: &ConfigFile,
        outer: &[Arc<Condition>],
        depth: usize,
    ) -> Result<(), ConfigError> {
        let name: Arc<str> = file.name.as_str().into();
        let mut own = Arc::new(Condition::Always);
        for (index, line) in file.text.lines().enumerate() {
            let error =
                |reason: String| ConfigError { file: name.to_string(), line: index + 1, reason };
            self.lines += 1;
            if self.lines > LINES_MAX {
                return Err(error(format!("the files have more than {LINES_MAX} lines")));
            }
            let Some((keyword, arguments)) = split_line(line).map_err(error)? else { continue };
            match keyword.as_str() {
                "host" => {
                    if arguments.is_empty() {
                        return Err(error("Host has no pattern".to_owned()));
                    }
                    let patterns = arguments.iter().map(|text| Pattern::parse(text)).collect();
                    own = Arc::new(Condition::Host(patterns));
                }
                "match" => {
                    let all = arguments.len() == 1 && arguments[0].eq_ignore_ascii_case("all");
                    own = Arc::new(if all { Condition::Always } else { Condition::Never });
                    if !all && !self.warnings.iter().any(|warning| warning.keyword == "Match") {
                        self.warnings.push(ConfigWarning {
                            file: name.to_string(),
                            line: index + 1,
                            keyword: "Match",
                        });
                    }
                }
                "include" => {
                    if depth >= INCLUDE_DEPTH_MAX {
                        return Err(error("too many nested Include lines".to_owned()));
                    }
                    let mut conditions = outer.to_vec();
                    conditions.push(Arc::clone(&own));
                    for pattern in &arguments {
                        for included in (self.include)(pattern) {
                            self.file(&included, &conditions, depth + 1)?;
                        }
                    }
                }
                _ => {
                    let mut conditions = outer.to_vec();
                    conditions.push(Arc::clone(&own));
                    self.statements.push(Statement {
                        conditions,
                        keyword,
                        arguments,
                        file: Arc::clone(&name),
                        line: index + 1,
                    });
                }
            }
        }
        Ok(())
    }
}

/// Splits a line into keyword and arguments; `None` for blank lines and comments.
fn split_line(line: &str) -> Result<Option<(String, Vec<String>)>, String> {
    let line = line.trim_matches([' ', '\t', '\r', '\u{c}']);
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let end = line.find([' ', '\t', '=']).unwrap_or(line.len());
    let (keyword, rest) = line.split_at(end);
    if keyword.is_empty() {
        return Err("a line begins with `=`".to_owned());
    }
    let rest = rest.trim_start_matches([' ', '\t']);
    let rest = rest.strip_prefix('=').unwrap_or(rest);
    Ok(Some((keyword.to_ascii_lowercase(), split_arguments(rest)?)))
}

/// Splits by blanks, with quotes and backslashes; `#` at the start of a word ends the line.
fn split_arguments(text: &str) -> Result<Vec<String>, String> {
    let mut arguments = Vec::new();
    let mut rest = text.chars().peekable();
    loop {
        while rest.next_if(|c| matches!(c, ' ' | '\t')).is_some() {}
        match rest.peek() {
            None | Some('#') => return Ok(arguments),
            Some(_) => {}
        }
        let mut word = String::new();
        let mut quote = None;
        while let Some(character) = rest.next() {
            match character {
                '\\' => match rest.peek() {
                    Some(&next)
                        if matches!(next, '\\' | '"' | '\'')
                            || (quote.is_none() && next == ' ') =>
                    {
                        word.push(next);
                        rest.next();
                    }
                    _ => word.push('\\'),
                },
                ' ' | '\t' if quote.is_none() => break,
                '"' | '\'' if quote.is_none() => quote = Some(character),
                _ if quote == Some(character) => quote = None,
                _ => word.push(character),
            }
        }
        if quote.is_some() {
            return Err("a quotation mark is missing".to_owned());
        }
        arguments.push(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_like_those_of_openssh() {
        for (line, expected) in [
            ("Port 22", "port|22"),
            ("  PORT=22  ", "port|22"),
            ("Port = 22", "port|22"),
            ("Port\t22 # why", "port|22"),
            ("IdentityFile \"~/my keys/id\"", "identityfile|~/my keys/id"),
            ("IdentityFile a\\ b", "identityfile|a b"),
            ("Host a 'b c' d", "host|a|b c|d"),
            ("User a#b", "user|a#b"),
            ("HostName %h.example.org", "hostname|%h.example.org"),
        ] {
            let (keyword, arguments) = split_line(line).unwrap().unwrap();
            let found = std::iter::once(keyword).chain(arguments).collect::<Vec<_>>().join("|");
            assert_eq!(found, expected, "{line}");
        }
        assert_eq!(split_line("  # comment").unwrap(), None);
        assert!(split_line("User \"jo").is_err());
        assert!(split_line("= 22").is_err());
    }
}
