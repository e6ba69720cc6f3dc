//! The first intent of a cluster, from documents and a request.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::error::IntentError;
use super::problem::check_macros;
use super::{ClusterIntent, IntentNode, IntentService, naming};
use crate::document::{Catalog, ClusterTemplate, Provider};
use crate::planner::{ServiceDefinitions, ServiceOrder};
use crate::solver::{
    Invalid, InvalidReason, LayoutRequest, NodeLayout, SearchLimits, lower_template, solve_problem,
};

/// The number of a cluster's first node.
const FIRST_NODE: u64 = 1_000;

/// Domain of the host names if neither the request nor the template names one.
const DEFAULT_SUFFIX: &str = "local";

/// A request for a cluster. Present values replace those of the template as a whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterRequest {
    /// Short id: lower-case letters and digits.
    pub cluster: String,
    pub name: String,
    pub owner: String,
    pub request: LayoutRequest,
    pub dns_suffix: Option<String>,
    pub config: Option<Map<String, Value>>,
}

/// Chooses the layout of a new cluster and copies everything that it needs from the catalog.
///
/// # Errors
/// The request does not fit the documents, there is no layout, services wait for each other, or a
/// macro is wrong.
pub fn create(
    catalog: &Catalog,
    new: &ClusterRequest,
    limits: SearchLimits<'_>,
) -> Result<ClusterIntent, IntentError> {
    let is_id = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if new.cluster.is_empty() || !new.cluster.chars().all(is_id) {
        return Err(IntentError::ClusterId(new.cluster.clone()));
    }
    let request = &new.request;
    let template = resolve(catalog, &request.template)?;
    let problem = lower_template(catalog, &template, request)?;
    let defaults = &template.template.defaults;
    let provider = request.provider.as_ref().or(defaults.provider.as_ref());
    let provider = provider.map(String::as_str).unwrap_or_default();
    let suffix = new.dns_suffix.as_ref().or(defaults.dns_suffix.as_ref());
    let suffix = suffix.map_or(DEFAULT_SUFFIX, String::as_str);
    if !is_domain(suffix) {
        return Err(IntentError::DnsSuffix(suffix.to_owned()));
    }
    let config = new.config.clone().unwrap_or_else(|| defaults.full_config());
    check_macros(&config)?;
    let mut intent = ClusterIntent {
        cluster: new.cluster.clone(),
        name: new.name.clone(),
        owner: new.owner.clone(),
        template_revision: revision(&template.template),
        template: self_contained(template.template.clone()),
        provider: find_provider(catalog, provider)?,
        services: BTreeMap::new(),
        hardware_types: BTreeMap::new(),
        image_types: BTreeMap::new(),
        pinned_hardware: request.hardware.clone(),
        pinned_image: request.image.clone(),
        config,
        dns_suffix: suffix.to_owned(),
        nodes: BTreeMap::new(),
        next_number: FIRST_NODE,
        serial: 0,
        plugin_resources: BTreeMap::new(),
    };
    for service in &problem.services {
        if let Some(document) = catalog.services.get(&service.name) {
            intent.services.insert(service.name.clone(), document.body.clone());
        }
    }
    intent.copy_machine_types(catalog, &problem);
    let definitions = ServiceDefinitions::new(intent.services.values());
    let names = intent.services.keys().map(String::as_str).collect();
    ServiceOrder::new(&definitions, &names)?;
    let solution = solve_problem(&problem, limits)?;
    for group in &solution.groups {
        for _ in 0..group.count {
            intent.add_node(&group.layout, &BTreeMap::new());
        }
    }
    Ok(intent)
}

/// Resolves a template of the catalog.
pub(super) fn resolve(
    catalog: &Catalog,
    name: &str,
) -> Result<crate::document::ResolvedTemplate, IntentError> {
    let invalid = |reason, message: String| {
        let invalid = Invalid { reason, message, location: None, help: None };
        IntentError::from(vec![invalid])
    };
    match catalog.resolve(name) {
        Ok(Some(template)) => Ok(template),
        Ok(None) => {
            Err(invalid(InvalidReason::TemplateNotFound, format!("template {name} does not exist")))
        }
        Err(problems) => {
            let message = format!("template {name} cannot be resolved");
            Err(invalid(InvalidReason::Template(problems), message))
        }
    }
}

/// A resolved template without references to others.
pub(super) fn self_contained(mut template: ClusterTemplate) -> ClusterTemplate {
    template.extends = None;
    template.includes = Vec::new();
    template
}

pub(super) fn revision(template: &ClusterTemplate) -> i64 {
    template.info.version.and_then(|version| i64::try_from(version).ok()).unwrap_or(0)
}

pub(super) fn find_provider(catalog: &Catalog, name: &str) -> Result<Provider, IntentError> {
    match catalog.providers.get(name) {
        Some(document) => Ok(document.body.clone()),
        None => Err(vec![Invalid {
            reason: InvalidReason::ProviderNotFound,
            message: format!("provider {name} does not exist"),
            location: None,
            help: None,
        }]
        .into()),
    }
}

/// True for labels of letters, digits and inner dashes, joined by dots.
fn is_domain(text: &str) -> bool {
    let is_label = |label: &str| {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
        !label.is_empty()
            && label.len() <= 63
            && label.chars().all(is_part)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= 190 && text.split('.').all(is_label)
}

impl ClusterIntent {
    /// Adds a node with the next number.
    pub(super) fn add_node(
        &mut self,
        layout: &NodeLayout,
        instances: &BTreeMap<String, IntentService>,
    ) {
        let instance = |name: &String| instances.get(name).cloned().unwrap_or_default();
        let provider = &self.provider.info.name;
        let hardware = self.hardware_types.get(&layout.hardware);
        let flavor = hardware.and_then(|hardware| hardware.flavor(provider)).unwrap_or_default();
        let image = self.image_types.get(&layout.image);
        let number = self.next_number;
        let services = layout.services.iter();
        let node = IntentNode {
            number,
            incarnation: 1,
            hostname: naming::hostname(&self.name, &self.cluster, number, &self.dns_suffix),
            hardwaretype: layout.hardware.clone(),
            imagetype: layout.image.clone(),
            flavor: flavor.to_owned(),
            image: image.and_then(|image| image.image(provider)).unwrap_or_default().to_owned(),
            ssh_user: image.map_or("root", |image| image.ssh_user(provider)).to_owned(),
            services: services.map(|name| (name.clone(), instance(name))).collect(),
        };
        self.nodes.insert(naming::node_name(&self.name, number), node);
        self.next_number += 1;
    }

    /// State of a further instance of each service: like the existing ones.
    pub(super) fn next_instances(&self) -> BTreeMap<String, IntentService> {
        let mut next: BTreeMap<String, IntentService> = BTreeMap::new();
        for (name, service) in self.nodes.values().flat_map(|node| &node.services) {
            let known = next
                .entry(name.clone())
                .or_insert_with(|| IntentService { running: false, ..IntentService::default() });
            known.running |= service.running;
            known.generation = known.generation.max(service.generation);
            known.epoch = known.epoch.max(service.epoch);
        }
        next
    }

    /// Copies the hardware and image types of a problem.
    pub(super) fn copy_machine_types(
        &mut self,
        catalog: &Catalog,
        problem: &crate::solver::LayoutProblem,
    ) {
        for hardware in &problem.hardware {
            if let Some(document) = catalog.hardware_types.get(&hardware.name) {
                self.hardware_types.insert(hardware.name.clone(), document.body.clone());
            }
        }
        for image in &problem.images {
            if let Some(document) = catalog.image_types.get(image) {
                self.image_types.insert(image.clone(), document.body.clone());
            }
        }
    }
}
