//! What holds for all handlers, and what each of them does: on a machine in memory, and in a directory of
//! this one.

mod accounts;
mod commands;
mod documents;
mod files;
mod harness;
mod laws;
mod packages;
mod requests;
mod services;
