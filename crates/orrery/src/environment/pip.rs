//! Runs pip: its lines as they come, its report of what it would install, and its failures told apart.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use orrery_host::pip::PipSettings;
use serde_json::Value;

use super::Error;
use super::error::python_of;

/// The last lines of an output that are kept for an error.
const KEPT_LINES: usize = 400;

/// What is told while it goes on.
#[derive(Debug)]
pub(crate) enum Event {
    /// What is done now.
    Step(String),
    /// A line that pip wrote.
    Line(String),
}

pub(crate) type Listener<'l> = &'l mut dyn FnMut(Event);

pub(super) struct Pip<'e> {
    pub(super) environment: &'e Path,
    /// Where relative paths in requirement files are seen from.
    pub(super) directory: &'e Path,
    pub(super) settings: &'e PipSettings,
}

/// A package that pip would install.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Planned {
    pub(super) name: String,
    pub(super) version: String,
    /// A line of a requirements file that installs exactly this.
    pub(super) line: String,
}

impl Pip<'_> {
    /// What would be installed for some arguments of `pip install`.
    pub(super) fn plan(
        &self,
        arguments: &[String],
        scratch: &Path,
        listener: Listener<'_>,
    ) -> Result<Vec<Planned>, Error> {
        let report = scratch.join("report.json");
        let mut all = vec!["install".to_owned(), "--dry-run".into(), "--report".into()];
        all.push(report.display().to_string());
        all.extend_from_slice(arguments);
        self.run(&all, listener)?;
        let text = std::fs::read_to_string(&report).map_err(Error::system("read pip's report"))?;
        read_report(&text).ok_or_else(|| Error::Helper("pip's report has an unknown form".into()))
    }

    /// Runs pip to its end.
    pub(super) fn run(&self, arguments: &[String], listener: Listener<'_>) -> Result<(), Error> {
        let what = || Error::system("run pip");
        let (reader, writer) = std::io::pipe().map_err(what())?;
        let mut command = Command::new(python_of(self.environment));
        command
            .args(["-I", "-m", "pip", "--disable-pip-version-check", "--no-input", "--no-color"])
            .args(arguments)
            .args(["--progress-bar", "off"])
            .current_dir(self.directory)
            .stdin(Stdio::null())
            // One stream, so that the lines of a message stay together.
            .stdout(writer.try_clone().map_err(what())?)
            .stderr(writer);
        orrery_host::pip::configure(&mut command, self.settings);
        tracing::debug!(?command, "pip");
        let mut child = command.spawn().map_err(what())?;
        // The command keeps the writing end; the stream ends when nobody has it any more.
        drop(command);
        let mut kept = std::collections::VecDeque::new();
        for line in BufReader::new(reader).split(b'\n') {
            let line = line.map_err(what())?;
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            listener(Event::Line(line.clone()));
            if kept.len() == KEPT_LINES {
                kept.pop_front();
            }
            kept.push_back(line);
        }
        let status = child.wait().map_err(what())?;
        if status.success() {
            return Ok(());
        }
        Err(failure(&Vec::from(kept)))
    }
}

/// What pip's report says would be installed.
fn read_report(text: &str) -> Option<Vec<Planned>> {
    let report: Value = serde_json::from_str(text).ok()?;
    let planned = |item: &Value| {
        let metadata = item.get("metadata")?;
        let name = metadata.get("name")?.as_str()?.to_owned();
        let version = metadata.get("version")?.as_str()?.to_owned();
        let place = item.get("download_info")?;
        let url = place.get("url")?.as_str()?;
        let line = if let Some(path) =
            place.pointer("/dir_info/editable").and(url.strip_prefix("file://"))
        {
            format!("--editable {path}")
        } else if let Some(repository) = place.get("vcs_info") {
            let kind = repository.get("vcs")?.as_str()?;
            let commit = repository.get("commit_id")?.as_str()?;
            format!("{name} @ {kind}+{url}@{commit}")
        } else if item.get("is_direct")?.as_bool()? {
            format!("{name} @ {url}")
        } else {
            format!("{name}=={version}")
        };
        Some(Planned { name, version, line })
    };
    report.get("install")?.as_array()?.iter().map(planned).collect()
}

/// Tells failures apart by what pip says, and keeps the part that matters.
fn failure(lines: &[String]) -> Error {
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
        // The advice below is pip's own, about its own options.
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
        // It tries several times, and says the same each time.
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

/// The specifiers that a conflict names for a package: of `a 1.0 depends on b<14 and >=8`, for `b`,
/// `<14` and `>=8`. The constraint that stands for the package itself is left out.
pub(super) fn specifiers_in_conflict(said: &str, package: &str) -> Vec<String> {
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

/// Names of packages are compared without regard to case, `-`, `_` and `.`.
pub(crate) fn normal_name(name: &str) -> String {
    name.to_ascii_lowercase().replace(['_', '.'], "-")
}

/// Writes lines to a file of requirements.
pub(super) fn write_lines(path: &Path, lines: &[String]) -> Result<PathBuf, Error> {
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
    fn a_conflict_is_told_in_the_words_of_pip() {
        let Error::Conflict { said } = failure(&lines(CONFLICT)) else { panic!() };
        assert!(said.starts_with("ERROR: Cannot install inmanta-module-std==5.2.8"), "{said}");
        assert!(said.ends_with("inmanta-core==20.1.0+orrery"), "{said}");
        assert_eq!(specifiers_in_conflict(&said, "inmanta-core"), ["<14", ">=8.7.0.dev"]);
        assert!(specifiers_in_conflict(&said, "inmanta").is_empty());
        let asked = "    The user requested inmanta-core~=13.0\n";
        assert_eq!(specifiers_in_conflict(asked, "inmanta-core"), ["~=13.0"]);
    }

    #[test]
    fn other_failures_are_told_apart() {
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
    fn a_report_becomes_lines_that_install_just_that() {
        let text = r#"{"install":[
            {"metadata":{"name":"a","version":"1.0"},"is_direct":false,"download_info":{"url":"https://x/a.whl","archive_info":{}}},
            {"metadata":{"name":"b","version":"2.0"},"is_direct":true,"download_info":{"url":"file:///src/b","dir_info":{"editable":true}}},
            {"metadata":{"name":"c","version":"3.0"},"is_direct":true,"download_info":{"url":"https://x/c.git","vcs_info":{"vcs":"git","commit_id":"abc"}}},
            {"metadata":{"name":"d","version":"4.0"},"is_direct":true,"download_info":{"url":"https://x/d.whl","archive_info":{}}}]}"#;
        let found: Vec<String> =
            read_report(text).unwrap().into_iter().map(|planned| planned.line).collect();
        assert_eq!(
            found,
            ["a==1.0", "--editable /src/b", "c @ git+https://x/c.git@abc", "d @ https://x/d.whl"]
        );
        assert_eq!(read_report("{}"), None);
    }
}
