//! Command that starts a host of the SDK.

use std::ffi::OsString;
use std::path::Path;

use crate::process::HostCommand;
use crate::sdk::{self, SdkError};

/// Starts the SDK in the directory of the first argument. The directory precedes all installed
/// packages; a variable would do the same, but programs that handlers start would inherit it. The
/// directory belongs to this program, so Python may write its caches there, whatever the user's
/// settings.
const START: &str = "import sys; sys.path.insert(0, sys.argv.pop(1)); import runpy; \
                     sys.dont_write_bytecode = False; \
                     runpy.run_module('orrery_sdk', run_name='__main__', alter_sys=True)";

/// Returns the command that starts a host of the SDK with an interpreter that is known to be new
/// enough.
///
/// # Errors
/// Fails if the SDK cannot be unpacked.
pub fn host_command(program: &Path, name: &str) -> Result<HostCommand, SdkError> {
    Ok(host_command_with_sdk(program, name, &sdk::directory()?))
}

/// Returns the command with the SDK in a directory.
pub fn host_command_with_sdk(program: &Path, name: &str, sdk: &Path) -> HostCommand {
    let sdk = OsString::from(sdk);
    // -P: ignores modules in the working directory. -u: unbuffered, so that output survives the
    // death of the process.
    let mut arguments = ["-P", "-u", "-c", START].map(OsString::from).to_vec();
    arguments.push(sdk);
    HostCommand {
        name: name.to_owned(),
        program: program.to_owned(),
        arguments,
        // Makes output reproducible where code iterates over a set.
        environment: vec![("PYTHONHASHSEED".into(), "0".into())],
        hidden_variables: Vec::new(),
        directory: None,
        memory_max: None,
        confinement: None,
    }
}
