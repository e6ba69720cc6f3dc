//! Documents of administrators: providers, hardware and image types, services, templates, tenants.
//!
//! Start from [`Catalog`]: it reads texts, reports problems with their places, and resolves templates.

mod about;
mod catalog;
mod check;
mod circles;
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

pub use about::{About, LeaseTime, Link, is_name};
pub use catalog::{Catalog, Document, DocumentKind, Shelf, SourceFile};
pub use machine::{HardwareType, ImageType, Offer, Provider};
pub use problem::{FileId, Place, Places, Problem, ProblemKind, Severity, line_column};
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
