//! Places for connections that have shown no credential yet, by where they come from.
//!
//! ```text
//!  strangers, so many of each address ─┐
//!                                      ├──> a credential is shown ──> known: no place here any more
//!  known addresses, a pool of their own┘
//! ```
//!
//! Whoever floods the hub from a few networks takes the places of those networks; from many, those of strangers. Addresses from which
//! a good credential came within the last hour have places kept for them, so that hosts and people who were here come back.

use std::collections::HashMap;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderName};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::limits::ServeLimits;

/// How long an address is remembered from which a good credential came.
const KNOWN_FOR: Duration = Duration::from_hours(1);
/// How many are remembered; then those that are too old go, and then no more are taken in.
const KNOWN_MAX: usize = 100_000;

/// A network: an address and how many of its bits count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressRange {
    address: u128,
    bits: u32,
}

fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_ipv6_mapped()),
        IpAddr::V6(v6) => u128::from(v6),
    }
}

/// The first so many bits of an address.
fn prefix(address: u128, bits: u32) -> u128 {
    if bits == 0 { 0 } else { address >> (128 - bits) << (128 - bits) }
}

impl AddressRange {
    /// Whether an address is in it.
    pub fn holds(self, address: IpAddr) -> bool {
        prefix(bits_of(address), self.bits) == prefix(self.address, self.bits)
    }
}

impl FromStr for AddressRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no address, such as 10.0.0.5 or 10.0.0.0/24");
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let whole = if address.is_ipv4() { 32 } else { 128 };
        let length = match length {
            Some(length) => {
                length.parse().ok().filter(|length| *length <= whole).ok_or_else(wrong)?
            }
            None => whole,
        };
        Ok(Self { address: bits_of(address), bits: 128 - whole + length })
    }
}

/// Proxies whose word counts for where a request comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedProxies {
    /// Where they are.
    pub ranges: Vec<AddressRange>,
    /// The header in which each of them adds the address it was asked from.
    pub header: HeaderName,
}

impl Default for TrustedProxies {
    fn default() -> Self {
        Self { ranges: Vec::new(), header: HeaderName::from_static("x-forwarded-for") }
    }
}

impl TrustedProxies {
    fn holds(&self, address: IpAddr) -> bool {
        self.ranges.iter().any(|range| range.holds(address))
    }

    /// Where a request comes from: the last address in the header that is no proxy of ours, if it came by one. What stands
    /// before that address anyone can have written.
    pub(super) fn client(&self, from: IpAddr, headers: &HeaderMap) -> IpAddr {
        if !self.holds(from) {
            return from;
        }
        let lines = headers.get_all(&self.header).iter().filter_map(|line| line.to_str().ok());
        let told: Vec<&str> = lines.flat_map(|line| line.split(',')).map(str::trim).collect();
        let mut client = from;
        for text in told.into_iter().rev() {
            let Ok(address) = text.parse::<IpAddr>() else { return client };
            client = address.to_canonical();
            if !self.holds(client) {
                return client;
            }
        }
        client
    }
}

/// What counts as one address: of IPv6 the first 64 bits, which whoever has one address there has all of.
pub(super) fn group_of(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            format!("{a:x}:{b:x}:{c:x}:{d:x}::/64")
        }
    }
}

/// The places of connections that are not known yet. Cheap to clone.
#[derive(Clone)]
pub(super) struct AddressPlaces {
    limits: ServeLimits,
    strangers: Arc<Semaphore>,
    kept: Arc<Semaphore>,
    table: Arc<Mutex<AddressTable>>,
    proxies: Arc<TrustedProxies>,
}

#[derive(Default)]
struct AddressTable {
    /// Connections that have shown nothing yet, by where they come from.
    waiting: HashMap<String, usize>,
    /// When a good credential came from there last.
    known: HashMap<String, Instant>,
}

/// The place of one connection, until it is known or over.
pub(super) struct AddressPlace {
    places: AddressPlaces,
    group: String,
    _permit: OwnedSemaphorePermit,
}

impl AddressPlaces {
    pub(super) fn new(limits: ServeLimits, proxies: TrustedProxies) -> Self {
        Self {
            limits,
            strangers: Arc::new(Semaphore::new(limits.strangers)),
            kept: Arc::new(Semaphore::new(limits.kept)),
            table: Arc::default(),
            proxies: Arc::new(proxies),
        }
    }

    /// A place for a connection; none if all that it may have are taken.
    pub(super) fn enter(&self, from: IpAddr) -> Option<AddressPlace> {
        let group = group_of(from);
        let is_known = self.is_known(&group);
        // Behind a proxy everybody has one address: how many connections each of them has is the proxy's to bound.
        let most = match (self.proxies.holds(from), is_known) {
            (true, _) => usize::MAX,
            (false, true) => self.limits.kept_per_address,
            (false, false) => self.limits.strangers_per_address,
        };
        let kept = || self.kept.clone().try_acquire_owned().ok();
        let stranger = || self.strangers.clone().try_acquire_owned().ok();
        let permit = if is_known { kept().or_else(stranger) } else { stranger() };
        let permit = permit?;
        let mut table = self.table();
        let waiting = table.waiting.entry(group.clone()).or_default();
        if *waiting >= most {
            return None;
        }
        *waiting += 1;
        drop(table);
        Some(AddressPlace { places: self.clone(), group, _permit: permit })
    }

    fn is_known(&self, group: &str) -> bool {
        self.table().known.get(group).is_some_and(|at| at.elapsed() < KNOWN_FOR)
    }

    /// A good credential came from there.
    pub(super) fn remember(&self, from: IpAddr) {
        let mut table = self.table();
        if table.known.len() >= KNOWN_MAX {
            table.known.retain(|_, at| at.elapsed() < KNOWN_FOR);
        }
        if table.known.len() < KNOWN_MAX {
            table.known.insert(group_of(from), Instant::now());
        }
    }

    /// Where a request comes from, as limits count it.
    pub(super) fn client_group(&self, from: IpAddr, headers: &HeaderMap) -> String {
        group_of(self.proxies.client(from, headers))
    }

    fn table(&self) -> MutexGuard<'_, AddressTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AddressPlace {
    fn drop(&mut self) {
        let mut table = self.places.table();
        let Some(waiting) = table.waiting.get_mut(&self.group) else { return };
        *waiting -= 1;
        if *waiting == 0 {
            table.waiting.remove(&self.group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> ServeLimits {
        let strangers = 6;
        let strangers_per_address = 2;
        let kept = 3;
        let kept_per_address = 2;
        ServeLimits {
            strangers,
            strangers_per_address,
            kept,
            kept_per_address,
            ..ServeLimits::default()
        }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn z17_a_network_takes_its_own_places_and_a_64_counts_as_one() {
        let places = AddressPlaces::new(limits(), TrustedProxies::default());
        let first = places.enter(ip("2001:db8:1:2::1")).unwrap();
        let _second = places.enter(ip("2001:db8:1:2:ffff::9")).unwrap();
        assert!(places.enter(ip("2001:db8:1:2:3::3")).is_none(), "the same 64 bits");
        let _next = places.enter(ip("2001:db8:1:3::1")).unwrap();
        let _four = places.enter(ip("10.0.0.1")).unwrap();
        drop(first);
        assert!(places.enter(ip("2001:db8:1:2:3::3")).is_some(), "given back");
        assert_eq!(group_of(ip("::ffff:10.0.0.1")), "10.0.0.1", "the same as written otherwise");
    }

    #[test]
    fn z17_who_was_here_has_a_place_however_many_strangers_come() {
        let places = AddressPlaces::new(limits(), TrustedProxies::default());
        places.remember(ip("10.9.9.9"));
        let flood: Vec<_> =
            (0..200_u8).filter_map(|n| places.enter(IpAddr::from([10, 0, 0, n]))).collect();
        assert_eq!(flood.len(), 6, "all places of strangers are taken");
        assert!(places.enter(ip("10.8.8.8")).is_none());
        let back: Vec<_> = (0..9).filter_map(|_| places.enter(ip("10.9.9.9"))).collect();
        assert_eq!(back.len(), 2, "and no more than its own");
        drop((flood, back));
        assert!(places.table().waiting.is_empty(), "nothing is left of who went");
    }

    #[test]
    fn z17_a_header_counts_from_a_proxy_that_root_named_and_from_nobody_else() {
        let ranges = vec!["10.0.0.0/24".parse().unwrap(), "fd00::1".parse().unwrap()];
        let proxies = TrustedProxies { ranges, ..TrustedProxies::default() };
        let asked = |from: &str, told: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("x-forwarded-for", told.parse().unwrap());
            proxies.client(ip(from), &headers)
        };
        assert_eq!(asked("192.0.2.1", "198.51.100.7"), ip("192.0.2.1"), "no proxy of ours");
        assert_eq!(asked("10.0.0.5", "198.51.100.7"), ip("198.51.100.7"));
        assert_eq!(
            asked("10.0.0.5", "203.0.113.9, 198.51.100.7"),
            ip("198.51.100.7"),
            "forged before"
        );
        assert_eq!(asked("10.0.0.5", "198.51.100.7, fd00::1"), ip("198.51.100.7"), "two proxies");
        assert_eq!(asked("10.0.0.5", "nonsense"), ip("10.0.0.5"));
        assert_eq!(asked("10.0.1.5", "198.51.100.7"), ip("10.0.1.5"), "beside the range");
        for wrong in ["", "10.0.0.0/33", "host", "::1/129", "10.0.0.0/-1"] {
            assert!(wrong.parse::<AddressRange>().is_err(), "{wrong}");
        }
        assert!("::/0".parse::<AddressRange>().unwrap().holds(ip("192.0.2.1")));
    }
}
