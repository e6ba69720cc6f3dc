//! Resolves templates with everything that they extend and include.

use std::collections::BTreeMap;

use indexmap::IndexSet;

use super::catalog::{Catalog, Document};
use super::problem::{CatalogProblem, DocumentLocation, ProblemKind, step};
use super::template::{ClusterTemplate, Compatibility, DefaultService, Defaults, PartialTemplate};

/// Maximum length of a chain of `extends`.
const EXTENDS_MAX: usize = 100;

/// A template with everything that it extends and includes, and the location of each value.
#[derive(Clone, Debug, Default)]
pub struct ResolvedTemplate {
    pub template: ClusterTemplate,
    locations: BTreeMap<String, DocumentLocation>,
}

impl ResolvedTemplate {
    /// The location of a value by its JSON pointer in the resolved template, or of the nearest
    /// enclosing value.
    pub fn location(&self, path: &str) -> Option<&DocumentLocation> {
        let mut path = path;
        loop {
            if let Some(location) = self.locations.get(path) {
                return Some(location);
            }
            path = &path[..path.rfind('/')?];
        }
    }
}

enum Layer<'c> {
    Full(&'c Document<ClusterTemplate>),
    Partial(&'c Document<PartialTemplate>),
}

impl Catalog {
    /// Resolves a template for clusters: the parent's includes, the parent, the template's
    /// includes, and the template itself, each completing its predecessors.
    ///
    /// # Errors
    /// Undefined names, cycles, and changes of immutable settings. An undefined template name is
    /// not an error.
    pub fn resolve(&self, name: &str) -> Result<Option<ResolvedTemplate>, Vec<CatalogProblem>> {
        let Some(document) = self.templates.get(name) else { return Ok(None) };
        let mut chain = vec![document];
        let mut problems = Vec::new();
        let mut newest = document;
        while let Some(parent) = &newest.body.extends {
            let Some(found) = self.templates.get(&parent.name) else { break };
            let is_known = |one: &&Document<ClusterTemplate>| one.file == found.file;
            if chain.iter().any(is_known) || chain.len() > EXTENDS_MAX {
                problems.push(template_cycle(&chain, newest));
                return Err(problems);
            }
            chain.push(found);
            newest = found;
        }
        let mut layers = Vec::new();
        for template in chain.iter().rev() {
            for include in &template.body.includes {
                layers.extend(self.partial_templates.get(&include.name).map(Layer::Partial));
            }
            layers.push(Layer::Full(template));
        }
        let merged = merge(document, &layers, &mut problems);
        if problems.is_empty() { Ok(Some(merged)) } else { Err(problems) }
    }
}

fn template_cycle(
    chain: &[&Document<ClusterTemplate>],
    last: &Document<ClusterTemplate>,
) -> CatalogProblem {
    let mut names: Vec<&str> = chain.iter().map(|one| one.body.name()).collect();
    let again = last.body.extends.as_ref().map_or("", |parent| &parent.name);
    let start = names.iter().position(|name| *name == again).unwrap_or(0);
    names.push(again);
    let message = format!("templates extend each other: {}", names[start..].join(" → "));
    let mut problem =
        CatalogProblem::error(ProblemKind::TemplateCycle, last.location("/extends/name"), message);
    for one in chain[start..].iter().filter(|one| one.file != last.file) {
        let parent = one.body.extends.as_ref().map_or("", |parent| &parent.name);
        let label = format!("{} extends {parent}", one.body.name());
        problem = problem.related(one.location("/extends/name"), label);
    }
    problem
}

/// The template under construction.
struct Merge<'p> {
    result: ResolvedTemplate,
    services: IndexSet<String>,
    /// Immutable configuration keys and the location at which they were set.
    immutable: BTreeMap<String, (String, DocumentLocation)>,
    problems: &'p mut Vec<CatalogProblem>,
}

fn merge(
    document: &Document<ClusterTemplate>,
    layers: &[Layer<'_>],
    problems: &mut Vec<CatalogProblem>,
) -> ResolvedTemplate {
    let mut merge = Merge {
        result: ResolvedTemplate::default(),
        services: IndexSet::new(),
        immutable: BTreeMap::new(),
        problems,
    };
    let template = &mut merge.result.template;
    template.info = document.body.info.clone();
    template.extends = document.body.extends.clone();
    template.includes = document.body.includes.clone();
    for key in ["", "/name", "/extends", "/includes"] {
        merge.result.locations.insert(key.to_owned(), document.location(key));
    }
    for layer in layers {
        match layer {
            Layer::Partial(partial) => {
                merge.defaults(*partial, &partial.body.defaults);
                merge.compatibility(*partial, &partial.body.compatibility);
                if partial.body.immutable {
                    for key in partial.body.defaults.full_config().keys() {
                        let location = partial.location(&step("/defaults/config", key));
                        let owner = partial.body.info.name.clone();
                        merge.immutable.entry(key.clone()).or_insert((owner, location));
                    }
                }
            }
            Layer::Full(full) => {
                merge.defaults(*full, &full.body.defaults);
                merge.compatibility(*full, &full.body.compatibility);
                merge.merge_rest(full);
            }
        }
    }
    let names = merge.services.into_iter().map(DefaultService::Name);
    merge.result.template.defaults.services = names.collect();
    merge.result
}

impl Merge<'_> {
    fn defaults<T>(&mut self, document: &Document<T>, layer: &Defaults) {
        for (at, service) in layer.services.iter().enumerate() {
            let location = document.location(&format!("/defaults/services/{at}"));
            let (index, _) = self.services.insert_full(service.name().to_owned());
            let path = format!("/defaults/services/{index}");
            self.result.locations.entry(path).or_insert(location);
        }
        let merged = &mut self.result.template.defaults;
        let fields = [
            ("provider", &mut merged.provider, &layer.provider),
            ("hardwaretype", &mut merged.hardwaretype, &layer.hardwaretype),
            ("imagetype", &mut merged.imagetype, &layer.imagetype),
            ("dnsSuffix", &mut merged.dns_suffix, &layer.dns_suffix),
        ];
        for (field, merged, layer) in fields {
            if layer.as_ref().is_some_and(|text| !text.trim().is_empty()) {
                merged.clone_from(layer);
                let path = format!("/defaults/{field}");
                self.result.locations.insert(path.clone(), document.location(&path));
            }
        }
        for (key, value) in layer.full_config() {
            let path = step("/defaults/config", &key);
            let location = document.location(&path);
            if let Some((owner, first)) = self.immutable.get(&key) {
                let message =
                    format!("`{key}` cannot be set here: {owner} includes it as immutable");
                let problem =
                    CatalogProblem::error(ProblemKind::ImmutableSetting, location.clone(), message);
                self.problems.push(problem.related(first.clone(), format!("set by {owner}")));
            }
            self.result.template.defaults.config.insert(key, value);
            self.result.locations.insert(path, location);
        }
    }

    fn compatibility<T>(&mut self, document: &Document<T>, layer: &Compatibility) {
        let merged = &mut self.result.template.compatibility;
        let fields = [
            ("hardwaretypes", &mut merged.hardwaretypes, &layer.hardwaretypes),
            ("imagetypes", &mut merged.imagetypes, &layer.imagetypes),
            ("services", &mut merged.services, &layer.services),
        ];
        for (field, merged, layer) in fields {
            let whole = format!("/compatibility/{field}");
            if !layer.is_empty() {
                self.result.locations.insert(whole.clone(), document.location(&whole));
            }
            for (at, name) in layer.iter().enumerate() {
                if !merged.contains(name) {
                    let path = format!("{whole}/{}", merged.len());
                    self.result.locations.insert(path, document.location(&format!("{whole}/{at}")));
                    merged.push(name.clone());
                }
            }
        }
    }

    /// Constraints, administration, preferences and links, which partial templates cannot set.
    fn merge_rest(&mut self, document: &Document<ClusterTemplate>) {
        let layer = &document.body;
        let merged = &mut self.result.template;
        if layer.constraints.size != Default::default() {
            merged.constraints.size = layer.constraints.size;
            self.record_locations(document, "/constraints/size");
        }
        for (name, constraint) in &layer.constraints.services {
            let services = &mut self.result.template.constraints.services;
            services.insert(name.clone(), constraint.clone());
            self.record_locations(document, &step("/constraints/services", name));
        }
        let rules = &layer.constraints.layout;
        let merged = &mut self.result.template.constraints.layout;
        let mut moved: Vec<(String, String)> = Vec::new();
        let lists = [
            ("mustcoexist", &mut merged.mustcoexist, &rules.mustcoexist),
            ("cantcoexist", &mut merged.cantcoexist, &rules.cantcoexist),
        ];
        for (field, merged, layer) in lists {
            for (at, rule) in layer.iter().enumerate() {
                if !merged.contains(rule) {
                    let path = format!("/constraints/layout/{field}");
                    moved.push((format!("{path}/{at}"), format!("{path}/{}", merged.len())));
                    merged.push(rule.clone());
                }
            }
        }
        for (at, rule) in rules.spread.iter().enumerate() {
            if !merged.spread.contains(rule) {
                let path = "/constraints/layout/spread";
                moved.push((format!("{path}/{at}"), format!("{path}/{}", merged.spread.len())));
                merged.spread.push(rule.clone());
            }
        }
        for (from, to) in moved {
            self.result.locations.insert(to, document.location(&from));
        }
        let merged = &mut self.result.template;
        if layer.administration != Default::default() {
            merged.administration = layer.administration.clone();
            self.record_locations(document, "/administration");
        }
        let merged = &mut self.result.template;
        if layer.preferences != Default::default() {
            merged.preferences = layer.preferences.clone();
            self.record_locations(document, "/preferences");
        }
        let merged = &mut self.result.template;
        for (at, link) in layer.links.iter().enumerate() {
            if !merged.links.contains(link) {
                let path = format!("/links/{}", merged.links.len());
                self.result.locations.insert(path, document.location(&format!("/links/{at}")));
                merged.links.push(link.clone());
            }
        }
    }

    /// Records the locations of a value that replaces another one.
    fn record_locations(&mut self, document: &Document<ClusterTemplate>, path: &str) {
        let inside = format!("{path}/");
        let locations = &mut self.result.locations;
        locations.retain(|known, _| !known.starts_with(&inside));
        locations.insert(path.to_owned(), document.location(path));
        for known in document.locations.0.keys().filter(|known| known.starts_with(&inside)) {
            locations.insert(known.clone(), document.location(known));
        }
    }
}
