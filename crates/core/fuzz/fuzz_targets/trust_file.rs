//! Trust files: whatever the text, refused whole or a store with keys of both needed roles; edits keep it so.
#![no_main]

use evenkeel_core::words::diagnostic::{FileId, SourceFile};
use evenkeel_core::sign::{Role, enrol, pin, trust_file};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let file = SourceFile::new(FileId(0), "trust.toml", text);
    if let Ok(trust) = trust_file::load(&file) {
        for role in Role::NEEDED {
            assert!(trust.signers().any(|signer| signer.role == role));
        }
        for signer in trust.signers() {
            if let Ok(less) = trust_file::remove(&file.text, &signer.name) {
                assert!(trust_file::add(&less, signer).is_ok());
            }
        }
    }
    let _ = pin::Pins::parse(text);
    for role in Role::ALL {
        let _ = enrol::from_allowed_signers(text, role);
    }
});
