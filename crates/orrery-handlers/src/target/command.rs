//! Commands and their output.

use std::time::Duration;

/// A command to run, without a shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    /// Program and arguments.
    pub arguments: Vec<String>,
    /// Additional environment variables.
    pub environment: Vec<(String, String)>,
    pub directory: Option<String>,
    pub input: Vec<u8>,
    /// Search path for a program without a slash, instead of the target's.
    pub search_path: Option<String>,
    pub timeout: Option<Duration>,
    /// Limit of each output stream in bytes; the rest is read and dropped.
    pub output_limit: usize,
}

/// Output of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Exit code; 128 plus the signal number for a process that a signal ended.
    pub code: i32,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// True if output was dropped.
    pub truncated: bool,
}

impl CommandLine {
    pub const OUTPUT_LIMIT_DEFAULT: usize = 256 * 1024;
    /// Limit for lists of all packages or services of a machine.
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

    /// Creates a command that runs a shell script.
    pub fn shell(script: &str) -> Self {
        CommandLine::new(["/bin/sh", "-c", script])
    }

    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Sets the C locale, for parseable output.
    #[must_use]
    pub fn plain(self) -> Self {
        self.env("LC_ALL", "C")
    }

    #[must_use]
    pub fn list_output(mut self) -> Self {
        self.output_limit = Self::OUTPUT_LIMIT_LIST;
        self
    }

    pub fn program(&self) -> &str {
        self.arguments.first().map_or("", String::as_str)
    }

    /// Formats the command with shell quoting.
    pub fn display(&self) -> String {
        // A NUL byte cannot be quoted; running such a command fails.
        let quoted = |argument: &String| {
            shlex::try_quote(argument).map_or_else(|_| argument.clone(), |text| text.into_owned())
        };
        self.arguments.iter().map(quoted).collect::<Vec<_>>().join(" ")
    }
}

/// Appends the system directories to a search path, which ordinary users may lack.
pub(super) fn with_usual_directories(mut path: String) -> String {
    const USUAL: [&str; 6] =
        ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
    for directory in USUAL {
        if !path.split(':').any(|other| other == directory) {
            if !path.is_empty() {
                path.push(':');
            }
            path.push_str(directory);
        }
    }
    path
}

impl Output {
    pub fn new(code: i32, stdout: &str, stderr: &str) -> Self {
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

    /// Last lines of standard error, or else of standard output: for messages.
    pub fn error_excerpt(&self) -> String {
        const LINES_MAX: usize = 5;
        let text = if self.stderr.trim_ascii().is_empty() { &self.stdout } else { &self.stderr };
        let text = String::from_utf8_lossy(text);
        let lines: Vec<&str> = text.trim().lines().collect();
        lines[lines.len().saturating_sub(LINES_MAX)..].join("\n")
    }
}
