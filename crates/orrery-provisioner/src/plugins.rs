//! Plug-ins of this installation, by type.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::plugin::{
    MachineProvider, PluginError, PluginKind, PluginManifest, ServiceAutomator, check_fields,
    describe_problems,
};
use crate::redacted::RedactedMap;

/// Providers and automators by type.
#[derive(Clone, Default)]
pub struct Plugins {
    providers: BTreeMap<String, Arc<dyn MachineProvider>>,
    automators: BTreeMap<String, Arc<dyn ServiceAutomator>>,
}

impl fmt::Debug for Plugins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.manifests().map(|manifest| manifest.name.clone());
        f.debug_set().entries(names).finish()
    }
}

impl Plugins {
    /// Adds a provider; the last one of a name wins.
    pub fn add_provider(&mut self, provider: Arc<dyn MachineProvider>) {
        self.providers.insert(provider.manifest().name.clone(), provider);
    }

    /// Adds an automator; the last one of a name wins.
    pub fn add_automator(&mut self, automator: Arc<dyn ServiceAutomator>) {
        self.automators.insert(automator.manifest().name.clone(), automator);
    }

    /// All manifests, providers first, sorted by name. They serialize to the schemas of forms.
    pub fn manifests(&self) -> impl Iterator<Item = &PluginManifest> {
        let providers = self.providers.values().map(|provider| provider.manifest());
        providers.chain(self.automators.values().map(|automator| automator.manifest()))
    }

    /// Returns the manifest of a plug-in.
    ///
    /// # Errors
    /// If there is none; the text names those that there are.
    pub fn manifest(&self, kind: PluginKind, name: &str) -> Result<&PluginManifest, PluginError> {
        match kind {
            PluginKind::Provider => self.provider(name).map(|provider| provider.manifest()),
            PluginKind::Automator => self.automator(name).map(|automator| automator.manifest()),
        }
    }

    /// Checks the fields of a provider or of the action of a service, and adds defaults.
    ///
    /// # Errors
    /// If there is no such plug-in, or a field is unknown, missing or malformed.
    pub fn check_fields(
        &self,
        kind: PluginKind,
        name: &str,
        admin: &Map<String, Value>,
        user: &Map<String, Value>,
    ) -> Result<RedactedMap, PluginError> {
        let manifest = self.manifest(kind, name)?;
        check_fields(manifest, admin, user).map_err(|problems| {
            PluginError::new(describe_problems(&problems))
                .with_hint(format!("correct the fields of the {}", owner_of(kind)))
        })
    }

    /// # Errors
    /// If there is none.
    pub fn provider(&self, name: &str) -> Result<&Arc<dyn MachineProvider>, PluginError> {
        let found = self.providers.get(name);
        found.ok_or_else(|| unknown("provider", name, self.providers.keys()))
    }

    /// # Errors
    /// If there is none.
    pub fn automator(&self, name: &str) -> Result<&Arc<dyn ServiceAutomator>, PluginError> {
        let found = self.automators.get(name);
        found.ok_or_else(|| unknown("automator", name, self.automators.keys()))
    }
}

fn owner_of(kind: PluginKind) -> &'static str {
    match kind {
        PluginKind::Provider => "provider",
        PluginKind::Automator => "service",
    }
}

fn unknown<'n>(what: &str, name: &str, names: impl Iterator<Item = &'n String>) -> PluginError {
    let names: Vec<&str> = names.map(String::as_str).collect();
    let all = if names.is_empty() { "there are none".to_owned() } else { names.join(", ") };
    PluginError::new(format!("there is no {what} plug-in {name}"))
        .with_hint(format!("{what} plug-ins of this installation: {all}"))
}
