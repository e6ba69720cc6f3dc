//! Clusters: the documents of administrators, the solver that turns a template and a size into a
//! layout, and the planner that turns a change of layouts into ordered steps. Pure computation: no
//! file, network or clock.

pub mod document;
pub mod intent;
pub mod macros;
pub mod planner;
pub mod preview;
pub mod render;
pub mod solver;
