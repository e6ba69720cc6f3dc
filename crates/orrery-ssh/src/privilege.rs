//! Wraps commands so that they run with the rights of root.
//!
//! `sudo` reads the password from standard input (`-S`), byte by byte, so that the rest is left for
//! the command; it is never an argument. A mark on standard error says that the command has
//! started, with its process id: without it, `sudo` or the login shell refused, and nothing ran.

use orrery_model::{Privilege, SecretText};

/// Begin of the line on standard error that says that the command has started.
const STARTED_MARK: &str = "orrery-command-started ";
/// Bytes of standard error in which the mark must appear; `sudo` may lecture before.
pub(crate) const MARK_WITHIN: usize = 64 * 1024;

/// Way to the rights of root on one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Elevation {
    /// The rights of the remote user.
    None,
    Sudo,
    SudoWithPassword(SecretText),
    Doas,
}

/// A command line with the bytes that precede its standard input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WrappedCommand {
    pub(crate) line: String,
    pub(crate) input_prefix: Vec<u8>,
}

impl Elevation {
    /// Elevation without a password.
    pub(crate) fn without_password(privilege: Option<Privilege>) -> Self {
        match privilege {
            None | Some(Privilege::User) => Elevation::None,
            Some(Privilege::Sudo) => Elevation::Sudo,
            Some(Privilege::Doas) => Elevation::Doas,
        }
    }

    /// Wraps a shell command. The mark appears on standard error once it has started.
    pub(crate) fn wrap(&self, command: &str) -> WrappedCommand {
        let script = format!("echo {STARTED_MARK}$$ >&2\n{command}");
        let shell = format!("/bin/sh -c {}", quote(&script));
        let (line, input_prefix) = match self {
            Elevation::None => (format!("exec {shell}"), Vec::new()),
            Elevation::Sudo => (format!("exec sudo -n -- {shell}"), Vec::new()),
            Elevation::SudoWithPassword(password) => {
                // `-k` asks even if an earlier command was authenticated: the password must not
                // reach the command as its input.
                let line = format!("exec sudo -k -S -p '' -- {shell}");
                (line, [password.expose().as_bytes(), b"\n"].concat())
            }
            Elevation::Doas => (format!("exec doas -n -- {shell}"), Vec::new()),
        };
        WrappedCommand { line, input_prefix }
    }

    /// Command that ends another one with all of its processes, at first gently.
    pub(crate) fn wrap_kill(&self, process: u32) -> WrappedCommand {
        let signal = |name: &str| {
            format!("kill -{name} -{process} 2>/dev/null || kill -{name} {process} 2>/dev/null")
        };
        self.wrap(&format!("{} && sleep 1; {}", signal("TERM"), signal("KILL")))
    }
}

/// Quotes a text for a shell.
pub(crate) fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Removes the mark and what precedes it from standard error; returns the process id.
pub(crate) fn take_mark(errors: &mut Vec<u8>) -> Option<u32> {
    let mark = STARTED_MARK.as_bytes();
    let within = &errors[..errors.len().min(MARK_WITHIN)];
    let at = within.windows(mark.len()).position(|window| window == mark)?;
    let number = at + mark.len();
    let end = number + errors[number..].iter().position(|&byte| byte == b'\n')?;
    let process = std::str::from_utf8(&errors[number..end]).ok()?.parse().ok()?;
    errors.drain(..=end);
    Some(process)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_input_and_never_an_argument() {
        let elevation = Elevation::SudoWithPassword(SecretText::new("hunter2"));
        let wrapped = elevation.wrap("id -u");
        assert!(!wrapped.line.contains("hunter2"), "{}", wrapped.line);
        assert_eq!(wrapped.input_prefix, b"hunter2\n");
        assert!(wrapped.line.starts_with("exec sudo -k -S -p '' -- /bin/sh -c "));
    }

    #[test]
    fn commands_are_quoted_for_the_login_shell() {
        let wrapped = Elevation::None.wrap("echo 'a b' \"$HOME\"");
        let (begin, end) = wrapped.line.split_once('\n').unwrap();
        assert_eq!(begin, "exec /bin/sh -c 'echo orrery-command-started $$ >&2");
        assert_eq!(end, r#"echo '\''a b'\'' "$HOME"'"#);
        assert!(wrapped.input_prefix.is_empty());
    }

    #[test]
    fn the_mark_is_found_after_a_lecture_and_removed() {
        let lecture = "We trust you have received the usual lecture\n";
        let mut errors = format!("{lecture}orrery-command-started 77\nreal").into_bytes();
        assert_eq!(take_mark(&mut errors), Some(77));
        assert_eq!(errors, b"real");
        assert_eq!(take_mark(&mut errors), None);
        let mut partial = b"orrery-command-started 7".to_vec();
        assert_eq!(take_mark(&mut partial), None);
        let mut late = vec![b'x'; MARK_WITHIN];
        late.extend_from_slice(b"orrery-command-started 7\n");
        assert_eq!(take_mark(&mut late), None);
    }
}
