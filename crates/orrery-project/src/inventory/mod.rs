//! The inventory of a project, `inventory.yml`: read, resolved, and its problems as diagnostics.

mod yaml;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use orrery_compiler::error::CompileError;
use orrery_compiler::{Compilation, CompileWarning};
use orrery_host::bundle::sha1_hex;
use orrery_model::{HostInventory, InventoryProblem};
use orrery_syntax::ast::Loc;

use yaml::Node;

/// Name of the file in a project.
pub const INVENTORY_FILE: &str = "inventory.yml";
/// Names that suggest an inventory, and are none.
const OTHER_NAMES: [&str; 2] = ["inventory.yaml", "inventory.json"];
/// Maximum size of the file in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Class of its errors in reports.
const CLASS: &str = "InvalidInventory";

/// A valid inventory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProjectInventory {
    /// Content of the file as JSON.
    pub document: serde_json::Value,
    pub hosts: Arc<HostInventory>,
}

/// An inventory that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InventoryError {
    #[error("{INVENTORY_FILE} cannot be read")]
    Read(#[source] std::io::Error),
    #[error("{INVENTORY_FILE} has more than {FILE_BYTES_MAX} bytes")]
    Size,
    #[error("{INVENTORY_FILE} has {} problems", .problems.len())]
    Invalid { text: String, problems: Vec<LocatedProblem> },
}

/// A problem with its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocatedProblem {
    pub message: String,
    pub help: Option<String>,
    /// Bytes of the text to underline.
    pub span: Range<usize>,
}

impl ProjectInventory {
    /// Reads the inventory of a project; `None` if it has none.
    ///
    /// # Errors
    /// If the file cannot be read or has problems.
    pub fn read(directory: &Path) -> Result<Option<Self>, InventoryError> {
        let path = directory.join(INVENTORY_FILE);
        match std::fs::metadata(&path) {
            Ok(found) if found.len() > FILE_BYTES_MAX => return Err(InventoryError::Size),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(InventoryError::Read(error)),
        }
        let text = std::fs::read_to_string(&path).map_err(InventoryError::Read)?;
        Self::parse(text).map(Some)
    }

    /// Returns the name of a file that is probably meant as the inventory of a project without one.
    pub fn misnamed(directory: &Path) -> Option<&'static str> {
        let is_there = |name: &&str| directory.join(name).is_file();
        match is_there(&INVENTORY_FILE) {
            true => None,
            false => OTHER_NAMES.into_iter().find(is_there),
        }
    }

    /// Warning about a file with another name that is probably meant as the inventory.
    pub(crate) fn warning(directory: &Path) -> Option<CompileWarning> {
        let name = Self::misnamed(directory)?;
        let message = format!(
            "{name} is ignored, since an inventory is in {INVENTORY_FILE}: rename the file if it is one"
        );
        Some(CompileWarning { class: CLASS, message, loc: None })
    }

    /// Parses the text of an inventory.
    ///
    /// # Errors
    /// If it has problems.
    pub fn parse(text: String) -> Result<Self, InventoryError> {
        let root = match yaml::parse(&text) {
            Ok(root) => root,
            Err(problem) => return Err(InventoryError::Invalid { text, problems: vec![problem] }),
        };
        let document = root.to_value();
        match HostInventory::resolve(&document) {
            Ok(hosts) => Ok(ProjectInventory { document, hosts: Arc::new(hosts) }),
            Err(problems) => {
                let mut problems: Vec<LocatedProblem> =
                    problems.iter().map(|problem| locate(&root, problem)).collect();
                problems.sort_by_key(|problem| problem.span.start);
                Err(InventoryError::Invalid { text, problems })
            }
        }
    }

    /// Writes the document into a directory of contents and returns its SHA-1.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn store_document(&self, directory: &Path) -> Result<String, std::io::Error> {
        let content = self.document.to_string();
        let sha1 = sha1_hex(content.as_bytes());
        std::fs::create_dir_all(directory)?;
        std::fs::write(directory.join(&sha1), content)?;
        Ok(sha1)
    }
}

fn locate(root: &Node, problem: &InventoryProblem) -> LocatedProblem {
    LocatedProblem {
        message: problem.issue.to_string(),
        help: problem.help(),
        span: root.span_of(&problem.path, problem.is_key),
    }
}

impl InventoryError {
    /// Result of a compile that an inventory prevents.
    pub fn into_compilation(self) -> Compilation {
        let mut compiled = Compilation::failed(CompileError::new(CLASS, String::new()));
        let error = match self {
            InventoryError::Invalid { text, problems } => {
                let file = compiled.sources.add(format!("./{INVENTORY_FILE}"), text);
                let offset = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
                let errors = problems.into_iter().map(|problem| {
                    let (start, end) = (offset(problem.span.start), offset(problem.span.end));
                    let loc = Loc { file, start, end, column: true };
                    let error = CompileError::new(CLASS, problem.message).at(loc);
                    *match problem.help {
                        Some(help) => error.help(help),
                        None => error,
                    }
                });
                CompileError::combine(errors.collect())
            }
            InventoryError::Read(error) => {
                Some(CompileError::new(CLASS, format!("{INVENTORY_FILE} cannot be read: {error}")))
            }
            InventoryError::Size => {
                Some(CompileError::new(CLASS, InventoryError::Size.to_string()))
            }
        };
        if let Some(error) = error {
            compiled.outcome = Err(error);
        }
        compiled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\
defaults: { user: deploy, identity: ~/.ssh/id_ed25519, sudo: true, strict_host_key: yes }
groups:
  web: { hosts: [web1, web2, \"web[3..9].example.org\"], user: www, jump: bastion }
hosts:
  web1: { address: 192.0.2.11, port: 2222 }
  bastion: { address: bastion.example.org }
";

    /// The underlined text, message and help of each problem.
    fn problems(text: &str) -> Vec<(String, String)> {
        match ProjectInventory::parse(text.to_owned()) {
            Err(InventoryError::Invalid { text, problems }) => problems
                .into_iter()
                .map(|problem| {
                    let help = problem.help.unwrap_or_default();
                    (text[problem.span].to_owned(), format!("{} {help}", problem.message))
                })
                .collect(),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn the_documented_inventory_is_resolved() {
        let inventory = ProjectInventory::parse(GOOD.to_owned()).unwrap();
        assert_eq!(inventory.hosts.hosts().count(), 10);
        let web1 = inventory.hosts.get("web1").unwrap();
        assert_eq!(
            web1.address.to_string(),
            "ssh://www@192.0.2.11:2222?identity=~/.ssh/id_ed25519\
             &jump=deploy%40bastion.example.org&strict_host_key=yes&sudo=true"
        );
        for empty in ["", "# nothing\n", "hosts:\n"] {
            assert!(ProjectInventory::parse(empty.to_owned()).unwrap().hosts.is_empty());
        }
    }

    #[test]
    fn problems_underline_the_smallest_text() {
        for (text, underlined, message) in [
            ("hosts:\n  web1: { usr: root }\n", "usr", "did you mean user?"),
            ("hosts:\n  web1:\n    port: 99999\n", "99999", "no port"),
            ("groups:\n  a: { hosts: [x, 'y[1..'] }\n", "'y[1..'", "no range"),
            ("groups:\n  a: { groups: [b] }\n", "b", "no group"),
            ("hosts: [a, b]\n", "[a, b]", "expected a mapping"),
            ("hosts:\n  a: {}\n  a: {}\n", "a", "twice"),
            ("hosts: {\n", "", ""),
            ("hosts: !x {}\n", "", "tag"),
            ("a: 1\n---\nb: 2\n", "", "second document"),
        ] {
            let found = problems(text);
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            assert!(underlined.is_empty() || found[0].0 == underlined, "{text}: {found:?}");
            assert!(found[0].1.contains(message), "{text}: {found:?}");
        }
    }

    #[test]
    fn problems_are_in_the_order_of_the_file() {
        let found = problems("hosts:\n  a: { prt: 1 }\ngroups:\n  g: { usr: x }\n  h: 5\n");
        let words: Vec<&str> = found.iter().map(|(text, _)| text.as_str()).collect();
        assert_eq!(words, ["prt", "usr", "5"]);
    }
}
