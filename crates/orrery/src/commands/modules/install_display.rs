//! Output of an installation: progress, changes of packages and of the lock file, errors.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use orrery_base::clock::monotonic;
use orrery_compiler::files::Disk;
use orrery_compiler::modules::requirements::install_advice;
use orrery_pyenv::lock::FILE as LOCK_FILE;
use orrery_pyenv::package_names::normalize;
use orrery_pyenv::{Error, InstallEvent, InstallOutcome, PackageChange};
use serde_json::{Value, json};

use super::locking::LockChange;
use super::target::Target;
use crate::cli::modules::InstallOptions;
use crate::{Exit, output, style};

/// Output of an installation.
pub(super) struct InstallDisplay {
    pub(super) json: bool,
    pub(super) verbose: bool,
    pub(super) started: Instant,
}

impl InstallDisplay {
    pub(super) fn new(options: &InstallOptions, verbose: bool) -> Self {
        InstallDisplay { json: options.json, verbose, started: monotonic() }
    }

    /// Installs and shows the progress: each step, and the last line of pip.
    pub(super) fn watch(&self, target: &Target) -> Result<InstallOutcome, Error> {
        let spinner = (!self.json && !self.verbose && std::io::stderr().is_terminal()).then(|| {
            let spinner = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            let look = ProgressStyle::with_template("{spinner} {wide_msg}");
            let spinner =
                spinner.with_style(look.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            spinner.enable_steady_tick(Duration::from_millis(100));
            spinner
        });
        let outcome =
            orrery_pyenv::install(&target.request, &mut |event| match (event, &spinner) {
                (InstallEvent::Step(text), Some(spinner)) => spinner.set_message(text),
                (InstallEvent::Line(text), Some(spinner)) if !text.trim().is_empty() => {
                    spinner.set_message(style::sanitize(text.trim()));
                }
                (InstallEvent::Step(text), None) if !self.json => {
                    output::print_status(&style::sanitize(&text));
                }
                (InstallEvent::Line(text), None) if self.verbose => {
                    output::print_status(&format!("  {}", style::sanitize(&text)));
                }
                _ => {}
            });
        if let Some(spinner) = spinner {
            spinner.finish_and_clear();
        }
        outcome
    }

    pub(super) fn conclude(
        &self,
        target: &Target,
        done: Result<(InstallOutcome, Option<LockChange>), Error>,
    ) -> Exit {
        match (done, self.json) {
            (Ok((outcome, lock)), true) => {
                print(&self.as_json(target, &outcome, lock.as_ref()), Exit::Done)
            }
            (Err(error), true) => print(&error_as_json(&error), Exit::Error),
            (Ok((outcome, lock)), false) => {
                self.print_outcome(target, &outcome, lock.as_ref());
                Exit::Done
            }
            (Err(error), false) => {
                print_error(&error);
                Exit::Error
            }
        }
    }

    fn as_json(
        &self,
        target: &Target,
        outcome: &InstallOutcome,
        lock: Option<&LockChange>,
    ) -> Value {
        let changes_as_json = |changes: &[PackageChange]| -> Vec<Value> {
            let change = |change: &PackageChange| json!({ "name": change.name, "before": change.before, "after": change.after });
            changes.iter().map(change).collect()
        };
        let lock = lock.map(
            |lock| json!({ "created": lock.created, "changes": changes_as_json(&lock.changes) }),
        );
        json!({
            "status": "ok",
            "environment": outcome.environment.display().to_string(),
            "python": outcome.python,
            "created": outcome.created,
            "changes": changes_as_json(&outcome.changes),
            "lock": lock,
            "warnings": outcome.warnings,
            "missing": target.missing(),
            "seconds": self.started.elapsed().as_secs_f64(),
        })
    }

    fn print_outcome(&self, target: &Target, outcome: &InstallOutcome, lock: Option<&LockChange>) {
        outcome.changes.iter().for_each(|change| print_change("", change));
        for warning in &outcome.warnings {
            output::print_status(&format!(
                "{}: {}",
                style::warning("warning"),
                style::sanitize(warning)
            ));
        }
        let place =
            outcome.environment.strip_prefix(&target.directory).unwrap_or(&outcome.environment);
        let place = style::sanitize(&place.display().to_string());
        let python = format!("Python {}", outcome.python);
        let time = style::duration(self.started.elapsed());
        let count = style::count(outcome.changes.len(), "package");
        output::print_status(&if outcome.created {
            format!("{} {place} with {python} and {count} in {time}", style::good("created"))
        } else if outcome.changes.is_empty() {
            format!("{place} ({python}) is up to date")
        } else {
            format!("{} {count} in {place} ({python}) in {time}", style::good("changed"))
        });
        if let Some(lock) = lock {
            print_lock_changes(lock, &outcome.changes);
        }
        for name in target.missing() {
            let help = install_advice(&Disk, &target.directory, &name);
            output::print_status(&format!(
                "{}: imported module {} not found",
                style::warning("warning"),
                style::sanitize(&name)
            ));
            output::print_status(&format!("{}: {}", style::help("help"), style::sanitize(&help)));
        }
    }
}

fn print_change(indent: &str, change: &PackageChange) {
    let name = style::sanitize(&change.name);
    let shown = |version: &Option<String>| style::sanitize(version.as_deref().unwrap_or_default());
    let (before, after) = (shown(&change.before), shown(&change.after));
    output::print_status(&match (&change.before, &change.after) {
        (None, Some(_)) => format!("{indent}{} {name} {after}", style::added("+")),
        (Some(one), Some(other)) if one == other => {
            format!("{indent}{} {name} {after}: other files", style::warning("~"))
        }
        (Some(_), Some(_)) => {
            format!("{indent}{} {name} {before} → {after}", style::warning("~"))
        }
        (_, None) => format!("{indent}{} {name} {before}", style::removed("-")),
    });
}

/// Reports changes of the lock file that were not already shown as installed.
fn print_lock_changes(lock: &LockChange, installed: &[PackageChange]) {
    let verb = if lock.created { "created" } else { "updated" };
    output::print_status(&format!("{} {LOCK_FILE}", style::good(verb)));
    if lock.created {
        return;
    }
    let is_new = |change: &&PackageChange| {
        let same = |one: &PackageChange| {
            normalize(&one.name) == normalize(&change.name) && one.after == change.after
        };
        change.before == change.after || !installed.iter().any(same)
    };
    lock.changes.iter().filter(is_new).for_each(|change| print_change("  ", change));
}

fn print(value: &Value, exit: Exit) -> Exit {
    if output::print(|out| writeln!(out, "{value:#}")) { exit } else { Exit::Error }
}

fn error_as_json(error: &Error) -> Value {
    json!({
        "status": "error",
        "error": {
            "class": error.class(),
            "message": error.to_string(),
            "details": error.details(),
            "help": error.help(),
        },
    })
}

fn print_error(error: &Error) {
    output::print_status(&format!(
        "{}: {}",
        style::error("error"),
        style::sanitize(&error.to_string())
    ));
    for line in error.details().unwrap_or_default().lines() {
        output::print_status(&format!("  {}", style::sanitize(line)));
    }
    if let Some(help) = error.help() {
        output::print_status(&format!("{}: {}", style::help("help"), style::sanitize(&help)));
    }
}
