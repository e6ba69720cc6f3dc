//! Machines and services of clusters: handlers of the `cluster::*` resources, the tasks that they
//! make, and the plug-ins that carry tasks out.
//!
//! A handler reads the attributes that `orrery_cluster::render` writes, builds a self-contained
//! [`task::Task`], and gives it to a [`dispatch::Dispatcher`]. A [`runner::PluginRunner`] carries it out
//! with a provider ([`plugin::MachineProvider`]) or an automator ([`plugin::ServiceAutomator`]), in
//! this process or on a worker. This crate knows nothing of stores, servers or engines. Start with
//! [`handlers::register`], [`task`] and [`plugin`]. Tests are at the end of the files; those with
//! real processes, machines and SSH servers are in `tests/it`.

#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests and measurements run in real time")
)]

pub mod automator;
pub mod directory;
pub mod dispatch;
pub mod facts;
pub mod handlers;
pub mod installation;
pub mod journal_check;
pub mod machine_name;
mod node_files;
pub mod node_state;
pub mod plugin;
pub mod plugins;
pub mod provider;
mod python_plugin;
pub mod rebalance;
pub mod redacted;
pub mod resource_store;
pub mod runner;
mod s3_signature;
pub mod s3_store;
pub mod sim_journal;
pub mod slots;
pub mod ssh_access;
pub mod task;
pub mod worker;
