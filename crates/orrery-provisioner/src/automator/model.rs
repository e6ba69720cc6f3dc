//! Automator `model`: native resources, applied by the native handlers on the node.
//!
//! The field `resources` is a list of `{type, id, attributes}` in the order in which they are
//! applied. `remove` and `stop` purge them in the reverse order; `probe` succeeds if all are as
//! desired.

use orrery_handlers::run::{HandlerRun, Purpose, RunContext};
use orrery_handlers::{BeforeChange, LocalSecrets, NoContents, Registry, TargetCache, clock::now};
use orrery_model::{
    Attributes, ChangeKind, LogLevel, Outcome, OutcomeStatus, Resource, ResourceId, VersionNumber,
};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::plugin::{
    ActionOutput, ActionRun, FieldFormat, FieldSchema, PluginError, PluginKind, PluginManifest,
    ServiceAutomator,
};
use crate::task::TaskAction;

/// Native resources on the node.
#[derive(Debug)]
pub struct ModelAutomator {
    manifest: PluginManifest,
    registry: Registry,
}

/// One entry of the field `resources`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ResourceEntry {
    #[serde(rename = "type")]
    entity: String,
    attributes: Map<String, Value>,
}

impl Default for ModelAutomator {
    fn default() -> Self {
        ModelAutomator::new()
    }
}

impl ModelAutomator {
    pub fn new() -> Self {
        let manifest = PluginManifest::new(
            PluginKind::Automator,
            "model",
            "Resources",
            "Files, packages, services and other native resources on the node.",
        )
        .field(
            "resources",
            FieldSchema::new(
                "Resources",
                FieldFormat::Json,
                "List of {type, attributes}, such as std::File, in their order.",
            ),
        )
        .requires(&["resources"]);
        ModelAutomator { manifest, registry: Registry::native() }
    }

    fn entries(run: &ActionRun<'_>) -> Result<Vec<ResourceEntry>, PluginError> {
        let failed =
            |error: serde_json::Error| PluginError::new(format!("the field resources: {error}"));
        let value = run.fields.get("resources").cloned().unwrap_or_default();
        match value.as_str() {
            Some(text) => serde_json::from_str(text).map_err(failed),
            None => serde_json::from_value(value).map_err(failed),
        }
    }

    /// Builds a resource from an entry.
    fn resource(
        &self,
        run: &ActionRun<'_>,
        entry: &ResourceEntry,
        purged: bool,
    ) -> Result<Resource, PluginError> {
        let entity = &entry.entity;
        let declaration = self.registry.declaration(entity).ok_or_else(|| {
            PluginError::new(format!("there is no native resource {entity}"))
                .with_hint("see the list of resources: std::File, std::Directory, std::Service, …")
        })?;
        let name = &*declaration.id_attribute;
        let id = entry.attributes.get(name).and_then(Value::as_str).ok_or_else(|| {
            PluginError::new(format!("a resource {entity} needs the attribute {name}"))
        })?;
        let id: ResourceId =
            format!("{entity}[{},{name}={id}]", run.task.node).parse().map_err(|error| {
                PluginError::new(format!("{id:?} cannot identify a {entity}: {error}"))
            })?;
        let mut attributes = entry.attributes.clone();
        if purged {
            attributes.insert("purged".to_owned(), Value::Bool(true));
        }
        let attributes = Attributes::parse(&Value::Object(attributes).to_string())
            .map_err(|error| PluginError::new(format!("the attributes of {id}: {error}")))?;
        Ok(Resource::new(id, attributes, Vec::new()))
    }

    fn apply(
        &self,
        run: &ActionRun<'_>,
        resource: &Resource,
        purpose: Purpose,
    ) -> Result<Outcome, PluginError> {
        let entity = resource.id.entity();
        let handler = self
            .registry
            .handler(entity)
            .ok_or_else(|| PluginError::new(format!("there is no handler for {entity}")))?;
        let announce = || Ok(());
        let handler_run = HandlerRun {
            purpose,
            resource,
            version: VersionNumber(1),
            epoch: None,
            deployed_before: false,
            changed_dependencies: &[],
            reason: &"an action of a cluster",
            stop: run.stop,
            before_change: Some(BeforeChange(&announce)),
            effects: None,
        };
        let cache = TargetCache::new();
        let context = RunContext {
            cache: &cache,
            contents: &NoContents,
            secrets: &LocalSecrets,
            clock: &now,
            log_level: LogLevel::Info,
            server: None,
        };
        let done = handler_run.run(&**handler, &*run.access.target, &context);
        let outcome = done.outcome;
        if outcome.status == OutcomeStatus::Deployed {
            return Ok(outcome);
        }
        let text = outcome.log.last().map_or("it failed", |line| &line.message);
        let error = PluginError::new(format!("{}: {text}", resource.id));
        Err(PluginError { is_unclear: done.unclear, ..error })
    }
}

impl ServiceAutomator for ModelAutomator {
    fn manifest(&self) -> &PluginManifest {
        &self.manifest
    }

    fn run(&self, run: &ActionRun<'_>) -> Result<ActionOutput, PluginError> {
        if run.action == TaskAction::Bootstrap {
            return Ok(ActionOutput::default());
        }
        let is_purge = matches!(run.action, TaskAction::Remove | TaskAction::Stop);
        let purpose =
            if run.action == TaskAction::Probe { Purpose::DryRun } else { Purpose::Deploy };
        let entries = ModelAutomator::entries(run)?;
        // All are checked before the first is applied.
        let mut resources = entries
            .iter()
            .map(|entry| self.resource(run, entry, is_purge))
            .collect::<Result<Vec<_>, _>>()?;
        if is_purge {
            resources.reverse();
        }
        let mut stdout = String::new();
        for resource in &resources {
            let outcome = self.apply(run, resource, purpose)?;
            if outcome.change.kind == ChangeKind::NoChange {
                continue;
            }
            let names: Vec<&str> =
                outcome.change.attributes.iter().map(|change| &*change.name).collect();
            let line = format!("{}: {:?} {}", resource.id, outcome.change.kind, names.join(", "));
            if purpose == Purpose::DryRun {
                return Err(PluginError::new(format!("not as desired: {}", line.trim_end())));
            }
            stdout.push_str(line.trim_end());
            stdout.push('\n');
        }
        if purpose == Purpose::Deploy {
            run.access.target.sync()?;
        }
        Ok(ActionOutput { stdout, stderr: String::new() })
    }
}
