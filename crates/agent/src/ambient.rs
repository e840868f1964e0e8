//! The seam to the clock and to randomness: the machine's own, or a simulation's.
//!
//! Everything in this crate that wants the time or a fresh name asks here, so that one seed is one run.

use std::time::SystemTime;

use evenkeel_core::model::id::OperationId;
use jiff::Timestamp;

/// Where the time and randomness come from.
pub trait Ambient: Send + Sync {
    /// The wall clock.
    fn now(&self) -> Timestamp;

    /// Whether the kernel says that somebody keeps the clock right. What cannot be told counts as no.
    fn synchronised(&self) -> bool {
        false
    }

    /// Bits nobody can guess, or a seed's next ones.
    fn random(&self) -> u128;
}

/// A fresh name for an operation.
pub(crate) fn new_operation(ambient: &dyn Ambient) -> OperationId {
    let at_ms = u64::try_from(ambient.now().as_millisecond()).unwrap_or(0);
    OperationId::from_parts(at_ms, ambient.random())
}

/// The machine's clock and its kernel's randomness.
#[derive(Debug, Clone, Copy)]
pub struct Machine;

impl Ambient for Machine {
    fn now(&self) -> Timestamp {
        Timestamp::try_from(SystemTime::now()).expect("the year is before 9999")
    }

    fn synchronised(&self) -> bool {
        evenkeel_kernel_clock::is_synchronised().unwrap_or(false)
    }

    fn random(&self) -> u128 {
        let mut bytes = [0; 16];
        rustls::crypto::ring::default_provider()
            .secure_random
            .fill(&mut bytes)
            .expect("the kernel gives random bytes");
        u128::from_be_bytes(bytes)
    }
}
