//! How documents fit together: names that do not exist, circles, bounds and defaults that contradict.

use orrery_model::similar_names::closest;
use serde_json::Value;

use crate::macros;

use super::about::Link;
use super::catalog::{Catalog, Document, DocumentKind};
use super::circles;
use super::machine::{AMOUNTS, Offer, amount};
use super::problem::{Place, Problem, ProblemKind, Severity, step};
use super::service::Service;
use super::template::{ClusterTemplate, Compatibility, Constraints, DefaultService, Defaults};

/// Finds what does not fit together. With `absent`, references to that document are problems, too.
pub(super) fn check(catalog: &Catalog, absent: Option<(DocumentKind, &str)>) -> Vec<Problem> {
    let mut check = Check { catalog, absent, problems: Vec::new() };
    check.machines();
    for service in catalog.services.values() {
        check.service(service);
    }
    check.problems.extend(circles::find(catalog));
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
    /// A document that counts as missing.
    absent: Option<(DocumentKind, &'c str)>,
    problems: Vec<Problem>,
}

impl<'c> Check<'c> {
    fn has(&self, kind: DocumentKind, name: &str) -> bool {
        self.absent != Some((kind, name)) && self.catalog.has(kind, name)
    }

    /// Services that are meant by a name.
    fn providers_of(&self, name: &str) -> Vec<&'c str> {
        let mut providers = self.catalog.providers_of(name);
        providers.retain(|name| self.absent != Some((DocumentKind::Service, *name)));
        providers
    }

    fn report(&mut self, kind: ProblemKind, place: Place, message: String) {
        self.problems.push(Problem::error(kind, place, message));
    }

    /// Reports a name without a document.
    fn expect(&mut self, kind: DocumentKind, name: &str, place: Place, severity: Severity) {
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
        let problem = Problem::error(ProblemKind::DocumentNotFound, place, message).help(help);
        self.problems.push(Problem { severity, ..problem });
    }

    fn machines(&mut self) {
        let catalog = self.catalog;
        let has_providers = !catalog.providers.is_empty();
        for document in catalog.hardware_types.values() {
            for (provider, offer) in &document.body.providermap {
                let path = step("/providermap", provider);
                if has_providers {
                    let place = document.place(&path);
                    self.expect(DocumentKind::Provider, provider, place, Severity::Warning);
                }
                self.amounts(document, offer, &path, &AMOUNTS);
                if document.body.flavor(provider).is_none() {
                    let message = "without `flavor`, no cluster uses this hardware".to_owned();
                    self.warn(ProblemKind::MissingField, document.place(&path), message);
                }
            }
        }
        for document in catalog.image_types.values() {
            for (provider, offer) in &document.body.providermap {
                let path = step("/providermap", provider);
                if has_providers {
                    let place = document.place(&path);
                    self.expect(DocumentKind::Provider, provider, place, Severity::Warning);
                }
                self.amounts(document, offer, &path, &["cost"]);
                if document.body.image(provider).is_none() {
                    let message = "without `image`, no cluster uses this image type".to_owned();
                    self.warn(ProblemKind::MissingField, document.place(&path), message);
                }
            }
        }
    }

    /// Reports settings of an offer that are no amounts.
    fn amounts<T>(&mut self, document: &Document<T>, offer: &Offer, path: &str, names: &[&str]) {
        for name in names {
            let Some(text) = offer.get(*name).filter(|text| amount(text).is_none()) else {
                continue;
            };
            let place = document.place(&step(path, name));
            let message = format!("`{name}` is a number of at least zero, but this is `{text}`");
            let problem = Problem::error(ProblemKind::InvalidField, place, message);
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

    fn warn(&mut self, kind: ProblemKind, place: Place, message: String) {
        self.problems.push(Problem::warning(kind, place, message));
    }

    fn service(&mut self, document: &Document<Service>) {
        let dependencies = &document.body.dependencies;
        for (phase, names) in
            [("install", &dependencies.install), ("runtime", &dependencies.runtime)]
        {
            let lists = [
                ("requires", &names.requires, Severity::Error),
                // What is used or in conflict need not be on the cluster, nor exist.
                ("uses", &names.uses, Severity::Warning),
            ];
            for (field, names, severity) in lists {
                for (at, name) in names.iter().enumerate() {
                    let path = format!("/dependencies/{phase}/{field}/{at}");
                    if self.providers_of(name).is_empty() {
                        let place = document.place(&path);
                        self.expect(DocumentKind::Service, name, place, severity);
                    }
                }
            }
        }
        self.links(document, &document.body.links);
        for (at, name) in dependencies.conflicts.iter().enumerate() {
            let place = document.place(&format!("/dependencies/conflicts/{at}"));
            self.expect(DocumentKind::Service, name, place, Severity::Warning);
        }
    }

    fn names(&mut self, kind: DocumentKind, names: &[String], at: impl Fn(usize) -> Place) {
        for (index, name) in names.iter().enumerate() {
            self.expect(kind, name, at(index), Severity::Error);
        }
    }

    fn defaults<T>(&mut self, document: &Document<T>, defaults: &Defaults) {
        for (at, name) in defaults.service_names().enumerate() {
            let place = document.place(&format!("/defaults/services/{at}"));
            self.expect(DocumentKind::Service, name, place, Severity::Error);
        }
        let fields = [
            ("provider", DocumentKind::Provider, &defaults.provider),
            ("hardwaretype", DocumentKind::HardwareType, &defaults.hardwaretype),
            ("imagetype", DocumentKind::ImageType, &defaults.imagetype),
        ];
        for (field, kind, name) in fields {
            // Published templates come without providers, which hold credentials.
            let is_checked =
                kind != DocumentKind::Provider || self.catalog.names(kind).next().is_some();
            if let Some(name) = name.as_ref().filter(|_| is_checked) {
                let place = document.place(&format!("/defaults/{field}"));
                self.expect(kind, name, place, Severity::Error);
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
            let message = format!("`{suffix}` is no valid suffix of host names");
            self.report(ProblemKind::InvalidField, document.place("/defaults/dnsSuffix"), message);
        }
    }

    /// Mistakes in the macros of a configuration.
    fn macros<T>(&mut self, document: &Document<T>, value: &Value, path: &str) {
        match value {
            Value::String(text) => {
                let error = match macros::services(text) {
                    Ok(services) => {
                        let place = |_| document.place(path);
                        return self.names(DocumentKind::Service, &services, place);
                    }
                    Err(error) => error,
                };
                let message = format!("a macro cannot be read: {error}");
                let problem =
                    Problem::error(ProblemKind::InvalidMacro, document.place(path), message);
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
            self.names(kind, names, |at| document.place(&format!("/compatibility/{field}/{at}")));
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
                let place = |at| document.place(&format!("{path}/{at}"));
                self.names(DocumentKind::Service, names, place);
            }
        }
        for (rule, spread) in layout.spread.iter().enumerate() {
            let path = format!("/constraints/layout/spread/{rule}");
            let place = |at| document.place(&format!("{path}/services/{at}"));
            self.names(DocumentKind::Service, &spread.services, place);
            let mut hardware = self.catalog.hardware_types.values();
            if !hardware.any(|hardware| hardware.body.labels.contains_key(&spread.label)) {
                let message = format!("no hardware type has the label {}", spread.label);
                let place = document.place(&format!("{path}/label"));
                self.warn(ProblemKind::DocumentNotFound, place, message);
            }
        }
        for (name, constraint) in &constraints.services {
            let path = step("/constraints/services", name);
            self.expect(DocumentKind::Service, name, document.place(&path), Severity::Error);
            let place = |at| document.place(&format!("{path}/hardwaretypes/{at}"));
            self.names(DocumentKind::HardwareType, &constraint.hardwaretypes, place);
            let place = |at| document.place(&format!("{path}/imagetypes/{at}"));
            self.names(DocumentKind::ImageType, &constraint.imagetypes, place);
            let quantities = &constraint.quantities;
            self.bounds(quantities.min, quantities.max, document, &format!("{path}/quantities"));
            for other in quantities.ratio.keys() {
                let path = step(&format!("{path}/quantities/ratio"), other);
                self.expect(DocumentKind::Service, other, document.place(&path), Severity::Error);
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
            let place = document.place(&format!("{path}/min"));
            let problem = Problem::error(ProblemKind::InvalidField, place, message);
            self.problems
                .push(problem.related(document.place(&format!("{path}/max")), "the maximum"));
        }
    }

    fn template(&mut self, document: &Document<ClusterTemplate>) {
        let template = &document.body;
        self.defaults(document, &template.defaults);
        self.compatibility(document, &template.compatibility);
        self.constraints(document, &template.constraints);
        self.links(document, &template.links);
        let preferences = &template.preferences;
        let place = |at| document.place(&format!("/preferences/hardwaretypes/{at}"));
        self.names(DocumentKind::HardwareType, &preferences.hardwaretypes, place);
        let place = |at| document.place(&format!("/preferences/imagetypes/{at}"));
        self.names(DocumentKind::ImageType, &preferences.imagetypes, place);
        if let Some(parent) = &template.extends {
            let place = document.place("/extends/name");
            self.expect(DocumentKind::ClusterTemplate, &parent.name, place, Severity::Error);
        }
        for (at, include) in template.includes.iter().enumerate() {
            let place = document.place(&format!("/includes/{at}/name"));
            self.expect(DocumentKind::PartialTemplate, &include.name, place, Severity::Error);
        }
        let lease = &template.administration.leaseduration;
        let is_longer = lease.initial.is_zero() || lease.initial > lease.max;
        if !lease.max.is_zero() && is_longer {
            let message = "clusters begin with a longer lease than the longest allowed".to_owned();
            let place = document.place("/administration/leaseduration/initial");
            let max = document.place("/administration/leaseduration/max");
            let problem = Problem::error(ProblemKind::InvalidField, place, message);
            self.problems.push(problem.related(max, "the longest allowed"));
        }
        self.resolved(document);
    }

    /// What only the template with all that it extends and includes can tell.
    fn resolved(&mut self, document: &Document<ClusterTemplate>) {
        let resolved = match self.catalog.resolve(document.body.name()) {
            Ok(Some(resolved)) => resolved,
            Ok(None) => return,
            Err(problems) => {
                // A circle is a problem of each of its members: one report is enough.
                let known = |problem: &Problem| {
                    let is_circle = problem.kind == ProblemKind::TemplateCycle;
                    is_circle && self.problems.iter().any(|p| p.kind == ProblemKind::TemplateCycle)
                };
                let new: Vec<Problem> = problems.into_iter().filter(|p| !known(p)).collect();
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
        // A template that others complete may leave things open.
        if !missing.is_empty() && !is_extended {
            let message = format!("template {name} has no {}", missing.join(" and no "));
            let place = document.place("/defaults");
            self.report(ProblemKind::IncompleteTemplate, place, message);
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
            let place = |path: &str| {
                let place = resolved.place(path).cloned();
                place.unwrap_or_else(|| document.place(path))
            };
            let message = format!("{name} is a default, but not among the compatible {list}");
            let problem = Problem::error(
                ProblemKind::IncompatibleDefault,
                place(&format!("/defaults/{path}")),
                message,
            );
            let list = place(&format!("/compatibility/{list}"));
            self.problems.push(problem.related(list, "what is compatible"));
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
