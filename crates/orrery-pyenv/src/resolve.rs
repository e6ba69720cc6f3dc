//! Resolves versions with uv or pip: requirements, preferred versions, and shims.

use std::fs;
use std::path::{Path, PathBuf};

use crate::lock::{Lock, LockedPackage, PackageSource};
use crate::package_names::normalize;
use crate::paths::python_of;
use crate::pip::{self, InstallEvent, InstallListener, Pip};
use crate::report::{self, Paths};
use crate::request::{InstallRequest, Upgrade};
use crate::shim_packages::ShimPackages;
use crate::uv::Uv;
use crate::{Error, helper, requirements, sdk};

/// Maximum number of attempts that drop only conflicting preferred versions; then all are dropped.
const ATTEMPTS_MAX: usize = 8;

/// Tools and directories of an installation.
pub(crate) struct Tools<'e> {
    pub(crate) request: &'e InstallRequest,
    pub(crate) environment: &'e Path,
    pub(crate) scratch: &'e Path,
    /// Wheels that the binary provides.
    pub(crate) wheels: PathBuf,
    /// Additional index arguments of pip, besides its configuration.
    pub(crate) sources: Vec<String>,
    pub(crate) pip: Pip<'e>,
    pub(crate) uv: Option<Uv<'e>>,
}

impl<'e> Tools<'e> {
    pub(crate) fn new(
        request: &'e InstallRequest,
        environment: &'e Path,
        scratch: &'e Path,
        listener: InstallListener<'_>,
    ) -> Result<Self, Error> {
        let wheels = scratch.join("wheels");
        fs::create_dir(&wheels).map_err(Error::system("create a temporary directory"))?;
        let mut sources = vec!["--find-links".to_owned(), wheels.display().to_string()];
        sources.extend(crate::pip_settings::arguments(&request.pip));
        let pip = Pip { environment, directory: &request.directory, settings: &request.pip };
        let uv = Uv::find(request, environment, listener)?;
        Ok(Tools { request, environment, scratch, wheels, sources, pip, uv })
    }

    /// Writes the wheel of the SDK; returns an exact requirement for it.
    pub(crate) fn write_sdk(&self) -> Result<Option<String>, Error> {
        let Some(dir) = &self.request.sdk else { return Ok(None) };
        let wheel = helper::sdk_wheel(&python_of(self.environment), dir, &self.wheels)?;
        Ok(Some(format!("{}=={}", wheel.name, wheel.version)))
    }

    /// Resolves all requirements. Keeps locked, or else installed, versions where possible.
    pub(crate) fn resolve(
        &self,
        lock: Option<&Lock>,
        installed: &[helper::Package],
        listener: InstallListener<'_>,
    ) -> Result<Vec<LockedPackage>, Error> {
        let request = self.request;
        if request.files.is_empty() && request.requirements.is_empty() && request.editable.is_none()
        {
            return Ok(Vec::new());
        }
        listener(InstallEvent::Step("resolving requirements".into()));
        let preferred = self.preferred(lock, installed);
        let stand_ins = match (&self.request.upgrade, lock) {
            (Upgrade::All, _) => ShimPackages::newest(),
            (_, Some(lock)) => ShimPackages::among(versions_in(lock)),
            (_, None) => ShimPackages::installed(installed),
        };
        let mut packages = self.choose(preferred, stand_ins, listener)?;
        packages.retain(|package| package.name != sdk::PACKAGE);
        packages.sort_by(|one, other| one.name.cmp(&other.name));
        if let Upgrade::Only(names) = &self.request.upgrade {
            let absent =
                names.iter().find(|name| packages.iter().all(|one| one.name != normalize(name)));
            if let Some(name) = absent {
                let text = format!("{name} is not required by this project");
                return Err(Error::Requirement { text });
            }
        }
        self.add_hashes(&mut packages, lock)?;
        Ok(packages)
    }

    /// Preferred names and versions.
    fn preferred(
        &self,
        lock: Option<&Lock>,
        installed: &[helper::Package],
    ) -> Vec<(String, String)> {
        let mut preferred: Vec<(String, String)> = match (&self.request.upgrade, lock) {
            (Upgrade::All, _) => Vec::new(),
            (_, Some(lock)) => {
                let known =
                    lock.packages.iter().filter(|package| package.source == PackageSource::Index);
                known.filter_map(|one| Some((one.name.clone(), one.version.clone()?))).collect()
            }
            (_, None) => {
                let own =
                    |one: &&helper::Package| one.origin.is_none() && !one.version.contains('+');
                let known = installed.iter().filter(own);
                known.map(|one| (normalize(&one.name), one.version.clone())).collect()
            }
        };
        if let Upgrade::Only(names) = &self.request.upgrade {
            let names: Vec<String> = names.iter().map(|name| normalize(name)).collect();
            preferred.retain(|(name, _)| !names.contains(name));
        }
        preferred
    }

    /// Lines that name packages.
    pub(crate) fn requirement_lines(&self) -> Vec<String> {
        let mut lines = requirements::named_in(&self.request.files);
        lines.extend_from_slice(&self.request.requirements);
        lines
    }

    fn choose(
        &self,
        mut preferred: Vec<(String, String)>,
        mut stand_ins: ShimPackages,
        listener: InstallListener<'_>,
    ) -> Result<Vec<LockedPackage>, Error> {
        let texts: Vec<String> = requirements::with_included(&self.request.files)
            .into_iter()
            .map(|(_, text)| text)
            .chain(self.request.requirements.iter().cloned())
            .collect();
        let paths = Paths { project: &self.request.directory, requirements: &texts };
        if let Some(uv) = &self.uv {
            match self.ask_uv(uv, &preferred, &stand_ins, &paths, listener) {
                Ok(packages) => return Ok(packages),
                Err(error) => {
                    listener(InstallEvent::Line(format!("uv: {error}; falling back to pip")));
                }
            }
        }
        let (mut generations, mut attempts) = (0, 0);
        loop {
            attempts += 1;
            let (said, error) = match self.ask_pip(&preferred, &stand_ins, &paths, listener) {
                Err(Error::Conflict { said }) => (said.clone(), Error::Conflict { said }),
                Err(Error::NotFound { said }) => (said.clone(), Error::NotFound { said }),
                other => return other,
            };
            // Twice: one conflict may hide another.
            if generations < 2
                && let Some(other) = stand_ins.for_conflict(self.environment, &said)?
            {
                generations += 1;
                stand_ins = other;
                listener(InstallEvent::Step(
                    "these modules need an older generation: retrying".into(),
                ));
                continue;
            }
            if preferred.is_empty() {
                return Err(error);
            }
            let before = preferred.len();
            let named = pip::constraints_in_conflict(&said);
            preferred.retain(|(name, _)| !named.contains(name));
            if preferred.len() == before || attempts > ATTEMPTS_MAX {
                preferred.clear();
            }
        }
    }

    fn ask_uv(
        &self,
        uv: &Uv<'_>,
        preferred: &[(String, String)],
        stand_ins: &ShimPackages,
        paths: &Paths<'_>,
        listener: InstallListener<'_>,
    ) -> Result<Vec<LockedPackage>, Error> {
        let request = self.request;
        let constraints = self.constraints(stand_ins, &[])?;
        let mut lines = request.requirements.clone();
        lines.extend(request.editable.iter().map(|dir| format!("--editable {}", dir.display())));
        let mut files = request.files.clone();
        files.push(pip::write_lines(&self.scratch.join("wanted.txt"), &lines)?);
        let text =
            uv.compile(&files, &constraints, &self.sources, preferred, self.scratch, listener)?;
        report::of_uv(&text, self.scratch, paths)
            .ok_or_else(|| Error::Helper("uv's output has an unknown format".into()))
    }

    fn ask_pip(
        &self,
        preferred: &[(String, String)],
        stand_ins: &ShimPackages,
        paths: &Paths<'_>,
        listener: InstallListener<'_>,
    ) -> Result<Vec<LockedPackage>, Error> {
        let constraints = self.constraints(stand_ins, preferred)?;
        let mut arguments = self.sources.clone();
        arguments.extend(["--constraint".into(), constraints.display().to_string()]);
        for file in &self.request.files {
            arguments.extend(["--requirement".into(), file.display().to_string()]);
        }
        arguments.extend(self.request.requirements.iter().cloned());
        if let Some(dir) = &self.request.editable {
            arguments.extend(["--editable".into(), dir.display().to_string()]);
        }
        let text = self.pip.plan(&arguments, self.scratch, listener)?;
        report::of_pip(&text, paths)
            .ok_or_else(|| Error::Helper("pip's report has an unknown format".into()))
    }

    /// Writes the shims, and constraints for them and for preferred versions.
    fn constraints(
        &self,
        stand_ins: &ShimPackages,
        preferred: &[(String, String)],
    ) -> Result<PathBuf, Error> {
        stand_ins.write(self.environment, &self.wheels)?;
        let mut lines = stand_ins.constraints();
        lines.extend(preferred.iter().map(|(name, version)| format!("{name}=={version}")));
        pip::write_lines(&self.scratch.join("constraints.txt"), &lines)
    }

    /// Completes hashes: kept versions keep their locked hashes; for others, all files of the
    /// indexes are allowed, so that other platforms and Python versions can use the same lock file.
    fn add_hashes(&self, packages: &mut [LockedPackage], lock: Option<&Lock>) -> Result<(), Error> {
        if self.request.locking.is_none() {
            return Ok(());
        }
        let updated = |name: &str| match &self.request.upgrade {
            Upgrade::Nothing => false,
            Upgrade::All => true,
            Upgrade::Only(names) => names.iter().any(|one| normalize(one) == name),
        };
        let mut new = Vec::new();
        for package in packages.iter_mut() {
            let known = lock
                .and_then(|lock| lock.package(&package.name))
                .filter(|known| known.version == package.version && known.source == package.source);
            match known.filter(|_| !updated(&package.name)) {
                Some(known) => package.hashes.clone_from(&known.hashes),
                None if package.source == PackageSource::Index => {
                    new.extend(package.version.clone().map(|one| (package.name.clone(), one)));
                }
                None => {}
            }
        }
        if new.is_empty() {
            return Ok(());
        }
        let mut sources = self.sources.clone();
        sources.extend(requirements::source_options(&self.request.files));
        let (environment, directory) = (self.environment, &self.request.directory);
        let found = helper::artefacts(environment, directory, &self.request.pip, &sources, &new)?;
        for package in packages.iter_mut() {
            package.hashes.extend(found.get(&package.name).into_iter().flatten().cloned());
        }
        Ok(())
    }
}

fn versions_in(lock: &Lock) -> impl Iterator<Item = (&str, &str)> {
    lock.packages.iter().filter_map(|one| Some((one.name.as_str(), one.version.as_deref()?)))
}
