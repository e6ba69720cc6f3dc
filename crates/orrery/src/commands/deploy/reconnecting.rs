//! Patience with a server that is away for a while: what it was asked for goes on without this command, so the command waits
//! for it to come back, for a bounded time.

use std::cell::Cell;
use std::time::{Duration, Instant};

use orrery_api::client::ClientError;

use crate::commands::trouble::Trouble;
use crate::signals::Interrupt;
use crate::style;

use super::bar::Bar;

/// How long a server may be away, in seconds.
const PATIENCE_VARIABLE: &str = "ORRERY_RECONNECT_SECONDS";
const PATIENCE: Duration = Duration::from_secs(120);
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How often it is looked whether somebody pressed Ctrl-C.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Asks a server again that does not answer.
pub(in crate::commands) struct Reconnecting<'a> {
    interrupt: &'a Interrupt,
    /// What is true although the server does not answer: `version 3 is stored and released`.
    promise: String,
    /// Whether the loss was told and the return was not.
    is_lost: Cell<bool>,
}

/// Why there is no answer.
pub(in crate::commands) enum Unanswered {
    /// Somebody did not want to wait.
    Interrupted,
    Failed(Trouble),
}

impl<'a> Reconnecting<'a> {
    pub(in crate::commands) fn new(interrupt: &'a Interrupt, promise: String) -> Self {
        Reconnecting { interrupt, promise, is_lost: Cell::new(false) }
    }

    /// Asks until there is an answer, or the patience is over.
    pub(in crate::commands) fn ask<T>(
        &self,
        bar: &Bar,
        mut ask: impl FnMut() -> Result<T, ClientError>,
    ) -> Result<T, Unanswered> {
        let began = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match ask() {
                Ok(answer) => {
                    if self.is_lost.replace(false) {
                        bar.say(&format!("{}: the server is back", style::help("note")));
                    }
                    return Ok(answer);
                }
                Err(error) => error,
            };
            if !error.is_temporary() {
                return Err(Unanswered::Failed(error.into()));
            }
            if began.elapsed() >= patience() {
                return Err(Unanswered::Failed(self.give_up(&error)));
            }
            if !self.is_lost.replace(true) {
                let lost = format!(
                    "connection lost; {}, the server continues; waiting for it to come back",
                    self.promise
                );
                bar.say(&format!("{}: {}", style::warning("warning"), style::harmless(&lost)));
            }
            let until = Instant::now() + pause;
            while Instant::now() < until {
                if self.interrupt.is_asked() {
                    return Err(Unanswered::Interrupted);
                }
                std::thread::sleep(LOOK_EVERY);
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn give_up(&self, error: &ClientError) -> Trouble {
        let time = style::duration(patience());
        let trouble =
            Trouble::said(format!("{error}; gave up after {time}. {}", self.still_true()));
        trouble.help("`orrery status` shows how far it is as soon as the server answers")
    }

    /// What is true although nothing more is known, as a sentence.
    pub(in crate::commands) fn still_true(&self) -> String {
        let mut promise = self.promise.clone();
        if let Some(first) = promise.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        format!("{promise}, and the server continues by itself")
    }
}

fn patience() -> Duration {
    let given = std::env::var(PATIENCE_VARIABLE).ok().and_then(|text| text.parse().ok());
    given.map_or(PATIENCE, Duration::from_secs)
}
