//! Uploads plug-in resources from a directory: `PLUGIN/TYPE/NAME`.

use std::fs;
use std::path::{Path, PathBuf};

use orrery_api::PluginResource;

use super::life::project_for;
use crate::cli::cluster::UploadResources;
use crate::commands::remote::print_json;
use crate::error::CliError;
use crate::{Exit, output, style};

/// A file to upload.
struct ResourceFile {
    plugin: String,
    kind: String,
    name: String,
    content: Vec<u8>,
}

/// `orrery cluster upload`
pub(super) fn run(options: &UploadResources) -> Result<Exit, CliError> {
    // Problems of files are reported before a login is required.
    let files = read(&options.directory)?;
    let remote = options.server.open(None)?;
    let project = project_for(&remote, options.project.as_deref())?;
    let id = project.id.to_string();
    let before = remote.client.plugin_resources(&id)?.items;
    let mut uploaded: Vec<PluginResource> = Vec::with_capacity(files.len());
    for ResourceFile { plugin, kind, name, content } in files {
        let resource = [plugin.as_str(), kind.as_str(), name.as_str()];
        uploaded.push(remote.client.upload_plugin_resource(&id, resource, content)?);
    }
    let live = remote.client.sync_plugin_resources(&id)?;
    if options.json {
        return print_json(&live);
    }
    let mut text = String::new();
    let mut changed = 0;
    for one in &uploaded {
        let is_same = |old: &&PluginResource| {
            (&old.plugin, &old.r#type, &old.name, &old.digest)
                == (&one.plugin, &one.r#type, &one.name, &one.digest)
        };
        let is_known = before.iter().any(|old| is_same(&old) && old.live);
        changed += usize::from(!is_known);
        let mark = if is_known { "=" } else { "+" };
        let name = style::sanitize(&format!("{}/{}/{}", one.plugin, one.r#type, one.name));
        text += &format!("{mark} {name} version {}\n", one.version);
    }
    let total = style::count(uploaded.len(), "file");
    let project = style::sanitize(&project.name);
    text += &format!("uploaded {changed} of {total} for {project}\n");
    Ok(if output::print_styled(&text) { Exit::Done } else { Exit::Error })
}

fn entries(directory: &Path) -> Result<Vec<(String, PathBuf)>, CliError> {
    let failed = |error: std::io::Error| {
        CliError::new(format!("cannot read {}: {error}", directory.display()))
            .help("name a directory with files as PLUGIN/TYPE/NAME, such as shell/scripts/app.sh")
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // Files of editors and version control.
        if !name.starts_with('.') && !name.ends_with('~') {
            found.push((name, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

fn read(directory: &Path) -> Result<Vec<ResourceFile>, CliError> {
    let mut files = Vec::new();
    for (plugin, path) in entries(directory)? {
        for (kind, path) in entries(&path)? {
            for (name, path) in entries(&path)? {
                let content = fs::read(&path).map_err(|error| {
                    CliError::new(format!("cannot read {}: {error}", path.display()))
                })?;
                let (plugin, kind) = (plugin.clone(), kind.clone());
                files.push(ResourceFile { plugin, kind, name, content });
            }
        }
    }
    if files.is_empty() {
        return Err(CliError::new(format!("{} has no files to upload", directory.display())).help(
            "files are below the directory as PLUGIN/TYPE/NAME, such as shell/scripts/app.sh",
        ));
    }
    Ok(files)
}
