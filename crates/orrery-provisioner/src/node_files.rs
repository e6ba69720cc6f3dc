//! Files and directories of this program on nodes.

use orrery_handlers::target::CommandLine;
use orrery_handlers::{CancelToken, Target};

use crate::plugin::PluginError;

/// Creates directories with their parents, in one step.
pub(crate) fn make_directories(
    target: &dyn Target,
    paths: &[&str],
    stop: &CancelToken,
) -> Result<(), PluginError> {
    let words = ["mkdir", "-p", "-m", "755", "--"].iter().chain(paths).copied();
    let output = target.run(&CommandLine::new(words), stop)?;
    if output.success() {
        return Ok(());
    }
    let text = format!("cannot create {} on the machine", paths.join(", "));
    Err(PluginError::new(format!("{text}: {}", output.error_excerpt())))
}
