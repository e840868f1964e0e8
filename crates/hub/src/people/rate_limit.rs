//! How often somebody may try: buckets by account and by address, each filled again at a steady pace.
//!
//! Asked before anything costly is done for somebody who has not shown who they are. It is kept in memory: a replica that
//! restarts forgets, which gives nobody more than one more burst. It never holds more than so many names, whoever draws
//! them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How many names are remembered. A name costs about a hundred bytes; who sends more names than this from one network is
/// stopped by the limit of addresses first.
const NAMES_MAX: usize = 10_000;

/// How often somebody may try.
#[derive(Debug)]
pub(crate) struct RateLimit {
    burst: u32,
    refill: Duration,
    buckets: Mutex<HashMap<String, Bucket>>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: u32,
    /// When `left` was true. Tries that came in whole refills since are added before it is asked.
    at: Instant,
}

impl RateLimit {
    /// So many tries at once, and one more after each `refill`.
    pub(crate) fn new(burst: u32, refill: Duration) -> Self {
        Self { burst, refill, buckets: Mutex::new(HashMap::new()) }
    }

    /// Takes one try of a name, or says how long to wait for the next.
    pub(crate) fn take(&self, name: &str, now: Instant) -> Result<(), Duration> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= NAMES_MAX && !buckets.contains_key(name) {
            self.forget_the_full(&mut buckets, now);
        }
        let new = Bucket { left: self.burst, at: now };
        let bucket = buckets.entry(name.to_owned()).or_insert(new);
        *bucket = self.refilled(*bucket, now);
        match bucket.left.checked_sub(1) {
            Some(left) => {
                bucket.left = left;
                Ok(())
            }
            None => Err(self.refill.saturating_sub(now.saturating_duration_since(bucket.at))),
        }
    }

    fn refilled(&self, bucket: Bucket, now: Instant) -> Bucket {
        let passed = now.saturating_duration_since(bucket.at).as_nanos() / self.refill.as_nanos();
        let passed = u32::try_from(passed).unwrap_or(u32::MAX);
        let left = bucket.left.saturating_add(passed).min(self.burst);
        if left == self.burst {
            return Bucket { left, at: now };
        }
        Bucket { left, at: bucket.at + self.refill * passed }
    }

    /// Makes room. Names with all their tries left are as if they had never come; if there are none, all are forgotten:
    /// that gives each one more burst, and memory stays bounded.
    fn forget_the_full(&self, buckets: &mut HashMap<String, Bucket>, now: Instant) {
        buckets.retain(|_, bucket| self.refilled(*bucket, now).left < self.burst);
        if buckets.len() >= NAMES_MAX {
            buckets.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_burst_one_try_comes_back_at_a_time() {
        let limit = RateLimit::new(3, Duration::from_secs(10));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        for _ in 0..3 {
            assert_eq!(limit.take("alice", start), Ok(()));
        }
        assert_eq!(limit.take("alice", at(4)), Err(Duration::from_secs(6)));
        assert_eq!(limit.take("bob", at(4)), Ok(()), "each name has its own");
        assert_eq!(limit.take("alice", at(10)), Ok(()));
        assert_eq!(limit.take("alice", at(19)), Err(Duration::from_secs(1)));
        assert_eq!(limit.take("alice", at(29)), Ok(()));
        assert_eq!(limit.take("alice", at(30)), Ok(()), "what is left of a refill is not lost");
    }

    #[test]
    fn no_number_of_names_takes_more_memory() {
        let limit = RateLimit::new(2, Duration::from_secs(10));
        let start = Instant::now();
        for number in 0..3 * NAMES_MAX {
            assert_eq!(limit.take(&number.to_string(), start), Ok(()));
            assert!(limit.buckets.lock().unwrap().len() <= NAMES_MAX);
        }
    }

    #[test]
    fn a_clock_that_stands_gives_nothing_and_breaks_nothing() {
        let limit = RateLimit::new(1, Duration::from_secs(10));
        let earlier = Instant::now();
        let start = earlier + Duration::from_secs(50);
        assert_eq!(limit.take("alice", start), Ok(()));
        assert_eq!(limit.take("alice", earlier), Err(Duration::from_secs(10)));
    }
}
