//! Arguments of `orrery export`.

use clap::Args;
use clap::builder::{StringValueParser, TypedValueParser};

use super::ProjectOptions;
use super::deploy::{LimitOptions, Takeover};
use crate::remote::{EnvironmentChoice, ServerChoice};

/// Compile here and upload the version to a server
///
/// Reads facts and parameters of the environment from the server, and uploads the file contents and
/// handler code that the server lacks. Nothing is stored if the model has an error.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery export --server https://orrery.example.org --environment shop/live
  orrery export -d --message 'new load balancer'     release it regardless of auto_deploy
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
    /// Replace only the resource sets of the model; all others are unchanged
    #[arg(long)]
    pub(crate) partial: bool,
    /// Remove a resource set; requires --partial, repeatable
    #[arg(long, value_name = "SET", requires = "partial")]
    pub(crate) delete_resource_set: Vec<String>,
    /// With --partial, also replace the handler code, which the rest of the environment uses too
    #[arg(long, requires = "partial")]
    pub(crate) allow_code_update: bool,
    /// Release the version [default: the environment's auto_deploy setting]
    #[arg(short = 'd', long)]
    pub(crate) release: bool,
    /// Do not release the version
    #[arg(long, conflicts_with = "release")]
    pub(crate) no_release: bool,
    /// Message of the version
    #[arg(short, long, value_name = "TEXT", value_parser = message_parser())]
    pub(crate) message: Option<String>,
    /// Run an exporter of a module after everything else; repeatable
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

/// Limit of a version message, which is shown in lists of versions.
const MESSAGE_MAX: usize = 1000;

/// Parser of version messages, which enforces [`MESSAGE_MAX`].
pub(crate) fn message_parser() -> impl TypedValueParser<Value = String> {
    StringValueParser::new().try_map(|text| {
        let length = text.chars().count();
        if length > MESSAGE_MAX {
            return Err(format!("{length} characters, at most {MESSAGE_MAX} allowed"));
        }
        Ok(text)
    })
}
