//! `std::Package`: a package of the host's package manager.

mod apt;
mod dnf;

use std::collections::HashMap;
use std::sync::Arc;

use orrery_model::{AttributeChange, Fact, ResourceType};
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

/// What differs between families of distributions.
trait Manager: Send + Sync {
    /// Versions of all installed packages, by name and by name with architecture.
    fn installed(&self, context: &Context<'_>) -> Result<HashMap<String, String>, HandlerError>;

    /// A newer version than the installed one, if it can be had.
    fn newer(
        &self,
        name: &str,
        installed: &str,
        context: &Context<'_>,
    ) -> Result<Option<String>, HandlerError>;

    /// Installs the newest version of what is not there.
    fn install(&self, name: &str, context: &mut Context<'_>) -> Result<(), HandlerError>;

    /// Installs the newest version in place of an older one.
    fn upgrade(&self, name: &str, context: &mut Context<'_>) -> Result<(), HandlerError>;

    fn remove(&self, name: &str, context: &mut Context<'_>) -> Result<(), HandlerError>;
}

/// What one query said about all packages.
struct Installed(HashMap<String, String>);

/// The manager of this host.
struct Chosen(Box<dyn Manager>);

fn manager(context: &Context<'_>) -> Result<Arc<Chosen>, HandlerError> {
    context.session().cached(|| {
        let has = |command: &str| context.target().which(command, None).map(|path| path.is_some());
        if has("dpkg-query")? {
            return Ok(Chosen(Box::new(apt::Apt)));
        }
        if has("rpm")? {
            let program = if has("dnf")? { "dnf" } else { "yum" };
            return Ok(Chosen(Box::new(dnf::Dnf { program })));
        }
        Err(HandlerError::failed_with_hint(
            "there is no package manager: neither dpkg-query nor rpm was found",
            "packages are managed on Debian, Fedora and their relatives",
        ))
    })
}

fn installed(context: &Context<'_>) -> Result<Arc<Installed>, HandlerError> {
    let manager = manager(context)?;
    context.session().cached(|| manager.0.installed(context).map(Installed))
}

/// What was found of one package.
pub(crate) struct Found {
    version: String,
    /// A newer version that should be installed.
    newer: Option<String>,
}

impl Crud for PackageHandler {
    type Desired = Package;
    type Current = Found;

    fn is_purged(desired: &Package) -> bool {
        desired.state == State::Removed
    }

    fn read(
        &self,
        desired: &Package,
        context: &mut Context<'_>,
    ) -> Result<Option<Found>, HandlerError> {
        let name = context.id().value();
        tools::check_name("package", name)?;
        let Some(version) = installed(context)?.0.get(name).cloned() else {
            return Ok(None);
        };
        let newer = if desired.state == State::Latest {
            manager(context)?.0.newer(name, &version, context)?
        } else {
            None
        };
        Ok(Some(Found { version, newer }))
    }

    fn diff(
        &self,
        _desired: &Package,
        current: &Found,
        _context: &mut Context<'_>,
    ) -> Result<Vec<AttributeChange>, HandlerError> {
        let change = |newer: &String| changed("version", &*current.version, newer.as_str());
        Ok(current.newer.iter().map(change).collect())
    }

    fn create(&self, _desired: &Package, context: &mut Context<'_>) -> Result<(), HandlerError> {
        // Whatever comes of it, other packages may have come along.
        context.session().forget::<Installed>();
        manager(context)?.0.install(context.id().value(), context)
    }

    fn update(
        &self,
        _desired: &Package,
        _current: &Found,
        _changes: &[AttributeChange],
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        context.session().forget::<Installed>();
        manager(context)?.0.upgrade(context.id().value(), context)
    }

    fn delete(
        &self,
        _desired: &Package,
        _current: &Found,
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        context.session().forget::<Installed>();
        manager(context)?.0.remove(context.id().value(), context)
    }

    /// The version that is installed.
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

/// A map from lines of fields with tabs between them.
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

/// The value after `name: ` in the output of a tool.
fn value_after<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}
