//! Commands: what to run, and what came of it.

use std::time::Duration;

/// A command to run. Nothing passes a shell unless the program is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    /// The program, then its arguments.
    pub arguments: Vec<String>,
    /// Set in addition to what the target has.
    pub environment: Vec<(String, String)>,
    pub directory: Option<String>,
    pub input: Vec<u8>,
    /// Where a program without a slash is looked for, instead of the target's own places.
    pub search_path: Option<String>,
    pub timeout: Option<Duration>,
    /// Bytes of each output stream that are kept; the rest is read and dropped.
    pub output_limit: usize,
}

/// What a command left behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// The exit code; for a process that was ended by a signal 128 and the signal's number.
    pub code: i32,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// Whether some output was dropped.
    pub truncated: bool,
}

impl CommandLine {
    pub const OUTPUT_LIMIT_DEFAULT: usize = 256 * 1024;
    /// For lists of all packages or services of a machine.
    pub const OUTPUT_LIMIT_LIST: usize = 64 * 1024 * 1024;

    pub fn new<A: Into<String>>(arguments: impl IntoIterator<Item = A>) -> Self {
        CommandLine {
            arguments: arguments.into_iter().map(Into::into).collect(),
            environment: Vec::new(),
            directory: None,
            input: Vec::new(),
            search_path: None,
            timeout: None,
            output_limit: Self::OUTPUT_LIMIT_DEFAULT,
        }
    }

    /// A text for a shell.
    pub fn shell(script: &str) -> Self {
        CommandLine::new(["/bin/sh", "-c", script])
    }

    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Asks the program to speak plainly, so that its output can be read.
    pub fn plain(self) -> Self {
        self.env("LC_ALL", "C")
    }

    pub fn list_output(mut self) -> Self {
        self.output_limit = Self::OUTPUT_LIMIT_LIST;
        self
    }

    pub fn program(&self) -> &str {
        self.arguments.first().map_or("", String::as_str)
    }

    /// The command as a person would type it.
    pub fn display(&self) -> String {
        // A zero byte cannot be quoted; such a command is refused when it is run.
        let quoted = |argument: &String| {
            shlex::try_quote(argument).map_or_else(|_| argument.clone(), |text| text.into_owned())
        };
        self.arguments.iter().map(quoted).collect::<Vec<_>>().join(" ")
    }
}

impl Output {
    pub fn of(code: i32, stdout: &str, stderr: &str) -> Self {
        Output { code, stdout: stdout.into(), stderr: stderr.into(), truncated: false }
    }

    pub fn success(&self) -> bool {
        self.code == 0
    }

    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// The last lines of what it said, errors first: for messages.
    pub fn complaint(&self) -> String {
        const LINES_MAX: usize = 5;
        let text = if self.stderr.trim_ascii().is_empty() { &self.stdout } else { &self.stderr };
        let text = String::from_utf8_lossy(text);
        let lines: Vec<&str> = text.trim().lines().collect();
        lines[lines.len().saturating_sub(LINES_MAX)..].join("\n")
    }
}
