//! Arguments of commands about the cluster documents of a server: one group for each kind.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::cluster::ChangeOptions;
use super::common::{Confirmation, ServerArgs};

const EXIT_CODES: &str =
    "Exit codes: 0 done, 1 error, 2 changes are pending (apply with --dry-run).";

/// Arguments of commands about documents.
#[derive(Debug, Args)]
pub(crate) struct DocumentArgs {
    #[command(flatten)]
    pub(crate) args: ServerArgs,
    /// Documents of this project instead of the installation
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) project: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DocumentAction {
    /// List documents
    List,
    /// Show a document as JSON
    Show {
        name: String,
        /// Revision [default: the newest]
        #[arg(long, value_name = "NUMBER")]
        revision: Option<i64>,
    },
    /// Store documents from files, after showing the changes
    Apply {
        /// JSON or YAML file, or a directory of them; repeatable
        #[arg(short, long = "file", value_name = "PATH", required = true)]
        #[arg(value_hint = ValueHint::AnyPath)]
        files: Vec<PathBuf>,
        #[command(flatten)]
        change: ChangeOptions,
    },
    /// Delete a document that no other document refers to; its history is kept
    Delete {
        name: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
    /// List the revisions of a document
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
            pub(crate) args: DocumentArgs,
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
    /// Manage the services of clusters
    ServiceGroup, "service", "nginx"
);
document_group!(
    /// Manage the tenants of a server and their quotas
    TenantGroup, "tenant", "shop"
);

/// Manage cluster templates
///
/// `--partial` selects partial templates: parts that several templates include.
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
    pub(crate) args: DocumentArgs,
    /// Partial templates instead of templates
    #[arg(long, global = true)]
    pub(crate) partial: bool,
    #[command(subcommand)]
    pub(crate) action: DocumentAction,
}
