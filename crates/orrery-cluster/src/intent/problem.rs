//! The intent as input of the solver: its own documents, a request, and its nodes.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Map, Value};

use super::error::IntentError;
use super::{ClusterIntent, IntentNode};
use crate::document::{Catalog, DocumentKind};
use crate::macros;
use crate::solver::{
    ExistingNode, LayoutProblem, LayoutRequest, NodeGroup, NodeLayout, check, lower,
};

impl ClusterIntent {
    /// The copies of documents as a catalog.
    pub(super) fn own_catalog(&self) -> Catalog {
        let mut catalog = Catalog::default();
        let template = &self.template;
        add(&mut catalog, DocumentKind::ClusterTemplate, template.name(), template);
        add(&mut catalog, DocumentKind::Provider, &self.provider.info.name, &self.provider);
        for (name, hardware) in &self.hardware_types {
            add(&mut catalog, DocumentKind::HardwareType, name, hardware);
        }
        for (name, image) in &self.image_types {
            add(&mut catalog, DocumentKind::ImageType, name, image);
        }
        for service in self.services.values() {
            add(&mut catalog, DocumentKind::Service, service.name(), service);
        }
        catalog
    }

    /// A request for the same choices with another size.
    pub(super) fn request(&self, size: u32) -> LayoutRequest {
        LayoutRequest {
            services: Some(self.services.keys().cloned().collect()),
            provider: Some(self.provider.info.name.clone()),
            hardware: self.pinned_hardware.clone(),
            image: self.pinned_image.clone(),
            ..LayoutRequest::new(self.template.name(), size)
        }
    }

    /// The problem of the present nodes, with another size.
    pub(super) fn problem(&self, size: u32) -> Result<LayoutProblem, IntentError> {
        Ok(lower(&self.own_catalog(), &self.request(size))?)
    }

    pub(super) fn size(&self) -> u32 {
        u32::try_from(self.nodes.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn existing_nodes(&self) -> Vec<ExistingNode> {
        let nodes = self.nodes.values();
        nodes.map(|node| ExistingNode { number: node.number, layout: layout(node) }).collect()
    }

    /// Equal nodes, counted.
    pub(super) fn groups(&self) -> Vec<NodeGroup> {
        let mut counts: BTreeMap<NodeLayout, u32> = BTreeMap::new();
        for node in self.nodes.values() {
            *counts.entry(layout(node)).or_default() += 1;
        }
        counts.into_iter().map(|(layout, count)| NodeGroup { layout, count }).collect()
    }

    /// Checks that the nodes satisfy all rules of the template.
    pub(super) fn check_layout(&self) -> Result<(), IntentError> {
        let problem = self.problem(self.size())?;
        let violations = check(&problem, &self.groups());
        if violations.is_empty() {
            return Ok(());
        }
        Err(IntentError::Layout(violations.into_iter().map(|one| one.message).collect()))
    }
}

pub(super) fn layout(node: &IntentNode) -> NodeLayout {
    NodeLayout {
        hardware: node.hardwaretype.clone(),
        image: node.imagetype.clone(),
        services: node.services.keys().cloned().collect(),
    }
}

fn add(catalog: &mut Catalog, kind: DocumentKind, name: &str, document: &impl Serialize) {
    // Documents come from JSON, so that they can be written as JSON.
    let text = serde_json::to_string(document).unwrap_or_default();
    catalog.add_stored(kind, name, text);
}

/// Checks the syntax of all macros.
pub(super) fn check_macros(config: &Map<String, Value>) -> Result<(), IntentError> {
    fn visit(value: &Value, path: &str) -> Result<(), IntentError> {
        match value {
            Value::String(text) => macros::check(text)
                .map_err(|error| IntentError::Macro { path: path.to_owned(), error }),
            Value::Array(items) => {
                let mut items = items.iter().enumerate();
                items.try_for_each(|(at, item)| visit(item, &format!("{path}/{at}")))
            }
            Value::Object(entries) => {
                let mut entries = entries.iter();
                entries.try_for_each(|(key, value)| visit(value, &format!("{path}/{key}")))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
        }
    }
    config.iter().try_for_each(|(key, value)| visit(value, &format!("/{key}")))
}

/// Checks that names are services of the cluster; no names mean all services.
pub(super) fn known_services<'n>(
    intent: &'n ClusterIntent,
    names: &'n [String],
) -> Result<BTreeSet<&'n str>, IntentError> {
    if names.is_empty() {
        return Ok(intent.services.keys().map(String::as_str).collect());
    }
    let known = |name: &'n String| {
        let is_known = intent.services.contains_key(name);
        is_known.then_some(name.as_str()).ok_or_else(|| IntentError::NotOnCluster(name.clone()))
    };
    names.iter().map(known).collect()
}

/// Reads a configuration from YAML or JSON.
///
/// # Errors
/// A sentence about the first error.
pub fn read_config(text: &str) -> Result<Map<String, Value>, String> {
    match serde_saphyr::from_str::<Value>(text) {
        Ok(Value::Object(config)) => Ok(config),
        Ok(_) => Err("expected an object with the sections of the configuration".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
