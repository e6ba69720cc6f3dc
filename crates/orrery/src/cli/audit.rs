//! Arguments of `orrery audit`.

use clap::{Args, Subcommand};

use super::common::ServerArgs;

/// Show the audit log of a server
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orrery audit list --limit 20
  orrery audit list --actor ada --since 2026-11-16 --in-environment shop/live
  orrery audit verify                       record the printed head …
  orrery audit verify --entry 120 --hash …  … and compare with it later

Exit codes: 0 done, 1 error, 2 the log was tampered with (verify).")]
pub(crate) struct AuditGroup {
    #[command(flatten)]
    pub(crate) args: ServerArgs,
    #[command(subcommand)]
    pub(crate) action: AuditAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditAction {
    /// List entries, newest first
    List {
        /// Only entries of this actor: user:NAME, token:USER/NAME or anonymous; a bare name is an
        /// account
        #[arg(long, value_name = "ACTOR")]
        actor: Option<String>,
        /// Only entries of this environment
        #[arg(long, value_name = "NAME")]
        in_environment: Option<String>,
        /// Only this method and route, such as 'POST /api/v1/projects'
        #[arg(long, value_name = "ACTION")]
        action: Option<String>,
        /// Not before this time, such as 2026-11-16 or 2026-11-16T09:30:00Z
        #[arg(long, value_name = "TIME")]
        since: Option<String>,
        /// Before this time
        #[arg(long, value_name = "TIME")]
        until: Option<String>,
        /// Maximum number of entries
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: usize,
    },
    /// Check the log for tampering
    Verify {
        /// Number of an entry with a hash that was recorded earlier
        #[arg(long, value_name = "N", requires = "hash")]
        entry: Option<i64>,
        /// Hash of that entry
        #[arg(long, value_name = "HASH", requires = "entry", value_parser = sha256)]
        hash: Option<String>,
    },
}

/// Parses a SHA-256 hash. A malformed one would otherwise be reported as tampering.
fn sha256(text: &str) -> Result<String, String> {
    if text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(text.to_ascii_lowercase());
    }
    Err("expected 64 hexadecimal digits".to_owned())
}
