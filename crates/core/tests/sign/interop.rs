//! V31: what plain OpenSSH signs verifies here, and what we write verifies there. Needs openssh-client.
#![expect(clippy::disallowed_methods, reason = "this test plays the operator, who has files")]

use std::path::Path;
use std::process::{Command, Stdio};

use evenkeel_core::model::reason::ReasonCode as R;
use evenkeel_core::sign::{
    Envelope, Namespace, PublicKey, Role, TrustVersion, TrustedSigners, verify,
};
use tempfile::TempDir;

use evenkeel_testkit::signing_keys::{
    Forged, TOUCHED, VERIFIED, act, clock, one_of_each, sk_ecdsa, sk_ed, statement, vault,
};

const OP: &str = "evenkeel.op.v1";

/// Runs an OpenSSH tool in a directory and gives whether it succeeded.
fn run(dir: &Path, program: &str, arguments: &[&str], input: &[u8]) -> bool {
    let input_file = dir.join("input");
    std::fs::write(&input_file, input).unwrap();
    let status = Command::new(program)
        .args(arguments)
        .current_dir(dir)
        .stdin(std::fs::OpenOptions::new().read(true).open(&input_file).unwrap())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.unwrap_or_else(|error| panic!("{program} is needed (openssh-client): {error}")).success()
}

fn generate(dir: &Path, kind: &str) -> PublicKey {
    assert!(run(dir, "ssh-keygen", &["-q", "-t", kind, "-N", "", "-f", kind], b""));
    PublicKey::from_line(&std::fs::read_to_string(dir.join(format!("{kind}.pub"))).unwrap())
        .unwrap()
}

/// Signs with `ssh-keygen -Y sign` as an operator would.
fn sign(dir: &Path, key: &str, options: &[&str], message: &[u8]) -> String {
    std::fs::write(dir.join("message"), message).unwrap();
    let mut arguments = vec!["-q", "-Y", "sign", "-f", key, "-n", OP];
    arguments.extend_from_slice(options);
    arguments.push("message");
    assert!(run(dir, "ssh-keygen", &arguments, b""));
    let text = std::fs::read_to_string(dir.join("message.sig")).unwrap();
    std::fs::remove_file(dir.join("message.sig")).unwrap();
    text
}

#[test]
fn v31_a_statement_signed_by_plain_ssh_keygen_is_allowed() {
    let dir = TempDir::new().unwrap();
    for kind in ["ed25519", "ecdsa"] {
        let key = generate(dir.path(), kind);
        let payload = statement().to_bytes().unwrap();
        let armour = sign(dir.path(), kind, &[], &payload);
        assert_eq!(verify(&armour, Namespace::Op, &payload).unwrap().key, key);
        let alice = evenkeel_core::sign::enrol::from_public_key(
            "alice",
            Role::Operational,
            &key.to_string(),
        );
        let signers = vec![alice.unwrap(), vault().signer("vault", Role::Recovery)];
        let trust = TrustedSigners::genesis(TrustVersion(1), signers).unwrap();
        let envelope = Envelope::seal(&payload, &[&armour]).unwrap();
        let decision = evenkeel_core::sign::authorise(
            &Envelope::parse(envelope.as_bytes()).unwrap(),
            &act(),
            &trust,
            &clock(),
            &evenkeel_core::sign::SpentNonces::default(),
            evenkeel_core::sign::StatementLimits::default(),
        );
        assert_eq!(decision.reason(), R::AllowedSigned);
        let sha256 = sign(dir.path(), kind, &["-O", "hashalg=sha256"], &payload);
        assert_eq!(verify(&sha256, Namespace::Op, &payload).unwrap_err().reason, R::SigHash);
    }
}

#[test]
fn v31_a_signature_through_a_real_ssh_agent_verifies() {
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("message"), b"through the agent").unwrap();
    for kind in ["ed25519", "ecdsa"] {
        let key = generate(dir.path(), kind);
        // The private file goes away, so only the agent can sign.
        let script = format!(
            "ssh-add -q {kind} && rm {kind} && ssh-keygen -q -Y sign -f {kind}.pub -n {OP} message"
        );
        assert!(run(dir.path(), "ssh-agent", &["sh", "-c", &script], b""));
        let armour = std::fs::read_to_string(dir.path().join("message.sig")).unwrap();
        std::fs::remove_file(dir.path().join("message.sig")).unwrap();
        assert_eq!(verify(&armour, Namespace::Op, b"through the agent").unwrap().key, key);
    }
}

#[test]
fn v24_rsa_and_larger_curves_by_real_ssh_keygen_are_refused() {
    let dir = TempDir::new().unwrap();
    for (kind, options) in [("rsa", &["-b", "1024"][..]), ("ecdsa", &["-b", "384"])] {
        let mut arguments = vec!["-q", "-t", kind, "-N", "", "-f", kind];
        arguments.extend_from_slice(options);
        assert!(run(dir.path(), "ssh-keygen", &arguments, b""));
        let armour = sign(dir.path(), kind, &[], b"m");
        assert_eq!(verify(&armour, Namespace::Op, b"m").unwrap_err().reason, R::KeyType);
        let line = std::fs::read_to_string(dir.path().join(format!("{kind}.pub"))).unwrap();
        assert_eq!(PublicKey::from_line(&line).unwrap_err().reason, R::KeyType);
    }
}

/// Whether `ssh-keygen -Y verify` takes a signature by one of the listed keys.
pub(crate) fn ssh_keygen_accepts(dir: &Path, armour: &str, message: &[u8]) -> bool {
    std::fs::write(dir.join("sig"), armour).unwrap();
    let arguments = ["-Y", "verify", "-f", "allowed", "-I", "signer", "-n", OP, "-s", "sig"];
    run(dir, "ssh-keygen", &arguments, message)
}

/// Writes the list of keys that oracle reads.
pub(crate) fn allow(dir: &Path, keys: impl Iterator<Item = PublicKey>) {
    let lines: Vec<String> = keys.map(|key| format!("signer {key}\n")).collect();
    std::fs::write(dir.join("allowed"), lines.concat()).unwrap();
}

#[test]
fn v31_what_we_assemble_verifies_in_openssh_for_every_key_type() {
    let dir = TempDir::new().unwrap();
    allow(dir.path(), one_of_each().iter().map(evenkeel_testkit::signing_keys::Key::public));
    for key in one_of_each() {
        let bytes = evenkeel_core::sign::signed_bytes(Namespace::Op, b"m");
        let raw = key.sign_bytes(&bytes, TOUCHED, 9);
        let armour = evenkeel_core::sign::assemble(&key.public(), Namespace::Op, &raw).unwrap();
        assert!(ssh_keygen_accepts(dir.path(), &armour, b"m"), "{}", key.name());
        assert!(!ssh_keygen_accepts(dir.path(), &armour, b"n"), "{}", key.name());
        assert!(verify(&armour, Namespace::Op, b"m").is_ok());
    }
}

#[test]
fn v08_openssh_takes_an_untouched_security_key_and_we_do_not() {
    let dir = TempDir::new().unwrap();
    let keys = [sk_ed(2), sk_ecdsa(4)];
    allow(dir.path(), keys.iter().map(evenkeel_testkit::signing_keys::Key::public));
    for key in keys {
        for (flags, ours) in [(0, false), (0x04, false), (TOUCHED, true), (VERIFIED, true)] {
            let armour = Forged::with(&key, OP, b"", b"m", flags, 1).armour();
            assert!(ssh_keygen_accepts(dir.path(), &armour, b"m"));
            assert_eq!(verify(&armour, Namespace::Op, b"m").is_ok(), ours, "{flags}");
        }
    }
}

#[test]
fn fingerprints_are_those_of_ssh_keygen() {
    let dir = TempDir::new().unwrap();
    let key = generate(dir.path(), "ed25519");
    let listed = Command::new("ssh-keygen")
        .args(["-l", "-f", "ed25519.pub"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains(&format!(" {} ", key.fingerprint())), "{listed}");
}
