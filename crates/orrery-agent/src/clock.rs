//! The clock of the machine.

use orrery_model::Timestamp;

#[expect(
    clippy::disallowed_methods,
    reason = "the agent is the rim: certificates end and commands are logged in real time"
)]
pub(crate) fn now() -> Timestamp {
    Timestamp::from_system(std::time::SystemTime::now())
}
