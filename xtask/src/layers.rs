//! Dependencies point down the list of layers, and pure crates stay pure.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::Violation;

/// The crates of the workspace, highest first. A crate may depend on those below it only.
/// The reasons are in `docs/architecture.md`; keep both in step.
pub const LAYERS: &[&str] = &[
    "orrery",
    "orrery-inmanta-api",
    "orrery-server",
    "orrery-gateway",
    "orrery-compile-service",
    "orrery-roles",
    "orrery-api",
    "orrery-agent-cli",
    "orrery-agent-python",
    "orrery-provisioner",
    "orrery-ssh",
    "orrery-agent",
    "orrery-lsp",
    "orrery-cluster",
    "orrery-project",
    "orrery-executor",
    "orrery-handler-host",
    "orrery-compile-host",
    "orrery-host",
    "orrery-handlers",
    "orrery-pyenv",
    "orrery-sandbox",
    "orrery-store",
    "orrery-bus",
    "orrery-scheduler",
    "orrery-compiler",
    "orrery-jinja",
    "orrery-syntax",
    "orrery-python",
    "orrery-model",
    "orrery-base",
];

/// Crates that do no I/O, so that they can be tested, fuzzed and simulated without a machine.
pub const PURE: &[&str] = &[
    "orrery-cluster",
    "orrery-scheduler",
    "orrery-compiler",
    "orrery-jinja",
    "orrery-syntax",
    "orrery-python",
    "orrery-model",
];

/// Libraries whose presence would mean I/O.
const IMPURE_LIBRARIES: &[&str] = &[
    "async-nats",
    "axum",
    "clap",
    "hyper",
    "indicatif",
    "nix",
    "notify",
    "opentelemetry",
    "orrery-base",
    "postgres",
    "rand",
    "reqwest",
    "rusqlite",
    "russh",
    "rustix",
    "rustls",
    "signal-hook",
    "tempfile",
    "tokio",
    "tokio-postgres",
    "tokio-util",
    "tower-http",
    "tracing-subscriber",
    "ureq",
];

/// Libraries that one crate owns.
const OWNED_LIBRARIES: [(&str, &str); 5] = [
    ("rusqlite", "orrery-store"),
    ("postgres", "orrery-store"),
    ("tokio-postgres", "orrery-store"),
    ("async-nats", "orrery-bus"),
    ("russh", "orrery-ssh"),
];

/// Crates that may depend on the listed crates of the workspace only. A remote agent links neither
/// the compiler nor a database, so neither may the handlers that it runs.
const CLOSED: [(&str, &[&str]); 9] = [
    (
        "orrery-provisioner",
        &[
            "orrery-agent",
            "orrery-base",
            "orrery-cluster",
            "orrery-handlers",
            "orrery-model",
            "orrery-pyenv",
            "orrery-ssh",
        ],
    ),
    ("orrery-agent-cli", &["orrery-agent", "orrery-agent-python", "orrery-base"]),
    (
        "orrery-agent-python",
        &[
            "orrery-agent",
            "orrery-base",
            "orrery-handler-host",
            "orrery-handlers",
            "orrery-host",
            "orrery-model",
            "orrery-pyenv",
        ],
    ),
    ("orrery-handler-host", &["orrery-base", "orrery-handlers", "orrery-host", "orrery-model"]),
    ("orrery-host", &["orrery-base", "orrery-model", "orrery-pyenv", "orrery-sandbox"]),
    ("orrery-pyenv", &["orrery-base", "orrery-model", "orrery-sandbox"]),
    ("orrery-sandbox", &["orrery-base"]),
    ("orrery-agent", &["orrery-base", "orrery-handlers", "orrery-model"]),
    ("orrery-handlers", &["orrery-base", "orrery-model"]),
];

/// Crates that may start asynchronous tasks, and so depend on tokio: the roles and the binary.
const WITH_TASKS: &[&str] = &[
    "orrery",
    "orrery-server",
    "orrery-roles",
    "orrery-gateway",
    "orrery-inmanta-api",
    "orrery-agent",
    "orrery-agent-cli",
    "orrery-ssh",
];

/// Tools of the repository itself: nothing that ships may depend on them.
const TOOLS: [&str; 2] = ["xtask", "orrery-testing"];

/// One package of the workspace and the names it depends on.
#[derive(Clone, Debug)]
pub struct Package {
    pub name: String,
    pub dependencies: Vec<Dependency>,
}

#[derive(Clone, Debug)]
pub struct Dependency {
    pub name: String,
    /// Only for tests, examples and benches.
    pub development: bool,
}

/// The packages of the workspace at `root`, as Cargo sees them.
///
/// # Errors
/// If Cargo cannot be run or its answer cannot be read; the text says which.
pub fn read_packages(root: &Path) -> Result<Vec<Package>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cargo metadata did not start: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cargo metadata gave no JSON: {error}"))?;
    parse_packages(&metadata).ok_or_else(|| "cargo metadata has an unexpected shape".to_owned())
}

fn parse_packages(metadata: &Value) -> Option<Vec<Package>> {
    let mut packages = Vec::new();
    for package in metadata.get("packages")?.as_array()? {
        let mut dependencies = Vec::new();
        for dependency in package.get("dependencies")?.as_array()? {
            dependencies.push(Dependency {
                name: dependency.get("name")?.as_str()?.to_owned(),
                development: dependency.get("kind")?.as_str() == Some("dev"),
            });
        }
        packages.push(Package { name: package.get("name")?.as_str()?.to_owned(), dependencies });
    }
    Some(packages)
}

fn layer_of(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| *layer == name)
}

/// Edges that point up or sideways, crates without a layer, and libraries where they do not belong.
pub fn check(packages: &[Package]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for package in packages {
        let place = format!("crate {}", package.name);
        let layer = layer_of(&package.name);
        if layer.is_none() && !TOOLS.contains(&package.name.as_str()) {
            violations.push(Violation::new(
                &place,
                "has no layer: add it to LAYERS in xtask/src/layers.rs and to the architecture page",
            ));
        }
        for dependency in &package.dependencies {
            let name = dependency.name.as_str();
            // Tests of a crate may enable its own features.
            let is_self = dependency.development && name == package.name;
            if let (Some(from), Some(to)) = (layer, layer_of(name))
                && to <= from
                && !is_self
            {
                violations.push(Violation::new(
                    &place,
                    format!("depends on {name}, which is not below it"),
                ));
            }
            if TOOLS.contains(&name) && !dependency.development {
                violations
                    .push(Violation::new(&place, format!("ships the repository's tool {name}")));
            }
            if PURE.contains(&package.name.as_str())
                && IMPURE_LIBRARIES.contains(&name)
                && !dependency.development
            {
                violations
                    .push(Violation::new(&place, format!("is pure and must not depend on {name}")));
            }
            for (_, allowed) in CLOSED.iter().filter(|(closed, _)| *closed == package.name) {
                let is_own = layer_of(name).is_some() && !dependency.development;
                if is_own && !allowed.contains(&name) {
                    violations.push(Violation::new(
                        &place,
                        format!("depends on {name}, which a remote agent must not link"),
                    ));
                }
            }
            if name == "tokio"
                && !dependency.development
                && !PURE.contains(&package.name.as_str())
                && !WITH_TASKS.contains(&package.name.as_str())
            {
                let problem =
                    "must not start tasks: only WITH_TASKS of xtask/src/layers.rs use tokio";
                violations.push(Violation::new(&place, problem));
            }
            for (library, owner) in OWNED_LIBRARIES {
                // Tests may look at a database behind its owner's back, or damage it.
                let ships = !dependency.development && !TOOLS.contains(&package.name.as_str());
                if name == library && package.name != owner && ships {
                    violations
                        .push(Violation::new(&place, format!("only {owner} may use {library}")));
                }
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &[&str]) -> Package {
        let dependencies = dependencies
            .iter()
            .map(|name| Dependency { name: (*name).to_owned(), development: false })
            .collect();
        Package { name: name.to_owned(), dependencies }
    }

    fn problems(name: &str, dependencies: &[&str]) -> usize {
        check(&[package(name, dependencies)]).len()
    }

    #[test]
    fn edges_may_point_down_only() {
        assert_eq!(problems("orrery-compiler", &["orrery-syntax", "orrery-python", "serde"]), 0);
        assert_eq!(problems("orrery-syntax", &["orrery-compiler"]), 1);
        assert_eq!(problems("orrery-python", &["orrery-syntax"]), 1);
        assert_eq!(problems("orrery-syntax", &["orrery-syntax"]), 1);
    }

    #[test]
    fn development_edges_obey_the_layers_too() {
        let mut upward = package("orrery-syntax", &["orrery-compiler", "xtask"]);
        for dependency in &mut upward.dependencies {
            dependency.development = true;
        }
        assert_eq!(check(&[upward]).len(), 1);
    }

    #[test]
    fn tests_may_use_the_libraries_of_others() {
        let mut package = package("orrery-server", &["rusqlite"]);
        package.dependencies[0].development = true;
        assert!(check(&[package]).is_empty());
    }

    #[test]
    fn a_remote_agent_links_handlers_and_the_model_only() {
        assert_eq!(problems("orrery-agent", &["orrery-handlers", "orrery-model", "tokio"]), 0);
        assert_eq!(problems("orrery-agent", &["orrery-executor"]), 1);
        assert_eq!(problems("orrery-handlers", &["orrery-store"]), 1);
        let mut tested = package("orrery-handlers", &["orrery-compiler"]);
        tested.dependencies[0].development = true;
        assert!(check(&[tested]).is_empty());
    }

    #[test]
    fn a_crate_without_a_layer_is_reported() {
        assert_eq!(problems("orrery-surprise", &[]), 1);
        assert_eq!(problems("xtask", &["serde_json"]), 0);
    }

    #[test]
    fn pure_crates_and_owned_libraries_are_guarded() {
        assert_eq!(problems("orrery-scheduler", &["tokio"]), 1);
        assert_eq!(problems("orrery-model", &["orrery-base", "rustix"]), 2);
        assert_eq!(problems("orrery-server", &["tokio"]), 0);
        assert_eq!(problems("orrery-store", &["tokio"]), 1);
        assert_eq!(problems("orrery-server", &["rusqlite"]), 1);
        assert_eq!(problems("orrery-store", &["rusqlite"]), 0);
        assert_eq!(problems("orrery", &["xtask"]), 1);
        assert_eq!(problems("orrery", &["orrery-testing"]), 1);
        assert_eq!(problems("orrery-testing", &["postgres"]), 0);
    }

    #[test]
    fn metadata_of_cargo_is_understood() {
        let metadata = serde_json::json!({"packages": [{"name": "a", "dependencies": [
            {"name": "b", "kind": null}, {"name": "c", "kind": "dev"}]}]});
        let packages = parse_packages(&metadata).unwrap();
        assert_eq!(packages[0].name, "a");
        let kinds: Vec<bool> =
            packages[0].dependencies.iter().map(|edge| edge.development).collect();
        assert_eq!(kinds, [false, true]);
        assert!(parse_packages(&serde_json::json!({"packages": [{}]})).is_none());
    }
}
