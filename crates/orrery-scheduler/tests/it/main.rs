//! The scheduler as its driver sees it. `world` is the harness; the other modules are behaviours by theme.
//! Numbers in comments are those of the list of promised behaviours.

mod blocking;
mod events;
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
mod why;
mod world;
