//! Tests of the scheduler's public interface. `world` is the harness; the other modules are
//! behaviours by theme. Numbers in comments refer to the list of promised behaviours.

mod blocking;
mod events;
mod explain;
mod limits;
mod random;
mod recovery;
mod reference;
mod reference_changes;
mod releases;
mod scheduling;
mod steps;
mod timers;
mod versions;
mod world;
