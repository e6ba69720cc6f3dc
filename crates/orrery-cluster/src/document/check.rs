//! Consistency of documents: undefined names, cycles, contradictory bounds and defaults.

use orrery_model::similar_names::closest;
use serde_json::Value;

use crate::macros;

use super::catalog::{Catalog, Document, DocumentKind};
use super::common::Link;
use super::cycles;
use super::machine::{AMOUNTS, Offer, amount};
use super::problem::{CatalogProblem, DocumentLocation, ProblemKind, ProblemSeverity, step};
use super::service::Service;
use super::template::{ClusterTemplate, Compatibility, Constraints, DefaultService, Defaults};

/// Finds inconsistencies. With `absent`, references to that document are problems, too.
pub(super) fn check(
    catalog: &Catalog,
    absent: Option<(DocumentKind, &str)>,
) -> Vec<CatalogProblem> {
    let mut check = Check { catalog, absent, problems: Vec::new() };
    check.machines();
    for service in catalog.services.values() {
        check.service(service);
    }
    check.problems.extend(cycles::find(catalog));
    for partial in catalog.partial_templates.values() {
        check.defaults(partial, &partial.body.defaults);
        check.compatibility(partial, &partial.body.compatibility);
        check.constraints(partial, &partial.body.constraints);
    }
    for template in catalog.templates.values() {
        check.template(template);
    }
    check.problems
}

struct Check<'c> {
    catalog: &'c Catalog,
    /// A document that is treated as missing.
    absent: Option<(DocumentKind, &'c str)>,
    problems: Vec<CatalogProblem>,
}

impl<'c> Check<'c> {
    fn has(&self, kind: DocumentKind, name: &str) -> bool {
        self.absent != Some((kind, name)) && self.catalog.has(kind, name)
    }

    /// Services that a name refers to.
    fn providers_of(&self, name: &str) -> Vec<&'c str> {
        let mut providers = self.catalog.providers_of(name);
        providers.retain(|name| self.absent != Some((DocumentKind::Service, *name)));
        providers
    }

    fn report(&mut self, kind: ProblemKind, location: DocumentLocation, message: String) {
        self.problems.push(CatalogProblem::error(kind, location, message));
    }

    /// Reports a name without a document.
    fn expect_document(
        &mut self,
        kind: DocumentKind,
        name: &str,
        location: DocumentLocation,
        severity: ProblemSeverity,
    ) {
        let catalog = self.catalog;
        if self.has(kind, name) {
            return;
        }
        let noun = kind.noun();
        let is_alias = kind == DocumentKind::Service && !self.providers_of(name).is_empty();
        let help = if is_alias {
            let providers = self.providers_of(name).join(", ");
            Some(format!("{name} is a name that others provide; choose one of: {providers}"))
        } else {
            closest(name, catalog.names(kind)).map(|name| format!("did you mean `{name}`?"))
        };
        let message = format!("there is no {noun} with the name {name}");
        let problem =
            CatalogProblem::error(ProblemKind::DocumentNotFound, location, message).help(help);
        self.problems.push(CatalogProblem { severity, ..problem });
    }

    fn machines(&mut self) {
        let catalog = self.catalog;
        let has_providers = !catalog.providers.is_empty();
        for document in catalog.hardware_types.values() {
            for (provider, offer) in &document.body.providermap {
                let path = step("/providermap", provider);
                if has_providers {
                    let location = document.location(&path);
                    self.expect_document(
                        DocumentKind::Provider,
                        provider,
                        location,
                        ProblemSeverity::Warning,
                    );
                }
                self.amounts(document, offer, &path, &AMOUNTS);
                if document.body.flavor(provider).is_none() {
                    let message = "without `flavor`, no cluster uses this hardware".to_owned();
                    self.warn(ProblemKind::MissingField, document.location(&path), message);
                }
            }
        }
        for document in catalog.image_types.values() {
            for (provider, offer) in &document.body.providermap {
                let path = step("/providermap", provider);
                if has_providers {
                    let location = document.location(&path);
                    self.expect_document(
                        DocumentKind::Provider,
                        provider,
                        location,
                        ProblemSeverity::Warning,
                    );
                }
                self.amounts(document, offer, &path, &["cost"]);
                if document.body.image(provider).is_none() {
                    let message = "without `image`, no cluster uses this image type".to_owned();
                    self.warn(ProblemKind::MissingField, document.location(&path), message);
                }
            }
        }
    }

    /// Reports settings of an offer that are not amounts.
    fn amounts<T>(&mut self, document: &Document<T>, offer: &Offer, path: &str, names: &[&str]) {
        for name in names {
            let Some(text) = offer.get(*name).filter(|text| amount(text).is_none()) else {
                continue;
            };
            let location = document.location(&step(path, name));
            let message =
                format!("`{name}` must be a number of at least zero, but this is `{text}`");
            let problem = CatalogProblem::error(ProblemKind::InvalidField, location, message);
            let help = match *name {
                "cost" => "write the number without a currency, with a point: 4.5",
                "ram" => {
                    "write the number without a unit, in the unit of `resources.ram` of services"
                }
                _ => "write the number in digits",
            };
            self.problems.push(problem.help(Some(help.to_owned())));
        }
    }

    fn warn(&mut self, kind: ProblemKind, location: DocumentLocation, message: String) {
        self.problems.push(CatalogProblem::warning(kind, location, message));
    }

    fn service(&mut self, document: &Document<Service>) {
        let dependencies = &document.body.dependencies;
        for (phase, names) in
            [("install", &dependencies.install), ("runtime", &dependencies.runtime)]
        {
            let lists = [
                ("requires", &names.requires, ProblemSeverity::Error),
                // Used or conflicting services need not be on the cluster, nor exist.
                ("uses", &names.uses, ProblemSeverity::Warning),
            ];
            for (field, names, severity) in lists {
                for (at, name) in names.iter().enumerate() {
                    let path = format!("/dependencies/{phase}/{field}/{at}");
                    if self.providers_of(name).is_empty() {
                        let location = document.location(&path);
                        self.expect_document(DocumentKind::Service, name, location, severity);
                    }
                }
            }
        }
        self.links(document, &document.body.links);
        for (at, name) in dependencies.conflicts.iter().enumerate() {
            let location = document.location(&format!("/dependencies/conflicts/{at}"));
            self.expect_document(DocumentKind::Service, name, location, ProblemSeverity::Warning);
        }
    }

    fn names(
        &mut self,
        kind: DocumentKind,
        names: &[String],
        at: impl Fn(usize) -> DocumentLocation,
    ) {
        for (index, name) in names.iter().enumerate() {
            self.expect_document(kind, name, at(index), ProblemSeverity::Error);
        }
    }

    fn defaults<T>(&mut self, document: &Document<T>, defaults: &Defaults) {
        for (at, name) in defaults.service_names().enumerate() {
            let location = document.location(&format!("/defaults/services/{at}"));
            self.expect_document(DocumentKind::Service, name, location, ProblemSeverity::Error);
        }
        let fields = [
            ("provider", DocumentKind::Provider, &defaults.provider),
            ("hardwaretype", DocumentKind::HardwareType, &defaults.hardwaretype),
            ("imagetype", DocumentKind::ImageType, &defaults.imagetype),
        ];
        for (field, kind, name) in fields {
            // Published templates come without providers, because those contain credentials.
            let is_checked =
                kind != DocumentKind::Provider || self.catalog.names(kind).next().is_some();
            if let Some(name) = name.as_ref().filter(|_| is_checked) {
                let location = document.location(&format!("/defaults/{field}"));
                self.expect_document(kind, name, location, ProblemSeverity::Error);
            }
        }
        for (key, value) in &defaults.config {
            self.macros(document, value, &step("/defaults/config", key));
        }
        for (at, service) in defaults.services.iter().enumerate() {
            if let DefaultService::Configured { config, .. } = service {
                for (key, value) in config {
                    let path = step(&format!("/defaults/services/{at}/config"), key);
                    self.macros(document, value, &path);
                }
            }
        }
        if let Some(suffix) = &defaults.dns_suffix
            && !is_dns_suffix(suffix)
        {
            let message = format!("`{suffix}` is not a valid DNS suffix");
            self.report(
                ProblemKind::InvalidField,
                document.location("/defaults/dnsSuffix"),
                message,
            );
        }
    }

    /// Reports errors in the macros of a configuration.
    fn macros<T>(&mut self, document: &Document<T>, value: &Value, path: &str) {
        match value {
            Value::String(text) => {
                let error = match macros::services(text) {
                    Ok(services) => {
                        let location = |_| document.location(path);
                        return self.names(DocumentKind::Service, &services, location);
                    }
                    Err(error) => error,
                };
                let message = format!("invalid macro: {error}");
                let problem = CatalogProblem::error(
                    ProblemKind::InvalidMacro,
                    document.location(path),
                    message,
                );
                let help = "two `%` in one text enclose a macro; `%%` is never part of one";
                self.problems.push(problem.help(Some(help.to_owned())));
            }
            Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    self.macros(document, item, &format!("{path}/{at}"));
                }
            }
            Value::Object(entries) => {
                for (key, value) in entries {
                    self.macros(document, value, &step(path, key));
                }
            }
            _ => {}
        }
    }

    fn links<T>(&mut self, document: &Document<T>, links: &[Link]) {
        for (at, link) in links.iter().enumerate() {
            let url = Value::from(link.url.as_str());
            self.macros(document, &url, &format!("/links/{at}/url"));
        }
    }

    fn compatibility<T>(&mut self, document: &Document<T>, compatibility: &Compatibility) {
        let fields = [
            ("hardwaretypes", DocumentKind::HardwareType, &compatibility.hardwaretypes),
            ("imagetypes", DocumentKind::ImageType, &compatibility.imagetypes),
            ("services", DocumentKind::Service, &compatibility.services),
        ];
        for (field, kind, names) in fields {
            self.names(kind, names, |at| {
                document.location(&format!("/compatibility/{field}/{at}"))
            });
        }
    }

    fn constraints<T>(&mut self, document: &Document<T>, constraints: &Constraints) {
        let size = constraints.size;
        self.bounds(size.min, size.max, document, "/constraints/size");
        let layout = &constraints.layout;
        let rules = [("mustcoexist", &layout.mustcoexist), ("cantcoexist", &layout.cantcoexist)];
        for (field, rules) in rules {
            for (rule, names) in rules.iter().enumerate() {
                let path = format!("/constraints/layout/{field}/{rule}");
                let location = |at| document.location(&format!("{path}/{at}"));
                self.names(DocumentKind::Service, names, location);
            }
        }
        for (rule, spread) in layout.spread.iter().enumerate() {
            let path = format!("/constraints/layout/spread/{rule}");
            let location = |at| document.location(&format!("{path}/services/{at}"));
            self.names(DocumentKind::Service, &spread.services, location);
            let mut hardware = self.catalog.hardware_types.values();
            if !hardware.any(|hardware| hardware.body.labels.contains_key(&spread.label)) {
                let message = format!("no hardware type has the label {}", spread.label);
                let location = document.location(&format!("{path}/label"));
                self.warn(ProblemKind::DocumentNotFound, location, message);
            }
        }
        for (name, constraint) in &constraints.services {
            let path = step("/constraints/services", name);
            self.expect_document(
                DocumentKind::Service,
                name,
                document.location(&path),
                ProblemSeverity::Error,
            );
            let location = |at| document.location(&format!("{path}/hardwaretypes/{at}"));
            self.names(DocumentKind::HardwareType, &constraint.hardwaretypes, location);
            let location = |at| document.location(&format!("{path}/imagetypes/{at}"));
            self.names(DocumentKind::ImageType, &constraint.imagetypes, location);
            let quantities = &constraint.quantities;
            self.bounds(quantities.min, quantities.max, document, &format!("{path}/quantities"));
            for other in quantities.ratio.keys() {
                let path = step(&format!("{path}/quantities/ratio"), other);
                self.expect_document(
                    DocumentKind::Service,
                    other,
                    document.location(&path),
                    ProblemSeverity::Error,
                );
            }
        }
    }

    fn bounds<T>(
        &mut self,
        min: Option<u32>,
        max: Option<u32>,
        document: &Document<T>,
        path: &str,
    ) {
        if let (Some(min), Some(max)) = (min, max)
            && min > max
        {
            let message = format!("the minimum {min} is more than the maximum {max}");
            let location = document.location(&format!("{path}/min"));
            let problem = CatalogProblem::error(ProblemKind::InvalidField, location, message);
            self.problems
                .push(problem.related(document.location(&format!("{path}/max")), "the maximum"));
        }
    }

    fn template(&mut self, document: &Document<ClusterTemplate>) {
        let template = &document.body;
        self.defaults(document, &template.defaults);
        self.compatibility(document, &template.compatibility);
        self.constraints(document, &template.constraints);
        self.links(document, &template.links);
        let preferences = &template.preferences;
        let location = |at| document.location(&format!("/preferences/hardwaretypes/{at}"));
        self.names(DocumentKind::HardwareType, &preferences.hardwaretypes, location);
        let location = |at| document.location(&format!("/preferences/imagetypes/{at}"));
        self.names(DocumentKind::ImageType, &preferences.imagetypes, location);
        if let Some(parent) = &template.extends {
            let location = document.location("/extends/name");
            self.expect_document(
                DocumentKind::ClusterTemplate,
                &parent.name,
                location,
                ProblemSeverity::Error,
            );
        }
        for (at, include) in template.includes.iter().enumerate() {
            let location = document.location(&format!("/includes/{at}/name"));
            self.expect_document(
                DocumentKind::PartialTemplate,
                &include.name,
                location,
                ProblemSeverity::Error,
            );
        }
        let lease = &template.administration.leaseduration;
        let is_longer = lease.initial.is_zero() || lease.initial > lease.max;
        if !lease.max.is_zero() && is_longer {
            let message = "the initial lease is longer than the maximum".to_owned();
            let location = document.location("/administration/leaseduration/initial");
            let max = document.location("/administration/leaseduration/max");
            let problem = CatalogProblem::error(ProblemKind::InvalidField, location, message);
            self.problems.push(problem.related(max, "the maximum"));
        }
        self.resolved(document);
    }

    /// Checks that need the fully resolved template.
    fn resolved(&mut self, document: &Document<ClusterTemplate>) {
        let resolved = match self.catalog.resolve(document.body.name()) {
            Ok(Some(resolved)) => resolved,
            Ok(None) => return,
            Err(problems) => {
                // A cycle is a problem of each of its members: one report is enough.
                let known = |problem: &CatalogProblem| {
                    let is_cycle = problem.kind == ProblemKind::TemplateCycle;
                    is_cycle && self.problems.iter().any(|p| p.kind == ProblemKind::TemplateCycle)
                };
                let new: Vec<CatalogProblem> = problems.into_iter().filter(|p| !known(p)).collect();
                self.problems.extend(new);
                return;
            }
        };
        let defaults = &resolved.template.defaults;
        let name = document.body.name();
        let is_extended = self
            .catalog
            .templates
            .values()
            .any(|other| other.body.extends.as_ref().is_some_and(|parent| parent.name == name));
        let mut missing = Vec::new();
        if defaults.services.is_empty() {
            missing.push("default services");
        }
        if defaults.provider.is_none() {
            missing.push("default provider");
        }
        // A template that others extend may be incomplete.
        if !missing.is_empty() && !is_extended {
            let message = format!("template {name} has no {}", missing.join(" and no "));
            let location = document.location("/defaults");
            self.report(ProblemKind::IncompleteTemplate, location, message);
        }
        let compatibility = &resolved.template.compatibility;
        let mut outside = Vec::new();
        for (at, service) in defaults.service_names().enumerate() {
            outside.push((service, &compatibility.services, format!("services/{at}"), "services"));
        }
        if let Some(hardware) = &defaults.hardwaretype {
            let path = "hardwaretype".to_owned();
            outside.push((hardware, &compatibility.hardwaretypes, path, "hardwaretypes"));
        }
        if let Some(image) = &defaults.imagetype {
            outside.push((image, &compatibility.imagetypes, "imagetype".to_owned(), "imagetypes"));
        }
        for (name, allowed, path, list) in outside {
            if allowed.is_empty() || allowed.iter().any(|other| other == name) {
                continue;
            }
            let location = |path: &str| {
                let location = resolved.location(path).cloned();
                location.unwrap_or_else(|| document.location(path))
            };
            let message = format!("{name} is a default, but not among the compatible {list}");
            let problem = CatalogProblem::error(
                ProblemKind::IncompatibleDefault,
                location(&format!("/defaults/{path}")),
                message,
            );
            let list = location(&format!("/compatibility/{list}"));
            self.problems.push(problem.related(list, "the compatible values"));
        }
    }
}

fn is_dns_suffix(text: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    text.len() <= 190 && text.trim_start_matches('.').split('.').all(is_label)
}
