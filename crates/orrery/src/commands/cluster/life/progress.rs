//! Operations of clusters: progress, failures, pause and abort.

use std::collections::BTreeMap;
use std::time::Duration;

use orrery_api::{
    AbortPolicy, Cluster, ClusterFailure, ClusterOperation, ClusterOperationState, ClusterProgress,
};
use orrery_base::clock::monotonic;

use super::lookup::{self, FoundCluster};
use crate::cli::cluster_control::{AbortCluster, ClusterLogs, WaitForCluster, WatchCluster};
use crate::cli::cluster_life::ClusterName;
use crate::commands::deploy::progress_bar::{Bar, State};
use crate::commands::deploy::reconnect::{ReconnectLoop, Unanswered};
use crate::commands::remote::{print_json, show_done, terminal};
use crate::error::CliError;
use crate::remote::Remote;
use crate::signals::Interrupt;
use crate::{Exit, output, style};

const LOOK_EVERY: Duration = Duration::from_millis(300);
/// Poll interval for Ctrl-C.
const INTERRUPT_EVERY: Duration = Duration::from_millis(50);

pub(super) fn watch(options: &WatchCluster) -> Result<Exit, CliError> {
    let found = lookup::find(&options.of)?;
    let number = number_of(&found, options.operation)?;
    follow(&found.remote, &found.cluster, number, options.of.args.json)
}

/// The named operation, or the last one.
fn number_of(found: &FoundCluster, given: Option<i64>) -> Result<i64, CliError> {
    let last = found.cluster.operation.as_ref().map(|operation| operation.number);
    given
        .or(last)
        .ok_or_else(|| CliError::new(format!("cluster {} has no operation", found.name())))
}

/// Shows the progress of an operation until it ends.
pub(super) fn follow(
    remote: &Remote,
    cluster: &Cluster,
    number: i64,
    json: bool,
) -> Result<Exit, CliError> {
    let interrupt = Interrupt::listen().map_err(|error| CliError::from_error(&error))?;
    let name = style::sanitize(&cluster.name);
    let mut bar = Bar::new(json);
    let patience = ReconnectLoop::new(&interrupt, format!("operation {number} of {name} began"));
    let interrupted = || {
        let error = CliError::new(format!("interrupted; {}", patience.still_true()));
        error.help(format!("orrery cluster watch {name}"))
    };
    let mut stages = BTreeMap::new();
    let operation = loop {
        let ask = || remote.client.cluster_operation(&cluster.id, number);
        let operation = patience.ask(&bar, ask).map_err(|unanswered| match unanswered {
            Unanswered::Interrupted => interrupted(),
            Unanswered::Failed(error) => error,
        })?;
        if let Some(progress) = &operation.progress {
            if !json {
                report_stages(progress, &mut stages, &bar);
            }
            bar.draw(&state_of(progress));
        }
        if operation.state != ClusterOperationState::Running {
            break operation;
        }
        let until = monotonic() + LOOK_EVERY;
        while monotonic() < until {
            if interrupt.is_requested() {
                return Err(interrupted());
            }
            std::thread::sleep(INTERRUPT_EVERY);
        }
    };
    bar.clear();
    if json {
        print_json(&operation)?;
        return Ok(exit_of(&operation));
    }
    let progress = operation.progress.clone().unwrap_or_default();
    show_failures(&progress, None)?;
    let kind = operation.kind.as_str();
    let message = match operation.message.as_str() {
        "" => String::new(),
        message => format!(": {}", style::sanitize(message)),
    };
    let state = match operation.state {
        ClusterOperationState::Done => style::good("done"),
        ClusterOperationState::Failed => style::error("failed"),
        ClusterOperationState::Running => "running".to_owned(),
        ClusterOperationState::Paused => style::warning("paused"),
        ClusterOperationState::Aborted => style::warning("aborted"),
    };
    let took = style::duration(bar.elapsed());
    output::print_status(&format!("{state}: {kind} of {name} in {took}{message}"));
    if !progress.unknown_effects.is_empty() {
        let help = format!("orrery settle --environment {}", cluster.environment);
        output::print_status(&format!("{}: {help}", style::help("help")));
    }
    if operation.state == ClusterOperationState::Paused {
        let help = format!("orrery cluster resume {name}");
        output::print_status(&format!("{}: {help}", style::help("help")));
    }
    Ok(exit_of(&operation))
}

fn exit_of(operation: &ClusterOperation) -> Exit {
    match operation.state {
        ClusterOperationState::Done => Exit::Done,
        _ => Exit::Pending,
    }
}

/// Reports each stage once it is complete.
fn report_stages(progress: &ClusterProgress, known: &mut BTreeMap<String, u64>, bar: &Bar) {
    for stage in &progress.stages {
        let counts = &stage.counts;
        let is_complete = counts.total > 0 && counts.done == counts.total;
        let before = known.get(&stage.action).copied();
        if is_complete && before != Some(counts.total) {
            known.insert(stage.action.clone(), counts.total);
            let number = style::grouped(usize::try_from(counts.total).unwrap_or(usize::MAX));
            let action = style::sanitize(&stage.action);
            bar.print_above(&format!("{}: {action} ×{number}", style::good("done")));
        }
    }
}

fn state_of(progress: &ClusterProgress) -> State {
    let counts = &progress.counts;
    let is_open = |done: u64, failed: u64, total: u64| done + failed < total && done > 0;
    let running = progress
        .stages
        .iter()
        .filter(|stage| is_open(stage.counts.done, stage.counts.failed, stage.counts.total));
    let running = running.map(|stage| {
        (format!("{} {}/{}", stage.action, stage.counts.done, stage.counts.total), None)
    });
    let unknown = progress.unknown_effects.len() as u64;
    State {
        total: counts.total,
        done: counts.done,
        counts: vec![(counts.failed, "failed"), (unknown, "unknown")],
        running: running.collect(),
    }
}

/// Prints failures of a node, or of all. Returns their number.
fn show_failures(progress: &ClusterProgress, node: Option<&str>) -> Result<usize, CliError> {
    let is_meant = |failure: &&ClusterFailure| node.is_none_or(|node| failure.node == node);
    let unknown = progress.unknown_effects.iter().filter(is_meant).map(|one| (one, true));
    let failed = progress.failures.iter().filter(is_meant).map(|one| (one, false));
    let mut count = 0;
    for (failure, is_unknown) in failed.chain(unknown) {
        count += 1;
        let service = failure.service.as_deref().unwrap_or("machine");
        let what = format!("{}: {} {service}", failure.node, failure.action);
        let word = if is_unknown { style::warning("unknown") } else { style::error("failed") };
        let attempts = match failure.attempts {
            0 | 1 => String::new(),
            attempts => format!(" ({attempts} attempts)"),
        };
        output::print_status(&format!("{word}: {}{attempts}", style::sanitize(&what)));
        for line in style::sanitize(&failure.message).lines() {
            output::print_status(&format!("    {line}"));
        }
    }
    Ok(count)
}

pub(super) fn logs(options: &ClusterLogs) -> Result<Exit, CliError> {
    let found = lookup::find(&options.of)?;
    let number = number_of(&found, options.operation)?;
    let mut operation = found.remote.client.cluster_operation(&found.cluster.id, number)?;
    let mut progress = operation.progress.take().unwrap_or_default();
    if let Some(node) = &options.node {
        progress.failures.retain(|failure| failure.node == *node);
        progress.unknown_effects.retain(|failure| failure.node == *node);
    }
    let count = progress.failures.len() + progress.unknown_effects.len();
    if options.of.args.json {
        operation.progress = Some(progress);
        print_json(&operation)?;
    } else {
        show_failures(&progress, None)?;
        let kind = operation.kind.as_str();
        output::print_status(&format!(
            "operation {number} ({kind}): {}",
            style::count(count, "failure")
        ));
        if count == 0 {
            let help = format!("orrery log --environment {}", found.cluster.environment);
            output::print_status(&format!("{}: all actions: {help}", style::help("help")));
        }
    }
    Ok(if count == 0 { Exit::Done } else { Exit::Pending })
}

pub(super) fn pause(of: &ClusterName) -> Result<Exit, CliError> {
    let found = lookup::find(of)?;
    let number = number_of(&found, None)?;
    let operation = found.remote.client.pause_cluster(&found.cluster.id, number)?;
    let text = format!("operation {number} of {} is {}", found.name(), style::warning("paused"));
    show_done(of.args.json, &operation, &text)
}

pub(super) fn resume(options: &WaitForCluster) -> Result<Exit, CliError> {
    let found = lookup::find(&options.of)?;
    let number = number_of(&found, None)?;
    let operation = found.remote.client.resume_cluster(&found.cluster.id, number)?;
    let json = options.of.args.json;
    if options.no_wait {
        let text = format!("resumed operation {number} of {}", found.name());
        return show_done(json, &operation, &text);
    }
    follow(&found.remote, &found.cluster, operation.number, json)
}

pub(super) fn abort(options: &AbortCluster) -> Result<Exit, CliError> {
    let found = lookup::find(&options.of)?;
    let number = number_of(&found, None)?;
    let (name, json) = (found.name(), options.of.args.json);
    let policy = if options.revert { AbortPolicy::Revert } else { AbortPolicy::Hold };
    let then = if options.revert { " and return to the state before" } else { "" };
    let what = format!("abort operation {number} of {name}{then}");
    terminal::agree(options.confirmation.yes, &what)?;
    let answer = found.remote.client.abort_cluster(&found.cluster.id, number, policy)?;
    let next = answer.operation.as_ref().filter(|next| next.number != number);
    match next {
        Some(next) if !options.no_wait => follow(&found.remote, &found.cluster, next.number, json),
        _ => show_done(json, &answer, &format!("aborted operation {number} of {name}")),
    }
}
