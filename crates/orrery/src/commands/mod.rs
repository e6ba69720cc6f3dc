//! Commands, one module each.

mod agent;
mod cluster;
pub(crate) mod compile;
mod compile_job;
mod compile_problems;
mod compile_serve;
mod completion;
mod deploy;
mod docs;
mod effects;
mod explain;
mod export;
mod fmt;
mod host_selection;
mod hosts;
pub(crate) mod inspect;
mod modules;
mod new;
mod parse;
mod ping;
mod project_output;
mod remote;
mod report;
mod sdk;
mod server;
mod server_ping;
mod settle;
mod version_upload;
mod workers;

use orrery_cluster::document::DocumentKind;

use crate::Exit;
use crate::cli::{Cli, Command};

pub(crate) fn run(cli: Cli) -> Exit {
    match cli.command {
        Command::New(options) => new::run(&options),
        Command::Compile(mut options) => match options.on_server.take() {
            Some(action) => remote::compile(action),
            None => compile::run(&options, cli.global.verbose > 0),
        },
        Command::Plan(options) => deploy::plan(&options),
        Command::Deploy(options) => deploy::deploy(options),
        Command::Repair(options) => deploy::repair(&options),
        Command::Watch(options) => deploy::watch(&options),
        Command::Docs(options) => docs::run(&options),
        Command::Destroy(options) => deploy::destroy(&options),
        Command::Parse(options) => parse::run(&options),
        Command::Fmt(options) => fmt::run(&options),
        Command::Explain(options) => explain::run(&options),
        Command::Modules(options) => modules::run(options, cli.global.verbose > 0),
        Command::Sdk(options) => sdk::run(&options),
        Command::Status(options) => inspect::status(&options),
        Command::Resources(options) => inspect::resources(&options),
        Command::Log(options) => inspect::log(&options, cli.global.verbose > 0),
        Command::Why(options) => inspect::why(&options),
        Command::Settle(options) => settle::run(&options),
        Command::Versions(options) => inspect::versions(&options),
        Command::Diff(options) => inspect::diff(&options),
        Command::Facts(options) => inspect::facts(&options),
        Command::Login(options) => remote::login(options),
        Command::Logout(options) => remote::logout(&options),
        Command::Context(options) => remote::context(options),
        Command::Project(options) => remote::project(options),
        Command::Environment(options) => remote::environment(options),
        Command::Version(options) => remote::version(options),
        Command::Hosts(options) => hosts::hosts(&options),
        Command::Ping(options) => ping::ping(&options),
        Command::Agent(options) => remote::agent(options),
        Command::Param(options) => remote::param(options),
        Command::Fact(options) => remote::fact(options),
        Command::Secret(options) => remote::secret(options),
        Command::Notification(options) => remote::notification(options),
        Command::Token(options) => remote::token(options),
        Command::User(options) => remote::user(options),
        Command::Audit(options) => remote::audit(options),
        Command::Export(options) => export::run(&options, cli.global.verbose > 0),
        Command::Cluster(options) => cluster::run(&options),
        Command::Worker(options) => workers::run(&options),
        Command::Provider(options) => {
            cluster::manage(options.args, DocumentKind::Provider, options.action)
        }
        Command::Hardware(options) => {
            cluster::manage(options.args, DocumentKind::HardwareType, options.action)
        }
        Command::Image(options) => {
            cluster::manage(options.args, DocumentKind::ImageType, options.action)
        }
        Command::Service(options) => {
            cluster::manage(options.args, DocumentKind::Service, options.action)
        }
        Command::Template(options) => {
            let kind = match options.partial {
                true => DocumentKind::PartialTemplate,
                false => DocumentKind::ClusterTemplate,
            };
            cluster::manage(options.args, kind, options.action)
        }
        Command::Tenant(options) => {
            cluster::manage(options.args, DocumentKind::Tenant, options.action)
        }
        Command::CompileJob => compile_job::run(),
        Command::Server(options) => server::run(*options),
        Command::Completion(options) => completion::run(&options),
        Command::CompleteNames(options) => cluster::complete_names(options.kind),
    }
}
