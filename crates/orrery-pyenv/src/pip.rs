//! Runs pip: streamed output, dry-run reports, and classified failures. `stream` runs any
//! installer.

use std::path::{Path, PathBuf};
use std::process::Command;

use orrery_model::PipSettings;

use crate::package_names::normalize;
use crate::paths::python_of;
use crate::{Error, pip_settings, process};

/// Progress of an installation.
#[derive(Debug)]
pub enum InstallEvent {
    /// Current step.
    Step(String),
    /// Output line of the installer.
    Line(String),
}

pub type InstallListener<'l> = &'l mut dyn FnMut(InstallEvent);

pub(crate) struct Pip<'e> {
    pub(crate) environment: &'e Path,
    /// Base of relative paths in requirement files.
    pub(crate) directory: &'e Path,
    pub(crate) settings: &'e PipSettings,
}

impl Pip<'_> {
    /// Dry-run report of `pip install` with some arguments, for an empty virtualenv.
    pub(crate) fn plan(
        &self,
        arguments: &[String],
        scratch: &Path,
        listener: InstallListener<'_>,
    ) -> Result<String, Error> {
        let report = scratch.join("report.json");
        let options = ["install", "--dry-run", "--ignore-installed", "--report"];
        let mut all = options.map(str::to_owned).to_vec();
        all.push(report.display().to_string());
        all.extend_from_slice(arguments);
        self.run(&all, listener)?;
        std::fs::read_to_string(&report).map_err(Error::system("read pip's report"))
    }

    /// Runs pip.
    pub(crate) fn run(
        &self,
        arguments: &[String],
        listener: InstallListener<'_>,
    ) -> Result<(), Error> {
        let mut command = invocation(Command::new(python_of(self.environment)));
        command.args(arguments).args(["--progress-bar", "off"]).current_dir(self.directory);
        pip_settings::configure(&mut command, self.settings);
        stream(command, listener)?.map_err(|lines| failure(&lines))
    }
}

/// Runs an installer. On failure, the inner error has its last lines.
pub(crate) fn stream(
    command: Command,
    listener: InstallListener<'_>,
) -> Result<Result<(), Vec<String>>, Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    process::stream(command, None, &mut |line| listener(InstallEvent::Line(line.to_owned())))
        .map_err(Error::system(format!("run {program}")))
}

/// Completes the command of an interpreter so that it runs pip.
pub(crate) fn invocation(mut python: Command) -> Command {
    python.args(["-I", "-m", "pip", "--disable-pip-version-check", "--no-input", "--no-color"]);
    python
}

/// Classifies a failure by pip's output, and keeps the relevant lines.
fn failure(lines: &[String]) -> Error {
    if let Some(mismatch) = hash_mismatch(lines) {
        return mismatch;
    }
    let has = |part: &str| lines.iter().any(|line| line.contains(part));
    let matters = |line: &&String| {
        let chatter = [
            "Collecting ",
            "Downloading ",
            "Using cached ",
            "Processing ",
            "Looking in ",
            "Requirement already",
        ];
        !chatter.iter().any(|start| line.trim_start().starts_with(start))
            && !line.starts_with("INFO: ")
    };
    let said: Vec<&str> = lines.iter().filter(matters).map(String::as_str).collect();
    let said = said.join("\n").trim().to_owned();
    if has("ResolutionImpossible") || has("conflicting dependencies") {
        // Below is advice about pip's own options.
        let said = said.split("\nTo fix this you could try to:").next().unwrap_or(&said);
        let said: Vec<&str> =
            said.lines().filter(|line| !line.contains("ResolutionImpossible")).collect();
        return Error::Conflict { said: said.join("\n").trim().to_owned() };
    }
    if has("Retrying (Retry(")
        || has("NewConnectionError")
        || has("Failed to establish a new connection")
    {
        let mut said: Vec<&str> = said.lines().collect();
        // Retries repeat the same message.
        said.dedup_by(|one, other| {
            one.starts_with("WARNING: Retrying") && other.starts_with("WARNING: Retrying")
        });
        return Error::Unreachable { said: said.join("\n") };
    }
    if has("No matching distribution found") || has("Could not find a version that satisfies") {
        return Error::NotFound { said };
    }
    Error::Pip { said }
}

/// pip's report of the first hash mismatch.
fn hash_mismatch(lines: &[String]) -> Option<Error> {
    let start = lines.iter().position(|line| line.contains("DO NOT MATCH THE HASHES"))?;
    let mut package = None;
    let mut expected = Vec::new();
    for line in lines[start + 1..].iter().map(|line| line.trim()) {
        let last = line.split_whitespace().next_back().unwrap_or_default();
        if line.starts_with("Expected ") {
            expected.push(format!("sha256:{last}"));
        } else if line.starts_with("Got ") {
            let found = format!("sha256:{last}");
            return Some(Error::HashMismatch { package: package?, expected, found });
        } else if let Some((name, _)) = line.split_once(" from ") {
            package = Some(name.split(" @ ").next().unwrap_or(name).replace("==", " "));
        }
    }
    None
}

/// Packages with constraints that conflict with the requirements.
pub(crate) fn constraints_in_conflict(said: &str) -> Vec<String> {
    let lines = said.lines().filter_map(|line| line.split_once("The user requested (constraint) "));
    let names = lines.map(|(_, constraint)| constraint.split("==").next().unwrap_or(constraint));
    names.map(|name| normalize(name.trim())).collect()
}

/// Specifiers that a conflict names for a package: for `b` in `a 1.0 depends on b<14 and >=8`,
/// `<14` and `>=8`. Excludes the constraint of the package itself.
pub(crate) fn specifiers_in_conflict(said: &str, package: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in said.lines() {
        let Some((subject, wanted)) =
            line.split_once(" depends on ").or_else(|| line.split_once("The user requested "))
        else {
            continue;
        };
        let is_constraint = subject.trim().is_empty() && wanted.starts_with("(constraint)");
        let Some(rest) = wanted.strip_prefix(package).filter(|_| !is_constraint) else { continue };
        if rest.starts_with(|c: char| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
            continue;
        }
        let rest = rest.split(';').next().unwrap_or(rest);
        found.extend(
            rest.replace(" and ", ",")
                .split(',')
                .map(str::trim)
                .filter(|one| !one.is_empty())
                .map(str::to_owned),
        );
    }
    found
}

/// Writes a requirements file.
pub(crate) fn write_lines(path: &Path, lines: &[String]) -> Result<PathBuf, Error> {
    let mut text = lines.join("\n");
    text.push('\n');
    std::fs::write(path, text).map_err(Error::system(format!("write {}", path.display())))?;
    Ok(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    const CONFLICT: &str = "\
Collecting inmanta-module-std==5.2.8
INFO: pip is looking at multiple versions of inmanta-module-std to determine which version is compatible
ERROR: Cannot install inmanta-module-std==5.2.8 because these package versions have conflicting dependencies.

The conflict is caused by:
    inmanta-module-std 5.2.8 depends on inmanta-core<14 and >=8.7.0.dev
    The user requested (constraint) inmanta-core==20.1.0+orrery

To fix this you could try to:
1. loosen the range of package versions you've specified

ERROR: ResolutionImpossible: for help visit a page";

    #[test]
    fn conflicts_keep_the_message_of_pip() {
        let Error::Conflict { said } = failure(&lines(CONFLICT)) else { panic!() };
        assert!(said.starts_with("ERROR: Cannot install inmanta-module-std==5.2.8"), "{said}");
        assert!(said.ends_with("inmanta-core==20.1.0+orrery"), "{said}");
        assert_eq!(specifiers_in_conflict(&said, "inmanta-core"), ["<14", ">=8.7.0.dev"]);
        assert!(specifiers_in_conflict(&said, "inmanta").is_empty());
        let asked = "    The user requested inmanta-core~=13.0\n";
        assert_eq!(specifiers_in_conflict(asked, "inmanta-core"), ["~=13.0"]);
    }

    #[test]
    fn other_failures_are_classified() {
        let retry = "WARNING: Retrying (Retry(total=4)) after connection broken\nWARNING: Retrying (Retry(total=3)) after connection broken\nERROR: Could not find a version that satisfies the requirement a (from versions: none)\nERROR: No matching distribution found for a";
        let Error::Unreachable { said } = failure(&lines(retry)) else { panic!() };
        assert_eq!(said.matches("Retrying").count(), 1);
        let absent = "ERROR: No matching distribution found for nope";
        assert!(matches!(failure(&lines(absent)), Error::NotFound { .. }));
        assert!(
            matches!(failure(&lines("ERROR: disk full")), Error::Pip { said } if said == "ERROR: disk full")
        );
    }

    #[test]
    fn a_hash_mismatch_names_the_package() {
        let text = "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you have updated\n    toy==1.0.0 from file:///w/toy-1.0.0-py3-none-any.whl (from -r pins.txt (line 1)):\n        Expected sha256 aa\n        Expected     or bb\n             Got        cc";
        let Error::HashMismatch { package, expected, found } = failure(&lines(text)) else {
            panic!()
        };
        assert_eq!((package.as_str(), found.as_str()), ("toy 1.0.0", "sha256:cc"));
        assert_eq!(expected, ["sha256:aa", "sha256:bb"]);
    }

    #[test]
    fn conflicting_constraints_are_found() {
        let said =
            "    The user requested toy>=1.1\n    The user requested (constraint) To_y==1.0.0\n";
        assert_eq!(constraints_in_conflict(said), ["to-y"]);
    }
}
