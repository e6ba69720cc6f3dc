//! Reads documents from a directory with the layout of published template repositories.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use orrery_base::byte_size;
use orrery_cluster::document::{Catalog, DocumentFileId, DocumentKind};
use orrery_model::similar_names::closest;

use crate::error::CliError;
use crate::style;

const EXTENSIONS: [&str; 3] = ["json", "yaml", "yml"];
/// Maximum depth of directories.
const DEPTH_MAX: usize = 8;
/// Maximum size of a document.
const FILE_MAX: u64 = 16 << 20;

/// Reads all documents below a directory.
///
/// # Errors
/// The directory or a file cannot be read, or there is no document.
pub(super) fn read(directory: &Path) -> Result<Catalog, CliError> {
    fs::read_dir(directory).map_err(|error| unreadable(directory, &error))?;
    refuse_misspelt(directory)?;
    let mut catalog = Catalog::default();
    for kind in DocumentKind::ALL {
        // Removes a leading `./`.
        let folder: PathBuf = directory.join(kind.directory()).components().collect();
        let folder = folder.strip_prefix(".").map(Path::to_path_buf).unwrap_or(folder);
        if !folder.is_dir() {
            continue;
        }
        add_folder(&mut catalog, kind, &folder, directory)?;
    }
    if catalog.files.is_empty() {
        let folders: Vec<&str> = DocumentKind::ALL.iter().map(DocumentKind::directory).collect();
        let error = CliError::new(format!("no cluster documents in {}", directory.display()));
        return Err(error.help(format!(
            "documents are JSON or YAML files in the directories {}",
            folders.join(", ")
        )));
    }
    Ok(catalog)
}

/// Reads documents of one kind from files and directories. In a directory, prefers the subdirectory
/// of that kind.
///
/// # Errors
/// As [`read`].
pub(super) fn read_kind(paths: &[PathBuf], kind: DocumentKind) -> Result<Catalog, CliError> {
    let mut catalog = Catalog::default();
    for path in paths {
        if path.is_dir() {
            let folder = path.join(kind.directory());
            let folder = if folder.is_dir() { folder } else { path.clone() };
            add_folder(&mut catalog, kind, &folder, path)?;
        } else {
            add_file(&mut catalog, kind, path)?;
        }
    }
    if catalog.files.is_empty() {
        return Err(CliError::new("no JSON or YAML file"));
    }
    Ok(catalog)
}

/// True if a directory has a folder of documents.
pub(super) fn has_documents(directory: &Path) -> bool {
    DocumentKind::ALL.iter().any(|kind| directory.join(kind.directory()).is_dir())
}

fn unreadable(path: &Path, error: &io::Error) -> CliError {
    CliError::new(format!("{} cannot be read: {error}", path.display()))
}

/// Rejects misspelt names of document directories, which would be ignored.
fn refuse_misspelt(directory: &Path) -> Result<(), CliError> {
    let known = DocumentKind::ALL.map(|kind| kind.directory());
    let entries = fs::read_dir(directory).map_err(|error| unreadable(directory, &error))?;
    let mut folders: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_dir()).collect();
    folders.sort();
    for folder in folders {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(meant) = closest(&name, known.into_iter()).filter(|meant| *meant != name) else {
            continue;
        };
        let mut files = Vec::new();
        let is_read = collect(&folder, directory, 0, &mut files).is_ok();
        if is_read && !files.is_empty() {
            let error = CliError::new(format!(
                "{} is not a document directory: its {} would be ignored",
                folder.display(),
                style::count(files.len(), "file")
            ));
            return Err(error.help(format!("did you mean `{meant}`?")));
        }
    }
    Ok(())
}

fn add_folder(
    catalog: &mut Catalog,
    kind: DocumentKind,
    folder: &Path,
    within: &Path,
) -> Result<(), CliError> {
    let mut files = Vec::new();
    collect(folder, within, 0, &mut files)?;
    files.sort();
    files.iter().try_for_each(|path| add_file(catalog, kind, path))
}

fn add_file(catalog: &mut Catalog, kind: DocumentKind, path: &Path) -> Result<(), CliError> {
    let metadata = fs::metadata(path).map_err(|error| unreadable(path, &error))?;
    // Pipes and devices may be endless.
    if !metadata.is_file() {
        return Err(CliError::new(format!("{} is not a regular file", path.display())));
    }
    if metadata.len() > FILE_MAX {
        let text =
            format!("{} has more than {}", path.display(), byte_size::format_limit(FILE_MAX));
        return Err(CliError::new(text));
    }
    let text = fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
    catalog.add(kind, &path.display().to_string(), text);
    Ok(())
}

/// Files of a template and of everything that it extends and includes.
pub(super) fn files_of(catalog: &Catalog, template: &str) -> BTreeSet<DocumentFileId> {
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

/// Finds the documents in a directory. Links must not lead out of it.
fn collect(
    folder: &Path,
    within: &Path,
    depth: usize,
    files: &mut Vec<PathBuf>,
) -> Result<(), CliError> {
    for entry in fs::read_dir(folder).map_err(|error| unreadable(folder, &error))? {
        let path = entry.map_err(|error| unreadable(folder, &error))?.path();
        let extension = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
        let is_document = EXTENSIONS.contains(&extension.as_str());
        let is_directory = path.is_dir();
        if !is_document && !is_directory {
            continue;
        }
        if path.is_symlink() && !is_below(&path, within) {
            let text = format!("{} leads out of {}", path.display(), within.display());
            return Err(CliError::new(text).help("copy the file, or use its own directory"));
        }
        if is_directory {
            if depth < DEPTH_MAX {
                collect(&path, within, depth + 1, files)?;
            }
            continue;
        }
        files.push(path);
    }
    Ok(())
}

fn is_below(path: &Path, directory: &Path) -> bool {
    let resolved = path.canonicalize().ok().zip(directory.canonicalize().ok());
    resolved.is_some_and(|(path, directory)| path.starts_with(directory))
}
