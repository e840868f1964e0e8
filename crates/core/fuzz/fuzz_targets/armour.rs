//! Armour: whatever the text, it is refused or is exactly one documented form of its bytes.
#![no_main]

use evenkeel_core::sign::armour;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(blob) = armour::decode(text) {
        // Unwrapped, it is the same text as the one we write of these bytes.
        let lines = |text: &str| -> String {
            let inner: Vec<&str> = text.lines().collect();
            inner[1..inner.len() - 1].concat()
        };
        assert_eq!(lines(text), lines(&armour::encode(&blob)));
    }
});
