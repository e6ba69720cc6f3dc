//! `orrery worker`: processes that execute the actions of clusters.

use super::remote::show_list;
use super::remote::table::{Table, moment};
use crate::Exit;
use crate::cli::worker::{WorkerAction, WorkerGroup};
use crate::error::{CliError, finish};

pub(super) fn run(options: &WorkerGroup) -> Exit {
    finish(match options.action {
        WorkerAction::List => list(options),
    })
}

fn list(options: &WorkerGroup) -> Result<Exit, CliError> {
    let found = options.args.open()?.client.workers()?;
    let table = Table::new("worker", &["NAME", "HOST", "KIND", "SLOTS", "BUSY", "SEEN"]);
    show_list(options.args.json, &found.items, table, |one| {
        let busy = one.busy.iter().map(|(project, count)| format!("{project} {count}"));
        let kind = if one.in_process { "in the server" } else { "worker" };
        vec![
            one.name.clone(),
            one.host.clone(),
            kind.to_owned(),
            one.slots.to_string(),
            busy.collect::<Vec<_>>().join(", "),
            moment(&one.seen),
        ]
    })
}
