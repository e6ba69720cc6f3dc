//! Plugins of a host other than the built-in one, through the public interface: questions to the
//! host, calls that wait, and all outcomes of a call.

mod calls;
mod loading;
mod test_host;
mod types;
