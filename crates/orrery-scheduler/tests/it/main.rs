//! The scheduler as its driver sees it. `world` is the harness; the other modules are behaviours by theme.

mod scheduling;
mod world;
