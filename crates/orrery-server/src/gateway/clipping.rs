//! What agents tell of themselves, for people: short, and fit to be shown and kept.

use orrery_agent::protocol::Machine;

const TEXT_MAX: usize = 200;

/// The beginning of a text, without what is no character to be seen.
pub(super) fn clipped_text(text: &str) -> String {
    text.chars().filter(|one| !one.is_control()).take(TEXT_MAX).collect()
}

pub(super) fn clipped(machine: Machine) -> Machine {
    let Machine { host_name, system, distribution, architecture } = machine;
    Machine {
        host_name: clipped_text(&host_name),
        system: clipped_text(&system),
        distribution: clipped_text(&distribution),
        architecture: clipped_text(&architecture),
    }
}
