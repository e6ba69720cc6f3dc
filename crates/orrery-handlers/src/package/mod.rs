//! `std::Package`: a package of the host's package manager.

mod apt;
mod dnf;

use std::collections::HashMap;
use std::sync::Arc;

use orrery_model::{AttributeDiff, Fact, ResourceType};
use serde::Deserialize;

use crate::context::{Context, changed};
use crate::error::HandlerError;
use crate::handler::Crud;
use crate::registry::Registry;
use crate::tools;

pub(crate) fn register(registry: &mut Registry) {
    let declaration = ResourceType::new("std::Package", "host.name", "name", &["state"]);
    registry.register(declaration, Arc::new(PackageHandler));
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct PackageHandler;

#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Installed,
    Removed,
    Latest,
}

/// Package manager of a family of distributions.
trait PackageManager: Send + Sync {
    /// Versions of all installed packages, by name and by name with architecture.
    fn installed(&self, context: &Context<'_>) -> Result<HashMap<String, String>, HandlerError>;

    /// Returns a newer available version.
    fn newer_version(
        &self,
        name: &str,
        installed: &str,
        context: &Context<'_>,
    ) -> Result<Option<String>, HandlerError>;

    /// Installs the newest version of a missing package.
    fn install(&self, name: &str, context: &mut Context<'_>) -> Result<(), HandlerError>;

    /// Installs the newest version in place of an older one.
    fn upgrade(&self, name: &str, context: &mut Context<'_>) -> Result<(), HandlerError>;

    fn remove(&self, name: &str, context: &mut Context<'_>) -> Result<(), HandlerError>;
}

/// Versions of all packages, from one query.
struct InstalledPackages(HashMap<String, String>);

/// Package manager of this host.
struct DetectedManager(Box<dyn PackageManager>);

fn manager(context: &Context<'_>) -> Result<Arc<DetectedManager>, HandlerError> {
    context.cache().get_or_query(|| {
        let has = |command: &str| context.target().which(command, None).map(|path| path.is_some());
        if has("dpkg-query")? {
            return Ok(DetectedManager(Box::new(apt::Apt)));
        }
        if has("rpm")? {
            let program = if has("dnf")? { "dnf" } else { "yum" };
            return Ok(DetectedManager(Box::new(dnf::Dnf { program })));
        }
        Err(HandlerError::failed_with_hint(
            "no package manager: neither dpkg-query nor rpm was found",
            "packages are managed on Debian, Fedora and their relatives",
        ))
    })
}

fn installed(context: &Context<'_>) -> Result<Arc<InstalledPackages>, HandlerError> {
    let manager = manager(context)?;
    context.cache().get_or_query(|| manager.0.installed(context).map(InstalledPackages))
}

/// Current state of one package.
pub(crate) struct PackageState {
    version: String,
    /// A newer version to install.
    newer: Option<String>,
}

impl Crud for PackageHandler {
    type Desired = Package;
    type Current = PackageState;

    fn is_purged(desired: &Package) -> bool {
        desired.state == State::Removed
    }

    fn read(
        &self,
        desired: &Package,
        context: &mut Context<'_>,
    ) -> Result<Option<PackageState>, HandlerError> {
        let name = context.id().value();
        tools::check_name("package", name)?;
        let Some(version) = installed(context)?.0.get(name).cloned() else {
            return Ok(None);
        };
        let newer = if desired.state == State::Latest {
            manager(context)?.0.newer_version(name, &version, context)?
        } else {
            None
        };
        Ok(Some(PackageState { version, newer }))
    }

    fn diff(
        &self,
        _desired: &Package,
        current: &PackageState,
        _context: &mut Context<'_>,
    ) -> Result<Vec<AttributeDiff>, HandlerError> {
        let change = |newer: &String| changed("version", &*current.version, newer.as_str());
        Ok(current.newer.iter().map(change).collect())
    }

    fn create(&self, _desired: &Package, context: &mut Context<'_>) -> Result<(), HandlerError> {
        // Even a failed installation may have installed other packages.
        context.cache().invalidate::<InstalledPackages>();
        manager(context)?.0.install(context.id().value(), context)
    }

    fn update(
        &self,
        _desired: &Package,
        _current: &PackageState,
        _changes: &[AttributeDiff],
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        context.cache().invalidate::<InstalledPackages>();
        manager(context)?.0.upgrade(context.id().value(), context)
    }

    fn delete(
        &self,
        _desired: &Package,
        _current: &PackageState,
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        context.cache().invalidate::<InstalledPackages>();
        manager(context)?.0.remove(context.id().value(), context)
    }

    /// Reports the installed version.
    fn facts(
        &self,
        desired: &Package,
        context: &mut Context<'_>,
    ) -> Result<Vec<Fact>, HandlerError> {
        if desired.state == State::Removed {
            return Ok(Vec::new());
        }
        let installed = installed(context)?;
        let version = installed.0.get(context.id().value());
        let fact =
            |value: &String| Fact { name: "version".into(), value: value.clone(), expires: true };
        Ok(version.map(fact).into_iter().collect())
    }
}

/// Parses lines of tab-separated fields into a map.
fn versions_by_name(
    text: &str,
    mut entry: impl FnMut(&[&str]) -> Option<[String; 3]>,
) -> HashMap<String, String> {
    let mut versions = HashMap::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        if let Some([name, qualified, version]) = entry(&fields) {
            versions.insert(qualified, version.clone());
            versions.insert(name, version);
        }
    }
    versions
}

/// Returns the value after `name: ` in the output of a tool.
fn value_after<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}
