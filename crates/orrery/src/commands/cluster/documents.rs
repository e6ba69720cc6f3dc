//! Reads the documents of a directory that is laid out as published repositories of templates are.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use orrery_cluster::document::{Catalog, DocumentKind, FileId};

use crate::commands::trouble::Trouble;

const EXTENSIONS: [&str; 3] = ["json", "yaml", "yml"];
/// Deeper directories are not followed.
const DEPTH_MAX: usize = 8;

/// Reads all documents below a directory.
///
/// # Errors
/// The directory or a file cannot be read, or there is no document.
pub(super) fn read(directory: &Path) -> Result<Catalog, Trouble> {
    let unreadable = |path: &Path, error: &io::Error| {
        Trouble::said(format!("{} cannot be read: {error}", path.display()))
    };
    fs::read_dir(directory).map_err(|error| unreadable(directory, &error))?;
    let mut catalog = Catalog::default();
    for kind in DocumentKind::ALL {
        // Without a dot in front, which says nothing.
        let folder: PathBuf = directory.join(kind.directory()).components().collect();
        let folder = folder.strip_prefix(".").map(Path::to_path_buf).unwrap_or(folder);
        if !folder.is_dir() {
            continue;
        }
        let mut files = Vec::new();
        collect(&folder, 0, &mut files).map_err(|error| unreadable(&folder, &error))?;
        files.sort();
        for path in files {
            let text = fs::read_to_string(&path).map_err(|error| unreadable(&path, &error))?;
            catalog.add(kind, &path.display().to_string(), text);
        }
    }
    if catalog.files.is_empty() {
        let folders: Vec<&str> = DocumentKind::ALL.iter().map(DocumentKind::directory).collect();
        let trouble =
            Trouble::said(format!("there are no cluster documents in {}", directory.display()));
        return Err(trouble.help(format!(
            "documents are JSON or YAML files in the directories {}",
            folders.join(", ")
        )));
    }
    Ok(catalog)
}

/// The files of a template, and of all that it extends and includes.
pub(super) fn files_of(catalog: &Catalog, template: &str) -> BTreeSet<FileId> {
    let mut files = BTreeSet::new();
    let mut document = catalog.templates.get(template);
    while let Some(current) = document {
        if !files.insert(current.file) {
            break;
        }
        let includes = current.body.includes.iter();
        let partial = includes.filter_map(|one| catalog.partial_templates.get(&one.name));
        files.extend(partial.map(|one| one.file));
        let parent = current.body.extends.as_ref();
        document = parent.and_then(|parent| catalog.templates.get(&parent.name));
    }
    files
}

fn collect(directory: &Path, depth: usize, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            if depth < DEPTH_MAX {
                collect(&path, depth + 1, files)?;
            }
            continue;
        }
        let extension = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
        if EXTENSIONS.contains(&extension.as_str()) {
            files.push(path);
        }
    }
    Ok(())
}
