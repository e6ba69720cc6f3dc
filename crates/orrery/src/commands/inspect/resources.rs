//! `orrery resources`: a list, read and written page by page.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};

use orrery_model::{Pattern, Status};
use orrery_store::ResourceQuery;
use serde_json::Value;

use super::source::Seen;
use super::{Look, Paper, Trouble, find, json, paper, text};
use crate::cli_inspect::Resources;
use crate::{Exit, output, style};

/// Lines are kept until there are so many, so that their columns can be aligned.
const LINES_ALIGNED: usize = 1000;

pub(crate) fn run(look: &Look, options: &Resources) -> Result<Exit, Trouble> {
    let mut list = List {
        counts: BTreeMap::new(),
        removed: 0,
        shown: 0,
        next: None,
        form: if options.look.json {
            Form::Json(BufWriter::with_capacity(1 << 16, io::stdout().lock()))
        } else {
            Form::Table { out: paper(), lines: Vec::new(), width: 0, headed: false }
        },
    };
    list.form.begin()?;
    read(look, options, &mut list)?;
    list.form.end(list.next.as_deref())?;
    if !options.look.json {
        list.tell();
    }
    Ok(Exit::Done)
}

fn read(look: &Look, options: &Resources, list: &mut List) -> Result<(), Trouble> {
    let query = ResourceQuery {
        agent: options.agent.clone(),
        entity: options.entity.clone(),
        statuses: options.statuses.clone(),
        ..ResourceQuery::default()
    };
    let pattern = options.filter.clone().map(Pattern::new);
    let mut last = None;
    find::each(look, &query, options.after.as_deref(), |resource| {
        if pattern.as_ref().is_some_and(|pattern| !pattern.matches(&resource.id)) {
            return Ok(true);
        }
        if options.limit == Some(list.shown) {
            // There is more: that is all there was to know about this one.
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
    /// Without those that were removed.
    counts: BTreeMap<Status, u64>,
    removed: u64,
    shown: usize,
    /// The last one shown, if there are more behind it.
    next: Option<String>,
    form: Form,
}

enum Form {
    Json(BufWriter<io::StdoutLock<'static>>),
    Table {
        out: Paper,
        /// Each with its status, the word for that, and the rest.
        lines: Vec<(Status, &'static str, String)>,
        /// Of the first column; it grows if it must.
        width: usize,
        headed: bool,
    },
}

impl List {
    fn show(&mut self, resource: &Seen) -> Result<(), Trouble> {
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
                let id = style::harmless(resource.id.as_str());
                *width = (*width).max(resource.word().len());
                lines.push((resource.status, resource.word(), format!("{run:<20}  {id}")));
                if lines.len() >= LINES_ALIGNED {
                    self.form.flush_lines()?;
                }
            }
        }
        Ok(())
    }

    fn tell(&self) {
        if let Some(next) = &self.next {
            let next = style::harmless(next);
            output::say(&format!("more results: --after '{next}'"));
        }
        let resources = style::count(self.shown, "resource");
        if self.shown == 0 {
            return output::say(&resources);
        }
        output::say(&format!("{resources}: {}", text::tally_with(&self.counts, self.removed)));
    }
}

impl Form {
    fn begin(&mut self) -> Result<(), Trouble> {
        match self {
            Form::Json(out) => Ok(write!(out, "{{\"resources\": [")?),
            Form::Table { width, .. } => {
                *width = "STATUS".len();
                Ok(())
            }
        }
    }

    fn flush_lines(&mut self) -> Result<(), Trouble> {
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

    fn end(&mut self, next: Option<&str>) -> Result<(), Trouble> {
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
