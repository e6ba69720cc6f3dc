//! `orrery resources`: a list, streamed page by page.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};

use orrery_model::{Pattern, Status};
use serde_json::Value;

use super::deployment::ResourceView;
use super::view::ResourceSelection;
use super::{CliError, OpenDeployment, StyledStdout, find, json, styled_stdout, text};
use crate::cli::inspect::Resources;
use crate::{Exit, output, style};

/// Number of buffered lines for the alignment of columns.
const LINES_ALIGNED: usize = 1000;

pub(crate) fn run(deployment: &OpenDeployment, options: &Resources) -> Result<Exit, CliError> {
    let mut list = List {
        counts: BTreeMap::new(),
        removed: 0,
        shown: 0,
        next: None,
        form: if options.inspect.json {
            Form::Json(BufWriter::with_capacity(1 << 16, io::stdout().lock()))
        } else {
            Form::Table { out: styled_stdout(), lines: Vec::new(), width: 0, headed: false }
        },
    };
    list.form.begin()?;
    read(deployment, options, &mut list)?;
    list.form.end(list.next.as_deref())?;
    if !options.inspect.json {
        list.print_summary();
    }
    Ok(Exit::Done)
}

fn read(deployment: &OpenDeployment, options: &Resources, list: &mut List) -> Result<(), CliError> {
    let query = ResourceSelection {
        agent: options.agent.clone(),
        entity: options.entity.clone(),
        statuses: options.statuses.clone(),
        ..ResourceSelection::default()
    };
    let pattern = options.filter.clone().map(Pattern::new);
    let mut last = None;
    find::visit(deployment, &query, options.after.as_deref(), |resource| {
        if pattern.as_ref().is_some_and(|pattern| !pattern.matches(&resource.id)) {
            return Ok(true);
        }
        if options.limit == Some(list.shown) {
            // One resource more than the limit: the list is not complete.
            list.next = last.take();
            return Ok(false);
        }
        list.show(&resource)?;
        if options.limit == Some(list.shown) {
            last = Some(resource.id.to_string());
        }
        Ok(true)
    })
}

struct List {
    /// Without removed resources.
    counts: BTreeMap<Status, u64>,
    removed: u64,
    shown: usize,
    /// The last listed resource, if there are more.
    next: Option<String>,
    form: Form,
}

enum Form {
    Json(BufWriter<io::StdoutLock<'static>>),
    Table {
        out: StyledStdout,
        /// Status, status word, and the rest of the line.
        lines: Vec<(Status, &'static str, String)>,
        /// Width of the first column; it can grow.
        width: usize,
        headed: bool,
    },
}

impl List {
    fn show(&mut self, resource: &ResourceView) -> Result<(), CliError> {
        match resource.is_removed() {
            true => self.removed += 1,
            false => *self.counts.entry(resource.status).or_default() += 1,
        }
        self.shown += 1;
        match &mut self.form {
            Form::Json(out) => {
                let comma = if self.shown > 1 { "," } else { "" };
                write!(out, "{comma}\n  {}", json::resource(resource))?;
            }
            Form::Table { lines, width, .. } => {
                let run = resource.last_run_at.map_or_else(|| "-".to_owned(), text::moment);
                let id = style::sanitize(resource.id.as_str());
                *width = (*width).max(resource.word().len());
                lines.push((resource.status, resource.word(), format!("{run:<20}  {id}")));
                if lines.len() >= LINES_ALIGNED {
                    self.form.flush_lines()?;
                }
            }
        }
        Ok(())
    }

    fn print_summary(&self) {
        if let Some(next) = &self.next {
            let next = style::sanitize(next);
            output::print_status(&format!("more results: --after '{next}'"));
        }
        let resources = style::count(self.shown, "resource");
        if self.shown == 0 {
            return output::print_status(&resources);
        }
        output::print_status(&format!(
            "{resources}: {}",
            text::tally_with(&self.counts, self.removed)
        ));
    }
}

impl Form {
    fn begin(&mut self) -> Result<(), CliError> {
        match self {
            Form::Json(out) => Ok(write!(out, "{{\"resources\": [")?),
            Form::Table { width, .. } => {
                *width = "STATUS".len();
                Ok(())
            }
        }
    }

    fn flush_lines(&mut self) -> Result<(), CliError> {
        let Form::Table { out, lines, width, headed } = self else { return Ok(()) };
        if !*headed && !lines.is_empty() {
            *headed = true;
            let line = format!("{:<width$}  {:<20}  RESOURCE", "STATUS", "LAST RUN");
            writeln!(out, "{}", style::heading(&line))?;
        }
        for (status, word, line) in lines.drain(..) {
            let word = text::coloured(status, &format!("{word:<width$}"));
            writeln!(out, "{word}  {line}")?;
        }
        Ok(())
    }

    fn end(&mut self, next: Option<&str>) -> Result<(), CliError> {
        self.flush_lines()?;
        match self {
            Form::Json(out) => {
                writeln!(out, "\n], \"next\": {}}}", Value::from(next))?;
                Ok(out.flush()?)
            }
            Form::Table { out, .. } => Ok(out.flush()?),
        }
    }
}
