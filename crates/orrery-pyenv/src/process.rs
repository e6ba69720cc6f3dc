//! Runs installers to their end, with bounded output and an optional time limit.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use orrery_base::clock::monotonic;
use orrery_base::credentials::mask_userinfo;
use orrery_base::thread::spawn_named;

/// Number of last output lines that a failure keeps.
const KEPT_LINES: usize = 400;
/// Maximum length of a line in bytes; longer ones are split.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Maximum captured output in bytes.
const OUTPUT_KEPT: usize = 256 << 10;
/// Lines that the reader may be ahead of the listener.
const LINES_AHEAD: usize = 64;
/// Poll interval for the end of a command.
const POLL: Duration = Duration::from_millis(5);

/// Runs a command and passes every line of its output to a listener. On failure, the inner error
/// has its last lines. A command past the time limit is killed.
pub(crate) fn stream(
    mut command: Command,
    limit: Option<Duration>,
    listener: &mut dyn FnMut(&str),
) -> io::Result<Result<(), Vec<String>>> {
    let until = limit.map(|limit| monotonic() + limit);
    let (reader, writer) = io::pipe()?;
    command
        .stdin(Stdio::null())
        // One stream, so that the lines of a message stay together.
        .stdout(writer.try_clone()?)
        .stderr(writer);
    tracing::debug!(command = mask_userinfo(&format!("{command:?}")), "installer");
    let mut child = command.spawn()?;
    // The command holds the write end; the stream ends when all copies are closed.
    drop(command);
    let (sender, lines) = sync_channel(LINES_AHEAD);
    // Ends with the stream, or when the receiver is dropped.
    spawn_named("installer", move || {
        let mut reader = BufReader::new(reader);
        while let Some(line) = next_line(&mut reader).transpose() {
            if sender.send(line).is_err() {
                break;
            }
        }
    })?;
    let mut kept = VecDeque::new();
    while let Some(line) = receive(&lines, until) {
        let line = line?;
        listener(&line);
        if kept.len() == KEPT_LINES {
            kept.pop_front();
        }
        kept.push_back(line);
    }
    debug_assert!(kept.len() <= KEPT_LINES);
    let status = wait(&mut child, until)?;
    Ok(if status.success() { Ok(()) } else { Err(Vec::from(kept)) })
}

/// Next line without its end; `None` at the end of the stream.
fn next_line(reader: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    let count = reader.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    Ok((count > 0).then(|| String::from_utf8_lossy(&line).trim_end().to_owned()))
}

/// Next line; `None` at the end of the stream or after the time limit.
fn receive(
    lines: &Receiver<io::Result<String>>,
    until: Option<Instant>,
) -> Option<io::Result<String>> {
    let Some(until) = until else { return lines.recv().ok() };
    lines.recv_timeout(until.saturating_duration_since(monotonic())).ok()
}

fn wait(child: &mut Child, until: Option<Instant>) -> io::Result<ExitStatus> {
    let Some(until) = until else { return child.wait() };
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if monotonic() >= until {
            child.kill()?;
        }
        std::thread::sleep(POLL);
    }
}

/// Runs a command and returns the ends of its outputs, which may be unbounded. A command past the
/// time limit is killed.
pub(crate) fn capture(mut command: Command, limit: Duration) -> io::Result<Output> {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let readers = [
        spawn_named("output", move || out.map(last_bytes).unwrap_or_default())?,
        spawn_named("output", move || err.map(last_bytes).unwrap_or_default())?,
    ];
    let status = wait(&mut child, Some(monotonic() + limit))?;
    let [stdout, stderr] = readers.map(|reader| reader.join().unwrap_or_default());
    Ok(Output { status, stdout, stderr })
}

fn last_bytes(mut pipe: impl Read) -> Vec<u8> {
    let (mut kept, mut chunk) = (Vec::new(), [0; 8 << 10]);
    while let Ok(count @ 1..) = pipe.read(&mut chunk) {
        kept.extend_from_slice(&chunk[..count]);
        if kept.len() > 2 * OUTPUT_KEPT {
            kept.drain(..kept.len() - OUTPUT_KEPT);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_failure_has_the_lines_of_both_streams_in_order() {
        let mut heard = Vec::new();
        let ended =
            stream(shell("echo one; echo two >&2; printf three; exit 3"), None, &mut |line| {
                heard.push(line.to_owned());
            });
        assert_eq!(heard, ["one", "two", "three"]);
        assert_eq!(ended.unwrap(), Err(heard));
        assert_eq!(stream(shell("true"), None, &mut |_| ()).unwrap(), Ok(()));
    }

    #[test]
    fn endless_output_is_bounded() {
        let lines = stream(shell("yes | head -n 2000; exit 1"), None, &mut |_| ()).unwrap();
        assert_eq!(lines.unwrap_err().len(), KEPT_LINES);
        let long = "head -c 200000 /dev/zero | tr '\\0' x; exit 1";
        let lines = stream(shell(long), None, &mut |_| ()).unwrap().unwrap_err();
        assert_eq!(lines.iter().map(String::len).collect::<Vec<_>>(), [65536, 65536, 65536, 3392]);
        let captured = capture(shell("yes | head -c 2000000"), Duration::from_secs(60)).unwrap();
        assert!(captured.status.success() && captured.stdout.len() <= 2 * OUTPUT_KEPT);
    }

    #[test]
    fn a_command_past_its_time_limit_is_killed() {
        let limit = Duration::from_millis(200);
        let begun = Instant::now();
        let ended = stream(shell("echo begun; exec sleep 100"), Some(limit), &mut |_| ()).unwrap();
        assert_eq!(ended, Err(vec!["begun".to_owned()]));
        assert!(!capture(shell("exec sleep 100"), limit).unwrap().status.success());
        assert!(begun.elapsed() < Duration::from_secs(50));
    }
}
