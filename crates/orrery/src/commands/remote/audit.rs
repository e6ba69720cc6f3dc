//! `orrery audit`.

use orrery_api::client::path;
use orrery_api::{AuditCheck, AuditEntry, AuditVerdict};

use super::table::{Table, moment};
use super::{print_json, read_list, show_list};
use crate::cli_values::{AuditAction, AuditGroup};
use crate::commands::trouble::{Trouble, finish};
use crate::{Exit, output, style};

pub(crate) fn audit(options: AuditGroup) -> Exit {
    finish(run(options))
}

fn run(options: AuditGroup) -> Result<Exit, Trouble> {
    let AuditGroup { ask, action } = options;
    let remote = ask.open()?;
    match action {
        AuditAction::List { limit } => {
            let pages = remote.client.list::<AuditEntry>(&path(&["audit"]));
            let found = read_list(pages, Some(limit))?;
            let headings = ["ENTRY", "WHEN", "WHO", "FROM", "STATUS", "DONE", "WHAT", "SUBJECT"];
            show_list(ask.json, &found, Table::new("record", &headings), |entry| {
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
            if ask.json {
                print_json(&verdict)?;
                return Ok(exit);
            }
            if verdict.good {
                let text = style::good("nothing was changed");
                output::say(&format!(
                    "{text}: entry {} has the hash {}",
                    verdict.entries, verdict.head
                ));
            } else {
                let text = style::error("the log was tampered with");
                let place =
                    verdict.broken_at.map(|at| format!(" at entry {at}")).unwrap_or_default();
                let reason = style::harmless(verdict.reason.as_deref().unwrap_or_default());
                output::say(&format!("{text}{place}: {reason}"));
            }
            Ok(exit)
        }
    }
}
