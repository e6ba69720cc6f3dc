//! Plug-ins: their manifests, the validation of fields, and the traits that they implement.

mod error;
mod fields;
mod manifest;
mod traits;

pub use error::PluginError;
pub use fields::{FieldProblem, check_fields, describe_problems};
pub use manifest::{
    FieldFormat, FieldSchema, ParameterGroup, Parameters, PluginKind, PluginManifest,
    ResourceFormat, ResourceSpec,
};
pub use traits::{
    ActionOutput, ActionRun, MachineCall, MachineProvider, NodeAccess, NodeSimulation,
    PluginResources, ServiceAutomator, SshLogin,
};
