//! Documents of administrators: providers, hardware and image types, services, templates, tenants.

mod about;
mod machine;
mod service;
mod template;
mod tenant;

pub use about::{About, LeaseTime, Link, is_name};
pub use machine::{HardwareType, ImageType, Offer, Provider};
pub use service::{
    AutomatorAction, Demand, Dependencies, Phase, Provisioner, Service, ServiceAction,
};
pub use template::{
    Administration, ClusterTemplate, Compatibility, Config, Constraints, DefaultService, Defaults,
    LayoutRules, LeaseDuration, PartialTemplate, Preferences, Quantities, Range, Reference,
    ServiceConstraint, Spread,
};
pub use tenant::Tenant;
