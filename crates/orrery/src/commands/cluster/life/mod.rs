//! `orrery cluster`: clusters of a server, from their creation to their end.

mod change;
mod complete;
mod connect;
mod lookup;
mod overview;
mod progress;

use orrery_api::{ClusterOperationKind, ClusterOperationRequest};

pub(in crate::commands) use complete::complete_names;
pub(super) use lookup::project_for;

use super::solve::report_json_error;
use crate::Exit;
use crate::cli::cluster_life::ClusterLife;
use crate::error::CliError;

pub(super) fn run(action: &ClusterLife) -> Result<Exit, CliError> {
    report_json_error(action.json(), dispatch(action))
}

fn dispatch(action: &ClusterLife) -> Result<Exit, CliError> {
    use ClusterOperationKind as Kind;
    match action {
        ClusterLife::Create(options) => change::create(options),
        ClusterLife::List(options) => overview::list(options),
        ClusterLife::Show(options) => overview::show(&options.of),
        ClusterLife::Plan(options) => change::plan(options),
        ClusterLife::Watch(options) => progress::watch(options),
        ClusterLife::Grow(options) => change::resize(options, true),
        ClusterLife::Shrink(options) => change::resize(options, false),
        ClusterLife::AddService(options) => change::services(options, Kind::AddServices),
        ClusterLife::RemoveService(options) => change::services(options, Kind::RemoveServices),
        ClusterLife::Update(options) => change::update(options, Kind::Update),
        ClusterLife::Revert(options) => change::update(options, Kind::Revert),
        ClusterLife::Delete(options) => change::update(options, Kind::Delete),
        ClusterLife::Reconfigure(options) => change::reconfigure(options),
        ClusterLife::Start(options) => change::operate(options, Kind::Start),
        ClusterLife::Stop(options) => change::operate(options, Kind::Stop),
        ClusterLife::Restart(options) => {
            let request = ClusterOperationRequest {
                services: change::named(&options.services),
                ..change::with_restart(Kind::Restart, &options.restart)
            };
            change::request_operation(&options.of, &options.change, request)
        }
        ClusterLife::Replace(options) => {
            let request = ClusterOperationRequest {
                node: Some(options.node.clone()),
                ..change::with_restart(Kind::Replace, &options.restart)
            };
            change::request_operation(&options.of, &options.change, request)
        }
        ClusterLife::Renew(options) => overview::renew(options),
        ClusterLife::Pause(options) => progress::pause(&options.of),
        ClusterLife::Resume(options) => progress::resume(options),
        ClusterLife::Abort(options) => progress::abort(options),
        ClusterLife::Ssh(options) => connect::open(options),
        ClusterLife::Logs(options) => progress::logs(options),
    }
}
