//! The corpora of the fuzz targets: kept in step with the formats, and read by every run of the tests.
#![expect(clippy::disallowed_methods, reason = "the corpora are files beside the fuzz targets")]

use std::path::PathBuf;

use evenkeel_core::sign::{
    Envelope, Namespace, PendingItem, Role, Rotation, RotationAuthority, SshSig, Statement, armour,
    trust_file,
};
use evenkeel_core::words::diagnostic::{FileId, SourceFile};

use evenkeel_testkit::signing_keys::{Forged, alice, one_of_each, sealed_text, statement, vault};

fn good_trust_file() -> String {
    let text = trust_file::add(&trust_file::empty(), &alice().signer("alice", Role::Operational));
    trust_file::add(&text.unwrap(), &vault().signer("vault", Role::Recovery)).unwrap()
}

/// Every seed: target, name, bytes.
fn seeds() -> Vec<(&'static str, String, Vec<u8>)> {
    let mut seeds = Vec::new();
    for key in one_of_each() {
        let forged = Forged::by(&key, Namespace::Op.as_str(), b"message");
        let name = key.name().replace('@', "_");
        seeds.push(("armour", name.clone(), forged.armour().into_bytes()));
        seeds.push(("blob", name, forged.blob()));
    }
    let payload = statement().to_bytes().unwrap();
    seeds.push(("statement", "destroy".to_owned(), payload.clone()));
    seeds.push(("envelope", "destroy".to_owned(), sealed_text(&payload, &[&alice()]).into_bytes()));
    seeds.push(("statement", "rotation".to_owned(), crate::t_rotation::a_rotation()));
    seeds.push(("statement", "pending".to_owned(), crate::enrolment::item().to_bytes().unwrap()));
    seeds.push(("trust_file", "two-signers".to_owned(), good_trust_file().into_bytes()));
    seeds
}

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus")
}

#[test]
fn the_corpora_are_what_the_formats_are_today() {
    let bless = std::env::var("EVENKEEL_BLESS").is_ok();
    for (target, name, bytes) in seeds() {
        let file = corpus().join(target).join(&name);
        if bless {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, &bytes).unwrap();
        }
        let hint = "run EVENKEEL_BLESS=1 cargo test -p evenkeel-core --test sign";
        let stored = std::fs::read(&file).unwrap_or_else(|_| panic!("{}: {hint}", file.display()));
        assert_eq!(stored, bytes, "{}: {hint}", file.display());
    }
}

#[test]
fn every_file_of_the_corpora_is_read_without_harm() {
    let mut files = 0;
    for target in ["armour", "blob", "envelope", "statement", "trust_file"] {
        for entry in std::fs::read_dir(corpus().join(target)).unwrap() {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            let text = String::from_utf8_lossy(&bytes);
            let _ = armour::decode(&text);
            let _ = SshSig::from_blob(&bytes);
            let _ = Envelope::parse(&bytes);
            let _ = Statement::parse(&bytes);
            let _ = PendingItem::parse(&bytes);
            for authority in RotationAuthority::ALL {
                let _ = Rotation::parse(&bytes, authority);
            }
            let _ = trust_file::load(&SourceFile::new(FileId(0), "trust.toml", text));
            files += 1;
        }
    }
    assert!(files >= seeds().len());
}
