//! The server through its public interfaces.

#![allow(clippy::disallowed_methods, reason = "tests and measurements run in real time")]

mod access;
mod accounts;
mod api;
mod audit;
mod canary;
mod contents;
mod engines;
mod gateway;
mod health;
mod inmanta_api;
mod jwt;
mod limits;
mod logins;
mod process;
mod secrets;
mod support;
mod tls;
