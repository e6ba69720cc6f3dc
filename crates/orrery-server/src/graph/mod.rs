//! The dependency graph of an environment: what to draw of it, and where.
//!
//! | module | contents |
//! |---|---|
//! | `snapshot` | the graph in memory, cached by environment |
//! | `selection` | the resources that a request draws, within its limits |
//! | `groups` | groups of resources, and the edges between them |
//! | `layout` | columns and coordinates of any graph |
//! | `view` | answers, from the graph, a selection and its layout |
//!
//! All but the cache is pure: the same graph and request give the same answer.

mod groups;
mod layout;
mod selection;
mod snapshot;
mod view;

#[cfg(test)]
mod tests;

pub(crate) use selection::{DrawnPart, GraphFilter, GraphQuery};
pub(crate) use snapshot::{DependencyGraph, GraphCache, Index};
pub(crate) use view::draw;
