//! What the roles of a server share, below all of them.
//!
//! | module | contents |
//! |---|---|
//! | `services` | the store from asynchronous code, the clock, wake-ups, the end of the process |
//! | `change_stream` | stream of new changes, shared by all subscribers |
//! | `vault` | secrets, sealed with a key that is not in the database |
//! | `listener`, `tls` | connections with deadlines and fair slots; certificates |
//! | `body` | request bodies with limits of size, time and memory |
//! | `settings` | settings of environments: one table, and typed values |
//! | `isolation` | isolation of tenant code from the server |
//! | `network` | networks of clients, for trust and for rate limits |
//! | `token_hash` | stored form of random tokens |
//!
//! It knows no route, no account and no engine. Start with [`services::Services`]. Tests are beside the
//! code, and in `orrery-server`.

pub mod body;
pub mod change_stream;
pub mod isolation;
pub mod listener;
pub mod network;
pub mod services;
pub mod settings;
pub mod tls;
pub mod token_hash;
pub mod vault;
