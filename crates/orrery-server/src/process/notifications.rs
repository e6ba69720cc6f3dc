//! Notifications about parked resources and unknown effects.

use orrery_model::{ResourceId, ResourceState, Timestamp};
use orrery_store::{EnvironmentKey, NewNotification, NotificationFilter, Store, StoreError};

const TITLE: &str = "Resources were parked";
const SEVERITY: &str = "warning";
/// Maximum number of ids in a notification.
const NAMES_MAX: usize = 20;
/// Notifications searched for the latest one about parked resources.
const SEARCHED: usize = 200;

/// Notifies about parked resources, each with its number of attempts.
pub(super) fn notify_parked(
    store: &Store,
    environment: EnvironmentKey,
    parked: &[(ResourceId, u32)],
    now: Timestamp,
) -> Result<(), StoreError> {
    if parked.is_empty() {
        return Ok(());
    }
    let listed = parked.iter().take(NAMES_MAX);
    let mut lines: Vec<String> = listed
        .map(|(id, attempts)| {
            let times =
                if *attempts == 1 { "once".to_owned() } else { format!("{attempts} times") };
            format!("{id} failed {times}")
        })
        .collect();
    if parked.len() > NAMES_MAX {
        lines.push(format!("and {} more", parked.len() - NAMES_MAX));
    }
    let message = format!(
        "{}\n\nThey are not retried automatically. A deploy, a repair or a new desired state retries them.",
        lines.join("\n")
    );
    let new = NewNotification {
        uuid: uuid::Uuid::new_v4().into(),
        title: TITLE,
        message: &message,
        severity: SEVERITY,
        uri: "",
        compile: None,
    };
    store.notifications().add(environment, &new, now)
}

/// Notifies about resources with an unknown effect.
pub(super) fn notify_unknown_effects(
    store: &Store,
    environment: EnvironmentKey,
    unknown: &[ResourceId],
    now: Timestamp,
) -> Result<(), StoreError> {
    if unknown.is_empty() {
        return Ok(());
    }
    let mut lines: Vec<String> =
        unknown.iter().take(NAMES_MAX).map(ResourceId::to_string).collect();
    if unknown.len() > NAMES_MAX {
        lines.push(format!("and {} more", unknown.len() - NAMES_MAX));
    }
    let message = format!(
        "{}\n\nThey were started, and their outcomes are lost. They must not run twice, so each of them \
         waits for a decision: `orrery settle --done RESOURCE` counts it as done, `orrery settle --again \
         RESOURCE` runs it again.",
        lines.join("\n")
    );
    let new = NewNotification {
        uuid: uuid::Uuid::new_v4().into(),
        title: "Outcomes are unknown",
        message: &message,
        severity: SEVERITY,
        uri: "",
        compile: None,
    };
    store.notifications().add(environment, &new, now)
}

/// Notifies about resources that drifted, and that their policy does not repair by itself.
pub(super) fn notify_drifted(
    store: &Store,
    environment: EnvironmentKey,
    drifted: &[ResourceId],
    now: Timestamp,
) -> Result<(), StoreError> {
    let mut lines: Vec<String> =
        drifted.iter().take(NAMES_MAX).map(ResourceId::to_string).collect();
    if drifted.len() > NAMES_MAX {
        lines.push(format!("and {} more", drifted.len() - NAMES_MAX));
    }
    let message = format!(
        "{}\n\nThey were changed, and no deploy did that. `orrery why RESOURCE` shows what differs. `orrery \
         repair --filter RESOURCE` restores the desired state; change the model to keep the new one.",
        lines.join("\n")
    );
    let new = NewNotification {
        uuid: uuid::Uuid::new_v4().into(),
        title: "Resources drifted",
        message: &message,
        severity: SEVERITY,
        uri: "",
        compile: None,
    };
    store.notifications().add(environment, &new, now)
}

/// Notifies about resources that a former process parked without a notification.
pub(super) fn notify_missed<'a>(
    store: &Store,
    environment: EnvironmentKey,
    states: impl Iterator<Item = (&'a ResourceId, &'a ResourceState)>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let parked: Vec<_> = states.filter(|(_, state)| state.parked).collect();
    if parked.is_empty() {
        return Ok(());
    }
    let filter = NotificationFilter { severity: Some(SEVERITY), ..NotificationFilter::default() };
    let existing = store.notifications().list(environment, &filter, None, SEARCHED)?;
    let notified_at = existing.iter().find(|one| one.title == TITLE).map(|one| one.created);
    let missed: Vec<(ResourceId, u32)> = parked
        .into_iter()
        .filter(|(_, state)| state.last_run_at > notified_at)
        .map(|(id, state)| (id.clone(), state.attempts))
        .collect();
    notify_parked(store, environment, &missed, now)
}
