//! Decisions about unknown effects.

use orrery_api::{SettleChoice, SettleRequest};
use orrery_model::ResourceId;
use orrery_store::{
    EffectVerdict, EnvironmentRecord, NewRequest, RequestKind, RequestRecord, Selection,
};
use uuid::Uuid;

use crate::error::ServerError;
use crate::services::Services;

use super::environments::{check_not_deleting, check_takes_requests};

/// Settles an unknown effect: it counts as done, or its resource runs again.
pub(crate) async fn settle(
    services: &Services,
    environment: &EnvironmentRecord,
    request: &SettleRequest,
) -> Result<RequestRecord, ServerError> {
    check_not_deleting(environment)?;
    let id: Result<ResourceId, _> = request.resource.parse();
    let id = id.map_err(|error| ServerError::field("resource", error.to_string()))?;
    check_takes_requests(environment)?;
    let choice = match request.choice {
        SettleChoice::Done => EffectVerdict::Done,
        SettleChoice::Again => EffectVerdict::RunAgain,
    };
    let (key, now, uuid) = (environment.key, services.now(), Uuid::new_v4().into());
    let settled = services.change(move |store| {
        let selection = Selection::of_ids([id.as_str()]);
        let kind = &RequestKind::Deploy { selection, verify: false };
        let request = NewRequest { uuid, kind };
        store.effects().resolve(key, id.as_str(), choice, &request, now)
    });
    Ok(settled.await?)
}
