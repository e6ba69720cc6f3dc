//! Plugins that read files of the project and of modules, and generated passwords.
//!
//! A path is `module/rest`, `./rest` (the module of the calling file) or `/rest` (the project).

use orrery_python::str_strip;

use super::args::{clamped, optional, plugin, required, text};
use super::{Failure, NativePlugin, ParamDefault, PathKind, PluginContext, PluginResult};
use crate::value::Value;

pub(super) const PLUGINS: &[NativePlugin] = &[
    plugin!("std::file", [required("path", "string")] => "string", file),
    plugin!("std::generate_password",
        [required("pw_id", "string"), optional("length", "int", ParamDefault::Int(20))] => "string", generate_password),
    plugin!("std::list_files", [required("path", "string")] => "list", list_files),
    plugin!("std::password", [required("pw_id", "string")] => "string", password),
    plugin!("std::source", [required("path", "string")] => "string", source),
];

/// Python's plain `Exception`.
pub(super) fn exception(message: String) -> Failure {
    Failure::python("Exception", message)
}

/// Python's `os.path.join`.
fn join(directory: &str, rest: &str) -> String {
    if rest.starts_with('/') {
        rest.to_owned()
    } else if directory.ends_with('/') {
        format!("{directory}{rest}")
    } else {
        format!("{directory}/{rest}")
    }
}

/// Resolves a path of the model below `files/` or `templates/`.
pub(super) fn resolve(
    ctx: &dyn PluginContext,
    path: &str,
    folder: &str,
) -> Result<String, Failure> {
    if path.is_empty() || path.starts_with('/') {
        let rest = path.get(1..).unwrap_or_default();
        return Ok(join(&join(&ctx.project_dir(), folder), rest));
    }
    let (first, rest) = path.split_once('/').unwrap_or((path, ""));
    let module = if path.starts_with("./") {
        let namespace = ctx.caller_namespace();
        let module = namespace.split("::").next().unwrap_or_default().to_owned();
        if module == "__config__" {
            return Err(exception(format!(
                "Unable to determine current module for path {path}, called from {namespace}"
            )));
        }
        module
    } else {
        first.to_owned()
    };
    let Some(directory) = ctx.module_dir(&module) else {
        return Err(exception(format!("Module {module} does not exist for path {path}")));
    };
    Ok(join(&join(&directory, folder), rest))
}

fn source(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let path = text(ctx, args[0])?;
    let file = resolve(ctx, path, "files")?;
    if ctx.file_kind(&file) != PathKind::File {
        return Err(exception(format!("{path} isn't a valid file ({file})")));
    }
    let content = ctx.read_text(&file).map_err(exception)?;
    Ok(ctx.heap_mut().str(&content))
}

/// Returns the name of a file without reading it.
fn file(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let file = resolve(ctx, text(ctx, args[0])?, "files")?;
    if ctx.file_kind(&file) != PathKind::File {
        return Err(exception(format!("{file} isn't a valid file")));
    }
    Ok(ctx.heap_mut().str(&format!("imp-module-source:file://{file}")))
}

fn list_files(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let directory = resolve(ctx, text(ctx, args[0])?, "files")?;
    match ctx.file_kind(&directory) {
        PathKind::Directory => {}
        PathKind::Missing => {
            let message = format!("[Errno 2] No such file or directory: '{directory}'");
            return Err(Failure::python("FileNotFoundError", message));
        }
        PathKind::File => {
            let message = format!("[Errno 20] Not a directory: '{directory}'");
            return Err(Failure::python("NotADirectoryError", message));
        }
    }
    let mut names = ctx.list_dir(&directory).map_err(exception)?;
    names.retain(|name| ctx.file_kind(&join(&directory, name)) == PathKind::File);
    let heap = ctx.heap_mut();
    let names = names.iter().map(|name| heap.str(name)).collect();
    Ok(heap.list(names))
}

/// The file of generated passwords, with lines `id=password`.
struct Passwords {
    path: String,
    entries: indexmap::IndexMap<String, String>,
}

fn read_passwords(ctx: &dyn PluginContext) -> Result<Passwords, Failure> {
    let path = join(&ctx.project_dir(), "data/std/passwordfile.txt");
    let mut entries = indexmap::IndexMap::new();
    if ctx.file_kind(&path) == PathKind::File {
        for line in ctx.read_text(&path).map_err(exception)?.lines() {
            let line = str_strip(line);
            if line.chars().count() <= 2 {
                continue;
            }
            let Some((id, password)) = line.split_once('=') else {
                return Err(Failure::python("ValueError", "substring not found"));
            };
            entries.insert(str_strip(id).to_owned(), str_strip(password).to_owned());
        }
    }
    Ok(Passwords { path, entries })
}

fn password_id(ctx: &dyn PluginContext, value: Value) -> Result<String, Failure> {
    let id = text(ctx, value)?;
    if id.contains('=') {
        return Err(exception("The password id cannot contain =".to_owned()));
    }
    Ok(id.to_owned())
}

fn password(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let id = password_id(ctx, args[0])?;
    let passwords = read_passwords(ctx)?;
    match passwords.entries.get(&id) {
        Some(password) => Ok(ctx.heap_mut().str(password)),
        None => {
            // The reference compiler names the file relative to the project's directory.
            let file = passwords.path.trim_start_matches("./");
            Err(exception(format!("Password {id} does not exist in file {file}")))
        }
    }
}

/// Returns the same password for the same id in every compile.
fn generate_password(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let id = password_id(ctx, args[0])?;
    let mut passwords = read_passwords(ctx)?;
    if let Some(password) = passwords.entries.get(&id) {
        return Ok(ctx.heap_mut().str(password));
    }
    let length = usize::try_from(clamped(ctx, args[1])?).unwrap_or(0);
    if length > PASSWORD_LENGTH_MAX {
        return Err(Failure::python("MemoryError", ""));
    }
    let password = random_word(ctx, length);
    passwords.entries.insert(id, password.clone());
    let lines = passwords.entries.iter().map(|(id, password)| format!("{id}={password}\n"));
    let text: String = lines.collect();
    ctx.write_text(&passwords.path, &text).map_err(exception)?;
    Ok(ctx.heap_mut().str(&password))
}

const PASSWORD_LENGTH_MAX: usize = 1 << 20;

/// Letters and digits. Bytes beyond a multiple of their number are drawn again, so that all are
/// equally likely.
fn random_word(ctx: &mut dyn PluginContext, length: usize) -> String {
    const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    let mut word = String::with_capacity(length);
    while word.len() < length {
        for byte in ctx.random_bytes(length - word.len()) {
            if byte < 248 {
                word.push(char::from(LETTERS[usize::from(byte) % LETTERS.len()]));
            }
        }
    }
    word
}
