//! The server: api, process and gateway roles.
