//! Operations that change the nodes of a cluster: size, machines, documents.

use std::collections::BTreeSet;

use super::ClusterIntent;
use super::create::{find_provider, resolve, revision, self_contained};
use super::error::IntentError;
use crate::document::{Catalog, DocumentKind};
use crate::planner::{ServiceDefinitions, ServiceOrder};
use crate::solver::{SearchLimits, lower_template, resize};

/// New hardware or image types of nodes. Their machines are replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HardwareChange {
    /// Names of nodes.
    pub nodes: Vec<String>,
    /// Services all of whose nodes are meant.
    pub services: Vec<String>,
    pub hardwaretype: Option<String>,
    pub imagetype: Option<String>,
}

impl ClusterIntent {
    /// Changes the number of nodes. Remaining nodes stay as they are.
    ///
    /// # Errors
    /// No layout of that size retains the nodes, or a limit was reached.
    pub fn resize(&self, size: u32, limits: SearchLimits<'_>) -> Result<Self, IntentError> {
        let problem = self.problem(size)?;
        let result = resize(&problem, &self.existing_nodes(), limits)?;
        let mut next = self.successor();
        let instances = self.next_instances();
        next.nodes.retain(|_, node| !result.removed.contains(&node.number));
        for group in &result.added {
            for _ in 0..group.count {
                next.add_node(&group.layout, &instances);
            }
        }
        Ok(next)
    }

    /// Gives nodes other hardware or another image, on new machines.
    ///
    /// # Errors
    /// Unknown names, types that the provider does not offer, or rules that the nodes would break.
    pub fn change_hardware(
        &self,
        catalog: &Catalog,
        change: &HardwareChange,
    ) -> Result<Self, IntentError> {
        let HardwareChange { nodes, services, hardwaretype, imagetype } = change;
        if (nodes.is_empty() && services.is_empty())
            || (hardwaretype.is_none() && imagetype.is_none())
        {
            return Err(IntentError::EmptyChange);
        }
        if let Some(unknown) = nodes.iter().find(|name| !self.nodes.contains_key(*name)) {
            return Err(IntentError::UnknownNode(unknown.clone()));
        }
        if let Some(unknown) = services.iter().find(|name| !self.services.contains_key(*name)) {
            return Err(IntentError::NotOnCluster(unknown.clone()));
        }
        let mut next = self.successor();
        let mut flavor = None;
        if let Some(name) = hardwaretype {
            flavor = Some(next.use_hardware(catalog, name)?);
        }
        let mut image = None;
        if let Some(name) = imagetype {
            image = Some(next.use_image(catalog, name)?);
        }
        for (name, node) in &mut next.nodes {
            let runs = services.iter().any(|service| node.services.contains_key(service));
            if !runs && !nodes.contains(name) {
                continue;
            }
            let before = node.clone();
            if let (Some(name), Some(flavor)) = (hardwaretype, &flavor) {
                node.hardwaretype.clone_from(name);
                node.flavor.clone_from(flavor);
            }
            if let (Some(name), Some((image, user))) = (imagetype, &image) {
                node.imagetype.clone_from(name);
                node.image.clone_from(image);
                node.ssh_user.clone_from(user);
            }
            if *node != before {
                node.incarnation += 1;
            }
        }
        next.check_layout()?;
        Ok(next)
    }

    /// Makes a hardware type available, and returns its name at the provider.
    fn use_hardware(&mut self, catalog: &Catalog, name: &str) -> Result<String, IntentError> {
        let kind = DocumentKind::HardwareType;
        if !self.hardware_types.contains_key(name) {
            let document = catalog.hardware_types.get(name);
            let document = document.ok_or_else(|| unknown(kind, name))?;
            self.hardware_types.insert(name.to_owned(), document.body.clone());
        }
        let flavor = self.hardware_types[name].flavor(&self.provider.info.name);
        let flavor = flavor.ok_or_else(|| self.not_offered(kind, name))?.to_owned();
        if self.pinned_hardware.as_ref().is_some_and(|pinned| pinned != name) {
            self.pinned_hardware = None;
        }
        let default = &mut self.template.defaults.hardwaretype;
        if default.as_ref().is_some_and(|default| default != name) {
            *default = None;
        }
        Ok(flavor)
    }

    /// Makes an image type available, and returns its name and its account at the provider.
    fn use_image(
        &mut self,
        catalog: &Catalog,
        name: &str,
    ) -> Result<(String, String), IntentError> {
        let kind = DocumentKind::ImageType;
        if !self.image_types.contains_key(name) {
            let document = catalog.image_types.get(name);
            let document = document.ok_or_else(|| unknown(kind, name))?;
            self.image_types.insert(name.to_owned(), document.body.clone());
        }
        let provider = &self.provider.info.name;
        let document = &self.image_types[name];
        let image = document.image(provider).ok_or_else(|| self.not_offered(kind, name))?;
        let names = (image.to_owned(), document.ssh_user(provider).to_owned());
        if self.pinned_image.as_ref().is_some_and(|pinned| pinned != name) {
            self.pinned_image = None;
        }
        let default = &mut self.template.defaults.imagetype;
        if default.as_ref().is_some_and(|default| default != name) {
            *default = None;
        }
        Ok(names)
    }

    fn not_offered(&self, kind: DocumentKind, name: &str) -> IntentError {
        let (name, provider) = (name.to_owned(), self.provider.info.name.clone());
        IntentError::NotOffered { kind, name, provider }
    }

    /// Replaces the machine of a node.
    ///
    /// # Errors
    /// There is no such node.
    pub fn replace(&self, node: &str) -> Result<Self, IntentError> {
        let mut next = self.successor();
        match next.nodes.get_mut(node) {
            Some(found) => found.incarnation += 1,
            None => return Err(IntentError::UnknownNode(node.to_owned())),
        }
        Ok(next)
    }

    /// Removes all nodes.
    #[must_use]
    pub fn delete(&self) -> Self {
        let mut next = self.successor();
        next.nodes.clear();
        next
    }

    /// Takes the newest template, provider, services and machine types. Nodes keep their machines.
    /// An unchanged configuration of the template is replaced by the new one.
    ///
    /// # Errors
    /// Documents are missing, or the nodes do not satisfy the new rules.
    pub fn update(&self, catalog: &Catalog) -> Result<Self, IntentError> {
        let template = resolve(catalog, self.template.name())?;
        let problem = lower_template(catalog, &template, &self.request(self.size()))?;
        let mut next = self.successor();
        next.template_revision = revision(&template.template);
        next.template = self_contained(template.template);
        next.provider = find_provider(catalog, &self.provider.info.name)?;
        if self.config == self.template.defaults.full_config() {
            next.config = next.template.defaults.full_config();
        }
        super::problem::check_macros(&next.config)?;
        for (name, service) in &mut next.services {
            if let Some(document) = catalog.services.get(name) {
                service.clone_from(&document.body);
            }
        }
        // Types that the nodes have stay known.
        let nodes = self.nodes.values();
        let hardware: BTreeSet<&str> =
            nodes.clone().map(|node| node.hardwaretype.as_str()).collect();
        let images: BTreeSet<&str> = nodes.map(|node| node.imagetype.as_str()).collect();
        next.hardware_types.retain(|name, _| hardware.contains(name.as_str()));
        next.image_types.retain(|name, _| images.contains(name.as_str()));
        next.copy_machine_types(catalog, &problem);
        next.check_layout()?;
        let definitions = ServiceDefinitions::new(next.services.values());
        let names = next.services.keys().map(String::as_str).collect();
        ServiceOrder::new(&definitions, &names)?;
        Ok(next)
    }
}

fn unknown(kind: DocumentKind, name: &str) -> IntentError {
    IntentError::UnknownDocument { kind, name: name.to_owned() }
}
