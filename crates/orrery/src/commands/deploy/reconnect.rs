//! Retries requests while a server is unavailable, for a bounded time. Operations continue on the
//! server meanwhile.

use std::cell::Cell;
use std::time::Duration;

use orrery_api::client::ClientError;
use orrery_base::clock::monotonic;

use crate::error::CliError;
use crate::signals::Interrupt;
use crate::style;

use super::progress_bar::Bar;

/// Maximum time of unavailability, in seconds.
const PATIENCE_VARIABLE: &str = "ORRERY_RECONNECT_SECONDS";
const PATIENCE: Duration = Duration::from_secs(120);
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Poll interval for Ctrl-C.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Repeats a request until the server responds.
pub(in crate::commands) struct ReconnectLoop<'a> {
    interrupt: &'a Interrupt,
    /// Known state of the operation: `version 3 is stored and released`.
    promise: String,
    /// True between the report of the loss and that of the reconnection.
    is_lost: Cell<bool>,
}

/// Reason for a missing response.
pub(in crate::commands) enum Unanswered {
    /// Interrupted by the user.
    Interrupted,
    Failed(CliError),
}

impl<'a> ReconnectLoop<'a> {
    pub(in crate::commands) fn new(interrupt: &'a Interrupt, promise: String) -> Self {
        ReconnectLoop { interrupt, promise, is_lost: Cell::new(false) }
    }

    /// Sends the request until there is a response, or the time is over.
    pub(in crate::commands) fn ask<T>(
        &self,
        bar: &Bar,
        mut ask: impl FnMut() -> Result<T, ClientError>,
    ) -> Result<T, Unanswered> {
        let began = monotonic();
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match ask() {
                Ok(answer) => {
                    if self.is_lost.replace(false) {
                        bar.print_above(&format!("{}: reconnected", style::help("note")));
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
                    "connection lost; {}, the server continues; reconnecting",
                    self.promise
                );
                bar.print_above(&format!(
                    "{}: {}",
                    style::warning("warning"),
                    style::sanitize(&lost)
                ));
            }
            let until = monotonic() + pause;
            while monotonic() < until {
                if self.interrupt.is_requested() {
                    return Err(Unanswered::Interrupted);
                }
                std::thread::sleep(LOOK_EVERY);
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn give_up(&self, error: &ClientError) -> CliError {
        let time = style::duration(patience());
        let error = CliError::new(format!("{error}; gave up after {time}. {}", self.still_true()));
        error.help("`orrery status` shows the progress once the server responds")
    }

    /// Known state of the operation, as a sentence.
    pub(in crate::commands) fn still_true(&self) -> String {
        let mut promise = self.promise.clone();
        if let Some(first) = promise.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        format!("{promise}, and the server continues")
    }
}

fn patience() -> Duration {
    let given = std::env::var(PATIENCE_VARIABLE).ok().and_then(|text| text.parse().ok());
    given.map_or(PATIENCE, Duration::from_secs)
}
