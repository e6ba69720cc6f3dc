//! Inputs of a lock file as digests, one per file and section, so that changes can be named.

use std::collections::BTreeSet;
use std::path::Path;

use orrery_base::hex::to_hex;
use sha2::{Digest as _, Sha256};

use crate::lock::{Inputs, Lock, LockedPackage, PackageSource};
use crate::request::InstallRequest;
use crate::requirements::{self, relative};

/// Files with the metadata of a package in a directory.
const DESCRIPTIONS: [&str; 3] = ["setup.cfg", "pyproject.toml", "setup.py"];

/// Inputs of a resolution: requirement files without comments, requirements and indexes of
/// `project.yml`, and metadata of packages in directories.
pub fn inputs_of(request: &InstallRequest, packages: &[LockedPackage]) -> Inputs {
    let project = &request.directory;
    let mut inputs = Inputs::new();
    for (path, text) in requirements::with_included(&request.files) {
        inputs.insert(relative_name(&path, project), digest(requirements::statements(&text)));
    }
    if !request.requirements.is_empty() {
        let sorted: BTreeSet<&str> = request.requirements.iter().map(String::as_str).collect();
        inputs.insert("requires".into(), digest(sorted));
    }
    if !request.pip.is_empty() {
        let settings = serde_json::json!(request.pip).to_string();
        inputs.insert("pip".into(), digest([settings.as_str()]));
    }
    for package in packages {
        let PackageSource::Directory { path, .. } = &package.source else { continue };
        for path in DESCRIPTIONS.map(|name| path.join(name)) {
            if let Ok(text) = std::fs::read_to_string(project.join(&path)) {
                inputs.insert(path.display().to_string(), digest(text.lines()));
            }
        }
    }
    inputs
}

/// Inputs that changed since the lock file was written.
pub(crate) fn changed(lock: &Lock, request: &InstallRequest) -> Vec<String> {
    let now = inputs_of(request, &lock.packages);
    let names: BTreeSet<&String> = lock.inputs.keys().chain(now.keys()).collect();
    let changed = names.into_iter().filter(|name| lock.inputs.get(*name) != now.get(*name));
    changed
        .map(|name| match name.as_str() {
            "requires" => "`requires` of project.yml or of a module".to_owned(),
            "pip" => "`pip` of project.yml".to_owned(),
            file => file.to_owned(),
        })
        .collect()
}

fn relative_name(path: &Path, project: &Path) -> String {
    let name = relative(path, project);
    name.strip_prefix(".").unwrap_or(&name).display().to_string()
}

fn digest<'t>(lines: impl IntoIterator<Item = &'t str>) -> String {
    let mut digest = Sha256::new();
    for line in lines {
        digest.update(line.as_bytes());
        digest.update(b"\n");
    }
    format!("sha256:{}", to_hex(&digest.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_no_change_and_requirements_are() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path().canonicalize().unwrap();
        let file = directory.join("requirements.txt");
        std::fs::write(&file, "a>=1\n").unwrap();
        let request = InstallRequest {
            directory: directory.clone(),
            files: vec![file.clone()],
            ..InstallRequest::default()
        };
        let lock = Lock { inputs: inputs_of(&request, &[]), ..Lock::default() };
        assert_eq!(lock.inputs.keys().collect::<Vec<_>>(), ["requirements.txt"]);
        std::fs::write(&file, "# why\n\na>=1  # because\n").unwrap();
        assert!(changed(&lock, &request).is_empty());
        std::fs::write(&file, "a>=2\n").unwrap();
        assert_eq!(changed(&lock, &request), ["requirements.txt"]);
        let request = InstallRequest { requirements: vec!["b".into()], files: vec![], ..request };
        let both = ["requirements.txt", "`requires` of project.yml or of a module"];
        assert_eq!(changed(&lock, &request), both);
    }

    #[test]
    fn a_directory_is_identified_by_its_metadata() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path().canonicalize().unwrap();
        std::fs::create_dir_all(directory.join("shop")).unwrap();
        std::fs::write(directory.join("shop/setup.cfg"), "[metadata]\n").unwrap();
        let request = InstallRequest { directory: directory.clone(), ..InstallRequest::default() };
        let packages = vec![LockedPackage {
            name: "shop".into(),
            version: None,
            source: PackageSource::Directory { path: "./shop".into(), editable: true },
            hashes: BTreeSet::new(),
        }];
        let lock = Lock { inputs: inputs_of(&request, &packages), packages, ..Lock::default() };
        assert!(changed(&lock, &request).is_empty());
        std::fs::write(directory.join("shop/setup.cfg"), "[metadata]\nversion = 2\n").unwrap();
        assert_eq!(changed(&lock, &request), ["./shop/setup.cfg"]);
    }
}
