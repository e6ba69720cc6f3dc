//! `orrery audit`.

use orrery_api::client::{path, query};
use orrery_api::{AuditCheck, AuditEntry, AuditVerdict};

use super::table::{Table, moment};
use super::{print_json, read_list, show_list};
use crate::cli::audit::{AuditAction, AuditGroup};
use crate::error::{CliError, finish};
use crate::{Exit, output, style};

pub(crate) fn audit(options: AuditGroup) -> Exit {
    finish(run(options))
}

/// Expands dates to midnight UTC.
fn with_times(action: AuditAction) -> AuditAction {
    let time = |given: String| match given.len() == "2026-11-16".len() {
        true => given + "T00:00:00Z",
        false => given,
    };
    match action {
        AuditAction::List { actor, in_environment, action, since, until, limit } => {
            let (since, until) = (since.map(time), until.map(time));
            AuditAction::List { actor, in_environment, action, since, until, limit }
        }
        other @ AuditAction::Verify { .. } => other,
    }
}

fn run(options: AuditGroup) -> Result<Exit, CliError> {
    let AuditGroup { args, action } = options;
    let action = with_times(action);
    let remote = args.open()?;
    match action {
        AuditAction::List { actor, in_environment, action, since, until, limit } => {
            let environment =
                in_environment.map(|name| remote.find_environment(&name)).transpose()?;
            let environment = environment.map(|environment| environment.id.to_string());
            let actor = actor.map(|name| match name.contains(':') || name == "anonymous" {
                true => name,
                false => format!("user:{name}"),
            });
            let wanted = [
                ("actor", actor.as_deref()),
                ("environment", environment.as_deref()),
                ("action", action.as_deref()),
                ("since", since.as_deref()),
                ("until", until.as_deref()),
            ];
            let pages = remote.client.list::<AuditEntry>(&query(&path(&["audit"]), &wanted));
            let found = read_list(pages, Some(limit))?;
            let headings =
                ["ENTRY", "TIME", "ACTOR", "ADDRESS", "STATUS", "DETAIL", "ACTION", "SUBJECT"];
            show_list(args.json, &found, Table::new("entry", &headings), |entry| {
                vec![
                    entry.id.to_string(),
                    moment(&entry.at),
                    entry.actor.clone(),
                    entry.address.clone(),
                    entry.status.to_string(),
                    if entry.detail.is_empty() { "-".to_owned() } else { entry.detail.clone() },
                    entry.action.clone(),
                    entry.subject.clone(),
                ]
            })
        }
        AuditAction::Verify { entry, hash } => {
            let check = AuditCheck { id: entry, hash };
            let verdict: AuditVerdict = remote.client.post(&path(&["audit", "verify"]), &check)?;
            let exit = if verdict.good { Exit::Done } else { Exit::Pending };
            if args.json {
                print_json(&verdict)?;
                return Ok(exit);
            }
            if verdict.good {
                let text = style::good("no tampering found");
                output::print_status(&format!(
                    "{text}: entry {} has the hash {}",
                    verdict.entries, verdict.head
                ));
            } else {
                let text = style::error("the log was tampered with");
                let place =
                    verdict.broken_at.map(|at| format!(" at entry {at}")).unwrap_or_default();
                let reason = style::sanitize(verdict.reason.as_deref().unwrap_or_default());
                output::print_status(&format!("{text}{place}: {reason}"));
            }
            Ok(exit)
        }
    }
}
