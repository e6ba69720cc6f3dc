//! Policy of a machine: what its server may do there. It lies on the machine, and no server can
//! change it.
//!
//! What a policy does not list is forbidden; without a policy, everything is allowed.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use orrery_handlers::TargetVerb;
use orrery_handlers::target::check_path;
use orrery_model::matches_wildcards;
use serde::Deserialize;

/// Policy file of an agent that runs as root.
const DEFAULT_PATH: &str = "/etc/orrery-agent/policy.toml";

/// Maximum size of a policy file, in bytes.
const FILE_MAX: u64 = 1024 * 1024;

/// Error of a policy file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    #[error("cannot read the policy {}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error(
        "other users may write to the policy {path}; run `chown root: {path}` and `chmod go-w {path}`",
        path = .0.display()
    )]
    Writable(PathBuf),
    #[error("invalid policy {}", path.display())]
    Invalid { path: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },
}

/// Invalid entry of a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum InvalidEntry {
    #[error("`paths` has {0:?}; expected an absolute path without `..`")]
    Path(String),
    #[error(
        "`commands` has {0:?}; expected `*`, or a command line with the full path of its program"
    )]
    Command(String),
}

/// Document of a policy file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PolicyFile {
    types: Vec<String>,
    paths: Vec<String>,
    commands: Vec<String>,
    users: Vec<String>,
    python: bool,
}

/// Operations that a machine allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Patterns of resource types.
    types: Vec<String>,
    /// Directories and files; what is below a directory is included.
    paths: Vec<String>,
    commands: Vec<CommandRule>,
    /// Names and numbers of users; `*` is any.
    users: Vec<String>,
    /// Python handlers may run.
    python: bool,
}

/// Commands that a policy allows.
#[derive(Clone, Debug, PartialEq, Eq)]
enum CommandRule {
    Any,
    /// A program with any arguments.
    Program(String),
    /// A program, and a pattern for each of its arguments.
    Arguments(String, Vec<String>),
}

impl Policy {
    /// Reads a policy file; without a path, the one of this machine, if it exists.
    ///
    /// # Errors
    /// If it cannot be read, is invalid, or other users may write to it.
    pub fn load(path: Option<&Path>) -> Result<Option<Self>, PolicyError> {
        let (path, is_optional) = match path {
            Some(path) => (path, false),
            None => (Path::new(DEFAULT_PATH), true),
        };
        let failed = |source| PolicyError::Unreadable { path: path.to_owned(), source };
        let file = match File::open(path) {
            Err(error) if is_optional && error.kind() == io::ErrorKind::NotFound => {
                return Ok(None);
            }
            opened => opened.map_err(failed)?,
        };
        let found = file.metadata().map_err(failed)?;
        let own = [0, rustix::process::geteuid().as_raw()];
        if found.mode() & 0o022 != 0 || !own.contains(&found.uid()) {
            return Err(PolicyError::Writable(path.to_owned()));
        }
        let mut text = String::new();
        file.take(FILE_MAX).read_to_string(&mut text).map_err(failed)?;
        let parsed = Policy::parse(&text);
        parsed.map(Some).map_err(|source| PolicyError::Invalid { path: path.to_owned(), source })
    }

    fn parse(text: &str) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let PolicyFile { types, paths, commands, users, python } = toml::from_str(text)?;
        let paths = paths.into_iter().map(|path| {
            // The root directory: every path continues with a slash.
            if path == "/" {
                return Ok(String::new());
            }
            let checked = check_path(TargetVerb::Write, &path).map(str::to_owned);
            checked.map_err(|_| InvalidEntry::Path(path))
        });
        let commands = commands.into_iter().map(|line| {
            CommandRule::parse(&line).ok_or_else(|| InvalidEntry::Command(line.clone()))
        });
        Ok(Policy {
            types,
            paths: paths.collect::<Result<_, _>>()?,
            commands: commands.collect::<Result<_, _>>()?,
            users,
            python,
        })
    }

    /// Returns true if Python handlers may run. Their code can do whatever the user of the agent
    /// can: nothing else in a policy limits it.
    pub fn allows_python(&self) -> bool {
        self.python
    }

    /// Returns true if resources of this type may be applied.
    pub fn allows_type(&self, entity: &str) -> bool {
        self.types.iter().any(|pattern| matches_wildcards(pattern, entity))
    }

    /// Returns true if a file may be read and changed. The path has no symbolic links.
    pub(crate) fn allows_path(&self, path: &str) -> bool {
        self.paths.iter().any(|allowed| {
            let rest = path.strip_prefix(allowed.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    /// Returns true if a command may run. Its program is a full path.
    pub(crate) fn allows_command(&self, program: &str, arguments: &[String]) -> bool {
        self.commands.iter().any(|rule| match rule {
            CommandRule::Any => true,
            CommandRule::Program(allowed) => allowed == program,
            CommandRule::Arguments(allowed, patterns) => {
                let mut pairs = patterns.iter().zip(arguments);
                allowed == program
                    && patterns.len() == arguments.len()
                    && pairs.all(|(pattern, argument)| matches_argument(pattern, argument))
            }
        })
    }

    /// Returns true if every command may run.
    pub(crate) fn allows_all_commands(&self) -> bool {
        self.commands.contains(&CommandRule::Any)
    }

    /// Users that may own files; `None` for all.
    pub(crate) fn users(&self) -> Option<&[String]> {
        let all = self.users.iter().any(|user| user == "*");
        (!all).then_some(&self.users)
    }
}

/// Returns true if a pattern allows an argument. Wildcards do not stand for `..`, which would lead
/// out of the directory that the pattern names.
fn matches_argument(pattern: &str, argument: &str) -> bool {
    let climbs = argument.split(['/', '=', ':', ',', ' ']).any(|part| part == "..");
    pattern == argument || !climbs && matches_wildcards(pattern, argument)
}

impl CommandRule {
    fn parse(line: &str) -> Option<Self> {
        if line == "*" {
            return Some(CommandRule::Any);
        }
        let mut words = shlex::split(line)?.into_iter();
        let program = words.next()?;
        let program = check_path(TargetVerb::Run, &program).ok()?.to_owned();
        let arguments: Vec<String> = words.collect();
        Some(match arguments.as_slice() {
            [] => CommandRule::Program(program),
            _ => CommandRule::Arguments(program, arguments),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn policy(text: &str) -> Policy {
        Policy::parse(text).unwrap()
    }

    #[test]
    fn wildcards_of_arguments_do_not_climb_directories() {
        let some = policy(r#"commands = ["/bin/touch /srv/www/*", "/bin/ls ../*", "/bin/cat .."]"#);
        let allows =
            |program: &str, argument: &str| some.allows_command(program, &[argument.to_owned()]);
        assert!(allows("/bin/touch", "/srv/www/a..b") && allows("/bin/cat", ".."));
        for argument in ["/srv/www/../x", "/srv/www/a/..", "/srv/www/--to=../x"] {
            assert!(!allows("/bin/touch", argument), "{argument}");
        }
        assert!(!allows("/bin/ls", "../a"));
    }

    #[test]
    fn only_what_is_listed_is_allowed() {
        let nothing = policy("");
        assert!(!nothing.allows_type("std::File") && !nothing.allows_path("/x"));
        assert!(!nothing.allows_command("/bin/true", &[]));
        assert_eq!(nothing.users(), Some(&[][..]));
        assert!(!nothing.allows_python() && policy("python = true").allows_python());
        let some = policy(
            r#"
            types = ["std::File", "web::*"]
            paths = ["/srv/www/", "/etc/motd"]
            commands = ["/usr/bin/true", "/usr/bin/systemctl restart nginx*", "/bin/echo 'a b'"]
            users = ["www-data", "1000"]
            "#,
        );
        for (entity, allowed) in [("std::File", true), ("web::Site", true), ("std::Files", false)] {
            assert_eq!(some.allows_type(entity), allowed, "{entity}");
        }
        for path in ["/srv/www", "/srv/www/a/b", "/etc/motd"] {
            assert!(some.allows_path(path), "{path}");
        }
        for path in ["/srv/www2", "/srv", "/", "/etc/motd.d", "/etc/motdx"] {
            assert!(!some.allows_path(path), "{path}");
        }
        let runs = |line: &[&str]| {
            let arguments: Vec<String> = line[1..].iter().map(|&word| word.to_owned()).collect();
            some.allows_command(line[0], &arguments)
        };
        for line in [
            &["/usr/bin/true", "any", "thing"][..],
            &["/usr/bin/systemctl", "restart", "nginx"],
            &["/usr/bin/systemctl", "restart", "nginx@1"],
            &["/bin/echo", "a b"],
        ] {
            assert!(runs(line), "{line:?}");
        }
        for line in [
            &["/bin/true"][..],
            &["/usr/bin/systemctl"],
            &["/usr/bin/systemctl", "restart"],
            &["/usr/bin/systemctl", "restart", "sshd"],
            &["/usr/bin/systemctl", "restart", "nginx", "sshd"],
            &["/usr/bin/systemctl", "stop", "nginx"],
            &["/bin/echo", "a", "b"],
        ] {
            assert!(!runs(line), "{line:?}");
        }
        let all = policy(
            r#"paths = ["/"]
            commands = ["*"]
            users = ["*"]"#,
        );
        assert!(all.allows_path("/x/y") && all.allows_all_commands() && all.users().is_none());
    }

    #[test]
    fn mistakes_are_rejected_with_the_entry() {
        for (text, hint) in [
            ("path = []", "path"),
            (r#"paths = ["etc"]"#, "etc"),
            (r#"paths = ["/etc/../x"]"#, "/etc/../x"),
            (r#"commands = ["systemctl"]"#, "systemctl"),
            (r#"commands = [""]"#, "commands"),
            ("commands = [\"/bin/sh 'x\"]", "/bin/sh"),
            ("types = 1", "types"),
            ("python = \"yes\"", "python"),
        ] {
            let error = Policy::parse(text).unwrap_err().to_string();
            assert!(error.contains(hint), "{text}: {error}");
        }
    }

    #[test]
    fn a_policy_that_others_may_write_is_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("policy.toml");
        assert!(matches!(Policy::load(Some(&path)), Err(PolicyError::Unreadable { .. })));
        std::fs::write(&path, "types = [\"std::File\"]").unwrap();
        let set = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        set(0o644);
        assert!(Policy::load(Some(&path)).unwrap().unwrap().allows_type("std::File"));
        for mode in [0o664, 0o646] {
            set(mode);
            let error = Policy::load(Some(&path)).unwrap_err();
            assert!(matches!(error, PolicyError::Writable(_)), "{mode:o}: {error}");
        }
    }
}
