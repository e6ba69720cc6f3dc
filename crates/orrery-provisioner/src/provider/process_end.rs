//! Ends the processes of a node that is a directory: those that it recorded, and all others that
//! carry its mark in their environment.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use orrery_base::clock::monotonic;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// Variable that all processes of a node inherit; its value is the directory of the node.
pub(super) const MARK: &str = "ORRERY_NODE_DIR";

/// Time for processes to end.
const END_TIME: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(10);

/// Ends all processes of a node.
///
/// # Errors
/// If some do not end in time.
pub(super) fn end_processes(directory: &Path) -> io::Result<()> {
    let deadline = monotonic() + END_TIME;
    loop {
        let mut found = marked_processes(directory)?;
        for (pid, started) in recorded_processes(directory) {
            if start_time(pid) == Some(started) {
                // Its group has what it started.
                if let Some(group) = Pid::from_raw(pid) {
                    let _ = kill_process_group(group, Signal::KILL);
                }
                found.push(pid);
            }
        }
        if found.is_empty() {
            return Ok(());
        }
        if monotonic() >= deadline {
            return Err(io::Error::other(format!("processes {found:?} do not end")));
        }
        for pid in found.into_iter().filter_map(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(POLL);
    }
}

/// Processes that `orrery-daemon` recorded, with their start times: numbers are reused.
fn recorded_processes(directory: &Path) -> Vec<(i32, u64)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory.join("run")).into_iter().flatten().flatten() {
        let Ok(text) = fs::read_to_string(entry.path()) else { continue };
        let mut words = text.split_whitespace();
        let pid = words.next().and_then(|word| word.parse().ok());
        let started = words.next().and_then(|word| word.parse().ok());
        found.extend(pid.filter(|pid| *pid > 1).zip(started));
    }
    found
}

/// Running processes with the mark of a node.
fn marked_processes(directory: &Path) -> io::Result<Vec<i32>> {
    let mark = format!("{MARK}={}", directory.display());
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // Processes of others cannot be read, and are no processes of the node.
        let Ok(environment) = fs::read(entry.path().join("environ")) else { continue };
        let is_marked = environment.split(|byte| *byte == 0).any(|text| text == mark.as_bytes());
        if is_marked && pid != own && start_time(pid).is_some() {
            found.push(pid);
        }
    }
    Ok(found)
}

/// Start of a process in ticks since boot; `None` if it has ended.
pub(super) fn start_time(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may have spaces. State and start are the 3rd and 22nd field.
    let mut fields = stat.rsplit_once(") ")?.1.split_whitespace();
    let is_zombie = fields.next()? == "Z";
    let started = fields.nth(18)?.parse().ok()?;
    (!is_zombie).then_some(started)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_found_by_mark_and_by_record_and_others_are_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap();
        let sleep = |mark: &str| {
            let mut command = std::process::Command::new("sleep");
            command.arg("600").env(MARK, mark).spawn().unwrap()
        };
        let mut marked = sleep(&path.display().to_string());
        let mut recorded = sleep("");
        let mut reused = sleep("");
        fs::create_dir(path.join("run")).unwrap();
        let pid = |child: &std::process::Child| i32::try_from(child.id()).unwrap();
        let record = |name: &str, pid: i32, started: u64| {
            fs::write(path.join("run").join(name), format!("{pid} {started}\n")).unwrap();
        };
        record("app", pid(&recorded), start_time(pid(&recorded)).unwrap());
        // A number that another process has now.
        record("old", pid(&reused), start_time(pid(&reused)).unwrap() - 1);
        end_processes(&path).unwrap();
        for child in [&mut marked, &mut recorded] {
            // It has ended, or a look would find it running.
            assert!(start_time(pid(child)).is_none(), "a process of the node runs");
            child.wait().unwrap();
        }
        assert!(reused.try_wait().unwrap().is_none(), "another process was ended");
        reused.kill().unwrap();
        reused.wait().unwrap();
    }
}
