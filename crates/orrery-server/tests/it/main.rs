//! The tests of the server, through its API.

mod accounts;
mod support;
