//! `orrery modules`: lists, installs and creates modules.

mod clones;
mod fetch_rules;
mod git;
mod install;
mod install_display;
mod list;
mod locking;
mod new;
mod repositories;
mod sources;
mod target;

pub(crate) use fetch_rules::Allowed;
pub(crate) use install::ServerInstallation;

use crate::Exit;
use crate::cli::modules::{Modules, ModulesAction};

pub(crate) fn run(options: Modules, verbose: bool) -> Exit {
    match options.action {
        None => list::run(&options.list),
        Some(ModulesAction::List(options)) => list::run(&options),
        Some(ModulesAction::Install(options)) => install::install(&options, verbose),
        Some(ModulesAction::Add(options)) => install::add(&options, verbose),
        Some(ModulesAction::Update(options)) => install::update(&options, verbose),
        Some(ModulesAction::New(options)) => new::run(&options),
    }
}
