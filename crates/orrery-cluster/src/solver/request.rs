//! From documents and a request to a problem: the checks before the search, and the rules.

use std::collections::{BTreeMap, BTreeSet};

use super::explain::{LARGEST, smallest};
use super::limits::{Meter, SearchLimits};
use super::problem::{
    ClusterService, Hardware, LayoutProblem, Rule, RuleKind, RuleLocation, Solution, SolverMode,
};
use super::{SolveError, solve_problem};
use crate::document::{Catalog, CatalogProblem, ClusterTemplate, ResolvedTemplate};

/// Maximum number of nodes of a cluster.
pub const MAX_SIZE: u32 = LARGEST;

/// A user's request. Omitted values come from the template.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LayoutRequest {
    /// Name of the template.
    pub template: String,
    /// Number of nodes.
    pub size: u32,
    /// Replaces the services of the template.
    pub services: Option<Vec<String>>,
    pub provider: Option<String>,
    /// The only hardware type of the cluster.
    pub hardware: Option<String>,
    /// The only image type of the cluster.
    pub image: Option<String>,
    pub mode: SolverMode,
}

impl LayoutRequest {
    pub fn new(template: impl Into<String>, size: u32) -> Self {
        Self { template: template.into(), size, ..Self::default() }
    }
}

/// A request that does not fit the documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    pub reason: InvalidReason,
    pub message: String,
    /// The location in a document that the request contradicts, if any.
    pub location: Option<RuleLocation>,
    pub help: Option<String>,
}

impl Invalid {
    fn new(reason: InvalidReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), location: None, help: None }
    }

    fn at(mut self, location: RuleLocation) -> Self {
        self.location = Some(location);
        self
    }

    fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// All messages, one per line.
    pub(super) fn join(all: &[Self]) -> String {
        let messages: Vec<&str> = all.iter().map(|invalid| invalid.message.as_str()).collect();
        messages.join("\n")
    }
}

/// Reasons why a request does not fit the documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InvalidReason {
    TemplateNotFound,
    /// The template cannot be resolved.
    Template(Vec<CatalogProblem>),
    ProviderNotFound,
    Size,
    NoServices,
    NoHardware,
    NoImages,
    IncompatibleServices,
    ServiceNotFound,
    MissingDependency,
    ConflictingServices,
    /// A service is spread over more than one label.
    Spread,
}

/// Finds the preferred layout for a request.
///
/// # Errors
/// The request does not fit the documents, no layout satisfies all rules, or a limit was reached.
pub fn solve(
    catalog: &Catalog,
    request: &LayoutRequest,
    limits: SearchLimits<'_>,
) -> Result<Solution, SolveError> {
    let problem = lower(catalog, request).map_err(SolveError::Invalid)?;
    solve_problem(&problem, limits)
}

/// Finds the preferred layout for a request with a resolved template.
///
/// # Errors
/// As for [`solve`].
pub fn solve_template(
    catalog: &Catalog,
    template: &ResolvedTemplate,
    request: &LayoutRequest,
    limits: SearchLimits<'_>,
) -> Result<Solution, SolveError> {
    let problem = lower_template(catalog, template, request).map_err(SolveError::Invalid)?;
    solve_problem(&problem, limits)
}

/// Finds the smallest feasible size of a request, if any. The size of the request is ignored.
///
/// # Errors
/// The request does not fit the documents, or a limit was reached.
pub fn smallest_size(
    catalog: &Catalog,
    request: &LayoutRequest,
    limits: SearchLimits<'_>,
) -> Result<Option<u32>, SolveError> {
    let template = resolve(catalog, request).map_err(SolveError::Invalid)?;
    let size = template.template.constraints.size.min.unwrap_or(1).max(1);
    let request = LayoutRequest { size, ..request.clone() };
    let problem = lower_template(catalog, &template, &request).map_err(SolveError::Invalid)?;
    smallest(&problem, &Meter::new(limits))
}

/// Converts a request to a problem.
///
/// # Errors
/// All inconsistencies with the documents.
pub fn lower(catalog: &Catalog, request: &LayoutRequest) -> Result<LayoutProblem, Vec<Invalid>> {
    lower_template(catalog, &resolve(catalog, request)?, request)
}

fn resolve(catalog: &Catalog, request: &LayoutRequest) -> Result<ResolvedTemplate, Vec<Invalid>> {
    match catalog.resolve(&request.template) {
        Ok(Some(template)) => Ok(template),
        Ok(None) => {
            let message = format!("template {} does not exist", request.template);
            Err(vec![Invalid::new(InvalidReason::TemplateNotFound, message)])
        }
        Err(problems) => {
            let message = format!("template {} cannot be resolved", request.template);
            Err(vec![Invalid::new(InvalidReason::Template(problems), message)])
        }
    }
}

/// Converts a request with a resolved template to a problem.
///
/// # Errors
/// All inconsistencies with the documents.
pub fn lower_template(
    catalog: &Catalog,
    template: &ResolvedTemplate,
    request: &LayoutRequest,
) -> Result<LayoutProblem, Vec<Invalid>> {
    let lowering = Lowering { catalog, resolved: template, request };
    let mut invalid = Vec::new();
    lowering.check_size(&mut invalid);
    let (hardware, images) = lowering.machines(&mut invalid);
    let services = lowering.services(&mut invalid);
    let rules = lowering.rules(&services);
    lowering.check_spread(&rules, &mut invalid);
    if !invalid.is_empty() {
        return Err(invalid);
    }
    let preferences = &lowering.template().preferences;
    let size = &lowering.template().constraints.size;
    Ok(LayoutProblem {
        size: request.size,
        size_range: (size.min, size.max),
        services: services.iter().map(|name| ClusterService::new(*name)).collect(),
        hardware,
        images,
        rules,
        hardware_preference: preferences.hardwaretypes.clone(),
        image_preference: preferences.imagetypes.clone(),
        prefer_cost: preferences.cost,
        mode: request.mode,
    })
}

struct Lowering<'a> {
    catalog: &'a Catalog,
    resolved: &'a ResolvedTemplate,
    request: &'a LayoutRequest,
}

impl<'a> Lowering<'a> {
    fn template(&self) -> &'a ClusterTemplate {
        &self.resolved.template
    }

    fn location(&self, path: &str) -> RuleLocation {
        RuleLocation {
            document: format!("template {}", self.template().name()),
            path: path.to_owned(),
            source: self.resolved.location(path).cloned(),
        }
    }

    fn service_location(&self, service: &str, path: &str) -> RuleLocation {
        let document = self.catalog.services.get(service);
        RuleLocation {
            document: format!("service {service}"),
            path: path.to_owned(),
            source: document.map(|document| document.location(path)),
        }
    }

    fn check_size(&self, invalid: &mut Vec<Invalid>) {
        let size = self.request.size;
        let range = &self.template().constraints.size;
        let refuse = |message: String| Invalid::new(InvalidReason::Size, message);
        if size < 1 {
            invalid.push(refuse("a cluster needs at least one node".to_owned()));
        } else if let Some(min) = range.min
            && size < min
        {
            let message = format!("size {size} is too small: the template allows {min} and more");
            invalid.push(refuse(message).at(self.location("/constraints/size/min")));
        } else if let Some(max) = range.max
            && size > max
        {
            let message = format!("size {size} is too large: the template allows at most {max}");
            invalid.push(refuse(message).at(self.location("/constraints/size/max")));
        } else if size > MAX_SIZE {
            let message =
                format!("size {size} is too large: clusters have at most {MAX_SIZE} nodes");
            invalid.push(refuse(message));
        }
    }

    fn provider(&self, invalid: &mut Vec<Invalid>) -> Option<&'a str> {
        let defaults = &self.template().defaults;
        let name = self.request.provider.as_deref().or(defaults.provider.as_deref());
        let Some(name) = name else {
            let message = "neither the request nor the template names a provider";
            let problem = Invalid::new(InvalidReason::ProviderNotFound, message);
            invalid.push(problem.at(self.location("/defaults")));
            return None;
        };
        // A directory of templates alone has no providers.
        if !self.catalog.providers.is_empty() && !self.catalog.providers.contains_key(name) {
            let message = format!("provider {name} does not exist");
            let problem = Invalid::new(InvalidReason::ProviderNotFound, message);
            invalid.push(problem.at(self.location("/defaults/provider")));
            return None;
        }
        Some(name)
    }

    /// Hardware and image types that the provider has and the template allows.
    fn machines(&self, invalid: &mut Vec<Invalid>) -> (Vec<Hardware>, Vec<String>) {
        let Some(provider) = self.provider(invalid) else { return Default::default() };
        let (defaults, compatible) = (&self.template().defaults, &self.template().compatibility);
        let allowed = |list: &[String], pin: Option<&String>, name: &String| {
            pin.is_none_or(|pin| pin == name) && (list.is_empty() || list.contains(name))
        };
        let pin = self.request.hardware.as_ref().or(defaults.hardwaretype.as_ref());
        let hardware: Vec<Hardware> = self
            .catalog
            .hardware_types
            .iter()
            .filter(|(name, _)| allowed(&compatible.hardwaretypes, pin, name))
            .filter(|(_, document)| document.body.flavor(provider).is_some())
            .map(|(name, document)| Hardware {
                name: name.clone(),
                cost: document.body.cost(provider).and_then(|cost| scaled(cost, 1e6)),
                cpu: document.body.vcpu(provider).and_then(|vcpu| scaled(vcpu, 1e3)),
                memory: document.body.ram(provider).and_then(|ram| scaled(ram, 1e3)),
                labels: document.body.labels.clone().into_iter().collect(),
            })
            .collect();
        let no_type = |noun: &str, path: &str, reason: InvalidReason, pin: Option<&String>| {
            let template = self.template().name();
            let message = format!(
                "no {noun} types are available to use with template {template} and provider {provider}"
            );
            let problem = Invalid::new(reason, message).at(self.location(path));
            match pin {
                Some(pin) => problem.help(format!("the only requested {noun} type is {pin}")),
                None => problem,
            }
        };
        if hardware.is_empty() {
            let path = "/compatibility/hardwaretypes";
            invalid.push(no_type("hardware", path, InvalidReason::NoHardware, pin));
        }
        let pin = self.request.image.as_ref().or(defaults.imagetype.as_ref());
        let images: Vec<String> = self
            .catalog
            .image_types
            .iter()
            .filter(|(name, _)| allowed(&compatible.imagetypes, pin, name))
            .filter(|(_, document)| document.body.image(provider).is_some())
            .map(|(name, _)| name.clone())
            .collect();
        if images.is_empty() {
            let path = "/compatibility/imagetypes";
            invalid.push(no_type("image", path, InvalidReason::NoImages, pin));
        }
        (hardware, images)
    }

    /// Services of the cluster, sorted; checks that they are compatible.
    fn services(&self, invalid: &mut Vec<Invalid>) -> Vec<&'a str> {
        let template = self.template();
        let names: BTreeSet<&str> = match &self.request.services {
            Some(services) => services.iter().map(String::as_str).collect(),
            None => template.defaults.service_names().collect(),
        };
        if names.is_empty() {
            let message = "the cluster would have no services";
            let problem = Invalid::new(InvalidReason::NoServices, message);
            invalid.push(problem.at(self.location("/defaults/services")));
        }
        let compatible = &template.compatibility.services;
        let is_compatible =
            |name: &&&str| compatible.is_empty() || compatible.iter().any(|known| known == **name);
        let wrong: Vec<&str> = names.iter().filter(|name| !is_compatible(name)).copied().collect();
        if !wrong.is_empty() {
            let verb = if wrong.len() == 1 { "is" } else { "are" };
            let message = format!("{} {verb} incompatible with the cluster", wrong.join(", "));
            let problem = Invalid::new(InvalidReason::IncompatibleServices, message);
            let help = format!("the template allows {}", compatible.join(", "));
            invalid.push(problem.at(self.location("/compatibility/services")).help(help));
        }
        for name in names.iter().filter(|name| !self.catalog.services.contains_key(**name)) {
            let message = format!("service {name} does not exist");
            invalid.push(Invalid::new(InvalidReason::ServiceNotFound, message));
        }
        self.check_dependencies(&names, invalid);
        names.into_iter().collect()
    }

    fn check_dependencies(&self, names: &BTreeSet<&str>, invalid: &mut Vec<Invalid>) {
        let documents = || names.iter().filter_map(|name| self.catalog.services.get(*name));
        let provided: BTreeSet<&str> = documents()
            .flat_map(|document| &document.body.dependencies.provides)
            .map(String::as_str)
            .chain(names.iter().copied())
            .collect();
        for document in documents() {
            let service = document.body.name();
            for required in document.body.required() {
                if !provided.contains(required) {
                    let message = format!(
                        "{service} requires {required}, which is not on the cluster or in the list of services to add."
                    );
                    let problem = Invalid::new(InvalidReason::MissingDependency, message);
                    let choices = self.catalog.providers_of(required);
                    let problem = match choices.as_slice() {
                        [] => problem,
                        [only] => problem.help(format!("add {only} to the services")),
                        more => problem.help(format!("add one of: {}", more.join(", "))),
                    };
                    invalid.push(problem.at(self.service_location(service, "/dependencies")));
                }
            }
            for (at, other) in document.body.dependencies.conflicts.iter().enumerate() {
                if names.contains(other.as_str()) {
                    let message = format!("{service} conflicts with {other}.");
                    let path = format!("/dependencies/conflicts/{at}");
                    let problem = Invalid::new(InvalidReason::ConflictingServices, message);
                    invalid.push(problem.at(self.service_location(service, &path)));
                }
            }
        }
    }

    /// Rules that concern services of the cluster, in the order of the template.
    fn rules(&self, services: &[&str]) -> Vec<Rule> {
        let on_cluster = |name: &str| services.contains(&name);
        let mut rules = Vec::new();
        let mut required: BTreeSet<&str> = BTreeSet::new();
        let mut optional: BTreeSet<&str> = BTreeSet::new();
        let constraints = &self.template().constraints;
        for (service, constraint) in constraints.services.iter().filter(|(s, _)| on_cluster(s)) {
            let base = format!("/constraints/services/{}", escape(service));
            let before = rules.len();
            let mut add = |kind: RuleKind, path: &str| {
                rules.push(Rule::new(kind, self.location(&format!("{base}{path}"))));
            };
            let name = || service.clone();
            let quantities = &constraint.quantities;
            if let Some(count) = quantities.min.filter(|count| *count > 0) {
                add(RuleKind::Min { service: name(), count }, "/quantities/min");
                required.insert(service);
            }
            if let Some(count) = quantities.max {
                add(RuleKind::Max { service: name(), count }, "/quantities/max");
            }
            if let Some(step) = quantities.step.filter(|step| *step > 1) {
                add(RuleKind::Step { service: name(), step }, "/quantities/step");
            }
            for (of, &per) in quantities.ratio.iter().filter(|(of, _)| on_cluster(of)) {
                let path = format!("/quantities/ratio/{}", escape(of));
                let of = of.clone();
                add(RuleKind::Ratio { service: name(), of, per }, &path);
            }
            if !constraint.hardwaretypes.is_empty() {
                let types = constraint.hardwaretypes.iter().cloned().collect();
                add(RuleKind::HardwareTypes { service: name(), types }, "/hardwaretypes");
            }
            if !constraint.imagetypes.is_empty() {
                let types = constraint.imagetypes.iter().cloned().collect();
                add(RuleKind::ImageTypes { service: name(), types }, "/imagetypes");
            }
            if rules.len() == before {
                rules.push(Rule::new(RuleKind::Placed { service: name() }, self.location(&base)));
            }
            if constraint.optional {
                optional.insert(service);
            }
        }
        self.layout_rules(services, &mut rules);
        self.resource_rules(services, &mut rules);
        for service in services {
            if !required.contains(service) && !optional.contains(service) {
                let kind = RuleKind::Requested { service: (*service).to_owned() };
                rules.push(Rule::new(kind, self.request_location(service)));
            }
        }
        rules
    }

    fn request_location(&self, service: &str) -> RuleLocation {
        if self.request.services.is_some() {
            return RuleLocation::new("the request", "/services");
        }
        let position = self.template().defaults.service_names().position(|name| name == service);
        self.location(&format!("/defaults/services/{}", position.unwrap_or(0)))
    }

    fn layout_rules(&self, services: &[&str], rules: &mut Vec<Rule>) {
        let layout = &self.template().constraints.layout;
        let concerns =
            |names: &[String]| names.iter().any(|name| services.contains(&name.as_str()));
        for (at, names) in layout.mustcoexist.iter().enumerate().filter(|(_, n)| concerns(n)) {
            let kind = RuleKind::MustCoexist { services: names.iter().cloned().collect() };
            let location = self.location(&format!("/constraints/layout/mustcoexist/{at}"));
            rules.push(Rule::new(kind, location));
        }
        for (at, names) in layout.cantcoexist.iter().enumerate().filter(|(_, n)| concerns(n)) {
            let kind = RuleKind::CannotCoexist { services: names.iter().cloned().collect() };
            let location = self.location(&format!("/constraints/layout/cantcoexist/{at}"));
            rules.push(Rule::new(kind, location));
        }
        for (at, spread) in layout.spread.iter().enumerate() {
            let path = format!("/constraints/layout/spread/{at}");
            for service in spread.services.iter().filter(|s| services.contains(&s.as_str())) {
                let (service, label) = (service.clone(), spread.label.clone());
                let kind = RuleKind::AntiAffinity { service, label, max: spread.max };
                rules.push(Rule::new(kind, self.location(&path)));
            }
        }
    }

    /// Capacities and ports that services declare themselves.
    fn resource_rules(&self, services: &[&str], rules: &mut Vec<Rule>) {
        let mut ports: BTreeMap<u16, BTreeSet<String>> = BTreeMap::new();
        for service in services {
            let Some(document) = self.catalog.services.get(*service) else { continue };
            let demand = &document.body.resources;
            let cpu = demand.vcpu.and_then(|vcpu| scaled(vcpu, 1e3)).unwrap_or(0);
            let memory = demand.ram.and_then(|ram| scaled(ram, 1e3)).unwrap_or(0);
            if cpu > 0 || memory > 0 {
                let kind = RuleKind::Capacity { service: (*service).to_owned(), cpu, memory };
                rules.push(Rule::new(kind, self.service_location(service, "/resources")));
            }
            for port in &demand.ports {
                ports.entry(*port).or_default().insert((*service).to_owned());
            }
        }
        for (port, services) in ports {
            if services.len() > 1
                && let Some(first) = services.first().cloned()
            {
                let location = self.service_location(&first, "/resources/ports");
                rules.push(Rule::new(RuleKind::Port { port, services }, location));
            }
        }
    }

    /// Checks that services that are placed together are spread over one label only.
    fn check_spread(&self, rules: &[Rule], invalid: &mut Vec<Invalid>) {
        let mut groups: Vec<BTreeSet<&str>> = Vec::new();
        for rule in rules {
            if let RuleKind::MustCoexist { services } = &rule.kind {
                let mut group: BTreeSet<&str> = services.iter().map(String::as_str).collect();
                groups.retain(|known| {
                    let joined = !known.is_disjoint(&group);
                    if joined {
                        group.extend(known);
                    }
                    !joined
                });
                groups.push(group);
            }
        }
        let mut labels: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
        for rule in rules {
            let RuleKind::AntiAffinity { service, label, .. } = &rule.kind else { continue };
            let group = groups.iter().find(|group| group.contains(service.as_str()));
            let leader = group.and_then(|group| group.first().copied()).unwrap_or(service);
            let (first, known) = *labels.entry(leader).or_insert((service, label));
            if known != label {
                let message = if first == service {
                    format!(
                        "{service} is spread over {known} and {label}, but one label is the limit"
                    )
                } else {
                    format!(
                        "{service} is spread over {label}, and {first}, which shares its nodes, over {known}; one label is the limit"
                    )
                };
                let problem = Invalid::new(InvalidReason::Spread, message);
                invalid.push(problem.at(rule.location.clone()));
            }
        }
    }
}

/// A fixed-point number; `None` if it is negative or far too large.
fn scaled(value: f64, unit: f64) -> Option<u64> {
    let scaled = (value * unit).round();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    (scaled.is_finite() && (0.0..1e15).contains(&scaled)).then_some(scaled as u64)
}

/// Escapes a step of a JSON pointer.
fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
