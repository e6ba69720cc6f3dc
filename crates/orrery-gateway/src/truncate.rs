//! Truncates and sanitizes text that agents report about themselves.

use orrery_agent::protocol::Machine;

const TEXT_MAX: usize = 200;

/// Truncates a text and removes control characters.
pub(super) fn truncate_text(text: &str) -> String {
    text.chars().filter(|one| !one.is_control()).take(TEXT_MAX).collect()
}

pub(super) fn truncate_machine(machine: Machine) -> Machine {
    let Machine { host_name, system, distribution, architecture } = machine;
    Machine {
        host_name: truncate_text(&host_name),
        system: truncate_text(&system),
        distribution: truncate_text(&distribution),
        architecture: truncate_text(&architecture),
    }
}
