//! The options of `orrery modules` and `orrery sdk`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use crate::cli::ProjectOptions;
use crate::projects::MAIN_FILE;

/// Install, list and make modules
///
/// Without a command, the modules that the project uses are listed.
#[derive(Debug, Args)]
#[command(visible_alias = "module", args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Examples:
  orrery modules                      the modules that the project uses
  orrery modules install              make and fill the project's Python environment
  orrery modules add fs 'yum>=2.1'    require modules, and install them
  orrery modules update               install newer versions
  orrery module new my_module         write a module of your own
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

/// List the modules that a project uses
#[derive(Debug, Args)]
pub(crate) struct ListModules {
    #[command(flatten)]
    pub(crate) project: ProjectOptions,
    /// Write the list as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Make the project's Python environment, and install what the project asks for
///
/// Asked for is what stands in requirements.txt and under `requires` in project.yml, and the same
/// (requirements.txt, module.yml) for modules of the module path. In a directory with a module, it is
/// that module itself, what it needs, requirements.dev.txt, and pytest.
///
/// Modules that are imported and are nowhere are cloned from the git repositories that `repo` in
/// project.yml names, first.
///
/// Exact versions, sources and hashes are kept in orrery.lock, beside project.yml: commit it, and every machine gets the same.
/// Without that file, versions are chosen and it is written; with it, just these versions are installed, and files with other
/// hashes are refused. If the project asks for something else than before, what is locked stays if it can.
///
/// The environment is the active one, else .venv or .env in the project, else a new .venv. uv installs if it is in the search
/// path (ORRERY_UV names another one, ORRERY_UV=0 forbids it), or else pip, both as pip is configured. Nothing is done if
/// everything is there.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery modules install
  orrery modules install --locked                    in tests and builds: fail if orrery.lock is out of date
  orrery modules install --python 3.12 --rebuild

Exit codes: 0 done, 1 error.")]
pub(crate) struct InstallModules {
    #[command(flatten)]
    pub(crate) options: InstallOptions,
    /// Make the environment anew
    #[arg(long)]
    pub(crate) rebuild: bool,
    /// Fail if orrery.lock is missing or out of date, instead of writing it
    #[arg(long, conflicts_with = "frozen")]
    pub(crate) locked: bool,
    /// Install what orrery.lock says, without asking whether it is up to date
    #[arg(long)]
    pub(crate) frozen: bool,
}

/// Require modules, and install them
///
/// A module is a name of a published one, a directory, or the address of a git repository. The requirement is
/// written to requirements.txt, and what was installed to orrery.lock, when the installation has succeeded. A directory is used from where it lies:
/// changes to it count at once.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery modules add fs                                    a published module
  orrery modules add 'fs>=1.2' exec
  orrery modules add ../mods/shop                          a directory
  orrery modules add git+https://git.example.org/shop.git  a repository; @v1.2 behind it names a tag
  orrery modules add git@git.example.org:team/shop.git

Exit codes: 0 done, 1 error.")]
pub(crate) struct AddModules {
    /// Names of modules, with versions if they matter (fs, fs~=1.2), directories, and git addresses
    #[arg(required = true, value_name = "MODULE")]
    pub(crate) modules: Vec<String>,
    #[command(flatten)]
    pub(crate) options: InstallOptions,
}

/// Install the newest versions that the requirements allow, and lock them
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery modules update          everything
  orrery modules update fs       one module, and what it needs
  orrery modules update pyyaml   one other package of orrery.lock

Exit codes: 0 done, 1 error.")]
pub(crate) struct UpdateModules {
    /// Names of modules, and of other packages that are locked [default: everything that is installed]
    #[arg(value_name = "NAME")]
    pub(crate) modules: Vec<String>,
    #[command(flatten)]
    pub(crate) options: InstallOptions,
}

#[derive(Debug, Args)]
pub(crate) struct InstallOptions {
    /// The project's directory [default: the nearest with a project.yml or a module, from here upwards]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) project: Option<PathBuf>,
    /// The file whose imports tell which modules of the module path are used
    #[arg(long, value_name = "FILE", default_value = MAIN_FILE, value_hint = ValueHint::FilePath)]
    pub(crate) main: String,
    /// The Python environment [default: .venv or .env in the project]
    #[arg(long, value_name = "DIR", env = "VIRTUAL_ENV", hide_env_values = true, value_hint = ValueHint::DirPath)]
    pub(crate) python_env: Option<PathBuf>,
    /// The Python of a new environment: a version, a name or a path [default: 3.13, 3.12, 3.11, whichever
    /// is found first]
    #[arg(long, value_name = "PYTHON")]
    pub(crate) python: Option<String>,
    /// Write what was done as JSON, and nothing else
    #[arg(long)]
    pub(crate) json: bool,
}

/// Write a new module: an entity, its resource and handler, and a test
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  orrery module new my_module && cd my_module && orrery modules install && .venv/bin/pytest")]
pub(crate) struct NewModule {
    /// The module's name: lowercase letters, digits and _
    pub(crate) name: String,
    /// Directory of the new module [default: one of its name]
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) directory: Option<PathBuf>,
}

/// The Python SDK that modules import
///
/// Compiling, deploying and `orrery modules install` bring it themselves; these commands are for other
/// tools and environments.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pip install \"$(orrery sdk wheel)\"              into an environment of your own
  PYTHONPATH=\"$(orrery sdk path)\" mypy plugins   without installing it")]
pub(crate) struct Sdk {
    #[command(subcommand)]
    pub(crate) action: SdkAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SdkAction {
    /// Print the directory that holds its packages
    Path,
    /// Write it as a wheel, and print the path
    Wheel {
        /// Where the wheel is to be
        #[arg(default_value = "dist", value_hint = ValueHint::DirPath)]
        directory: PathBuf,
    },
}
