//! Documents of administrators: providers, hardware and image types, services, templates, tenants.
//!
//! Start from [`Catalog`]: it reads texts, reports problems with their locations, and resolves
//! templates.

mod catalog;
mod check;
mod common;
mod cycles;
mod json;
mod machine;
mod problem;
mod resolve;
mod schema;
mod service;
mod template;
mod tenant;
mod tree;
mod yaml;

pub use catalog::{Catalog, Document, DocumentKind, DocumentMap, SourceFile};
pub use common::{DocumentInfo, LeaseTime, Link, is_name};
pub use machine::{HardwareType, ImageType, Offer, Provider};
pub use problem::{
    CatalogProblem, DocumentFileId, DocumentLocation, ProblemKind, ProblemSeverity, ValueSpans,
    line_column,
};
pub use resolve::ResolvedTemplate;
pub use service::{
    AutomatorAction, Demand, Dependencies, Phase, Provisioner, Service, ServiceAction,
};
pub use template::{
    Administration, ClusterTemplate, Compatibility, Config, Constraints, DefaultService, Defaults,
    LayoutRules, LeaseDuration, PartialTemplate, Preferences, Quantities, Range, Reference,
    ServiceConstraint, Spread,
};
pub use tenant::Tenant;
