//! `orrery version`.

use orrery_api::{VersionReleased, VersionStored, VersionSummary};
use serde_json::{Value, json};

use super::table::{Table, moment, properties};
use super::{dry_run, print_json, read_list, show_done, show_list, terminal};
use crate::cli::version::{VersionAction, VersionGroup};
use crate::commands::deploy::on_server;
use crate::commands::deploy::plan_report::PlanFormat;
use crate::commands::inspect::{self, text};
use crate::error::{CliError, finish};
use crate::remote::RemoteEnvironment;
use crate::signals::Interrupt;
use crate::{Exit, output};

pub(crate) fn version(options: VersionGroup) -> Exit {
    finish(run(options))
}

fn run(options: VersionGroup) -> Result<Exit, CliError> {
    let VersionGroup { args, action } = options;
    let json = args.json;
    let of = args.in_environment()?;
    let at = |version: u32, rest: &[&str]| {
        let number = version.to_string();
        let mut parts = vec!["versions", number.as_str()];
        parts.extend(rest);
        of.path(&parts)
    };
    match action {
        VersionAction::List { limit } => list(&of, limit, json),
        VersionAction::Show { version } => show(&of.client.get(&at(version, &[]))?, json),
        VersionAction::Release { version, follow } => {
            let at = at(version, &["release"]);
            let text = format!("released version {version}");
            if !follow {
                return show_done(json, &of.client.post_empty::<VersionSummary>(&at)?, &text);
            }
            on_server::release(&of, json, || {
                let now: VersionReleased = of.client.post(&at, &on_server::DEPLOY_ALONG)?;
                if !json {
                    output::print_status(&text);
                }
                Ok((now.version.number, now.operation))
            })
        }
        VersionAction::RollBack { version, follow } => {
            let at = at(version, &["roll-back"]);
            let text = |created: &VersionStored| {
                let number = created.version.number;
                format!("rolled back to version {version}: released version {number}")
            };
            if !follow {
                let created: VersionStored = of.client.post_empty(&at)?;
                return show_done(json, &created, &text(&created));
            }
            on_server::release(&of, json, || {
                let created: VersionStored = of.client.post(&at, &on_server::DEPLOY_ALONG)?;
                if !json && created.version.released {
                    output::print_status(&text(&created));
                }
                Ok((created.version.number, created.operation))
            })
        }
        VersionAction::Compare { from, to, short } => inspect::compare(of, (from, to), short, json),
        VersionAction::Delete { version, confirmation } => {
            terminal::confirm(confirmation.yes, &format!("delete version {version}"))?;
            of.client.delete::<Value>(&at(version, &[]))?;
            show_done(json, &json!({}), &format!("deleted version {version}"))
        }
        VersionAction::DryRun { version, all } => {
            let interrupt = Interrupt::listen().map_err(|error| CliError::from_error(&error))?;
            let found = dry_run::follow(&of, version, json, &interrupt)?;
            let resources = dry_run::desired_of(&of, version)?;
            dry_run::show(&found, resources, PlanFormat { json, all })
        }
    }
}

fn message(version: &VersionSummary) -> String {
    text::about(&version.info)
}

/// Time of the release.
fn released(version: &VersionSummary) -> String {
    version.released_at.as_ref().map_or_else(|| "no".to_owned(), moment)
}

fn list(of: &RemoteEnvironment, limit: usize, json: bool) -> Result<Exit, CliError> {
    let pages = of.client.list::<VersionSummary>(&of.path(&["versions"]));
    let found = read_list(pages, Some(limit))?;
    let headings = [
        "VERSION",
        "CREATED",
        "RELEASED",
        "STATE",
        "RESOURCES",
        "ADDED",
        "CHANGED",
        "REMOVED",
        "MESSAGE",
    ];
    show_list(json, &found, Table::new("version", &headings), |version| {
        vec![
            version.number.to_string(),
            moment(&version.created),
            released(version),
            version.status.to_string(),
            version.total.to_string(),
            version.added.to_string(),
            version.changed.to_string(),
            version.removed.to_string(),
            message(version),
        ]
    })
}

fn show(version: &VersionSummary, json: bool) -> Result<Exit, CliError> {
    if json {
        return print_json(version);
    }
    properties(&[
        ("version", version.number.to_string()),
        ("state", version.status.to_string()),
        ("released", released(version)),
        ("now", version.transitioning_message.clone()),
        ("created", moment(&version.created)),
        ("message", message(version)),
        ("commit", text::commit(&version.info).unwrap_or_default().to_owned()),
        ("resources", version.total.to_string()),
        ("added", version.added.to_string()),
        ("changed", version.changed.to_string()),
        ("removed", version.removed.to_string()),
    ])
}
