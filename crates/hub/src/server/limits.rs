//! How much and how long connections may take, each with its reason. Tests use shorter times and smaller numbers.

use std::time::Duration;

/// The limits of a server.
#[derive(Debug, Clone, Copy)]
pub struct ServeLimits {
    /// Open connections: three times the hosts the hub is measured with. The unit's `LimitNOFILE` is above it.
    pub connections: usize,
    /// Connections that have shown no credential yet. Strangers can fill this and then only keep other strangers out.
    pub strangers: usize,
    /// The same from one address, or of IPv6 from one network of 64 bits.
    pub strangers_per_address: usize,
    /// Places kept for addresses from which a good credential came within the last hour.
    pub kept: usize,
    /// The same from one address.
    pub kept_per_address: usize,
    /// How long a TLS handshake may take.
    pub handshake_time: Duration,
    /// How long a client may take over the headers of a request; also how long it may keep a connection without asking.
    pub headers_time: Duration,
    /// How long a client may take no byte of an answer.
    pub stall_time: Duration,
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self {
            connections: 16_000,
            strangers: 2_000,
            strangers_per_address: 64,
            kept: 4_000,
            kept_per_address: 1_000,
            handshake_time: Duration::from_secs(10),
            headers_time: Duration::from_secs(15),
            stall_time: Duration::from_secs(20),
        }
    }
}
