//! External requirements that a module declares beside its code.

use std::path::Path;

use crate::package_names::MODULE_PREFIX;

/// Distribution that the SDK replaces.
pub(crate) const CORE: &str = "inmanta-core";
/// Distributions that are not installed on request of a module: the SDK's, and modules that are
/// shipped as code.
const OWN: [&str; 2] = [CORE, MODULE_PREFIX];

/// Returns the external requirements of a module. Without a file that lists them, `otherwise`
/// returns its lines.
pub fn external_requirements(
    root: &Path,
    otherwise: impl FnOnce() -> Vec<String>,
) -> impl Iterator<Item = String> {
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap_or_default();
    let (listed, configured) = (read("requirements.txt"), read("setup.cfg"));
    let listed = listed.lines().map(str::to_owned);
    let mut lines: Vec<String> = listed.chain(install_requires(&configured)).collect();
    if lines.is_empty() {
        lines = otherwise();
    }
    lines.into_iter().filter_map(|line| requirement(&line))
}

/// Parses one line; `None` if it is not a requirement to install.
fn requirement(line: &str) -> Option<String> {
    let line = line.split(" #").next().unwrap_or(line).trim();
    // Options of pip concern the module's author, not its users.
    if line.is_empty() || line.starts_with(['#', '-']) {
        return None;
    }
    let name = line.to_ascii_lowercase().replace('_', "-");
    let own = OWN.iter().any(|own| name.starts_with(own)) || name == "inmanta";
    (!own).then(|| line.to_owned())
}

/// Returns the lines of `install_requires` in the section `options` of a `setup.cfg`.
fn install_requires(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let (mut in_options, mut in_list) = (false, false);
    for line in text.lines() {
        if line.starts_with('[') {
            (in_options, in_list) = (line.trim() == "[options]", false);
        } else if in_options && !line.starts_with(char::is_whitespace) {
            let (name, value) = line.split_once('=').unwrap_or((line, ""));
            in_list = name.trim() == "install_requires";
            if in_list {
                found.push(value.to_owned());
            }
        } else if in_list {
            found.push(line.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_are_found_and_our_own_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let listed = "# what it needs\npyyaml>=6 # for files\ninmanta-core\n--index x\n\njinja2\n";
        std::fs::write(dir.path().join("requirements.txt"), listed).unwrap();
        let configured = "[metadata]\nname = x\ninstall_requires = no\n[options]\ninstall_requires =\n  \
                          inmanta-module-std>=1\n  Jinja2 ~= 3.0\n  inmanta_core>1\nzip_safe = False\n";
        std::fs::write(dir.path().join("setup.cfg"), configured).unwrap();
        let found = external_requirements(dir.path(), || vec!["unused".to_owned()]);
        assert_eq!(found.collect::<Vec<_>>(), ["pyyaml>=6", "jinja2", "Jinja2 ~= 3.0"]);
        let empty = tempfile::tempdir().unwrap();
        let found = external_requirements(empty.path(), || vec!["a>=1".into(), CORE.into()]);
        assert_eq!(found.collect::<Vec<_>>(), ["a>=1"]);
    }
}
