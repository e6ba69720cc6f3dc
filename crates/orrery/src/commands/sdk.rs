//! `orrery sdk`: the Python SDK, for other tools.

use std::path::{Path, PathBuf};

use crate::cli_modules::{Sdk, SdkAction};
use crate::{Exit, environment, output, style};

pub(crate) fn run(options: &Sdk) -> Exit {
    let Some(sdk) = environment::sdk_directory() else {
        let help = "name the directory of one in the environment variable ORRERY_SDK";
        return refuse("this build has no SDK inside", Some(help));
    };
    let path = match &options.action {
        SdkAction::Path => sdk,
        SdkAction::Wheel { directory } => match write_wheel(&sdk, directory) {
            Ok(path) => path,
            Err((text, help)) => return refuse(&text, help.as_deref()),
        },
    };
    if output::print(|out| writeln!(out, "{}", path.display())) { Exit::Done } else { Exit::Error }
}

fn write_wheel(sdk: &Path, directory: &Path) -> Result<PathBuf, (String, Option<String>)> {
    std::fs::create_dir_all(directory)
        .map_err(|error| (format!("could not make {}: {error}", directory.display()), None))?;
    environment::write_sdk_wheel(sdk, directory).map_err(|error| (error.to_string(), error.help()))
}

fn refuse(text: &str, help: Option<&str>) -> Exit {
    output::say(&format!("{}: {}", style::error("error"), style::harmless(text)));
    if let Some(help) = help {
        output::say(&format!("{}: {help}", style::help("help")));
    }
    Exit::Error
}
