//! Attributes of rendered resources as canonical JSON text.
//!
//! A cluster has hundreds of thousands of resources with mostly equal attributes, so the text is
//! assembled from parts that are serialized once. Tests compare it with the structures that the
//! handlers read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use orrery_model::Attributes;
use serde::Serialize;
use serde_json::{Map, Value};

use super::ActionAttributes;
use super::digest::{Digests, canonical, used_resources};
use super::draft::Kind;
use super::view::View;
use crate::document::ServiceAction;

/// An object whose keys are added in ascending order.
struct Object(String);

impl Object {
    fn new() -> Self {
        let mut text = String::with_capacity(640);
        text.push('{');
        Object(text)
    }

    /// Adds entries that are already text: `"key":value`, joined by commas.
    fn entries(&mut self, text: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push_str(text);
    }

    fn raw(&mut self, key: &str, value: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push('"');
        self.0.push_str(key);
        self.0.push_str("\":");
        self.0.push_str(value);
    }

    /// Adds a text without characters that JSON escapes.
    fn plain(&mut self, key: &str, value: &str) {
        self.raw(key, "\"");
        self.0.push_str(value);
        self.0.push('"');
    }

    fn number(&mut self, key: &str, value: u64) {
        self.raw(key, "");
        // Writing to memory cannot fail.
        let _ = write!(self.0, "{value}");
    }

    fn flag(&mut self, key: &str, value: bool) {
        self.raw(key, if value { "true" } else { "false" });
    }

    fn finish(mut self) -> Attributes {
        self.0.push('}');
        Attributes::from_canonical(self.0)
    }
}

fn json(value: &(impl Serialize + ?Sized)) -> String {
    // Documents come from JSON, so that they can be written as JSON.
    serde_json::to_string(value).unwrap_or_default()
}

/// Serialized parts that nodes share.
struct ServiceParts {
    name: String,
    config: String,
    /// By action.
    actions: BTreeMap<ServiceAction, String>,
    resources: BTreeMap<ServiceAction, String>,
}

struct NodeParts {
    /// `hostname` to `number`.
    identity: String,
    ssh_user: String,
    /// Quoted, for `once`.
    once: String,
}

pub(super) struct Writer<'v, 'i> {
    view: &'v View<'i>,
    digests: &'v Digests<'v, 'i>,
    /// `cluster` and `cluster_name`.
    cluster: String,
    /// `provider` to `provider_type`.
    provider: String,
    /// All plug-in resources.
    resources: String,
    services: Vec<ServiceParts>,
    nodes: Vec<NodeParts>,
}

/// State of one resource apart from its node and service.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mode {
    pub(super) purged: bool,
    /// False for a purged resource of a service that stays: its action is not undone.
    pub(super) has_undo: bool,
    pub(super) is_up: bool,
}

impl<'v, 'i> Writer<'v, 'i> {
    pub(super) fn new(view: &'v View<'i>, digests: &'v Digests<'v, 'i>) -> Self {
        let intent = view.intent;
        let provider = &intent.provider;
        let fields: Map<String, Value> =
            provider.provisioner.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        let services = view.services.iter().enumerate().map(|(number, service)| {
            let mut parts = ServiceParts {
                name: json(service.name),
                config: digests.services[number].config.clone(),
                actions: BTreeMap::new(),
                resources: BTreeMap::new(),
            };
            for (kind, action) in &service.document.provisioner.actions {
                let fields = action.fields.iter();
                let fields = fields.map(|(key, value)| (key.clone(), Value::from(value.clone())));
                let attributes = ActionAttributes {
                    name: action_name(*kind).to_owned(),
                    automator: action.automator.clone(),
                    fields: fields.collect(),
                };
                let object = match serde_json::to_value(attributes) {
                    Ok(Value::Object(object)) => canonical(object),
                    _ => "null".to_owned(),
                };
                parts.actions.insert(*kind, object);
                let used = used_resources(action, &intent.plugin_resources);
                parts.resources.insert(*kind, json(&used));
            }
            parts
        });
        let nodes = view.nodes.iter().map(|node| NodeParts {
            identity: format!(
                r#""hostname":{},"incarnation":{},"node":{},"number":{}"#,
                json(&node.node.hostname),
                node.node.incarnation,
                json(node.name),
                node.node.number
            ),
            ssh_user: json(&node.node.ssh_user),
            once: format!("\"{}#{}/", node.name, node.node.incarnation),
        });
        Writer {
            cluster: format!(
                r#""cluster":{},"cluster_name":{}"#,
                json(&intent.cluster),
                json(&intent.name)
            ),
            provider: format!(
                r#""provider":{},"provider_fields":{},"provider_type":{}"#,
                json(&provider.info.name),
                canonical(fields),
                json(&provider.providertype)
            ),
            resources: json(&intent.plugin_resources),
            services: services.collect(),
            nodes: nodes.collect(),
            view,
            digests,
        }
    }

    /// Attributes of the machine and of its reachability.
    pub(super) fn machine(&self, node: usize, purged: bool) -> Attributes {
        let (view, parts) = (&self.view.nodes[node], &self.nodes[node]);
        let mut object = Object::new();
        object.entries(&self.cluster);
        object.raw("flavor", &json(&view.node.flavor));
        object.raw("hardwaretype", &json(&view.node.hardwaretype));
        // `hostname`, `image`, `imagetype` and `incarnation` are in this order.
        let (hostname, rest) = parts.identity.split_once(",\"incarnation\"").unwrap_or_default();
        object.entries(hostname);
        object.raw("image", &json(&view.node.image));
        object.raw("imagetype", &json(&view.node.imagetype));
        object.raw("incarnation", rest.strip_prefix(':').unwrap_or_default());
        object.entries(&self.provider);
        object.flag("purged", purged);
        let services: Vec<&str> =
            view.services.iter().map(|(number, _)| self.view.services[*number].name).collect();
        object.raw("services", &json(&services));
        object.raw("ssh_user", &parts.ssh_user);
        object.finish()
    }

    pub(super) fn toolchain(&self, node: usize, purged: bool) -> Attributes {
        let (view, parts) = (&self.view.nodes[node], &self.nodes[node]);
        let services = view.services.iter().map(|(number, _)| &self.view.services[*number]);
        let actions = services.flat_map(|service| service.document.provisioner.actions.values());
        let automators: BTreeSet<&str> = actions.map(|action| action.automator.as_str()).collect();
        let mut object = Object::new();
        object.raw("automators", &json(&automators));
        object.entries(&self.cluster);
        object.entries(&parts.identity);
        object.raw("plugin_resources", &self.resources);
        object.entries(&self.provider);
        object.flag("purged", purged);
        object.raw("ssh_user", &parts.ssh_user);
        object.finish()
    }

    /// Attributes of a resource of a service.
    pub(super) fn service(
        &self,
        node: usize,
        service: usize,
        kind: Kind,
        mode: Mode,
    ) -> Attributes {
        use ServiceAction::{Configure, Initialize, Install, Probe, Remove, Start, Stop};
        let (parts, shared) = (&self.nodes[node], &self.services[service]);
        let digests = &self.digests.services[service];
        let state = self.view.nodes[node].state(service);
        let configured;
        let (action, undo, digest) = match kind {
            Kind::Installed => (Some(Install), Some(Remove), &digests.installed),
            Kind::Quiesced => (None, Some(Stop), &digests.quiesced),
            Kind::Configured => {
                configured = self.digests.configured(node, service);
                (Some(Configure), None, &configured)
            }
            Kind::Initialized => (Some(Initialize), None, &digests.initialized),
            _ => (Some(Start), Some(Stop), &digests.running),
        };
        let undo = undo.filter(|_| mode.has_undo);
        let text = |action: Option<ServiceAction>| {
            action.and_then(|action| shared.actions.get(&action)).map_or("null", String::as_str)
        };
        let has_generation = matches!(kind, Kind::Quiesced | Kind::Running);
        let generation = state.map_or(0, |state| state.generation);
        let mut object = Object::new();
        object.raw("action", text(action));
        object.entries(&self.cluster);
        object.raw("config", &shared.config);
        object.plain("digest", digest);
        object.number("generation", if has_generation { generation } else { 0 });
        object.entries(&parts.identity);
        if kind == Kind::Initialized {
            let epoch = state.map_or(0, |state| state.epoch);
            let name = &self.view.services[service].name;
            object.raw("once", &format!("{}{name}@{epoch}\"", parts.once));
        } else {
            object.raw("once", "null");
        }
        let resources = action.or(undo).and_then(|action| shared.resources.get(&action));
        object.raw("plugin_resources", resources.map_or("{}", String::as_str));
        let probe = (kind == Kind::Running && !mode.purged).then_some(Probe);
        object.raw("probe", text(probe));
        object.entries(&self.provider);
        object.flag("purged", mode.purged);
        let tells_state = matches!(kind, Kind::Initialized | Kind::Running);
        object.flag("running", !tells_state || (mode.is_up && !mode.purged));
        object.raw("service", &shared.name);
        object.raw("ssh_user", &parts.ssh_user);
        object.raw("undo", text(undo));
        object.finish()
    }
}

/// Attributes of a barrier.
pub(super) fn barrier(
    cluster: &str,
    service: &str,
    state: &str,
    digest: &str,
    purged: bool,
) -> Attributes {
    let mut object = Object::new();
    object.raw("cluster", &json(cluster));
    object.plain("digest", digest);
    object.flag("purged", purged);
    object.raw("service", &json(service));
    object.plain("state", state);
    object.finish()
}

fn action_name(action: ServiceAction) -> &'static str {
    match action {
        ServiceAction::Install => "install",
        ServiceAction::Configure => "configure",
        ServiceAction::Initialize => "initialize",
        ServiceAction::Start => "start",
        ServiceAction::Stop => "stop",
        ServiceAction::Remove => "remove",
        ServiceAction::Probe => "probe",
    }
}
