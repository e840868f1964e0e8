//! V: keys and the set of signatures. Weak keys, security keys, types that are not taken.

use curve25519_dalek::constants::EIGHT_TORSION;
use curve25519_dalek::edwards::{CompressedEdwardsY, EdwardsPoint};
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::Identity as _;
use evenkeel_core::model::reason::ReasonCode as R;
use evenkeel_core::sign::{
    Act, ApprovalDecision, Envelope, Namespace, PublicKey, Role, SkPolicy, SpentNonces,
    StatementLimits, TrustVersion, TrustedSigners, authorise, verify,
};
use sha2::{Digest, Sha512};

use evenkeel_testkit::signing_keys::{
    Forged, Key, TOUCHED, VERIFIED, act, alice, approved, clock, concat, decide, ecdsa, ed, reason,
    sealed, sk_ecdsa, sk_ed, statement, string, to_sign, trust, vault,
};

const MESSAGE: &[u8] = b"exactly these bytes";
const OP: &str = "evenkeel.op.v1";

fn refusal(armour: &str) -> R {
    verify(armour, Namespace::Op, MESSAGE).unwrap_err().reason
}

fn ed_blob(point: &[u8]) -> Vec<u8> {
    concat(&[&string(b"ssh-ed25519"), &string(point)])
}

/// A blob with an Ed25519 key and signature given as bytes.
fn ed_forged(point: &[u8], signature: &[u8]) -> Forged {
    let signature = concat(&[&string(b"ssh-ed25519"), &string(signature)]);
    Forged { key: ed_blob(point), signature, ..Forged::by(&ed(1), OP, MESSAGE) }
}

/// Every encoding of the eight points of small order, canonical or not.
fn small_order_encodings() -> Vec<[u8; 32]> {
    let mut encodings: Vec<[u8; 32]> =
        EIGHT_TORSION.iter().map(|point| point.compress().to_bytes()).collect();
    // y = 0, 1 and -1 again with the sign bit, and y + p.
    let mut odd = Vec::new();
    for low in [0xed_u8, 0xee] {
        let mut bytes = [0xff; 32];
        (bytes[0], bytes[31]) = (low, 0x7f);
        odd.push(bytes);
    }
    for bytes in encodings.clone().into_iter().chain(odd.clone()) {
        let mut signed = bytes;
        signed[31] ^= 0x80;
        odd.push(signed);
    }
    encodings.extend(odd);
    encodings.sort_unstable();
    encodings.dedup();
    encodings
}

#[test]
fn v05_s_plus_the_group_order_is_refused() {
    let mut signature = Forged::by(&ed(1), OP, MESSAGE).signature;
    // The order of the group, little-endian.
    let order: [u8; 32] = {
        let mut bytes = (-Scalar::ONE).to_bytes();
        bytes[0] += 1;
        bytes
    };
    let scalar = signature.len() - 32;
    let mut carry = 0;
    for (byte, add) in signature[scalar..].iter_mut().zip(order) {
        let sum = u16::from(*byte) + u16::from(add) + carry;
        *byte = u8::try_from(sum & 0xff).unwrap();
        carry = sum >> 8;
    }
    assert_eq!(carry, 0);
    let bent = Forged { signature, ..Forged::by(&ed(1), OP, MESSAGE) };
    assert_eq!(refusal(&bent.armour()), R::SigInvalid);
}

#[test]
fn v06_a_key_of_small_order_is_refused_at_enrolment() {
    let mut identity = [0; 32];
    identity[0] = 1;
    assert_eq!(PublicKey::from_blob(&ed_blob(&identity)).unwrap_err().reason, R::WeakKey);
    // R = 1, S = 0 would verify over any message.
    let signature = concat(&[&identity, &[0; 32]]);
    assert_eq!(refusal(&ed_forged(&identity, &signature).armour()), R::WeakKey);
}

#[test]
fn v07_every_encoding_of_a_small_order_point_is_refused_as_key() {
    let encodings = small_order_encodings();
    assert!(encodings.len() >= 14, "{}", encodings.len());
    for encoding in encodings {
        let answer = PublicKey::from_blob(&ed_blob(&encoding)).unwrap_err().reason;
        assert!(matches!(answer, R::WeakKey | R::SigFormat), "{encoding:02x?}: {answer}");
    }
}

#[test]
fn v07_a_key_with_a_part_of_small_order_or_a_second_encoding_is_refused() {
    let Key::Ed(key) = ed(1) else { unreachable!() };
    let point = CompressedEdwardsY(key.verifying_key().to_bytes()).decompress().unwrap();
    for torsion in EIGHT_TORSION {
        let mixed = (point + torsion).compress().to_bytes();
        let answer = PublicKey::from_blob(&ed_blob(&mixed)).map_err(|refusal| refusal.reason);
        if torsion == EdwardsPoint::identity() {
            assert!(answer.is_ok());
        } else {
            assert_eq!(answer.unwrap_err(), R::WeakKey);
        }
    }
    // y from p up to 2^255 - 1: the only points that have two encodings.
    for low in 0xed..=0xff_u8 {
        for high in [0x7f, 0xff] {
            let mut bytes = [0xff; 32];
            (bytes[0], bytes[31]) = (low, high);
            assert!(PublicKey::from_blob(&ed_blob(&bytes)).is_err(), "{low:x} {high:x}");
        }
    }
}

#[test]
fn v07_a_small_order_r_is_refused_even_if_the_equation_holds() {
    let Key::Ed(key) = ed(1) else { unreachable!() };
    let public = key.verifying_key().to_bytes();
    let signed = to_sign(OP.as_bytes(), b"", b"sha512", &Sha512::digest(MESSAGE));
    for encoding in small_order_encodings() {
        // With S = k·a the plain equation gives R = 1: the holder could sign without a nonce.
        let k = Sha512::digest(concat(&[&encoding, &public, &signed]));
        let s = Scalar::from_bytes_mod_order_wide(&k.into()) * key.to_scalar();
        let signature = concat(&[&encoding, s.as_bytes()]);
        assert_eq!(refusal(&ed_forged(&public, &signature).armour()), R::SigInvalid);
    }
}

#[test]
fn a_key_whose_secret_stands_in_a_standard_is_refused() {
    let secrets = [
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "f5e5767cf153319517630f226876b86c8160cc583bc013744c6bf255f5cc0ee5",
        "0000000000000000000000000000000000000000000000000000000000000000",
    ];
    for secret in secrets {
        let key = ed25519_dalek::SigningKey::from_bytes(&hex(secret));
        let blob = ed_blob(key.verifying_key().as_bytes());
        assert_eq!(PublicKey::from_blob(&blob).unwrap_err().reason, R::WeakKey, "{secret}");
    }
    let secrets = [
        "0000000000000000000000000000000000000000000000000000000000000001",
        "0000000000000000000000000000000000000000000000000000000000000002",
        "c9afa9d845ba75166b5c215767b1d6934e50c3db36e89b127b8a622b120f6721",
    ];
    for secret in secrets {
        let key = Key::P256(p256::ecdsa::SigningKey::from_slice(&hex(secret)).unwrap());
        assert_eq!(PublicKey::from_blob(&key.blob()).unwrap_err().reason, R::WeakKey, "{secret}");
    }
}

fn hex(text: &str) -> [u8; 32] {
    text.parse::<evenkeel_core::operate::operation::IdentityHash>().unwrap().0
}

#[test]
fn a_point_off_its_curve_or_compressed_is_no_key() {
    let Key::P256(key) = ecdsa(3) else { unreachable!() };
    let whole = key.verifying_key().to_sec1_point(false).as_bytes().to_vec();
    let mut off = whole.clone();
    off[64] ^= 1;
    let compressed = key.verifying_key().to_sec1_point(true).as_bytes().to_vec();
    for point in [off, compressed, vec![0], vec![0; 65], vec![], concat(&[&whole, b"x"])] {
        let blob =
            concat(&[&string(b"ecdsa-sha2-nistp256"), &string(b"nistp256"), &string(&point)]);
        assert_eq!(PublicKey::from_blob(&blob).unwrap_err().reason, R::SigFormat);
    }
    let other_curve =
        concat(&[&string(b"ecdsa-sha2-nistp256"), &string(b"nistp384"), &string(&whole)]);
    assert_eq!(PublicKey::from_blob(&other_curve).unwrap_err().reason, R::KeyType);
}

#[test]
fn v08_a_security_key_nobody_touched_is_refused() {
    for key in [sk_ed(1), sk_ecdsa(2)] {
        for flags in [0x00, 0x04, 0x80, 0xfe] {
            let text = Forged::with(&key, OP, b"", MESSAGE, flags, 1).armour();
            assert_eq!(refusal(&text), R::SkPresence, "{flags:x}");
        }
    }
}

/// A host whose one operational signer has a security key.
fn trust_in(key: &Key, sk: SkPolicy) -> TrustedSigners {
    let mut signer = key.signer("alice", Role::Operational);
    signer.sk = sk;
    let signers = vec![signer, vault().signer("vault", Role::Recovery)];
    TrustedSigners::genesis(TrustVersion(1), signers).unwrap()
}

fn touched(key: &Key, flags: u8, counter: u32) -> Envelope {
    let payload = statement().to_bytes().unwrap();
    let text = Forged::with(key, OP, b"", &payload, flags, counter).armour();
    Envelope::parse(Envelope::seal(&payload, &[&text]).unwrap().as_bytes()).unwrap()
}

fn decide_under(approval: &Envelope, act: &Act, trust: &TrustedSigners) -> ApprovalDecision {
    authorise(approval, act, trust, &clock(), &SpentNonces::default(), StatementLimits::default())
}

#[test]
fn v09_a_touch_without_pin_is_refused_where_the_policy_wants_one() {
    for key in [sk_ed(1), sk_ecdsa(2)] {
        let strict = trust_in(&key, SkPolicy::Verification);
        let only_touched = touched(&key, TOUCHED, 1);
        assert_eq!(decide_under(&only_touched, &act(), &strict).reason(), R::SkPresence);
        let verified = touched(&key, VERIFIED, 1);
        assert_eq!(decide_under(&verified, &act(), &strict).reason(), R::AllowedSigned);
        let usual = trust_in(&key, SkPolicy::Presence);
        assert_eq!(decide_under(&only_touched, &act(), &usual).reason(), R::AllowedSigned);
    }
}

#[test]
fn v10_the_counter_of_a_security_key_is_told_for_the_record() {
    let key = sk_ed(1);
    let decision =
        decide_under(&touched(&key, TOUCHED, 41), &act(), &trust_in(&key, SkPolicy::Presence));
    let ApprovalDecision::Allowed(approved) = decision else { panic!("{decision:?}") };
    let touch = approved.by[0].touch.unwrap();
    assert_eq!((touch.counter, touch.user_verified()), (41, false));
    // A plain key says nothing.
    let ApprovalDecision::Allowed(plain) = decide(&approved_by_alice(), &act()) else { panic!() };
    assert_eq!(plain.by[0].touch, None);
}

fn approved_by_alice() -> Envelope {
    approved(&statement())
}

#[test]
fn v12_the_same_point_under_another_application_is_another_key() {
    let Key::SkEd(secret, _) = sk_ed(1) else { unreachable!() };
    let trust = trust_in(&sk_ed(1), SkPolicy::Presence);
    let other = Key::SkEd(secret.clone(), "ssh:other");
    assert_eq!(
        decide_under(&touched(&other, TOUCHED, 1), &act(), &trust).reason(),
        R::UnknownSigner
    );
    // One that was not made for SSH at all is not taken.
    let web = Key::SkEd(secret, "https://example.org");
    assert_eq!(PublicKey::from_blob(&web.blob()).unwrap_err().reason, R::KeyType);
}

#[test]
fn v13_a_plain_key_at_the_point_of_a_security_key_is_another_key() {
    for (device, plain) in [(sk_ed(1), ed(1)), (sk_ecdsa(2), ecdsa(2))] {
        let trust = trust_in(&device, SkPolicy::Presence);
        let dodge = sealed(&statement().to_bytes().unwrap(), Namespace::Op, &[&plain]);
        assert_eq!(decide_under(&dodge, &act(), &trust).reason(), R::UnknownSigner);
    }
}

#[test]
fn v24_every_other_key_type_is_refused() {
    let others = [
        "ssh-rsa",
        "rsa-sha2-256",
        "rsa-sha2-512",
        "ssh-dss",
        "ecdsa-sha2-nistp384",
        "ecdsa-sha2-nistp521",
        "ssh-ed448",
        "webauthn-sk-ecdsa-sha2-nistp256@openssh.com",
        "SSH-ED25519",
        "ssh-ed25519 ",
        "ssh-ed25519\0",
        "",
    ];
    for name in others {
        let key = concat(&[&string(name.as_bytes()), &string(&[7; 32])]);
        assert_eq!(PublicKey::from_blob(&key).unwrap_err().reason, R::KeyType, "{name}");
        let bent = Forged { key, ..Forged::by(&ed(1), OP, MESSAGE) };
        assert_eq!(refusal(&bent.armour()), R::KeyType, "{name}");
    }
    // A WebAuthn signature under an enrolled security key.
    let mut bent = Forged::with(&sk_ecdsa(2), OP, b"", MESSAGE, TOUCHED, 1);
    let name = string(b"sk-ecdsa-sha2-nistp256@openssh.com").len();
    let web = string(b"webauthn-sk-ecdsa-sha2-nistp256@openssh.com");
    bent.signature = concat(&[&web, &bent.signature[name..], &string(b"https://x")]);
    assert_eq!(refusal(&bent.armour()), R::SigFormat);
}

#[test]
fn v25_a_certificate_is_no_key() {
    for name in [
        "ssh-ed25519-cert-v01@openssh.com",
        "ecdsa-sha2-nistp256-cert-v01@openssh.com",
        "sk-ssh-ed25519-cert-v01@openssh.com",
    ] {
        let key = concat(&[&string(name.as_bytes()), &string(&[1; 32]), &string(&alice().blob())]);
        assert_eq!(PublicKey::from_blob(&key).unwrap_err().reason, R::KeyType);
        let bent = Forged { key, ..Forged::by(&alice(), OP, MESSAGE) };
        assert_eq!(refusal(&bent.armour()), R::KeyType);
    }
}

#[test]
fn v27_an_envelope_with_a_bad_signature_is_refused_whole() {
    let payload = statement().to_bytes().unwrap();
    let good = alice().sign(Namespace::Op, &payload);
    let strangers: Vec<String> =
        (50..57).map(|seed| ed(seed).sign(Namespace::Op, &payload)).collect();
    let mut armours = vec![good.as_str()];
    armours.extend(strangers.iter().map(String::as_str));
    let envelope = Envelope::seal(&payload, &armours).unwrap();
    let envelope = Envelope::parse(envelope.as_bytes()).unwrap();
    assert_eq!(reason(&envelope, &act()), R::UnknownSigner);
    // Junk that is no signature at all.
    assert_eq!(Envelope::seal(&payload, &[&good, "junk"]).unwrap_err().reason, R::SigFormat);
    // A signature by a trusted key over other bytes beside a good one.
    let bad = vault().sign(Namespace::Op, b"other bytes");
    let envelope = Envelope::seal(&payload, &[&good, &bad]).unwrap();
    let envelope = Envelope::parse(envelope.as_bytes()).unwrap();
    assert_eq!(reason(&envelope, &act()), R::SigInvalid);
}

#[test]
fn v27_more_than_eight_signatures_or_one_key_twice_are_refused() {
    let payload = statement().to_bytes().unwrap();
    let many: Vec<String> = (50..59).map(|seed| ed(seed).sign(Namespace::Op, &payload)).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert!(Envelope::seal(&payload, &many[..8]).is_ok());
    assert_eq!(Envelope::seal(&payload, &many).unwrap_err().reason, R::Envelope);
    assert_eq!(Envelope::seal(&payload, &[]).unwrap_err().reason, R::Envelope);
    let good = alice().sign(Namespace::Op, &payload);
    assert_eq!(Envelope::seal(&payload, &[&good, &good]).unwrap_err().reason, R::Envelope);
    // Other signature bytes by the same key are still the same key.
    let key = sk_ed(1);
    let first = Forged::with(&key, OP, b"", &payload, TOUCHED, 1).armour();
    let second = Forged::with(&key, OP, b"", &payload, TOUCHED, 2).armour();
    assert_eq!(Envelope::seal(&payload, &[&first, &second]).unwrap_err().reason, R::Envelope);
}

#[test]
fn v28_a_hint_who_signed_is_refused_and_the_key_decides() {
    let sealed = Envelope::seal(
        &statement().to_bytes().unwrap(),
        &[&ed(66).sign(Namespace::Op, &statement().to_bytes().unwrap())],
    )
    .unwrap();
    let hinted = sealed.replacen('{', "{\"keyid\": \"alice\",", 1);
    assert_eq!(Envelope::parse(hinted.as_bytes()).unwrap_err().reason, R::Envelope);
    let envelope = Envelope::parse(sealed.as_bytes()).unwrap();
    assert_eq!(reason(&envelope, &act()), R::UnknownSigner);
    assert_eq!(decide_under(&approved(&statement()), &act(), &trust()).reason(), R::AllowedSigned);
}
