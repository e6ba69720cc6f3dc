//! The options of commands about the cluster documents of a server: one group for each kind.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use crate::cli_cluster::ChangeOptions;
use crate::cli_things::{AskServer, Confirmation};

const EXIT_CODES: &str =
    "Exit codes: 0 done, 1 error, 2 changes are pending (apply with --dry-run).";

/// For commands about documents.
#[derive(Debug, Args)]
pub(crate) struct AskDocuments {
    #[command(flatten)]
    pub(crate) ask: AskServer,
    /// Documents of this project, instead of those of the installation
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) project: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DocumentAction {
    /// List them
    List,
    /// Show one as JSON
    Show {
        name: String,
        /// The number of a revision [default: the newest one]
        #[arg(long, value_name = "NUMBER")]
        revision: Option<i64>,
    },
    /// Store what files say, after showing what would change
    Apply {
        /// A JSON or YAML file, or a directory of them; can be given several times
        #[arg(short, long = "file", value_name = "PATH", required = true)]
        #[arg(value_hint = ValueHint::AnyPath)]
        files: Vec<PathBuf>,
        #[command(flatten)]
        change: ChangeOptions,
    },
    /// Delete one that no other document refers to; its history stays
    Delete {
        name: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
    /// List all revisions of one
    History { name: String },
}

macro_rules! document_group {
    ($(#[$text:meta])* $group:ident, $command:literal, $file:literal) => {
        $(#[$text])*
        #[derive(Debug, Args)]
        #[command(after_help = format!(concat!("\
Examples:
  orrery ", $command, " list
  orrery ", $command, " apply -f ", $file, ".yaml
  orrery ", $command, " show ", $file, " --revision 2
  orrery ", $command, " history ", $file, "

{}"), EXIT_CODES))]
        pub(crate) struct $group {
            #[command(flatten)]
            pub(crate) ask: AskDocuments,
            #[command(subcommand)]
            pub(crate) action: DocumentAction,
        }
    };
}

document_group!(
    /// Manage the providers of machines for clusters
    ProviderGroup, "provider", "local"
);
document_group!(
    /// Manage hardware types for clusters
    HardwareGroup, "hardware", "small"
);
document_group!(
    /// Manage image types for clusters
    ImageGroup, "image", "debian12"
);
document_group!(
    /// Manage the services that clusters are made of
    ServiceGroup, "service", "nginx"
);
document_group!(
    /// Manage the tenants of a server, and their quotas
    TenantGroup, "tenant", "shop"
);

/// Manage cluster templates
///
/// What several templates share is a partial template: `--partial` is about those.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  orrery template list
  orrery template apply -f webstack.yaml
  orrery template show webstack --revision 2
  orrery template --partial apply -f base.yaml
  orrery template history webstack

{EXIT_CODES}"))]
pub(crate) struct TemplateGroup {
    #[command(flatten)]
    pub(crate) ask: AskDocuments,
    /// Partial templates, instead of templates
    #[arg(long, global = true)]
    pub(crate) partial: bool,
    #[command(subcommand)]
    pub(crate) action: DocumentAction,
}
