//! Prints compiled projects: output of the model, warnings, errors, and closing lines.

use std::path::Path;
use std::time::Instant;

use orrery_compiler::diagnostic::Diagnostic;
use orrery_project::CompiledProject;

use crate::render::{DiagnosticRenderer, path_from_here};
use crate::{output, style};

use super::report;

/// Shown only with --verbose: users know which modules are in their module path.
const QUIET_WARNING: &str = "legacy-module";

/// Printer of one compiled project.
pub(super) struct ProjectPrinter<'a> {
    project: &'a CompiledProject,
    /// Project path in messages.
    directory: &'a Path,
    verbose: bool,
}

impl<'a> ProjectPrinter<'a> {
    pub(super) fn new(project: &'a CompiledProject, verbose: bool) -> Self {
        ProjectPrinter { project, directory: &project.directory, verbose }
    }

    /// Names the project differently in messages.
    pub(super) fn at(self, directory: Option<&'a Path>) -> Self {
        ProjectPrinter { directory: directory.unwrap_or(self.directory), ..self }
    }

    fn render(&self, show: impl FnOnce(&DiagnosticRenderer<'_>)) {
        let path = |name: &str| path_from_here(self.directory, name);
        let sources = &self.project.compiled.sources;
        show(&DiagnosticRenderer { sources, path: &path, width: output::width() });
    }

    /// Prints the output of the model; returns false if that failed.
    #[must_use]
    pub(super) fn model_output(&self) -> bool {
        output::print(|out| out.write_all(self.project.compiled.output.as_bytes()))
    }

    /// Prints the warnings of the compile and returns their number.
    pub(super) fn warnings(&self) -> usize {
        let mut warnings = self.project.warnings();
        warnings.retain(|warning| self.verbose || warning.id != Some(QUIET_WARNING));
        self.render(|renderer| report::show_warnings(renderer, &warnings));
        warnings.len()
    }

    fn show_errors(&self, errors: &[Diagnostic]) -> usize {
        self.render(|renderer| report::show_errors(renderer, errors));
        errors.len()
    }

    /// Prints the errors of the compile and returns their number.
    pub(super) fn errors(&self) -> usize {
        self.show_errors(&self.project.errors())
    }

    /// Prints the warnings and problems of the export; returns the number of problems.
    pub(super) fn export_problems(&self) -> usize {
        for warning in self.project.export_warnings() {
            let text = style::sanitize(&warning.to_string());
            output::print_status(&format!("{}: {text}", style::warning("warning")));
        }
        self.show_errors(&self.project.export_problems())
    }

    /// Prints a summary of the export.
    pub(super) fn export_summary(&self) {
        let problems = self.export_problems();
        let count = self.project.exported.as_ref().map_or(0, |exported| exported.resources.len());
        let shown_count = style::count(count, "resource");
        let left_out = match self.project.left_out() {
            0 => String::new(),
            left_out => format!(", {} left out", style::grouped(left_out)),
        };
        output::print_status(&format!("{} {shown_count}{left_out}", style::good("exported")));
        warn_if_no_resources(count, problems);
    }

    /// Prints cycles of requirements and the number of affected resources.
    pub(super) fn cycles(&self, started: Instant) {
        self.show_errors(&self.project.cycles());
        let count = style::count(self.project.left_out(), "resource");
        let time = style::duration(started.elapsed());
        output::print_status(&format!(
            "{} after {time}: {count} cannot be deployed",
            style::error("failed")
        ));
    }

    /// Prints warnings, errors and the closing line.
    pub(super) fn summary(&self, started: Instant) {
        let warnings = self.warnings();
        let errors = self.errors();
        let warned = match warnings {
            0 => String::new(),
            count => format!(", {}", style::count(count, "warning")),
        };
        let time = style::duration(started.elapsed());
        let compiled = &self.project.compiled;
        output::print_status(&match &compiled.outcome {
            Ok(summary) => format!(
                "{} {} from {} of {} in {time}{warned}",
                style::good("compiled"),
                style::count(summary.instances, "instance"),
                style::count(summary.files, "file"),
                style::count(compiled.modules.len() + 1, "module"),
            ),
            Err(_) => format!(
                "{} after {time}: {}{warned}",
                style::error("failed"),
                style::count(errors, "error")
            ),
        });
    }
}

/// Warns if a model has no resources.
pub(super) fn warn_if_no_resources(exported: usize, problems: usize) {
    if exported > 0 || problems > 0 {
        return;
    }
    output::print_status(&format!(
        "{}: the model has no resources: nothing to deploy",
        style::warning("note")
    ));
    output::print_status(&format!(
        "{}: add one to the model: `std::File(host=std::Host(name=\"localhost\", os=std::linux), \
         path=\"/tmp/hello.txt\", content=\"Hello!\\n\")`; `orrery docs` lists the types",
        style::help("help")
    ));
}
