//! The export, seen through the public interface: models in memory, resources and problems out.

mod code;
mod identity;
mod left_out;
mod models;
mod pages;
mod properties;
mod reference;
mod values;
