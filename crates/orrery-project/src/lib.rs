//! A project as a library: finds it, compiles it and exports its resources.
//!
//! Start from [`FoundProject::find`] and [`compile()`], which takes one [`ProjectRequest`] and returns
//! a [`CompiledProject`]: resources, handler code, output of the model, and all warnings and errors
//! as values. [`collect_contents`] gathers the file contents of an upload. Facts are handed in: those
//! of a local state behind a trait, those of a server as a [`FactSnapshot`]. [`ProjectInventory`] is
//! the content of `inventory.yml`. The crate prints nothing, and knows neither stores nor HTTP.
//! Tests: `tests/it`.

mod compile;
mod contents;
mod fact_snapshot;
mod inventory;
mod location;
mod session;

pub use compile::{CompiledProject, ExportMode, FactSource, ProjectRequest, UnknownValue, compile};
pub use contents::{CollectedContents, ContentsError, collect_contents};
pub use fact_snapshot::{FactSnapshot, UnknownLookup};
pub use inventory::{INVENTORY_FILE, InventoryError, LocatedProblem, ProjectInventory};
pub use location::{
    FoundProject, MAIN_FILE, absolute, around_here, declared_name, environment_id, find_directory,
    name_of,
};
pub use session::{DeployingMachine, STATE_DIRECTORY, ServerContext};
