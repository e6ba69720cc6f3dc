//! The gateway role in this process: its context, and the audit log of enrolments.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request};
use orrery_gateway::{
    EnrolmentAudit, EnrolmentNote, GatewayContext, GatewayError, GatewayOptions, GatewayRole,
};

use crate::auth::{AuditNote, RequestAudit};
use crate::state::ServerState;

/// Starts the gateway role.
///
/// # Errors
/// If it cannot listen, or an address is invalid.
pub async fn start_gateway(
    state: &ServerState,
    options: GatewayOptions,
) -> Result<GatewayRole, GatewayError> {
    let context = GatewayContext {
        services: (**state).clone(),
        vault: state.vault().clone(),
        changes: Arc::clone(state.change_stream()),
        budgets: Arc::clone(state.budgets()),
        registry: Arc::clone(state.agent_sessions()),
        peers: Arc::clone(state.peers()),
        audit: audit_enrolments(state.clone()),
    };
    GatewayRole::start(context, options).await
}

/// Records every attempt to enrol.
fn audit_enrolments(state: ServerState) -> EnrolmentAudit {
    Arc::new(move |request: Request, next| {
        let state = state.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let route = parts.extensions.get::<MatchedPath>().map_or("", MatchedPath::as_str);
            let mut audit = RequestAudit::begin(state.auth(), &parts, route).for_public_route();
            let mut response = next.run(Request::from_parts(parts, body)).await;
            if let Some(note) = response.extensions_mut().remove::<EnrolmentNote>() {
                let EnrolmentNote { actor, subject, environment, detail } = note;
                if let Some(environment) = environment {
                    audit.set_environment(environment);
                }
                response.extensions_mut().insert(AuditNote { actor, subject, detail });
            }
            audit.finish(state.auth(), &mut response).await;
            response
        })
    })
}
