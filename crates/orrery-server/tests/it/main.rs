//! The server through its public interfaces.

mod access;
mod accounts;
mod api;
mod audit;
mod canary;
mod classic;
mod contents;
mod engines;
mod gateway;
mod health;
mod issuers;
mod limits;
mod logins;
mod process;
mod secrets;
mod support;
mod tls;
