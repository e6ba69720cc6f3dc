//! Python environments: finds interpreters, creates virtualenvs, and installs packages with pip or
//! uv, but never the packages that Orrery replaces.
//!
//! Start from [`install()`], which brings the virtualenv of a project into the requested state, and
//! from [`VirtualEnvs`], the virtualenvs that handlers share. For the first, `resolve` chooses
//! versions, [`lock`] stores them in a file of the project, and `install_locked` installs them;
//! progress goes to a listener, and the result is an [`InstallOutcome`]. [`interpreters`] finds
//! Python for both, `create` makes a virtualenv, `process` runs installers, and `helper.py` runs in
//! the interpreter of a virtualenv. The crate knows nothing of models, hosts, stores or terminals.
//! Tests: at the end of each file, and `tests/it`.

#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests and measurements run in real time")
)]

mod atomic_replace;
pub mod changes;
mod create;
mod error;
mod helper;
mod inputs;
mod install;
mod install_locked;
mod install_record;
mod installations;
pub mod interpreters;
pub mod last_use;
pub mod lock;
mod module_requirements;
pub mod module_version;
pub mod package_names;
mod paths;
mod pip;
pub mod pip_settings;
mod process;
mod report;
mod request;
pub mod requirements;
mod resolve;
mod sdk;
mod shim_packages;
mod uv;
mod virtualenvs;

pub use changes::PackageChange;
pub use error::Error;
pub use helper::Package;
pub use inputs::inputs_of;
pub use install::{install, refresh_record};
pub use installations::installations;
pub use module_requirements::external_requirements;
pub use paths::{environment_path, is_environment};
pub use pip::{InstallEvent, InstallListener};
pub use request::{InstallOutcome, InstallRequest, LockMode, Locking, Upgrade};
pub use sdk::write_wheel as write_sdk_wheel;
pub use virtualenvs::{
    InstalledModule, VirtualEnvError, VirtualEnvSpec, VirtualEnvs, installed_module,
};
