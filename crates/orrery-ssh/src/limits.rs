//! Limits of connections, so that no peer holds more than its share of time and memory.

use std::time::Duration;

/// Limits of a client and of each of its connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Time for name resolution, TCP and jump hosts.
    pub connect: Duration,
    /// Time for key exchange and host key.
    pub handshake: Duration,
    /// Time for authentication.
    pub authentication: Duration,
    /// Time for the answer to the opening of a channel or the start of a command.
    pub channel: Duration,
    /// Interval of keepalive messages on a silent connection.
    pub keepalive: Duration,
    /// Unanswered keepalive messages before a connection counts as lost.
    pub keepalives_max: usize,
    /// Unused connections are closed after this time.
    pub idle: Duration,
    /// Bytes that a peer may send before it is authenticated.
    pub unauthenticated_bytes: u64,
    /// Bytes of a command that are read and dropped beyond its limit, before it is ended.
    pub dropped_bytes: u64,
    /// Sessions at once on a connection, as `MaxSessions` of OpenSSH's server by default.
    pub sessions: usize,
    /// Handshakes at once, over all destinations.
    pub handshakes: usize,
    /// Handshakes at once with one host or through one jump host; OpenSSH's server drops
    /// connections from 10 on (`MaxStartups`).
    pub handshakes_per_host: usize,
    /// Attempts at once to reach machines again that were lost, over all destinations: a part of
    /// the handshakes, so that machines that stay away do not hold up the others.
    pub probes: usize,
    /// Shortest time between two new connections, over all destinations.
    pub connection_interval: Duration,
    /// Time after which a machine that could not run a helper is asked again.
    pub helper_retry: Duration,
    /// The same on a new connection: the machine may have been mended or replaced.
    pub helper_retry_reconnected: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        ConnectionLimits {
            connect: Duration::from_secs(10),
            handshake: Duration::from_secs(15),
            authentication: Duration::from_secs(30),
            channel: Duration::from_secs(30),
            keepalive: Duration::from_secs(15),
            keepalives_max: 3,
            idle: Duration::from_mins(10),
            unauthenticated_bytes: 512 * 1024,
            dropped_bytes: 256 * 1024 * 1024,
            sessions: 10,
            handshakes: 64,
            handshakes_per_host: 8,
            probes: 16,
            connection_interval: Duration::from_millis(2),
            helper_retry: Duration::from_mins(10),
            helper_retry_reconnected: Duration::from_mins(1),
        }
    }
}
