//! Resources that failed as often as they may, and are not tried again by themselves: people are told.

use orrery_model::{ResourceId, ResourceState, Timestamp};
use orrery_store::{EnvironmentKey, NewNotification, NotificationFilter, Records, StoreError};

const TITLE: &str = "Resources were parked";
const SEVERITY: &str = "warning";
/// Names that a notification lists.
const NAMES_MAX: usize = 20;
/// Notifications that are searched for the last one about parked resources.
const SEARCHED: usize = 200;

/// Tells of resources that were parked, each with the number of its failed attempts.
pub(super) fn announce(
    records: Records<'_>,
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
        "{}\n\nThey are not tried again by themselves. A deploy, a repair or a new desired state starts them again.",
        lines.join("\n")
    );
    let new = NewNotification {
        uuid: uuid::Uuid::new_v4().into_bytes(),
        title: TITLE,
        message: &message,
        severity: SEVERITY,
        uri: "",
        compile: None,
    };
    records.add_notification(environment, &new, now)
}

/// Tells of resources of whose effect nobody knows whether it happened.
pub(super) fn announce_unknown(
    records: Records<'_>,
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
        "{}\n\nThey were begun, and their results were lost. They must not be done twice, so that they are not run again until \
         somebody decides for each: `orrery settle --done RESOURCE` counts it as done, `orrery settle --again RESOURCE` has it run again.",
        lines.join("\n")
    );
    let new = NewNotification {
        uuid: uuid::Uuid::new_v4().into_bytes(),
        title: "Outcomes are unknown",
        message: &message,
        severity: SEVERITY,
        uri: "",
        compile: None,
    };
    records.add_notification(environment, &new, now)
}

/// Makes up for what was parked by a process that did not come to telling it.
pub(super) fn announce_missed<'a>(
    records: Records<'_>,
    environment: EnvironmentKey,
    states: impl Iterator<Item = (&'a ResourceId, &'a ResourceState)>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let parked: Vec<_> = states.filter(|(_, state)| state.parked).collect();
    if parked.is_empty() {
        return Ok(());
    }
    let filter = NotificationFilter { severity: Some(SEVERITY), ..NotificationFilter::default() };
    let told = records.notifications(environment, &filter, None, SEARCHED)?;
    let told_at = told.iter().find(|one| one.title == TITLE).map(|one| one.created);
    let missed: Vec<(ResourceId, u32)> = parked
        .into_iter()
        .filter(|(_, state)| state.last_run_at > told_at)
        .map(|(id, state)| (id.clone(), state.attempts))
        .collect();
    announce(records, environment, &missed, now)
}
