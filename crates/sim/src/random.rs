//! Numbers from a seed: addresses, uuids, process ids. The same seed gives the same world.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// A small generator (splitmix64); good enough for names, never for secrets.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below the bound.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// A hardware address with the given prefix.
    pub(crate) fn mac(&mut self, prefix: &str) -> String {
        let n = self.next();
        let mut mac = prefix.trim_end_matches(':').to_ascii_uppercase();
        let missing = 6_usize.saturating_sub(mac.split(':').count());
        for shift in 0..missing {
            let _infallible = write!(mac, ":{:02X}", (n >> (8 * shift)) & 0xff);
        }
        mac
    }

    /// A version 4 uuid.
    pub(crate) fn uuid(&mut self) -> String {
        let a = self.next();
        let b = self.next();
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            a >> 32,
            (a >> 16) & 0xffff,
            a & 0xfff,
            0x8000 | ((b >> 48) & 0x3fff),
            b & 0xffff_ffff_ffff
        )
    }
}
