//! Server-sent events: hints that something changed.
//!
//! A broken connection is reopened from the last event that was received.

use std::io::{BufRead, BufReader};
use std::time::Duration;

use ureq::BodyReader;
use ureq::http::{Method, header};

use super::{Client, ClientError, PAUSE_MAX};
use crate::{ChangeEvent, Problem};

/// Read timeout. The server sends a keep-alive at least twice in this time.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum length of a line of the event stream.
const LINE_MAX: u64 = 1 << 20;

/// One event of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Position of the event; passed as `last`, the stream resumes after it.
    pub id: Option<String>,
    /// The change; `None` if too many happened, or one of a kind that a newer server knows: the
    /// client must read everything again.
    pub change: Option<ChangeEvent>,
}

/// An endless stream of events.
pub struct Events {
    client: Client,
    path: String,
    last: Option<String>,
    reader: BufReader<BodyReader<'static>>,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Events {
    pub(super) fn open(
        client: &Client,
        path: &str,
        last: Option<String>,
    ) -> Result<Self, ClientError> {
        let reader = connect(client, path, last.as_deref())?;
        Ok(Events { client: client.clone(), path: path.to_owned(), last, reader })
    }

    /// Waits for the next event. Reconnects when the connection breaks.
    ///
    /// # Errors
    /// If the server refuses a new connection.
    pub fn wait(&mut self) -> Result<Event, ClientError> {
        let mut pause = Duration::from_millis(100);
        loop {
            if let Some(event) = read_event(&mut self.reader) {
                if event.id.is_some() {
                    self.last.clone_from(&event.id);
                }
                return Ok(event);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
            self.reader = connect(&self.client, &self.path, self.last.as_deref())?;
        }
    }
}

fn connect(
    client: &Client,
    path: &str,
    last: Option<&str>,
) -> Result<BufReader<BodyReader<'static>>, ClientError> {
    let mut request = client.request(&Method::GET, path);
    if let Some(last) = last {
        request = request.header("last-event-id", last);
    }
    let request = request.header(header::CACHE_CONTROL, "no-store").body(());
    let failed = |error: &ureq::Error| ClientError::unreachable(&client.server, error);
    let request = request.map_err(|error| failed(&error.into()))?;
    let request = client
        .agent
        .configure_request(request)
        .timeout_global(None)
        .timeout_per_read(Some(READ_TIMEOUT))
        .build();
    let answer = client.agent.run(request).map_err(|error| failed(&error))?;
    let status = answer.status();
    let mut body = answer.into_body();
    if status.is_success() {
        return Ok(BufReader::new(body.into_reader()));
    }
    let problem =
        body.read_to_vec().ok().and_then(|text| serde_json::from_slice::<Problem>(&text).ok());
    Err(match problem {
        Some(problem) => ClientError::refused(&client.server, problem, client.token.is_some()),
        None => ClientError::not_orrery(&client.server, status.as_u16()),
    })
}

/// Reads the next event; `None` at the end of the connection.
fn read_event(reader: &mut impl BufRead) -> Option<Event> {
    use std::io::Read as _;
    let (mut id, mut data) = (None, String::new());
    loop {
        let mut line = String::new();
        let read = reader.by_ref().take(LINE_MAX).read_line(&mut line).ok()?;
        if read == 0 {
            return None;
        }
        let line = line.trim_end_matches(['\r', '\n']);
        if line.is_empty() {
            if data.is_empty() && id.is_none() {
                continue;
            }
            return Some(Event { id, change: serde_json::from_str(&data).ok() });
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => id = Some(value.to_owned()),
            "data" => {
                if !data.is_empty() {
                    data.push('\n');
                }
                data.push_str(value);
            }
            // Comments are keep-alives. The kind of an event is also in its data.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ObjectKind;

    #[test]
    fn events_are_read_between_comments() {
        let text = ": hello\n\nid: 7\nevent: change\ndata: {\"kind\": \"agent\",\ndata: \"subject\": \"a\", \"at\": \"2026-11-16T09:30:00Z\"}\n\n: still here\n\nid: 8\ndata: gap\n\n";
        let mut reader = text.as_bytes();
        let first = read_event(&mut reader).unwrap();
        assert_eq!(first.id.as_deref(), Some("7"));
        assert_eq!(first.change.unwrap().kind, ObjectKind::Agent);
        let second = read_event(&mut reader).unwrap();
        assert_eq!((second.id.as_deref(), second.change), (Some("8"), None));
        assert_eq!(read_event(&mut reader), None);
    }

    #[test]
    fn a_kind_of_a_newer_server_makes_the_client_read_everything_again() {
        let mut reader = "id: 9\ndata: {\"kind\": \"moon\", \"subject\": \"a\", \"at\": \"2026-11-16T09:30:00Z\"}\n\n".as_bytes();
        let event = read_event(&mut reader).unwrap();
        assert_eq!((event.id.as_deref(), event.change), (Some("9"), None));
    }
}
