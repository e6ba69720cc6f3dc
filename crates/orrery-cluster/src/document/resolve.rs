//! Templates with everything that they extend and include.

use std::collections::BTreeMap;

use indexmap::IndexSet;

use super::catalog::{Catalog, Document};
use super::problem::{Place, Problem, ProblemKind, step};
use super::template::{ClusterTemplate, Compatibility, DefaultService, Defaults, PartialTemplate};

/// Longer chains of `extends` are refused.
const EXTENDS_MAX: usize = 100;

/// A template with everything that it extends and includes, and the place of each value.
#[derive(Clone, Debug, Default)]
pub struct ResolvedTemplate {
    pub template: ClusterTemplate,
    places: BTreeMap<String, Place>,
}

impl ResolvedTemplate {
    /// The place of a value by its JSON pointer in the resolved template, or of the nearest one around it.
    pub fn place(&self, path: &str) -> Option<&Place> {
        let mut path = path;
        loop {
            if let Some(place) = self.places.get(path) {
                return Some(place);
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
    /// A template as clusters use it: the parent's includes, the parent, the template's includes, and the template
    /// itself, each completing what comes before.
    ///
    /// # Errors
    /// Names that do not exist, circles, and settings that must not be changed. No template has that name: no problem.
    pub fn resolve(&self, name: &str) -> Result<Option<ResolvedTemplate>, Vec<Problem>> {
        let Some(document) = self.templates.get(name) else { return Ok(None) };
        let mut chain = vec![document];
        let mut problems = Vec::new();
        let mut newest = document;
        while let Some(parent) = &newest.body.extends {
            let Some(found) = self.templates.get(&parent.name) else { break };
            let is_known = |one: &&Document<ClusterTemplate>| one.file == found.file;
            if chain.iter().any(is_known) || chain.len() > EXTENDS_MAX {
                problems.push(circle(&chain, newest));
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

fn circle(chain: &[&Document<ClusterTemplate>], last: &Document<ClusterTemplate>) -> Problem {
    let mut names: Vec<&str> = chain.iter().map(|one| one.body.name()).collect();
    let again = last.body.extends.as_ref().map_or("", |parent| &parent.name);
    let start = names.iter().position(|name| *name == again).unwrap_or(0);
    names.push(again);
    let message = format!("templates extend each other: {}", names[start..].join(" → "));
    let mut problem =
        Problem::error(ProblemKind::TemplateCycle, last.place("/extends/name"), message);
    for one in chain[start..].iter().filter(|one| one.file != last.file) {
        let parent = one.body.extends.as_ref().map_or("", |parent| &parent.name);
        let label = format!("{} extends {parent}", one.body.name());
        problem = problem.related(one.place("/extends/name"), label);
    }
    problem
}

/// The template under construction.
struct Merge<'p> {
    result: ResolvedTemplate,
    services: IndexSet<String>,
    /// Configuration keys that must not be set again, and where they were.
    immutable: BTreeMap<String, (String, Place)>,
    problems: &'p mut Vec<Problem>,
}

fn merge(
    document: &Document<ClusterTemplate>,
    layers: &[Layer<'_>],
    problems: &mut Vec<Problem>,
) -> ResolvedTemplate {
    let mut merge = Merge {
        result: ResolvedTemplate::default(),
        services: IndexSet::new(),
        immutable: BTreeMap::new(),
        problems,
    };
    let template = &mut merge.result.template;
    template.about = document.body.about.clone();
    template.extends = document.body.extends.clone();
    template.includes = document.body.includes.clone();
    for key in ["", "/name", "/extends", "/includes"] {
        merge.result.places.insert(key.to_owned(), document.place(key));
    }
    for layer in layers {
        match layer {
            Layer::Partial(partial) => {
                merge.defaults(*partial, &partial.body.defaults);
                merge.compatibility(*partial, &partial.body.compatibility);
                if partial.body.immutable {
                    for key in partial.body.defaults.full_config().keys() {
                        let place = partial.place(&step("/defaults/config", key));
                        let owner = partial.body.about.name.clone();
                        merge.immutable.entry(key.clone()).or_insert((owner, place));
                    }
                }
            }
            Layer::Full(full) => {
                merge.defaults(*full, &full.body.defaults);
                merge.compatibility(*full, &full.body.compatibility);
                merge.rest(full);
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
            let place = document.place(&format!("/defaults/services/{at}"));
            let (index, _) = self.services.insert_full(service.name().to_owned());
            let path = format!("/defaults/services/{index}");
            self.result.places.entry(path).or_insert(place);
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
                self.result.places.insert(path.clone(), document.place(&path));
            }
        }
        for (key, value) in layer.full_config() {
            let path = step("/defaults/config", &key);
            let place = document.place(&path);
            if let Some((owner, first)) = self.immutable.get(&key) {
                let message =
                    format!("`{key}` cannot be set here: {owner} includes it as immutable");
                let problem = Problem::error(ProblemKind::ImmutableSetting, place.clone(), message);
                self.problems.push(problem.related(first.clone(), format!("set by {owner}")));
            }
            self.result.template.defaults.config.insert(key, value);
            self.result.places.insert(path, place);
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
                self.result.places.insert(whole.clone(), document.place(&whole));
            }
            for (at, name) in layer.iter().enumerate() {
                if !merged.contains(name) {
                    let path = format!("{whole}/{}", merged.len());
                    self.result.places.insert(path, document.place(&format!("{whole}/{at}")));
                    merged.push(name.clone());
                }
            }
        }
    }

    /// Constraints, administration, preferences and links, which partial templates have no say in.
    fn rest(&mut self, document: &Document<ClusterTemplate>) {
        let layer = &document.body;
        let merged = &mut self.result.template;
        if layer.constraints.size != Default::default() {
            merged.constraints.size = layer.constraints.size;
            self.keep(document, "/constraints/size");
        }
        for (name, constraint) in &layer.constraints.services {
            let services = &mut self.result.template.constraints.services;
            services.insert(name.clone(), constraint.clone());
            self.keep(document, &step("/constraints/services", name));
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
            self.result.places.insert(to, document.place(&from));
        }
        let merged = &mut self.result.template;
        if layer.administration != Default::default() {
            merged.administration = layer.administration.clone();
            self.keep(document, "/administration");
        }
        let merged = &mut self.result.template;
        if layer.preferences != Default::default() {
            merged.preferences = layer.preferences.clone();
            self.keep(document, "/preferences");
        }
        let merged = &mut self.result.template;
        for (at, link) in layer.links.iter().enumerate() {
            if !merged.links.contains(link) {
                let path = format!("/links/{}", merged.links.len());
                self.result.places.insert(path, document.place(&format!("/links/{at}")));
                merged.links.push(link.clone());
            }
        }
    }

    /// Takes over the places of a value that replaces what was there.
    fn keep(&mut self, document: &Document<ClusterTemplate>, path: &str) {
        let inside = format!("{path}/");
        let places = &mut self.result.places;
        places.retain(|known, _| !known.starts_with(&inside));
        places.insert(path.to_owned(), document.place(path));
        for known in document.places.0.keys().filter(|known| known.starts_with(&inside)) {
            places.insert(known.clone(), document.place(known));
        }
    }
}
