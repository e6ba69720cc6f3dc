//! Plugins of another host than the built-in one, seen through the public interface: what the host is
//! asked, calls that wait, and everything that a call can come to.

mod calls;
mod loading;
mod small_host;
mod types;
