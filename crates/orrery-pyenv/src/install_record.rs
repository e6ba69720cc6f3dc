//! Record of an installation, stored in the virtualenv: an unchanged virtualenv with the same
//! request needs no work.

use std::path::Path;

use serde_json::{Value, json};

use crate::request::InstallRequest;
use crate::{Error, requirements, sdk};

pub(crate) const FILE: &str = "orrery.json";
/// Version of the virtualenv layout.
const FORMAT: u32 = 4;

/// All inputs of the contents of a virtualenv.
pub(crate) fn inputs(request: &InstallRequest) -> Value {
    let read: Vec<Value> = requirements::with_included(&request.files)
        .into_iter()
        .map(|(path, text)| json!([path.display().to_string(), text]))
        .collect();
    let editable = request.editable.as_ref().map(|dir| {
        let described = ["setup.cfg", "pyproject.toml"]
            .map(|name| std::fs::read_to_string(dir.join(name)).unwrap_or_default());
        json!([dir.display().to_string(), described])
    });
    let lock = request.locking.as_ref().and_then(|locking| locking.lock.as_ref());
    json!({
        "format": FORMAT,
        "files": read,
        "requirements": request.requirements,
        "editable": editable,
        "index": request.pip,
        "sdk": request.sdk.as_deref().map(sdk::fingerprint),
        "lock": lock.map(|lock| lock.to_text()),
    })
}

pub(crate) struct InstallRecord {
    note: Value,
}

impl InstallRecord {
    pub(crate) fn read(environment: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(environment.join(FILE)).ok()?;
        Some(InstallRecord { note: serde_json::from_str(&text).ok()? })
    }

    /// True if Orrery created the virtualenv, rather than only installing into it.
    pub(crate) fn is_own(&self) -> bool {
        self.note.get("made").and_then(Value::as_bool).unwrap_or(false)
    }

    /// True if the virtualenv is unchanged since an installation with the same inputs.
    pub(crate) fn is_current(&self, inputs: &Value, environment: &Path) -> bool {
        self.note.get("inputs") == Some(inputs)
            && self.note.get("installed") == Some(&json!(installed(environment)))
    }

    /// True if only the SDK differs, which changes with every release of Orrery.
    pub(crate) fn is_current_but_for_the_sdk(&self, inputs: &Value, environment: &Path) -> bool {
        let without = |inputs: &Value| {
            let mut inputs = inputs.clone();
            inputs.as_object_mut().map(|members| members.insert("sdk".into(), Value::Null));
            inputs
        };
        let Some(before) = self.note.get("inputs") else { return false };
        without(before) == without(inputs)
            && self.note.get("installed") == Some(&json!(installed(environment)))
    }

    pub(crate) fn write(environment: &Path, inputs: &Value, is_own: bool) -> Result<(), Error> {
        let note = json!({ "made": is_own, "inputs": inputs, "installed": installed(environment) });
        let path = environment.join(FILE);
        let text = format!("{note:#}\n");
        std::fs::write(&path, text).map_err(Error::system(format!("write {}", path.display())))
    }
}

/// Installed names and versions, read from directory names without starting Python.
fn installed(environment: &Path) -> Vec<String> {
    let list = |dir: &Path| -> Vec<std::path::PathBuf> {
        let entries = std::fs::read_dir(dir).map(|entries| entries.flatten().map(|e| e.path()));
        entries.map(Iterator::collect).unwrap_or_default()
    };
    let mut names: Vec<String> = list(&environment.join("lib"))
        .iter()
        .flat_map(|python| list(&python.join("site-packages")))
        .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
        .filter(|name| name.ends_with(".dist-info"))
        .collect();
    names.sort();
    names
}
