//! Hosts of handlers and of targets: processes that run Python handlers, or act for native ones.
//!
//! Start from [`HandlerHosts`] and [`HostedHandler`], the handlers of modules in Python, and from
//! [`target_host::SandboxedTarget`], a target in a process of its own. The crate knows nothing of
//! models, stores or schedulers. Tests: `tests/it`.

mod handler_host;
pub mod target_host;

pub use handler_host::{
    ContentError, ContentSource, Discovered, FileContents, HandlerCallbacks, HandlerHosts,
    HandlerManifest, HandlerParameter, HostLimits, HostedHandler, HostsError, NoParameters,
    Parameters, Reply, SetCode, remove_old_files,
};
