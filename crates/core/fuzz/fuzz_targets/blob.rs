//! Signature blobs: refused, or in the profile; and no blob that was not signed verifies.
#![no_main]

use evenkeel_core::sign::{Namespace, PublicKey, SshSig};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|blob: &[u8]| {
    let Ok(signature) = SshSig::from_blob(blob) else { return };
    let Ok(key) = PublicKey::from_blob(signature.key_blob()) else { return };
    assert_eq!(key.blob(), signature.key_blob());
    assert_eq!(PublicKey::from_line(&key.to_string()).as_ref(), Ok(&key));
    // The seeds are signed over "message" and nothing else is.
    assert!(signature.verify(&key, Namespace::Op, b"never signed").is_err());
});
