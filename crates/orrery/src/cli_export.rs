//! What the command line understands of pushing a project to a server.

use clap::Args;
use clap::builder::{StringValueParser, TypedValueParser};

use crate::cli::ProjectOptions;
use crate::cli_deploy::{LimitOptions, Takeover};
use crate::remote::{EnvironmentChoice, ServerChoice};

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
    pub(crate) environment: EnvironmentChoice,
    #[command(flatten)]
    pub(crate) server: ServerChoice,
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
    #[arg(short, long, value_name = "TEXT", value_parser = message_parser())]
    pub(crate) message: Option<String>,
    /// Run an exporter that a module offers, after everything else; can be given several times
    #[arg(long, value_name = "NAME")]
    pub(crate) exporter: Vec<String>,
    #[command(flatten)]
    pub(crate) takeover: Takeover,
    /// Write the result as JSON to standard output
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) limits: LimitOptions,
}

/// Longer messages tell nobody anything: they stand in lists of versions.
const MESSAGE_MAX: usize = 1000;

/// What a version is about, in not too many words.
pub(crate) fn message_parser() -> impl TypedValueParser<Value = String> {
    StringValueParser::new().try_map(|text| {
        let length = text.chars().count();
        if length > MESSAGE_MAX {
            return Err(format!("it has {length} characters; {MESSAGE_MAX} is the most"));
        }
        Ok(text)
    })
}
