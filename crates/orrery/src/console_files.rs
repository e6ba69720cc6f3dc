//! Files of the web console, from `console/dist`. None in a binary that was built without it.

use orrery_server::ConsoleFile;

pub(crate) const FILES: &[ConsoleFile] = include!(concat!(env!("OUT_DIR"), "/console_files.rs"));
