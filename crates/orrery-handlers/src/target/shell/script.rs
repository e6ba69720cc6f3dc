//! Builds scripts: assignments of quoted values, then static parts.

/// Functions that all scripts with file operations share.
pub(super) const LIBRARY: &str = include_str!("scripts/library.sh");
/// Functions for operations that change files.
pub(super) const CHANGE: &str = include_str!("scripts/change.sh");

/// Quotes a text for a shell. It has no zero byte.
pub(super) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('\'');
    for (at, part) in text.split('\'').enumerate() {
        if at > 0 {
            quoted.push_str("'\\''");
        }
        quoted.push_str(part);
    }
    quoted.push('\'');
    quoted
}

/// A script for the shell of a machine.
#[derive(Clone, Debug, Default)]
pub(super) struct Script(String);

impl Script {
    /// A script with the functions for file operations.
    pub(super) fn with_library() -> Self {
        Script::default().part(LIBRARY)
    }

    /// Assigns a value, which must not have zero bytes.
    pub(super) fn set(mut self, name: &str, value: &str) -> Self {
        debug_assert!(!value.contains('\0'), "a shell has no zero bytes");
        self.0.push_str(name);
        self.0.push('=');
        self.0.push_str(&quote(value));
        self.0.push('\n');
        self
    }

    /// Sets the arguments of the script.
    pub(super) fn arguments<'v>(mut self, values: impl IntoIterator<Item = &'v str>) -> Self {
        self.0.push_str("set --");
        for value in values {
            self.0.push(' ');
            self.0.push_str(&quote(value));
        }
        self.0.push('\n');
        self
    }

    /// Appends shell code.
    pub(super) fn part(mut self, code: &str) -> Self {
        self.0.push_str(code);
        if !code.ends_with('\n') {
            self.0.push('\n');
        }
        self
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_is_one_word() {
        for text in ["", "a b", "it's", "''", "$HOME `id` \"x\" \\", "-n", "two\nlines\n", "*"] {
            let words = shlex::split(&quote(text)).unwrap();
            assert_eq!(words, [text], "{text:?}");
        }
    }
}
