//! `cluster::Toolchain`: what the automators of a node need on its machine is there.

use std::sync::Arc;

use orrery_base::hex::to_hex;
use orrery_cluster::render::ToolchainAttributes;
use orrery_handlers::{Context, Crud, HandlerError, changed};
use orrery_model::AttributeDiff;
use sha2::{Digest as _, Sha256};

use super::ClusterServices;
use super::calls::NodeCalls;
use crate::node_state::StateChange;
use crate::redacted::RedactedMap;
use crate::task::{PluginInvocation, ServiceCall, ServiceWork, TaskAction, Work};

pub(super) struct ToolchainHandler(pub(super) Arc<ClusterServices>);

/// Digest of everything that a bootstrap puts on a machine.
fn digest(desired: &ToolchainAttributes) -> String {
    let mut text = String::new();
    for automator in &desired.automators {
        text.push_str(&format!("{automator}\n"));
    }
    for (name, digest) in &desired.plugin_resources {
        text.push_str(&format!("{name} {digest}\n"));
    }
    to_hex(&Sha256::digest(text))
}

impl ToolchainHandler {
    fn bootstrap(
        &self,
        desired: &ToolchainAttributes,
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        let calls = NodeCalls::new(&self.0, &desired.node)?;
        let mut calls = calls.with_plugin_resources(&desired.plugin_resources);
        let last = desired.automators.len().saturating_sub(1);
        for (at, automator) in desired.automators.iter().enumerate() {
            let call = ServiceCall {
                action: TaskAction::Bootstrap,
                automator: PluginInvocation {
                    plugin: automator.clone(),
                    fields: RedactedMap::default(),
                },
            };
            // The whole is recorded with its last part.
            let record = match at == last {
                true => vec![StateChange::Toolchain { digest: digest(desired) }],
                false => Vec::new(),
            };
            let config = RedactedMap::default();
            let (service, once) = (None, None);
            let work = ServiceWork { service, call: Some(call), config, once, record };
            calls.run(Work::Act(work), context)?;
        }
        Ok(())
    }
}

impl Crud for ToolchainHandler {
    type Desired = ToolchainAttributes;
    /// Digest of the last bootstrap.
    type Current = String;

    fn is_purged(desired: &ToolchainAttributes) -> bool {
        desired.node.purged
    }

    fn read(
        &self,
        desired: &ToolchainAttributes,
        context: &mut Context<'_>,
    ) -> Result<Option<String>, HandlerError> {
        if desired.node.purged {
            return Ok(None);
        }
        if desired.automators.is_empty() {
            return Ok(Some(digest(desired)));
        }
        let mut calls = NodeCalls::new(&self.0, &desired.node)?;
        if calls.facts()?.is_none() {
            return super::service::without_machine(context).map(|()| None);
        }
        let work = Work::Inspect { service: None, probe: None };
        let state = calls.run(work, context)?.state.unwrap_or_default();
        if state.toolchain.is_none() && context.is_dry_run() {
            context.info(format!("would bootstrap {}", desired.automators.join(", ")));
        }
        Ok(state.toolchain)
    }

    fn diff(
        &self,
        desired: &ToolchainAttributes,
        current: &String,
        context: &mut Context<'_>,
    ) -> Result<Vec<AttributeDiff>, HandlerError> {
        let digest = digest(desired);
        if *current == digest {
            return Ok(Vec::new());
        }
        if context.is_dry_run() {
            context.info(format!("would bootstrap {}", desired.automators.join(", ")));
        }
        Ok(vec![changed("digest", current.as_str(), digest)])
    }

    fn create(
        &self,
        desired: &ToolchainAttributes,
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        self.bootstrap(desired, context)
    }

    fn update(
        &self,
        desired: &ToolchainAttributes,
        _: &String,
        _: &[AttributeDiff],
        context: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        self.bootstrap(desired, context)
    }

    fn delete(
        &self,
        _: &ToolchainAttributes,
        _: &String,
        _: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        Ok(())
    }
}
