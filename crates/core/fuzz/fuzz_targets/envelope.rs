//! Envelopes: whatever the bytes, refused or bounded; sealed again they read the same.
#![no_main]

use evenkeel_core::sign::{Envelope, SIGNATURES_MAX, STATEMENT_BYTES_MAX, Statement};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(envelope) = Envelope::parse(bytes) {
        assert!((1..=SIGNATURES_MAX).contains(&envelope.signatures().len()));
        assert!(envelope.payload().len() <= STATEMENT_BYTES_MAX);
        let _ = envelope.claimed_namespace();
        let _ = Statement::parse(envelope.payload());
    }
});
