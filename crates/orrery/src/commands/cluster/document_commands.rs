//! `orrery provider`, `hardware`, `image`, `service`, `template`, `tenant`: documents on a server.

use orrery_api::ClusterDocument;
use orrery_api::client::{path, query};
use orrery_cluster::document::DocumentKind;
use serde_json::{Value, json};

use super::{apply, documents};
use crate::cli::documents::{DocumentAction, DocumentArgs};
use crate::commands::remote::projects;
use crate::commands::remote::table::{Table, moment};
use crate::commands::remote::{print_json, read_list, show_done, show_list, terminal};
use crate::error::{CliError, finish};
use crate::remote::Remote;
use crate::{Exit, output, style};

/// Documents of the installation, or of one project.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    project: Option<(String, String)>,
}

impl Scope {
    /// API path below the documents.
    pub(super) fn path(&self, parts: &[&str]) -> String {
        let mut all = match &self.project {
            Some((id, _)) => vec!["projects", id.as_str(), "cluster-documents"],
            None => vec!["cluster-documents"],
        };
        all.extend(parts);
        path(&all)
    }
}

/// Scope of a project name; the installation without one.
pub(super) fn scope_of(remote: &Remote, project: Option<&str>) -> Result<Scope, CliError> {
    let found = project.map(|name| projects::find(remote, name)).transpose()?;
    Ok(Scope { project: found.map(|project| (project.id.to_string(), project.name)) })
}

pub(in crate::commands) fn manage(
    args: DocumentArgs,
    kind: DocumentKind,
    action: DocumentAction,
) -> Exit {
    finish(run(&args, kind, action))
}

fn run(args: &DocumentArgs, kind: DocumentKind, action: DocumentAction) -> Result<Exit, CliError> {
    // Problems of files are reported before a login is required.
    let read = match &action {
        DocumentAction::Apply { files, .. } => Some(documents::read_kind(files, kind)?),
        _ => None,
    };
    let json = args.args.json;
    let remote = args.args.open()?;
    let scope = scope_of(&remote, args.project.as_deref())?;
    let noun = kind.noun();
    match action {
        DocumentAction::List => list(&remote, &scope, kind, json),
        DocumentAction::Show { name, revision } => {
            let revision = revision.map(|revision| revision.to_string());
            let at = scope.path(&[kind.id(), &name]);
            let at = query(&at, &[("revision", revision.as_deref())]);
            show(&remote.client.get(&at)?, kind, json)
        }
        DocumentAction::Apply { change, .. } => {
            let catalog = read.unwrap_or_default();
            apply::apply(&remote, &scope, &catalog, &change, json)
        }
        DocumentAction::Delete { name, confirmation } => {
            let shown = style::sanitize(&name);
            terminal::agree(confirmation.yes, &format!("delete {noun} {shown}"))?;
            remote.client.delete::<Value>(&scope.path(&[kind.id(), &name]))?;
            show_done(json, &json!({}), &format!("deleted {noun} {shown}"))
        }
        DocumentAction::History { name } => {
            let pages =
                remote.client.list::<ClusterDocument>(&scope.path(&[kind.id(), &name, "history"]));
            let found = read_list(pages.large(), None)?;
            let table = Table::new("revision", &["REVISION", "CHANGED", "BY", "CHANGE"]);
            show_list(json, &found, table, |one| {
                let change = match (&one.content, one.created == one.changed) {
                    (None, _) => "deleted",
                    (Some(_), true) => "created",
                    (Some(_), false) => "changed",
                };
                let by = one.changed_by.clone();
                vec![one.revision.to_string(), moment(&one.changed), by, change.to_owned()]
            })
        }
    }
}

fn list(remote: &Remote, scope: &Scope, kind: DocumentKind, json: bool) -> Result<Exit, CliError> {
    let at = query(&scope.path(&[]), &[("kind", Some(kind.id()))]);
    let found = read_list(remote.client.list::<ClusterDocument>(&at).large(), None)?;
    let table =
        Table::new(kind.noun(), &["NAME", "REVISION", "CHANGED", "BY", "SCOPE", "DESCRIPTION"]);
    let project = scope.project.as_ref().map(|(_, name)| name.as_str()).unwrap_or_default();
    show_list(json, &found, table, |one| {
        let text = |field: &str| {
            let content = one.content.as_ref();
            content.and_then(|content| content[field].as_str()).map(str::to_owned)
        };
        let owner = match one.project {
            Some(_) => format!("project {project}"),
            None => "installation".to_owned(),
        };
        vec![
            one.name.clone(),
            one.revision.to_string(),
            moment(&one.changed),
            one.changed_by.clone(),
            owner,
            text("description").or_else(|| text("label")).unwrap_or_default(),
        ]
    })
}

/// Prints the content to standard output, so that it can be edited and applied again; the rest to
/// standard error.
fn show(document: &ClusterDocument, kind: DocumentKind, json: bool) -> Result<Exit, CliError> {
    if json {
        return print_json(document);
    }
    let ClusterDocument { name, revision, changed, changed_by, content, .. } = document;
    let by = style::sanitize(changed_by);
    let what = if content.is_some() { "changed" } else { "deleted" };
    output::print_status(&format!(
        "{} {}, revision {revision}, {what} {} by {by}",
        kind.noun(),
        style::sanitize(name),
        moment(changed),
    ));
    match content {
        Some(content) => print_json(content),
        None => Ok(Exit::Done),
    }
}
