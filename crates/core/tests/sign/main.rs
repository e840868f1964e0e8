//! Signatures nobody can bend: one test per adversarial case, named after it.
//!
//! `docs/security-cases.md` maps every case of the sections V (signatures), P (payload and binding) and T
//! (time, nonces, roles, rotation) to its test here, or says why there is none.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up shall stop")]

mod acknowledge;
mod case_map;
mod differential;
mod enrolment;
mod fleet;
mod fuzz_corpus;
mod interop;
mod k_quorum;
mod p_binding;
mod p_payload;
mod t_lineage;
mod t_rotation;
mod t_time;
mod v_keys;
mod v_signature;
mod verdict;
