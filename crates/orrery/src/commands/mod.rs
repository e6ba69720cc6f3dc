//! The commands, one module each.

mod compile;
mod completion;
mod fmt;
mod modules;
mod new;
mod parse;
mod report;

use crate::Exit;
use crate::cli::Command;

pub(crate) fn run(command: Command) -> Exit {
    match command {
        Command::New(options) => new::run(&options),
        Command::Compile(options) => compile::run(&options),
        Command::Parse(options) => parse::run(&options),
        Command::Fmt(options) => fmt::run(&options),
        Command::Modules(options) => modules::run(&options),
        Command::Completion(options) => completion::run(&options),
    }
}
