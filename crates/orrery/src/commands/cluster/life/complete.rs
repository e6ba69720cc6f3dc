//! Names for shell completion. Failures are silent: the user is typing.

use orrery_api::ClusterDocument;
use orrery_api::client::query;

use super::lookup;
use crate::cli::NamesKind;
use crate::commands::cluster::document_commands::scope_of;
use crate::commands::remote::read_list;
use crate::error::CliError;
use crate::remote::ServerChoice;
use crate::{Exit, output};

pub(in crate::commands) fn complete_names(kind: NamesKind) -> Exit {
    let names = names(kind).unwrap_or_default();
    // Other characters would need quotes, which depend on the shell.
    let is_plain =
        |name: &String| name.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c));
    let mut names: Vec<String> = names.into_iter().filter(is_plain).collect();
    names.sort_unstable();
    names.dedup();
    let text: String = names.into_iter().map(|name| name + "\n").collect();
    if output::print(|out| out.write_all(text.as_bytes())) { Exit::Done } else { Exit::Error }
}

fn names(kind: NamesKind) -> Result<Vec<String>, CliError> {
    let Some(remote) = ServerChoice::default().find()? else { return Ok(Vec::new()) };
    match kind {
        NamesKind::Clusters => {
            let clusters = lookup::clusters(&remote, None, false)?;
            Ok(clusters.into_iter().map(|cluster| cluster.name).collect())
        }
        NamesKind::Templates => {
            let all = query(&scope_of(&remote, None)?.path(&[]), &[("kind", Some("template"))]);
            let found = read_list(remote.client.list::<ClusterDocument>(&all).large(), None)?;
            Ok(found.into_iter().map(|document| document.name).collect())
        }
    }
}
