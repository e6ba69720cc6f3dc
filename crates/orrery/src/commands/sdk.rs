//! `orrery sdk`: where the Python SDK lies.

use crate::cli_modules::{Sdk, SdkAction};
use crate::{Exit, environment, output, style};

pub(crate) fn run(options: &Sdk) -> Exit {
    match options.action {
        SdkAction::Path => {
            let Some(dir) = environment::sdk_directory() else {
                let text = "this build has no SDK inside";
                output::say(&format!("{}: {text}", style::error("error")));
                let help = "name the directory of one in the environment variable ORRERY_SDK";
                output::say(&format!("{}: {help}", style::help("help")));
                return Exit::Error;
            };
            if output::print(|out| writeln!(out, "{}", dir.display())) {
                Exit::Done
            } else {
                Exit::Error
            }
        }
    }
}
