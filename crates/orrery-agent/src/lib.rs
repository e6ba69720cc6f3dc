//! The remote agent: it dials in to a gateway, gets self-contained commands, runs native handlers on its machine, and answers. It never
//! initiates anything.
//!
//! Start from [`protocol`], which the gateway uses too. It knows nothing of stores, environments or models.

pub mod journal;
pub mod protocol;
pub mod token;
mod wire;
