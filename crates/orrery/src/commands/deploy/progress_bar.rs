//! Progress bar of a local or remote run: progress, rate and running resources.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use orrery_base::clock::monotonic;

use crate::{output, style};

/// Delay before the bar appears.
const APPEARS_AFTER: Duration = Duration::from_millis(400);
/// Maximum number of named running resources.
const RUNNING_MAX: usize = 3;

/// Progress of a run.
#[derive(Debug, Default)]
pub(in crate::commands) struct State {
    pub(in crate::commands) total: u64,
    pub(in crate::commands) done: u64,
    /// Counts with their words: `3 failed`.
    pub(in crate::commands) counts: Vec<(u64, &'static str)>,
    /// Running resources, with their running time if known.
    pub(in crate::commands) running: Vec<(String, Option<Duration>)>,
}

pub(in crate::commands) struct Bar {
    started: Instant,
    is_wanted: bool,
    shown: Option<ProgressBar>,
}

impl Bar {
    /// `quiet`: no output.
    pub(in crate::commands) fn new(quiet: bool) -> Self {
        let is_wanted = !quiet && std::io::stderr().is_terminal();
        Bar { started: monotonic(), is_wanted, shown: None }
    }

    pub(in crate::commands) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// True once the bar should be visible.
    pub(in crate::commands) fn is_due(&self) -> bool {
        self.is_wanted && self.elapsed() >= APPEARS_AFTER
    }

    pub(in crate::commands) fn draw(&mut self, state: &State) {
        if !self.is_due() {
            return;
        }
        let text = state.text(self.elapsed());
        let bar = self.shown.get_or_insert_with(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            let form = ProgressStyle::with_template("{bar:24.green} {msg}");
            bar.with_style(form.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        bar.set_length(state.total);
        bar.set_position(state.done.min(state.total));
        bar.set_message(text);
    }

    /// Writes a line above the bar.
    pub(in crate::commands) fn print_above(&self, line: &str) {
        match &self.shown {
            Some(bar) => bar.suspend(|| output::print_status(line)),
            None => output::print_status(line),
        }
    }

    pub(in crate::commands) fn clear(&mut self) {
        if let Some(bar) = self.shown.take() {
            bar.finish_and_clear();
        }
    }
}

impl State {
    fn text(&self, elapsed: Duration) -> String {
        let number = |count: u64| style::grouped(usize::try_from(count).unwrap_or(usize::MAX));
        let mut parts = vec![format!("{}/{}", number(self.done), number(self.total))];
        parts.push(style::duration(elapsed));
        let rate = self.done as f64 / elapsed.as_secs_f64().max(0.001);
        if self.done > 0 {
            parts.push(if rate >= 10.0 { format!("{rate:.0}/s") } else { format!("{rate:.1}/s") });
        }
        for (count, word) in self.counts.iter().filter(|(count, _)| *count > 0) {
            parts.push(format!("{} {word}", number(*count)));
        }
        let mut text = parts.join(" · ");
        for (id, since) in self.running.iter().take(RUNNING_MAX) {
            let since = since.filter(|since| since.as_secs() >= 1);
            let since = since.map(|since| format!(" {}", style::duration(since)));
            let since = since.unwrap_or_default();
            text.push_str(&format!("\n  running {}{since}", style::sanitize(id)));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_shows_counts_time_rate_and_running_resources() {
        let state = State {
            total: 3001,
            done: 1200,
            counts: vec![(7, "changed"), (0, "failed")],
            running: vec![
                ("exec::Run[a,command=x]".to_owned(), Some(Duration::from_millis(2500))),
                ("std::File[a,path=/y]".to_owned(), None),
            ],
        };
        assert_eq!(
            state.text(Duration::from_secs(4)),
            "1,200/3,001 · 4.0 s · 300/s · 7 changed\n  running exec::Run[a,command=x] 2.5 s\n  \
             running std::File[a,path=/y]"
        );
        let slow = State { total: 5, done: 1, ..State::default() };
        assert_eq!(slow.text(Duration::from_secs(8)), "1/5 · 8.0 s · 0.1/s");
        assert_eq!(State::default().text(Duration::ZERO), "0/0 · 0 ms");
    }
}
