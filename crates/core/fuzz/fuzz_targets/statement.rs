//! Statements: what reads can be written and reads back the same, and can be shown.
#![no_main]

use evenkeel_core::sign::{RotationAuthority, PendingItem, Rotation, Statement, render};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(statement) = Statement::parse(bytes) {
        // A statement near the limit may not fit once written with blanks; what is written reads back.
        if let Ok(written) = statement.to_bytes() {
            assert_eq!(Statement::parse(&written), Ok(statement));
        }
        let shown = render::statement(bytes).expect("what reads can be shown");
        assert!(shown.chars().all(|letter| letter == '\n' || !letter.is_control()));
    }
    if let Ok(item) = PendingItem::parse(bytes) {
        if let Ok(written) = item.to_bytes() {
            assert_eq!(PendingItem::parse(&written), Ok(item));
        }
        render::pending(bytes).expect("what reads can be shown");
    }
    for authority in RotationAuthority::ALL {
        if let Ok(rotation) = Rotation::parse(bytes, authority) {
            if let Ok(written) = rotation.to_bytes() {
                assert_eq!(Rotation::parse(&written, authority), Ok(rotation));
            }
            render::rotation(bytes, authority).expect("what reads can be shown");
        }
    }
});
