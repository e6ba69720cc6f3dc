//! `orrery sdk`: the Python SDK, for other tools.

use crate::cli::modules::{Sdk, SdkAction};
use crate::{Exit, output, style};

use std::path::PathBuf;

use orrery_pyenv::Error;

/// Directory of the SDK's packages.
pub(super) fn sdk_directory() -> Result<PathBuf, Error> {
    orrery_host::sdk::directory().map_err(|error| Error::Sdk(error.to_string()))
}

pub(crate) fn run(options: &Sdk) -> Exit {
    let path = sdk_directory().and_then(|sdk| match &options.action {
        SdkAction::Path => Ok(sdk),
        SdkAction::Wheel { directory } => orrery_pyenv::write_sdk_wheel(&sdk, directory),
    });
    match path {
        Ok(path) if output::print(|out| writeln!(out, "{}", path.display())) => Exit::Done,
        Ok(_) => Exit::Error,
        Err(error) => {
            let text = style::sanitize(&error.to_string());
            output::print_status(&format!("{}: {text}", style::error("error")));
            if let Some(help) = error.help() {
                output::print_status(&format!("{}: {help}", style::help("help")));
            }
            Exit::Error
        }
    }
}
