//! The wall clock in the model's type, for all crates that act in real time.

use orrery_model::Timestamp;

/// Returns the current time. Code that must be repeatable gets it handed in.
pub fn now() -> Timestamp {
    Timestamp::from_system(orrery_base::clock::wall())
}
