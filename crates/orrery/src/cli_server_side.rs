//! What the command line understands of working with a server.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use orrery_api::client::{Choice, Contexts, ContextsError, Target};
use orrery_model::SecretText;

use crate::cli::ProjectOptions;
use crate::cli_deploy::LimitOptions;

const SERVER: &str = "Server";

/// Which server is meant, and as whom.
#[derive(Debug, Args)]
pub(crate) struct ConnectionOptions {
    /// The server's address [default: ORRERY_SERVER, or that of the context]
    #[arg(long, value_name = "URL", help_heading = SERVER, value_hint = ValueHint::Url)]
    pub(crate) server: Option<String>,
    /// What to show instead of a login [default: ORRERY_TOKEN, or that of the context]
    #[arg(long, value_name = "TOKEN", help_heading = SERVER, value_parser = secret)]
    pub(crate) token: Option<SecretText>,
    /// Certificates to trust instead of the system's, as a PEM file [default: ORRERY_CA_FILE, or that of the context]
    #[arg(long, value_name = "FILE", help_heading = SERVER, value_hint = ValueHint::FilePath)]
    pub(crate) ca_file: Option<PathBuf>,
    /// A server that you have logged in to, by its name [default: ORRERY_CONTEXT, or the last one]
    #[arg(long, value_name = "NAME", help_heading = SERVER)]
    pub(crate) context: Option<String>,
}

/// The environment of a server that is meant.
#[derive(Debug, Args)]
pub(crate) struct EnvironmentOption {
    /// The environment, by its name, as PROJECT/NAME, or by its id [default: ORRERY_ENVIRONMENT, or that of the context]
    #[arg(short, long, value_name = "NAME", help_heading = SERVER)]
    pub(crate) environment: Option<String>,
}

fn secret(text: &str) -> Result<SecretText, std::convert::Infallible> {
    Ok(SecretText::new(text))
}

impl ConnectionOptions {
    /// The server that is meant.
    pub(crate) fn target(&self, environment: Option<&str>) -> Result<Target, ContextsError> {
        let variable = |name: &str| std::env::var(name).ok();
        let contexts = match Contexts::path(&variable) {
            Ok(path) => Contexts::load(&path)?,
            // Whoever has no home says everything themselves.
            Err(_) => Contexts::default(),
        };
        let choice = Choice {
            context: self.context.clone(),
            server: self.server.clone(),
            token: self.token.clone(),
            environment: environment.map(str::to_owned),
            ca_file: self.ca_file.clone(),
        };
        choice.resolve(&variable, &contexts)
    }
}

/// Compile here, and push the version to a server
///
/// Facts and parameters of the environment are asked from the server; contents of files and the code of handlers that the
/// server does not have are sent first. Nothing is stored if the model has an error.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery export --server https://orrery.example.org --environment shop/live
  orrery export -d --message 'new load balancer'     release it, whatever the environment's settings say
  orrery export --partial --delete-resource-set tenant-7
  orrery export --json | jq .version.number

Exit codes: 0 stored, 1 error.")]
pub(crate) struct Export {
    #[command(flatten)]
    pub(crate) project: ProjectOptions,
    #[command(flatten)]
    pub(crate) environment: EnvironmentOption,
    #[command(flatten)]
    pub(crate) connection: ConnectionOptions,
    /// Replace only the resource sets that the model has; everything else stays as it is
    #[arg(long)]
    pub(crate) partial: bool,
    /// Remove a resource set; with --partial, can be given several times
    #[arg(long, value_name = "SET", requires = "partial")]
    pub(crate) delete_resource_set: Vec<String>,
    /// With --partial, also replace the handlers' code, which the rest of the environment uses too
    #[arg(long, requires = "partial")]
    pub(crate) allow_code_update: bool,
    /// Release the version at once [default: as the environment's auto_deploy says]
    #[arg(short = 'd', long)]
    pub(crate) release: bool,
    /// Do not release the version
    #[arg(long, conflicts_with = "release")]
    pub(crate) no_release: bool,
    /// What the version is about, for people
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) message: Option<String>,
    /// Run an exporter that a module offers, after everything else; can be given several times
    #[arg(long, value_name = "NAME")]
    pub(crate) exporter: Vec<String>,
    /// Write the result as JSON to standard output
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) limits: LimitOptions,
}
