//! Arguments of `orrery modules` and `orrery sdk`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use orrery_project::MAIN_FILE;

use super::ProjectOptions;

/// Install, list and create modules
///
/// Without a command, lists the modules of the project.
#[derive(Debug, Args)]
#[command(visible_alias = "module", args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Examples:
  orrery modules                      the modules that the project uses
  orrery modules install              create the project's virtualenv and install into it
  orrery modules add fs 'yum>=2.1'    require modules and install them
  orrery modules update               install newer versions
  orrery modules new my_module        create a module
  orrery modules --json | jq -r '.[].name'")]
pub(crate) struct Modules {
    #[command(flatten)]
    pub(crate) list: ListModules,
    #[command(subcommand)]
    pub(crate) action: Option<ModulesAction>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ModulesAction {
    List(ListModules),
    Install(InstallModules),
    Add(AddModules),
    Update(UpdateModules),
    New(NewModule),
}

/// List the modules of a project
#[derive(Debug, Args)]
pub(crate) struct ListModules {
    #[command(flatten)]
    pub(crate) project: ProjectOptions,
    /// Write the list as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Create the project's virtualenv and install the project's requirements
///
/// Requirements are read from requirements.txt and `requires` in project.yml, and from
/// requirements.txt and module.yml of modules in the module path. In a module directory: the module
/// itself, its requirements, requirements.dev.txt, and pytest.
///
/// Imported modules that are not found are first cloned from the git repositories that `repo` in
/// project.yml names.
///
/// Exact versions, sources and hashes are stored in orrery.lock beside project.yml: commit it, and
/// every machine installs the same. Without that file, versions are resolved and it is written;
/// with it, exactly these versions are installed, and files with other hashes are rejected. If the
/// requirements changed, locked versions are kept where possible.
///
/// Uses the active virtualenv, else .venv or .env in the project, else a new .venv. Installs with
/// uv if it is in the search path (ORRERY_UV names another program, ORRERY_UV=0 disables it),
/// otherwise with pip, both with pip's configuration. Does nothing if everything is installed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery modules install
  orrery modules install --locked                    for CI: fail if orrery.lock is out of date
  orrery modules install --python 3.12 --rebuild

Exit codes: 0 done, 1 error.")]
pub(crate) struct InstallModules {
    #[command(flatten)]
    pub(crate) options: InstallOptions,
    /// Recreate the virtualenv
    #[arg(long)]
    pub(crate) rebuild: bool,
    /// Fail if orrery.lock is missing or out of date, instead of writing it
    #[arg(long, conflicts_with = "frozen")]
    pub(crate) locked: bool,
    /// Install from orrery.lock without checking that it is up to date
    #[arg(long)]
    pub(crate) frozen: bool,
}

/// Require modules, and install them
///
/// A module is the name of a published module, a directory, or the URL of a git repository. After a
/// successful installation, the requirement is added to requirements.txt and the installed versions
/// to orrery.lock. A directory is used in place: changes take effect immediately.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery modules add fs                                    a published module
  orrery modules add 'fs>=1.2' exec
  orrery modules add ../mods/shop                          a directory
  orrery modules add git+https://git.example.org/shop.git  a repository; append @v1.2 for a tag
  orrery modules add git@git.example.org:team/shop.git

Exit codes: 0 done, 1 error.")]
pub(crate) struct AddModules {
    /// Names of modules, optionally with versions (fs, fs~=1.2), directories, or git URLs
    #[arg(required = true, value_name = "MODULE")]
    pub(crate) modules: Vec<String>,
    #[command(flatten)]
    pub(crate) options: InstallOptions,
}

/// Update to the newest versions that the requirements allow, and lock them
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery modules update          everything
  orrery modules update fs       one module and its requirements
  orrery modules update pyyaml   another locked package

Exit codes: 0 done, 1 error.")]
pub(crate) struct UpdateModules {
    /// Names of modules or other locked packages [default: all installed packages]
    #[arg(value_name = "NAME")]
    pub(crate) modules: Vec<String>,
    #[command(flatten)]
    pub(crate) options: InstallOptions,
}

#[derive(Debug, Args)]
pub(crate) struct InstallOptions {
    /// Project directory [default: the nearest parent with a project.yml or a module]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) project: Option<PathBuf>,
    /// Main file; its imports determine the used modules of the module path
    #[arg(long, value_name = "FILE", default_value = MAIN_FILE, value_hint = ValueHint::FilePath)]
    pub(crate) main: String,
    /// Virtualenv [default: .venv or .env in the project]
    #[arg(long, value_name = "DIR", env = "VIRTUAL_ENV", hide_env_values = true, value_hint = ValueHint::DirPath)]
    pub(crate) python_env: Option<PathBuf>,
    /// Python of a new virtualenv: a version, a name or a path [default: 3.13, 3.12 or 3.11, the
    /// first that is found]
    #[arg(long, value_name = "PYTHON")]
    pub(crate) python: Option<String>,
    /// Write only a JSON report to standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// Create a module: an entity, its resource and handler, and a test
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  orrery modules new my_module && cd my_module && orrery modules install && .venv/bin/pytest")]
pub(crate) struct NewModule {
    /// Name of the module: lowercase letters, digits and _
    pub(crate) name: String,
    /// Directory of the new module [default: its name]
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) directory: Option<PathBuf>,
}

/// Provide the Python SDK that modules import
///
/// Compiling, deploying and `orrery modules install` provide it automatically; these commands are
/// for other tools and virtualenvs.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pip install \"$(orrery sdk wheel)\"              into another virtualenv
  PYTHONPATH=\"$(orrery sdk path)\" mypy plugins   without installing it")]
pub(crate) struct Sdk {
    #[command(subcommand)]
    pub(crate) action: SdkAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SdkAction {
    /// Print the directory of its packages
    Path,
    /// Write it as a wheel and print the path
    Wheel {
        /// Directory of the wheel
        #[arg(default_value = "dist", value_hint = ValueHint::DirPath)]
        directory: PathBuf,
    },
}
