//! Arguments of `orrery notification`.

use clap::{Args, Subcommand};
use uuid::Uuid;

use super::common::{EXIT_CODES, EnvironmentArgs};

/// Show notifications of a server
#[derive(Debug, Args)]
#[command(after_help = format!("{EXIT_CODES}"))]
pub(crate) struct NotificationGroup {
    #[command(flatten)]
    pub(crate) args: EnvironmentArgs,
    #[command(subcommand)]
    pub(crate) action: NotificationAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NotificationAction {
    /// List notifications, newest first
    List {
        /// Include read and cleared notifications
        #[arg(long)]
        all: bool,
    },
    /// Mark notifications as read
    Read(NotificationIds),
    /// Clear notifications: mark them as read and hide them
    Clear(NotificationIds),
}

#[derive(Debug, Args)]
pub(crate) struct NotificationIds {
    #[arg(value_name = "ID", required_unless_present = "all")]
    pub(crate) ids: Vec<Uuid>,
    /// All listed notifications
    #[arg(long, conflicts_with = "ids")]
    pub(crate) all: bool,
}
